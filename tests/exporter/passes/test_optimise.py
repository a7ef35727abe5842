"""Passes: they keep what a plan computes, for any plan, come to an end, and land where the product promises."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from tests.exporter.data import counts, diabetes, linnerud
from tests.kernels import operations
from tests.kernels.operations import run_plan
from tests.kernels.operations_lookup import lookup
from tests.kernels.operations_polynomial import monomials
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes import optimise
from triton_regressors.exporter.passes.cost import cost
from triton_regressors.exporter.passes.optimise import FUSIONS, Pass, fuse, fusion_stages
from triton_regressors.exporter.passes.rewriting import of_steps
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

MAX_WIDTH = 40


def draw_operation(rng: np.random.Generator, width: int) -> Operation:
    """Return an operation that reads a matrix of that width; now and then one that changes nothing."""
    targets = int(rng.integers(1, 5))
    match int(rng.integers(0, 11)):
        case 0:
            return Scale(rng.standard_normal(width), rng.uniform(0.5, 1.5, width))
        case 1:  # a column that becomes zero: nothing may divide by this factor
            return Scale(rng.standard_normal(width), rng.integers(0, 2, width).astype(np.float64))
        case 2:
            return Scale(np.zeros(width), np.ones(width))
        case 3:
            return Columns(rng.integers(0, width, int(rng.integers(1, width + 2))).astype(np.int32))
        case 4:
            return Columns(rng.permutation(width)[: int(rng.integers(1, width + 1))].astype(np.int32))
        case 5:
            return Columns(np.arange(width, dtype=np.int32))
        case 6:
            function = str(rng.choice(["identity", "tanh", "negative"]))
            return Affine(rng.standard_normal((width, targets)) / width, rng.standard_normal(targets), function)
        case 7:
            low, high = [(None, None), (-0.5, None), (-0.5, 0.5)][int(rng.integers(0, 3))]
            return Elementwise(str(rng.choice(["identity", "tanh", "absolute"])), low, high)
        case 8 if width <= 5:
            degree = int(rng.integers(1, 4))
            indices = monomials(width, degree)
            kept = rng.permutation(len(indices))[: int(rng.integers(1, len(indices) + 1))]
            return Polynomial(indices[kept], rng.standard_normal(width), rng.uniform(0.5, 1.5, width))
        case 9 if width <= 6:
            form = np.triu(rng.standard_normal((targets, width, width)))
            shift, factor = rng.standard_normal(width), rng.uniform(0.5, 1.5, width)
            return Quadratic(shift, factor, form, rng.standard_normal((targets, width)), rng.standard_normal(targets))
        case 10:  # no drawn number is one of its keys: it answers with what it has for unknown ones
            return lookup(width, rng.integers(0, 4, targets).tolist(), int(rng.integers(0, 3)), int(rng.integers(99)))
    return Affine(rng.standard_normal((width, targets)) / width, rng.standard_normal(targets))


def draw_plan(seed: int, steps: int, together: float = 0.2) -> Plan:
    """Return a well-formed plan of mostly chained steps with some branches, and one or two outputs.

    `together` is the share of the steps that put others side by side.
    """
    rng = np.random.default_rng(seed)
    widths = {"X": int(rng.integers(1, 8))}
    made: list[Step] = []
    for index in range(steps):
        names = list(widths)
        name = names[-1] if rng.random() < 0.7 else str(rng.choice(names))
        inputs: tuple[str, ...] = (name,)
        operation = draw_operation(rng, widths[name])
        if rng.random() < together:
            inputs = tuple(str(n) for n in rng.choice(names, int(rng.integers(1, 4))))
            operation = Concatenate()
        width = operation.output_width(*(widths[n] for n in inputs))
        if width > MAX_WIDTH:
            continue
        widths[f"v{index}"] = width
        made.append(Step(operation, inputs, f"v{index}"))
    outputs = {"y": list(widths)[-1]}
    if rng.random() < 0.4:
        outputs["std"] = str(rng.choice(list(widths)))
    return Plan(widths["X"], tuple(made), outputs)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 9))
def test_every_pass_keeps_what_any_plan_computes(seed: int, steps: int) -> None:
    plan = draw_plan(seed, steps)
    written = plan.to_json(), {name: array.copy() for name, array in plan.to_tensors().items()}
    X = np.random.default_rng(seed).standard_normal((6, plan.n_features)).astype(np.float32)
    expected = run_plan(plan, X)
    names = {fusion.name for fusion in FUSIONS}
    before = plan
    for name, fused in fusion_stages(plan):
        assert name in names
        assert fused.output_widths() == plan.output_widths()
        assert len(fused.steps) <= len(before.steps) or name == "add up lookups"
        assert cost(fused) < cost(before)
        found = run_plan(fused, X)
        for output, y in expected.items():
            np.testing.assert_allclose(found[output], y, rtol=1e-9, atol=1e-9 * max(np.abs(y).max(), 1), err_msg=name)
        before = fused
    assert plan.to_json() == written[0]  # passes are pure
    assert all(np.array_equal(array, written[1][name]) for name, array in plan.to_tensors().items())
    assert fuse(before) is before


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(10, 20))
def test_fusing_large_plans_ends_after_a_few_rounds(seed: int, steps: int) -> None:
    plan = draw_plan(seed, steps, together=0.4)
    names = [name for name, _ in fusion_stages(plan)]
    assert max(map(names.count, names), default=0) <= 8  # a pass runs once a round


def test_a_fusion_that_turns_in_a_circle_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Step(Scale(np.ones(2), np.full(2, factor)), ("X",), f"v{factor}") for factor in (2, 3))
    plan = Plan(2, (one, two), {"y": one.output, "std": two.output})
    turn = Pass("turn", lambda plan: plan.with_steps(reversed(plan.steps)))
    monkeypatch.setattr(optimise, "FUSIONS", (turn,))
    with pytest.raises(AssertionError, match=r"^'turn' makes a plan of Cost\(launches=2, beside=0, depth=2, "):
        fuse(plan)


def test_a_rewriting_that_saves_nothing_is_left() -> None:
    plan = Plan(2, (Step(Scale(np.ones(2), np.full(2, 2.0)), ("X",), "v"),), {"y": "v"})
    again = of_steps(lambda step, scope: [Step(step.operation, step.inputs, step.output)], may_add_steps=True)
    assert again(plan) is plan


def test_a_nested_concatenate_that_is_read_elsewhere_stays() -> None:
    steps = (
        Step(Elementwise("tanh"), ("X",), "a"),
        Step(Elementwise("exp"), ("X",), "b"),
        Step(Concatenate(), ("a", "b"), "inner"),
        Step(Concatenate(), ("inner", "X"), "outer"),
    )
    plan = Plan(2, steps, {"y": "outer", "std": "inner"})
    assert fuse(plan) is plan  # two parts more to copy, and none less


def kinds(estimator: Any) -> list[type]:
    return [type(step.operation) for step in compile_estimator(estimator).plan.steps]


def test_scaler_pca_and_ridge_are_one_affine_map() -> None:
    X, y = diabetes()
    compilation = compile_estimator(make_pipeline(StandardScaler(), PCA(5), Ridge()).fit(X, y))
    assert [type(step.operation) for step in compilation.stages[0][1].steps] == [Scale, Affine, Affine]
    assert [type(step.operation) for step in compilation.plan.steps] == [Affine]
    assert compilation.plan.parameter_count() == 10 + 1


@pytest.mark.parametrize(("degree", "kind"), [(2, Quadratic), (3, PolynomialAffine), (4, PolynomialAffine)])
def test_scaler_polynomial_and_ridge_are_one_launch(degree: int, kind: type) -> None:
    X, y = diabetes()
    model = make_pipeline(StandardScaler(), PolynomialFeatures(degree), Ridge()).fit(X[:, :5], y)
    plan = compile_estimator(model).plan
    assert [type(step.operation) for step in plan.steps] == [kind]
    assert sum(step.launches() for step in plan.steps) == 1


def test_what_stands_around_a_polynomial_is_folded_too() -> None:
    X, y = diabetes()
    after = make_pipeline(
        StandardScaler(), PolynomialFeatures(2), SelectKBest(f_regression, k=9), StandardScaler(), Ridge()
    )
    assert kinds(after.fit(X, y)) == [Quadratic]
    before = make_pipeline(SelectKBest(f_regression, k=4), StandardScaler(), PolynomialFeatures(3), Ridge())
    assert kinds(before.fit(X, y)) == [PolynomialAffine]


def test_several_targets_and_links_are_one_step() -> None:
    X, Y = linnerud()
    assert kinds(MultiOutputRegressor(make_pipeline(StandardScaler(), PCA(2), Ridge())).fit(X, Y)) == [Affine]
    X, y = counts()
    model = make_pipeline(StandardScaler(), PCA(3), PoissonRegressor()).fit(X, y)
    (step,) = compile_estimator(model).plan.steps
    assert isinstance(step.operation, Affine)
    assert step.operation.function == "exp"


def test_stages_are_named_after_the_passes() -> None:
    X, y = diabetes()
    model = make_pipeline(StandardScaler(), SelectKBest(f_regression, k=4), PolynomialFeatures(2), Ridge()).fit(X, y)
    names = [name for name, _ in compile_estimator(model).stages]
    assert names[0] == "lowered"
    assert set(names[1:]) <= {fusion.name for fusion in FUSIONS} | {"choose precision"}
    assert "use the quadratic form" in names


def test_a_scale_by_zero_is_not_divided_by() -> None:
    steps = (
        Step(Scale(np.array([1.0, 2.0]), np.array([0.0, 1.0])), ("X",), "a"),
        Step(Scale(np.array([3.0, 4.0]), np.array([5.0, 6.0])), ("a",), "b"),
        Step(operations.polynomial(2, 2), ("b",), "c"),
    )
    plan = Plan(2, steps, {"y": "c"})
    X = np.array([[1.0, 2.0], [-3.0, 0.5]], dtype=np.float32)
    np.testing.assert_allclose(run_plan(fuse(plan), X)["y"], run_plan(plan, X)["y"], rtol=1e-12)
