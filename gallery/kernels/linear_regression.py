"""Linear regression, trained: a module whose loss and gradients are the gallery's kernels.

Mathematics: pᵢ = Σⱼ xᵢⱼ wⱼ, loss L = Σᵢ (pᵢ + b − yᵢ)² / n; given dL, dpᵢ = 2 dL (pᵢ + b − yᵢ) / n, db = Σᵢ dpᵢ,
dwⱼ = Σᵢ dpᵢ xᵢⱼ, dxᵢⱼ = dpᵢ wⱼ and dyᵢ = −dpᵢ. x [rows, columns], w [columns], b [], y and p [rows], L [].
Lesson: an operator with a forward and a backward is all that training needs. torch passes dw and db to any of its
optimisers, which know nothing about kernels. Product, bias, difference, square and mean are one kernel, which keeps
only p + b − y for the gradients, a number for each row. x is nearly all of the bytes. The gradients have two kernels,
as dx needs no x: one only reads, for dw and db, and the other only writes, dx and dy. Memory that turns from reading to
writing and back is slower. The loss reduces n numbers to one in two stages, like all sums of the gallery: programs sum
their rows, a second kernel sums the programs (`sums.py`). There are as many programs as run at once, and each goes on
to further rows: were there more, the last ones would run alone at the end.
In the product: `exporter/estimators/linear.py` exports the result of such training: w and b are all there is to serve.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from gallery.arguments import FLOATS, demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.kernels.sums import parts_for, sum_parts
from gallery.kernels.weighted_sum import weighted_sum

DTYPES = (*FLOATS, torch.float64)
BYTES, WIDEST, WARPS = 16384, 256, 8
"""The bytes of a tile of x, in the type of the sums, its most columns, and the warps of its program."""

PROGRAMS = 4
"""Programs for each multiprocessor, as many as run at once in float32. Tiles and these set the order of sums, for which
reason none of them is tuned."""


def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of x w + b."""
    return (x @ w + b - y).square().mean() if len(y) else (x @ w + b - y).sum()


