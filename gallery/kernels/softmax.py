"""Softmax of rows, in one block if a row fits and *online* if it does not, and its gradient.

Mathematics: yᵢⱼ = exp(xᵢⱼ − mᵢ) / Σₖ exp(xᵢₖ − mᵢ) with mᵢ = maxₖ xᵢₖ, x [rows, columns].
Any mᵢ gives the same yᵢⱼ; with the largest no exponential overflows, and one at least is 1. The gradient of x is
yᵢⱼ·(gᵢⱼ − Σₖ gᵢₖ·yᵢₖ) for a gradient g of y.
Lesson: torch's five operations (maximum, difference, exponential, sum, quotient) go through the memory five
times; in one kernel a row is read once and written once. Programs do not go from row to row, however long rows are: one
begins to read while another's writes are still under way. A row too long for the registers is read twice: first, block
by block, with the largest so far m and the sum s of exponentials so far. A block with a larger maximum m′ only rescales
the sum, s·exp(m − m′), so no third reading is needed. Attention does the same.
Bound: a row that is read twice moves three numbers where a copy moves two: 2/3 of a copy's rate, and 3/5 for the
gradient, which reads y and g twice and writes d once. The second reading begins at the row's end, whose blocks the
cache may still hold, so that more than the bound can be reached.
Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018, https://arxiv.org/abs/1805.02867
In the product: `kernels/ops/columns/row_norm.py` reads a row for its norm and once more to divide by it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

LONGEST = 32_768
"""The columns of the longest row whose numbers a multiprocessor's registers hold; longer ones are read in blocks. The
gradient of the longest needs a few registers more than there are, whose numbers stay in the nearest cache.
"""

ROW_CHOICES = (
    Choice("few elements", "short rows, of which many programs are to have some", {"ELEMENTS": 1024}, 4),
    Choice("more elements", "a program has more loads under way", {"ELEMENTS": 2048}, 4),
    Choice("more threads", "rows of some thousands, in few registers of each thread", {"ELEMENTS": 4096}, 8),
    Choice("many threads", "long rows, in few registers of each thread", {"ELEMENTS": 16384}, 16),
    Choice("all threads", "the longest rows, in the registers of a whole multiprocessor", {"ELEMENTS": 32768}, 32),
)
BLOCK_CHOICES = (
    Choice("short blocks", "more programs fit on a multiprocessor", {"BLOCK": 4096}, 8),
    Choice("long blocks", "fewer rescalings, and more loads under way", {"BLOCK": 16384}, 32),
    Choice("longest blocks", "fewer rows at once, of which the cache holds more", {"BLOCK": 32768}, 32),
)


def reference(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of x's last dimension."""
    return torch.softmax(x, -1)


