"""Sums of linear leaves: the same as a loop over rows, trees and terms, with missing and infinite numbers."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import linear_leaves
from tests.kernels.test_ops import drawn, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import linear_leaves as module
from triton_regressors.kernels.ops.trees.linear_leaves import LinearLeaves


def expected(op: LinearLeaves, leaves: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the sums of a loop."""
    found = np.zeros((len(x), 1))
    for row, numbers in enumerate(x.astype(np.float64)):
        for leaf in leaves[row].astype(int):
            held = op.feature[leaf] >= 0
            read = numbers[op.feature[leaf, held]]
            answer = op.constant[leaf]
            for coefficient, number in zip(op.coefficient[leaf, held], read, strict=True):
                answer += coefficient * number
            found[row] += op.value[leaf] if np.isnan(read).any() else answer
    return found


def drawn_inputs(op: LinearLeaves, trees: int, features: int, rows: int, seed: int) -> list[np.ndarray]:
    """Return leaves, and rows with a tenth of their numbers missing."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((rows, features)) < 0.1, np.nan, rng.standard_normal((rows, features)))
    return [rng.integers(0, len(op.constant), (rows, trees)).astype(np.float32), x.astype(np.float32)]


@drawn
@given(
    features=st.integers(1, 9),
    leaves=st.integers(1, 20),
    terms=st.integers(1, 9),
    trees=st.integers(1, 40),
    rows=st.sampled_from([0, 1, 5, 18]),
    seed=seeds,
)
def test_sums(device: torch.device, features: int, leaves: int, terms: int, trees: int, rows: int, seed: int) -> None:
    op = linear_leaves(features, leaves, terms, seed)
    arrays = drawn_inputs(op, trees, features, rows, seed)
    exact = expected(op, *arrays)
    np.testing.assert_array_equal(run_reference(op, arrays), exact)
    np.testing.assert_array_equal(run_on_cpu(op, arrays), exact)
    found = run_kernel(op, [array.astype(np.float64) for array in arrays], device, torch.float64)
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-13)


def test_what_a_leaf_does_not_read_leaves_it_alone(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE_TERMS", 1)  # a tile is a row
    op = linear_leaves(5, 6, 3)
    op = dataclasses.replace(op, feature=np.where(op.feature == 2, -1, op.feature).astype(np.int32))
    arrays = drawn_inputs(op, 3, 5, 12, 0)
    for number in (np.inf, -np.inf, np.nan):
        arrays[1][:, 2] = number
        exact = expected(op, *arrays)
        assert np.isfinite(exact).all()
        np.testing.assert_array_equal(run_reference(op, arrays), exact)
        np.testing.assert_array_equal(run_on_cpu(op, arrays), exact)
        np.testing.assert_allclose(run_kernel(op, arrays, device, torch.float64), exact, rtol=1e-13, atol=1e-13)


OP = linear_leaves(3, 4, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"constant": np.zeros(5)}, "constant and value must be [leaves], feature [leaves, terms]."),
        (
            {"feature": OP.feature.astype(np.int64)},
            "feature must be int32 [leaves, terms], at least one, and coefficient as large.",
        ),
        (
            {"feature": OP.feature[:, :0]},
            "feature must be int32 [leaves, terms], at least one, and coefficient as large.",
        ),
        (
            {"coefficient": OP.coefficient[:, :1]},
            "feature must be int32 [leaves, terms], at least one, and coefficient as large.",
        ),
        ({"feature": OP.feature + np.int32(3)}, "features must lie in [-1, 3)."),
    ],
)
def test_fields_that_do_not_fit_are_named(changes: dict[str, np.ndarray], message: str) -> None:
    OP.check(7, 3)
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(OP, **changes).check(7, 3)
    assert str(raised.value) == f"linear_leaves: {message}"
