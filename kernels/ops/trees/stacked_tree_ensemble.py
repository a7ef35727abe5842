"""Tree ensembles of the members of a fleet: `out[r] = f((baseline[m] + Σₜ leaf(t, r) · unit[m]) / divisor[m])`.

`m` is the place of row r's member, whose trees are `first_tree[m]` to below `first_tree[m + 1]`. `x`: `[rows,
features]`; `out`: `[rows, outputs]`; both float32 or float64. The nodes are those of `tree_ensemble.py`, of all members
one after the other, and `child`, `roots` and the numbers of sets count over all members. Where a member's trees come in
`G` groups with outputs of their own, those of group g are `first_tree[m · G + g]` to below `first_tree[m · G + g + 1]`.

`leaf(t, r)` is an integer, a multiple of the member's unit. The output "ordered" has leaves in float32, and a sum in
float32 of the baseline and one tree after the other (`float32_sum.py`). The output "each" is `[rows, trees · outputs]`,
the leaves' own numbers, float64; a row of a member with fewer trees than others has `NO_TREE` in place of the rest.

Members with sets of different sizes get the largest size: the categories that a set did not know go where its last bit
says.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...cpu.ordered_sum import add_in_order
from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...plan.plan import Parameters
from ...plan.stacked import Stacked
from .cpu_descent import Descent
from .cpu_member_trees import pairs
from .launch import MOST_PLAIN
from .nodes import (
    CATEGORICAL,
    ROUNDINGS,
    check_trees,
    depths,
    descend_rows,
    node_layout,
    pack_nodes,
    pack_plain,
)
from .stacked_float32_sum import launch_stacked_ordered, sum_places, with_baselines
from .stacked_sum import launch_stacked_sum
from .traverse import NO_TREE
from .tree_ensemble import TreeEnsemble, launch_each
from .two_level_nodes import Quads, pack_quads

LANES = 2**15
"""Trees of rows that a CPU descends at a time."""

LARGEST_TILE = 2**22
"""The most numbers of the rows of such a tile."""

MOST_QUADS = 2**23
"""The most nodes for which quads are packed, which take three times the memory of nodes: about 100 MB."""

FEW_WORDS = 8
"""Members whose sets are at most this wide are stacked with each other, and with members that have none."""


@dataclass(frozen=True, eq=False)
class StackedTreeEnsemble(Stacked[TreeEnsemble]):
    """Sums of decision trees for each member; members differ in their numbers of trees, nodes, leaves and sets."""

    OUTPUTS: ClassVar = {
        "sum": (np.int64, np.float64),
        "ordered": (np.float32, np.float32),
        "each": (np.float64, np.float64),
    }
    """The types of leaves and baselines for each output."""

    feature: np.ndarray  # int32 [nodes], −1 at a leaf
    threshold: np.ndarray  # float32 or float64 [nodes]; at a categorical node the row of `sets`
    child: np.ndarray  # int32 [nodes], the left child; at a leaf the row of `leaves`
    flags: np.ndarray  # uint8 [nodes], MISSING_LEFT and CATEGORICAL
    sets: np.ndarray  # int32 [sets, words]
    roots: np.ndarray  # int32 [trees]
    first_tree: np.ndarray  # int32 [members · groups + 1], the first tree of each group, then the number of trees
    leaves: np.ndarray  # int64 [leaves, outputs / groups]; for "each" float64, where ordered float32
    unit: np.ndarray  # float64 [members, outputs]; 1 unless summed
    baseline: np.ndarray  # float64 [members, outputs]; where ordered float32
    divisor: np.ndarray  # float64 [members]; 1 where ordered
    output: str = "sum"
    function: str = "identity"
    rounding: str = "trunc"
    start: int = 0

    @classmethod
    def alike(cls, operation: TreeEnsemble) -> Hashable | None:
        sizes = operation.group_sizes()
        if operation.output == "leaves" or min(sizes) < 1:
            return None
        words = operation.sets.shape[1] if len(operation.sets) else 0
        of_words = 0 if words <= FEW_WORDS else (words - 1).bit_length()
        kind = (operation.values.shape[1], len(sizes), operation.threshold.dtype.str, of_words)
        return (*kind, operation.output, operation.function, operation.rounding)

    @classmethod
    def of(cls, operations: Sequence[TreeEnsemble], start: int = 0) -> StackedTreeEnsemble:
        first_node = _offsets([len(each.feature) for each in operations])
        first_leaf = _offsets([len(each.values) for each in operations])
        first_set = _offsets([len(each.sets) for each in operations])
        if max(first_node[-1], first_leaf[-1]) >= 2**31:
            raise PlanError(f"stacked_tree_ensemble: at most 2**31 nodes can be stacked, not {first_node[-1]:,}.")
        words = max([each.sets.shape[1] for each in operations if len(each.sets)], default=1)
        output = operations[0].output
        children, thresholds, whole = [], [], []
        for each, node, leaf, number in zip(operations, first_node, first_leaf, first_set, strict=False):
            inner = each.feature >= 0
            children.append(each.child + np.where(inner, node, leaf).astype(np.int32))
            threshold = each.threshold.copy()
            threshold[inner & (each.flags & CATEGORICAL > 0)] += number
            thresholds.append(threshold)
            if output == "sum":
                found = each.plain_parameters()
                whole.append((found["leaves"], found["unit"]))
            else:
                whole.append((each.values, np.ones(len(each.baseline))))
        return cls(
            np.concatenate([each.feature for each in operations]),
            np.concatenate(thresholds),
            np.concatenate(children),
            np.concatenate([each.flags for each in operations]),
            np.concatenate([_widened(each.sets, words) for each in operations]),
            np.concatenate([each.roots + np.int32(node) for each, node in zip(operations, first_node, strict=False)]),
            _offsets(np.concatenate([each.group_sizes() for each in operations])).astype(np.int32),
            np.concatenate([leaves for leaves, _ in whole]),
            np.stack([unit for _, unit in whole]),
            np.stack([each.baseline for each in operations]),
            np.array([each.divisor for each in operations], dtype=np.float64),
            output,
            operations[0].function,
            operations[0].rounding,
            start,
        )

    @property
    def members(self) -> int:
        return len(self.unit)

    @property
    def groups(self) -> int:
        """The number of groups of a member's trees."""
        return (len(self.first_tree) - 1) // self.members

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        check_function(self.function)
        if self.output not in self.OUTPUTS:
            raise PlanError(f"stacked_tree_ensemble: output must be one of {(*self.OUTPUTS,)}, not {self.output!r}.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"stacked_tree_ensemble: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        first_tree, trees, groups = self.first_tree, len(self.roots), self.groups
        if first_tree.dtype != np.int32 or first_tree[0] != 0 or first_tree[-1] != trees or self._trees.min() < 1:
            raise PlanError(f"stacked_tree_ensemble: first_tree must be int32 and ascend from 0 to {trees}.")
        if len(first_tree) != self.members * groups + 1:
            raise PlanError(f"stacked_tree_ensemble: first_tree must be [members · groups + 1], not {len(first_tree)}.")
        check_trees(self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, widths[0])
        leaves, outputs = np.count_nonzero(self.feature < 0), self.unit.shape[-1]
        of_leaves, of_baseline = self.OUTPUTS[self.output]
        if self.leaves.dtype != of_leaves or self.leaves.shape != (leaves, outputs // groups) or outputs % groups:
            raise PlanError(f"stacked_tree_ensemble: leaves must be {of_leaves.__name__} [{leaves}, outputs / groups].")
        if self.baseline.dtype != of_baseline:
            raise PlanError("stacked_tree_ensemble: baseline must be float64, or float32 where ordered.")
        if groups > 1 and self.output != "ordered" and (self.output == "each" or outputs != groups):
            raise PlanError(
                "stacked_tree_ensemble: there must be no groups where the output is 'each', or a sum of several."
            )
        if {self.unit.shape, self.baseline.shape} != {(self.members, outputs)} or self.divisor.shape != (self.members,):
            raise PlanError(
                "stacked_tree_ensemble: unit and baseline must be [members, outputs], and divisor [members]."
            )

    def output_width(self, *widths: int) -> int:
        return self.unit.shape[1] * (int(self._trees.max()) if self.output == "each" else 1)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the packed nodes, and the leaves."""
        (wide, bits), sums = self._layout, self.plain_parameters()
        depth, members = depths(self.feature, self.child, self.roots), self.first_tree[:: self.groups]
        found = {
            "nodes": pack_nodes(self.feature, self.threshold, self.child, self.flags, wide, bits),
            "thresholds": self.threshold if wide else self.threshold[:0],
            "sets": self.sets,
            "roots": self.roots,
        }
        if self.output == "each":
            so_far = [np.maximum.accumulate(own) for own in np.split(depth, members[1:-1])]
            return {**found, "depths": np.concatenate(so_far), **sums}
        leaves, ordered = sums["leaves"], self.output == "ordered"
        held = leaves[:, 0].astype(np.int64, copy=False) if leaves.shape[1] == 1 else np.arange(len(leaves))
        plain, quads, size = np.zeros(0, dtype=np.int64), Quads.none(), len(self.feature)
        if not wide and not len(self.sets) and size <= MOST_QUADS:
            quads = pack_quads(self.feature, self.threshold, self.child, self.roots, held) or quads
            plain = pack_plain(self.feature, self.threshold, self.child, held) if size <= MOST_PLAIN else plain
        return {
            **found,
            "levels": np.maximum.reduceat(depth, members[:-1]),
            "plain": plain,
            "quads": quads.words,
            "quad_roots": quads.roots,
            **sums,
            **(sum_places(int(self._trees.max()), self.groups, self.output_width()) if ordered else {}),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the leaves, and what becomes of their sums."""
        if self.output == "ordered":
            leaves = with_baselines(self.leaves, self.baseline).view(np.int32)  # as kernels read them
            return {"first_tree": self.first_tree, "leaves": leaves, "baseline": self.baseline}
        if self.output == "each":
            return {"first_tree": self.first_tree, "values": self.leaves}
        names = ("first_tree", "leaves", "unit", "baseline", "divisor")
        return {name: getattr(self, name) for name in names}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        groups, leaves = self.groups, torch.tensor(self.leaves)
        for m in place.unique().tolist():
            mine, starts = place == m, self.first_tree[m * groups : (m + 1) * groups + 1]
            leaf = descend_rows(
                x[mine],
                self.feature,
                self.threshold,
                self.child,
                self.flags,
                self.sets,
                self.roots[starts[0] : starts[-1]],
                self.rounding,
            )  # [rows, trees]
            of_groups = [leaves[leaf[:, first:end]] for first, end in itertools.pairwise((starts - starts[0]).tolist())]
            if self.output == "each":
                answer[mine] = NO_TREE.value
                answer[mine.nonzero(), torch.arange(of_groups[0][0].numel())] = of_groups[0].flatten(1)
                continue
            if self.output == "sum":
                total = torch.cat([held.sum(1) for held in of_groups], dim=1)
                y = (parameters["baseline"][m] + total * parameters["unit"][m]) / parameters["divisor"][m]
            else:
                total = parameters["baseline"][m].view(groups, 1, -1).repeat(1, len(leaf), 1)
                for group, held in enumerate(of_groups):
                    for tree in held.transpose(0, 1):
                        total[group] += tree
                y = total.transpose(0, 1).flatten(1)
            answer[mine] = FUNCTIONS[self.function](y.double())
        return answer

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        dtype = torch.float32 if self.threshold.dtype == np.float32 else torch.float64
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        trees, groups = int(self._trees.max()), self.groups
        tile = max(min(LANES // (trees * self.unit.shape[1]), LARGEST_TILE // x.shape[1]), 1)
        of_groups, first_tree = torch.arange(groups), parameters["first_tree"]
        for part in place.argsort().split(tile):  # a cache holds a member's nodes for all its rows
            own = place.index_select(0, part)
            found = pairs(first_tree, (own[:, None] * groups + of_groups).view(-1))  # of sums, row after row
            x_part = x.index_select(0, part).to(dtype)
            row = found.row if groups == 1 else found.row // groups
            leaf = self._descent.find_leaves_of_pairs(x_part, found.tree, row)
            if self.output == "each":
                each = answer.view(len(x), trees, self.unit.shape[1])
                each[part] = NO_TREE.value
                each[part.index_select(0, found.row), found.number] = parameters["values"].index_select(0, leaf)
                continue
            held, baseline = parameters["leaves"].index_select(0, leaf), parameters["baseline"].index_select(0, own)
            if self.output == "sum":
                scale, divisor = (parameters[name].index_select(0, own) for name in ("unit", "divisor"))
                y = (baseline + found.sum(held).view(baseline.shape) * scale) / divisor[:, None]
            else:
                terms = torch.full((trees + 1, len(part) * groups, held.shape[1]), -0.0)
                terms[0] = baseline.view(terms.shape[1:])
                terms[found.number + 1, found.row] = held.view(torch.float32)
                y = add_in_order(terms).view(baseline.shape).double()
            answer[part] = y
        return answer if self.output == "each" else apply(FUNCTIONS[self.function], answer)

    def gains_by_order(self) -> bool:
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), (wide, bits) = inputs, self._layout
        layout = {
            "FEATURES": x.shape[1],
            "FEATURE_BITS": bits,
            "WIDE": wide,
            "WORDS": self.sets.shape[1] if len(self.sets) else 0,
            "FLOOR": self.rounding == "floor",
        }
        given, trees = (parameters, x, numbers, output, rows, self.start, layout), int(self._trees.max())
        if self.output == "each":
            launch_each(parameters, x, output, rows, layout, trees, self.members_of(numbers))
            return
        launch = launch_stacked_ordered if self.output == "ordered" else launch_stacked_sum
        launch(*given, trees, self.function)

    def launches(self, inputs: int) -> int:
        return 2 if self.output == "ordered" else 1

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        what = {"sum": " summed", "ordered": " summed in order", "each": " side by side"}[self.output]
        what += f" in {self.groups} groups" if self.groups > 1 else ""
        trees = f"{len(self.roots):,} trees of {len(self.feature):,} nodes{what}"
        return f"{super().describe()}, {trees}" + function_suffix(self.function)

    @functools.cached_property
    def _trees(self) -> np.ndarray:
        """Return the number of trees of each member, or of each group of its trees."""
        return np.diff(self.first_tree)

    @functools.cached_property
    def _layout(self) -> tuple[bool, int]:
        return node_layout(self.feature, self.threshold, self.child)

    @functools.cached_property
    def _descent(self) -> Descent:
        return Descent(self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, self.rounding)


def _offsets(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the number of things before each member's, and the number of all, int64 `[members + 1]`."""
    return np.append(0, np.cumsum(counts))


def _widened(sets: np.ndarray, words: int) -> np.ndarray:
    """Return sets of `words` words that decide alike: each new bit is the set's last one, that of no category."""
    if not len(sets):
        return np.zeros((0, words), dtype=np.int32)
    added = np.repeat(sets[:, -1:] >> 31, words - sets.shape[1], axis=1)  # the last bit is the sign of the last word
    return np.concatenate([sets, added], axis=1)
