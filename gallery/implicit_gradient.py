"""The gradient of a convolution by its weights: the implicit matrix, transposed, times the gradient by y.

It is a sum over all pixels of few numbers, so pixels are dealt out to parts, and each program makes a tile of the sums
of one part. Tensors lie as in `gallery/implicit.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from gallery.descriptors import multiprocessors, provide_memory
from gallery.dots import dot
from gallery.implicit import boxes, gathered
from gallery.kernels.matmul import about
from gallery.tuning import Choice, tuned

BUSY, USED_MOST = "every multiprocessor has work when w is small", "each number loaded is used the most often"
CHOICES = (
    Choice("small tiles", BUSY, {"PIXELS": 32, "FILTERS": 64, "TAPS": 64}, 4, 3),
    Choice("wide tiles", USED_MOST, {"PIXELS": 64, "FILTERS": 128, "TAPS": 128}, 8, 3),
)
DESCRIPTOR_CHOICES = (
    Choice("small tiles", BUSY, {"FILTERS": 64, "CHANNELS": 64}, 4, 4),
    Choice("square tiles", "between the two", {"FILTERS": 128, "CHANNELS": 128}, 8, 4),
    Choice("wide tiles", USED_MOST, {"FILTERS": 128, "CHANNELS": 256}, 8, 3),
)
MOST_PIXELS, TILE = 64, 128 * 128
LENGTHS = (16, 32, 64)
"""How many pixels of one row a box may have."""


@tuned(CHOICES, key=["about"])
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


@tuned(DESCRIPTOR_CHOICES, key=["about"])
@triton.jit(do_not_specialize=["about"])
def weight_descriptor_kernel(
    gradient,  # [N · P, Q, F]
    x,  # [N, H, W, C]
    parts,  # float32 [programs along the last axis, F, R · S, C]
    N,
    rows_in_part,  # of N · P
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
    LENGTH: tl.constexpr,
    FILTERS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write one part of the sums of one tile of dw, for a stride of one. Boxes are pieces of rows."""
    slopes = tl.make_tensor_descriptor(gradient, [N * P, Q, F], [Q * F, F, 1], [1, LENGTH, FILTERS])
    pixels = tl.make_tensor_descriptor(x, [N, H, W, C], [H * W * C, W * C, C, 1], [1, 1, LENGTH, CHANNELS])
    f, c = tl.program_id(0) * FILTERS, tl.program_id(1) % tl.cdiv(C, CHANNELS) * CHANNELS
    tap = tl.program_id(1) // tl.cdiv(C, CHANNELS)
    up, left = tap // S * far_up - pad_up, tap % S * far_left - pad_left
    pieces = tl.cdiv(Q, LENGTH)
    first = tl.program_id(2) * rows_in_part
    sums = tl.zeros([FILTERS, CHANNELS], tl.float32)
    for piece in range(first * pieces, tl.minimum(first + rows_in_part, N * P) * pieces):
        row, q = piece // pieces, piece % pieces * LENGTH
        slope = slopes.load([row, q, f]).reshape(LENGTH, FILTERS)
        block = pixels.load([row // P, row % P + up, q + left, c]).reshape(LENGTH, CHANNELS)
        sums = dot(slope.T, block, sums, "ieee")
    filters, channels = f + tl.arange(0, FILTERS), c + tl.arange(0, CHANNELS)
    at = ((tl.program_id(2).to(tl.int64) * F + filters) * (R * S) + tap)[:, None] * C + channels[None, :]
    tl.store(parts + at, sums, mask=(filters < F)[:, None] & (channels < C)[None, :])


def sums_by_weight(
    gradient: torch.Tensor,
    x: torch.Tensor,
    height: int,
    width: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    way: str,
) -> torch.Tensor:
    """Return the weights' gradient in parts, float32 [parts, F, height, width, C]: each is of some pixels."""
    gradient, x = (each.contiguous(memory_format=torch.channels_last) for each in (gradient, x))
    (N, C, H, W), (F, P, Q) = x.shape, gradient.shape[1:]
    pixels, taps = N * P * Q, C * height * width
    most = 2 * multiprocessors(x.device) * TILE // max(1, F * taps)
    parts = max(1, min(most, pixels // MOST_PIXELS))
    sums = x.new_empty(parts, F, height, width, C, dtype=torch.float32)
    number = about(pixels, F, taps)
    if not sums.numel():
        return sums
    if way == "descriptors" and max(stride) == 1 and boxes(gradient, F) and boxes(x, C):
        provide_memory(x.device)
        length = min(LENGTHS, key=lambda each: (triton.cdiv(Q, each) * each, -each))

        def tiles(meta):
            return triton.cdiv(F, meta["FILTERS"]), triton.cdiv(C, meta["CHANNELS"]) * height * width, parts

        weight_descriptor_kernel[tiles](
            gradient, x, sums, N, triton.cdiv(N * P, parts), F, H, W, C, P, Q, *padding, *dilation, number,
            R=height, S=width, LENGTH=length,
        )  # fmt: skip
    else:

        def blocks(meta):
            return triton.cdiv(F, meta["FILTERS"]), triton.cdiv(taps, meta["TAPS"]), parts

        in_part = triton.cdiv(triton.cdiv(pixels, parts), MOST_PIXELS) * MOST_PIXELS
        weight_kernel[blocks](
            gradient, x, sums, pixels, in_part, F, taps, H, W, C, P, Q, *stride, *padding, *dilation, number, S=width
        )
    return sums
