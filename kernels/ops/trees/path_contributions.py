"""Path-dependent Shapley values of trees whose leaves have many players, by quadrature for each row.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target, the last column of each being
`base`; both float32 or float64. Players are the columns of the user's table, and each node asks one of them, or a
constant that is none. A player that is not as in the row goes to the left with the probability `share` of the node. On
the way to a leaf, `aᵢ` is 1 if the row goes where all nodes of player i ask it to, else 0, and `rᵢ` is the product of
the probabilities there. A leaf of the value v gives to player k

    v ∫₀¹ (aₖ − rₖ) Πᵢ (t · aᵢ + (1 − t) · rᵢ) / (t · aₖ + (1 − t) · rₖ) dt

which is a polynomial of degree d − 1 in t for d players. The Gauss–Legendre rule with n ≥ d / 2 points is exact for it.
Tables of all patterns (`tree_contributions.py`) take less time for few players.

Leaves share the work of their common paths. At a point t of the weight w, `P` of a node is w times the product of all
factors `t · aᵢ + (1 − t) · rᵢ` above it, and `R` is the sum over the leaves below of their values, each times the
factors that come below: those of a player that was asked above are divided by its factor there. A node of player i with
the factor f above, where aᵢ = 1 and rᵢ = r, sends the row to the child m; the other one is o and has the probability c:

    y = (1 − t) r / f        P(o) = P · y c        P(m) = P · (1 − y c)        R = R(m) + y c (R(o) − R(m))

and Σ over the points of `P · q · c (R(o) − R(m))` is what the node gives to player i, with q = −r / f². If aᵢ is 0
above, or the node asks a constant, it gives nothing, and its children have the factors of their probabilities: y is 1,
m is the left child. Walks over chunks of trees (`path_walks.py`) compute P on the way down and R on the way up.

What a node gives at a point is rounded to multiples of one unit of each target, a power of two, before it is added up.
Integers have the same sum in any order, so that neither tiling nor device can change an answer. No value of a coalition
is larger than the largest leaf of its tree; that bounds each summand and the sum.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .cpu_path_walks import Level, Room, levels_of, walk
from .integer_sum import answer
from .launch import paths_tile
from .leaf_patterns import Terms, feature_major_kernel, meets
from .nodes import ROUNDINGS, check_trees
from .path_walks import Arranged, Chunks, arranged, chunks_of, rows_of_ratios, steps_of

LARGEST_STATES = 2**28
"""The most bytes that say where rows go at each node; more rows take turns."""

LARGEST_STACKS = 2**28
"""The most bytes of the stacks of programs that run together."""

NUMBERS = 2**17
"""The most numbers of one kind that plain NumPy has for a level of nodes, unless one row has more."""

LARGEST_TILE = 2**24
"""The most decisions of nodes that it has for a tile of rows, unless one row has more."""

ROUND = tl.constexpr(1.5 * 2.0**52)
"""A number below 2⁵¹ plus this one has the nearest whole number in its lowest bits."""

ROUND_BITS = 0x4338000000000000
"""The bits of that number."""


@triton.jit
def goes_left(
    x, node, row, words, thresholds, sets, rows, mask,
    FEATURES: tl.constexpr, WORDS: tl.constexpr, FLOOR: tl.constexpr, MISSING: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return whether nodes send rows to the left, bool `[nodes, rows]`; `mask` is that of nodes."""
    word = tl.load(words + node, mask=mask, other=0)[:, None]
    threshold = tl.load(thresholds + node, mask=mask, other=0.0)[:, None]
    feature = (word >> 2).to(tl.int64)
    inside = mask[:, None] & (row < rows)
    value = tl.load(x + (feature * rows + row if COLUMNS else row * FEATURES + feature), mask=inside, other=0.0)
    value = value.to(thresholds.dtype.element_ty)
    return meets(value, float("nan"), threshold, word, sets, inside, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING)


