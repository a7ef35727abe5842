"""Layer normalisation: every row is moved to mean 0 and stretched to variance 1, then scaled and shifted by column.

Mathematics: yᵢⱼ = (xᵢⱼ − μᵢ) rᵢ wⱼ + bⱼ with μᵢ = Σⱼ xᵢⱼ / n and rᵢ = 1 / √(Σⱼ (xᵢⱼ − μᵢ)² / n + ε); x [..., n], w and
b [n]. Ba, Kiros and Hinton, "Layer Normalization", 2016.
Lesson: *fusion*. Operations of torch each read and write x again. A row in a program's registers is read once and
written once, with any computation in between. The variance is therefore the sum of (x − μ)², exact to the last bits.
The formula Σx² − nμ² would save a pass over memory, which is not needed here, and it cancels if μ is large. A row too
wide for the registers is read twice: first each lane keeps a running mean and sum of squares of its own columns
(Welford, 1962), and these are merged at the end (Chan, Golub and LeVeque, 1979). The gradient only needs μ and r of a
row, which are kept.
In the product: `kernels/ops/columns/scale.py` scales by column, and is fused with the next operation for the same
reason.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.kernels.layer_norm_backward import DTYPES, WIDEST, layer_norm_backward, layer_norm_backward_kernel
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("four warps", "rows of a few thousand: each thread has four loads or more under way", {"ELEMENTS": 4096}, 4),
    Choice("eight warps", "two such rows in a program: what is loaded for a column serves both", {"ELEMENTS": 8192}, 8),
    Choice("few elements", "few rows: every multiprocessor is to have some", {"ELEMENTS": 1024}, 4),
    Choice("sixteen warps", "the widest rows would not fit the registers of fewer threads", {"ELEMENTS": 8192}, 16),
)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the normalised rows."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


@tuned(CHOICES, key=["rows", "width"])
@triton.jit
def layer_norm_kernel(
    x,  # [rows, width]
    weight,  # [width]
    bias,  # [width]
    y,  # [rows, width]
    mean,  # float32 or float64 [rows]
    scale,  # the like: 1 / standard deviation
    rows,
    width,
    eps,
    BLOCK: tl.constexpr,  # a power of 2 from width on
    ELEMENTS: tl.constexpr,
):
    """Normalise the rows that have `ELEMENTS` elements together, but at least one row."""
    ROWS: tl.constexpr = max(ELEMENTS // BLOCK, 1)
    COMPUTE: tl.constexpr = mean.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(COMPUTE)
    w = tl.load(weight + column, mask=column < width, other=0.0).to(COMPUTE)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(COMPUTE)
    centre = tl.sum(value, axis=1) / width
    centred = tl.where(inside, value - centre[:, None], 0.0)
    r = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + eps)
    tl.store(y + at, (centred * r[:, None] * w[None, :] + b[None, :]).to(y.dtype.element_ty), mask=inside)
    tl.store(mean + row, centre, mask=row < rows)
    tl.store(scale + row, r, mask=row < rows)


@triton.jit
def wide_layer_norm_kernel(x, weight, bias, y, mean, scale, width, eps, BLOCK: tl.constexpr):
    """Normalise one row of any width, reading it twice; arguments as above."""
    COMPUTE: tl.constexpr = mean.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    seen = tl.zeros([BLOCK], COMPUTE)
    centres = tl.zeros([BLOCK], COMPUTE)
    squares = tl.zeros([BLOCK], COMPUTE)
    for start in tl.range(0, width, BLOCK):
        inside = start + lane < width
        value = tl.load(x + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        seen += inside.to(COMPUTE)
        off = tl.where(inside, value - centres, 0.0)
        centres += off / tl.maximum(seen, 1.0)
        squares += off * (value - centres)
    centre = tl.sum(seen * centres) / width
    off = centres - centre
    r = 1 / tl.sqrt(tl.sum(squares + seen * off * off) / width + eps)
    for start in tl.range(0, width, BLOCK):
        inside = start + lane < width
        value = tl.load(x + row * width + start + lane, mask=inside, other=0.0).to(COMPUTE)
        w = tl.load(weight + start + lane, mask=inside, other=0.0).to(COMPUTE)
        b = tl.load(bias + start + lane, mask=inside, other=0.0).to(COMPUTE)
        value = (value - centre) * r * w + b
        tl.store(y + row * width + start + lane, value.to(y.dtype.element_ty), mask=inside)
    tl.store(mean + row, centre)
    tl.store(scale + row, r)


@torch.library.custom_op("gallery::layer_norm", mutates_args=())
def layer_norm_with_statistics(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the normalised rows, and each row's μ and r, float32 or, for float64, float64 [...]."""
    demand_alike(DTYPES, x=x, weight=weight, bias=bias)
    if x.dim() == 0:
        raise ValueError("'x' has no dimension; rows to normalise are its last one.")
    width = x.shape[-1]
    demand_shape("weight", weight, width)
    demand_shape("bias", bias, width)
    if not 0 < eps < math.inf:
        raise ValueError(f"'eps' is {eps}; it must be above 0 and finite.")
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    mean = x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))
    scale = torch.empty_like(mean)
    if not x.numel():
        mean.zero_()
        scale.zero_()
    elif width <= WIDEST:
        rows, block = mean.numel(), triton.next_power_of_2(width)
        layer_norm_kernel[lambda meta: (triton.cdiv(rows, max(meta["ELEMENTS"] // block, 1)),)](
            x, weight, bias, y, mean, scale, rows, width, eps, BLOCK=block
        )
    else:
        wide_layer_norm_kernel[(mean.numel(),)](x, weight, bias, y, mean, scale, width, eps, BLOCK=4096, num_warps=8)
    return y, mean, scale


@layer_norm_with_statistics.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))
    return torch.empty_like(x, memory_format=torch.contiguous_format), mean, torch.empty_like(mean)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, _, _ = inputs
    _, mean, scale = output
    ctx.mark_non_differentiable(mean, scale)
    ctx.set_materialize_grads(False)  # their zeros would be written for nothing
    ctx.save_for_backward(x, weight, mean, scale)


def _gradients(context: Any, gradient: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 4
    return *layer_norm_backward(gradient, *context.saved_tensors), None


layer_norm_with_statistics.register_autograd(_gradients, setup_context=_keep)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Return the normalised rows: x [..., n], weight and bias [n], all of one type; x of any strides is copied first.

    Gradients are computed by kernels too. Raises `TypeError` or `ValueError` for other types and shapes.
    """
    return layer_norm_with_statistics(x, weight, bias, eps)[0]


def sample(
    size: Size, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return rows that are far from normalised, weights and biases, and ε."""
    x = torch.randn(size, dtype=dtype, device=device) * 3 + 1
    weight, bias = torch.randn(2, size[-1], dtype=dtype, device=device).unbind()
    return x, weight, bias, 1e-5


EXHIBIT = Exhibit(
    name="layer_norm",
    formula="yᵢⱼ = (xᵢⱼ − μᵢ) / √(σᵢ² + ε) wⱼ + bⱼ, x [rows, n]",
    reference=reference,
    ways={"layer_norm": layer_norm},
    peers={"torch": reference},
    sample=sample,
    sizes=[(1, WIDEST + 1), (0, 8), (3, 0), (2, 3), (5, 7), (33, 64), (2, 3, 500)],
    curve=[(rows, 4096) for rows in (16, 256, 4096, 32768, 131072)],
    lengths="rows x n, or more lengths before n",
    tolerances={torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 5e-6, torch.float64: 1e-13},
    traffic=lambda x, *_: 2 * x.numel() * x.element_size(),
    differentiable=True,
    backward_traffic=lambda x, *_: 3 * x.numel() * x.element_size(),
    chosen=lambda: chosen(layer_norm_kernel, layer_norm_backward_kernel),
    axis=("rows of 4,096", lambda size: size[0]),
)
