"""Kernels make long sums over points in parts, whatever lowering they come from and whatever follows them."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.kernels.operations import run_plan
from tests.kernels.operations_pairwise import pairwise_affine
from triton_regressors.exporter.compile import Compilation, compile_estimator
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import Plan, Step

CPU = torch.device("cpu")
ROWS = 1100
rng = np.random.default_rng(0)
X = rng.standard_normal((ROWS, 3))
y = np.exp(X[:, 0] / 2) + X[:, 1] ** 2


def compiled(estimator: Any, targets: np.ndarray = y) -> Compilation:
    return compile_estimator(estimator.fit(X, targets), sample=X[:200])


def nystroem() -> Nystroem:
    return Nystroem(gamma=0.3, n_components=ROWS, random_state=0)


MODELS = {
    "kernel ridge": KernelRidge(kernel="rbf", gamma=0.3, alpha=0.1),
    "scaled": make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=0.3, alpha=0.1)),
    "targets scaled back": TransformedTargetRegressor(
        KernelRidge(kernel="rbf", gamma=0.3, alpha=0.1), transformer=StandardScaler()
    ),
    "nystroem": make_pipeline(nystroem(), Ridge()),
    "nystroem before a link": make_pipeline(nystroem(), PoissonRegressor(max_iter=10, tol=1e-2)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_many_points_has_parts(name: str) -> None:
    compilation = compiled(MODELS[name])
    (whole,) = (step.operation for step in compilation.plan.steps)
    assert isinstance(whole, PairwiseAffine)
    assert whole.parts == 1
    sums, total = (step.operation for step in compilation.plan.on_device(CPU).steps)
    assert isinstance(sums, PairwiseAffine)
    assert isinstance(total, Affine)
    assert (sums.parts, sums.function) == (9, "identity")
    assert total.function == ("exp" if "link" in name else "identity")
    assert sums.precision in ("ten digits", "float32 pairs", "float32")
    assert compilation.report.outputs["y"].within(1e-5)


def test_several_targets_of_the_same_points_are_one_sum_in_parts() -> None:
    compilation = compiled(MODELS["kernel ridge"], np.column_stack([y, -y, X[:, 2]]))
    sums, _ = (step.operation for step in compilation.plan.on_device(CPU).steps)
    assert isinstance(sums, PairwiseAffine)
    assert (sums.parts, sums.weight.shape) == (9, (ROWS, 3))
    assert compilation.report.outputs["y"].within(1e-5)


@pytest.mark.parametrize(
    ("points", "targets", "precision", "parts"),
    [
        *((points, 2, "float64", parts) for points, parts in ((1, 0), (1024, 0), (1025, 2), (2049, 3))),
        *((points, 2, "ten digits", parts) for points, parts in ((128, 0), (129, 2), (1024, 8), (9000, 36))),
        *((1024, targets, "ten digits", parts) for targets, parts in ((64, 8), (100, 4), (600, 2))),
    ],
)
@pytest.mark.parametrize("function", ["identity", "tanh"])
def test_parts_by_points_targets_and_precision(
    points: int, targets: int, precision: str, parts: int, function: str
) -> None:
    first = pairwise_affine("rbf", 2, points, 1, function=function).in_precision(precision)
    assert isinstance(first, PairwiseAffine)
    weight = np.random.default_rng(2).standard_normal((points, targets))
    whole = dataclasses.replace(first, weight=weight, intercept=np.arange(float(targets)))
    plan = Plan(2, (Step(whole, ("X",), "v"),), {"y": "v"})
    split = plan.on_device(CPU)
    assert (split is plan) == (not parts)
    assert [getattr(step.operation, "parts", 0) for step in split.steps] == ([parts, 0] if parts else [1])
    rows = np.random.default_rng(1).standard_normal((5, 2)).astype(np.float32)
    expected = run_plan(plan, rows)["y"]
    np.testing.assert_allclose(run_plan(split, rows)["y"], expected, rtol=1e-11, atol=1e-11)
