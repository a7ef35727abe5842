"""Patterns of parts of trees: which of their conditions a row does not meet, a bit for each condition and row.

Players are the columns of the user's table. A part of a tree is a leaf, or all leaves below a node. Its conditions are
conjunctions of terms: what all splits above the part ask of one player together, and what a split inside the part asks
of the rows that it sends to the left.

`terms.py` says what a term asks. Several nodes that ask for the same feature on the way to a leaf are one term.
Thresholds, sets and rounding are those of `tree_ensemble.py`, and so are all decisions. Kernels ask few rows the terms
of each part, and many rows each term once (`term_words.py`).
"""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ...format.errors import PlanError
from ...plan.devices import early_launch
from ...plan.plan import Operation, Parameters
from .feature_major import feature_major
from .integer_sum import add_chunks
from .launch import ContributionsTile, contributions_tile
from .nodes import CATEGORICAL, MOST_SETS, ROUNDINGS
from .term_words import launch_words
from .terms import MET_BY_MISSING, Terms, add_unmet

FEW_ROWS = 8
"""The most rows for which a CPU makes the patterns part by part; for more it takes less time to do so bit by bit."""

MOST_CHUNKS = 32
"""The most chunks of an output. With one chunk each, a batch would wait for the output that has most entries."""

FINE_ROWS = 512
"""The most rows for which chunks are fine: a GPU is not filled otherwise, and waits for the longest."""


class Chunking(NamedTuple):
    """How finely the entries of outputs are cut into chunks."""

    fewest_entries: int  # about the fewest of a chunk
    many_chunks: int  # the most beyond one for each output; a grid has 65,535 at most


CHUNKINGS = {"fine_": Chunking(32, 448), "": Chunking(64, 224)}
"""The chunks of up to `FINE_ROWS` rows and of more: a large GPU holds all those of 1,024 rows at the same time."""

ASKED_ROWS = 256
"""The most rows that are asked the terms of each part: parts have terms in common, but these take a kernel more."""

BLOCK_PARTS, SEVERAL_ROWS_PARTS = 128, 16
"""The parts whose patterns a program makes, of one row and of several."""

LARGEST_SCRATCH = 2**26
"""The most bytes of turned rows, patterns and sums of chunks that wait to be read."""


