"""Convolution in two dimensions as an implicit matrix product: any stride, padding and dilation, one group.

Mathematics: y[n, f, p, q] = β[f] + Σ_{c, r, s} x[n, c, p·u − a + r·d, q·u' − a' + s·d'] · w[f, c, r, s], zeros outside
x; for x [N, C, H, W], w [F, C, R, S], β [F], strides (u, u'), paddings (a, a') and dilations (d, d'). P and Q are
⌊(H + 2a − d (R − 1) − 1) / u⌋ + 1 and its like. Sums are float32, y has x's type.
Lesson:
- y is the product of the weights with a matrix that has one row for each pixel of y and one column for each (r, s, c).
  Written to memory it would hold x R·S times. It is *implicit*: a program computes which pixels its block of the matrix
  holds and loads those of x, so that the lessons of `matmul` apply here, and memory holds x once.
- *Channels last*: a pixel's channels lie together, so that a block's rows are whole lines of memory. Tensors with other
  strides are copied into that order first, and y is in it.
- A descriptor of four dimensions loads a box of images, rows, columns and channels in one instruction; beyond the
  image's edge it loads zeros, which are the padding. A block then needs no addresses and no masks. It requires a stride
  of one, and channels that fill 16 bytes. The height and width of a box are those that waste the fewest pixels at the
  edges (`plane`). With descriptors the weights are the product's left matrix, so that both factors come to the matrix
  units from shared memory.
- The gradient by x is such a product again: with the weights turned around, a stride between y's pixels instead of
  x's (`SPREAD`), and padding d (R − 1) − a. The gradient by w is a product over all pixels, with few tiles: the pixels
  are therefore divided into parts, each part's sums are written, and then added in one order. There are no atomics, so
  the same arguments give the same bits on the same GPU.
Precision: as in `matmul`; float32 goes by pointers.
In the product: `kernels/ops/linear/contraction.py` multiplies monomials and pieces of polynomials with weights while it
computes them, so that their wide matrix is never written. `kernels/ops/trees/float32_sum.py` adds parts in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Arguments, Exhibit, Size
from gallery.implicit import (
    channels_last,
    convolve,
    descriptor_kernel,
    pointer_kernel,
    sums_by_weight,
    weight_kernel,
)
from gallery.tuning import chosen


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """Return the convolution."""
    return torch.conv2d(x, weight, bias, stride, padding, dilation)


WAYS = ("descriptors", "pointers")


def output_size(
    x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[int, int]:
    """Return P and Q."""
    P, Q = (
        (length + 2 * pad - far * (kernel - 1) - 1) // step + 1
        for length, kernel, step, pad, far in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    )
    return P, Q


@torch.library.custom_op("gallery::convolution", mutates_args=())
def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    way: str = "descriptors",
) -> torch.Tensor:
    """Return y [N, F, P, Q], its channels lying together, of x [N, C, H, W], weight [F, C, R, S] and bias [F].

    x and weight have any strides; those whose channels do not lie together are copied first. The ways are
    "descriptors" and "pointers". The second replaces the first on GPUs before capability 9.0, with a
    stride above one, for channels or filters that fill no multiple of 16 bytes, and for float32.
    """
    demand_alike(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    demand_shape("x", x, -1, -1, -1, -1)
    demand_shape("weight", weight, -1, x.shape[1], -1, -1)
    if bias is not None:
        demand_shape("bias", bias, weight.shape[0])
    for name, pair, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if len(pair) != 2 or min(pair) < least:
            raise ValueError(f"'{name}' is {list(pair)}; two numbers of at least {least} are needed.")
    if way not in WAYS:
        raise ValueError(f"'way' is {way!r}; the ways are {', '.join(WAYS)}.")
    P, Q = output_size(x, weight, stride, padding, dilation)
    if min(P, Q, *weight.shape[2:]) < 1:
        raise ValueError(
            f"'weight' has shape {list(weight.shape)}, which with dilation {list(dilation)} does not fit 'x' of "
            f"{list(x.shape)} with padding {list(padding)}."
        )
    y = channels_last(x, x.shape[0], weight.shape[0], P, Q)
    if y.numel():
        bias = None if bias is None else bias.contiguous()
        convolve(x, weight, bias, y, stride, padding, dilation, (1, 1), way)
    return y


@convolution.register_fake
def _(x, weight, bias, stride, padding, dilation, way="descriptors"):
    return channels_last(x, x.shape[0], weight.shape[0], *output_size(x, weight, stride, padding, dilation))


@torch.library.custom_op("gallery::convolution_by_x", mutates_args=())
def convolution_by_x(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    height: int,
    width: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    way: str,
) -> torch.Tensor:
    """Return dx [N, C, height, width], its channels lying together, of dy."""
    (_, C, R, S), (up, left) = weight.shape, dilation
    dx = channels_last(gradient, gradient.shape[0], C, height, width)
    if dx.numel():
        turned = weight.flip(2, 3).transpose(0, 1)
        inverse = (up * (R - 1) - padding[0], left * (S - 1) - padding[1])
        convolve(gradient, turned, None, dx, (1, 1), inverse, dilation, stride, way)
    return dx


@convolution_by_x.register_fake
def _(gradient, weight, height, width, stride, padding, dilation, way):
    return channels_last(gradient, gradient.shape[0], weight.shape[1], height, width)


@torch.library.custom_op("gallery::convolution_by_weight", mutates_args=())
def convolution_by_weight(
    gradient: torch.Tensor,
    x: torch.Tensor,
    height: int,
    width: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """Return dw [F, C, height, width], its channels lying together, of dy and x."""
    sums = sums_by_weight(gradient, x, height, width, stride, padding, dilation)
    return sums.sum(0).to(x.dtype).permute(0, 3, 1, 2)


@convolution_by_weight.register_fake
def _(gradient, x, height, width, stride, padding, dilation):
    return channels_last(x, gradient.shape[1], x.shape[1], height, width)


def keep(ctx, inputs, output) -> None:
    """Keep the tensors that the gradients need."""
    x, weight, _, *ctx.pairs, ctx.way = inputs
    ctx.save_for_backward(x, weight)


def gradients(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return dx, dw and dβ; torch sums dβ over pixels."""
    x, weight = ctx.saved_tensors
    by_x, by_weight, by_bias, *_ = ctx.needs_input_grad
    dx = convolution_by_x(gradient, weight, *x.shape[2:], *ctx.pairs, ctx.way) if by_x else None
    dw = convolution_by_weight(gradient, x, *weight.shape[2:], *ctx.pairs) if by_weight else None
    return dx, dw, gradient.sum((0, 2, 3)) if by_bias else None, None, None, None, None


