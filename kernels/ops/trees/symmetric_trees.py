"""Symmetric trees: `out[r] = f(baseline + Σₜ values[firstₜ + Σₖ 2ᵏ · answer(asked[t, k], r)])`.

`x`: `[rows, features]`; `out`: `[rows, outputs]`; both float32 or float64.

A symmetric tree, also called oblivious, asks one question on each level, the same at all of the level's nodes. A tree
of depth d is therefore d questions and 2ᵈ leaves (Kohavi, Bottom-up induction of oblivious read-once decision graphs,
ECML 1994; Prokhorenkova et al., CatBoost: unbiased boosting with categorical features, NeurIPS 2018). Question q asks
whether `x[feature[q]] > threshold[q]`, and its answer to NaN is `missing[q]`, 0 or 1. `values` has the trees' leaves
tree by tree, and `asked` has their questions, as many as each is deep; question k gives bit k of the leaf.

Thresholds in float32 are compared with `x` rounded to float32, and thresholds in float64 with `x` itself.

Leaf values are summed as integers, multiples of one unit for each output, chosen so that the largest possible sum is
below 2⁶². The only loss is the rounding of each leaf to a unit, which is less than the loss of a float64 sum. Integers
have the same sum in any order. The sharing of rows and trees among programs, which does follow the number of rows,
therefore cannot change an answer.

Trees may come in groups, each with an output of its own and a unit of its own: a group's sum has the bits of the group
alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...plan.plan import Operation, Parameters
from .border_counts import count_columns
from .nodes import integer_leaves
from .symmetric_sum import launch_symmetric

DEEPEST = 16
"""The most levels of questions of a tree."""

ROWS, LANES = 256, 2**17
"""The most rows, and the most pairs of a row and a tree, that plain torch processes together."""

LARGEST_TILE = 2**22
"""The most numbers of such rows, or answers to questions."""


@dataclass(frozen=True, eq=False)
class SymmetricTrees(Operation):
    """Trees that ask the same question at all nodes of a level; the values of their leaves are summed."""

    feature: np.ndarray  # int32 [questions]
    threshold: np.ndarray  # float32 or float64 [questions]
    missing: np.ndarray  # uint8 [questions], the answer to NaN
    asked: np.ndarray  # int32 [levels], the questions of a tree from its lowest bit on, tree after tree
    depth: np.ndarray  # int32 [trees], the number of questions
    values: np.ndarray  # float64 [leaves, outputs], each tree's 2 to the power of its depth leaves, tree after tree
    baseline: np.ndarray  # float64 [outputs]
    function: str = "identity"
    starts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """The first tree of each group, then the number of trees, int32 `[groups + 1]`; empty if all trees are summed."""

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_function(self.function)
        questions = len(self.feature)
        if {self.feature.shape, self.threshold.shape, self.missing.shape} != {(questions,)}:
            raise PlanError("symmetric_trees: feature, threshold and missing must be [questions].")
        if self.feature.dtype != np.int32 or not _within(self.feature, features):
            raise PlanError(f"symmetric_trees: feature must be int32 in [0, {features}).")
        if self.threshold.dtype not in (np.float32, np.float64) or np.isnan(self.threshold).any():
            raise PlanError("symmetric_trees: threshold must be float32 or float64, and not NaN.")
        if self.missing.dtype != np.uint8 or not _within(self.missing, 2):
            raise PlanError("symmetric_trees: missing must be uint8, 0 or 1.")
        if self.depth.dtype != np.int32 or self.depth.ndim != 1 or not len(self.depth):
            raise PlanError("symmetric_trees: depth must be int32 [trees], at least one.")
        if not _within(self.depth, DEEPEST + 1):
            raise PlanError(f"symmetric_trees: depth must lie in [0, {DEEPEST}].")
        if self.asked.dtype != np.int32 or self.asked.shape != (self.depth.sum(dtype=np.int64),):
            raise PlanError("symmetric_trees: asked must be int32 [levels], as many as the trees' depths are together.")
        if not _within(self.asked, questions):
            raise PlanError(f"symmetric_trees: asked must lie in [0, {questions}).")
        leaves = int((1 << self.depth.astype(np.int64)).sum())
        values = self.values
        if leaves >= 2**31 or values.ndim != 2 or len(values) != leaves or values.dtype != np.float64:
            raise PlanError(f"symmetric_trees: values must be float64 [{leaves}, outputs], fewer than 2**31 rows.")
        if not np.isfinite(values).all():
            raise PlanError("symmetric_trees: values must be finite.")
        outputs = values.shape[1]
        if len(self.starts):
            outputs, trees = len(self.starts) - 1, len(self.depth)
            if self.starts.dtype != np.int32 or self.starts.ndim != 1 or values.shape[1] != 1:
                raise PlanError("symmetric_trees: starts must be int32 [groups + 1], where values are [leaves, 1].")
            if self.starts[0] != 0 or self.starts[-1] != trees or (np.diff(self.starts) < 1).any() or not outputs:
                raise PlanError(f"symmetric_trees: starts must ascend from 0 to {trees}.")
        if self.baseline.shape != (outputs,) or self.baseline.dtype != np.float64:
            raise PlanError(f"symmetric_trees: baseline must be float64 [{outputs}].")

    def output_width(self, *widths: int) -> int:
        return len(self.baseline)

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        return ((name, array) for name, array in super().arrays() if name != "starts" or len(array))

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the questions as columns of borders, and the leaves as integers."""
        asked, borders, words = count_columns(self.feature, self.threshold, self.missing)
        return {
            "asked": asked,
            "borders": borders,
            "questions": np.append(words, 0)[self._asked],
            "numbers": np.append(2 * self.feature + self.missing, 0).astype(np.int32)[self._asked],
            "thresholds": np.append(self.threshold, np.inf).astype(self.threshold.dtype)[self._asked],
            **self.plain_parameters(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the leaves as integers, `[outputs / groups, leaves]`, and the start of each tree's leaves."""
        first = np.append(np.int32(0), np.cumsum(1 << self.depth, dtype=np.int32))
        parts = [
            integer_leaves(self.values[first[start] : first[end]], first[start : end + 1] - first[start])
            for start, end in self._groups
        ]
        leaves, unit = (np.concatenate(each) for each in zip(*parts, strict=True))
        return {
            "first_tree": self.starts,
            "first_leaf": first[:-1],
            "leaves": np.ascontiguousarray(leaves.T),
            "unit": unit,
            "baseline": self.baseline,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        threshold = torch.tensor(self.threshold)
        value = inputs[0].to(threshold.dtype)[:, self.feature]
        answers = torch.where(value.isnan(), torch.tensor(self.missing) > 0, value > threshold)  # [rows, questions]
        total = torch.zeros(len(value), len(self.baseline), dtype=torch.int64)
        asked, first = np.split(self.asked, np.cumsum(self.depth)[:-1]), parameters["first_leaf"]
        for group, (start, end) in enumerate(self._groups):
            outputs = slice(group, group + 1) if len(self._groups) > 1 else slice(None)
            for tree in range(start, end):
                leaf = first[tree] + (answers[:, asked[tree]] * 2 ** torch.arange(len(asked[tree]))).sum(1)
                total[:, outputs] += parameters["leaves"][:, leaf].T
        return FUNCTIONS[self.function](parameters["baseline"] + total * parameters["unit"])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), questions = inputs, self._questions
        sums = torch.empty(len(x), len(self.baseline), dtype=torch.int64)
        tile = max(min(ROWS, LARGEST_TILE // max(x.shape[1], len(self.feature), 1)), 1)
        for part, out in zip(x.split(tile), sums.split(tile), strict=True):
            self._add_up(parameters, questions.answers(part.to(questions.threshold.dtype)), out.T)
        return apply(FUNCTIONS[self.function], parameters["baseline"] + sums * parameters["unit"])

    def _add_up(self, parameters: Parameters, answers: torch.Tensor, sums: torch.Tensor) -> None:
        """Fill `[outputs, rows]` with the sums of leaves, for answers `[questions + 1, rows]`, uint8."""
        first, leaves, rows = parameters["first_leaf"], parameters["leaves"], answers.shape[1]
        answers = answers.view(-1) if rows == 1 else answers  # torch selects from a vector faster
        sums.zero_()
        trees, groups = max(LANES // max(rows, 1), 1), self._questions.group.split(max(LANES // max(rows, 1), 1))
        for asked, start, group in zip(
            self._questions.asked.split(trees, dim=1), first.split(trees), groups, strict=True
        ):
            leaf = start.repeat_interleave(rows)
            for level in range(0, len(asked), 8):
                byte = answers.index_select(0, asked[level])
                for bit, question in enumerate(asked[level + 1 : level + 8], 1):
                    byte.add_(answers.index_select(0, question), alpha=1 << bit)
                leaf.add_(byte.view(-1).to(torch.int32), alpha=1 << level)
            if len(self.starts):
                sums.index_add_(0, group, leaves[0].index_select(0, leaf).view(len(start), rows))
                continue
            for total, held in zip(sums, leaves, strict=True):
                total.add_(held.index_select(0, leaf).view(len(start), rows).sum(0))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        largest = max(end - first for first, end in self._groups)
        launch_symmetric(parameters, x, output, rows, largest, self.function)

    def launches(self, inputs: int) -> int:
        return 2

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        trees = f"{len(self.depth)} trees of {len(self.feature)} questions, up to {self.depth.max()} levels deep"
        trees += f", summed in {len(self._groups)} groups" if len(self._groups) > 1 else ""
        return trees + function_suffix(self.function)

    @functools.cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """Return the first tree of each group and the end of its trees; without groups all trees are one."""
        return list(itertools.pairwise(self.starts.tolist())) or [(0, len(self.depth))]

    @functools.cached_property
    def _questions(self) -> _Questions:
        """Return the questions as plain torch needs them."""
        missing = torch.from_numpy(self.missing > 0)[:, None]
        threshold = torch.from_numpy(np.require(self.threshold, requirements="W"))[:, None]
        asked = torch.from_numpy(self._asked)
        group = torch.repeat_interleave(torch.tensor([end - first for first, end in self._groups]))
        return _Questions(torch.from_numpy(self.feature.astype(np.int64)), threshold, missing, asked, group)

    @functools.cached_property
    def _asked(self) -> np.ndarray:
        """Return the questions of each level, int32 `[deepest, trees]`; past a tree's last the number of questions."""
        level = np.arange(self.depth.max())[:, None]
        found = np.full((len(level), len(self.depth)), len(self.feature), dtype=np.int32)
        found.T[(level < self.depth).T] = self.asked
        return found


class _Questions(NamedTuple):
    """The questions as plain torch answers them, `[questions]` or `[questions, 1]` each."""

    feature: torch.Tensor
    threshold: torch.Tensor
    missing: torch.Tensor  # whether the answer to NaN is yes
    asked: torch.Tensor  # the questions of each level, int32 [deepest, trees]
    group: torch.Tensor  # of each tree, int64 [trees]

    def answers(self, x: torch.Tensor) -> torch.Tensor:
        """Return the answers, uint8 `[questions + 1, rows]`; the last line is all no."""
        columns = x.T.contiguous()
        value = columns.index_select(0, self.feature)
        found = torch.zeros(len(value) + 1, len(x), dtype=torch.bool)
        np.greater(value.numpy(), self.threshold.numpy(), out=found.numpy()[:-1])  # takes a third of torch's time
        if columns.isnan().any():
            found[:-1] |= self.missing & value.isnan()
        return found.view(torch.uint8)


def _within(numbers: np.ndarray, end: int) -> bool:
    """Return whether all numbers are in [0, end)."""
    return bool(((numbers >= 0) & (numbers < end)).all())