@triton.jit(do_not_specialize=["rows"])
def states_kernel(
    x,  # float32 or float64 [rows, FEATURES]; where COLUMNS [FEATURES, rows]
    words,  # int32 [NODES], the feature and 2 flags
    thresholds,  # float32 or float64 [NODES]
    sets,  # int32 [sets, WORDS]
    earlier,  # int32 [NODES], twice the node above of the same player, plus 1 to the right; −1 if none, −2 if constant
    states,  # uint8 [⌈rows / TOGETHER⌉, NODES, TOGETHER]
    rows,
    FEATURES: tl.constexpr,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no node asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN may go to the left
    COLUMNS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_NODES: tl.constexpr,
):
    """Write 2 where the player met all that was asked above, plus 1 if the row goes to the left, and else 1."""
    block = tl.program_id(1).to(tl.int64)
    place = tl.arange(0, TOGETHER)
    row = (block * TOGETHER + place)[None, :]
    node = tl.program_id(0) * BLOCK_NODES + tl.arange(0, BLOCK_NODES)
    mask = node < NODES
    left = goes_left(
        x, node, row, words, thresholds, sets, rows, mask,
        FEATURES=FEATURES, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING, COLUMNS=COLUMNS,
    )  # fmt: skip
    above = tl.load(earlier + node, mask=mask, other=-1)
    known = (above > -2)[:, None] & (row >= 0)
    while tl.max(above, axis=0) >= 0:
        asks = above >= 0
        goes = goes_left(
            x, above >> 1, row, words, thresholds, sets, rows, asks,
            FEATURES=FEATURES, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING, COLUMNS=COLUMNS,
        )  # fmt: skip
        known &= (above < 0)[:, None] | (goes == ((above & 1) == 0)[:, None])
        above = tl.load(earlier + (above >> 1), mask=asks, other=-1)
    state = tl.where(known, tl.where(left, 3, 2), 1)
    tl.store(
        states + (block * NODES + node[:, None]) * TOGETHER + place[None, :], state.to(tl.uint8), mask=mask[:, None]
    )


@triton.jit
def words_of(step):
    """Return a step's flags, node, row of ratios and leaves."""
    return tl.load(step + 1), tl.load(step), tl.load(step + 2), tl.load(step + 3), tl.load(step + 4)


@triton.jit
def read(
    node, row, leaf, other, shares, owners, states, ratios, held, point, POINTS: tl.constexpr, TOGETHER: tl.constexpr
):
    """Return what a step needs: the share, player and state of the node, y, q, and the values of two leaves."""
    ratio = ratios + row.to(tl.int64) * (2 * POINTS) + point
    state = tl.load(states + node.to(tl.int64) * TOGETHER)[None, :]
    share, owner, y, q = tl.load(shares + node), tl.load(owners + node), tl.load(ratio), tl.load(ratio + POINTS)
    return share, owner, state, y, q, tl.load(held + leaf), tl.load(held + other)


