"""Symmetric trees of the members of a fleet: `out[r] = f(baseline[m] + unit[m] · Σₜ leaf(t, r))`.

`m` is the place of row r's member, whose trees are `first_tree[m]` to below `first_tree[m + 1]`. The trees are those of
`symmetric_trees.py`, of all members one after the other; `asked` counts questions over all members. `leaf(t, r)` is an
integer, a multiple of the member's unit. Integers have the same sum in any order, so that a row has the bits of its
member alone.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, apply_function, function_suffix
from ...numerics.members import member_places
from ...plan.plan import Parameters
from ...plan.stacked import Stacked
from .cpu_member_trees import pairs
from .launch import stacked_symmetric_tile
from .nodes import integer_leaves
from .symmetric_trees import SymmetricTrees

LANES = 2**15
"""Trees of rows that a CPU processes at a time."""

LARGEST_TILE = 2**22
"""The most numbers of the rows of such a tile."""


@triton.jit(do_not_specialize=["rows", "first", "members", "trees", "size"])
def stacked_symmetric_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    questions,  # int32 [DEPTH, trees], twice a question's feature, plus 1 if the answer to NaN is yes
    thresholds,  # float32 or float64 [DEPTH, trees], infinity past a tree's last question
    first_tree,  # int32 [members + 1], of each member's trees
    first_leaf,  # int32 [trees]
    leaves,  # int64 [OUTPUTS, size]
    unit,  # float64 [members, OUTPUTS]
    baseline,  # float64 [members, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    trees,  # of all members
    size,  # the leaves of all members
    FEATURES: tl.constexpr,
    DEPTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Sum all trees of each row's member. A program makes one output of `BLOCK_ROWS` rows, by `BLOCK_TREES` at a time.

    Neighbouring lanes have neighbouring trees and the same row.
    """
    lane = tl.arange(0, BLOCK_ROWS * BLOCK_TREES)
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    output = tl.program_id(1)
    row = first_row + lane // BLOCK_TREES
    member = member_places(numbers, row, row < rows, first, members)
    begin = tl.load(first_tree + member, mask=row < rows, other=0)
    end = tl.load(first_tree + member + 1, mask=row < rows, other=0)
    x += row * FEATURES
    leaves += output.to(tl.int64) * size
    total = tl.zeros([BLOCK_ROWS * BLOCK_TREES], tl.int64)
    for start in tl.range(0, tl.max(end - begin, axis=0), BLOCK_TREES):
        tree = begin + start + lane % BLOCK_TREES
        inside = tree < end
        leaf = tl.load(first_leaf + tree, mask=inside, other=0)
        at = tree.to(tl.int64)
        for level in tl.static_range(DEPTH):
            question = tl.load(questions + at, mask=inside, other=0)
            threshold = tl.load(thresholds + at, mask=inside, other=0.0)
            value = tl.load(x + (question >> 1), mask=inside, other=0.0).to(threshold.dtype)
            yes = (value > threshold) | ((value != value) & (question & 1 != 0))
            leaf += yes.to(tl.int32) << level
            at += trees
        total += tl.load(leaves + leaf, mask=inside, other=0)
    sums = tl.sum(tl.reshape(total, [BLOCK_ROWS, BLOCK_TREES]), axis=1)
    row = first_row + tl.arange(0, BLOCK_ROWS)
    own = member_places(numbers, row, row < rows, first, members) * OUTPUTS + output
    y = tl.load(baseline + own) + sums.to(tl.float64) * tl.load(unit + own)
    tl.store(out + row * OUTPUTS + output, apply_function(y, FUNCTION).to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class StackedSymmetricTrees(Stacked[SymmetricTrees]):
    """Sums of symmetric trees for each member; members differ in their numbers of questions, trees and leaves."""

    feature: np.ndarray  # int32 [questions]
    threshold: np.ndarray  # float32 or float64 [questions]
    missing: np.ndarray  # uint8 [questions], the answer to NaN
    asked: np.ndarray  # int32 [levels], the questions of a tree from its lowest bit on, tree after tree
    depth: np.ndarray  # int32 [trees], the number of questions
    first_tree: np.ndarray  # int32 [members + 1], the first tree of each member, then the number of trees
    leaves: np.ndarray  # int64 [outputs, leaves]
    unit: np.ndarray  # float64 [members, outputs]
    baseline: np.ndarray  # float64 [members, outputs]
    function: str = "identity"
    start: int = 0

    @classmethod
    def alike(cls, operation: SymmetricTrees) -> Hashable | None:
        if len(operation.starts):
            return None
        return operation.values.shape[1], operation.threshold.dtype.str, operation.function

    @classmethod
    def of(cls, operations: Sequence[SymmetricTrees], start: int = 0) -> StackedSymmetricTrees:
        questions = np.append(0, np.cumsum([len(each.feature) for each in operations]))
        trees = np.append(0, np.cumsum([len(each.depth) for each in operations]))
        leaves = sum(len(each.values) for each in operations)
        if max(questions[-1], leaves) >= 2**31:
            raise PlanError(f"stacked_symmetric_trees: at most 2**31 leaves can be stacked, not {leaves:,}.")
        whole = [integer_leaves(each.values, _first_leaf(each.depth)) for each in operations]
        return cls(
            np.concatenate([each.feature for each in operations]),
            np.concatenate([each.threshold for each in operations]),
            np.concatenate([each.missing for each in operations]),
            np.concatenate([each.asked + np.int32(q) for each, q in zip(operations, questions, strict=False)]),
            np.concatenate([each.depth for each in operations]),
            trees.astype(np.int32),
            np.concatenate([held.T for held, _ in whole], axis=1),
            np.stack([unit for _, unit in whole]),
            np.stack([each.baseline for each in operations]),
            operations[0].function,
            start,
        )

    @property
    def members(self) -> int:
        return len(self.first_tree) - 1

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        first_tree, trees = self.first_tree, len(self.depth)
        if first_tree.dtype != np.int32 or first_tree[0] != 0 or first_tree[-1] != trees or self._trees.min() < 1:
            raise PlanError(f"stacked_symmetric_trees: first_tree must be int32 and ascend from 0 to {trees}.")
        outputs, leaves = self.leaves.shape
        if self.leaves.dtype != np.int64 or {self.unit.shape, self.baseline.shape} != {(self.members, outputs)}:
            raise PlanError("stacked_symmetric_trees: leaves must be int64, unit and baseline [members, outputs].")
        values = np.broadcast_to(0.0, (leaves, outputs))
        fields = (self.feature, self.threshold, self.missing, self.asked, self.depth)
        SymmetricTrees(*fields, values, self.baseline[0], self.function).check(widths[0])

    def output_width(self, *widths: int) -> int:
        return len(self.leaves)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the questions of each level, and the leaves."""
        numbers = np.append(2 * self.feature + self.missing, 0).astype(np.int32)
        thresholds = np.append(self.threshold, np.inf).astype(self.threshold.dtype)
        return {"questions": numbers[self._asked], "thresholds": thresholds[self._asked], **self.plain_parameters()}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the leaves, and what becomes of their sums."""
        fields = {name: getattr(self, name) for name in ("first_tree", "leaves", "unit", "baseline")}
        return {**fields, "first_leaf": _first_leaf(self.depth)[:-1]}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        threshold, place = torch.tensor(self.threshold), self.places(inputs[1])
        value = inputs[0].to(threshold.dtype)[:, self.feature]
        answers = torch.where(value.isnan(), torch.tensor(self.missing) > 0, value > threshold)  # [rows, questions]
        total = torch.zeros(len(value), len(self.leaves), dtype=torch.int64)
        asked, first = np.split(self.asked, np.cumsum(self.depth)[:-1]), parameters["first_leaf"]
        for m in place.unique().tolist():
            mine = place == m
            for tree in range(self.first_tree[m], self.first_tree[m + 1]):
                leaf = first[tree] + (answers[mine][:, asked[tree]] * 2 ** torch.arange(len(asked[tree]))).sum(1)
                total[mine] += parameters["leaves"][:, leaf].T
        return FUNCTIONS[self.function](parameters["baseline"][place] + total * parameters["unit"][place])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (feature, threshold, missing, asked), x, place = self._questions, inputs[0], self.places(inputs[1])
        answer = torch.empty(len(x), len(self.leaves), dtype=torch.float64)
        tile = max(min(LANES // int(self._trees.max()), LARGEST_TILE // x.shape[1]), 1)
        for part in place.argsort().split(tile):  # a cache holds a member's trees for all its rows
            own = place.index_select(0, part)
            found = pairs(parameters["first_tree"], own)
            numbers, at = x.index_select(0, part).to(threshold.dtype), found.row * x.shape[1]
            special = bool(numbers.isnan().any())
            leaf = parameters["first_leaf"].index_select(0, found.tree)
            for level, questions in enumerate(asked):
                question = questions.index_select(0, found.tree)
                value = numbers.view(-1).index_select(0, feature.index_select(0, question).add_(at))
                yes = value > threshold.index_select(0, question)
                if special:
                    yes |= missing.index_select(0, question) & value.isnan()
                leaf.add_(yes, alpha=1 << level)
            total = torch.cat([found.sum(held.index_select(0, leaf)[:, None]) for held in parameters["leaves"]], dim=1)
            scale, baseline = (parameters[name].index_select(0, own) for name in ("unit", "baseline"))
            answer[part] = baseline + total * scale
        return apply(FUNCTIONS[self.function], answer)

    def gains_by_order(self) -> bool:
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), (outputs, size), (depth, trees) = inputs, self.leaves.shape, parameters["questions"].shape
        block_rows, block_trees, num_warps = stacked_symmetric_tile(rows, int(self._trees.max()))
        stacked_symmetric_kernel[(triton.cdiv(rows, block_rows), outputs)](
            x=x,
            numbers=numbers,
            **parameters,
            out=output,
            rows=rows,
            first=self.start,
            members=self.members,
            trees=trees,
            size=size,
            FEATURES=x.shape[1],
            DEPTH=depth,
            OUTPUTS=outputs,
            FUNCTION=self.function,
            BLOCK_TREES=block_trees,
            BLOCK_ROWS=block_rows,
            num_warps=num_warps,
        )

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        trees = f"{len(self.depth):,} symmetric trees, up to {self.depth.max()} levels deep"
        return f"{super().describe()}, {trees}" + function_suffix(self.function)

    @functools.cached_property
    def _trees(self) -> np.ndarray:
        """Return the number of trees of each member, `[members]`."""
        return np.diff(self.first_tree)

    @functools.cached_property
    def _asked(self) -> np.ndarray:
        """Return the questions of each level, int32 `[deepest, trees]`; past a tree's last the number of questions."""
        level = np.arange(self.depth.max())[:, None]
        found = np.full((len(level), len(self.depth)), len(self.feature), dtype=np.int32)
        found.T[(level < self.depth).T] = self.asked
        return found

    @functools.cached_property
    def _questions(self) -> tuple[torch.Tensor, ...]:
        """Return the questions' features, thresholds and answers to NaN, and those of each level, for plain torch.

        The last question, whose answer is no, is asked past a tree's last.
        """
        threshold = np.append(self.threshold, np.inf).astype(self.threshold.dtype)
        arrays = (np.append(self.feature, np.int32(0)), threshold, np.append(self.missing > 0, False), self._asked)
        feature, limits, missing, asked = (torch.from_numpy(array) for array in arrays)
        return feature, limits, missing, asked


def _first_leaf(depth: np.ndarray) -> np.ndarray:
    """Return the first leaf of each tree, followed by the number of leaves, int32 `[trees + 1]`."""
    return np.append(np.int32(0), np.cumsum(1 << depth, dtype=np.int32))
