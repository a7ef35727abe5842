"""Linear regression, trained: a module whose forward and backward are the gallery's kernels from data to loss.

Mathematics: pᵢ = Σⱼ xᵢⱼ wⱼ, loss L = Σᵢ (pᵢ + b − yᵢ)² / n; given dL, dpᵢ = 2 dL (pᵢ + b − yᵢ) / n and db = Σᵢ dpᵢ, and
from dp `weighted_sum.py` computes dw and dx. x [rows, columns], w [columns], b [], y and p [rows], L [].
Lesson: an operator with a forward and a backward is all that training needs. torch chains the operators'
gradients and passes dw and db to any of its optimisers, which know nothing about kernels. Bias, difference, square and
mean are one kernel: torch's own operators would write and read n numbers between each two of them. The loss reduces n
numbers to one in two stages, like all sums of the gallery: programs sum their rows, a second kernel sums the programs
(`sums.py`). The gradient reads the same rows again, which is cheaper than keeping the forward's values.
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
from gallery.kernels.weighted_sum import weighted_sum, weighted_sum_kernel
from gallery.tuning import chosen

DTYPES = (*FLOATS, torch.float64)
BLOCK = 1024
"""The rows that a program holds at once."""


def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of x w + b."""
    return (x @ w + b - y).square().mean() if len(y) else (x @ w + b - y).sum()


@triton.jit
def squared_error_kernel(p, b, y, parts, n, BLOCK: tl.constexpr):
    """Write the sum of the squares of this program's rows; p, y: [n], b: [], parts: [parts]."""
    COMPUTE: tl.constexpr = parts.dtype.element_ty
    bias = tl.load(b).to(COMPUTE)
    sums = tl.zeros([BLOCK], COMPUTE)
    for first in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        row = first + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(p + row, mask=row < n, other=0.0).to(COMPUTE)
        target = tl.load(y + row, mask=row < n, other=0.0).to(COMPUTE)
        off = tl.where(row < n, value + bias - target, 0.0)
        sums += off * off
    tl.store(parts + tl.program_id(0), tl.sum(sums) / n)


@triton.jit
def squared_error_backward_kernel(gradient, p, b, y, dp, parts, n, BLOCK: tl.constexpr):
    """Write dp of this program's rows, and their sum; gradient: [], dp: [n], the others as above."""
    COMPUTE: tl.constexpr = parts.dtype.element_ty
    bias = tl.load(b).to(COMPUTE)
    factor = 2 * tl.load(gradient).to(COMPUTE) / n
    sums = tl.zeros([BLOCK], COMPUTE)
    for first in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        row = first + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(p + row, mask=row < n, other=0.0).to(COMPUTE)
        target = tl.load(y + row, mask=row < n, other=0.0).to(COMPUTE)
        value = tl.where(row < n, factor * (value + bias - target), 0.0)
        tl.store(dp + row, value.to(dp.dtype.element_ty), mask=row < n)
        sums += value
    tl.store(parts + tl.program_id(0), tl.sum(sums))


def _parts(p: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor for the sums of the programs, [parts, 1]."""
    count = parts_for(p, triton.cdiv(len(p), BLOCK))
    return p.new_empty(count, 1, dtype=torch.promote_types(p.dtype, torch.float32))


@torch.library.custom_op("gallery::squared_error", mutates_args=())
def squared_error(p: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean of (p + b − y)² [] of p and y [n] and b [], of one type; of no rows it is 0."""
    demand_alike(DTYPES, p=p, b=b, y=y)
    demand_shape("p", p, -1)
    demand_shape("b", b)
    demand_shape("y", y, len(p))
    p, y, parts = p.contiguous(), y.contiguous(), _parts(p)
    if len(p):
        squared_error_kernel[(len(parts),)](p, b, y, parts, len(p), BLOCK=BLOCK)
    return sum_parts(parts, p.dtype).view(())


@torch.library.custom_op("gallery::squared_error_backward", mutates_args=())
def squared_error_backward(
    gradient: torch.Tensor, p: torch.Tensor, b: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dp [n] and db [] of dL [], p, b and y."""
    p, y, parts = p.contiguous(), y.contiguous(), _parts(p)
    dp = torch.empty_like(p)
    if len(p):
        squared_error_backward_kernel[(len(parts),)](gradient, p, b, y, dp, parts, len(p), BLOCK=BLOCK)
    return dp, sum_parts(parts, p.dtype).view(())


@squared_error.register_fake
def _(p: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return p.new_empty(())


@squared_error_backward.register_fake
def _(gradient: torch.Tensor, p: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(p, memory_format=torch.contiguous_format), p.new_empty(())


def _gradients(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    dp, db = squared_error_backward(gradient, *context.saved_tensors)
    return dp, db, -dp


squared_error.register_autograd(_gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


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
    return squared_error(weighted_sum(x, w), b, y)


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
    curve=[(rows, 64) for rows in (256, 4096, 65536, 2**20)],
    tolerances={torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-13},
    traffic=lambda x, w, b, y: (x.numel() + w.numel() + 3 * len(y)) * x.element_size(),
    differentiable=True,
    backward_traffic=lambda x, w, b, y: (2 * x.numel() + 2 * w.numel() + 4 * len(y)) * x.element_size(),
    chosen=lambda: chosen(weighted_sum_kernel),
    axis=("rows of 64", lambda size: size[0]),
)