@triton.jit(do_not_specialize=["blocks", "jobs", "first_chunk", "chunks", "padded"])
def walks_kernel(
    states,  # uint8 [blocks, NODES, TOGETHER]
    steps,  # int32 [steps + 2, 5], see `steps_of` in `path_walks.py`
    first_step,  # int32 [chunks + 1]
    shares,  # float64 [NODES]
    owners,  # int32 [NODES], the player of each node
    ratios,  # float64 [ratios, 2, POINTS], y and q
    weights,  # float64 [POINTS]
    held,  # float64 [targets, LEAVES + 1], the values of leaves in units of the output, and 0
    stacks,  # float64 [programs, DEPTH, 2, POINTS, TOGETHER]
    sums,  # int64 [targets, WIDTH, padded]
    blocks,
    jobs,  # the number of targets, chunks and blocks of rows
    chunks,
    NODES: tl.constexpr,
    LEAVES: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    POINTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    ROUNDED: tl.constexpr,  # the sum of the bits of as many `ROUND` as there are points, modulo 2⁶⁴
):
    """Add up what chunks give. A program does `TOGETHER` rows of one chunk after another."""
    point = tl.arange(0, POINTS)[:, None]
    place = tl.arange(0, TOGETHER)
    at = point * TOGETHER + place[None, :]
    stacks += tl.program_id(0).to(tl.int64) * (DEPTH * 2 * POINTS * TOGETHER) + at
    weight = tl.load(weights + point) + tl.zeros([POINTS, TOGETHER], tl.float64)
    for job in tl.range(tl.program_id(0), jobs, tl.num_programs(0)):
        block = (job % blocks).to(tl.int64)
        chunk = job // blocks % chunks
        target = (job // blocks // chunks).to(tl.int64)
        own_states = states + block * NODES * TOGETHER + place
        own_sums = sums + (target * WIDTH * blocks + block) * TOGETHER + place
        own_held = held + target * (LEAVES + 1)
        product, total = weight, tl.zeros([POINTS, TOGETHER], tl.float64)
        product_1, product_2, product_3 = product, product, product
        total_1, total_2, total_3 = total, total, total
        # A step's numbers are loaded one step before, and the words that say which they are one step before that.
        begin = tl.load(first_step + chunk)
        flags, node, row, leaf, other_leaf = words_of(steps + 5 * begin)
        share, owner, state, y, q, value, other_value = read(
            node, row, leaf, other_leaf, shares, owners, own_states, ratios, own_held, point,
            POINTS=POINTS, TOGETHER=TOGETHER,
        )  # fmt: skip
        next_flags, node, row, leaf, other_leaf = words_of(steps + 5 * (begin + 1))
        for step in tl.range(begin, tl.load(first_step + chunk + 1)):
            next_share, next_owner, next_state, next_y, next_q, next_value, next_other_value = read(
                node, row, leaf, other_leaf, shares, owners, own_states, ratios, own_held, point,
                POINTS=POINTS, TOGETHER=TOGETHER,
            )  # fmt: skip
            after_flags, node, row, leaf, other_leaf = words_of(steps + 5 * (step + 2))
            left, known = (state & 1) != 0, (state & 2) != 0
            away = tl.where(left, 1.0 - share, share)
            y = tl.where(known, y, 1.0)
            child_left = (flags & 2) == 0
            stack = stacks + (flags >> 14) * (2 * POINTS * TOGETHER)
            place_of_product = (flags >> 8) & 7
            if place_of_product == 1:
                product = product_1
            elif place_of_product == 2:
                product = product_2
            elif place_of_product == 3:
                product = product_3
            elif place_of_product > 3:
                product = tl.load(stack)
            if (flags & 1) != 0:
                keep = (flags >> 5) & 7
                if keep == 1:
                    product_1, total_1 = product, total
                elif keep == 2:
                    product_2, total_2 = product, total
                elif keep == 3:
                    product_3, total_3 = product, total
                if (flags & 8) != 0:
                    tl.store(stack, product)
                if (flags & 16) != 0:
                    tl.store(stack + POINTS * TOGETHER, total)
                product = product * tl.abs(tl.where(left == child_left, 1.0, 0.0) - y * away)
            else:
                if (flags & 4) != 0:
                    total = value + tl.zeros([POINTS, TOGETHER], tl.float64)
                place_of_other = (flags >> 11) & 7
                if place_of_other == 0:
                    other = other_value + tl.zeros([POINTS, TOGETHER], tl.float64)
                elif place_of_other == 1:
                    other = total_1
                elif place_of_other == 2:
                    other = total_2
                elif place_of_other == 3:
                    other = total_3
                else:
                    other = tl.load(stack + POINTS * TOGETHER)
                met = left == child_left
                between = tl.where(met, away, -away) * (other - total)
                given = product * tl.where(known, q, 0.0) * between
                total = tl.where(met, total, other) + y * between
                rounded = (given + ROUND).to(tl.int64, bitcast=True)
                output = own_sums + owner.to(tl.int64) * blocks * TOGETHER
                tl.atomic_add(output, tl.sum(rounded, axis=0) - ROUNDED, sem="relaxed")
            flags, share, owner, state, y, q = next_flags, next_share, next_owner, next_state, next_y, next_q
            value, other_value, next_flags = next_value, next_other_value, after_flags


@triton.jit(do_not_specialize=["rows", "padded"])
def path_answers_kernel(
    sums,  # int64 [OUTPUTS, padded]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    padded,
    OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """Make the answers. A program makes `[BLOCK_ROWS, BLOCK_OUTPUTS]` of them."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)[None, :]
    inside = (row < rows) & (output < OUTPUTS)
    total = tl.load(sums + output.to(tl.int64) * padded + row, mask=inside, other=0)
    y = answer(total, unit + output, baseline + output, inside, 1.0, "identity")
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=inside)


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
        number = np.cumsum(trees.inner) - 1
        earlier = trees.earlier[trees.inner]
        above = np.where(earlier >= 0, 2 * number[earlier] + trees.by_right[trees.inner], earlier)
        found = {
            "words": self.feature[node] << 2 | self.flags[node],
            "thresholds": self.threshold[node],
            "sets": self.sets,
            "earlier": above.astype(np.int32),
            "shares": self.share[node],
            "owners": self.player[node],
            "held": np.append(self._held, np.zeros((len(self.base), 1)), axis=1),
            **self.plain_parameters(),
        }
        for chunks in self._chunks:
            points = len(chunks.points)
            ratios, ratio_rows = rows_of_ratios(trees, chunks)
            steps, first_step = steps_of(trees, chunks, ratio_rows)
            own = {"steps": steps, "first_step": first_step.astype(np.int32), "ratios": ratios}
            own |= {"weights": chunks.weights}
            found |= {f"{name}_{points}": array for name, array in own.items()}
        return found

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the unit and the constant of each output."""
        baseline = np.zeros((len(self.base), self.columns + 1))
        baseline[:, -1] = self.base
        unit = np.repeat(np.ldexp(1.0, self._exponent), self.columns + 1)
        return {"unit": unit, "baseline": baseline.ravel()}

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
        x, sums = inputs[0], torch.zeros(len(self.base), self.columns + 1, len(inputs[0]), dtype=torch.int64)
        held = np.append(self._held, np.zeros((len(self.base), 1)), axis=1)
        pairs = max(
            (
                len(chunks.points) * len(level.node)
                for chunks, groups in self._levels
                for levels in groups
                for level in levels
            ),
            default=1,
        )
        rows = min(max(NUMBERS // pairs, 1), max(LARGEST_TILE // max(len(self._inner), 1), 1))
        rooms = [Room.of(groups, len(chunks.points), min(rows, len(x))) for chunks, groups in self._levels]
        for part, out in zip(x.split(rows), sums.split(rows, dim=2), strict=True):
            left, known = self._states(part)
            for (chunks, groups), room in zip(self._levels, rooms, strict=True):
                for levels in groups:
                    walk(levels, chunks, left, known, held, out, room)
        return parameters["baseline"] + sums.flatten(0, 1).T.to(torch.float64) * parameters["unit"]

    def _states(self, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return whether rows go to the left, and meet what was asked above, at inner nodes, bool `[nodes, rows]`."""
        left = self._asked.met(x.to(self._asked.upper.dtype)).numpy().view(bool)
        known = np.ones_like(left)
        for node, above, by_right in self._repeats:
            known[node] = known[above] & (left[above] != by_right)
        known[self._trees.earlier[self._trees.inner] == -2] = False
        return left | ~known, known

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), nodes, targets = inputs, len(self._inner), len(self.base)
        tile = paths_tile(rows)
        most = max(LARGEST_STATES // (max(nodes, 1) * tile.together), 1) * tile.together
        for start in range(0, rows, most):
            count = min(most, rows - start)
            blocks = triton.cdiv(count, tile.together)
            sums = torch.zeros(output.shape[1], blocks * tile.together, dtype=torch.int64, device=x.device)
            states = self._launch_states(parameters, x[start:], count, tile.together) if self._walks else sums
            for points, number, depth in self._walks:
                size = depth * 2 * points * tile.together
                jobs = targets * number * blocks
                programs = min(jobs, tile.programs, max(LARGEST_STACKS // (8 * size), 1))
                walks_kernel[(programs,)](
                    states=states,
                    **{name: parameters[f"{name}_{points}"] for name in ("steps", "first_step")},
                    **{name: parameters[f"{name}_{points}"] for name in ("ratios", "weights")},
                    **{name: parameters[name] for name in ("shares", "owners", "held")},
                    stacks=torch.empty(programs * size, dtype=torch.float64, device=x.device),
                    sums=sums,
                    blocks=blocks,
                    jobs=jobs,
                    chunks=number,
                    NODES=nodes,
                    LEAVES=len(self.values),
                    WIDTH=self.columns + 1,
                    DEPTH=depth,
                    POINTS=points,
                    TOGETHER=tile.together,
                    ROUNDED=_signed(points * ROUND_BITS),
                    num_warps=1,
                    enable_fp_fusion=False,  # so that a product is rounded before the sum, as in plain torch
                )
            path_answers_kernel[(triton.cdiv(count, 32), triton.cdiv(output.shape[1], 32))](
                sums=sums,
                **{name: parameters[name] for name in ("unit", "baseline")},
                out=output[start:],
                rows=count,
                padded=sums.shape[1],
                OUTPUTS=output.shape[1],
                BLOCK_ROWS=32,
                BLOCK_OUTPUTS=32,
                num_warps=4,
                enable_fp_fusion=False,
            )

    def _launch_states(self, parameters: Parameters, x: torch.Tensor, rows: int, together: int) -> torch.Tensor:
        """Launch the kernels that say where rows go at nodes, and return `[⌈rows / together⌉, nodes, together]`."""
        nodes, blocks, many = len(self._inner), triton.cdiv(rows, together), together > 1
        if many:  # neighbouring lanes then have neighbouring rows
            columns = torch.empty(x.shape[1], rows, dtype=parameters["thresholds"].dtype, device=x.device)
            feature_major_kernel[(triton.cdiv(rows, 64), triton.cdiv(x.shape[1], 16))](
                x, columns, rows, FEATURES=x.shape[1], BLOCK_ROWS=64, BLOCK_FEATURES=16, num_warps=4
            )
            x = columns.T
        states = torch.empty(blocks, nodes, together, dtype=torch.uint8, device=x.device)
        block = max(256 // together, 1)
        states_kernel[(triton.cdiv(nodes, block), blocks)](
            x=x,
            **{name: parameters[name] for name in ("words", "thresholds", "sets", "earlier")},
            states=states,
            rows=rows,
            FEATURES=x.shape[1],
            NODES=nodes,
            WORDS=self.sets.shape[1] if len(self.sets) else 0,
            FLOOR=self.rounding == "floor",
            MISSING=self._missing,
            COLUMNS=many,
            TOGETHER=together,
            BLOCK_NODES=block,
            num_warps=4,
        )
        return states

    def launches(self, inputs: int) -> int:
        return 4 + len(self._chunks)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        points = " and ".join(str(len(chunks.points)) for chunks in self._chunks)
        return f"{len(self.roots)} trees of {self.columns} columns, {points or 'no'} points"

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
    def _chunks(self) -> list[Chunks]:
        """Return the chunks for each number of points."""
        return chunks_of(self._trees, self.child, (self.values != 0).any(axis=1))

    @functools.cached_property
    def _walks(self) -> list[tuple[int, int, int]]:
        """Return numbers of points, each with that of its chunks and the depth of their deepest node, plus 1."""
        depth = self._trees.depth
        return [(len(each.points), len(each.start) - 1, int(depth[each.node].max()) + 1) for each in self._chunks]

    @functools.cached_property
    def _levels(self) -> list[tuple[Chunks, list[list[Level]]]]:
        """Return the walks as plain NumPy does them."""
        return [(chunks, levels_of(self._trees, chunks, self.player[self._inner])) for chunks in self._chunks]

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
        number, again = np.cumsum(trees.inner) - 1, np.flatnonzero(trees.earlier >= 0)
        for depth in np.unique(trees.depth[again]):
            node = again[trees.depth[again] == depth]
            found.append((number[node], number[trees.earlier[node]], trees.by_right[node][:, None]))
        return found

    @functools.cached_property
    def _held(self) -> np.ndarray:
        """Return the values of leaves in units of the output, float64 `[targets, leaves]`."""
        found: np.ndarray = np.ldexp(self.values.T, -self._exponent[:, None])
        return found

    @functools.cached_property
    def _exponent(self) -> np.ndarray:
        """Return the exponents of the targets' units.

        A summand is below twice the largest value of its tree, and a sum below twice the sum of these over the trees.
        """
        largest = np.zeros((len(self.roots), len(self.base)))
        leaf = ~self._trees.inner
        np.maximum.at(largest, self._trees.tree[leaf], np.abs(self.values[self.child[self._trees.node[leaf]]]))
        one, all_trees = (np.frexp(each)[1] for each in (largest.max(axis=0), largest.sum(axis=0)))
        return np.maximum(np.maximum(one - 50, all_trees - 61), -950)  # so that the unit itself is a normal number


def _signed(bits: int) -> int:
    """Return the whole number from −2⁶³ to below 2⁶³ with these bits, those past the 64th left out."""
    return (bits + 2**63) % 2**64 - 2**63
