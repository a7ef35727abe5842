"""Convolution in two dimensions as an implicit matrix product: any stride, padding and dilation, one group.

Mathematics: y[n, f, p, q] = β[f] + Σ_{c, r, s} x[n, c, p·u − a + r·d, q·u' − a' + s·d'] · w[f, c, r, s], zeros outside
x; for x [N, C, H, W], w [F, C, R, S], β [F], strides (u, u'), paddings (a, a') and dilations (d, d'). P and Q are
⌊(H + 2a − d (R − 1) − 1) / u⌋ + 1 and its like. Sums are float32, y has x's type.
What to learn:
- One row for each pixel of y, one column for each (r, s, c): of this matrix y is the product with the weights. Written
  down it would be x, R·S times over. It is *implicit*: a program works out which pixels its block of it holds and loads
  those of x, so that all that was learnt of `matmul` holds here, and memory holds x once.
- *Channels last*: a pixel's channels lie together, so that a block's rows are whole lines of memory. Other strides
  are copied into that order first, and y is in it.
- A descriptor of four dimensions brings a box of images, rows, columns and channels in one instruction; where the box
  hangs over the image's edge it brings zeros, which is what padding is. So a block costs no addresses and no masks. It
  needs a stride of one, and channels that fill 16 bytes. A box is as high and wide as wastes the fewest pixels at the
  edges (`plane`). Here the weights are the product's left matrix, so that both come to the matrix units from shared
  memory.
- The gradient by x is such a product again: with the weights turned around, a stride between y's pixels instead of
  x's (`SPREAD`), and padding d (R − 1) − a. The gradient by w is a product over all pixels, with few tiles to make: so
  pixels are dealt out to parts, each part's sums are written, and then added in one order. No atomics, so that the
  same arguments give the same bits on the same GPU.
Precision: as in `matmul`, float32 by pointers in float32, by descriptors in two parts of 11 bits each.
In the product: `kernels/pieces.py` and `kernels/contraction.py` make their blocks of a matrix as they multiply it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import aligned, multiprocessors, provide_memory
from gallery.dots import dot
from gallery.exhibit import Arguments, Exhibit, Size
from gallery.kernels.matmul import about
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice(
        "small tiles", "every multiprocessor has work when y is small", {"PIXELS": 64, "FILTERS": 64, "TAPS": 32}, 4
    ),
    Choice("wide tiles", "each number loaded is used more often", {"PIXELS": 128, "FILTERS": 128, "TAPS": 32}, 8),
)
DESCRIPTOR_CHOICES = (
    Choice(
        "small tiles", "every multiprocessor has work when y is small",
        {"FILTERS": 64, "IMAGES": 1, "CHANNELS": 64, "SPECIALISED": False}, 4, 4,
    ),
    Choice(
        "specialised warps", "loading never waits for products",
        {"FILTERS": 128, "IMAGES": 4, "CHANNELS": 64, "SPECIALISED": True}, 4, 3,
    ),
)  # fmt: skip
WEIGHT_CHOICES = (
    Choice(
        "small tiles", "every multiprocessor has work when w is small", {"PIXELS": 32, "FILTERS": 64, "TAPS": 64}, 4
    ),
    Choice("wide tiles", "each number loaded is used more often", {"PIXELS": 64, "FILTERS": 128, "TAPS": 128}, 8),
)
MOST_PIXELS, WEIGHT_TILE = 64, 128 * 128
PLANE = 64
"""Pixels of a box in one image, which a descriptor brings for IMAGES of them."""


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


@triton.jit
def gathered(
    x,  # [N, H, W, C]
    pixel,  # int32 [BLOCK]: pixels of y
    pixels,
    tap,  # int32 [TAPS]: (r · S + s) · C + c
    taps,
    H,
    W,
    C,
    P,
    Q,
    up,  # stride, padding and dilation downwards, then to the right
    left,
    pad_up,
    pad_left,
    far_up,
    far_left,
    S: tl.constexpr,
    SPREAD_UP: tl.constexpr,
    SPREAD_LEFT: tl.constexpr,
):
    """Return the implicit matrix' block of these pixels and taps, [BLOCK, TAPS], zeros outside x and outside itself."""
    n, p, q = (pixel // (P * Q)).to(tl.int64), pixel // Q % P, pixel % Q
    c, s, r = tap % C, tap // C % S, tap // C // S
    h = (p * up - pad_up)[:, None] + (r * far_up)[None, :]
    w = (q * left - pad_left)[:, None] + (s * far_left)[None, :]
    inside = (pixel < pixels)[:, None] & (tap < taps)[None, :] & (h >= 0) & (w >= 0)
    if SPREAD_UP > 1:
        inside &= h % SPREAD_UP == 0
        h //= SPREAD_UP
    if SPREAD_LEFT > 1:
        inside &= w % SPREAD_LEFT == 0
        w //= SPREAD_LEFT
    at = x + (n * H * W * C)[:, None] + (h * W + w).to(tl.int64) * C + c[None, :]
    return tl.load(at, mask=inside & (h < H) & (w < W), other=0.0)


@tuned(CHOICES, key=["about"])
@triton.jit(do_not_specialize=["about"])
def pointer_kernel(
    x,  # [N, H, W, C]
    weight,  # [F, R, S, C]
    bias,  # [F], or nothing
    y,  # [N, P, Q, F]
    pixels,
    F,
    taps,
    H,
    W,
    C,
    P,
    Q,
    up,
    left,
    pad_up,
    pad_left,
    far_up,
    far_left,
    about,
    S: tl.constexpr,
    SPREAD_UP: tl.constexpr,
    SPREAD_LEFT: tl.constexpr,
    PIXELS: tl.constexpr,
    FILTERS: tl.constexpr,
    TAPS: tl.constexpr,
):
    """Write one tile of y."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    f = tl.program_id(1) * FILTERS + tl.arange(0, FILTERS)
    sums = tl.zeros([PIXELS, FILTERS], tl.float32)
    for start in range(0, taps, TAPS):
        tap = start + tl.arange(0, TAPS)
        block = gathered(
            x, pixel, pixels, tap, taps, H, W, C, P, Q, up, left, pad_up, pad_left, far_up, far_left,
            S, SPREAD_UP, SPREAD_LEFT,
        )  # fmt: skip
        weights = tl.load(
            weight + tap[:, None] + f.to(tl.int64)[None, :] * taps,
            mask=(tap < taps)[:, None] & (f < F)[None, :],
            other=0.0,
        )
        sums = dot(block, weights, sums, "ieee")
    if bias is not None:
        sums += tl.load(bias + f, mask=f < F, other=0.0).to(tl.float32)[None, :]
    at = y + pixel.to(tl.int64)[:, None] * F + f[None, :]
    tl.store(at, sums.to(y.dtype.element_ty), mask=(pixel < pixels)[:, None] & (f < F)[None, :])


@tuned(DESCRIPTOR_CHOICES, key=["about"])
@triton.jit(do_not_specialize=["about"])
def descriptor_kernel(
    x,
    weight,
    bias,
    y,
    N,
    F,
    H,
    W,
    C,
    P,
    Q,
    pad_up,
    pad_left,
    far_up,
    far_left,
    about,
    R: tl.constexpr,
    S: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FILTERS: tl.constexpr,
    IMAGES: tl.constexpr,
    CHANNELS: tl.constexpr,
    SPECIALISED: tl.constexpr,
):
    """Write every tile of y whose number is this program's, plus a multiple of the number of programs."""
    tl.static_assert(not SPECIALISED or x.dtype.element_ty != tl.float32, "float32 is split by the warps that multiply")
    PIXELS: tl.constexpr = IMAGES * HEIGHT * WIDTH
    x_boxes = tl.make_tensor_descriptor(x, [N, H, W, C], [H * W * C, W * C, C, 1], [IMAGES, HEIGHT, WIDTH, CHANNELS])
    weight_boxes = tl.make_tensor_descriptor(weight, [R * S, F, C], [C, R * S * C, 1], [1, FILTERS, CHANNELS])
    high, wide, deep = tl.cdiv(P, HEIGHT), tl.cdiv(Q, WIDTH), tl.cdiv(F, FILTERS)
    steps = tl.cdiv(C, CHANNELS)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(N, IMAGES) * high * wide * deep, tl.num_programs(0), warp_specialize=SPECIALISED
    ):
        f = tile % deep * FILTERS
        q = tile // deep % wide * WIDTH
        p = tile // (deep * wide) % high * HEIGHT
        n = tile // (deep * wide * high) * IMAGES
        sums = tl.zeros([FILTERS, PIXELS], tl.float32)
        for step in range(0, R * S * steps):
            c, tap = step % steps * CHANNELS, step // steps
            weights = weight_boxes.load([tap, f, c]).reshape(FILTERS, CHANNELS)
            block = x_boxes.load([n, p - pad_up + tap // S * far_up, q - pad_left + tap % S * far_left, c])
            sums = dot(weights, block.reshape(PIXELS, CHANNELS).T, sums, "tf32x3")
        filters = f + tl.arange(0, FILTERS)
        if bias is not None:
            sums += tl.load(bias + filters, mask=filters < F, other=0.0).to(tl.float32)[:, None]
        pixel = tl.arange(0, PIXELS)
        image, row, column = n + pixel // (HEIGHT * WIDTH), p + pixel // WIDTH % HEIGHT, q + pixel % WIDTH
        at = y + ((image.to(tl.int64) * P + row) * Q + column)[:, None] * F + filters[None, :]
        inside = ((image < N) & (row < P) & (column < Q))[:, None] & (filters < F)[None, :]
        tl.store(at, sums.to(y.dtype.element_ty).T, mask=inside)


@tuned(WEIGHT_CHOICES, key=["about"])
@triton.jit(do_not_specialize=["about"])
def weight_kernel(
    gradient,  # [N, P, Q, F]
    x,  # [N, H, W, C]
    parts,  # float32 [programs along the last axis, F, R, S, C]
    pixels,
    in_part,  # how many pixels, a multiple of PIXELS
    F,
    taps,
    H,
    W,
    C,
    P,
    Q,
    up,
    left,
    pad_up,
    pad_left,
    far_up,
    far_left,
    about,
    S: tl.constexpr,
    PIXELS: tl.constexpr,
    FILTERS: tl.constexpr,
    TAPS: tl.constexpr,
):
    """Write one part of the sums of one tile of dw."""
    f = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    tap = tl.program_id(1) * TAPS + tl.arange(0, TAPS)
    first = tl.program_id(2) * in_part
    sums = tl.zeros([FILTERS, TAPS], tl.float32)
    for start in range(first, tl.minimum(first + in_part, pixels), PIXELS):
        pixel = start + tl.arange(0, PIXELS)
        block = gathered(
            x, pixel, pixels, tap, taps, H, W, C, P, Q, up, left, pad_up, pad_left, far_up, far_left, S, 1, 1
        )
        slopes = tl.load(
            gradient + pixel.to(tl.int64)[:, None] * F + f[None, :],
            mask=(pixel < pixels)[:, None] & (f < F)[None, :],
            other=0.0,
        )
        sums = dot(slopes.T, block, sums, "ieee")
    at = parts + (tl.program_id(2).to(tl.int64) * F + f)[:, None] * taps + tap[None, :]
    tl.store(at, sums, mask=(f < F)[:, None] & (tap < taps)[None, :])


def plane(P: int, Q: int) -> tuple[int, int]:
    """Return how high and wide a box is, PLANE pixels, so that the boxes that cover P × Q pixels are the fewest."""
    shapes = [(PLANE >> k, 1 << k) for k in range(PLANE.bit_length())]
    return min(
        shapes, key=lambda shape: (triton.cdiv(P, shape[0]) * triton.cdiv(Q, shape[1]), abs(shape[0] - shape[1]))
    )


def channels_last(like: torch.Tensor, N: int, C: int, H: int, W: int) -> torch.Tensor:
    """Return a tensor [N, C, H, W] whose pixels' channels lie together."""
    return like.new_empty(N, H, W, C).permute(0, 3, 1, 2)


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    spread: Sequence[int],
    way: str,
) -> None:
    """Write y, whose channels lie together; with `spread`, as if there were zeros between the pixels of x."""
    x, weight = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
    (N, C, H, W), (F, _, R, S), (P, Q) = x.shape, weight.shape, y.shape[2:]
    number = about(N * P * Q, F, C * R * S)
    dense = max(*stride, *spread) == 1 and aligned(x, C) and aligned(weight, C)
    if way == "descriptors" and dense:
        provide_memory(x.device)
        height, width = plane(P, Q)
        planes = triton.cdiv(P, height) * triton.cdiv(Q, width)

        def persistent(meta):
            tiles = triton.cdiv(N, meta["IMAGES"]) * planes * triton.cdiv(F, meta["FILTERS"])
            return (min(multiprocessors(x.device), tiles),)

        descriptor_kernel[persistent](
            x, weight, bias, y, N, F, H, W, C, P, Q, *padding, *dilation, number, R=R, S=S, HEIGHT=height, WIDTH=width
        )
    else:

        def grid(meta):
            return triton.cdiv(N * P * Q, meta["PIXELS"]), triton.cdiv(F, meta["FILTERS"])

        pointer_kernel[grid](
            x, weight, bias, y, N * P * Q, F, C * R * S, H, W, C, P, Q, *stride, *padding, *dilation, number,
            S=S, SPREAD_UP=spread[0], SPREAD_LEFT=spread[1],
        )  # fmt: skip


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
    """Return y [N, F, P, Q], its channels lying together, of x [N, C, H, W], weight [F, C, R, S] and bias [F] or none.

    x and weight have any strides; those whose channels do not lie together are copied first. The ways are
    "descriptors" and "pointers". Where the first cannot be gone, pointers are: on GPUs before capability 9.0, with a
    stride above one, and for channels that fill no multiple of 16 bytes.
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
            f"'weight' has shape {list(weight.shape)}, which with dilation {list(dilation)} does not fit into an 'x' of "
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
    gradient, x = (each.contiguous(memory_format=torch.channels_last) for each in (gradient, x))
    (N, C, H, W), (F, P, Q) = x.shape, gradient.shape[1:]
    pixels, taps = N * P * Q, C * height * width
    tiles = triton.cdiv(F * taps, WEIGHT_TILE)
    parts = max(1, min(triton.cdiv(2 * multiprocessors(x.device), tiles), pixels // MOST_PIXELS))
    in_part = triton.cdiv(triton.cdiv(pixels, parts), MOST_PIXELS) * MOST_PIXELS
    sums = x.new_zeros(parts, F, height, width, C, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(F, meta["FILTERS"]), triton.cdiv(taps, meta["TAPS"]), parts

    if sums.numel():
        weight_kernel[grid](
            gradient, x, sums, pixels, in_part, F, taps, H, W, C, P, Q, *stride, *padding, *dilation,
            about(pixels, F, taps), S=width,
        )  # fmt: skip
    return sums.sum(0).to(x.dtype).permute(0, 3, 1, 2)


@convolution_by_weight.register_fake
def _(gradient, x, height, width, stride, padding, dilation):
    return channels_last(x, gradient.shape[1], x.shape[1], height, width)


def keep(context, inputs, output) -> None:
    """Keep what the gradients take."""
    x, weight, _, *context.pairs, context.way = inputs
    context.save_for_backward(x, weight)


def gradients(context, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return dx, dw and dβ, whose sums over pixels torch makes."""
    x, weight = context.saved_tensors
    by_x, by_weight, by_bias, *_ = context.needs_input_grad
    dx = convolution_by_x(gradient, weight, *x.shape[2:], *context.pairs, context.way) if by_x else None
    dw = convolution_by_weight(gradient, x, *weight.shape[2:], *context.pairs) if by_weight else None
    return dx, dw, gradient.sum((0, 2, 3)) if by_bias else None, None, None, None, None


convolution.register_autograd(gradients, setup_context=keep)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return x, weight and bias, of a size (N, C, H, W, F, R = S, stride, padding, dilation)."""
    N, C, H, W, F, R, stride, padding, dilation = size
    x, weight = torch.randn(N, H, W, C, device=device), torch.randn(F, R, R, C, device=device)
    bias = torch.randn(F, dtype=dtype, device=device)
    pairs = ([stride] * 2, [padding] * 2, [dilation] * 2)
    return x.to(dtype).permute(0, 3, 1, 2), weight.to(dtype).permute(0, 3, 1, 2), bias, *pairs


def cudnn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *pairs: Sequence[int]) -> torch.Tensor:
    """Return what the fastest of cuDNN's kernels makes of it."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return torch.conv2d(x, weight, bias, *pairs)


def products(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *pairs: Sequence[int]) -> int:
    """Return how many products and sums are made."""
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
    tolerances={torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=traffic,
    work=products,
    differentiable=True,
    chosen=lambda: {
        "descriptor_kernel": chosen(descriptor_kernel),
        "pointer_kernel": chosen(pointer_kernel),
        "weight_kernel": chosen(weight_kernel),
    },
)
