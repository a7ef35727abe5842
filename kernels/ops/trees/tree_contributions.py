"""Shapley values of trees: `out[r, t, k] = Σₗ values[l, t] · shapley[l, S(l, r), k]`, and `base[t]` as the last column.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target; both float32 or float64. Players
are the columns of the user's table. What the leaf `l` asks of a row is a conjunction of terms, and each term asks one
player. The pattern `S(l, r)` is the set of the leaf's players that do not meet all of their terms, a bit for each one
in the order of `players[l]`. `shapley_tables.py` says which numbers a pattern stands for, given the probability
`chance` of every pattern of a row that is drawn at random: independent players, or the rows of a background.

A term asks whether `lower < x[feature] ≤ upper`, where a `lower` of NaN is no bound, or whether the category in
`x[feature]` is in a set, and a flag says whether NaN meets it. Several nodes that ask for the same feature on the way
to a leaf are one term. Thresholds, sets and rounding are those of `tree_ensemble.py`, and so are all decisions.

Preparing a leaf's numbers takes time once. Serving them takes the terms of each leaf and one number for each of its
players, whatever the number of background rows. The numbers are multiples of one unit for each output, a power of two,
chosen so that the largest possible sum is below 2⁵³. Sums of them are therefore exact in int64 and in float64 alike and
in any order: neither the tiling, which does follow the number of rows, nor the device can change an answer.

A first kernel writes the pattern of each leaf and row, and a second one adds up each output's numbers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .integer_sum import answer
from .launch import contributions_tile
from .nodes import CATEGORICAL, MISSING_LEFT, MOST_SETS, ROUNDINGS
from .shapley_tables import MOST_PLAYERS, leaf_tables

MET_BY_MISSING = MISSING_LEFT
"""Flag of a term: NaN meets it. The other flag is `CATEGORICAL`."""

LARGEST_TABLE = 2**30
"""The most bytes of the numbers of all leaves, as plain torch has them."""

LARGEST_SCRATCH = 2**25
"""The most bytes of patterns that the first kernel writes before the second reads them."""

LANES = 2**17
"""The most numbers that plain torch looks up at a time."""


@triton.jit(do_not_specialize=["rows"])
def patterns_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    words,  # int32 [terms, LEAVES], the feature, 4 bits for the place of the player, and the flags
    lower,  # float32 or float64 [terms, LEAVES]
    upper,  # float32 or float64 [terms, LEAVES]
    sets,  # int32 [sets, WORDS]
    counts,  # int32 [LEAVES], of terms
    patterns,  # uint8 or int16 [⌈rows / TOGETHER⌉, LEAVES, TOGETHER]
    rows,
    FEATURES: tl.constexpr,
    LEAVES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no term asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    TOGETHER: tl.constexpr,
    BLOCK_LEAVES: tl.constexpr,
):
    """Write which players of a leaf do not meet its terms. A program does `TOGETHER` rows of `BLOCK_LEAVES` leaves.

    Rows past the last have the pattern of zeros.
    """
    block = tl.program_id(1).to(tl.int64)
    place = tl.arange(0, TOGETHER)
    row = (block * TOGETHER + place)[None, :]
    leaf = tl.program_id(0) * BLOCK_LEAVES + tl.arange(0, BLOCK_LEAVES)
    known = leaf < LEAVES
    inside = known[:, None] & (row < rows)
    unmet = tl.zeros([BLOCK_LEAVES, TOGETHER], tl.int32)
    for term in tl.range(0, tl.max(tl.load(counts + leaf, mask=known, other=0), axis=0)):
        at = term * LEAVES + leaf
        word = tl.load(words + at, mask=known, other=0)[:, None]
        least = tl.load(lower + at, mask=known, other=0.0)[:, None]
        most = tl.load(upper + at, mask=known, other=0.0)[:, None]
        value = tl.load(x + row * FEATURES + (word >> 6), mask=inside, other=0.0).to(upper.dtype.element_ty)
        met = tl.where(value <= least, False, value <= most)
        if WORDS:
            categorical = (word & 2) != 0
            fits = (value >= 0.0 if FLOOR else value > -1.0) & (value < 32.0 * WORDS - 1.0)
            category = tl.where(fits, value, 32.0 * WORDS - 1.0).to(tl.int32)
            number = tl.where(categorical, most, 0.0).to(tl.int32)
            bits = tl.load(sets + number * WORDS + (category >> 5), mask=inside & categorical, other=0)
            met = tl.where(categorical, ((bits >> (category & 31)) & 1) != 0, met)
        met = tl.where(value != value, (word & 1) != 0, met)
        unmet |= tl.where(met, 0, 1 << ((word >> 2) & 15))
    at = (block * LEAVES + leaf[:, None]) * TOGETHER + place[None, :]
    tl.store(patterns + at, unmet.to(patterns.dtype.element_ty), mask=known[:, None])


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
class TreeContributions(Operation):
    """Shapley values of the columns of a table, for trees that were taken apart into leaves.

    Leaves ascend in their number of players. The first columns of `asked` are one term for each of `players`, and the
    others are any further terms of these.
    """

    feature: np.ndarray  # int32 [terms]
    lower: np.ndarray  # float32 or float64 [terms], NaN without a bound
    upper: np.ndarray  # of the same dtype [terms]; of a categorical term the row of `sets`
    flags: np.ndarray  # uint8 [terms], MET_BY_MISSING and CATEGORICAL
    player: np.ndarray  # int32 [terms]
    sets: np.ndarray  # int32 [sets, words], as those of `tree_ensemble.py`
    asked: np.ndarray  # int32 [leaves, most terms], −1 past a leaf's last term
    players: np.ndarray  # int32 [leaves, most players], different ones, and `columns` past a leaf's last
    chance: np.ndarray  # float64, each leaf's 2 to the power of its players numbers, leaf after leaf
    values: np.ndarray  # float64 [leaves, targets]
    base: np.ndarray  # float64 [targets]
    columns: int
    rounding: str = "trunc"

    def check(self, *widths: int) -> None:
        (features,) = widths
        terms, dtype = self.feature.shape, self.upper.dtype
        if {array.shape for array in (self.lower, self.upper, self.flags, self.player)} != {terms} or len(terms) != 1:
            raise PlanError("tree_contributions: feature, lower, upper, flags and player must be [terms].")
        if dtype not in (np.float32, np.float64) or self.lower.dtype != dtype:
            raise PlanError("tree_contributions: lower and upper must both be float32 or float64.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"tree_contributions: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        if self.flags.dtype != np.uint8 or (self.flags > MET_BY_MISSING | CATEGORICAL).any():
            raise PlanError(f"tree_contributions: flags must be uint8 of at most {MET_BY_MISSING | CATEGORICAL}.")
        for name, array, end in (
            ("feature", self.feature, min(features, 2**25)),
            ("player", self.player, self.columns),
        ):
            if array.dtype != np.int32 or not _within(array, 0, end):
                raise PlanError(f"tree_contributions: {name} must be int32 in [0, {end}).")
        sets = self.sets
        if sets.dtype != np.int32 or sets.ndim != 2 or not sets.shape[1] or sets.size >= 2**31:
            raise PlanError("tree_contributions: sets must be int32 [sets, words].")
        if not _within(self.upper[self.flags & CATEGORICAL > 0], 0, min(len(sets), MOST_SETS)):
            raise PlanError("tree_contributions: upper must be a row of sets where a term is categorical.")
        self._check_leaves()

    def _check_leaves(self) -> None:
        """Raise `PlanError` unless the leaves fit each other and their terms."""
        leaves, asked, players = len(self.values), self.asked, self.players
        if asked.ndim != 2 or players.ndim != 2 or self.values.ndim != 2 or {len(asked), len(players)} != {leaves}:
            raise PlanError("tree_contributions: asked, players and values must have a row for each leaf.")
        if players.dtype != np.int32 or not _within(players, 0, self.columns + 1):
            raise PlanError(f"tree_contributions: players must be int32 in [0, {self.columns}].")
        if players.shape[1] > min(asked.shape[1], MOST_PLAYERS):
            raise PlanError(
                f"tree_contributions: leaves must have at most {MOST_PLAYERS} players, and a term for each."
            )
        ordered = np.sort(players, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < self.columns)).any()
        if twice or not (np.diff(self._depth) >= 0).all() or not (self._depth > 0).all():
            raise PlanError("tree_contributions: leaves must ascend in their number of players, which differ.")
        if asked.dtype != np.int32 or not _within(asked, -1, len(self.feature)) or asked.size >= 2**31:
            raise PlanError(f"tree_contributions: asked must be fewer than 2**31 int32 in [-1, {len(self.feature)}).")
        width = players.shape[1]
        column = np.where(asked >= 0, np.append(self.player, 0)[asked], self.columns)
        known = functools.reduce(np.bitwise_or, [column == each[:, None] for each in players.T], asked < 0)
        if not (column[:, :width] == players).all() or not known.all():
            raise PlanError("tree_contributions: a leaf's terms must be one for each of its players, then the others.")
        if self.chance.dtype != np.float64 or self.chance.shape != ((1 << self._depth).sum(),):
            raise PlanError("tree_contributions: chance must be float64, 2 ** players numbers for each leaf.")
        if self.values.dtype != np.float64 or self.base.dtype != np.float64 or not np.isfinite(self.values).all():
            raise PlanError("tree_contributions: values and base must be float64, and values finite.")
        if self.base.shape != self.values.shape[1:]:
            raise PlanError("tree_contributions: base must be [targets].")
        if self.table_bytes() > LARGEST_TABLE:
            raise PlanError(f"tree_contributions: the leaves' numbers must have at most {LARGEST_TABLE} bytes.")

    def output_width(self, *widths: int) -> int:
        return len(self.base) * (self.columns + 1)

    def table_bytes(self) -> int:
        """Return the bytes of the numbers of all leaves, as plain torch has them."""
        return 8 * len(self.chance) * len(self.base) * self.players.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each leaf, and each output's list of leaves with their numbers."""
        asked, terms = self.asked.T, np.arange(self.asked.shape[1])
        slot = np.zeros(asked.shape, dtype=np.int32)
        for place, own in enumerate(self.players.T):
            slot[np.append(self.player, -1)[asked] == own] = place
        word = (
            np.append(self.feature, 0)[asked] << 6 | slot << 2 | np.append(self.flags, MET_BY_MISSING)[asked]
        ).astype(np.int32)
        asks = asked >= 0
        lists = self._lists()
        return {
            "words": word,
            "lower": np.append(self.lower, self.lower.dtype.type(np.nan))[asked],
            "upper": np.append(self.upper, self.upper.dtype.type(np.inf))[asked],
            "sets": self.sets,
            "counts": (asks * (terms + 1)[:, None]).max(axis=0, initial=0).astype(np.int32),
            **lists,
            **self.plain_parameters(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the unit and the constant of each output; plain torch has tables of its own."""
        baseline = np.zeros((len(self.base), self.columns + 1))
        baseline[:, -1] = self.base
        return {"unit": self._numbers[1].ravel(), "baseline": baseline.ravel()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        met = self._terms.met(inputs[0].to(self._terms.upper.dtype)).T.bool()  # [rows, terms]
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
            tile, dtype = len(bins), self._terms.upper.dtype
            for part, out in zip(x.split(tile), sums.split(tile), strict=True):
                line = self._lines(part.to(dtype)).T.reshape(-1)
                held = table.index_select(0, line).numpy().ravel()
                bin_of = bins[: len(part)].ravel()
                added = np.bincount(bin_of, weights=held, minlength=len(part) * outputs)
                out.copy_(torch.from_numpy(added).view(len(part), outputs))
        return parameters["baseline"] + sums * parameters["unit"]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), leaves = inputs, len(self.values)
        tile = contributions_tile(rows)
        dtype, together = self._pattern_dtype, tile.together
        most = max(LARGEST_SCRATCH // max(leaves * dtype.itemsize * together, 1), 1) * together
        terms = {name: parameters[name] for name in ("words", "lower", "upper", "sets", "counts")}
        sums = {name: parameters[name] for name in ("entries", "first_entry", "table", "unit", "baseline")}
        for start in range(0, rows, most):
            count = min(most, rows - start)
            blocks = triton.cdiv(count, together)
            patterns = torch.empty(blocks, max(leaves, 1), together, dtype=dtype, device=x.device)
            if leaves:
                patterns_kernel[(triton.cdiv(leaves, tile.block_leaves), blocks)](
                    x=x[start:],
                    **terms,
                    patterns=patterns,
                    rows=count,
                    FEATURES=x.shape[1],
                    LEAVES=leaves,
                    WORDS=self.sets.shape[1] if len(self.sets) else 0,
                    FLOOR=self.rounding == "floor",
                    TOGETHER=together,
                    BLOCK_LEAVES=tile.block_leaves,
                    num_warps=4,
                )
            contributions_kernel[(blocks, output.shape[1])](
                patterns=patterns,
                **sums,
                out=output[start:],
                rows=count,
                LEAVES=leaves,
                OUTPUTS=output.shape[1],
                TOGETHER=together,
                BLOCK_ENTRIES=tile.block_entries,
                num_warps=4,
            )

    def launches(self, inputs: int) -> int:
        return 2

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.values)} leaves of up to {self.players.shape[1]} of {self.columns} columns"

    def patterns(self, x: torch.Tensor) -> torch.Tensor:
        """Return which players of each leaf do not meet its terms, one bit each, uint8 or int16 `[leaves, rows]`.

        Args:
            x: `[rows, features]`, of the dtype of `upper`.
        """
        unmet = self._terms.met(x) ^ 1
        found = torch.zeros(len(self.asked), len(x), dtype=self._pattern_dtype)
        for slot, (first, asked) in enumerate(self._asked):
            found[first:].add_(unmet.index_select(0, asked), alpha=1 << slot)
        for leaf, asked, bit in self._others:
            found.index_copy_(0, leaf, found.index_select(0, leaf) | unmet.index_select(0, asked) * bit)
        return found

    def _lines(self, x: torch.Tensor) -> torch.Tensor:
        """Return the line of `_table` with the numbers of each leaf and row, int32 `[leaves, rows]`."""
        return self._first_line[:, None] + self.patterns(x)

    @functools.cached_property
    def _first_line(self) -> torch.Tensor:
        return torch.from_numpy(self._starts[:-1].astype(np.int32))

    @functools.cached_property
    def _pattern_dtype(self) -> torch.dtype:
        return torch.uint8 if self.players.shape[1] <= 8 else torch.int16

    @functools.cached_property
    def _depth(self) -> np.ndarray:
        """Return the number of players of each leaf, int64 `[leaves]`."""
        return (self.players < self.columns).sum(axis=1)

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """Return the start of each leaf's part of `chance`, followed by its length, int64 `[leaves + 1]`."""
        return np.append(0, np.cumsum(1 << self._depth))

    @functools.cached_property
    def _terms(self) -> Terms:
        return Terms.of(self.feature, self.lower, self.upper, self.flags, self.sets, self.rounding)

    @functools.cached_property
    def _asked(self) -> list[tuple[int, torch.Tensor]]:
        """Return, for each place of a player, the first leaf that has one, and the terms of it and those after it."""
        first = np.searchsorted(self._depth, np.arange(self.players.shape[1]), side="right")
        return [(int(leaf), torch.from_numpy(self.asked[leaf:, slot].copy())) for slot, leaf in enumerate(first)]

    @functools.cached_property
    def _others(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return the leaves that have further terms, these terms, and the bits of their players."""
        found = []
        width = self.players.shape[1]
        for asked in self.asked[:, width:].T:
            leaf = np.flatnonzero(asked >= 0)
            slot = (self.players[leaf] == self.player[asked[leaf]][:, None]).argmax(axis=1)
            bit = torch.from_numpy(1 << slot).to(self._pattern_dtype)[:, None]
            found.append((torch.from_numpy(leaf), torch.from_numpy(asked[leaf]), bit))
        return found

    @functools.cached_property
    def _groups(self) -> list[tuple[int, slice]]:
        """Return each number of players that leaves have, and these leaves."""
        depths, first = np.unique(self._depth, return_index=True)
        ends = itertools.pairwise([*first.tolist(), len(self._depth)])
        return [(int(depth), slice(*end)) for depth, end in zip(depths, ends, strict=True)]

    @functools.cached_property
    def _numbers(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the numbers of each group of leaves in units, and the units, float64 `[targets, columns + 1]`.

        The numbers are whole, float64 `[targets, leaves, 2ᵈ, d]`.
        """
        tables = [
            leaf_tables(self.chance[self._starts[own.start] : self._starts[own.stop]].reshape(-1, 1 << depth))
            for depth, own in self._groups
        ]
        largest = np.zeros((len(self.base), self.columns + 1))
        for (depth, own), table in zip(self._groups, tables, strict=True):
            most = np.abs(table).max(axis=1) * np.abs(self.values[own].T)[:, :, None]  # [targets, leaves, d]
            for total, each in zip(largest, most, strict=True):
                np.add.at(total, self.players[own, :depth], each)
        exponent = np.maximum(np.frexp(largest)[1], -900) - 52  # so that the unit itself is a normal number
        found = []
        for (depth, own), table in zip(self._groups, tables, strict=True):
            scale = np.ldexp(self.values[own].T[:, :, None], -exponent[:, self.players[own, :depth]])
            found.append(np.rint(table * scale[:, :, None]))
        return found, np.ldexp(1.0, exponent)

    def _lists(self) -> dict[str, np.ndarray]:
        """Return `entries`, `first_entry` and `table` of the kernel."""
        outputs, words, table = [], [], []
        start = 0
        for (depth, own), whole in zip(self._groups, self._numbers[0], strict=True):
            table.append(whole.transpose(0, 1, 3, 2).astype(np.int64).ravel())
            targets = np.arange(len(self.base))[:, None, None] * (self.columns + 1)
            outputs.append((targets + self.players[own, :depth]).ravel())
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
        for (depth, own), whole in zip(self._groups, self._numbers[0], strict=True):
            lines = table[self._starts[own.start] : self._starts[own.stop], :, :depth]
            lines[:] = whole.transpose(1, 2, 0, 3).reshape(-1, targets, depth)
        of_target = np.arange(targets)[:, None] * (self.columns + 1)
        bins = (self.players[:, None] + of_target).ravel()
        rows = max(LANES // max(len(bins), 1), 1)
        return torch.from_numpy(table.reshape(len(table), -1)), bins + self.output_width() * np.arange(rows)[:, None]


class Terms(NamedTuple):
    """The terms as plain torch evaluates them, `[terms]` or `[terms, 1]` each."""

    feature: torch.Tensor
    lower: torch.Tensor
    upper: torch.Tensor
    by_missing: torch.Tensor  # whether NaN meets a term
    categorical: torch.Tensor  # the numbers of the terms that ask for a category
    words: torch.Tensor  # int32 [categorical terms, words], the sets of these
    floor: bool

    @staticmethod
    def of(
        feature: np.ndarray, lower: np.ndarray, upper: np.ndarray, flags: np.ndarray, sets: np.ndarray, rounding: str
    ) -> Terms:
        """Return the terms with these fields of an operation."""
        categorical = np.flatnonzero(flags & CATEGORICAL)
        return Terms(
            torch.from_numpy(feature.astype(np.int64)),
            torch.from_numpy(np.array(lower))[:, None],
            torch.from_numpy(np.array(upper))[:, None],
            torch.from_numpy(flags & MET_BY_MISSING)[:, None],
            torch.from_numpy(categorical),
            torch.from_numpy(sets[upper[categorical].astype(np.int64)]),
            rounding == "floor",
        )

    def met(self, x: torch.Tensor) -> torch.Tensor:
        """Return whether rows meet the terms, uint8 `[terms, rows]`.

        Args:
            x: `[rows, features]`, of the dtype of the bounds.
        """
        value = x.T.contiguous().index_select(0, self.feature)
        found = (value <= self.upper).view(torch.uint8)
        found &= (value <= self.lower).view(torch.uint8) ^ 1
        if len(self.categorical):
            asked, last = value.index_select(0, self.categorical), 32 * self.words.shape[1] - 1
            known = (asked >= 0 if self.floor else asked > -1) & (asked < last)
            category = torch.where(known, asked, last).long()
            bit = self.words.gather(1, category >> 5) >> (category & 31) & 1
            found.index_copy_(0, self.categorical, bit.to(torch.uint8))
        if x.isnan().any():
            found = torch.where(value.isnan(), self.by_missing, found)
        return found


def _weights(players: int) -> torch.Tensor:
    """Return `(p − 1)! q! / (p + q)!` for `p` and `q` up to the number of players, and 0 where `p` is 0."""
    return torch.tensor(
        [
            [factorial(p - 1) * factorial(q) / factorial(p + q) if p else 0.0 for q in range(players + 1)]
            for p in range(players + 1)
        ],
        dtype=torch.float64,
    )


def _within(numbers: np.ndarray, first: int, end: int) -> bool:
    """Return whether all numbers are in [first, end)."""
    return bool(((numbers >= first) & (numbers < end)).all())
