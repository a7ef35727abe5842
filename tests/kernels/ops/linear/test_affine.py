"""Affine maps of several targets: their tiles."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, inputs_for, run_kernel, run_on_cpu
from triton_regressors.kernels.ops.linear import affine_kernel
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.launch import affine_targets_block

Tile = Callable[[bool], None]


@pytest.fixture
def tile(monkeypatch: pytest.MonkeyPatch) -> Tile:
    """tile(across) makes launches use the tile of rows across the bus, or on the device, wherever they are."""

    def use(across: bool) -> None:
        block = functools.partial(affine_targets_block, across=across)
        monkeypatch.setattr(affine_kernel, "affine_targets_block", lambda targets, across: block(targets))

    return use


@pytest.mark.parametrize("targets", [2, 33, 65, 129])
@pytest.mark.parametrize("features", [5, 40])
def test_tiles_do_not_change_a_bit(device: torch.device, features: int, targets: int, tile: Tile) -> None:
    op, found = affine(features, targets), []
    for across in (False, True):
        tile(across)
        found.append(run_kernel(op, inputs_for([features], 70), device))
    assert found[0].tobytes() == found[1].tobytes()
    assert op.reads_input_once() == (targets <= 128)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("targets", [3, 70, 140])
def test_numbers_without_weight_for_any_target_are_skipped(
    device: torch.device, targets: int, across: bool, tile: Tile
) -> None:
    tile(across)
    dense = affine(5, targets)
    weight = dense.weight.copy()
    weight[1], weight[2, :-1] = 0, 0
    op = Affine(weight, dense.intercept, "identity")
    (X,) = inputs_for([5], 4)
    X[1, 1], X[2, 2] = np.nan, np.nan
    found = run_kernel(op, [X], device)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(run_on_cpu(op, [X])))
    assert np.isnan(found).all(axis=1).tolist() == [False, False, True, False]
