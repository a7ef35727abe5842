"""Layer normalisation, optionally followed by GELU: y = GELU((x − μ)/√(σ² + ε) · γ + β).

Mathematics: μ and σ² are the mean and the variance of one row of x `[..., width]`; γ (`weight`) and β (`bias`) are
`[width]`; GELU(t) = t·Φ(t) with the normal distribution's Φ. Sums are computed in float32.
Source: Ba, Kiros, Hinton, *Layer Normalization* (2016); Hendrycks, Gimpel, *Gaussian Error Linear Units* (2016).
Lesson: a row is read and written once, with any computation in between, so a function that follows is free in the same
kernel, and costs another round through memory in a separate kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.launches import Launch, by_layout
from gallery.levels.extension import library
from gallery.levels.operator import operator
from gallery.tuning import Choice, tuned

CHOICES = (
    Choice("sixteen rows", "rows are short: weights are loaded once for sixteen", {"ROWS": 16}, 8),
    Choice("four rows", "weights are loaded once for four rows", {"ROWS": 4}, 8),
    Choice("one row", "a program ends soon, so many rows are under way", {"ROWS": 1}, 4),
    Choice("one row, few threads", "more bytes are under way in each thread", {"ROWS": 1}, 2),
)


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gelu: bool = True, epsilon: float = 1e-5
) -> torch.Tensor:
    """Return y of x's shape and type."""
    y = torch.nn.functional.layer_norm(x, [x.shape[-1]], weight, bias, epsilon)
    return torch.nn.functional.gelu(y) if gelu else y


@triton.jit
def gelu_of(x):
    """Return x·Φ(x) of float32 values to 2·10⁻⁶, NaN for NaN.

    Φ(t) − ½ is t·p(t²)/q(t²) to 6·10⁻⁸ for |t| ≤ 5, where it is ½ to 3·10⁻⁷: p and q were fitted, by least squares with
    weights that rise where the error is large. Compiled for Hopper this takes 23 instructions a number instead of the
    32 of `tl.math.erf`, which are not free even in a kernel that waits for memory.
    """
    t = tl.minimum(tl.maximum(x, -5.0), 5.0)
    s = t * t
    p = 4.41221275e-06 - 1.41188227e-08 * s
    p = 0.00555007486 + s * (0.000330587991 + s * p)
    p = 0.398941953 + s * (0.0525954077 + s * p)
    q = 0.00277869968 + 0.000110815697 * s
    q = 1.0 + s * (0.298498318 + s * (0.0386721381 + s * q))
    return x * (0.5 + t * (p / q))


@tuned(CHOICES, key=["rows", "width"])
@triton.jit
def layer_norm_gelu_kernel(
    x,  # [rows, width], like y
    weight,  # [width], like bias
    bias,
    y,
    rows,
    width,
    epsilon,
    GELU: tl.constexpr,
    WIDTH: tl.constexpr,  # the power of two from width on
    ROWS: tl.constexpr,
):
    """Write ROWS rows of y, which stay in registers from the sums to the end."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows) & (column < width)
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=1, keep_dims=True) / width
    centred = tl.where(column < width, value - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / width
    gamma = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    beta = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    result = centred * tl.rsqrt(variance + epsilon) * gamma + beta
    if GELU:
        result = gelu_of(result)
    tl.store(y + row * width + column, result.to(y.dtype.element_ty), mask=inside)


@operator("gallery::level_layer_norm")
def in_triton_language(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gelu: bool = True, epsilon: float = 1e-5
) -> torch.Tensor:
    """Return y of x's shape and type; x of any strides is copied into rows first."""
    return launcher(x, weight, bias, gelu, epsilon)(x, weight, bias)


@by_layout
def launcher(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gelu: bool, epsilon: float
) -> Callable[..., torch.Tensor]:
    """Return what computes y of tensors with these layouts."""
    check(x, weight, bias)
    width = x.shape[-1]
    rows = x.numel() // width
    launch = Launch(
        layer_norm_gelu_kernel,
        lambda meta: (triton.cdiv(rows, meta["ROWS"]),),
        *(rows, width, epsilon, gelu, triton.next_power_of_2(width)),
    )

    def answer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        if rows:
            launch(x, weight.contiguous(), bias.contiguous(), y)
        return y

    return answer


@in_triton_language.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gelu: bool = True, epsilon: float = 1e-5
) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def in_cuda(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, gelu: bool = True, epsilon: float = 1e-5
) -> torch.Tensor:
    """Return y of x's shape and type, by `cuda/layer_norm.cu`: rows of at most 4,096 numbers, float32 or bfloat16."""
    check(x, weight, bias)
    return library().layer_norm(x, weight, bias, gelu, epsilon)


def check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Refuse arguments that no level supports."""
    demand_alike(x=x, weight=weight, bias=bias)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError("'x' needs a last dimension of at least one number.")
    demand_shape("weight", weight, x.shape[-1])
    demand_shape("bias", bias, x.shape[-1])
