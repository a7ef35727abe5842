"""Stacked tree ensembles: the answers of unequal members, the sizes of their sets, and what cannot be stacked."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_stacked import stacked
from tests.kernels.operations_trees import grouped, ordered_ensemble, tree_ensemble
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import float32_sum, stacked_tree_ensemble
from triton_regressors.kernels.ops.trees.nodes import node_layout
from triton_regressors.kernels.ops.trees.stacked_tree_ensemble import StackedTreeEnsemble
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble


def rows_of(members: int, features: int, rows: int, seed: int = 0) -> list[np.ndarray]:
    """Return rows with missing numbers, infinite ones and some categories, and the numbers of their members."""
    rng = np.random.default_rng(seed)
    (x,) = inputs_for([features], rows, seed)
    x = np.where(rng.random(x.shape) < 0.3, rng.integers(-2, 300, x.shape), x).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf, -0.5):
        x[rng.random(x.shape) < 0.05] = value
    x[: rows // 2] = np.where(np.isnan(x[: rows // 2]), 0.0, x[: rows // 2])  # programs without missing numbers
    return [x, rng.integers(0, members, (rows, 1)).astype(np.float32)]


def check(members: Sequence[TreeEnsemble], arrays: list[np.ndarray], device: torch.device) -> StackedTreeEnsemble:
    """Demand each member's own bits, in kernels and on a CPU, and return the stack."""
    x, numbers = arrays
    op = stacked(members)
    assert isinstance(op, StackedTreeEnsemble)
    op.check(x.shape[1], 1)
    found, on_cpu, reference = run_kernel(op, arrays, device), run_on_cpu(op, arrays), run_reference(op, arrays)
    for place, member in enumerate(members):
        mine = numbers[:, 0] == place
        expected = run_on_cpu(member, [x[mine]])
        assert on_cpu[mine].tobytes() == expected.tobytes()
        assert found[mine].tobytes() == run_kernel(member, [x[mine]], device).tobytes()
        assert reference[mine].tobytes() == expected.tobytes()
    return op


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 40, 600])
def test_unequal_members(device: torch.device, dtype: type, rows: int) -> None:
    """A program has rows of members with one tree and with many, with lone roots and with deep trees."""
    members = [
        tree_ensemble(4, trees, depth, 2, depth, dtype, divisor=float(trees))
        for trees, depth in ((1, 0), (70, 3), (2, 9), (1, 6), (5, 0))
    ]
    check(members, rows_of(5, 4, rows), device)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sets_of_unequal_sizes(device: torch.device, dtype: type) -> None:
    """A member's sets know fewer categories than the stack's; another member has none."""
    members = [
        tree_ensemble(4, 6, 4, seed=place, dtype=dtype, sets=sets, words=words)
        for place, (sets, words) in enumerate([(5, 1), (0, 1), (3, 8), (40, 3)])
    ]
    op = check(members, rows_of(4, 4, 600), device)
    assert op.sets.shape == (48, 8)


def test_forms_of_nodes_decide_alike(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    members, arrays = [tree_ensemble(6, 9, 5, seed=seed) for seed in range(3)], rows_of(3, 6, 520)
    with_quads = check(members, arrays, device)
    assert len(with_quads.parameters()["quads"])
    assert len(with_quads.parameters()["plain"])
    monkeypatch.setattr(stacked_tree_ensemble, "MOST_PLAIN", 0)
    assert not len(with_quads.parameters()["plain"])
    monkeypatch.setattr(stacked_tree_ensemble, "MOST_QUADS", 0)
    without = check(members, arrays, device)
    assert not len(without.parameters()["quads"])


def test_members_with_narrow_nodes_beside_wide_ones(device: torch.device) -> None:
    """The stack has wide nodes if one member needs them: here a feature's number and a distance take too many bits."""
    narrow = tree_ensemble(3, 4, 3)
    wide = tree_ensemble(2**18, 1, 12, stop=0.0)
    assert node_layout(narrow.feature, narrow.threshold, narrow.child) == (False, 2)
    op = check([narrow, wide], rows_of(2, 2**18, 6), device)
    assert op.parameters()["thresholds"].size == len(op.feature)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "scratch"), [(0, 2**25), (5, 2**25), (70, 1), (600, 2**25)])
