"""Map in two dimensions: the same function of every element of a matrix with any strides.

Mathematics: yᵢⱼ = xᵢⱼ + c, x [rows, columns].
Lesson: a matrix is an array with two *strides*, the distances between rows and between columns: xᵢⱼ is at
i·s₀ + j·s₁. A program takes a *tile* of it. Threads of a warp should read neighbours, as the memory delivers at least
32 bytes. In a transposed matrix neighbours are in one column, so a tile must have several rows and columns; then a view
need not be copied first.
In the product: `kernels/ops/points/l1_chi2.py` writes rows as columns, tile by tile, for kernels that read one feature
of many rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("square tiles", "rows or columns may be what lies together", {"ROWS": 32, "COLUMNS": 64}, 4),
    Choice("large square tiles", "longer runs of neighbours both ways", {"ROWS": 64, "COLUMNS": 64}, 4),
    Choice("strips of a row", "one long run, and one row's address to compute", {"ROWS": 1, "COLUMNS": 1024}, 4),
    Choice("tall tiles", "there are few columns", {"ROWS": 256, "COLUMNS": 4}, 4),
)


def reference(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c."""
    return x + c


@tuned(CHOICES, key=["rows", "columns", "row_stride", "column_stride"])
@triton.jit
def map_2d_kernel(x, y, c, rows, columns, row_stride, column_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write one tile of y; x: [rows, columns] of any strides, y: [rows, columns]."""
    across = tl.cdiv(columns, COLUMNS)
    i = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = (tl.program_id(0) % across).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * row_stride + j * column_stride, mask=inside).to(tl.float32)
    tl.store(y + i * columns + j, value + c, mask=inside)


@torch.library.custom_op("gallery::map_2d", mutates_args=())
def map_2d(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c, x [rows, columns] of any strides; the answer's rows lie one after the other.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: x is not a matrix.
    """
    demand_alike(x=x)
    demand_shape("x", x, -1, -1)
    rows, columns = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        map_2d_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]) * triton.cdiv(columns, meta["COLUMNS"]),)](
            x, y, c, rows, columns, *x.stride()
        )
    return y


@map_2d.register_fake
def _(x: torch.Tensor, c: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


map_2d.register_autograd(lambda context, gradient: (gradient, None))


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, float]:
    """Return x of a size, and c."""
    rows, columns = size
    return torch.randn(rows, columns, dtype=dtype, device=device), 1.5


EXHIBIT = Exhibit(
    name="map_2d",
    formula="yᵢⱼ = xᵢⱼ + c, x [rows, columns] of any strides",
    reference=reference,
    ways={"map_2d": map_2d},
    peers={"torch": torch.add},
    sample=sample,
    sizes=[(0, 3), (3, 0), (1, 1), (3, 5), (7, 1030), (100, 33)],
    curve=[(2**k, 2**k) for k in range(6, 15)],
    lengths="rows x columns",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=lambda x, c: 2 * x.numel() * x.element_size(),
    differentiable=True,
    chosen=lambda: chosen(map_2d_kernel),
    axis=("rows and columns", lambda size: size[0]),
)