@triton.jit
def patterns_kernel(
    x,  # float32 or float64 [blocks of rows, FEATURES, TOGETHER]
    packed,  # int32 [terms, PARTS], the feature, 6 bits for the number of the condition, and 2 flags
    lower,  # float32 or float64 [terms, PARTS]
    upper,  # float32 or float64 [terms, PARTS]
    sets,  # int32 [sets, WORDS]
    counts,  # int32 [PARTS], of terms
    patterns,  # uint8, int16 or int64 [blocks of rows, PARTS, TOGETHER]
    FEATURES: tl.constexpr,
    PARTS: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no term asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN meets a term
    TOGETHER: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Write which conditions are not met. A program does `TOGETHER` rows of `BLOCK_PARTS` parts."""
    block = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0) * BLOCK_PARTS + tl.arange(0, BLOCK_PARTS)[:, None]
    row = tl.arange(0, TOGETHER)[None, :]
    known = part < PARTS
    x += block * (FEATURES * TOGETHER)
    unmet = tl.zeros([BLOCK_PARTS, TOGETHER], tl.int64 if patterns.dtype.element_ty == tl.int64 else tl.int32)
    count = tl.load(counts + part, mask=known, other=0)
    most_terms = tl.max(count)
    at, asked = part, known & (most_terms > 0)
    word = tl.load(packed + at, mask=asked, other=0)
    least = tl.load(lower + at, mask=asked, other=0.0)
    most = tl.load(upper + at, mask=asked, other=0.0)
    if EARLY:
        gdc_wait()
    for term in tl.range(0, most_terms):  # a term is loaded one step before it is asked
        at, asked = at + PARTS, known & (term + 1 < most_terms)
        next_word = tl.load(packed + at, mask=asked, other=0)
        next_least = tl.load(lower + at, mask=asked, other=0.0)
        next_most = tl.load(upper + at, mask=asked, other=0.0)
        value = tl.load(x + ((word >> 8) * TOGETHER + row)).to(upper.dtype.element_ty)
        bit = (term < count).to(unmet.dtype) << ((word >> 2) & 63).to(unmet.dtype)
        unmet = add_unmet(unmet, bit, value, least, most, word, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING)
        word, least, most = next_word, next_least, next_most
    at = patterns + (block * PARTS + part) * TOGETHER + row
    tl.store(at, unmet.to(patterns.dtype.element_ty), mask=known)


@dataclass(frozen=True, eq=False)
class LeafPatterns(Operation):
    """Trees that were taken apart, such that the patterns of the parts say what each column of a table contributes.

    Parts ascend in their number of conditions.
    """

    MOST: ClassVar[int]
    """The most conditions of a part."""

    WHOLE: ClassVar[int] = 1
    """Chunks begin at multiples of so many entries of an output, and each output has room for a multiple of them."""

    feature: np.ndarray  # int32 [terms]
    lower: np.ndarray  # float32 or float64 [terms], NaN without a bound
    upper: np.ndarray  # of the same dtype [terms]; of a categorical term the row of `sets`
    flags: np.ndarray  # uint8 [terms], MET_BY_MISSING and CATEGORICAL
    sets: np.ndarray  # int32 [sets, words], as those of `tree_ensemble.py`
    asked: np.ndarray  # int32 [parts, most conditions], a term of each condition, −1 past a part's last
    others: np.ndarray  # int32 [others, 3], the part, condition and term where a condition has several terms
    players: np.ndarray  # int32 [parts, most players], different ones, and `columns` past a part's last
    base: np.ndarray  # float64 [targets]
    columns: int
    rounding: str

    def check(self, *widths: int) -> None:
        (features,), kind = widths, self.kind()
        terms, dtype = self.feature.shape, self.upper.dtype
        if {array.shape for array in (self.lower, self.upper, self.flags)} != {terms} or len(terms) != 1:
            raise PlanError(f"{kind}: feature, lower, upper and flags must be [terms].")
        if dtype not in (np.float32, np.float64) or self.lower.dtype != dtype:
            raise PlanError(f"{kind}: lower and upper must both be float32 or float64.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"{kind}: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        if self.flags.dtype != np.uint8 or (self.flags > MET_BY_MISSING | CATEGORICAL).any():
            raise PlanError(f"{kind}: flags must be uint8 of at most {MET_BY_MISSING | CATEGORICAL}.")
        end = min(features, 2**23)
        if self.feature.dtype != np.int32 or not _within(self.feature, 0, end):
            raise PlanError(f"{kind}: feature must be int32 in [0, {end}).")
        sets = self.sets
        if sets.dtype != np.int32 or sets.ndim != 2 or not sets.shape[1] or sets.size >= 2**31:
            raise PlanError(f"{kind}: sets must be int32 [sets, words].")
        if not _within(self.upper[self.flags & CATEGORICAL > 0], 0, min(len(sets), MOST_SETS)):
            raise PlanError(f"{kind}: upper must be a row of sets where a term is categorical.")
        self._check_parts()
        if self.base.dtype != np.float64 or self.base.ndim != 1:
            raise PlanError(f"{kind}: base must be float64 [targets].")

    def _check_parts(self) -> None:
        """Raise `PlanError` unless the parts fit each other and the terms."""
        kind, asked, others, players = self.kind(), self.asked, self.others, self.players
        if asked.ndim != 2 or players.ndim != 2 or len(asked) != len(players) or asked.shape[1] > self.MOST:
            raise PlanError(f"{kind}: asked and players must have a row for each part, of at most {self.MOST} numbers.")
        if players.dtype != np.int32 or not _within(players, 0, self.columns + 1):
            raise PlanError(f"{kind}: players must be int32 in [0, {self.columns}].")
        ordered = np.sort(players, axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < self.columns)).any():
            raise PlanError(f"{kind}: the players of a part must differ.")
        if asked.dtype != np.int32 or not _within(asked, -1, len(self.feature)) or asked.size >= 2**28:
            raise PlanError(f"{kind}: asked must be fewer than 2**28 int32 in [-1, {len(self.feature)}).")
        if ((asked >= 0) != (np.arange(asked.shape[1]) < self.depth[:, None])).any() or (np.diff(self.depth) < 0).any():
            raise PlanError(
                f"{kind}: parts must ascend in their number of conditions, and -1 stand past a part's last."
            )
        if others.dtype != np.int32 or others.shape != (len(others), 3) or (others < 0).any():
            raise PlanError(f"{kind}: others must be int32 [others, 3].")
        part, condition, term = others.T
        if (part >= len(asked)).any() or (term >= len(self.feature)).any():
            raise PlanError(f"{kind}: others must name parts and terms.")
        if (condition >= self.depth[part]).any() or (np.diff(part) < 0).any():
            raise PlanError(f"{kind}: others must name conditions of parts, in the order of these.")

    def output_width(self, *widths: int) -> int:
        return len(self.base) * (self.columns + 1)

    def pattern_parameters(self) -> dict[str, np.ndarray]:
        """Return the terms of each part as the kernels of few rows read them, and as those of many rows do."""
        part, condition, term = self.others.T
        place = self.depth[part] + _ranks(part)
        counts = self.depth.astype(np.int32)
        np.maximum.at(counts, part, place + 1)
        asked = np.full((max(self.asked.shape[1], int(counts.max(initial=0))), len(counts)), -1)
        bit = np.zeros(asked.shape, dtype=np.int32)
        asked[: self.asked.shape[1]], asked[place, part] = self.asked.T, term
        bit[: self.asked.shape[1]], bit[place, part] = np.arange(self.asked.shape[1])[:, None], condition
        flags = np.append(self.flags, np.uint8(MET_BY_MISSING))[asked]
        return {
            "packed": np.append(self.feature, np.int32(0))[asked] << 8 | bit << 2 | flags,
            "lower": np.append(self.lower, self.lower.dtype.type(np.nan))[asked],
            "upper": np.append(self.upper, self.upper.dtype.type(np.inf))[asked],
            "sets": self.sets,
            "counts": counts,
            **self.word_parameters(),
        }

    def word_parameters(self) -> dict[str, np.ndarray]:
        """Return the terms, those of a feature one after the other, and the places of those that each part asks."""
        part, condition, term = self.others.T
        order = np.argsort(self.feature, kind="stable")
        place = np.append(np.argsort(order), -1).astype(np.int32)  # -1 stays what it is
        asked = np.full((8 * self.pattern_dtype.itemsize, len(self.asked)), -1, dtype=np.int32)
        asked[: self.asked.shape[1]] = place[self.asked.T]
        return {
            "term_feature": self.feature[order],
            "term_lower": self.lower[order],
            "term_upper": self.upper[order],
            "term_flags": self.flags[order],
            "asked": asked,
            "first_other": np.searchsorted(part, np.arange(len(self.asked) + 1)).astype(np.int32),
            "other_terms": place[term],
            "other_conditions": np.ascontiguousarray(condition),
        }

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), parts, tile = inputs, max(len(self.asked), 1), contributions_tile(rows, self._entry_count)
        chunked, name = tile.together > 1, "fine_" if rows <= FINE_ROWS else ""
        first_entry = parameters[f"{name}chunks" if chunked else "first_entry"]
        chunks = len(first_entry) - 1
        row_bytes = parts * self.pattern_dtype.itemsize
        if chunked:
            row_bytes += 8 * chunks + x.shape[1] * self.upper.itemsize + len(self.feature) // 8
        most = max(LARGEST_SCRATCH // (row_bytes * tile.together), 1) * tile.together
        for start in range(0, rows, most):
            count, out = min(most, rows - start), output[start:]
            blocks = triton.cdiv(count, tile.together)
            if chunked:
                out = first_entry.new_empty(chunks, blocks * tile.together, dtype=torch.int64)
            self.launch_sums(
                parameters,
                (blocks, chunks),
                patterns=self.launch_patterns(parameters, x[start:], count, tile),
                first_entry=first_entry,
                out=out,
                PARTS=parts,
                OUTPUTS=output.shape[1],
                TOGETHER=tile.together,
                BLOCK_ENTRIES=tile.block_entries,
                num_warps=tile.num_warps,
                enable_fp_fusion=False,  # so that a product is rounded before the sum, as in plain torch
            )
            if chunked:
                first_chunk = parameters[f"{name}first_chunk"]
                add_chunks(out, first_chunk, parameters, output[start:], count, after_a_kernel=True)

    @abstractmethod
    def launch_sums(self, parameters: Parameters, grid: tuple[int, int], **arguments: Any) -> None:
        """Launch the sums of chunks, or of outputs, with the arguments that all kernels of such sums have."""

    def reads_input_once(self) -> bool:
        return True

    def writes_rows_whole(self) -> bool:
        return True  # up to 64 rows a program writes one number, but these are few

    def launches(self, inputs: int) -> int:
        return 5

    def launch_patterns(
        self, parameters: Parameters, x: torch.Tensor, rows: int, tile: ContributionsTile
    ) -> torch.Tensor:
        """Launch the kernels, and return the patterns, `[⌈rows / together⌉, parts, together]`."""
        parts, blocks = len(self.asked), triton.cdiv(rows, tile.together)
        patterns = parameters["counts"].new_empty(blocks, max(parts, 1), tile.together, dtype=self.pattern_dtype)
        constants = {
            "WORDS": self.sets.shape[1] if len(self.sets) else 0,
            "FLOOR": self.rounding == "floor",
            "MISSING": bool((self.flags & (MET_BY_MISSING | CATEGORICAL)).any()),
        }
        if parts and rows > ASKED_ROWS:
            launch_words(parameters, x, rows, patterns, constants)
        elif parts:
            copied = feature_major(x, rows, tile.together, parameters["upper"])
            block_parts = BLOCK_PARTS if tile.together == 1 else SEVERAL_ROWS_PARTS
            patterns_kernel[(triton.cdiv(parts, block_parts), blocks)](
                x=copied,
                **{name: parameters[name] for name in ("packed", "lower", "upper", "sets", "counts")},
                patterns=patterns,
                FEATURES=x.shape[1],
                PARTS=parts,
                **constants,
                TOGETHER=tile.together,
                BLOCK_PARTS=block_parts,
                **early_launch(patterns.device, after_a_kernel=copied is not x),
                num_warps=4,
            )
        return patterns

    def entry_places(self, output: np.ndarray, work: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the places of entries, and where the entries of each output and those of its chunks begin.

        The chunks of an output have about as much work each.

        Args:
            output: the output of each entry, in ascending order.
            work: the work of each entry, int64.
        """
        counts, done = np.bincount(output, minlength=self.output_width()), np.append(0, work.cumsum())
        before = np.append(0, counts.cumsum())
        first = np.append(0, (-(-counts // self.WHOLE) * self.WHOLE).cumsum())
        found = {"first_entry": first.astype(np.int32)}
        for name, chunking in CHUNKINGS.items():
            fewest = max(chunking.fewest_entries, len(output) // chunking.many_chunks)
            chunks = np.clip(-(-counts // fewest), 1, MOST_CHUNKS)
            own = np.repeat(np.arange(len(counts)), chunks)
            start, end = done[before[own]], done[before[own + 1]]
            entry = np.searchsorted(done, start + (end - start) * _ranks(own) // chunks[own]) - before[own]
            starts = first[own] + entry // self.WHOLE * self.WHOLE
            found[f"{name}chunks"] = np.append(starts, first[-1]).astype(np.int32)
            found[f"{name}first_chunk"] = np.append(0, chunks.cumsum()).astype(np.int32)
        return np.arange(len(output)) + np.repeat(first[:-1] - before[:-1], counts), found

    def outputs_of(self, parts: slice, players: int) -> np.ndarray:
        """Return the outputs to which parts of so many players add, int64 `[targets, parts, players]`."""
        targets = np.arange(len(self.base))[:, None, None] * (self.columns + 1)
        found: np.ndarray = targets + self.players[parts, :players]
        return found

    def baseline(self) -> np.ndarray:
        """Return what outputs are without a part, float64 `[outputs]`."""
        found = np.zeros((len(self.base), self.columns + 1))
        found[:, -1] = self.base
        return found.ravel()

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.asked)} parts of trees with up to {self.players.shape[1]} of {self.columns} columns"

    def patterns(self, x: torch.Tensor) -> torch.Tensor:
        """Return which conditions of each part are not met, one bit each, `[parts, rows]`.

        Args:
            x: `[rows, features]`, of the dtype of `upper`.
        """
        unmet = self.terms.met(x) ^ 1
        found = torch.zeros(len(self.asked), len(x), dtype=self.pattern_dtype)
        if len(x) <= FEW_ROWS:
            terms, bits, starts = self._bits
            missed = unmet.numpy().take(terms, axis=0) * bits
            np.bitwise_or.reduceat(missed, starts, axis=0, out=found.numpy()[len(found) - len(starts) :])
            return found
        for bit, (first, asked) in enumerate(self._asked):
            found[first:].add_(unmet.index_select(0, asked).view(len(asked), len(x)), alpha=1 << bit)
        for part, asked, weight in self._others:
            found.index_copy_(
                0, part, found.index_select(0, part) | unmet.index_select(0, asked).view(len(asked), len(x)) * weight
            )
        return found

    @functools.cached_property
    def pattern_dtype(self) -> torch.dtype:
        """Return the type that has a bit for each condition of a part."""
        width = self.asked.shape[1]
        return torch.uint8 if width <= 8 else torch.int16 if width <= 15 else torch.int64

    @functools.cached_property
    def depth(self) -> np.ndarray:
        """Return the number of conditions of each part, int64 `[parts]`."""
        return (self.asked >= 0).sum(axis=1)

    @functools.cached_property
    def terms(self) -> Terms:
        """Return the terms as plain torch evaluates them."""
        return Terms.of(self.feature, self.lower, self.upper, self.flags, self.sets, self.rounding)

    @functools.cached_property
    def groups(self) -> list[tuple[int, int, slice]]:
        """Return the numbers of conditions and of players of parts that follow each other, and these parts."""
        sizes = np.stack([self.depth, (self.players < self.columns).sum(axis=1)])
        first = np.flatnonzero(np.append(True, (np.diff(sizes) != 0).any(axis=0))) if sizes.size else np.zeros(0, int)
        ends = itertools.pairwise([*first.tolist(), len(self.asked)])
        return [(*sizes[:, first].tolist(), slice(first, end)) for first, end in ends]

    @functools.cached_property
    def _entry_count(self) -> int:
        """Return the number of entries of all outputs."""
        return int((self.players < self.columns).sum()) * len(self.base)

    @functools.cached_property
    def _asked(self) -> list[tuple[int, torch.Tensor]]:
        """Return, for each number of a condition, the first part that has one, and the terms of it and later ones."""
        first = np.searchsorted(self.depth, np.arange(self.asked.shape[1]), side="right")
        return [(int(part), torch.from_numpy(self.asked[part:, bit].copy())) for bit, part in enumerate(first)]

    @functools.cached_property
    def _bits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the terms of all parts, part after part, the bits of their conditions, and each part's first.

        Parts without a condition, which come before all others, have none.
        """
        own, condition = np.nonzero(self.asked >= 0)
        part = np.append(own, self.others[:, 0])
        order = np.argsort(part, kind="stable")
        term = np.append(self.asked[own, condition], self.others[:, 2])[order].astype(np.int64)
        bit = torch.from_numpy(np.int64(1) << np.append(condition, self.others[:, 1])[order]).to(self.pattern_dtype)
        return term, bit.numpy()[:, None], np.unique(part[order], return_index=True)[1]

    @functools.cached_property
    def _others(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return parts that have further terms, one of these terms for each part, and the bits of their conditions."""
        found, rank = [], _ranks(self.others[:, 0])
        for number in range(int(rank.max(initial=-1)) + 1):
            part, condition, term = self.others[rank == number].T.astype(np.int64)
            weight = torch.from_numpy(np.int64(1) << condition).to(self.pattern_dtype)[:, None]
            found.append((torch.from_numpy(part.copy()), torch.from_numpy(term.copy()), weight))
        return found


def _ranks(ascending: np.ndarray) -> np.ndarray:
    """Return how many equal numbers come before each one."""
    return np.arange(len(ascending)) - np.searchsorted(ascending, ascending)


def _within(numbers: np.ndarray, first: int, end: int) -> bool:
    """Return whether all numbers are in [first, end)."""
    return bool(((numbers >= first) & (numbers < end)).all())
