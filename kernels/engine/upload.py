"""Brings rows from pinned host memory to the device by a kernel.

The GPU's copy engine would take 1.5 times as long for rows that the CPU's cores have just written and still hold in
their caches: a kernel has far more reads in flight and waits less for each. A graph also starts a kernel sooner.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096
WARPS = 8

MOST_PROGRAMS = 32
"""This many programs have enough reads in flight for the bus. More would delay the kernels that compute other rows."""


@triton.jit(do_not_specialize=["size"])
def upload_kernel(
    x,  # [size]
    out,  # [size]
    size,
    BLOCK: tl.constexpr,
):
    """Copy blocks of `BLOCK` numbers with each program, at a stride of the number of programs."""
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in tl.range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < size), mask=at < size)


def upload(source: torch.Tensor, target: torch.Tensor, rows: int) -> None:
    """Copy the first `rows` of a contiguous matrix to one of its shape and dtype; both may lie anywhere."""
    size = rows * source.shape[1]
    programs = min(triton.cdiv(size, BLOCK), MOST_PROGRAMS)
    upload_kernel[(programs,)](x=source, out=target, size=size, BLOCK=BLOCK, num_warps=WARPS)