@tuned(ROW_CHOICES, key=["rows", "columns"])
@triton.jit
def row_kernel(x, y, rows, columns, x_stride, COLUMNS: tl.constexpr, ELEMENTS: tl.constexpr):
    """Write the rows of y that have about `ELEMENTS` together; x: [rows, columns], x_stride between rows, y: rows."""
    ROWS: tl.constexpr = (ELEMENTS + COLUMNS - 1) // COLUMNS
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    there = tl.minimum(i, rows - 1)  # beyond the end the last row again, as any: nothing of it is written
    value = tl.load(x + there * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    above = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(y + i * columns + j, above / tl.sum(above, 1)[:, None], mask=inside)


@tuned(BLOCK_CHOICES, key=["rows", "columns"])
@triton.jit
def online_kernel(x, y, rows, columns, x_stride, BLOCK: tl.constexpr):
    """Write one row of y; x: [rows, columns] with x_stride between rows, y: rows."""
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * columns
    largest, total = float("-inf"), 0.0
    for start in tl.range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        value = tl.load(x + j, mask=j < columns, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        larger = tl.maximum(largest, tl.max(value, 0))
        shift = tl.where(larger == float("-inf"), 0.0, larger)  # −∞ so far: there is nothing to shift
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(value - shift), 0)
        largest = larger
    last = (columns - 1) // BLOCK * BLOCK
    for back in tl.range(0, columns, BLOCK):
        j = last - back + tl.arange(0, BLOCK)
        value = tl.load(x + j, mask=j < columns, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
        tl.store(y + j, tl.exp(value - largest) / total, mask=j < columns, eviction_policy="evict_first")


@tuned(ROW_CHOICES, key=["rows", "columns"])
@triton.jit
def row_backward_kernel(y, g, d, rows, columns, COLUMNS: tl.constexpr, ELEMENTS: tl.constexpr):
    """Write rows of d, the gradient of x, about `ELEMENTS` together; y, its gradient g, d: [rows, columns]."""
    ROWS: tl.constexpr = (ELEMENTS + COLUMNS - 1) // COLUMNS
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    answer = tl.load(y + i * columns + j, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(g + i * columns + j, mask=inside, other=0.0).to(tl.float32)
    shared = tl.sum(answer * gradient, 1)[:, None]
    tl.store(d + i * columns + j, answer * (gradient - shared), mask=inside)


@tuned(BLOCK_CHOICES, key=["rows", "columns"])
@triton.jit
def block_backward_kernel(y, g, d, rows, columns, BLOCK: tl.constexpr):
    """Write one row of d, the gradient of x; y, its gradient g, d: [rows, columns]."""
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        answer = tl.load(y + row + j, mask=j < columns, other=0.0, eviction_policy="evict_last").to(tl.float32)
        gradient = tl.load(g + row + j, mask=j < columns, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += answer * gradient
    shared = tl.sum(total, 0)
    last = (columns - 1) // BLOCK * BLOCK
    for back in tl.range(0, columns, BLOCK):
        j = last - back + tl.arange(0, BLOCK)
        answer = tl.load(y + row + j, mask=j < columns, eviction_policy="evict_first").to(tl.float32)
        gradient = tl.load(g + row + j, mask=j < columns, eviction_policy="evict_first").to(tl.float32)
        tl.store(d + row + j, answer * (gradient - shared), mask=j < columns, eviction_policy="evict_first")


@torch.library.custom_op("gallery::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of x's last dimension, of x's shape and type, computed in float32.

    x's rows may lie apart, as in a slice; if a row's elements are not contiguous, x is copied into rows first.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: x has no dimension.
    """
    demand_alike(x=x)
    if not x.dim():
        raise ValueError("'x' has no dimension along which there could be a softmax.")
    columns = x.shape[-1]
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = x.reshape(-1, columns)
    x = x if columns == 1 or x.stride(1) == 1 else x.contiguous()
    if columns <= LONGEST:
        row_kernel[_rows_grid(*x.shape)](x, y, *x.shape, x.stride(0), COLUMNS=triton.next_power_of_2(columns))
    else:
        online_kernel[(len(x),)](x, y, *x.shape, x.stride(0))
    return y


@torch.library.custom_op("gallery::softmax_backward", mutates_args=())
def softmax_backward(y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient of softmax's x, given its answer y and y's gradient, of one shape and type.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: The types, the devices or the shapes differ.
    """
    demand_alike(y=y, gradient=gradient)
    demand_shape("gradient", gradient, *y.shape)
    d = torch.empty_like(y, memory_format=torch.contiguous_format)
    if not y.numel():
        return d
    columns = y.shape[-1]
    rows = y.numel() // columns
    y, gradient = y.contiguous(), gradient.contiguous()
    if columns <= LONGEST:
        row_backward_kernel[_rows_grid(rows, columns)](
            y, gradient, d, rows, columns, COLUMNS=triton.next_power_of_2(columns)
        )
    else:
        block_backward_kernel[(rows,)](y, gradient, d, rows, columns)
    return d


def _rows_grid(rows: int, columns: int) -> Any:
    return lambda meta: (triton.cdiv(rows, triton.cdiv(meta["ELEMENTS"], meta["COLUMNS"])),)


@softmax.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@softmax_backward.register_fake
def _(y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


softmax.register_autograd(
    lambda context, gradient: softmax_backward(*context.saved_tensors, gradient), setup_context=_save
)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor]:
    """Return x of a size."""
    return (torch.randn(size, dtype=dtype, device=device),)


EXHIBIT = Exhibit(
    name="softmax",
    formula="yᵢⱼ = exp(xᵢⱼ − maxₖ xᵢₖ) / Σₖ exp(xᵢₖ − maxₖ xᵢₖ), x [rows, columns]",
    reference=reference,
    ways={"softmax": softmax},
    peers={"torch": lambda x: torch.softmax(x, -1)},
    sample=sample,
    sizes=[(0, 3), (3, 0), (1, 1), (3, 5), (37, 50), (2, 3, 1000), (3, 16_384 + 5), (2, LONGEST + 1003)],
    curve=[(2**28 // 2**k, 2**k) for k in range(6, 19)],
    lengths="rows x columns, or more lengths before the columns",
    tolerances={torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2},
    traffic=lambda x: 2 * x.numel() * x.element_size(),
    differentiable=True,
    backward_traffic=lambda x: 3 * x.numel() * x.element_size(),
    chosen=lambda: chosen(row_kernel, online_kernel, row_backward_kernel, block_backward_kernel),
    axis=("columns", lambda size: size[-1]),
)
