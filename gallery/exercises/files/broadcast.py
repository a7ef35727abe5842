"""Broadcast: zᵢⱼ = aᵢ + bⱼ, for a column a [rows, 1] and a row b [1, columns], z [rows, columns].

            b │ 0  1  2  3 │ 4  5  6  7
    a       ──┼────────────┼───────────
    0         │            │                  A program reads ROWS numbers of a and COLUMNS numbers
    1         │   tile 0   │   tile 1         of b, and writes ROWS · COLUMNS numbers of z.
    2         │            │

Every program makes one tile of z. Complete `broadcast_kernel`; `solve` is done.
Page: docs/gallery.md, step 4.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try broadcast --hint 1        (and 2, and 3)
    python -m gallery try broadcast --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "broadcast"
SWEEP = {"ROWS": [1, 4, 16, 32], "COLUMNS": [32, 128, 512], "num_warps": [2, 4]}


@triton.jit
def broadcast_kernel(a, b, z, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write one tile of z; a: [rows], b: [columns], z: [rows, columns]."""
    # Your part. tl.program_id(0) counts tiles down, tl.program_id(1) across.


def solve(a: torch.Tensor, b: torch.Tensor, ROWS: int = 32, COLUMNS: int = 64, num_warps: int = 4) -> torch.Tensor:
    """Return a + b."""
    a, b = a.contiguous(), b.contiguous()
    rows, columns = a.shape[0], b.shape[1]
    z = torch.empty(rows, columns, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS)
    broadcast_kernel[grid](a, b, z, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=num_warps)
    return z
