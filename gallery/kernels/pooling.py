"""Pooling: the sum or the maximum of every window that slides over a row or an image.

Mathematics: yₖ = Σ or max over 0 ≤ d < window of x at k·stride − padding + d, in one dimension or, with a window, a
stride and a padding each, in two; elements beyond the edge count as 0 in a sum and as −∞ in a maximum. x […, n] gives
y […, m] with m = (n + 2·padding − window) // stride + 1; x […, height, width] likewise in both.
Lesson: neighbouring windows share elements. Each element is loaded from memory once, as the cache then holds it, but
each load from the cache takes an instruction and time too. A program therefore goes down a strip of the image: it
reduces every row's windows once, *holds* the last `height` of these in registers, and reduces them for every row of the
answer. Across, a thread makes four neighbouring windows from the same elements. It loads groups of four whose addresses
16 divides, in one load each; the windows' second elements, a column further, would be four loads. `tl.split` splits the
groups and `tl.join` puts the answers together, in a thread's own registers: no data moves. The compiler unrolls all of
it, since window, stride and padding are constants to it. No load can pass a store, which might have written to the
address that it reads: a program that stored each row as soon as it is ready would wait for memory row by row. All
answers are therefore *collected* before the first is stored.
In the product: `kernels/ops/columns/pool.py` reduces clusters of columns, which do not slide.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

KINDS = ("sum", "maximum")
CHOICES = (
    Choice("wide strips", "rows are shared, in long runs", {"LANES": 512, "STRIP": 4}, 4),
    Choice("high strips", "fewer rows are read by two programs", {"LANES": 256, "STRIP": 16}, 2),
    Choice("small strips", "few images are enough programs", {"LANES": 128, "STRIP": 4}, 1),
    Choice("narrow strips", "few lanes are left over in narrow images", {"LANES": 32, "STRIP": 8}, 1),
    Choice("one run", "in one dimension there are no rows to share", {"LANES": 1024, "STRIP": 1}, 8),
)


def reference(
    x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int], kind: str
) -> torch.Tensor:
    """Return the windows' sums or maxima, by padding and unfolding."""
    for place, (size, step, pad) in enumerate(zip(window, stride, padding, strict=True)):
        dimension = x.dim() - len(window) + place
        shape = list(x.shape)
        shape[dimension] = pad
        edge = x.new_full(shape, 0.0 if kind == "sum" else float("-inf"))
        x = torch.cat([edge, x, edge], dimension).unfold(dimension, size, step)
        x = x.sum(-1) if kind == "sum" else x.amax(-1)
    return x


@triton.jit
def joined(a, b, MAXIMUM: tl.constexpr):
    """Return the larger of two blocks' elements, or NaN if one is NaN, or their sum."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL) if MAXIMUM else a + b


@triton.jit
def loaded(x, column, width, inside, MAXIMUM: tl.constexpr):
    """Return these elements of a row, as float32; elements beyond its ends are neutral in the reduction."""
    NOTHING: tl.constexpr = float("-inf") if MAXIMUM else 0.0
    return tl.load(x + column, mask=inside & (column >= 0) & (column < width), other=NOTHING).to(tl.float32)


@triton.jit
def windows_each(
    x, lane, width, inside, WINDOW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, MAXIMUM: tl.constexpr
):
    """Return the reductions of these lanes' windows within one row, in a load for each element; x: [width]."""
    column = lane * STRIDE - PADDING
    result = loaded(x, column, width, inside, MAXIMUM)
    for d in tl.static_range(1, WINDOW):
        result = joined(result, loaded(x, column + d, width, inside, MAXIMUM), MAXIMUM)
    return result


