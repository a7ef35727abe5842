"""Lookup: the table entry for each number of a row, one column each, or all entries of a row summed.

Lookup `l` searches for the number `v = x[r, columns[l]]` among its own keys, `keys[starts[l] : starts[l + 1]]`, which
ascend. `N` is the number of all keys and `L` the number of lookups. The lookup finds one row of the table:

    i(r, l) = the place of v among all keys,    where v equals a key of lookup l
            = N + l,                            where v is NaN
            = N + L + l,                        where v equals none of its keys

    out[r, l] = f(table[i(r, l), 0])            `[rows, L]`, or where `summed`
    out[r, t] = f(Σ_l table[i(r, l), t])        `[rows, T]`

`columns`: int32 `[L]`; `starts`: int32 `[L + 1]`; `keys`: float64 `[N]`; `table`: float64 `[N + 2 L, T]`, where T is 1
unless `summed`; `f`: a function of `numerics/functions.py`.

Encoders of categories are lookups: a category is a key, and −0 equals 0. Numbers are compared as float64: a float32 `x`
never equals the float64 0.1. Numbers that stand for strings are keys like any other. Lookups that read the same column,
each with a single key, are one-hot columns; before a linear model these are `summed` and never stored.

The search is binary and without branches: the number of keys that are at most v is found bit by bit, highest bit first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, apply_function, check_function, function_suffix
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .launch import BLOCK, SUMMED_LOOKUPS

ELEMENTS_AT_ONCE = 2**19
"""Numbers that plain torch looks up at a time."""


@triton.jit
def find_row(
    v, lookup, place, inside, starts, keys,
    STACKED: tl.constexpr, KEYS: tl.constexpr, LOOKUPS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Return the row of the table for each number of a block; `lookup` and `inside` have the block's shape.

    Where STACKED, `place` is that of each number's member, whose entries follow those of all members before it. Its
    part of `starts` is filled up to whole vectors, so that sums have the layout and order that those of one model have.
    """
    if STACKED:
        starts += place * ((LOOKUPS + 4) // 4 * 4)
    start = tl.load(starts + lookup, mask=inside, other=0)
    length = tl.load(starts + lookup + 1, mask=inside, other=0) - start
    found = length * 0
    for level in tl.static_range(DEPTH):
        further = found + (1 << (DEPTH - 1 - level))
        key = tl.load(keys + start + further - 1, mask=further <= length, other=0.0)
        found = tl.where((further <= length) & (key <= v), further, found)
    last = tl.load(keys + start + found - 1, mask=found > 0, other=0.0)
    if STACKED:
        end = tl.load(starts + LOOKUPS)  # of the member's keys
        absent = tl.where(v == v, end + LOOKUPS, end) + lookup
        row = tl.where((found > 0) & (last == v), start + found - 1, absent) + place * (2 * LOOKUPS)
    else:
        absent = tl.where(v == v, KEYS + LOOKUPS, KEYS) + lookup
        row = tl.where((found > 0) & (last == v), start + found - 1, absent)
    return row


@triton.jit(do_not_specialize=["size", "first", "members"])
def lookup_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    columns,  # int32 [LOOKUPS]
    starts,  # int32 [LOOKUPS + 1], or for each member as in `find_row`
    keys,  # float64 [KEYS], or those of one member after the other
    table,  # float64 [KEYS + 2 LOOKUPS], or those of one member after the other
    out,  # float32 or float64 [size]
    size,  # rows * LOOKUPS
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
    LOOKUPS: tl.constexpr,
    DEPTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of the flat output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    lookup = (at % LOOKUPS).to(tl.int32)
    column = tl.load(columns + lookup, mask=inside, other=0)
    v = tl.load(x + at // LOOKUPS * WIDTH + column, mask=inside, other=0.0).to(tl.float64)
    place = member_places(numbers, at // LOOKUPS, inside, first, members) if STACKED else at
    row = find_row(v, lookup, place, inside, starts, keys, STACKED=STACKED, KEYS=KEYS, LOOKUPS=LOOKUPS, DEPTH=DEPTH)
    y = apply_function(tl.load(table + row, mask=inside, other=0.0), FUNCTION)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def lookup_sum_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    columns,  # int32 [LOOKUPS]
    starts,  # int32 [LOOKUPS + 1], or for each member as in `find_row`
    keys,  # float64 [KEYS], or those of one member after the other
    table,  # float64 [KEYS + 2 LOOKUPS, TARGETS], or those of one member after the other
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
    LOOKUPS: tl.constexpr,
    TARGETS: tl.constexpr,
    DEPTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_LOOKUPS: tl.constexpr,
):
    """A program makes one target of `BLOCK_ROWS` rows from tiles of `[BLOCK_ROWS, BLOCK_LOOKUPS]` lookups."""
    at = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1)
    place = member_places(numbers, at, at < rows, first, members) if STACKED else at
    total = tl.zeros([BLOCK_ROWS, BLOCK_LOOKUPS], tl.float64)
    for start in tl.range(0, LOOKUPS, BLOCK_LOOKUPS):
        lookup = start + tl.arange(0, BLOCK_LOOKUPS)
        inside = (at < rows)[:, None] & (lookup < LOOKUPS)[None, :]
        column = tl.load(columns + lookup, mask=lookup < LOOKUPS, other=0)
        v = tl.load(x + at[:, None] * WIDTH + column[None, :], mask=inside, other=0.0).to(tl.float64)
        lookups = tl.broadcast_to(lookup[None, :], [BLOCK_ROWS, BLOCK_LOOKUPS])
        row = find_row(
            v, lookups, place[:, None], inside, starts, keys,
            STACKED=STACKED, KEYS=KEYS, LOOKUPS=LOOKUPS, DEPTH=DEPTH,
        )  # fmt: skip
        total += tl.load(table + row.to(tl.int64) * TARGETS + target, mask=inside, other=0.0)
    y = apply_function(tl.sum(total, axis=1), FUNCTION)
    tl.store(out + at * TARGETS + target, y.to(out.dtype.element_ty), mask=at < rows)


@dataclass(frozen=True, eq=False)
class Lookup(Operation):
    """Look numbers up in a table; `summed` sums the entries of a row before `function` is applied."""

    columns: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
    table: np.ndarray
    summed: bool = False
    function: str = "identity"

    def check(self, *widths: int) -> None:
        (width,) = widths
        lookups, count, starts = len(self.columns), len(self.keys), self.starts
        check_function(self.function)
        if not lookups or self.columns.min() < 0 or self.columns.max() >= width:
            raise PlanError(f"lookup: columns must be at least one and lie in [0, {width}).")
        if starts.shape != (lookups + 1,) or starts[0] != 0 or starts[-1] != count or np.any(np.diff(starts) < 0):
            raise PlanError(f"lookup: starts must be [{lookups + 1}] and ascend from 0 to {count}, the number of keys.")
        own = np.repeat(np.arange(lookups), np.diff(starts))
        if np.isnan(self.keys).any() or np.any(np.diff(self.keys)[np.diff(own) == 0] <= 0):
            raise PlanError("lookup: the keys of each lookup must be numbers that ascend.")
        targets = self.table.shape[-1] if self.summed else 1
        if self.table.shape != (count + 2 * lookups, targets) or not targets:
            shape = f"[{count + 2 * lookups}, {'targets' if self.summed else 1}]"
            raise PlanError(f"lookup: table must be {shape}, not {list(self.table.shape)}.")

    def output_width(self, *widths: int) -> int:
        return self.table.shape[1] if self.summed else len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            "columns": self.columns.astype(np.int32),
            "starts": self.starts.astype(np.int32),
            "keys": np.append(self.keys, np.inf),  # never empty
            "table": self.table,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), table, count, lookups = inputs, parameters["table"], len(self.keys), len(self.columns)
        entries = []
        for lookup, (first, end) in enumerate(itertools.pairwise(self.starts.tolist())):
            v = x[:, self.columns[lookup]].double()
            hit = v[:, None] == parameters["keys"][first:end]  # [rows, keys]
            absent = torch.where(v.isnan(), count + lookup, count + lookups + lookup)
            row = torch.where(hit.any(1), first + hit.byte().argmax(1), absent) if end > first else absent
            entries.append(table[row])
        answer = torch.stack(entries).sum(0) if self.summed else torch.cat(entries, dim=1)
        return FUNCTIONS[self.function](answer)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        rows = max(1, ELEMENTS_AT_ONCE // len(self.columns))
        answer = torch.cat([self._compute(parameters, part) for part in x.split(rows)])
        width = answer.shape[1]
        return answer if self.function == "identity" else in_tiles(answer, FUNCTIONS[self.function], width, width)

    def _compute(self, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Return the table entries of some rows, before the function."""
        table, keys, starts = parameters["table"], parameters["keys"], parameters["starts"].long()
        lookups, count = len(self.columns), len(self.keys)
        v = x.double().index_select(1, parameters["columns"])  # [rows, L]
        place = starts[:-1][None, :]
        if longest_search(self.starts) > 1:
            bounds = enumerate(itertools.pairwise(self.starts.tolist()))
            found = [first + torch.searchsorted(keys[first:end], v[:, at].contiguous()) for at, (first, end) in bounds]
            place = torch.stack(found, dim=1)
        hit = (place < starts[1:]) & (keys[place] == v)
        if not self.summed:
            absent = torch.where(v.isnan(), table[count : count + lookups, 0], table[count + lookups :, 0])
            return torch.where(hit, table[:, 0][place], absent)
        row = torch.where(hit, place, count + torch.arange(lookups) + lookups * ~v.isnan())
        total = table[row[:, 0]]
        for lookup in range(1, lookups):
            total += table[row[:, lookup]]
        return total

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        what = {**one_member(inputs[0]), "KEYS": len(self.keys), "FUNCTION": self.function}
        launch_lookup(inputs[0], parameters, output, rows, what, longest_search(self.starts), summed=self.summed)

    def reads_input_once(self) -> bool:
        once = len(np.unique(self.columns)) == len(self.columns)
        return once and (not self.summed or self.table.shape[1] == 1)

    def describe(self) -> str:
        shown = f"{len(self.columns)} of {len(self.keys)} keys"
        return shown + (f", summed to {self.table.shape[1]}" if self.summed else "") + function_suffix(self.function)


def longest_search(starts: np.ndarray) -> int:
    """Return the number of steps of the search in the longest list of keys."""
    return int(np.diff(starts).max()).bit_length()


def launch_lookup(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    what: Mapping[str, Any],
    depth: int,
    *,
    summed: bool,
) -> None:
    """Launch a kernel on the first `rows` rows; `what` holds the members and the arguments KEYS and FUNCTION."""
    lookups = len(parameters["columns"])
    given = {"x": x, **parameters, "out": output, **what, "WIDTH": x.shape[1], "LOOKUPS": lookups, "DEPTH": depth}
    if summed:
        targets, block_lookups = output.shape[1], min(triton.next_power_of_2(lookups), SUMMED_LOOKUPS)
        block_rows = BLOCK // block_lookups
        lookup_sum_kernel[(triton.cdiv(rows, block_rows), targets)](
            **given, rows=rows, TARGETS=targets, BLOCK_ROWS=block_rows, BLOCK_LOOKUPS=block_lookups
        )
    else:
        size = rows * lookups
        lookup_kernel[(triton.cdiv(size, BLOCK),)](**given, size=size, BLOCK=BLOCK)
