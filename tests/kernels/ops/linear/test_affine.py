"""Affine maps of several targets: their tiles."""

import pytest
import torch

from tests.kernels.operations import affine, inputs_for, run_kernel
from triton_regressors.kernels.ops.linear import affine_kernel
from triton_regressors.kernels.ops.linear.launch import affine_targets_block


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
