"""Path-dependent Shapley values of trees whose leaves have many players, by quadrature for each row.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target, the last column of each being
`base`; both float32 or float64. Players are the columns of the user's table, and each node asks one of them, or a
constant that is none. A player that is not as in the row goes to the left with the probability `share` of the node. On
the way to a leaf, `aᵢ` is 1 if the row goes where all nodes of player i ask it to, else 0, and `rᵢ` is the product of
the probabilities there. A leaf of the value v gives to player k

    v ∫₀¹ (aₖ − rₖ) Πᵢ (t · aᵢ + (1 − t) · rᵢ) / (t · aₖ + (1 − t) · rₖ) dt

which is a polynomial of degree d − 1 in t for d players. The Gauss–Legendre rule with n ≥ d / 2 points is exact for it;
fewer points do where their error is too small to matter (`path_points.py`). Tables of all patterns
(`tree_contributions.py`) take less time for few players.

Leaves share the work of their common paths. At a point t of the weight w, `P` of a node is w times the product of all
factors `t · aᵢ + (1 − t) · rᵢ` above it, and `R` is the sum over the leaves below of their values, each times the
factors that come below: those of a player that was asked above are divided by its factor there. A node of player i with
the factor f above, where aᵢ = 1 and rᵢ = r, sends the row to the child m; the other one is o and has the probability c:

    y = (1 − t) r / f        P(o) = P · y c        P(m) = P · (1 − y c)        R = R(m) + y c (R(o) − R(m))

and c Σ P · q (R(o) − R(m)) over the points is what the node gives to player i, with q = −r / f². If aᵢ is 0 above, or
the node asks a constant, it gives nothing, and its children have the factors of their probabilities: y is 1, q is 0, m
is the left child. Walks through chunks of trees (`path_walks.py`, `path_steps.py`) compute P on the way down and R on
the way up. Small subtrees at the ends have tables of R, and of what their nodes give as multiples of P
(`path_tips.py`).

P, R and the tables are float32, which is what the answers are. A sum over points adds one after the other. Rules of
many points are in parts, each with a sum of its own. What a node gives in a part is rounded to multiples of one unit of
each target, a power of two, before it is added up. Integers have the same sum in any order, so that neither tiling nor
device can change an answer. Sums have 32 bits, and each tree has its own: its leaves bound what it gives to a player,
whatever the sum is on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .cpu_path_walks import Room, Walk, add_walk, walks_of
from .integer_sum import add_chunks
from .launch import WALK_TILE
from .nodes import ROUNDINGS, check_trees
from .path_kernels import walks_kernel
from .path_points import LARGEST_ERROR
from .path_states import ROWS, in_windows, launch_states
from .path_steps import TIP_WORDS, order_of, places_of, steps_of, tip_words
from .path_tips import Tips, digits, patterns_of, starts_of, table_of
from .path_walks import Chunks, chunks_of, fitting_tips, in_parts, points_left, rows_of_ratios
from .preorder import Arranged, arranged
from .terms import Terms

LARGEST_STATES = 2**30
"""The most bytes that say where rows go at each node, and of sums; more rows take turns."""

LARGEST_SUMS = 2**28
"""The most bytes of the sums of a block of rows, unless all trees share them."""

LARGEST_STACKS = 2**28
"""The most bytes of the stacks of programs that run together."""

NUMBERS = 2**20
"""The most numbers of one kind that plain NumPy has for a walk, unless one row has more."""

LARGEST_TILE = 2**24
"""The most decisions of nodes that it has for a tile of rows, unless one row has more."""


@dataclass(frozen=True, eq=False)
class PathContributions(Operation):
    """Shapley values of the columns of a table, by the share of the training weight on either side of a split.

    The trees are those of `tree_ensemble.py`, with a player and a share for each node.
    """

    MOST: ClassVar[int] = 64
    """The most players of a leaf."""

    feature: np.ndarray  # int32 [nodes], −1 at a leaf
    threshold: np.ndarray  # float32 or float64 [nodes]; at a categorical node the row of `sets`
    child: np.ndarray  # int32 [nodes], the left child; at a leaf the row of `values`
    flags: np.ndarray  # uint8 [nodes], MISSING_LEFT and CATEGORICAL
    sets: np.ndarray  # int32 [sets, words]
    roots: np.ndarray  # int32 [trees]
    player: np.ndarray  # int32 [nodes], `columns` for a constant
    share: np.ndarray  # float64 [nodes], the probability of the left child; of a leaf any
    values: np.ndarray  # float64 [leaves, targets]
    base: np.ndarray  # float64 [targets]
    columns: int
    rounding: str

    def check(self, *widths: int) -> None:
        check_trees(self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, widths[0])
        inner = self.feature >= 0
        below = np.concatenate([self.roots, self.child[inner], self.child[inner] + 1])
        if len(below) != len(inner) or len(np.unique(below)) != len(inner):
            raise PlanError("path_contributions: a node must be a root or the child of one other node.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"path_contributions: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        if self.player.dtype != np.int32 or self.player.shape != inner.shape:
            raise PlanError("path_contributions: player must be int32 [nodes].")
        if not ((self.player >= 0) & (self.player <= self.columns))[inner].all():
            raise PlanError(f"path_contributions: player must lie in [0, {self.columns}].")
        if self.share.dtype != np.float64 or self.share.shape != inner.shape:
            raise PlanError("path_contributions: share must be float64 [nodes].")
        if not ((self.share >= 0) & (self.share <= 1))[inner].all():
            raise PlanError("path_contributions: share must lie in [0, 1].")
        if self.base.dtype != np.float64 or self.base.ndim != 1:
            raise PlanError("path_contributions: base must be float64 [targets].")
        if self.values.dtype != np.float64 or not np.isfinite(self.values).all():
            raise PlanError("path_contributions: values must be finite float64.")
        if self.values.shape != (np.count_nonzero(~inner), len(self.base)):
            raise PlanError("path_contributions: values must be [leaves, targets].")
        if self.players_of_leaves().max() > self.MOST:
            raise PlanError(f"path_contributions: a leaf must have at most {self.MOST} players.")

    def players_of_leaves(self) -> np.ndarray:
        """Return how many players each leaf has, int64 `[leaves]`."""
        trees, found = self._trees, np.empty(len(self.values), dtype=np.int64)
        leaf = ~trees.inner
        found[self.child[trees.node[leaf]]] = trees.players[leaf]
        return found

    def output_width(self, *widths: int) -> int:
        return len(self.base) * (self.columns + 1)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the inner nodes in preorder, and the steps of all walks; what depends on points has their number."""
        trees, node = self._trees, self._inner
        earlier = trees.earlier[trees.inner]
        above = np.where(earlier >= 0, 2 * trees.number[earlier] + trees.by_right[trees.inner], earlier)
        # One more node asks a constant, so that no row is known there.
        words = np.append(self.feature[node] << 2 | self.flags[node], np.int32(0))
        asked, places = in_windows(words)
        found = {
            "words": words[asked],
            "thresholds": np.append(self.threshold[node], self.threshold.dtype.type(0))[asked],
            "places": places,
            "sets": self.sets,
            "earlier": np.append(above, -2).astype(np.int32),
            "first_chunk": np.arange(self.output_width() + 1, dtype=np.int32) * np.int32(self._sums),
            **self.plain_parameters(),
        }
        tips, owner = self._tips, self.player[node]
        # After all tips come two that have one pattern, since patterns are loaded for steps that need none.
        in_order, words_of_tips = np.full(2, len(tips.node)), np.zeros((2, TIP_WORDS), dtype=np.int32)
        for chunks in self._chunks:
            ratios, ratio_rows = rows_of_ratios(trees, chunks)
            steps, first_step, some = steps_of(trees, tips, chunks, owner, ratio_rows, len(in_order) - 2)
            in_order = np.insert(in_order, -2, some)
            words_of_tips = np.insert(words_of_tips, -2, tip_words(trees, tips, chunks.own, some, owner), axis=0)
            own = {
                "steps": steps,
                "first_step": first_step.astype(np.int32),
                "tree": (trees.tree[chunks.node[chunks.start[:-1]]] % self._sums).astype(np.int32),
                "order": np.argsort(-np.diff(first_step), kind="stable").astype(np.int32),
                "table": np.ascontiguousarray(np.swapaxes(in_parts(self._table(chunks)), 0, 1)),
                "ratios": in_parts(ratios),
                "weights": in_parts(chunks.weights.astype(np.float32)),
            }
            found |= {f"{name}_{len(chunks.points)}": array for name, array in own.items()}
        return {**found, "tips": words_of_tips, **digits(trees, tips, in_order)}

    def _table(self, chunks: Chunks) -> np.ndarray:
        """Return what the tips of chunks give, float32 `[targets, entries, points]`."""
        trees, leaf = self._trees, np.where(self._trees.inner, -1, self.child[self._trees.node])
        return table_of(trees, self._tips, chunks.own, leaf, self._held, chunks.points)

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the unit and the constant of each output."""
        baseline = np.zeros((len(self.base), self.columns + 1))
        baseline[:, -1] = self.base
        unit = np.repeat(np.ldexp(1.0, self._exponent), self.columns + 1)
        return {"unit": unit, "baseline": baseline.ravel()}

    def rounding_error(self) -> float:
        """Return how far contributions and their sum may be from what they are in real numbers.

        Numbers of the walks are rounded to 24 bits. The errors of a tree are random, and together below four roundings
        of its largest value; those of several trees are independent. What a node gives is rounded to units. Fewer
        points than are exact add their errors.
        """
        together = 2.0**-22 * np.sqrt((self._largest**2).sum(axis=0)) + LARGEST_ERROR * self._largest.sum(axis=0)
        return float((together + np.ldexp(np.sqrt(len(self._inner)), self._exponent)).max(initial=0.0))

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(len(inputs[0]), len(self.base), self.columns + 1, dtype=torch.float64)
        found[:, :, -1] = torch.from_numpy(self.base)
        terms = self._terms(np.arange(len(self.feature)))
        left = terms.met(inputs[0].to(terms.upper.dtype)) == 1  # [nodes, rows]
        for root in self.roots.tolist():
            self._add_leaves_below(root, {}, torch.ones(len(inputs[0]), dtype=torch.float64), left, found)
        return found.flatten(1)

    def _add_leaves_below(
        self,
        node: int,
        met: dict[int, tuple[torch.Tensor, float]],
        constant: torch.Tensor,
        left: torch.Tensor,
        found: torch.Tensor,
    ) -> None:
        """Add to `[rows, targets, outputs]` what the leaves below a node give.

        Args:
            node: the node.
            met: `a`, float64 `[rows]`, and `r` of the players above.
            constant: the probability of the constants above.
            left: bool `[nodes, rows]`, whether nodes send rows to the left.
            found: the sums.
        """
        below, player = int(self.child[node]), int(self.player[node])
        if self.feature[node] < 0:
            value = torch.from_numpy(self.values[below]) * constant[:, None]
            points, weights = np.polynomial.legendre.leggauss(max(len(met), 1))
            for own, (a, r) in met.items():
                for t, weight in zip((points + 1) / 2, weights / 2, strict=True):
                    others = torch.tensor(float(weight), dtype=torch.float64)
                    for other, (b, s) in met.items():
                        others = others * (1.0 if other == own else t * b + (1 - t) * s)
                    found[:, :, own] += ((a - r) * others)[:, None] * value
            return
        for child, goes, share in (
            (below, left[node], float(self.share[node])),
            (below + 1, ~left[node], 1 - float(self.share[node])),
        ):
            if player == self.columns:
                self._add_leaves_below(child, met, constant * share, left, found)
            else:
                a, r = met.get(player, (torch.ones_like(constant), 1.0))
                self._add_leaves_below(child, met | {player: (a * goes, r * share)}, constant, left, found)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, outputs = inputs[0], []
        numbers = max((len(walk.weights) * len(walk.node) for walk in self._cpu_walks), default=1)
        rows = min(max(NUMBERS // numbers, 1), max(LARGEST_TILE // max(len(self._inner), 1), 1))
        room = Room.of(self._cpu_walks, min(rows, len(x)))
        for part in x.split(rows):
            sums = torch.zeros(len(self.base), self.columns + 1, len(part), dtype=torch.int64)
            left, known = self._states(part)
            patterns = patterns_of(self._trees, self._tips, left, known)
            for walk in self._cpu_walks:
                add_walk(walk, left, known, patterns, sums, room)
            outputs.append(sums.flatten(0, 1).T.to(torch.float64))
        return parameters["baseline"] + torch.cat(outputs) * parameters["unit"]

    def _states(self, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return whether rows go to the left, and meet what was asked above, at inner nodes, bool `[nodes, rows]`."""
        left = self._asked.met(x.to(self._asked.upper.dtype)).numpy().view(bool)
        known = np.ones_like(left)
        for node, above, by_right in self._repeats:
            known[node] = known[above] & (left[above] != by_right)
        known[self._constants] = False
        return left | ~known, known

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), targets, trees, nodes = inputs, len(self.base), self._sums, len(parameters["words"])
        unit = parameters["unit"]
        block = 12 * nodes + ROWS * (len(parameters["tips"]) + 4 * trees * self.output_width())
        most = max(LARGEST_STATES // block, 1) * ROWS
        constants = {
            "WORDS": self.sets.shape[1] if len(self.sets) else 0,
            "FLOOR": self.rounding == "floor",
            "MISSING": self._missing,
        }
        for start in range(0, rows, most):
            count = min(most, rows - start)
            blocks = triton.cdiv(count, ROWS)
            sums = unit.new_zeros(trees * self.output_width(), blocks * ROWS, dtype=torch.int32)
            asked = launch_states(parameters, x[start:], count, constants) if self._walks else {}
            for points, number, places, left in self._walks:
                parts, together = parameters[f"weights_{points}"].shape
                size = places * together * ROWS
                jobs = targets * parts * number * blocks
                programs = min(jobs, WALK_TILE.programs, max(LARGEST_STACKS // (4 * size), 1))
                walks_kernel[(programs,)](
                    **asked,
                    tips=parameters["tips"],
                    **{name: parameters[f"{name}_{points}"] for name in ("steps", "first_step", "tree", "order")},
                    **{name: parameters[f"{name}_{points}"] for name in ("table", "ratios", "weights")},
                    stacks=unit.new_empty(programs * size, dtype=torch.float32),
                    sums=sums,
                    blocks=blocks,
                    jobs=jobs,
                    chunks=number,
                    trees=trees,
                    NODES=nodes,
                    TIPS=len(parameters["tips"]),
                    ENTRIES=parameters[f"table_{points}"].shape[2],
                    WIDTH=self.columns + 1,
                    PLACES=places,
                    RATIOS=parameters[f"ratios_{points}"].shape[1],
                    PARTS=parts,
                    POINTS=together,
                    POINTS_LEFT=left,
                    ROWS=ROWS,
                    num_warps=1,
                    maxnreg=WALK_TILE.registers,
                    enable_fp_fusion=False,  # so that a product is rounded before the sum, as in plain torch
                )
            add_chunks(sums, parameters["first_chunk"], parameters, output[start:], count)

    def reads_input_once(self) -> bool:
        return True

    def launches(self, inputs: int) -> int:
        return 6 + len(self._chunks)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        points = " and ".join(str(len(chunks.points)) for chunks in self._chunks)
        entries = sum(starts_of(self._tips, chunks.own)[1] * len(chunks.points) for chunks in self._chunks)
        size = f"tables of {4e-6 * len(self.base) * entries:,.2f} MB"
        return f"{len(self.roots)} trees of {self.columns} columns, {points or 'no'} points, {size}"

    def _terms(self, nodes: np.ndarray) -> Terms:
        """Return what nodes ask, as terms; those of leaves mean nothing."""
        feature, threshold = np.maximum(self.feature[nodes], 0), self.threshold[nodes]
        return Terms.of(
            feature, np.full_like(threshold, np.nan), threshold, self.flags[nodes], self.sets, self.rounding
        )

    @functools.cached_property
    def _trees(self) -> Arranged:
        return arranged(self.feature, self.child, self.roots, self.player, self.share, self.columns)

    @functools.cached_property
    def _inner(self) -> np.ndarray:
        """Return the inner nodes in preorder."""
        found: np.ndarray = self._trees.node[self._trees.inner]
        return found

    @functools.cached_property
    def _tips_and_points(self) -> tuple[Tips, np.ndarray]:
        """Return the subtrees whose sums come from tables, and how many points they need."""
        trees = self._trees
        asks, held = ~trees.inner & (trees.players > 0), np.zeros(len(trees.inner))
        value, largest = np.abs(self.values[self.child[trees.node[asks]]]), self._largest[trees.tree[asks]]
        held[asks] = (value / np.where(largest > 0, largest, 1.0)).max(axis=1, initial=0.0)
        asks[asks] = (value != 0).any(axis=1)
        return fitting_tips(trees, asks, held, len(self.base))

    @property
    def _tips(self) -> Tips:
        return self._tips_and_points[0]

    @functools.cached_property
    def _chunks(self) -> list[Chunks]:
        """Return the chunks for each number of points."""
        return chunks_of(self._trees, *self._tips_and_points)

    @functools.cached_property
    def _walks(self) -> list[tuple[int, int, int, tuple[float, ...]]]:
        """Return numbers of points, each with that of its chunks, of the places of a stack, and 1 minus the points."""
        return [
            (len(each.points), len(each.start) - 1, sum(places_of(order_of(self._trees, each))), points_left(each))
            for each in self._chunks
        ]

    @functools.cached_property
    def _cpu_walks(self) -> list[Walk]:
        """Return the walks as plain NumPy does them."""
        owner = self.player[self._inner]
        return [
            walk
            for chunks in self._chunks
            for walk in walks_of(self._trees, self._tips, chunks, owner, self._table(chunks))
        ]

    @functools.cached_property
    def _missing(self) -> bool:
        """Return whether NaN may go to the left."""
        return bool(self.flags.any())

    @functools.cached_property
    def _asked(self) -> Terms:
        """Return what inner nodes ask."""
        return self._terms(self._inner)

    @functools.cached_property
    def _repeats(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return inner nodes whose player was asked above, with the node above and whether they are to its right.

        The numbers are those of inner nodes. Nodes above are done before.
        """
        trees, found = self._trees, []
        number, again = trees.number, np.flatnonzero(trees.earlier >= 0)
        for depth in np.unique(trees.depth[again]):
            node = again[trees.depth[again] == depth]
            found.append((number[node], number[trees.earlier[node]], trees.by_right[node][:, None]))
        return found

    @functools.cached_property
    def _constants(self) -> np.ndarray:
        """Return the inner nodes that ask a constant."""
        return np.flatnonzero(self._trees.earlier[self._trees.inner] == -2)

    @functools.cached_property
    def _held(self) -> np.ndarray:
        """Return the values of leaves in units of the output, float64 `[targets, leaves]`."""
        found: np.ndarray = np.ldexp(self.values.T, -self._exponent[:, None])
        return found

    @functools.cached_property
    def _largest(self) -> np.ndarray:
        """Return the largest value of the leaves of each tree, float64 `[trees, targets]`."""
        found = np.zeros((len(self.roots), len(self.base)))
        leaf = ~self._trees.inner
        np.maximum.at(found, self._trees.tree[leaf], np.abs(self.values[self.child[self._trees.node[leaf]]]))
        return found

    @functools.cached_property
    def _sums(self) -> int:
        """Return how many sums of a player there are, of a tree each unless they take too much memory."""
        return min(len(self.roots), max(LARGEST_SUMS // (4 * ROWS * self.output_width()), 1))

    @functools.cached_property
    def _exponent(self) -> np.ndarray:
        """Return the exponents of the targets' units.

        What a tree gives to a player is an average of differences between averages of its leaves. A sum of those of the
        trees that share it has less than 2³¹ units, whatever is rounded on the way.
        """
        trees, leaf = self._trees, ~self._trees.inner
        value, tree = self.values[self.child[trees.node[leaf]]], trees.tree[leaf]
        least, largest = np.full((2, len(self.roots), len(self.base)), np.inf)
        np.minimum.at(least, tree, value)
        np.minimum.at(largest, tree, -value)
        spread = np.zeros((self._sums, len(self.base)))
        np.add.at(spread, np.arange(len(self.roots)) % self._sums, -largest - least)
        exponent = np.frexp(1.001 * spread.max(axis=0))[1]
        return np.maximum(exponent - 31, -950)  # so that the unit itself is a normal number
