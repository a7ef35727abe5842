"""Folding into lookups keeps what a plan computes, for drawn chains of operations, NaN and unknown numbers included."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.kernels.operations import run_plan
from tests.kernels.operations_lookup import lookup
from tests.kernels.ops.columns.test_lookup import numbers
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes.fold_lookups import MANY_KEYS, look_up_at_once
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.exporter.passes.rewriting import of_pairs
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Operation, Plan, Step


def drawn_operation(rng: np.random.Generator, width: int, seed: int) -> Operation:
    match int(rng.integers(0, 7)):
        case 0:
            return Affine(rng.standard_normal((width, 2)), rng.standard_normal(2), str(rng.choice(["identity", "exp"])))
        case 1:
            return Scale(rng.standard_normal(width), rng.standard_normal(width))
        case 2:
            return Columns(rng.integers(0, width, int(rng.integers(1, 4))).astype(np.int32))
        case 3:
            return Elementwise(str(rng.choice(["identity", "square"])), -1.0, 1.0)
    op = lookup(
        width, [int(c) for c in rng.integers(0, 6, int(rng.integers(1, 7)))], int(rng.integers(0, 3)), seed, 0.5
    )
    table = np.round(op.table * 2) / 2
    table[rng.random(table.shape) < 0.1] = np.nan
    table[rng.random(table.shape) < 0.3] = 0
    return Lookup(op.columns, op.starts, op.keys, table, op.summed)


@pytest.mark.parametrize("seed", range(24))
def test_drawn_chains_answer_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = width = int(rng.integers(1, 5))
    steps: list[Step] = []
    for index in range(int(rng.integers(2, 6))):
        op = drawn_operation(rng, width, seed + index)
        steps.append(Step(op, (f"v{index - 1}" if index else "X",), f"v{index}"))
        width = op.output_width(width)
    plan = Plan(first, tuple(steps), {"y": steps[-1].output})
    X = numbers(first, 50, seed, grid=0.5, span=8).astype(np.float32)
    if any(isinstance(step.operation, Affine | Columns) for step in steps):
        X = np.where(np.isnan(X), np.float32(9.5), X)  # an affine map of selected columns reads the others as 0 · x
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            run_plan(fuse(plan), X)["y"], run_plan(plan, X)["y"], rtol=1e-9, atol=1e-9, equal_nan=True
        )


@pytest.mark.parametrize("function", ["identity", "exp"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("beside", ["columns", "columns twice", "nothing", "another lookup"])
@pytest.mark.parametrize("seed", range(3))
def test_lookups_beside_others_are_added_up(function: str, targets: int, beside: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = lookup(3, [2, 4, 0], seed=seed, grid=0.5), lookup(3, [1, 3], seed=seed + 10, grid=0.5)
    parts: list[Step] = [Step(first, ("X",), "found")]
    if beside.startswith("columns"):
        parts.insert(0, Step(Columns(np.array([1, 2], dtype=np.int32)), ("X",), "kept"))
    if beside == "columns twice":
        parts.append(Step(Scale(np.ones(3), np.full(3, 0.5)), ("X",), "scaled"))
    if beside == "another lookup":
        parts.append(Step(second, ("X",), "more"))
    else:
        parts.append(Step(first, ("X",), "again"))
    width = sum(part.operation.output_width(3) for part in parts)
    affine = Affine(0.1 * rng.standard_normal((width, targets)), rng.standard_normal(targets), function)
    whole = Step(Concatenate(), tuple(part.output for part in parts), "whole")
    plan = Plan(3, (*parts, whole, Step(affine, ("whole",), "y")), {"y": "y"})
    fused = fuse(plan)
    assert "concatenate" not in [step.operation.kind() for step in fused.steps]
    assert all(step.operation.summed for step in fused.steps if isinstance(step.operation, Lookup))
    X = np.nan_to_num(numbers(3, 50, seed, grid=0.5, span=8).astype(np.float32), nan=9.5)
    np.testing.assert_allclose(run_plan(fused, X)["y"], run_plan(plan, X)["y"], rtol=1e-12, equal_nan=True)


def test_one_hot_columns_before_a_linear_model_are_never_made() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 500, (1000, 3)).astype(np.float64)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge()).fit(X, X.sum(axis=1))
    (step,) = compile_estimator(model, sample=X[:100]).plan.steps
    assert isinstance(step.operation, Lookup)
    assert len(step.operation.keys) <= 1500


@pytest.mark.parametrize("seed", range(6))
def test_two_lookups_in_a_row_are_one(seed: int) -> None:
    first = lookup(3, [2, 4, 0], seed=seed, grid=0.5)
    codes = Lookup(first.columns, first.starts, first.keys, np.round(first.table))
    one_hot = lookup(3, [1, 1, 1, 2, 2], seed=seed + 10, grid=1.0)
    plan = Plan(3, (Step(codes, ("X",), "codes"), Step(one_hot, ("codes",), "y")), {"y": "y"})
    at_once = of_pairs(look_up_at_once)(plan)
    assert len(at_once.steps) == 1
    X = numbers(3, 50, seed, grid=0.5, span=8).astype(np.float32)
    np.testing.assert_array_equal(run_plan(at_once, X)["y"], run_plan(plan, X)["y"])


def test_lookups_that_would_get_many_keys_stay_two() -> None:
    count = MANY_KEYS // 2
    codes = Lookup(
        np.zeros(1, dtype=np.int32), np.array([0, count]), np.arange(count, dtype=np.float64), np.zeros((count + 2, 1))
    )
    for columns, composed in ((2, True), (3, False)):
        own = lookup(1, [0] * columns)
        assert (look_up_at_once(codes, own, 1) is not None) == composed
