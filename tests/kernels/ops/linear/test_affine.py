"""Affine maps of several targets: their tiles."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, inputs_for, run_kernel, run_on_cpu
from triton_regressors.kernels.ops.linear import affine_kernel
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.launch import affine_targets_block


@pytest.fixture(params=[False, True], ids=["on the device", "across the bus"])
def tiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch the tiles of rows and answers on the device, or of those across the bus, wherever they are."""

    def block(targets: int, *, across: bool) -> dict[str, int]:
        return affine_targets_block(targets, across=request.param)

    monkeypatch.setattr(affine_kernel, "affine_targets_block", block)


@pytest.mark.parametrize("targets", [2, 33, 65, 129])
@pytest.mark.parametrize("features", [5, 40])
def test_tiles_do_not_change_a_bit(
    device: torch.device, features: int, targets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, found = affine(features, targets), []
    for across in (False, True):
        block = affine_targets_block(targets, across=across)
        monkeypatch.setattr(affine_kernel, "affine_targets_block", lambda _, across, block=block: block)
        found.append(run_kernel(op, inputs_for([features], 70), device))
    assert found[0].tobytes() == found[1].tobytes()
    assert op.reads_input_once() == (targets <= 128)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("targets", [3, 70, 140])
def test_numbers_without_weight_for_any_target_are_skipped(device: torch.device, targets: int) -> None:
    dense = affine(5, targets)
    weight = dense.weight.copy()
    weight[1], weight[2, :-1] = 0, 0
    op = Affine(weight, dense.intercept, "identity")
    (X,) = inputs_for([5], 4)
    X[1, 1], X[2, 2] = np.nan, np.nan
    found = run_kernel(op, [X], device)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(run_on_cpu(op, [X])))
    assert np.isnan(found).all(axis=1).tolist() == [False, False, True, False]
