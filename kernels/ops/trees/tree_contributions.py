"""Shapley values of trees: `out[r, t, k] = Σ table[part, t, k, pattern(part, r)]`, and `base[t]` as the last column.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target; both float32 or float64. Players
are the columns of the user's table. Trees are taken apart, and the pattern of a row says which conditions of a part it
does not meet (`leaf_patterns.py`). The pattern decides what all leaves of the part contribute to the values of their
players, and `table` has that number for each pattern, whatever rows or covers it was made of. Each player of a part has
a `shift`: its numbers are rounded to multiples of 2 to that power, so that 31 bits hold the largest of them.

The numbers are multiples of one unit for each output, a power of two, chosen so that the largest possible sum is below
2⁵³. Sums of them are therefore exact in int64 and in float64 alike and in any order: neither the tiling, which does
follow the number of rows, nor the device can change an answer.

Kernels write the pattern of each part and row. Another one adds up each output's numbers, those of many rows in chunks,
whose sums a last one adds.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ...format.errors import PlanError
from ...numerics.dot import INTERPRETED
from ...plan.devices import early_launch
from ...plan.plan import Parameters
from .integer_sum import store_sums
from .launch import MOST_ENTRIES
from .leaf_patterns import LeafPatterns

LARGEST_TABLE = 2**30
"""The most bytes of the numbers, at 8 bytes each."""

MOST_SHIFT = 22
"""Numbers of 31 bits that are shifted further could reach 2⁵³."""

ROWS = 64
"""The rows that a CPU looks up together, more of few numbers: it reads a part's lines while they are in the cache."""

NUMBERS = 2**18
"""The most numbers that a CPU looks up at a time, unless one part has more."""

LARGEST_PLACES = 2**22
"""The most places of numbers in the outputs of all rows that a CPU looks up together."""


AHEAD = 3 * MOST_ENTRIES
"""The most entries that a program loads past the last one."""

ENTRIES = ("entry_parts", "entry_starts", "entry_factors")
"""The parameters that have a number for each entry: its part, its first number in the table and their factor."""

ROW_AXIS = tl.constexpr(0 if triton.__version__.startswith("3.6.") else 1)
"""The axis of rows in tiles: the one along which the compiler lays neighbouring lanes where nothing else decides.

It is the first in release 3.6 of the language, and the last since then.
"""

STEP = 5
"""The work of an entry, in lines of the cache, besides its look-ups."""

ALIKE = 0.65
"""The power of the number of lines that rows look up: their patterns differ less than they could."""


class Lookup(NamedTuple):
    """The numbers of parts that follow each other as a CPU looks them up, a line for each pattern of a part.

    A line has a number for each target and player. Parts of fewer players have zeros, which are added to the base.
    """

    parts: slice
    first_line: np.ndarray  # int64 [parts, 1]
    table: np.ndarray  # float64 [lines, numbers]
    outputs: np.ndarray  # int64 [parts, numbers], what the numbers are added to
    places: np.ndarray  # int64 [parts, rows, numbers], the same in the outputs of many rows


