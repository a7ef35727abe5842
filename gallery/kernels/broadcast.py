"""Broadcast: every element of a column with every element of a row, here their sum.

Mathematics: zᵢⱼ = aᵢ + bⱼ, a [rows, 1], b [1, columns], z [rows, columns].
Lesson: `a[:, None] + b[None, :]` makes a tile of a column and a row in registers: a program reads ROWS + COLUMNS
elements and writes ROWS · COLUMNS. Nearly all of the memory's work is writing.
In the product: `kernels/ops/points/l1_chi2.py` combines every row with every point in this way, feature by feature.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("square tiles", "few elements are read for many that are written", {"ROWS": 32, "COLUMNS": 128}, 4),
    Choice("wide tiles", "long runs of neighbours are written", {"ROWS": 4, "COLUMNS": 1024}, 4),
    Choice("strips of a row", "one long run, and one row's address to compute", {"ROWS": 1, "COLUMNS": 2048}, 4),
)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b."""
    return a + b


@tuned(CHOICES, key=["rows", "columns"])
@triton.jit
def broadcast_kernel(a, b, z, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write one tile of z; a: [rows], b: [columns], z: [rows, columns]."""
    across = tl.cdiv(columns, COLUMNS)
    i = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = (tl.program_id(0) % across).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.load(a + i, mask=i < rows).to(tl.float32)
    row = tl.load(b + j, mask=j < columns).to(tl.float32)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tl.store(z + i[:, None] * columns + j[None, :], column[:, None] + row[None, :], mask=inside)


@torch.library.custom_op("gallery::broadcast", mutates_args=())
def broadcast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b, a [rows, 1] and b [1, columns] of one type and of any strides.

    The gradients are the sums of z's along its rows and columns, by torch.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: a is not a column, b is not a row, or their types or devices differ.
    """
    demand_alike(a=a, b=b)
    demand_shape("a", a, -1, 1)
    demand_shape("b", b, 1, -1)
    rows, columns = a.shape[0], b.shape[1]
    z = a.new_empty(rows, columns)
    if z.numel():
        broadcast_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]) * triton.cdiv(columns, meta["COLUMNS"]),)](
            a.contiguous(), b.contiguous(), z, rows, columns
        )
    return z


@broadcast.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


broadcast.register_autograd(lambda context, gradient: (gradient.sum(1, keepdim=True), gradient.sum(0, keepdim=True)))


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a column and a row."""
    rows, columns = size
    return torch.randn(rows, 1, dtype=dtype, device=device), torch.randn(1, columns, dtype=dtype, device=device)


EXHIBIT = Exhibit(
    name="broadcast",
    formula="zᵢⱼ = aᵢ + bⱼ, a [rows, 1], b [1, columns]",
    reference=reference,
    ways={"broadcast": broadcast},
    peers={"torch": torch.add},
    sample=sample,
    sizes=[(0, 3), (3, 0), (1, 1), (3, 5), (7, 1030), (100, 33)],
    curve=[(2**k, 2**k) for k in range(6, 16)],
    lengths="rows x columns",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=lambda a, b: (a.numel() * b.numel() + a.numel() + b.numel()) * a.element_size(),
    differentiable=True,
    chosen=lambda: chosen(broadcast_kernel),
    axis=("rows and columns", lambda size: size[0]),
)
