"""Weighted sum: every row of a matrix shrinks to one number, by the same weights; with its gradients.

Mathematics: yᵢ = Σⱼ xᵢⱼ wⱼ; given dy, dxᵢⱼ = dyᵢ wⱼ and dwⱼ = Σᵢ dyᵢ xᵢⱼ. x [..., columns], w [columns], y [...]: the
leading dimensions, of which there may be none, count the rows together.
Lesson: a *gradient* is two more kernels, which are registered with torch: it then differentiates every computation with
the operator. y sums along rows, so a program owns rows and runs over the columns. dw sums along columns: a program owns
columns and some of the rows, and a second kernel (`sums.py`) adds the results of a column's programs, in an order that
does not change. dx sums nothing: it is a map over two dimensions, and reads far less than it writes. At most two
operations are done for each number that is moved, so memory's bandwidth is the limit of all three; matrix units, which
multiply a block with a block, are of no use for a vector.
In the product: `kernels/ops/linear/affine.py` is the same operation with several targets, in the precision that a
model's answers need.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from gallery.arguments import FLOATS, demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.kernels.sums import parts_for, sum_parts
from gallery.tuning import Choice, chosen, tuned

DTYPES = (*FLOATS, torch.float64)

CHOICES = (
    Choice("many rows", "rows are narrow: a program takes several at once", {"ROWS": 16, "BLOCK": 128}, 4),
    Choice("narrow rows", "no lane is left over where rows have 64 numbers", {"ROWS": 64, "BLOCK": 64}, 8),
    Choice("wide rows", "fewer sums have to be merged at a row's end", {"ROWS": 4, "BLOCK": 1024}, 4),
    Choice("long rows", "many loads of one row are under way", {"ROWS": 1, "BLOCK": 4096}, 8),
)
DW_ROWS, DW_BLOCK = 16, 256
"""The rows and columns of dw that a program holds at once. Not tuned, as it sets the order of the sums."""


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w."""
    return x @ w


@tuned(CHOICES, key=["rows", "columns"])
@triton.jit
def weighted_sum_kernel(x, w, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr):
    """Write y of some rows; x: [rows, columns], w: [columns], y: [rows]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros([ROWS, BLOCK], COMPUTE)
    for start in tl.range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(COMPUTE)
        weight = tl.load(w + column, mask=column < columns, other=0.0).to(COMPUTE)
        sums += value * weight[None, :]
    tl.store(y + row, tl.sum(sums, axis=1).to(y.dtype.element_ty), mask=row < rows)


@triton.jit
def dx_kernel(dy, w, dx, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr):
    """Write one block of dx; dy: [rows], w: [columns], dx: [rows, columns]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gradient = tl.load(dy + row, mask=row < rows, other=0.0).to(COMPUTE)
    weight = tl.load(w + column, mask=column < columns, other=0.0).to(COMPUTE)
    value = (gradient[:, None] * weight[None, :]).to(dx.dtype.element_ty)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(dx + row[:, None] * columns + column[None, :], value, mask=inside)


@triton.jit
def dw_kernel(dy, x, parts, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr):
    """Write the contribution of this program's rows to one block of dw; parts: [parts, columns]."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros([ROWS, BLOCK], COMPUTE)
    for first in tl.range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(COMPUTE)
        gradient = tl.load(dy + row, mask=row < rows, other=0.0).to(COMPUTE)
        sums += gradient[:, None] * value
    own = parts + tl.program_id(1).to(tl.int64) * columns + column
    tl.store(own, tl.sum(sums, axis=0), mask=column < columns)


def compute_type(dtype: torch.dtype) -> tl.dtype:
    """Return the type to compute in: float32, or float64 for float64."""
    return tl.float64 if dtype == torch.float64 else tl.float32


@torch.library.custom_op("gallery::weighted_sum", mutates_args=())
def weighted_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w [...] of x [..., columns] and w [columns], of one type; any strides are copied into rows first.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: x has no dimension, w's length is not that of its last, or their types or devices differ.
    """
    demand_alike(DTYPES, x=x, w=w)
    if not x.dim():
        raise ValueError("'x' has no dimension along which there could be a sum.")
    demand_shape("w", w, x.shape[-1])
    x, w = x.contiguous(), w.contiguous()
    columns = x.shape[-1]
    y = x.new_empty(x.shape[:-1]) if columns else x.new_zeros(x.shape[:-1])
    rows = y.numel()
    if x.numel():
        weighted_sum_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
            x, w, y, rows, columns, COMPUTE=compute_type(x.dtype)
        )
    return y


@torch.library.custom_op("gallery::weighted_sum_backward", mutates_args=())
def weighted_sum_backward(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dx [..., columns] and dw [columns] of dy [...], x and w."""
    demand_alike(DTYPES, dy=dy, x=x, w=w)
    demand_shape("dy", dy, *x.shape[:-1])
    dy, x, w = dy.contiguous(), x.contiguous(), w.contiguous()
    rows, columns = dy.numel(), x.shape[-1]
    dx, compute = torch.empty_like(x), compute_type(x.dtype)
    if not x.numel():
        return dx, torch.zeros_like(w)
    grid = (triton.cdiv(rows, 8), triton.cdiv(columns, 512))
    dx_kernel[grid](dy, w, dx, rows, columns, ROWS=8, BLOCK=512, COMPUTE=compute)
    blocks = triton.cdiv(columns, DW_BLOCK)
    parts = triton.cdiv(parts_for(x, blocks * triton.cdiv(rows, DW_ROWS), per_processor=8), blocks)
    sums = x.new_empty(parts, columns, dtype=torch.promote_types(x.dtype, torch.float32))
    dw_kernel[(blocks, parts)](dy, x, sums, rows, columns, ROWS=DW_ROWS, BLOCK=DW_BLOCK, COMPUTE=compute, num_warps=8)
    return dx, sum_parts(sums, x.dtype)


@weighted_sum.register_fake
def _(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


@weighted_sum_backward.register_fake
def _(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    contiguous = torch.contiguous_format
    return torch.empty_like(x, memory_format=contiguous), torch.empty_like(w, memory_format=contiguous)


weighted_sum.register_autograd(
    lambda context, gradient: weighted_sum_backward(gradient, *context.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x of a size, and w."""
    draw = partial(torch.randn, dtype=dtype, device=device)
    return draw(size), draw(size[-1])


EXHIBIT = Exhibit(
    name="weighted_sum",
    formula="yᵢ = Σⱼ xᵢⱼ wⱼ, x [..., columns], w [columns]",
    reference=reference,
    ways={"weighted_sum": weighted_sum},
    peers={"torch": torch.matmul},
    sample=sample,
    sizes=[(0, 3), (3, 0), (7,), (5, 7), (3, 11, 200), (2, 1, 3, 5), (2, 1500)],
    curve=[(rows, 4096) for rows in (16, 256, 4096, 65536)],
    lengths="rows x columns, or other lengths before the columns, or none",
    tolerances={torch.float32: 5e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13},
    traffic=lambda x, w: (x.numel() + w.numel() + x.shape[:-1].numel()) * x.element_size(),
    differentiable=True,
    backward_traffic=lambda x, w: 2 * (x.numel() + w.numel() + x.shape[:-1].numel()) * x.element_size(),
    chosen=lambda: chosen(weighted_sum_kernel),
    axis=("rows of 4,096", lambda size: size[0]),
)