convolution.register_autograd(gradients, setup_context=keep)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return x, weight and bias, of a size (N, C, H, W, F, R = S, stride, …)."""
    N, C, H, W, F, R, stride, padding, dilation = size
    x, weight = torch.randn(N, H, W, C, device=device), torch.randn(F, R, R, C, device=device)
    bias = torch.randn(F, dtype=dtype, device=device)
    pairs = ([stride] * 2, [padding] * 2, [dilation] * 2)
    return x.to(dtype).permute(0, 3, 1, 2), weight.to(dtype).permute(0, 3, 1, 2), bias, *pairs


def cudnn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *pairs: Sequence[int]) -> torch.Tensor:
    """Return the convolution by the fastest of cuDNN's kernels."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return torch.conv2d(x, weight, bias, *pairs)


def products(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *pairs: Sequence[int]) -> int:
    """Return the number of multiplications and additions."""
    P, Q = output_size(x, weight, *pairs)
    return 2 * x.shape[0] * P * Q * weight.numel()


def traffic(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *pairs: Sequence[int]) -> int:
    """Return the bytes of x, weight, bias and y."""
    P, Q = output_size(x, weight, *pairs)
    F = weight.shape[0]
    return (x.numel() + weight.numel() + F + x.shape[0] * F * P * Q) * x.element_size()


EXHIBIT = Exhibit(
    name="convolution",
    formula="y[n, f, p, q] = β[f] + Σ x[n, c, p·u − a + r·d, q·u − a + s·d] w[f, c, r, s]",
    reference=reference,
    ways={way: partial(convolution, way=way) for way in WAYS},
    peers={"cuDNN": cudnn},
    sample=sample,
    sizes=[
        (0, 3, 4, 4, 2, 3, 1, 1, 1),
        (1, 1, 1, 1, 1, 1, 1, 0, 1),
        (2, 3, 9, 7, 5, 3, 2, 1, 1),
        (1, 8, 7, 10, 9, 3, 1, 2, 2),
        (3, 72, 5, 6, 8, 2, 1, 1, 1),
    ],
    curve=[(n, 256, 56, 56, 256, 3, 1, 1, 1) for n in (1, 2, 4, 8, 16, 32)],
    lengths="images x channels x height x width x filters x side of the window x stride x padding x dilation",
    tolerances={torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 4e-6},
    traffic=traffic,
    work=products,
    differentiable=True,
    chosen=lambda: chosen(descriptor_kernel, pointer_kernel, weight_kernel),
    axis=("images of 56 x 56 x 256", lambda size: size[0]),
)
