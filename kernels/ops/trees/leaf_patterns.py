"""Patterns of leaves: which players of a leaf do not meet its conditions, a bit for each player and row.

Players are the columns of the user's table. What a leaf of a tree asks of a row is a conjunction of terms, and each
term asks one player. The pattern of a row has a bit for each player of the leaf, in the order of `players`; it is 1
unless the row meets all terms of that player.

A term asks whether `lower < x[feature] ≤ upper`, where a `lower` of NaN is no bound, or whether the category in
`x[feature]` is in a set, and a flag says whether NaN meets it. Several nodes that ask for the same feature on the way
to a leaf are one term. Thresholds, sets and rounding are those of `tree_ensemble.py`, and so are all decisions.

"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import ContributionsTile
from .nodes import CATEGORICAL, MISSING_LEFT, MOST_SETS, ROUNDINGS

MET_BY_MISSING = MISSING_LEFT
"""Flag of a term: NaN meets it. The other flag is `CATEGORICAL`."""


@triton.jit(do_not_specialize=["rows"])
def patterns_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    words,  # int32 [terms, LEAVES], the feature, 6 bits for the place of the player, and 2 flags
    lower,  # float32 or float64 [terms, LEAVES]
    upper,  # float32 or float64 [terms, LEAVES]
    sets,  # int32 [sets, WORDS]
    counts,  # int32 [LEAVES], of terms
    patterns,  # uint8, int16 or int64 [⌈rows / TOGETHER⌉, LEAVES, TOGETHER]
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
    unmet = tl.zeros([BLOCK_LEAVES, TOGETHER], tl.int64 if patterns.dtype.element_ty == tl.int64 else tl.int32)
    for term in tl.range(0, tl.max(tl.load(counts + leaf, mask=known, other=0), axis=0)):
        at = term * LEAVES + leaf
        word = tl.load(words + at, mask=known, other=0)[:, None]
        least = tl.load(lower + at, mask=known, other=0.0)[:, None]
        most = tl.load(upper + at, mask=known, other=0.0)[:, None]
        value = tl.load(x + row * FEATURES + (word >> 8), mask=inside, other=0.0).to(upper.dtype.element_ty)
        met = tl.where(value <= least, False, value <= most)
        if WORDS:
            categorical = (word & 2) != 0
            fits = (value >= 0.0 if FLOOR else value > -1.0) & (value < 32.0 * WORDS - 1.0)
            category = tl.where(fits, value, 32.0 * WORDS - 1.0).to(tl.int32)
            number = tl.where(categorical, most, 0.0).to(tl.int32)
            bits = tl.load(sets + number * WORDS + (category >> 5), mask=inside & categorical, other=0)
            met = tl.where(categorical, ((bits >> (category & 31)) & 1) != 0, met)
        met = tl.where(value != value, (word & 1) != 0, met)
        unmet |= tl.where(met, 0, 1).to(unmet.dtype) << ((word >> 2) & 63).to(unmet.dtype)
    at = (block * LEAVES + leaf[:, None]) * TOGETHER + place[None, :]
    tl.store(patterns + at, unmet.to(patterns.dtype.element_ty), mask=known[:, None])


@dataclass(frozen=True, eq=False)
class LeafPatterns(Operation):
    """Trees that were taken apart into leaves, whose patterns say what each column of a table contributes.

    Leaves ascend in their number of players. The first columns of `asked` are one term for each of `players`, and the
    others are any further terms of these.
    """

    MOST: ClassVar[int]
    """The most players of a leaf."""

    feature: np.ndarray  # int32 [terms]
    lower: np.ndarray  # float32 or float64 [terms], NaN without a bound
    upper: np.ndarray  # of the same dtype [terms]; of a categorical term the row of `sets`
    flags: np.ndarray  # uint8 [terms], MET_BY_MISSING and CATEGORICAL
    player: np.ndarray  # int32 [terms]
    sets: np.ndarray  # int32 [sets, words], as those of `tree_ensemble.py`
    asked: np.ndarray  # int32 [leaves, most terms], −1 past a leaf's last term
    players: np.ndarray  # int32 [leaves, most players], different ones, and `columns` past a leaf's last
    values: np.ndarray  # float64 [leaves, targets]
    base: np.ndarray  # float64 [targets]
    columns: int
    rounding: str

    def check(self, *widths: int) -> None:
        (features,) = widths
        terms, dtype = self.feature.shape, self.upper.dtype
        if {array.shape for array in (self.lower, self.upper, self.flags, self.player)} != {terms} or len(terms) != 1:
            raise PlanError(f"{self.kind()}: feature, lower, upper, flags and player must be [terms].")
        if dtype not in (np.float32, np.float64) or self.lower.dtype != dtype:
            raise PlanError(f"{self.kind()}: lower and upper must both be float32 or float64.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"{self.kind()}: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        if self.flags.dtype != np.uint8 or (self.flags > MET_BY_MISSING | CATEGORICAL).any():
            raise PlanError(f"{self.kind()}: flags must be uint8 of at most {MET_BY_MISSING | CATEGORICAL}.")
        for name, array, end in (
            ("feature", self.feature, min(features, 2**23)),
            ("player", self.player, self.columns),
        ):
            if array.dtype != np.int32 or not _within(array, 0, end):
                raise PlanError(f"{self.kind()}: {name} must be int32 in [0, {end}).")
        sets = self.sets
        if sets.dtype != np.int32 or sets.ndim != 2 or not sets.shape[1] or sets.size >= 2**31:
            raise PlanError(f"{self.kind()}: sets must be int32 [sets, words].")
        if not _within(self.upper[self.flags & CATEGORICAL > 0], 0, min(len(sets), MOST_SETS)):
            raise PlanError(f"{self.kind()}: upper must be a row of sets where a term is categorical.")
        self._check_leaves()

    def _check_leaves(self) -> None:
        """Raise `PlanError` unless the leaves fit each other and their terms."""
        leaves, asked, players = len(self.values), self.asked, self.players
        if asked.ndim != 2 or players.ndim != 2 or self.values.ndim != 2 or {len(asked), len(players)} != {leaves}:
            raise PlanError(f"{self.kind()}: asked, players and values must have a row for each leaf.")
        if players.dtype != np.int32 or not _within(players, 0, self.columns + 1):
            raise PlanError(f"{self.kind()}: players must be int32 in [0, {self.columns}].")
        if players.shape[1] > min(asked.shape[1], self.MOST):
            raise PlanError(f"{self.kind()}: leaves must have at most {self.MOST} players, and a term for each.")
        ordered = np.sort(players, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < self.columns)).any()
        if twice or not (np.diff(self.depth) >= 0).all() or not (self.depth > 0).all():
            raise PlanError(f"{self.kind()}: leaves must ascend in their number of players, which differ.")
        if asked.dtype != np.int32 or not _within(asked, -1, len(self.feature)) or asked.size >= 2**31:
            raise PlanError(f"{self.kind()}: asked must be fewer than 2**31 int32 in [-1, {len(self.feature)}).")
        width = players.shape[1]
        column = np.where(asked >= 0, np.append(self.player, 0)[asked], self.columns)
        known = functools.reduce(np.bitwise_or, [column == each[:, None] for each in players.T], asked < 0)
        if not (column[:, :width] == players).all() or not known.all():
            raise PlanError(f"{self.kind()}: a leaf's terms must be one for each of its players, then the others.")
        if self.values.dtype != np.float64 or self.base.dtype != np.float64 or not np.isfinite(self.values).all():
            raise PlanError(f"{self.kind()}: values and base must be float64, and values finite.")
        if self.base.shape != self.values.shape[1:]:
            raise PlanError(f"{self.kind()}: base must be [targets].")

    def output_width(self, *widths: int) -> int:
        return len(self.base) * (self.columns + 1)

    def pattern_parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each leaf, as the kernel reads them."""
        asked, terms = self.asked.T, np.arange(self.asked.shape[1])
        slot = np.zeros(asked.shape, dtype=np.int32)
        for place, own in enumerate(self.players.T):
            slot[np.append(self.player, -1)[asked] == own] = place
        word = (
            np.append(self.feature, 0)[asked] << 8 | slot << 2 | np.append(self.flags, MET_BY_MISSING)[asked]
        ).astype(np.int32)
        asks = asked >= 0
        return {
            "words": word,
            "lower": np.append(self.lower, self.lower.dtype.type(np.nan))[asked],
            "upper": np.append(self.upper, self.upper.dtype.type(np.inf))[asked],
            "sets": self.sets,
            "counts": (asks * (terms + 1)[:, None]).max(axis=0, initial=0).astype(np.int32),
        }

    def launch_patterns(
        self, parameters: Parameters, x: torch.Tensor, rows: int, tile: ContributionsTile
    ) -> torch.Tensor:
        """Launch the kernel, and return the patterns, `[⌈rows / together⌉, leaves, together]`."""
        leaves, blocks = len(self.values), triton.cdiv(rows, tile.together)
        patterns = torch.empty(blocks, max(leaves, 1), tile.together, dtype=self.pattern_dtype, device=x.device)
        if leaves:
            patterns_kernel[(triton.cdiv(leaves, tile.block_leaves), blocks)](
                x=x,
                **{name: parameters[name] for name in ("words", "lower", "upper", "sets", "counts")},
                patterns=patterns,
                rows=rows,
                FEATURES=x.shape[1],
                LEAVES=leaves,
                WORDS=self.sets.shape[1] if len(self.sets) else 0,
                FLOOR=self.rounding == "floor",
                TOGETHER=tile.together,
                BLOCK_LEAVES=tile.block_leaves,
                num_warps=4,
            )
        return patterns

    def outputs_of(self, leaves: slice, depth: int) -> np.ndarray:
        """Return the outputs to which leaves of so many players add, int64 `[targets, leaves, depth]`."""
        targets = np.arange(len(self.base))[:, None, None] * (self.columns + 1)
        found: np.ndarray = targets + self.players[leaves, :depth]
        return found

    def baseline(self) -> np.ndarray:
        """Return what outputs are without a leaf, float64 `[outputs]`."""
        found = np.zeros((len(self.base), self.columns + 1))
        found[:, -1] = self.base
        return found.ravel()

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.values)} leaves of up to {self.players.shape[1]} of {self.columns} columns"

    def patterns(self, x: torch.Tensor) -> torch.Tensor:
        """Return which players of each leaf do not meet its terms, one bit each, `[leaves, rows]`.

        Args:
            x: `[rows, features]`, of the dtype of `upper`.
        """
        unmet = self.terms.met(x) ^ 1
        found = torch.zeros(len(self.asked), len(x), dtype=self.pattern_dtype)
        for slot, (first, asked) in enumerate(self._asked):
            found[first:].add_(unmet.index_select(0, asked), alpha=1 << slot)
        for leaf, asked, bit in self._others:
            found.index_copy_(0, leaf, found.index_select(0, leaf) | unmet.index_select(0, asked) * bit)
        return found

    @functools.cached_property
    def pattern_dtype(self) -> torch.dtype:
        """Return the type that has a bit for each player of a leaf."""
        width = self.players.shape[1]
        return torch.uint8 if width <= 8 else torch.int16 if width <= 15 else torch.int64

    @functools.cached_property
    def depth(self) -> np.ndarray:
        """Return the number of players of each leaf, int64 `[leaves]`."""
        return (self.players < self.columns).sum(axis=1)

    @functools.cached_property
    def terms(self) -> Terms:
        """Return the terms as plain torch evaluates them."""
        return Terms.of(self.feature, self.lower, self.upper, self.flags, self.sets, self.rounding)

    @functools.cached_property
    def _asked(self) -> list[tuple[int, torch.Tensor]]:
        """Return, for each place of a player, the first leaf that has one, and the terms of it and those after it."""
        first = np.searchsorted(self.depth, np.arange(self.players.shape[1]), side="right")
        return [(int(leaf), torch.from_numpy(self.asked[leaf:, slot].copy())) for slot, leaf in enumerate(first)]

    @functools.cached_property
    def _others(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return the leaves that have further terms, these terms, and the bits of their players."""
        found = []
        width = self.players.shape[1]
        for asked in self.asked[:, width:].T:
            leaf = np.flatnonzero(asked >= 0)
            slot = (self.players[leaf] == self.player[asked[leaf]][:, None]).argmax(axis=1)
            bit = torch.from_numpy(np.int64(1) << slot).to(self.pattern_dtype)[:, None]
            found.append((torch.from_numpy(leaf), torch.from_numpy(asked[leaf]), bit))
        return found

    @functools.cached_property
    def groups(self) -> list[tuple[int, slice]]:
        """Return each number of players that leaves have, and these leaves."""
        depths, first = np.unique(self.depth, return_index=True)
        ends = itertools.pairwise([*first.tolist(), len(self.depth)])
        return [(int(depth), slice(*end)) for depth, end in zip(depths, ends, strict=True)]


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


def _within(numbers: np.ndarray, first: int, end: int) -> bool:
    """Return whether all numbers are in [first, end)."""
    return bool(((numbers >= first) & (numbers < end)).all())
