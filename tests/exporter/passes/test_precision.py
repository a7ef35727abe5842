"""Each operation sums at the cheapest of its precisions that loses next to nothing on the sample."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import triton_regressors
from tests.kernels import operations
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes.precision import (
    allowed_error,
    choose_precision,
    in_words,
    precision_choices,
    rows_at_points,
)
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def two_forms(limit: float) -> list[str]:
    """Return the precisions of a form that float32 sums do well, and of one in which they cancel, 10⁵ from zero."""
    near = operations.quadratic(4, seed=1)
    far = dataclasses.replace(near, shift=np.full(4, -1e5))
    steps = (Step(near, ("X",), "near"), Step(far, ("near_4",), "far"))
    plan = Plan(4, (Step(operations.affine(4, 4), ("X",), "near_4"), *steps), {"y": "near", "std": "far"})
    chosen, _ = choose_precision(plan, X, limit)
    return [step.operation.precision for step in chosen.steps if isinstance(step.operation, Quadratic)]


def test_precision_is_chosen_by_what_it_costs() -> None:
    assert two_forms(1e-3) == ["float32", "float64"]
    assert two_forms(1e-8) == ["float64", "float64"]


def test_a_plan_without_choices_is_left_alone() -> None:
    plan = Plan(4, (Step(operations.affine(4, 1), ("X",), "y"),), {"y": "y"})
    assert choose_precision(plan, X, 1e-5) == (plan, {})
    assert in_words("exact", 5e-7, {}) is None


def test_the_error_is_that_of_the_outputs_and_of_all_choices_together() -> None:
    """A later step may enlarge a step's error, as a root does next to zero."""
    form = operations.quadratic(4)
    zero = operations.run_reference(form, [X])[7]
    errors = []
    for function in ("identity", "cbrt"):
        steps = Step(form, ("X",), "v"), Step(Affine(np.ones((1, 1)), -zero, function), ("v",), "y")
        (choice,) = precision_choices(Plan(4, steps, {"y": "y"}), X, 1.0).values()
        assert choice.precision == "float32"
        errors.append(choice.error)
    assert errors[1] > 100 * errors[0] > 0

    twice = Plan(
        4, tuple(Step(operations.quadratic(4, seed=s), ("X",), f"v{s}") for s in (0, 1)), {"y": "v0", "std": "v1"}
    )
    first, second = precision_choices(twice, X, 1.0).values()
    assert second.error >= first.error
    limited = precision_choices(twice, X, first.error)
    assert limited["v0"].precision == "float32"


@pytest.mark.parametrize(
    ("precision", "tolerance", "expected"), [("exact", 1e-5, 5e-7), ("exact", 1e-7, 2.5e-8), ("fast", 1e-5, 2.5e-6)]
)
def test_what_may_be_lost(precision: str, tolerance: float, expected: float) -> None:
    assert allowed_error(precision, tolerance) == pytest.approx(expected)


def test_an_operation_has_float64_sums_unless_it_says_more() -> None:
    assert Operation.PRECISIONS == ("float64",)
    form = operations.quadratic(4).in_precision("float32")
    assert isinstance(form, Quadratic)
    assert form.precision == "float32"


@pytest.mark.parametrize(("alpha", "chosen"), [(1.0, "float32 pairs"), (1e-2, "ten digits"), (1e-6, "float64")])
def test_sums_that_cancel_more_are_made_more_exactly(alpha: float, chosen: str) -> None:
    """With less regularisation weights grow, and the sum of what they multiply stays as it is."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(400, 10))
    y = np.sin(4 * rows[:, 0]) * rows[:, 1] + rows[:, 2] + 0.1 * rng.standard_normal(400)
    estimator = KernelRidge(kernel="rbf", gamma=0.1, alpha=alpha).fit(rows, y)
    plan = compile_estimator(estimator, sample=rows[:100]).plan
    assert [step.operation.precision for step in plan.steps if isinstance(step.operation, PairwiseAffine)] == [chosen]


@pytest.mark.parametrize(
    ("noise", "expected"),
    [(0.1, ["float32 pairs", "ten digits", "ten digits"]), (1e-8, ["float32 pairs", "float64", "float64"])],
)
def test_a_variance_is_as_exact_at_the_points_as_elsewhere(noise: float, expected: list[str]) -> None:
    """Without noise it is next to nothing there, wherever the sample's rows are."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((380, 8))
    process = GaussianProcessRegressor(RBF(2.0), alpha=noise, optimizer=None).fit(points, points[:, 0])
    plan = compile_estimator(process, sample=rng.standard_normal((50, 8)).astype(np.float32)).plan
    several = [step.operation for step in plan.steps if len(step.operation.precisions()) > 1]
    assert [operation.kind() for operation in several] == ["pairwise_affine", "pairwise", "squared_norm"]
    assert [operation.attributes()["precision"] for operation in several] == expected
    near = rows_at_points(plan)
    assert np.abs(near[:, None] - points).sum(axis=2).min(axis=1).max() < 1e-9
    assert not len(rows_at_points(Plan(4, (Step(operations.quadratic(4), ("X",), "y"),), {"y": "y"})))


def test_what_was_asked_for_and_chosen_is_kept(tmp_path: Path) -> None:
    """Pairs are exact enough for a sum over points, and float32 is fast enough for a quadratic form."""
    rows = np.random.default_rng(0).standard_normal((150, 3))
    y = rows[:, 0] * rows[:, 1] + rows[:, 2]
    for estimator, precision, chosen in (
        (KernelRidge(kernel="rbf", alpha=0.1), "exact", "1 operation in float32 pairs"),
        (make_pipeline(PolynomialFeatures(2), Ridge()), "fast", "1 operation in float32"),
        (Ridge(), "fast", None),
    ):
        export = triton_regressors.export(
            estimator.fit(rows, y),
            tmp_path / "models",
            name=type(estimator).__name__.lower(),
            sample=rows,
            precision=precision,
        )
        kept = read_document(export.entry.version_directory).parity.precision
        if chosen is None:
            assert kept is None
        else:
            assert kept is not None
            sentence = f"Precision {precision}: the entry computes {chosen}. On these rows that moves answers by "
            assert kept.startswith(sentence)
            assert kept in str(export.contract).replace("\n", " ").replace("    ", "")
