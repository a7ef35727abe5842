"""The implicit matrix of a convolution: kernels that multiply it with weights, and their launches.

`gallery/kernels/convolution.py` has the mathematics and the lesson. All tensors here have a pixel's channels
together: x [N, H, W, C], weights [F, R, S, C], y [N, P, Q, F].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from gallery.descriptors import aligned, multiprocessors, provide_memory
from gallery.dots import dot
from gallery.tuning import Choice, tuned

BUSY, USED_MORE = "every multiprocessor has work when there is little to write", "each number loaded is used more often"
CHOICES = (
    Choice("small tiles", BUSY, {"PIXELS": 64, "FILTERS": 64, "TAPS": 32}, 4, 3),
    Choice("wide tiles", USED_MORE, {"PIXELS": 128, "FILTERS": 128, "TAPS": 64}, 8, 3),
)
DESCRIPTOR_CHOICES = (
    Choice("small tiles", BUSY, {"FILTERS": 64, "IMAGES": 1, "CHANNELS": 64}, 4, 4),
    Choice("wide tiles", USED_MORE, {"FILTERS": 128, "IMAGES": 4, "CHANNELS": 64}, 8, 3),
)
WEIGHT_CHOICES = (
    Choice("small tiles", BUSY, {"PIXELS": 32, "FILTERS": 64, "TAPS": 64}, 4, 3),
    Choice("wide tiles", USED_MORE, {"PIXELS": 64, "FILTERS": 128, "TAPS": 128}, 8, 3),
)
MOST_PIXELS, WEIGHT_TILE = 64, 128
"""For the weights' gradient: the pixels of a step, and the width and height of a tile."""

PLANE = 64
"""The pixels of a box in one image; a descriptor loads such boxes for IMAGES images."""


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


@tuned(CHOICES, key=["pixels", "F", "taps"])
@triton.jit
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


@tuned(DESCRIPTOR_CHOICES, key=["N", "F", "H", "W", "C"])
@triton.jit
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
    R: tl.constexpr,
    S: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FILTERS: tl.constexpr,
    IMAGES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write every tile of y whose number is this program's, plus a multiple of the number of programs."""
    PIXELS: tl.constexpr = IMAGES * HEIGHT * WIDTH
    x_boxes = tl.make_tensor_descriptor(x, [N, H, W, C], [H * W * C, W * C, C, 1], [IMAGES, HEIGHT, WIDTH, CHANNELS])
    weight_boxes = tl.make_tensor_descriptor(weight, [R * S, F, C], [C, R * S * C, 1], [1, FILTERS, CHANNELS])
    y_boxes = tl.make_tensor_descriptor(y, [N, P, Q, F], [P * Q * F, Q * F, F, 1], [IMAGES, HEIGHT, WIDTH, FILTERS])
    high, wide, deep = tl.cdiv(P, HEIGHT), tl.cdiv(Q, WIDTH), tl.cdiv(F, FILTERS)
    steps = tl.cdiv(C, CHANNELS)
    for tile in tl.range(tl.program_id(0), tl.cdiv(N, IMAGES) * high * wide * deep, tl.num_programs(0)):
        f = tile % deep * FILTERS
        q = tile // deep % wide * WIDTH
        p = tile // (deep * wide) % high * HEIGHT
        n = tile // (deep * wide * high) * IMAGES
        sums = tl.zeros([FILTERS, PIXELS], tl.float32)
        for step in range(0, R * S * steps):
            c, tap = step % steps * CHANNELS, step // steps
            weights = weight_boxes.load([tap, f, c]).reshape(FILTERS, CHANNELS)
            block = x_boxes.load([n, p - pad_up + tap // S * far_up, q - pad_left + tap % S * far_left, c])
            sums = dot(weights, block.reshape(PIXELS, CHANNELS).T, sums, "ieee")
        filters = f + tl.arange(0, FILTERS)
        if bias is not None:
            sums += tl.load(bias + filters, mask=filters < F, other=0.0).to(tl.float32)[:, None]
        y_boxes.store([n, p, q, f], sums.to(y.dtype.element_ty).T.reshape(IMAGES, HEIGHT, WIDTH, FILTERS))


@tuned(WEIGHT_CHOICES, key=["pixels", "F", "taps"])
@triton.jit
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
    """Return the height and width of a box of PLANE pixels with which the fewest boxes cover P × Q pixels."""
    shapes = [(PLANE >> k, 1 << k) for k in range(PLANE.bit_length())]
    return min(
        shapes, key=lambda shape: (triton.cdiv(P, shape[0]) * triton.cdiv(Q, shape[1]), abs(shape[0] - shape[1]))
    )


def channels_last(like: torch.Tensor, N: int, C: int, H: int, W: int) -> torch.Tensor:
    """Return a tensor [N, C, H, W] whose pixels' channels lie together."""
    return like.new_empty(N, H, W, C).permute(0, 3, 1, 2)


def boxes(tensor: torch.Tensor, channels: int) -> bool:
    """Return whether descriptors can load a tensor, whose channels lie together, for matrix units."""
    return tensor.dtype != torch.float32 and aligned(tensor, channels)


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
    if way == "descriptors" and max(*stride, *spread) == 1 and boxes(x, C) and boxes(weight, C) and boxes(y, F):
        provide_memory(x.device)
        height, width = plane(P, Q)
        planes = triton.cdiv(P, height) * triton.cdiv(Q, width)

        def persistent(meta):
            tiles = triton.cdiv(N, meta["IMAGES"]) * planes * triton.cdiv(F, meta["FILTERS"])
            return (min(multiprocessors(x.device), tiles),)

        descriptor_kernel[persistent](
            x, weight, bias, y, N, F, H, W, C, P, Q, *padding, *dilation, R=R, S=S, HEIGHT=height, WIDTH=width
        )
    else:

        def grid(meta):
            return triton.cdiv(N * P * Q, meta["PIXELS"]), triton.cdiv(F, meta["FILTERS"])

        pointer_kernel[grid](
            x, weight, bias, y, N * P * Q, F, C * R * S, H, W, C, P, Q, *stride, *padding, *dilation,
            S=S, SPREAD_UP=spread[0], SPREAD_LEFT=spread[1],
        )  # fmt: skip


def sums_by_weight(
    gradient: torch.Tensor,
    x: torch.Tensor,
    height: int,
    width: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """Return the weights' gradient in parts, float32 [parts, F, height, width, C], each for some pixels."""
    gradient, x = (each.contiguous(memory_format=torch.channels_last) for each in (gradient, x))
    (N, C, H, W), (F, P, Q) = x.shape, gradient.shape[1:]
    pixels, taps = N * P * Q, C * height * width
    tiles = max(1, triton.cdiv(F, WEIGHT_TILE) * triton.cdiv(taps, WEIGHT_TILE))
    parts = max(1, min(2 * multiprocessors(x.device) // tiles, pixels // MOST_PIXELS))
    sums = x.new_empty(parts, F, height, width, C, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(F, meta["FILTERS"]), triton.cdiv(taps, meta["TAPS"]), parts

    if sums.numel():
        in_part = triton.cdiv(triton.cdiv(pixels, parts), MOST_PIXELS) * MOST_PIXELS
        weight_kernel[grid](
            gradient, x, sums, pixels, in_part, F, taps, H, W, C, P, Q, *stride, *padding, *dilation, S=width,
        )  # fmt: skip
    return sums
