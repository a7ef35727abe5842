"""Turns rows block by block, so that the numbers of a feature lie one after the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from ...plan.devices import early_launch

TURNED_ROWS, TURNED_FEATURES = 32, 64
"""The most rows that a program turns, and features of them: few, so that many programs read rows across the bus."""


@triton.jit(do_not_specialize=["rows"])
def feature_major_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float32 or float64 [⌈rows / TOGETHER⌉, FEATURES, TOGETHER]
    rows,
    FEATURES: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Write the numbers of each feature of `TOGETHER` rows one after the other, and zeros past the last row.

    If EARLY, the next kernel may begin before the last numbers are stored, and then waits for them.
    """
    first = tl.program_id(0) * BLOCK_ROWS
    block, place = (first // TOGETHER).to(tl.int64), first % TOGETHER + tl.arange(0, BLOCK_ROWS)[:, None]
    feature = tl.program_id(1) * BLOCK_FEATURES + tl.arange(0, BLOCK_FEATURES)[None, :]
    row, inside = block * TOGETHER + place, feature < FEATURES
    value = tl.load(x + row * FEATURES + feature, mask=inside & (row < rows), other=0.0)
    columns += block * (FEATURES * TOGETHER)
    if EARLY:
        gdc_launch_dependents()
    tl.store(columns + feature * TOGETHER + place, value.to(columns.dtype.element_ty), mask=inside)


def feature_major(x: torch.Tensor, rows: int, together: int, like: torch.Tensor, *, multiple: int = 1) -> torch.Tensor:
    """Return the first `rows` rows as `[blocks, features, together]`, of the dtype and device of `like`.

    The number of blocks is the next multiple of `multiple` from `⌈rows / together⌉` on. Neighbouring lanes of a kernel
    then have neighbouring rows, and read neighbouring numbers. Each number is read once, and may lie in the host's
    memory.
    """
    if together == 1 and x.is_cuda:
        return x
    features, blocks = x.shape[1], triton.cdiv(rows, together * multiple) * multiple
    columns = like.new_empty(blocks, features, together)
    block = min(triton.next_power_of_2(features), TURNED_FEATURES)
    early = early_launch(columns.device, after_a_kernel=False)
    block_rows = min(together, TURNED_ROWS)
    feature_major_kernel[(blocks * together // block_rows, triton.cdiv(features, block))](
        x,
        columns,
        rows,
        FEATURES=features,
        TOGETHER=together,
        BLOCK_ROWS=block_rows,
        BLOCK_FEATURES=block,
        **early,
        num_warps=4,
    )
    return columns
