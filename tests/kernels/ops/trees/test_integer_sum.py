"""Sums of trees in parts, as larger ensembles than these are launched."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_reference
from tests.kernels.operations_trees import tree_ensemble
from triton_regressors.kernels.ops.trees import integer_sum
from triton_regressors.kernels.ops.trees.launch import Tile


@pytest.mark.parametrize(("trees", "outputs", "scratch"), [(3, 1, 1), (9, 1, 20), (9, 3, 2**24)])
def test_parts_add_up_to_the_sum(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, trees: int, outputs: int, scratch: int
) -> None:
    """The bits are the same also if few rows' parts wait at a time, and if the last part has fewer trees."""
    monkeypatch.setattr(integer_sum, "tree_tile", lambda *_: Tile(4, 8, min(outputs, 2), 8, "quads", 4, parts=True))
    monkeypatch.setattr(integer_sum, "LARGEST_SCRATCH", scratch)
    op = tree_ensemble(6, trees, 4, outputs, divisor=3.0)
    assert len(op.parameters()["quads"])
    for rows in (0, 1, 11):
        (x,) = inputs_for([6], rows)
        assert np.array_equal(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]))


def test_a_part_has_the_function_applied_once(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    op = tree_ensemble(6, 9, 3, function="exp")
    (x,) = inputs_for([6], 5)
    whole = run_kernel(op, [x], device, torch.float64)
    monkeypatch.setattr(integer_sum, "tree_tile", lambda *_: Tile(4, 8, 1, 8, "quads", 4, parts=True))
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), whole)
