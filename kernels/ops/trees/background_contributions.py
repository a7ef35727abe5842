"""Shapley values of trees against background rows, one by one, for leaves of many players.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target, the last column of each being
`base`; both float32 or float64. Players are the columns of the user's table, and `leaf_patterns.py` says which of them
do not meet the conditions of a leaf: S for the row, B for a background row. If S and B share a player, the leaf is
reached in no coalition. Otherwise it is where all of B and nobody of S are as in the row, and only the order of these
`p + q` players matters, with `p = |B|` and `q = |S|`. What a leaf of the value v gives to player k is then

    v (p − 1)! q! / (p + q)! for k in B,   −v p! (q − 1)! / (p + q)! for k in S,   0 for others,

in the mean over the background rows, of which those with one pattern are counted. Tables of all patterns
(`tree_contributions.py`) take less time for few players.

Kernels write the patterns, and another one adds up what each output is given: a leaf's terms one after the other, and
those of all leaves as multiples of one unit, a power of two, such that the largest possible sum is below 2⁵¹. Their
sums are exact in any order, and neither tiling nor device can change an answer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import factorial
from typing import Any, ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from .integer_sum import ROUND, store_sums
from .leaf_patterns import LeafPatterns

SIZES = tl.constexpr(64)
"""The numbers of players of a pattern, from 0 on."""


@triton.jit
def _size(pattern):
    """Return the number of bits of int64 patterns."""
    pairs = pattern - ((pattern >> 1) & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    eights = (fours + (fours >> 4)) & 0x0F0F0F0F0F0F0F0F
    eights += eights >> 8
    eights += eights >> 16
    return (eights + (eights >> 32)) & 127


@triton.jit
def background_sums_kernel(
    patterns,  # uint8, int16 or int64 [blocks of rows, PARTS, TOGETHER]
    entries,  # int64 [entries], a leaf, and 6 bits for the place of a player
    held,  # float64 [entries], the leaf's value over the number of background rows, in units of the output
    first_entry,  # int32 [chunks + 1], of each chunk, then the number of entries
    starts,  # int64 [PARTS + 1], of each leaf's background patterns
    unmet,  # int64 [background patterns]
    sizes,  # int32 [background patterns], of players
    counts,  # int32 [background patterns], of rows
    chances,  # float64 [SIZES, SIZES]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # see `store_sums`
    PARTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
):
    """Add up what an output is given by leaves. A program does `TOGETHER` rows of one chunk."""
    place = tl.arange(0, TOGETHER)
    patterns += tl.program_id(0).to(tl.int64) * PARTS * TOGETHER
    total = tl.zeros([BLOCK_ENTRIES, TOGETHER], tl.int64)
    end = tl.load(first_entry + tl.program_id(1) + 1)
    for start in tl.range(tl.load(first_entry + tl.program_id(1)), end, BLOCK_ENTRIES):
        entry = start + tl.arange(0, BLOCK_ENTRIES)
        inside = entry < end
        word = tl.load(entries + entry, mask=inside, other=0)
        leaf, slot = word >> 6, (word & 63)[:, None]
        at = leaf[:, None] * TOGETHER + place[None, :]
        mine = tl.load(patterns + at, mask=inside[:, None], other=0).to(tl.int64)
        missed = (mine >> slot) & 1 != 0
        size = _size(mine)
        first = tl.load(starts + leaf, mask=inside, other=0)
        last = tl.load(starts + leaf + 1, mask=inside, other=0)
        value = tl.zeros([BLOCK_ENTRIES, TOGETHER], tl.float64)
        for step in tl.range(0, tl.max((last - first).to(tl.int32), axis=0)):
            there = first + step < last
            theirs = tl.load(unmet + first + step, mask=there, other=0)[:, None]
            their_size = tl.load(sizes + first + step, mask=there, other=0)[:, None]
            count = tl.load(counts + first + step, mask=there, other=0)[:, None]
            counted = there[:, None] & ((theirs & mine) == 0) & (missed | ((theirs >> slot) & 1 != 0))
            own, other = tl.where(missed, size, their_size), tl.where(missed, their_size, size)
            chance = tl.load(chances + own * SIZES + other, mask=counted, other=0.0)
            value += tl.where(missed, -chance, chance) * count.to(tl.float64)
        value = value * tl.load(held + entry, mask=inside, other=0.0)[:, None]
        total += ((value + ROUND) - ROUND).to(tl.int64)
    store_sums(tl.sum(total, axis=0), unit, baseline, out, OUTPUTS=OUTPUTS, TOGETHER=TOGETHER)


@dataclass(frozen=True, eq=False)
class BackgroundContributions(LeafPatterns):
    """Shapley values of the columns of a table, by the patterns of `rows` background rows.

    A part is a leaf, and has one condition for each of its players, in their order. A background row that reaches no
    part of a leaf, whatever the players do, has no pattern there.
    """

    MOST: ClassVar[int] = 63

    values: np.ndarray  # float64 [leaves, targets]
    starts: np.ndarray  # int64 [leaves + 1], the first background pattern of each leaf, and their number
    unmet: np.ndarray  # int64 [background patterns], a bit for each player that does not meet its conditions
    counts: np.ndarray  # int32 [background patterns], of background rows
    rows: int

    def check(self, *widths: int) -> None:
        super().check(*widths)
        if self.values.dtype != np.float64 or not np.isfinite(self.values).all():
            raise PlanError("background_contributions: values must be finite float64.")
        if self.values.shape != (len(self.asked), len(self.base)):
            raise PlanError("background_contributions: values must be [leaves, targets].")
        if ((self.players < self.columns) != (self.asked >= 0)).any():
            raise PlanError("background_contributions: a leaf must have a condition for each of its players.")
        if self.unmet.dtype != np.int64 or self.unmet.ndim != 1 or (self.unmet < 0).any():
            raise PlanError("background_contributions: unmet must be int64 [background patterns], not below 0.")
        if self.counts.dtype != np.int32 or self.counts.shape != self.unmet.shape or (self.counts < 1).any():
            raise PlanError("background_contributions: counts must be int32 [background patterns], of 1 or more rows.")
        if self.starts.dtype != np.int64 or self.starts.shape != (len(self.asked) + 1,) or self.starts[0]:
            raise PlanError("background_contributions: starts must be int64 [leaves + 1] from 0 on.")
        if (np.diff(self.starts) < 0).any() or self.starts[-1] != len(self.unmet):
            raise PlanError("background_contributions: starts must ascend to the number of background patterns.")
        if (self.unmet >> self.depth[self._leaf]).any():
            raise PlanError("background_contributions: unmet must have bits for the players of its leaf alone.")
        if (np.bincount(self._leaf, self.counts) > self.rows).any():
            raise PlanError("background_contributions: a leaf must have no more counts than background rows.")

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each leaf, each output's list of leaves, and the background patterns."""
        output, held = self._entries
        leaf, slot = np.nonzero(self.asked >= 0)
        word = np.broadcast_to(leaf << 6 | slot, output.shape).ravel()
        order = np.argsort(output.ravel(), kind="stable")
        work = 1 + np.tile(np.diff(self.starts)[leaf], len(output))
        _, places = self.entry_places(output.ravel()[order], work[order])
        return {
            **self.pattern_parameters(),
            "entries": word[order],
            "held": held.ravel()[order],
            **places,
            "starts": self.starts,
            "unmet": self.unmet,
            "background_sizes": self._sizes,
            "background_counts": self.counts,
            **self.plain_parameters(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the chances of orders, and the unit and the constant of each output."""
        sizes = range(SIZES.value)
        return {
            "chances": np.array([[chance_of_place(own, other) for other in sizes] for own in sizes]),
            "unit": np.ldexp(1.0, self._exponent).ravel(),
            "baseline": self.baseline(),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        pattern = self.patterns(inputs[0].to(self.terms.upper.dtype)).long()  # [leaves, rows]
        found = torch.zeros(pattern.shape[1], len(self.base), self.columns + 1, dtype=torch.float64)
        found[:, :, -1] = torch.from_numpy(self.base)
        chances = parameters["chances"]
        for leaf, (depth, first, end) in enumerate(zip(self.depth, self.starts[:-1], self.starts[1:], strict=True)):
            players, unmet = torch.arange(depth), torch.from_numpy(self.unmet[first:end])
            in_s = pattern[leaf][:, None, None] >> players & 1  # [rows, 1, players]
            in_b = unmet[:, None] >> players & 1  # [background patterns, players]
            q, p = in_s.sum(2), in_b.sum(1)  # [rows, 1], [background patterns]
            given = in_b * chances[p, q][:, :, None] - in_s * chances[q, p][:, :, None]
            apart = (in_s * in_b).sum(2) == 0
            share = apart * torch.from_numpy(self.counts[first:end]).double() / self.rows
            shapley = (share[:, :, None] * given).sum(1)  # [rows, players]
            for place, player in enumerate(self.players[leaf, :depth]):
                found[:, :, player] += shapley[:, [place]] * torch.from_numpy(self.values[leaf])
        return found.flatten(1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        chances, leaves = parameters["chances"].numpy(), len(self.asked)
        output, held = self._entries
        leaf_of_entry, slot_of_entry = np.nonzero(self.asked >= 0)
        found = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        for row, own in enumerate(x.split(1)):  # few of the background patterns share no player with a row's
            pattern = self.patterns(own.to(self.terms.upper.dtype)).long().numpy()[:, 0]
            pair = np.flatnonzero(pattern[self._leaf] & self.unmet == 0)
            leaf, theirs = self._leaf[pair], self.unmet[pair]
            mine = pattern[leaf]
            size, their_size, count = _sizes(mine), self._sizes[pair], self.counts[pair]
            of_missed, of_met = -chances[size, their_size] * count, chances[their_size, size] * count
            value = np.zeros((leaves, self.asked.shape[1]))
            for slot in range(value.shape[1]):
                given = np.where(mine >> slot & 1, of_missed, np.where(theirs >> slot & 1, of_met, 0.0))
                value[:, slot] = np.bincount(leaf, given, leaves)
            whole = np.rint(value[leaf_of_entry, slot_of_entry] * held)
            found[row] = torch.from_numpy(np.bincount(output.ravel(), whole.ravel(), found.shape[1]))
        return parameters["baseline"] + found * parameters["unit"]

    def launch_sums(self, parameters: Parameters, grid: tuple[int, int], **arguments: Any) -> None:
        background_sums_kernel[grid](
            **{name: parameters[name] for name in ("entries", "held", "starts", "unmet")},
            sizes=parameters["background_sizes"],
            counts=parameters["background_counts"],
            **{name: parameters[name] for name in ("chances", "unit", "baseline")},
            **arguments,
        )

    def describe(self) -> str:
        return f"{super().describe()}, {len(self.unmet):,} patterns of {self.rows:,} rows"

    @functools.cached_property
    def _leaf(self) -> np.ndarray:
        """The leaf of each background pattern, int64."""
        return np.repeat(np.arange(len(self.asked)), np.diff(self.starts))

    @functools.cached_property
    def _sizes(self) -> np.ndarray:
        """The number of players of each background pattern, int32."""
        return _sizes(self.unmet)

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """The output of each leaf and player, and the leaf's value per background row in its unit, `[targets, …]`."""
        leaf, slot = np.nonzero(self.asked >= 0)
        player = self.players[leaf, slot]
        output = np.arange(len(self.base))[:, None] * (self.columns + 1) + player
        return output, np.ldexp(self.values[leaf].T / self.rows, -self._exponent[:, player])

    @functools.cached_property
    def _exponent(self) -> np.ndarray:
        """The exponents of the outputs' units, int `[targets, columns + 1]`; a leaf gives at most its value."""
        leaf, slot = np.nonzero(self.asked >= 0)
        largest = np.zeros((len(self.base), self.columns + 1))
        for total, value in zip(largest, np.abs(self.values).T, strict=True):
            np.add.at(total, self.players[leaf, slot], value[leaf])
        return np.maximum(np.frexp(largest)[1], -900) - 51  # so that the unit itself is a normal number


def chance_of_place(own: int, other: int) -> float:
    """Return the share of orders in which a player comes after `own − 1` others and before `other` ones.

    It is `(own − 1)! other! / (own + other)!`, and 0 if `own` is 0.
    """
    return factorial(own - 1) * factorial(other) / factorial(own + other) if own else 0.0


def _sizes(patterns: np.ndarray) -> np.ndarray:
    """Return the number of bits of patterns, int32."""
    pairs = patterns - (patterns >> 1 & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + (pairs >> 2 & 0x3333333333333333)
    eights = fours + (fours >> 4) & 0x0F0F0F0F0F0F0F0F
    eights = eights + (eights >> 8)
    eights = eights + (eights >> 16)
    return (eights + (eights >> 32) & 127).astype(np.int32)