@triton.jit
def loss_kernel(
    x, w, b, y, off, parts, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    """Write p + b − y of this program's rows, and the sum of their squares / n.

    x: [rows, columns], w: [columns], b: [], y: [rows], off: float32 or float64 [rows], parts: the like [programs].
    ONE_BLOCK: it has all columns, so that the compiler leaves out the loop over blocks, and its registers.
    """
    COMPUTE: tl.constexpr = parts.dtype.element_ty
    bias = tl.load(b).to(COMPUTE)
    squares = tl.zeros([ROWS], COMPUTE)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        target = tl.load(y + row, mask=row < rows, other=0.0).to(COMPUTE)
        sums = tl.zeros([ROWS, BLOCK], COMPUTE)
        for start in tl.range(0, BLOCK if ONE_BLOCK else columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            inside = (row < rows)[:, None] & (column < columns)[None, :]
            value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(COMPUTE)
            weight = tl.load(w + column, mask=column < columns, other=0.0).to(COMPUTE)
            sums += value * weight[None, :]
        error = tl.where(row < rows, tl.sum(sums, axis=1) + bias - target, 0.0)
        tl.store(off + row, error, mask=row < rows)
        squares += error * error
    tl.store(parts + tl.program_id(0), tl.sum(squares) / rows)


@triton.jit
def dw_kernel(gradient, x, off, dw_parts, db_parts, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the contributions of this program's rows to one block of columns of dw, and to db.

    gradient: [], of the loss, x: [rows, columns], off: [rows], dw_parts: as off [programs, columns], db_parts: the like
    [programs, 1].
    """
    COMPUTE: tl.constexpr = off.dtype.element_ty
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = 2 * tl.load(gradient).to(COMPUTE) / rows
    dw = tl.zeros([ROWS, BLOCK], COMPUTE)
    db = tl.zeros([ROWS], COMPUTE)
    for first in tl.range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(COMPUTE)
        dp = factor * tl.load(off + row, mask=row < rows, other=0.0)
        dw += dp[:, None] * value
        db += dp
    own = dw_parts + tl.program_id(1).to(tl.int64) * columns
    tl.store(own + column, tl.sum(dw, axis=0), mask=column < columns)
    tl.store(db_parts + tl.program_id(1), tl.sum(db), mask=tl.program_id(0) == 0)


@triton.jit
def dx_kernel(gradient, w, off, dx, dy, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write one tile of dx, and dy of its rows; dx: [rows, columns], dy: [rows], the others as above."""
    COMPUTE: tl.constexpr = off.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(w + column, mask=column < columns, other=0.0).to(COMPUTE)
    dp = 2 * tl.load(gradient).to(COMPUTE) / rows * tl.load(off + row, mask=row < rows, other=0.0)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(dx + row[:, None] * columns + column[None, :], (dp[:, None] * weight).to(dx.dtype.element_ty), mask=inside)
    tl.store(dy + row, (-dp).to(dy.dtype.element_ty), mask=(row < rows) & (tl.program_id(1) == 0))


@torch.library.custom_op("gallery::squared_loss", mutates_args=())
def squared_loss(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss [] of x [rows, columns], w [columns], b [] and y [rows], of one type, and p + b − y [rows].

    The second is kept for the gradients, as float32, or float64 for that. The loss of no rows is 0.
    """
    demand_alike(DTYPES, x=x, w=w, b=b, y=y)
    demand_shape("x", x, -1, -1)
    demand_shape("w", w, x.shape[1])
    demand_shape("b", b)
    demand_shape("y", y, len(x))
    x, w, y = x.contiguous(), w.contiguous(), y.contiguous()
    off = torch.empty_like(y, dtype=torch.promote_types(y.dtype, torch.float32))
    height, width = tile(off, x.shape[1])
    parts = off.new_empty(parts_for(x, triton.cdiv(len(x), height), PROGRAMS), 1)
    if len(x):
        one = x.shape[1] <= width
        loss_kernel[(len(parts),)](
            x, w, b, y, off, parts, *x.shape, ROWS=height, BLOCK=width, ONE_BLOCK=one, num_warps=WARPS
        )
    return sum_parts(parts, x.dtype).view(()), off


@torch.library.custom_op("gallery::squared_loss_backward", mutates_args=())
def squared_loss_backward(
    gradient: torch.Tensor, x: torch.Tensor, w: torch.Tensor, off: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dx [rows, columns], dw [columns], db [] and dy [rows] of dL [], x, w and p + b − y."""
    x, w = x.contiguous(), w.contiguous()
    (rows, columns), (height, width) = x.shape, tile(off, x.shape[1])
    dx, dy = torch.empty_like(x), x.new_empty(rows)
    blocks, tiles = max(triton.cdiv(columns, width), 1), triton.cdiv(rows, height)
    programs = triton.cdiv(parts_for(x, blocks * tiles, PROGRAMS), blocks)
    dw, db = off.new_empty(programs, columns), off.new_empty(programs, 1)
    if rows:
        shape: dict[str, Any] = {"ROWS": height, "BLOCK": width, "num_warps": WARPS}
        dw_kernel[(blocks, programs)](gradient, x, off, dw, db, rows, columns, **shape)
        dx_kernel[(tiles, blocks)](gradient, w, off, dx, dy, rows, columns, **shape)
    return dx, sum_parts(dw, x.dtype), sum_parts(db, x.dtype).view(()), dy


def tile(sums: torch.Tensor, columns: int) -> tuple[int, int]:
    """Return the rows and columns that a program holds at once, in the type of these sums."""
    width = min(triton.next_power_of_2(max(columns, 1)), WIDEST)
    return BYTES // sums.element_size() // width, width


@squared_loss.register_fake
def _(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y.new_empty(()), y.new_empty(len(y), dtype=torch.promote_types(y.dtype, torch.float32))


@squared_loss_backward.register_fake
def _(
    gradient: torch.Tensor, x: torch.Tensor, w: torch.Tensor, off: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    contiguous = torch.contiguous_format
    dx, dw = torch.empty_like(x, memory_format=contiguous), torch.empty_like(w, memory_format=contiguous)
    return dx, dw, x.new_empty(()), x.new_empty(len(x))


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, w, *_ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # its zeros would be written for nothing
    ctx.save_for_backward(x, w, output[1])


def _gradients(context: Any, gradient: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 4
    return squared_loss_backward(gradient, *context.saved_tensors)


squared_loss.register_autograd(_gradients, setup_context=_keep)


class LinearRegression(torch.nn.Module):
    """A weight for each column and a bias, to be trained by any optimiser of torch on `loss`."""

    def __init__(self, columns: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(columns, dtype=dtype, device=device))
        self.bias = torch.nn.Parameter(torch.zeros((), dtype=dtype, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the prediction [rows] for x [rows, columns]."""
        return weighted_sum(x, self.weight) + self.bias

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error [] for x [rows, columns] and y [rows]."""
        return loss(x, self.weight, self.bias, y)

    @torch.no_grad()
    def r2(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Return R² = 1 − Σ (p − y)² / Σ (y − ȳ)² for x [rows, columns] and y [rows]; without spread of y it is NaN.

        1 is a perfect fit, 0 is no better than the mean ȳ of these rows, and there is no lower limit.
        """
        spread = float((y - y.mean()).square().sum())
        return 1 - len(y) * float(self.loss(x, y)) / spread if spread else math.nan


def loss(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of x w + b, differentiable in x [rows, columns], w [columns], b [] and y [rows]."""
    return squared_loss(x, w, b, y)[0]


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return x of a size (rows, columns), w, b and y."""
    draw = partial(torch.randn, dtype=dtype, device=device)
    return draw(size), draw(size[1]), draw(()), draw(size[0])


EXHIBIT = Exhibit(
    name="linear_regression",
    formula="L = Σᵢ (Σⱼ xᵢⱼ wⱼ + b − yᵢ)² / rows, x [rows, columns], w [columns], y [rows]",
    reference=reference,
    ways={"linear_regression": loss},
    peers={"torch": reference},
    sample=sample,
    sizes=[(0, 3), (5, 7), (1500, 3), (33, 200)],
    curve=[(rows, 64) for rows in (256, 4096, 65536, 2**20, 2**22)],
    lengths="rows x columns",
    tolerances={torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-13},
    traffic=lambda x, w, b, y: (x.numel() + w.numel() + len(y)) * x.element_size(),
    differentiable=True,
    backward_traffic=lambda x, w, b, y: (2 * x.numel() + 2 * w.numel() + 2 * len(y)) * x.element_size(),
    axis=("rows of 64", lambda size: size[0]),
)