def test_sums_in_order(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, dtype: type, rows: int, scratch: int
) -> None:
    """Leaves overflow, vanish and cancel, so that only one order gives the bits; 31 and 32 trees end at a block."""
    monkeypatch.setattr(float32_sum, "LARGEST_SCRATCH", scratch)
    rng, members = np.random.default_rng(0), []
    for trees in (1, 31, 32, 70, 2):
        op = ordered_ensemble(4, trees, 3, seed=trees, dtype=dtype)
        values = rng.choice([0.0, -0.0, 1e-45, -3e-39, 2.0**-24, 1.0, -1.0, 2.0**24], op.values.shape)
        members.append(dataclasses.replace(op, values=values.astype(np.float32), baseline=0 * op.baseline))
    members[-1].baseline[0] = members[-1].values[:] = -0.0
    check(members, rows_of(5, 4, rows), device)


def test_many_members(device: torch.device) -> None:
    """A row of the last of many members gets its answer, and so do rows of members in any order."""
    members = [tree_ensemble(3, 1 + seed % 3, 2, seed=seed) for seed in range(300)]
    x, numbers = rows_of(300, 3, 64)
    numbers[:3, 0] = 299, 0, 299
    op = stacked(members)
    on_cpu, found = run_on_cpu(op, [x, numbers]), run_kernel(op, [x, numbers], device, torch.float64)
    assert found.tobytes() == on_cpu.tobytes()
    for row, number in enumerate(numbers[:, 0].astype(int)):
        assert on_cpu[row].tobytes() == run_on_cpu(members[number], [x[row : row + 1]])[0].tobytes()


def test_a_stack_is_read_as_it_was_written() -> None:
    members = [tree_ensemble(4, 3, 3, seed=seed, sets=seed) for seed in range(3)]
    op = stacked(members, 5)
    fields: dict[str, Any] = {**dict(op.arrays()), **op.attributes()}
    again, arrays = StackedTreeEnsemble(**fields), rows_of(3, 4, 30)
    arrays[1] += 5
    assert run_on_cpu(again, arrays).tobytes() == run_on_cpu(op, arrays).tobytes()


def test_what_cannot_be_stacked_says_so() -> None:
    alike = StackedTreeEnsemble.alike
    plain = tree_ensemble(4, 3, 2)
    assert alike(dataclasses.replace(plain, output="leaves")) is None
    empty = dataclasses.replace(ordered_ensemble(4, 3, 2, groups=2), starts=np.array([0, 3, 3], dtype=np.int32))
    assert alike(empty) is None
    assert alike(plain) == alike(tree_ensemble(4, 9, 5, seed=1, divisor=3.0, sets=4, words=8))
    for other in (
        dataclasses.replace(plain, output="each"),
        grouped(plain, [0, 1, 3]),
        ordered_ensemble(4, 3, 2),
        tree_ensemble(4, 3, 2, outputs=2),
        tree_ensemble(4, 3, 2, dtype=np.float64),
        tree_ensemble(4, 3, 2, function="exp"),
        tree_ensemble(4, 3, 2, sets=2, words=9),
        tree_ensemble(4, 3, 2, rounding="floor"),
    ):
        assert alike(plain) != alike(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_tree": np.array([0, 3, 6], dtype=np.int32)}, "first_tree must be int32 and ascend from 0 to 5"),
        ({"first_tree": np.array([0, 0, 5], dtype=np.int32)}, "first_tree must be int32 and ascend from 0 to 5"),
        ({"divisor": np.ones(3)}, "divisor"),
        ({"unit": np.ones((2, 2))}, "leaves must be int64"),
        ({"output": "ordered"}, "leaves must be float32"),
        ({"output": "leaves"}, "output must be one of"),
        ({"output": "each"}, "leaves must be float64"),
        ({"rounding": "up"}, "rounding must be one of"),
    ],
)
def test_fields_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    op = stacked([tree_ensemble(4, 3, 2), tree_ensemble(4, 2, 2)])
    op.check(4, 1)
    with pytest.raises(PlanError, match=message):
        dataclasses.replace(op, **changes).check(4, 1)
