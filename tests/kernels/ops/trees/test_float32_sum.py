"""Ordered sums: the bits of a loop in float32, tree after tree, by both engines, in any batch and by any tile."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import ordered_ensemble, tree_ensemble
from tests.kernels.ops.trees.test_tree_ensemble import drawn, dtypes, leaves, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import float32_sum
from triton_regressors.kernels.ops.trees.launch import Tile
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

ODD = [0.0, -0.0, 1e-45, -3e-39, 3e38, -3e38, np.inf, -np.inf, np.nan, 2.0**-24, 1.0, 2.0**24]
"""Values whose sums overflow, vanish, cancel or are half of a last place."""


def expected(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    """Return the sums of a loop over the trees, each step rounded to float32."""
    reached, width = leaves(op, x), op.values.shape[1]
    total = np.repeat(op.baseline[None], len(x), axis=0)
    with np.errstate(all="ignore"):
        for group in range(len(op.starts) - 1):
            part = total[:, group * width : (group + 1) * width]
            for tree in range(op.starts[group], op.starts[group + 1]):
                part += op.values[reached[:, tree]]
                assert part.dtype == np.float32
    return total


def bits(numbers: np.ndarray) -> np.ndarray:
    """Return the bits of float32 numbers, the same for every NaN."""
    single = numbers.astype(np.float32)
    assert np.array_equal(single, numbers, equal_nan=True)
    return np.where(np.isnan(single), np.float32(np.nan), single).view(np.int32)


def check(op: TreeEnsemble, x: np.ndarray, device: torch.device) -> None:
    """The kernels and the reference give the loop's bits."""
    exact = bits(expected(op, x))
    assert np.array_equal(bits(run_reference(op, [x])), exact)
    assert np.array_equal(bits(run_on_cpu(op, [x])), exact)
    assert np.array_equal(bits(run_kernel(op, [x], device)), exact)
    assert np.array_equal(bits(run_kernel(op, [x.astype(np.float64)], device, torch.float64)), exact)


@drawn
@given(
    features=st.integers(1, 9),
    trees=st.integers(1, 90),
    groups=st.integers(1, 3),
    width=st.integers(1, 3),
    odd=st.booleans(),
    dtype=dtypes,
    rows=st.sampled_from([0, 1, 2, 33]),
    seed=seeds,
)
def test_sums(
    device: torch.device,
    features: int,
    trees: int,
    groups: int,
    width: int,
    odd: bool,
    dtype: type,
    rows: int,
    seed: int,
) -> None:
    op = ordered_ensemble(features, trees, 3, groups, outputs=width, seed=seed, dtype=dtype)
    if odd:
        values = np.random.default_rng(seed).choice(ODD, (len(op.values), width), p=[0.17, 0.17, *[0.066] * 10])
        op = dataclasses.replace(op, values=values.astype(np.float32), baseline=np.full_like(op.baseline, -0.0))
    check(op, inputs_for([features], rows, seed)[0], device)


@pytest.mark.parametrize("form", ["plain", "quads"])
def test_any_tile_gives_these_bits(device: torch.device, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Rows that wait in several parts have them too, and rows whose neighbours miss a number."""
    monkeypatch.setattr(float32_sum, "LARGEST_SCRATCH", 1)
    for width in (1, 2):
        op = ordered_ensemble(6, 12, 4, 2, outputs=width, seed=width)
        (x,) = inputs_for([6], 36)
        x[5, 2] = x[33] = np.nan
        for sizes in ((16, 8, 1, 8), (4, 32, 1, 8), (8, 16, 1, None)):
            tile = Tile(*sizes, form, num_warps=4)
            monkeypatch.setattr(float32_sum, "tree_tile", lambda *_, tile=tile, **__: tile)
            check(op, x, device)


def test_a_row_has_the_same_bits_in_every_batch(device: torch.device) -> None:
    op = ordered_ensemble(6, 30, 3, 2)
    (x,) = inputs_for([6], 37)
    x, whole = np.tile(x, (27, 1))[:1000], np.tile(expected(op, x), (27, 1))[:1000]
    for first, rows in ((0, 1), (7, 3), (31, 2), (500, 9), (900, 100), (0, 1000)):
        part = slice(first, first + rows)
        assert np.array_equal(run_reference(op, [x[part]]), whole[part])
        assert np.array_equal(run_on_cpu(op, [x[part]]), whole[part])
        if rows in (3, 1000):
            assert np.array_equal(run_kernel(op, [x[part]], device), whole[part])


def test_the_order_is_that_of_the_roots(device: torch.device) -> None:
    """Trees of different depths descend in another order than that of their sum."""
    op = ordered_ensemble(3, 20, 5, stop=0.5, seed=4)
    shuffled = dataclasses.replace(op, roots=np.random.default_rng(0).permutation(op.roots).astype(np.int32))
    (x,) = inputs_for([3], 10)
    assert not np.array_equal(expected(op, x), expected(shuffled, x))
    check(shuffled, x, device)


def test_a_group_without_trees_answers_its_baseline(device: torch.device) -> None:
    op = ordered_ensemble(3, 2, 2)
    op = dataclasses.replace(op, starts=np.array([0, 0, 2, 2], dtype=np.int32), baseline=np.arange(3, dtype=np.float32))
    (x,) = inputs_for([3], 5)
    check(op, x, device)
    assert (run_reference(op, [x])[:, [0, 2]] == [0, 2]).all()
    assert (run_on_cpu(op, [x])[:, [0, 2]] == [0, 2]).all()


def test_functions_are_of_the_sum_in_float64(device: torch.device) -> None:
    op, (x,) = ordered_ensemble(3, 9, 3), inputs_for([3], 20)
    after = np.exp(expected(op, x).astype(np.float64))
    op = dataclasses.replace(op, function="exp")
    assert np.allclose(run_reference(op, [x]), after, rtol=1e-15, atol=0)
    assert np.allclose(run_on_cpu(op, [x]), after, rtol=1e-15, atol=0)
    assert np.allclose(run_kernel(op, [x], device, torch.float64), after, rtol=1e-15, atol=0)


ORDERED = ordered_ensemble(3, 2, 3)
WRONG = {
    "values": ({"values": ORDERED.values.astype(float)}, "values and baseline must be float32, and divisor 1, where"),
    "baseline": ({"baseline": ORDERED.baseline.astype(float)}, "values and baseline must be float32, and divisor 1,"),
    "divisor": ({"divisor": 2.0}, "values and baseline must be float32, and divisor 1, where output is 'ordered'."),
    "no starts": ({"starts": ORDERED.starts[:0]}, "starts must be int32 [groups + 1], at least one group, and not"),
    "starts": ({"starts": np.array([0, 1, 0, 2], dtype=np.int32)}, "starts must be int32 [groups + 1], at least one"),
    "trees": ({"starts": np.array([0, 3], dtype=np.int32)}, "starts must begin with 0 and end with 2."),
    "groups": ({"starts": np.array([0, 1, 2], dtype=np.int32)}, "values must be [leaves, outputs / groups], and"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG[case]
    ORDERED.check(3)
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(ORDERED, **changes).check(3)
    assert f"tree_ensemble: {message}" in str(raised.value)


def test_other_outputs_have_no_groups() -> None:
    op = dataclasses.replace(tree_ensemble(3, 2, 3, output="each"), starts=np.array([0, 2], dtype=np.int32))
    with pytest.raises(PlanError, match="tree_ensemble: starts must be empty unless the output is"):
        op.check(3)
