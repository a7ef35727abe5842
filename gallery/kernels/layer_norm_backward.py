"""The gradients of layer normalisation: of its rows, and of the weight and the bias, which sum over all rows.

Mathematics: with x̂ᵢⱼ = (xᵢⱼ − μᵢ) rᵢ and gᵢⱼ = dyᵢⱼ wⱼ, dxᵢⱼ = rᵢ (gᵢⱼ − Σₖ gᵢₖ / n − x̂ᵢⱼ Σₖ gᵢₖ x̂ᵢₖ / n), dwⱼ = Σᵢ
dyᵢⱼ x̂ᵢⱼ, dbⱼ = Σᵢ dyᵢⱼ; x, dy [..., n], w [n], μ, r [...]. Lesson: dx needs sums along rows, dw and db along columns.
A program that owns rows cannot own columns too, so it sums its rows' contributions to dw and db in registers and writes
them once; a second kernel sums these parts (`sums.py`). Atomic additions would need no second kernel, but they happen
in the order in which programs arrive, and rounding in another order gives other bits. Two stages give the same bits
each time, and cost little: there are as many parts as the GPU has room for programs, not as many as rows. x̂ is
computed again from x rather than kept by the forward: two numbers of a row are read instead of n. In the product:
`kernels/ops/points/pairwise_affine.py` sums over points in parts, added in a fixed order, for the same reason.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import FLOATS, demand_alike, demand_shape
from gallery.kernels.sums import parts_for, sum_parts
from gallery.tuning import Choice, tuned

DTYPES = (*FLOATS, torch.float64)
WIDEST = 16384
"""The widest row that a program holds in its registers, in columns."""
ELEMENTS = 4096
"""The elements of narrower rows that a program holds at once. Not tuned, as it sets the order of the sums."""

CHOICES = (
    Choice("eight warps", "two programs share a multiprocessor: one loads while the other computes", {"AHEAD": 1}, 8),
    Choice("eight warps, ahead", "the next two rows are under way while one is computed", {"AHEAD": 3}, 8),
    Choice("four warps, ahead", "fewer threads have to meet for the sums of a row", {"AHEAD": 3}, 4),
    Choice("sixteen warps", "the widest rows and their sums would not fit the registers of fewer", {"AHEAD": 1}, 16),
)


@tuned(CHOICES, key=["rows", "width"])
@triton.jit
def layer_norm_backward_kernel(
    gradient,  # [rows, width]
    x,  # [rows, width]
    weight,  # [width]
    mean,  # float32 or float64 [rows]
    scale,  # the like
    dx,  # [rows, width]
    sums,  # as mean [2, parts, width]: of dw and of db
    rows,
    width,
    BLOCK: tl.constexpr,  # a power of 2 from width on
    ROWS: tl.constexpr,  # at once
    AHEAD: tl.constexpr,
):
    """Write dx of this program's rows, and their contributions to dw and db."""
    COMPUTE: tl.constexpr = mean.dtype.element_ty
    column = tl.arange(0, BLOCK)
    w = tl.load(weight + column, mask=column < width, other=0.0).to(COMPUTE)
    dw = tl.zeros([ROWS, BLOCK], COMPUTE)
    db = tl.zeros([ROWS, BLOCK], COMPUTE)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=AHEAD):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        dy = tl.load(gradient + at, mask=inside, other=0.0).to(COMPUTE)
        value = tl.load(x + at, mask=inside, other=0.0).to(COMPUTE)
        centre = tl.load(mean + row, mask=row < rows, other=0.0)
        r = tl.load(scale + row, mask=row < rows, other=0.0)
        x_hat = tl.where(inside, (value - centre[:, None]) * r[:, None], 0.0)
        g = dy * w[None, :]
        by_mean = tl.sum(g, axis=1) / width
        by_scale = tl.sum(g * x_hat, axis=1) / width
        value = r[:, None] * (g - by_mean[:, None] - x_hat * by_scale[:, None])
        tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)
        dw += dy * x_hat
        db += dy
    own = sums + tl.program_id(0).to(tl.int64) * width + column
    tl.store(own, tl.sum(dw, axis=0), mask=column < width)
    tl.store(own + tl.num_programs(0).to(tl.int64) * width, tl.sum(db, axis=0), mask=column < width)


