"""Map in two dimensions: yᵢⱼ = xᵢⱼ + c, for x [rows, columns] of any strides.

    x            COLUMNS
         ┌─────────┬─────────┬─────            xᵢⱼ is at x + i · row_stride + j · column_stride:
    ROWS │ tile 0  │ tile 1  │ tile 2          x may be transposed, or a slice of a larger matrix.
         ├─────────┼─────────┼─────            yᵢⱼ is at y + i · columns + j.
         │ tile 3  │ tile 4  │ tile 5          The last tiles of a row or column are cut off.

Every program makes one tile of y. Complete `map_2d_kernel`; `solve` is done, and must not copy x.
Page: docs/gallery.md, step 3.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try map_2d --hint 1        (and 2, and 3)
    python -m gallery try map_2d --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "map_2d"
SWEEP = {"ROWS": [1, 4, 16, 32], "COLUMNS": [32, 128, 512], "num_warps": [2, 4]}


@triton.jit
def map_2d_kernel(x, y, c, rows, columns, row_stride, column_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write one tile of y; x: [rows, columns] of any strides, y: [rows, columns]."""
    # Your part. tl.program_id(0) counts tiles down, tl.program_id(1) across.


def solve(x: torch.Tensor, c: float, ROWS: int = 32, COLUMNS: int = 64, num_warps: int = 4) -> torch.Tensor:
    """Return x + c."""
    rows, columns = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    grid = triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS)
    map_2d_kernel[grid](x, y, c, rows, columns, *x.stride(), ROWS=ROWS, COLUMNS=COLUMNS, num_warps=num_warps)
    return y