@triton.jit
def windows_by_fours(
    x, lane, width, inside, WINDOW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, MAXIMUM: tl.constexpr
):
    """Return the same, for a width that four divides, in loads of four contiguous elements."""
    BEFORE: tl.constexpr = (PADDING + 3) // 4 * 4  # columns that are loaded left of the first window without padding
    column = lane // 4 * (4 * STRIDE) + lane % 4
    elements = ()
    for first in tl.static_range(-BEFORE, 3 * STRIDE + WINDOW - PADDING, 4):
        fours = tl.reshape(loaded(x, column + first, width, inside, MAXIMUM), [lane.shape[0] // 4, 2, 2])
        even, odd = tl.split(fours)
        e0, e2 = tl.split(even)
        e1, e3 = tl.split(odd)
        elements = elements + (e0, e1, e2, e3)  # noqa: RUF005  (the language has no stars in tuples)
    windows = ()
    for i in tl.static_range(4):
        result = elements[BEFORE - PADDING + i * STRIDE]
        for d in tl.static_range(1, WINDOW):
            result = joined(result, elements[BEFORE - PADDING + i * STRIDE + d], MAXIMUM)
        windows = windows + (result,)  # noqa: RUF005
    return tl.reshape(tl.join(tl.join(windows[0], windows[2]), tl.join(windows[1], windows[3])), [lane.shape[0]])


@tuned(CHOICES, key=["height_out", "width_out", "HEIGHT", "WIDTH", "FOURS"])
@triton.jit
def pooling_kernel(
    x,  # [images, height, width]
    y,  # [images, height_out, width_out]
    height,
    width,
    height_out,
    width_out,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE_DOWN: tl.constexpr,
    STRIDE_ACROSS: tl.constexpr,
    PADDING_DOWN: tl.constexpr,
    PADDING_ACROSS: tl.constexpr,
    MAXIMUM: tl.constexpr,
    FOURS: tl.constexpr,
    LANES: tl.constexpr,
    STRIP: tl.constexpr,
):
    """Write `STRIP` rows of y, `LANES` columns wide: all loads are under way before the first store."""
    if FOURS:
        width, width_out = width // 4 * 4, width_out // 4 * 4  # as they are; so the compiler knows it too
    across, down = tl.cdiv(width_out, LANES), tl.cdiv(height_out, STRIP)
    image = (tl.program_id(0) // (across * down)).to(tl.int64)
    first = (tl.program_id(0) // across) % down * STRIP
    lane = (tl.program_id(0) % across) * LANES + tl.arange(0, LANES)
    x += image * height * width
    y += image * height_out * width_out
    SHARED: tl.constexpr = HEIGHT - STRIDE_DOWN if HEIGHT > STRIDE_DOWN else 0  # rows that two windows have
    row_windows: tl.constexpr = windows_by_fours if FOURS else windows_each
    held = ()
    results = ()
    for r in tl.static_range(STRIP):
        top = (first + r) * STRIDE_DOWN - PADDING_DOWN
        for d in tl.static_range(0 if r == 0 else SHARED, HEIGHT):
            row = (top + d).to(tl.int64)
            inside = (row >= 0) & (row < height)
            below = row_windows(x + row * width, lane, width, inside, WIDTH, STRIDE_ACROSS, PADDING_ACROSS, MAXIMUM)
            held = (held + (below,))[-HEIGHT:]  # noqa: RUF005
        result = held[0]
        for d in tl.static_range(1, HEIGHT):
            result = joined(result, held[d], MAXIMUM)
        results = results + (result,)  # noqa: RUF005
    for r in tl.static_range(STRIP):
        out = y + (first + r).to(tl.int64) * width_out + lane
        tl.store(out, results[r], mask=(lane < width_out) & (first + r < height_out))


@torch.library.custom_op("gallery::pooling", mutates_args=())
def pooling(
    x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int], kind: str
) -> torch.Tensor:
    """Return the "sum" or the "maximum" of every window, in x's type; sums are computed in float32.

    x […, n] with one number each in window, stride and padding, or x […, height, width] with two; x of other strides is
    copied into rows first. It has no gradient.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: The kind is unknown, the numbers are too few, too many or invalid, or a window fits nowhere.
    """
    demand_alike(x=x)
    if kind not in KINDS:
        raise ValueError(f"'kind' is {kind!r}; it is one of {', '.join(KINDS)}.")
    shape = _answer_shape(x, window, stride, padding)
    x, y = x.contiguous(), x.new_empty(shape)
    if not y.numel():
        return y
    down, across = (0, len(window) - 1)
    one = len(window) == 1
    height, height_out = (1, 1) if one else (x.shape[-2], shape[-2])
    images = y.numel() // (height_out * shape[-1])
    pooling_kernel[
        lambda meta: (images * triton.cdiv(height_out, meta["STRIP"]) * triton.cdiv(shape[-1], meta["LANES"]),)
    ](
        x,
        y,
        height,
        x.shape[-1],
        height_out,
        shape[-1],
        HEIGHT=1 if one else window[down],
        WIDTH=window[across],
        STRIDE_DOWN=1 if one else stride[down],
        STRIDE_ACROSS=stride[across],
        PADDING_DOWN=0 if one else padding[down],
        PADDING_ACROSS=padding[across],
        MAXIMUM=kind == "maximum",
        FOURS=x.shape[-1] % 4 == 0 and shape[-1] % 4 == 0,
    )
    return y


def _answer_shape(x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[int]:
    """Return y's shape, or raise `ValueError` if there is none."""
    if len(window) not in (1, 2) or not len(window) == len(stride) == len(padding) <= x.dim():
        raise ValueError(
            f"'window' has {len(window)} numbers, 'stride' {len(stride)}, 'padding' {len(padding)}, and 'x' "
            f"{x.dim()} dimensions; one or two numbers are needed, of each as many, and as many dimensions at least."
        )
    shape = list(x.shape)
    for place, (size, step, pad) in enumerate(zip(window, stride, padding, strict=True)):
        dimension = x.dim() - len(window) + place
        if size < 1 or step < 1 or not 0 <= pad < size:
            raise ValueError(
                f"'window' {size} with 'stride' {step} and 'padding' {pad}: window and stride are 1 at least, and a "
                "padding is smaller than its window, so that each window has an element."
            )
        shape[dimension] = (shape[dimension] + 2 * pad - size) // step + 1
        if shape[dimension] < 1 or not x.shape[dimension]:
            raise ValueError(
                f"'window' {size} finds no place in the {x.shape[dimension]} elements of 'x' with the padding {pad}."
            )
    return shape


@pooling.register_fake
def _(x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int], kind: str) -> torch.Tensor:
    return x.new_empty(_answer_shape(x, window, stride, padding))


def torch_pooling(
    x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int], kind: str
) -> torch.Tensor:
    """Return the same by torch's own pooling, whose average also counts elements beyond the edge."""
    functional = torch.nn.functional
    average, maximum = (
        (functional.avg_pool1d, functional.max_pool1d)
        if len(window) == 1
        else (functional.avg_pool2d, functional.max_pool2d)
    )
    size, step, pad = (list(each) for each in (window, stride, padding))
    return maximum(x, size, step, pad) if kind == "maximum" else average(x, size, step, pad) * prod(window)


def sample(
    size: Size, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, list[int], list[int], list[int], str]:
    """Return x and the parameters; a size is x's shape, of three or four numbers, window, stride, padding and kind.

    The same window, stride and padding are taken down and across; the kind is 0 for sums and 1 for maxima.
    """
    *shape, window, stride, padding, kind = size
    if len(shape) not in (2, 3, 4):
        raise ValueError("A batch of rows or of images.")
    each = 1 if len(shape) == 2 else 2
    x = torch.randn(shape, dtype=dtype, device=device)
    return x, [window] * each, [stride] * each, [padding] * each, KINDS[kind]


EXHIBIT = Exhibit(
    name="pooling",
    formula="yₖ = Σ or max of x at k·stride − padding + 0 … window − 1, in one or two dimensions",
    reference=reference,
    ways={"pooling": pooling},
    peers={"torch": torch_pooling},
    sample=sample,
    sizes=[
        *(
            (1, 1, 1, 1, 0, 0),
            (0, 10, 3, 1, 1, 0),
            (2, 1030, 4, 1, 0, 0),
            (3, 50, 5, 3, 2, 1),
            (3, 7, 2, 3, 0, 1),
            (3, 1032, 5, 1, 2, 0),
        ),
        *((2, 9, 33, 3, 1, 1, 0), (2, 17, 130, 3, 1, 1, 1), (1, 12, 10, 3, 2, 1, 1), (1, 7, 9, 2, 3, 0, 1)),
        *((1, 11, 48, 3, 2, 1, 0), (2, 5, 10, 3, 1, 0, 1), (2, 5, 8, 3, 1, 0, 1), (2, 17, 136, 3, 1, 1, 1)),
    ],
    curve=[(64, 2**k, 2**k, 3, 1, 1, 1) for k in range(4, 12)],
    lengths="two to four lengths, the last or last two pooled, x window x stride x padding x kind (0 sum, 1 maximum)",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=lambda x, window, stride, padding, kind: (
        (x.numel() + prod(_answer_shape(x, window, stride, padding))) * x.element_size()
    ),
    chosen=lambda: chosen(pooling_kernel),
    axis=("height and width", lambda size: size[1]),
)