@triton.jit
def wide_rows_kernel(gradient, x, weight, mean, scale, dx, width, BLOCK: tl.constexpr):
    """Write dx of one row of any width, reading it twice; arguments as above."""
    COMPUTE: tl.constexpr = mean.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    centre, r = tl.load(mean + row), tl.load(scale + row)
    by_mean = tl.zeros([BLOCK], COMPUTE)
    by_scale = tl.zeros([BLOCK], COMPUTE)
    for start in tl.range(0, width, BLOCK):
        inside = start + lane < width
        dy = tl.load(gradient + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        value = tl.load(x + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        g = dy * tl.load(weight + start + lane, mask=inside, other=0.0).to(COMPUTE)
        by_mean += g
        by_scale += g * (value - centre) * r
    mean_g, mean_gx = tl.sum(by_mean) / width, tl.sum(by_scale) / width
    for start in tl.range(0, width, BLOCK):
        inside = start + lane < width
        dy = tl.load(gradient + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        value = tl.load(x + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        g = dy * tl.load(weight + start + lane, mask=inside, other=0.0).to(COMPUTE)
        value = r * (g - mean_g - (value - centre) * r * mean_gx)
        tl.store(dx + row * width + start + lane, value.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def wide_columns_kernel(gradient, x, mean, scale, sums, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the contributions of this program's rows to one block of dw and of db; arguments as above."""
    COMPUTE: tl.constexpr = mean.dtype.element_ty
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros([ROWS, BLOCK], COMPUTE)
    db = tl.zeros([ROWS, BLOCK], COMPUTE)
    for first in tl.range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        dy = tl.load(gradient + at, mask=inside, other=0.0).to(COMPUTE)
        value = tl.load(x + at, mask=inside, other=0.0).to(COMPUTE)
        centre = tl.load(mean + row, mask=row < rows, other=0.0)
        r = tl.load(scale + row, mask=row < rows, other=0.0)
        dw += dy * (value - centre[:, None]) * r[:, None]
        db += dy
    own = sums + tl.program_id(1).to(tl.int64) * width + column
    tl.store(own, tl.sum(dw, axis=0), mask=column < width)
    tl.store(own + tl.num_programs(1).to(tl.int64) * width, tl.sum(db, axis=0), mask=column < width)


@torch.library.custom_op("gallery::layer_norm_backward", mutates_args=())
def layer_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dx [..., n], dw and db [n] of dy and x [..., n], w [n], and each row's μ and r [...] from the forward.

    dy, x and w have one type, μ and r are float32, or float64 if the others are. Strides may be any.
    """
    demand_alike(DTYPES, gradient=gradient, x=x, weight=weight)
    demand_shape("gradient", gradient, *x.shape)
    demand_shape("weight", weight, x.shape[-1])
    for name, tensor in (("mean", mean), ("scale", scale)):
        demand_shape(name, tensor, *x.shape[:-1])
        demand_alike((torch.promote_types(x.dtype, torch.float32),), **{name: tensor})
    gradient, x, weight = gradient.contiguous(), x.contiguous(), weight.contiguous()
    mean, scale = mean.contiguous(), scale.contiguous()
    rows, width = mean.numel(), x.shape[-1]
    dx = torch.empty_like(x)
    if not x.numel():
        return dx, torch.zeros_like(weight), torch.zeros_like(weight)
    if width <= WIDEST:
        block = triton.next_power_of_2(width)
        at_once = max(ELEMENTS // block, 1)
        parts = parts_for(x, triton.cdiv(rows, at_once))
        sums = mean.new_empty(2, parts, width)
        layer_norm_backward_kernel[(parts,)](
            gradient, x, weight, mean, scale, dx, sums, rows, width, BLOCK=block, ROWS=at_once
        )
    else:
        wide_rows_kernel[(rows,)](gradient, x, weight, mean, scale, dx, width, BLOCK=4096, num_warps=8)
        parts = parts_for(x, triton.cdiv(rows, 16), per_processor=1)
        sums = mean.new_empty(2, parts, width)
        grid = (triton.cdiv(width, 256), parts)
        wide_columns_kernel[grid](gradient, x, mean, scale, sums, rows, width, ROWS=16, BLOCK=256, num_warps=8)
    return dx, sum_parts(sums[0], x.dtype), sum_parts(sums[1], x.dtype)


@layer_norm_backward.register_fake
def _(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dw = torch.empty_like(weight, memory_format=torch.contiguous_format)
    return torch.empty_like(x, memory_format=torch.contiguous_format), dw, torch.empty_like(dw)
