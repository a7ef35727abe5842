"""The second stage of sums in two stages: it adds the parts of many programs, in an order that does not change."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ELEMENTS = 2048
"""The elements of narrow parts that a program adds at once."""


@triton.jit
def sum_parts_kernel(parts, out, count, width, BLOCK_PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum [count, width] up to one block of [width]."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK_PARTS, BLOCK], parts.dtype.element_ty)
    for start in tl.range(0, count, BLOCK_PARTS):
        part = start + tl.arange(0, BLOCK_PARTS)
        inside = (part < count)[:, None] & (column < width)[None, :]
        total += tl.load(parts + part[:, None].to(tl.int64) * width + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, axis=0).to(out.dtype.element_ty), mask=column < width)


def sum_parts(parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the sums of the columns of `parts` [count, width] as `dtype` [width]; the same bits each time."""
    count, width = parts.shape
    out = parts.new_empty(width, dtype=dtype)
    if not count:
        out.zero_()
    elif width:
        block = 32 if width <= 16384 else 128  # few columns are shared out among more programs
        block = min(block, triton.next_power_of_2(width))
        at_once = max(ELEMENTS // block, 64)
        sum_parts_kernel[(triton.cdiv(width, block),)](parts, out, count, width, BLOCK_PARTS=at_once, BLOCK=block)
    return out


def parts_for(tensor: torch.Tensor, most: int, per_processor: int = 2) -> int:
    """Return the number of parts of a sum, at most `most`: enough for the GPU's multiprocessors."""
    processors = torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1
    return min(most, per_processor * processors)
