"""Sums of the parts that `stacked_pairwise_affine.py` makes, for members with other numbers of parts.

A row of `x`, float64 `[rows, width]`, begins with its parts, part by part, and ends with the number of its parts. A
single model's parts are added by an affine map, whose order follows from their number. For one target the kernels here
have the tile of the map of `affine.py`, the same for several numbers, and each writes the rows with one of these
numbers: zeros after the last part change no sum. For several targets one kernel adds the parts of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.dot import dot
from ...numerics.functions import FUNCTIONS, apply_function, check_function, function_suffix
from ...plan.plan import Operation, Parameters
from ..linear.affine_kernel import narrow
from ..linear.launch import affine_narrow_shape, affine_shape, affine_targets_block
from .parts import MOST_PARTS

MOST_NARROW = tl.constexpr(24)  # fewer parts, and no multiple of four, are added in slots: see `affine_kernel.narrow`


@triton.jit
def count_of_parts(x, row, rows, WIDTH: tl.constexpr):
    """Return the number of parts of each row, int32 `[BLOCK_ROWS]`; 0 past the last row."""
    return tl.load(x + row * WIDTH + (WIDTH - 1), mask=row < rows, other=0.0).to(tl.int32)


@triton.jit(do_not_specialize=["rows"])
def sum_of_own_parts_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    out,  # float32 or float64 [rows]
    rows,
    WIDTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Rows whose parts are a tile of `affine_kernel`: more than half of BLOCK_FEATURES."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    count = count_of_parts(x, row, rows, WIDTH)
    part = tl.arange(0, BLOCK_FEATURES)
    at = row[:, None] * WIDTH + part[None, :]
    total = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], tl.float64)
    total += tl.load(x + at, mask=part[None, :] < count[:, None], other=0.0)
    y = apply_function(tl.sum(total, axis=1), FUNCTION)
    mine = (count > BLOCK_FEATURES // 2) & (count <= BLOCK_FEATURES) & ((count % 4 == 0) | (count >= MOST_NARROW))
    tl.store(out + row, y.to(out.dtype.element_ty), mask=mine)


@triton.jit(do_not_specialize=["rows"])
def sum_of_few_own_parts_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    out,  # float32 or float64 [rows]
    rows,
    WIDTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    SLOT_FEATURES: tl.constexpr,
):
    """Rows whose parts are the slots of `affine_narrow_kernel`, more than half of SLOTS unless that is 1."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    slot = tl.arange(0, SLOTS)
    count = count_of_parts(x, row, rows, WIDTH)
    total = tl.zeros([BLOCK_ROWS, SLOTS], tl.float64)
    for offset in tl.static_range(SLOT_FEATURES):
        part = slot * SLOT_FEATURES + offset
        total += tl.load(x + row[:, None] * WIDTH + part[None, :], mask=part[None, :] < count[:, None], other=0.0)
    y = apply_function(tl.sum(total, axis=1), FUNCTION)
    mine = (count > SLOTS // 2 * 4) & (count < SLOTS * 4) & (count % 4 != 0) & (count < MOST_NARROW)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=mine)


@triton.jit(do_not_specialize=["rows"])
def sums_of_own_parts_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    PARTS: tl.constexpr,  # the most parts of a row
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """Several targets, by the tiles of `affine_targets_kernel`."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    numbers = count_of_parts(x, row, rows, WIDTH) * TARGETS
    total = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float64)
    for start in tl.range(0, PARTS * TARGETS, BLOCK_FEATURES):
        number = start + tl.arange(0, BLOCK_FEATURES)
        tile = tl.load(x + row[:, None] * WIDTH + number[None, :], mask=number[None, :] < numbers[:, None], other=0.0)
        of_target = (number % TARGETS)[:, None] == target[None, :]
        ones = tl.where(of_target & (number < PARTS * TARGETS)[:, None], 1.0, 0.0)
        total = dot(tile.to(tl.float64), ones.to(tl.float64), total)
    y = apply_function(total, FUNCTION)
    inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
    tl.store(out + row[:, None] * TARGETS + target[None, :], y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class SumOfOwnParts(Operation):
    """Add up each row's own number of parts, one of `counts`, for each target, then apply the function."""

    counts: tuple[int, ...]
    targets: int
    function: str = "identity"

    def check(self, *widths: int) -> None:
        if widths != (ragged_width(self.counts, self.targets),):
            raise PlanError(f"sum_of_own_parts: the input must be [rows, {ragged_width(self.counts, self.targets)}].")
        check_function(self.function)

    def output_width(self, *widths: int) -> int:
        return self.targets

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, most = inputs[0].double(), max(self.counts)
        number = torch.arange(most * self.targets)
        parts = torch.where(number < x[:, -1:] * self.targets, x[:, : len(number)], 0.0)
        return FUNCTIONS[self.function](parts.view(len(x), most, self.targets).sum(1))

    def launches(self, inputs: int) -> int:
        return len(self._shapes(torch.device("cpu"))) if self.targets == 1 else 1

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x = inputs[0]
        what = {"x": x, "out": output, "rows": rows, "WIDTH": x.shape[1], "FUNCTION": self.function}
        if self.targets > 1:
            block = affine_targets_block(self.targets, across=False)
            grid = (triton.cdiv(rows, block["BLOCK_ROWS"]), triton.cdiv(self.targets, block["BLOCK_TARGETS"]))
            sums_of_own_parts_kernel[grid](**what, PARTS=max(self.counts), TARGETS=self.targets, **block)
            return
        for shape in self._shapes(x.device):
            kernel = sum_of_few_own_parts_kernel if "SLOTS" in shape else sum_of_own_parts_kernel
            kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]),)](**what, **shape)

    def _shapes(self, device: torch.device) -> list[dict[str, int]]:
        """Return the tiles by which an affine map adds so many numbers, each once."""
        slots, blocks = set[int](), set[int]()
        for count in self.counts:
            if narrow(count):
                slots.add(triton.next_power_of_2(triton.cdiv(count, 4)))
            else:
                blocks.add(triton.next_power_of_2(count))
        found = [dict(affine_narrow_shape.of(device, each, 4 if each > 1 else 3)) for each in sorted(slots)]
        return found + [dict(affine_shape.of(device, each, "masked")) for each in sorted(blocks)]

    def describe(self) -> str:
        return f"{len(self.counts)} numbers of parts" + function_suffix(self.function)


def parts_key(parts: int) -> int:
    """Return what numbers of parts have in common that are added up together: 0 unless they stand alone.

    Those are very many, and odd ones in tiles, whose rows a single model reads number by number and not in twos.
    """
    return parts if parts > MOST_PARTS or (parts % 2 and not narrow(parts)) else 0


def ragged_width(counts: Iterable[int] | np.ndarray, targets: int) -> int:
    """Return the width of rows of such numbers of parts: even, so that rows are aligned as an even number of parts."""
    width = int(max(counts)) * targets + 1
    return width + width % 2
