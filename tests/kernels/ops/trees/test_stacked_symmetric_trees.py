"""Stacked symmetric trees: the answers of unequal members, rows with missing numbers, and what cannot be stacked."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_stacked import stacked
from tests.kernels.operations_trees import grouped, symmetric_trees
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import launch
from triton_regressors.kernels.ops.trees.stacked_symmetric_trees import StackedSymmetricTrees


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 130])
def test_unequal_members(device: torch.device, dtype: type, rows: int) -> None:
    """A program has rows of members with one tree and with many, shallow and deep; some numbers are missing."""
    depths = ([0], [6] * 150, [1, 12, 3], [16], [2] * 20)
    members = [symmetric_trees(4, each, 2, len(each), dtype, 5 + len(each)) for each in depths]
    rng, (x,) = np.random.default_rng(0), inputs_for([4], rows)
    x[rng.random(x.shape) < 0.2] = np.nan
    numbers = rng.integers(0, len(members), (rows, 1)).astype(np.float32)
    op = stacked(members)
    op.check(4, 1)
    found, on_cpu, reference = (
        run_kernel(op, [x, numbers], device), run_on_cpu(op, [x, numbers]), run_reference(op, [x, numbers])
    )  # fmt: skip
    for place, member in enumerate(members):
        mine = numbers[:, 0] == place
        expected = run_on_cpu(member, [x[mine]])
        assert on_cpu[mine].tobytes() == reference[mine].tobytes() == expected.tobytes()
        assert found[mine].tobytes() == run_kernel(member, [x[mine]], device).tobytes()


def test_many_rows_of_many_trees_take_fewer_trees_at_a_time(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [symmetric_trees(4, [3] * trees, seed=trees) for trees in (300, 7)]
    arrays = [*inputs_for([4], 9), np.arange(9, dtype=np.float32)[:, None] % 2]
    few = run_kernel(stacked(members), arrays, device, torch.float64)
    monkeypatch.setattr(launch, "FEW_PAIRS", 0)
    assert run_kernel(stacked(members), arrays, device, torch.float64).tobytes() == few.tobytes()


def test_what_cannot_be_stacked_says_so() -> None:
    alike, plain = StackedSymmetricTrees.alike, symmetric_trees(4, [3, 2])
    assert alike(grouped(symmetric_trees(4, [3, 2, 4]), [0, 1, 3])) is None
    assert alike(plain) == alike(symmetric_trees(4, [3, 9, 0], seed=1, questions=7))
    for other in (
        symmetric_trees(4, [3, 2], 2),
        symmetric_trees(4, [3, 2], dtype=np.float64),
        symmetric_trees(4, [3, 2], function="exp"),
    ):
        assert alike(plain) != alike(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_tree": np.array([0, 2, 4], dtype=np.int32)}, "first_tree must be int32 and ascend from 0 to 3"),
        ({"unit": np.ones((2, 2))}, "leaves must be int64, unit and baseline"),
        ({"feature": np.full(80, 4, dtype=np.int32)}, "feature must be int32 in"),
    ],
)
def test_fields_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    op = stacked([symmetric_trees(4, [3, 2]), symmetric_trees(4, [1])])
    op.check(4, 1)
    with pytest.raises(PlanError, match=message):
        dataclasses.replace(op, **changes).check(4, 1)