@triton.jit
def contributions_kernel(
    patterns,  # uint8 or int16 [blocks of rows, PARTS, TOGETHER]
    entry_parts,  # int32 [entries, and AHEAD more]
    entry_starts,  # int32 [entries, and AHEAD more], in `table`
    entry_factors,  # int32 [entries, and AHEAD more], of the numbers; 0 for entries that add nothing
    first_entry,  # int32 [chunks + 1], of each chunk, then the number of entries
    table,  # int32
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # see `store_sums`
    PARTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Add up the numbers of parts. A program does `TOGETHER` rows of one chunk, `BLOCK_ENTRIES` parts at a time.

    Neighbouring lanes have neighbouring rows and look up the same part, whose numbers lie in few lines of the cache.
    Entries are loaded two steps before their numbers, and patterns one step, so that no step waits three times. One row
    has no more than a few steps.
    """
    patterns += tl.program_id(0).to(tl.int64) * (PARTS * TOGETHER)
    total = tl.zeros([TOGETHER, BLOCK_ENTRIES] if ROW_AXIS == 0 else [BLOCK_ENTRIES, TOGETHER], tl.int64)
    begin, end = tl.load(first_entry + tl.program_id(1)), tl.load(first_entry + tl.program_id(1) + 1)
    place = tl.arange(0, BLOCK_ENTRIES)
    if TOGETHER == 1:
        if EARLY:
            gdc_wait()
        for first in tl.range(begin, end, BLOCK_ENTRIES):
            inside = first + place < end
            start = tl.load(entry_starts + first + place, mask=inside, other=0)
            part = tl.load(entry_parts + first + place, mask=inside, other=0)
            factor = tl.load(entry_factors + first + place, mask=inside, other=0)
            total = plus(total, table, start, patterns_of(patterns, part, TOGETHER=TOGETHER), factor)
    else:
        begin = tl.multiple_of(begin, BLOCK_ENTRIES)
        entry_parts += begin
        entry_starts += begin
        entry_factors += begin
        start, next_start = tl.load(entry_starts + place), tl.load(entry_starts + place + BLOCK_ENTRIES)
        part, next_part = tl.load(entry_parts + place), tl.load(entry_parts + place + BLOCK_ENTRIES)
        if EARLY:
            gdc_wait()
        pattern = patterns_of(patterns, part, TOGETHER=TOGETHER)
        for first in tl.range(0, end - begin, BLOCK_ENTRIES):
            next_pattern = patterns_of(patterns, next_part, TOGETHER=TOGETHER)
            part_after = tl.load(entry_parts + first + place + 2 * BLOCK_ENTRIES)
            start_after = tl.load(entry_starts + first + place + 2 * BLOCK_ENTRIES)
            total = plus(total, table, start, pattern, tl.load(entry_factors + first + place))
            start, next_start, next_part, pattern = next_start, start_after, part_after, next_pattern
    store_sums(tl.sum(total, axis=1 - ROW_AXIS), unit, baseline, out, OUTPUTS=OUTPUTS, TOGETHER=TOGETHER)


@triton.jit
def patterns_of(patterns, part, TOGETHER: tl.constexpr):
    """Return the patterns of parts, a uint32 tile of rows and parts."""
    at = tl.expand_dims(patterns + part.to(tl.int64) * TOGETHER, ROW_AXIS) + tl.expand_dims(
        tl.arange(0, TOGETHER), 1 - ROW_AXIS
    )
    if TOGETHER > 1:  # or a thread would load the patterns of many rows at once, and look up each of them elsewhere
        at = tl.max_contiguous(at, [1, 1])
    pattern = tl.load(at)
    if pattern.dtype == tl.int16:
        pattern = pattern.to(tl.uint16, bitcast=True)
        if not INTERPRETED:  # or the compiler keeps 16 bits from one step to the next, and extends them there
            return tl.inline_asm_elementwise("cvt.u32.u16 $0, $1;", "=r,h", [pattern], tl.uint32, True, 1)
    return pattern.to(tl.uint32)


@triton.jit
def plus(total, table, start, pattern, factor):
    """Return int64 totals with the entries' numbers for a tile of patterns added, each times its factor."""
    number = tl.load(tl.expand_dims(table + start.to(tl.uint32, bitcast=True), ROW_AXIS) + pattern)
    factor = tl.expand_dims(factor, ROW_AXIS)
    if INTERPRETED:
        total += number.to(tl.int64) * factor.to(tl.int64)
    else:  # the compiler takes more instructions
        given = [number, factor, total]
        total = tl.inline_asm_elementwise("mad.wide.s32 $0, $1, $2, $3;", "=l,r,r,l", given, tl.int64, True, 1)
    return total


@dataclass(frozen=True, eq=False)
class TreeContributions(LeafPatterns):
    """Shapley values of the columns of a table, by a table of what each pattern of a part contributes.

    Parts of as many conditions ascend in their number of players.
    """

    MOST: ClassVar[int] = 15
    WHOLE: ClassVar[int] = 4  # a multiple of the entries that a program of many rows adds up at a time

    table: np.ndarray  # int32, part after part: [targets, its players, 2 to the power of its conditions]
    shift: np.ndarray  # uint8, part after part: [targets, its players]
    unit: np.ndarray  # float64 [outputs]

    def check(self, *widths: int) -> None:
        super().check(*widths)
        groups = self.groups
        sizes = [(own.stop - own.start) * players * len(self.base) for _, players, own in groups]
        size = sum(each << conditions for each, (conditions, _, _) in zip(sizes, groups, strict=True))
        if self.table.dtype != np.int32 or self.table.shape != (size,):
            raise PlanError("tree_contributions: table must be int32, a number for each target, player and pattern.")
        if self.shift.dtype != np.uint8 or self.shift.shape != (sum(sizes),) or (self.shift > MOST_SHIFT).any():
            raise PlanError(
                f"tree_contributions: shift must be uint8 of at most {MOST_SHIFT}, one for each target and player."
            )
        if self.unit.dtype != np.float64 or self.unit.shape != (self.output_width(),):
            raise PlanError("tree_contributions: unit must be float64 [outputs].")
        if 8 * self.table.size > LARGEST_TABLE:
            raise PlanError(f"tree_contributions: the numbers must have at most {LARGEST_TABLE} bytes.")

    def rounding_error(self) -> float:
        """Return the most by which the sum of a row's values can be off because the numbers are rounded."""
        units = np.zeros(self.output_width())
        first = 0
        for _, players, own in self.groups:
            output = self.outputs_of(own, players).swapaxes(0, 1).ravel()
            np.add.at(units, output, np.ldexp(0.5, self.shift[first : first + len(output)].astype(np.int64)))
            first += len(output)
        return float((units * self.unit).reshape(len(self.base), -1).sum(axis=1).max())

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each part, and each output's list of parts with their numbers."""
        outputs, parts, starts, work = ([np.zeros(0, np.int64)] for _ in range(4))
        start = 0
        for conditions, players, own in self.groups:
            output = self.outputs_of(own, players).swapaxes(0, 1)  # [parts, targets, players]
            begin = start + (np.arange(output.size) << conditions).reshape(output.shape)
            outputs.append(output.ravel())
            parts.append(np.repeat(np.arange(own.start, own.stop), players * len(self.base)))
            starts.append(begin.ravel())
            several = (1 << max(conditions - 5, 0)) ** ALIKE  # lines of the cache that 32 rows look up
            work.append(np.full(output.size, round(8 * (STEP + min(several, 32)))))
            start += output.size << conditions
        output = np.concatenate(outputs)
        order = np.argsort(output, kind="stable")
        at, places = self.entry_places(output[order], np.concatenate(work)[order])
        entries = np.zeros((3, places["first_entry"][-1] + AHEAD), dtype=np.int32)
        factor = 1 << self.shift.astype(np.int64)
        entries[:, at] = np.stack([np.concatenate(parts), np.concatenate(starts), factor])[:, order]
        return {
            **self.pattern_parameters(),
            **dict(zip(ENTRIES, entries, strict=True)),
            **places,
            "table": self.table,
            **self.plain_parameters(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the unit and the constant of each output; a CPU has tables of its own."""
        return {"unit": self.unit, "baseline": self.baseline()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        pattern = self.patterns(inputs[0].to(self.terms.upper.dtype)).long()  # [parts, rows]
        total = torch.zeros(self.output_width(), pattern.shape[1], dtype=torch.int64)
        start = first = 0
        for conditions, players, own in self.groups:
            for part in range(own.start, own.stop):
                output = self.outputs_of(slice(part, part + 1), players).ravel()
                size = len(output) << conditions
                table = torch.from_numpy(self.table[start : start + size].reshape(len(output), -1).astype(np.int64))
                shift = torch.from_numpy(self.shift[first : first + len(output), None].astype(np.int64))
                total[output] += table[:, pattern[part]] << shift
                start += size
                first += len(output)
        return parameters["baseline"] + total.T * parameters["unit"]

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), outputs = inputs, self.output_width()
        sums = torch.zeros(len(x), outputs, dtype=torch.float64)
        for part, out in zip(x.split(self._rows), sums.split(self._rows), strict=True):
            patterns = self.patterns(part.to(self.terms.upper.dtype)).numpy()
            for lookup in self._lookups:
                line = patterns[lookup.parts] + lookup.first_line
                places = lookup.outputs if len(part) == 1 else lookup.places[:, : len(part)]
                together = max(NUMBERS // (len(part) * lookup.table.shape[1]), 1)
                for start in range(0, len(line), together):
                    own = slice(start, start + together)
                    held = lookup.table.take(line[own], axis=0, mode="clip")  # [parts, rows, numbers]
                    out.view(-1).scatter_add_(
                        0, torch.from_numpy(places[own].reshape(-1)), torch.from_numpy(held.reshape(-1))
                    )
        return parameters["baseline"] + sums * parameters["unit"]

    def launch_sums(self, parameters: Parameters, grid: tuple[int, int], **arguments: Any) -> None:
        contributions_kernel[grid](
            **{name: parameters[name] for name in (*ENTRIES, "table", "unit", "baseline")},
            **arguments,
            **early_launch(parameters["unit"].device, after_a_kernel=len(self.asked) > 0),
        )

    @functools.cached_property
    def _lookups(self) -> list[Lookup]:
        """Return the numbers for a CPU; few parts have less than half as many players as their lookup has room for."""
        found, targets, number, shift = [], len(self.base), 0, 0
        widest = itertools.accumulate((players for _, players, _ in self.groups), max)
        sized = zip(self.groups, widest, strict=True)
        for _, run in itertools.groupby(sized, lambda each: max(each[1] - 1, 3).bit_length()):
            groups, widths = zip(*run, strict=True)
            parts = slice(groups[0][2].start, groups[-1][2].stop)
            lines = 1 << self.depth[parts]
            table, line = np.zeros((lines.sum(), targets, widths[-1])), 0
            for conditions, players, own in groups:
                names = (own.stop - own.start, targets, players)
                size = math.prod(names)
                held = self.table[number : number + (size << conditions)].reshape(*names, -1)
                shifted = np.ldexp(held, self.shift[shift : shift + size].reshape(*names, 1)).transpose(0, 3, 1, 2)
                mine = table[line : line + (names[0] << conditions), :, :players]
                mine[:] = shifted.reshape(mine.shape)
                line, number, shift = line + len(mine), number + held.size, shift + size
            outputs = self.outputs_of(parts, widths[-1]).swapaxes(0, 1).reshape(len(lines), -1)
            places = outputs[:, None] + self.output_width() * np.arange(self._rows)[:, None]
            first = (lines.cumsum() - lines)[:, None]
            found.append(Lookup(parts, first, table.reshape(len(table), -1), outputs, places))
        return found

    @functools.cached_property
    def _rows(self) -> int:
        """Return how many rows a CPU looks up together."""
        numbers = max(len(self.base) * self.players.size, 1)
        return min(max(ROWS, NUMBERS // numbers), max(LARGEST_PLACES // numbers, 1))
