"""Shapley values of trees: `out[r, t, k] = Σₗ values[l, t] · shapley[l, S(l, r), k]`, and `base[t]` as the last column.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target; both float32 or float64. Players
are the columns of the user's table. The pattern `S(l, r)` is the set of the players of the leaf `l` that do not meet
its conditions; `leaf_patterns.py` has these. `shapley_tables.py` says which numbers a pattern stands for, given the
probability `chance` of every pattern of a row that is drawn at random: independent players, or rows of a background.

Preparing a leaf's numbers takes time once. Serving them takes the terms of each leaf and one number for each of its
players, whatever the number of background rows. The numbers are multiples of one unit for each output, a power of two,
chosen so that the largest possible sum is below 2⁵³. Sums of them are therefore exact in int64 and in float64 alike and
in any order: neither the tiling, which does follow the number of rows, nor the device can change an answer.

A first kernel writes the pattern of each leaf and row, and a second one adds up each output's numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from .integer_sum import answer
from .launch import contributions_tile
from .leaf_patterns import LeafPatterns
from .shapley_tables import MOST_PLAYERS, leaf_tables

LARGEST_TABLE = 2**30
"""The most bytes of the numbers of all leaves, as plain torch has them."""

LARGEST_SCRATCH = 2**25
"""The most bytes of patterns that the first kernel writes before the second reads them."""

LANES = 2**17
"""The most numbers that plain torch looks up at a time."""


@triton.jit(do_not_specialize=["rows"])
def contributions_kernel(
    patterns,  # uint8 or int16 [⌈rows / TOGETHER⌉, LEAVES, TOGETHER]
    entries,  # int64 [entries], a leaf, and 30 bits for the start of its numbers in `table`
    first_entry,  # int32 [OUTPUTS + 1], of each output, then the number of entries
    table,  # int64
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    LEAVES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
):
    """Add up the numbers of leaves. A program makes one output of `TOGETHER` rows, `BLOCK_ENTRIES` leaves at a time."""
    block = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1)
    place = tl.arange(0, TOGETHER)
    own = patterns + block * LEAVES * TOGETHER + place[None, :]
    total = tl.zeros([BLOCK_ENTRIES, TOGETHER], tl.int64)
    end = tl.load(first_entry + output + 1)
    for start in tl.range(tl.load(first_entry + output), end, BLOCK_ENTRIES):
        entry = start + tl.arange(0, BLOCK_ENTRIES)
        word = tl.load(entries + entry, mask=entry < end, other=0)[:, None]
        inside = (entry < end)[:, None]
        pattern = tl.load(own + (word >> 30) * TOGETHER, mask=inside, other=0)
        total += tl.load(table + (word & ((1 << 30) - 1)) + pattern, mask=inside, other=0)
    row = block * TOGETHER + place
    y = answer(tl.sum(total, axis=0), unit + output + 0 * row, baseline + output + 0 * row, row < rows, 1.0, "identity")
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class TreeContributions(LeafPatterns):
    """Shapley values of the columns of a table, by the probability of each pattern of a leaf."""

    MOST: ClassVar[int] = MOST_PLAYERS

    chance: np.ndarray  # float64, each leaf's 2 to the power of its players numbers, leaf after leaf

    def check(self, *widths: int) -> None:
        super().check(*widths)
        if self.chance.dtype != np.float64 or self.chance.shape != ((1 << self.depth).sum(),):
            raise PlanError("tree_contributions: chance must be float64, 2 ** players numbers for each leaf.")
        if self.table_bytes() > LARGEST_TABLE:
            raise PlanError(f"tree_contributions: the leaves' numbers must have at most {LARGEST_TABLE} bytes.")

    def table_bytes(self) -> int:
        """Return the bytes of the numbers of all leaves, as plain torch has them."""
        return 8 * len(self.chance) * len(self.base) * self.players.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each leaf, and each output's list of leaves with their numbers."""
        return {**self.pattern_parameters(), **self._lists(), **self.plain_parameters()}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the unit and the constant of each output; plain torch has tables of its own."""
        return {"unit": self._numbers[1].ravel(), "baseline": self.baseline()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        met = self.terms.met(inputs[0].to(self.terms.upper.dtype)).T.bool()  # [rows, terms]
        found = torch.zeros(len(met), len(self.base), self.columns + 1, dtype=torch.float64)
        found[:, :, -1] = torch.from_numpy(self.base)
        first = 0
        for players, asked, values in zip(self.players, self.asked, self.values, strict=True):
            own, terms = players[players < self.columns], asked[asked >= 0]
            unmet = torch.stack([~met[:, terms[self.player[terms] == player]].all(1) for player in own], dim=1)
            drawn = torch.arange(1 << len(own))[:, None] >> torch.arange(len(own)) & 1 == 1  # [patterns, players]
            chance = torch.from_numpy(self.chance[first : first + len(drawn)])
            apart = ~(unmet[:, None] & drawn).any(2)  # [rows, patterns]
            p, q = drawn.sum(1), unmet.sum(1)[:, None]
            gain = _weights(len(own))[p, q] * apart * chance
            loss = _weights(len(own))[q, p] * apart * chance
            shapley = (gain[:, :, None] * drawn).sum(1) - loss.sum(1)[:, None] * unmet  # [rows, players]
            found[:, :, own] += torch.from_numpy(values)[:, None] * shapley[:, None]
            first += len(drawn)
        return found.flatten(1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), outputs = inputs, self.output_width()
        sums = torch.zeros(len(x), outputs, dtype=torch.float64)
        if len(self.values):
            table, bins = self._table
            tile, dtype = len(bins), self.terms.upper.dtype
            for part, out in zip(x.split(tile), sums.split(tile), strict=True):
                line = self._lines(part.to(dtype)).T.reshape(-1)
                held = table.index_select(0, line).numpy().ravel()
                bin_of = bins[: len(part)].ravel()
                added = np.bincount(bin_of, weights=held, minlength=len(part) * outputs)
                out.copy_(torch.from_numpy(added).view(len(part), outputs))
        return parameters["baseline"] + sums * parameters["unit"]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), leaves = inputs, max(len(self.values), 1)
        tile = contributions_tile(rows)
        most = max(LARGEST_SCRATCH // (leaves * self.pattern_dtype.itemsize * tile.together), 1) * tile.together
        for start in range(0, rows, most):
            count = min(most, rows - start)
            contributions_kernel[(triton.cdiv(count, tile.together), output.shape[1])](
                patterns=self.launch_patterns(parameters, x[start:], count, tile),
                **{name: parameters[name] for name in ("entries", "first_entry", "table", "unit", "baseline")},
                out=output[start:],
                rows=count,
                LEAVES=leaves,
                OUTPUTS=output.shape[1],
                TOGETHER=tile.together,
                BLOCK_ENTRIES=tile.block_entries,
                num_warps=4,
            )

    def launches(self, inputs: int) -> int:
        return 2

    def _lines(self, x: torch.Tensor) -> torch.Tensor:
        """Return the line of `_table` with the numbers of each leaf and row, int32 `[leaves, rows]`."""
        return self._first_line[:, None] + self.patterns(x)

    @functools.cached_property
    def _first_line(self) -> torch.Tensor:
        return torch.from_numpy(self._starts[:-1].astype(np.int32))

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """Return the start of each leaf's part of `chance`, followed by its length, int64 `[leaves + 1]`."""
        return np.append(0, np.cumsum(1 << self.depth))

    @functools.cached_property
    def _numbers(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the numbers of each group of leaves in units, and the units, float64 `[targets, columns + 1]`.

        The numbers are whole, float64 `[targets, leaves, 2ᵈ, d]`.
        """
        tables = [
            leaf_tables(self.chance[self._starts[own.start] : self._starts[own.stop]].reshape(-1, 1 << depth))
            for depth, own in self.groups
        ]
        largest = np.zeros((len(self.base), self.columns + 1))
        for (depth, own), table in zip(self.groups, tables, strict=True):
            most = np.abs(table).max(axis=1) * np.abs(self.values[own].T)[:, :, None]  # [targets, leaves, d]
            for total, each in zip(largest, most, strict=True):
                np.add.at(total, self.players[own, :depth], each)
        exponent = np.maximum(np.frexp(largest)[1], -900) - 52  # so that the unit itself is a normal number
        found = []
        for (depth, own), table in zip(self.groups, tables, strict=True):
            scale = np.ldexp(self.values[own].T[:, :, None], -exponent[:, self.players[own, :depth]])
            found.append(np.rint(table * scale[:, :, None]))
        return found, np.ldexp(1.0, exponent)

    def _lists(self) -> dict[str, np.ndarray]:
        """Return `entries`, `first_entry` and `table` of the kernel."""
        outputs, words, table = [], [], []
        start = 0
        for (depth, own), whole in zip(self.groups, self._numbers[0], strict=True):
            table.append(whole.transpose(0, 1, 3, 2).astype(np.int64).ravel())
            outputs.append(self.outputs_of(own, depth).ravel())
            begin = start + (1 << depth) * np.arange(outputs[-1].size).reshape(len(self.base), -1, depth)
            words.append((np.arange(own.start, own.stop)[:, None] << 30 | begin).ravel())
            start += whole.size
        empty = np.zeros(0, dtype=np.int64)
        output, entries = (np.concatenate([empty, *each]) for each in (outputs, words))
        ends = np.bincount(output, minlength=self.output_width()).cumsum()
        return {
            "entries": entries[np.argsort(output, kind="stable")],
            "first_entry": np.append(0, ends).astype(np.int32),
            "table": np.concatenate([empty, *table]),
        }

    @functools.cached_property
    def _table(self) -> tuple[torch.Tensor, np.ndarray]:
        """Return the numbers as plain torch looks them up, and the output of each one for a tile of rows.

        The numbers of a leaf's pattern are one line, `targets` times the most players: float64 `[lines, *]`. A leaf
        with fewer players has zeros past its last, which go to the base. The outputs are int64 `[rows, leaves · *]`,
        and those of each row come after those of the row before.
        """
        targets, width = len(self.base), self.players.shape[1]
        table = np.zeros((len(self.chance), targets, width))
        for (depth, own), whole in zip(self.groups, self._numbers[0], strict=True):
            lines = table[self._starts[own.start] : self._starts[own.stop], :, :depth]
            lines[:] = whole.transpose(1, 2, 0, 3).reshape(-1, targets, depth)
        bins = self.outputs_of(slice(None), width).swapaxes(0, 1).ravel()
        rows = max(LANES // max(len(bins), 1), 1)
        return torch.from_numpy(table.reshape(len(table), -1)), bins + self.output_width() * np.arange(rows)[:, None]


def _weights(players: int) -> torch.Tensor:
    """Return `(p − 1)! q! / (p + q)!` for `p` and `q` up to the number of players, and 0 where `p` is 0."""
    return torch.tensor(
        [
            [factorial(p - 1) * factorial(q) / factorial(p + q) if p else 0.0 for q in range(players + 1)]
            for p in range(players + 1)
        ],
        dtype=torch.float64,
    )
