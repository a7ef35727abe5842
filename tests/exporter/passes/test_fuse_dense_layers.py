"""The layers of a network become one operation, wherever it stands in a plan."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes.fuse_dense_layers import MAX_TARGETS, MAX_WIDTH, fuse_dense_layers
from triton_regressors.exporter.passes.precision import choose_precision
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.plan.plan import Plan, Step

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3)).astype(np.float32)


def plan_of(*functions: str, widths: tuple[int, ...], outputs: tuple[str, ...] = ()) -> Plan:
    """Return Affine maps in a row, of which some values are outputs too."""
    steps = [
        Step(
            Affine(rng.standard_normal((a, b)) / a, rng.standard_normal(b), function),
            (f"v{i}" if i else "X",),
            f"v{i + 1}",
        )
        for i, (a, b, function) in enumerate(zip(widths, widths[1:], functions, strict=False))
    ]
    return Plan(widths[0], tuple(steps), {"y": steps[-1].output, **dict(zip(("std",), outputs, strict=False))})


def kinds(plan: Plan) -> list[str]:
    return [step.operation.kind() for step in plan.steps]


CHAINS = {
    "two": (plan_of("relu", "identity", widths=(3, 5, 1)), ["dense_layers"]),
    "three, then a function": (plan_of("tanh", "tanh", "exp", widths=(3, 5, 4, 2)), ["dense_layers"]),
    "another function": (plan_of("tanh", "relu", "identity", widths=(3, 5, 4, 2)), ["affine", "dense_layers"]),
    "no activation": (plan_of("exp", "identity", widths=(3, 5, 1)), ["affine", "affine"]),
    "read elsewhere": (
        plan_of("relu", "relu", "identity", widths=(3, 5, 4, 1), outputs=("v1",)),
        ["affine", "dense_layers"],
    ),
    "wide": (plan_of("relu", "relu", "identity", widths=(3, MAX_WIDTH + 1, 4, 1)), ["affine", "affine", "affine"]),
    "wide input": (plan_of("relu", "relu", "identity", widths=(MAX_WIDTH + 1, 5, 4, 1)), ["affine", "dense_layers"]),
    "many targets": (plan_of("relu", "identity", widths=(3, 5, MAX_TARGETS + 1)), ["affine", "affine"]),
    "one": (plan_of("identity", widths=(3, 1)), ["affine"]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_layers_become_one_step(name: str) -> None:
    plan, expected = CHAINS[name]
    x = rng.standard_normal((60, plan.n_features)).astype(np.float32)
    fused = fuse_dense_layers(plan, x)
    assert kinds(fused) == expected
    assert (fused is plan) == ("dense_layers" not in expected)
    assert fuse_dense_layers(fused, x) is fused
    for output, y in run_plan(plan, x).items():
        np.testing.assert_allclose(run_plan(fused, x)[output], y, rtol=1e-12, atol=1e-12)


def shift(plan: Plan, x: np.ndarray) -> np.ndarray:
    (found,) = [step.operation for step in fuse_dense_layers(plan, x).steps if isinstance(step.operation, DenseLayers)]
    return found.shift


def test_features_far_from_zero_are_shifted() -> None:
    plan = plan_of("relu", "identity", widths=(3, 5, 1))
    x = (X + np.array([0, 1000, -30])).astype(np.float32)
    x[3, 1] = np.nan
    found = shift(plan, x)
    assert found[0] == 0
    np.testing.assert_allclose(found[1:], [1000, -30], rtol=0.1)
    assert np.array_equal(found, found.astype(np.float32))


def test_what_a_step_made_is_not_shifted() -> None:
    scale, layers = Scale(np.zeros(3), np.ones(3)), plan_of("relu", "identity", widths=(3, 5, 1)).steps
    steps = (Step(scale, ("X",), "v0"), Step(layers[0].operation, ("v0",), "v1"), layers[1])
    assert not shift(Plan(3, steps, {"y": "v2"}), X + np.float32(1000)).any()


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
def test_networks_are_one_step_and_one_launch(activation: str) -> None:
    network = MLPRegressor(hidden_layer_sizes=(20, 10), activation=activation, max_iter=3, random_state=0)
    model = make_pipeline(StandardScaler(), PCA(2), network)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, X[:, 0] * X[:, 1])
    compilation = compile_estimator(model, sample=X)
    (step,) = compilation.plan.steps
    assert isinstance(step.operation, DenseLayers)
    assert step.operation.widths == (3, 20, 10, 1)
    assert compilation.report.outputs["y"].within(1e-5)
    launches = {name: step.operation.in_precision(name).launches(1) for name in DenseLayers.PRECISIONS}
    assert launches == {"float64": 3, "int8": 1, "float16": 1}


def test_precision_is_chosen_by_what_it_costs() -> None:
    plan = fuse_dense_layers(plan_of("relu", "identity", widths=(3, 9, 1)), X)
    for limit, expected in ((1e-3, "float16"), (1e-7, "int8"), (1e-12, "float64")):
        chosen, _ = choose_precision(plan, X, limit)
        (step,) = chosen.steps
        assert step.operation.attributes()["precision"] == expected
