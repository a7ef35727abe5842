"""Tree ensemble: `out[r] = f((baseline + Σₜ values[leaf(t, r)]) / divisor)`, or each tree's own leaf side by side.

`x`: `[rows, features]`; `out`: `[rows, outputs]` for the output "sum", `[rows, trees · outputs]` for "each" (a tree's
own `values`, tree by tree) and `[rows, leaves]` for "leaves" (1 in the columns of the leaves that a row reaches); both
float32 or float64. The output "ordered" is a sum in float32, see `float32_sum.py`.

A node sends a row to the left if `x[feature] ≤ threshold`, or if the category in `x[feature]` is in the node's set. A
flag of the node says where NaN goes. Thresholds in float32 are compared with `x` rounded to float32, as `sklearn.tree`
does, and thresholds in float64 with `x` itself, as HistGradientBoosting does.

A set is a row of bits. Its last bit is for every number that is not a category; the categories are the whole numbers
from 0 to below that bit's index. Other numbers are rounded first, towards 0 or, with `rounding` "floor", down, so that
−0.5 is not a category.

Leaf values are summed as integers, multiples of one unit for each output, chosen so that the largest possible sum is
below 2⁶². The only loss is the rounding of each leaf to a unit, which is less than the loss of a float64 sum. Integers
have the same sum in any order. The tiling of rows and trees, which does follow the number of rows, therefore cannot
change an answer. Trees in groups have a unit for each group, and a group's sum has the bits of the group alone.

A node is one int64, so that a visit is one load. High half: distance to the left child (0 at a leaf; the right child is
next to it), feature, and two flags. Low half: the float32 threshold, the number of a category set, or a leaf's number.
Wide nodes, for float64 thresholds and for features and distances that do not fit 29 bits together, have the feature in
the low half and the threshold in a separate array.

Rows without missing numbers, in ensembles of narrow nodes without categories, descend nodes without flags: quads
(`two_level_nodes.py`) or plain nodes (`pack_plain` in `nodes.py`). Their leaves hold their integers themselves. All
forms of nodes make the same decisions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .cpu_descent import Descent
from .cpu_quickscorer import Cells, build_cells
from .float32_sum import check_ordered, fill_groups, launch_ordered, leaf_bits, ordered_sum
from .integer_sum import launch_sum
from .launch import LEAVES_BLOCK, MOST_PLAIN, tree_tile
from .nodes import (
    ROUNDINGS,
    check_trees,
    depths,
    descend_rows,
    integer_leaves,
    leaf_starts,
    node_layout,
    pack_nodes,
    pack_plain,
)
from .traverse import NO_TREE, descend, rows_of_lanes
from .two_level_nodes import Quads, pack_quads

LANES = 2**15
"""Leaf values that a CPU looks up at a time."""

LARGEST_TILE = 2**22
"""The most numbers of the rows of such a tile."""


@triton.jit(do_not_specialize=["rows", "first", "members"])
def tree_each_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [TREES]; this and the next are those of all members where STACKED
    depths,  # int32 [TREES], the depth of the deepest tree so far
    first_tree,  # int32 [members + 1] where STACKED, the first tree of each member, then the number of trees
    values,  # float64 [leaves, OUTPUTS]
    out,  # float32 or float64 [rows, TREES * OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    TREES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """Write each tree's own values. A program makes `BLOCK_ROWS` rows of `BLOCK_TREES` trees, all outputs.

    Where STACKED, rows of members with fewer than `TREES` trees get `NO_TREE` in place of the rest.
    """
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    tree = tl.program_id(1) * BLOCK_TREES + lane // BLOCK_ROWS
    inside = (tree < TREES) & (row < rows)
    real = inside
    last = tl.minimum((tl.program_id(1) + 1) * BLOCK_TREES, TREES) - 1
    root = roots + tree
    if STACKED:
        place = member_places(numbers, row, row < rows, first, members)
        begin = tl.load(first_tree + place)
        end = tl.load(first_tree + place + 1)
        root += begin
        real &= tree < end - begin
        levels = tl.max(tl.load(depths + tl.minimum(begin + last, end - 1)), axis=0)
    else:
        levels = tl.load(depths + last)
    table, swizzle, _ = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    leaf = descend(
        x, table, swizzle, row, nodes, thresholds, sets, tl.load(root, mask=real, other=0), levels, real,
        FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
        WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    column = (row * TREES + tree) * OUTPUTS
    for start in tl.range(0, OUTPUTS, BLOCK_OUTPUTS):
        output = start + tl.arange(0, BLOCK_OUTPUTS)
        mask = inside[:, None] & (output < OUTPUTS)[None, :]
        held = mask & real[:, None]
        value = tl.load(values + leaf.to(tl.int64)[:, None] * OUTPUTS + output[None, :], mask=held, other=0.0)
        value = tl.where(real[:, None], value, NO_TREE)
        tl.store(out + column[:, None] + output[None, :], value.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def tree_leaves_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [trees]
    depths,  # int32 [trees], the depth of the deepest tree so far
    first_leaf,  # int32 [trees + 1]
    out,  # float32 or float64 [rows, LEAVES]
    rows,
    FEATURES: tl.constexpr,
    LEAVES: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_LEAVES: tl.constexpr,
):
    """Write 1 for the leaves that a row reaches, 0 for others. A program does `BLOCK_ROWS` rows of one tree."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    tree = tl.program_id(1)
    leaf = descend(
        x, None, None, row, nodes, thresholds, sets, tl.load(roots + tree) + 0 * row.to(tl.int32),
        tl.load(depths + tree), row < rows,
        FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
        WIDTH=None, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    last = tl.load(first_leaf + tree + 1)
    for start in tl.range(tl.load(first_leaf + tree), last, BLOCK_LEAVES):
        column = start + tl.arange(0, BLOCK_LEAVES)
        value = tl.where(leaf[:, None] == column[None, :], 1.0, 0.0)
        mask = (row < rows)[:, None] & (column < last)[None, :]
        tl.store(out + row[:, None] * LEAVES + column[None, :], value.to(out.dtype.element_ty), mask=mask)


def launch_each(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    layout: Mapping[str, Any],
    trees: int,
    members: Mapping[str, Any],
) -> None:
    """Launch the kernel that writes each tree's own values.

    Args:
        parameters: the tables of the kernel.
        x: `[rows, features]`.
        output: `[rows, trees · outputs]`.
        rows: the number of rows.
        layout: the layout of nodes, as constants of the kernel.
        trees: the most trees of a row.
        members: says how the kernel finds each row's trees.
    """
    outputs, nodes = parameters["values"].shape[1], parameters["nodes"]
    number = members["members"]
    tile = tree_tile(rows, trees, outputs, x.shape[1], len(nodes), False, nodes.device, ensembles=number)
    tree_each_kernel[(triton.cdiv(rows, tile.block_rows), triton.cdiv(trees, tile.block_trees))](
        x=x,
        **parameters,
        **members,
        out=output,
        rows=rows,
        **layout,
        TREES=trees,
        OUTPUTS=outputs,
        WIDTH=tile.width,
        BLOCK_TREES=tile.block_trees,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_OUTPUTS=tile.block_outputs,
        num_warps=tile.num_warps,
    )


@dataclass(frozen=True, eq=False)
class TreeEnsemble(Operation):
    """Decision trees; the values of their leaves are summed, side by side, or replaced by indicators.

    A tree's nodes follow each other from its root, children after their parent and the right child after the left one.
    For the sum, trees of similar depth should be neighbours, since they descend together.

    The output "ordered" adds one tree after the other, in the order of `roots`. Trees may come in groups, each with its
    own outputs: `G` groups of trees whose leaves hold `W` numbers give `G · W` outputs. Sums in groups have `W` = 1.
    """

    OUTPUTS = ("sum", "ordered", "each", "leaves")

    feature: np.ndarray  # int32 [nodes], −1 at a leaf
    threshold: np.ndarray  # float32 or float64 [nodes]; at a categorical node the row of `sets`
    child: np.ndarray  # int32 [nodes], the left child; at a leaf the row of `values`
    flags: np.ndarray  # uint8 [nodes], MISSING_LEFT and CATEGORICAL
    sets: np.ndarray  # int32 [sets, words], bit c of a row: category c goes to the left; last bit: no category
    roots: np.ndarray  # int32 [trees]
    values: np.ndarray  # float64 [leaves, outputs]; where ordered float32 [leaves, W]
    baseline: np.ndarray  # float64 [outputs]; where ordered float32
    divisor: float = 1.0
    function: str = "identity"
    output: str = "sum"
    rounding: str = "trunc"
    starts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """The first tree of each group, then the number of trees, int32 `[groups + 1]`.

    It is empty if the output is neither "ordered" nor a sum in groups.
    """

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_function(self.function)
        if self.output not in self.OUTPUTS:
            raise PlanError(f"tree_ensemble: output must be one of {self.OUTPUTS}, not {self.output!r}.")
        if self.rounding not in ROUNDINGS:
            raise PlanError(f"tree_ensemble: rounding must be one of {ROUNDINGS}, not {self.rounding!r}.")
        if self.output == "leaves" and (np.diff(self.roots) < 0).any():
            raise PlanError("tree_ensemble: roots must ascend where the output is 'leaves'.")
        if self.output == "ordered":
            check_ordered(self.values, self.baseline, self.starts, len(self.roots), self.divisor)
        elif len(self.starts):
            self._check_groups()
        groups = max(len(self.starts) - 1, 1)
        if self.values.ndim != 2 or self.baseline.shape != (groups * self.values.shape[1],):
            raise PlanError("tree_ensemble: values must be [leaves, outputs / groups], and baseline [outputs].")
        check_trees(self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, features)
        if len(self.values) != np.count_nonzero(self.feature < 0):
            raise PlanError("tree_ensemble: values must have a row for each node whose feature is -1.")

    def _check_groups(self) -> None:
        """Raise `PlanError` unless the trees of a sum fit their groups."""
        starts, trees = self.starts, len(self.roots)
        if self.output != "sum" or self.values.shape[1:] != (1,):
            raise PlanError(
                "tree_ensemble: starts must be empty unless the output is 'ordered', or a sum of one number."
            )
        if starts.dtype != np.int32 or starts.ndim != 1 or starts[0] != 0 or starts[-1] != trees:
            raise PlanError(f"tree_ensemble: starts must be int32 [groups + 1], from 0 to {trees}.")
        if (np.diff(starts) < 1).any():
            raise PlanError("tree_ensemble: starts must ascend where the output is 'sum'.")
        first, last = (extreme.reduceat(self.roots, starts[:-1]) for extreme in (np.minimum, np.maximum))
        if (first[1:] <= last[:-1]).any():
            raise PlanError("tree_ensemble: roots of a group must come after those of the group before.")

    def group_sizes(self) -> list[int]:
        """Return the number of trees of each group; without groups all trees are one."""
        return [end - first for first, end in self._groups]

    def output_width(self, *widths: int) -> int:
        return self._width

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the packed nodes, and the leaves in the form of the output."""
        wide, feature_bits = self._layout
        depth, order = depths(self.feature, self.child, self.roots), np.arange(len(self.roots))
        if self.output == "ordered":
            order = np.argsort(depth, kind="stable")
        roots, groups = self.roots[order], self._groups if self.output == "sum" else [(0, len(order))]
        found = {
            "nodes": pack_nodes(self.feature, self.threshold, self.child, self.flags, wide, feature_bits),
            "thresholds": self.threshold if wide else self.threshold[:0],
            "sets": self.sets,
            "roots": roots,
            "depths": np.concatenate([np.maximum.accumulate(depth[order[first:end]]) for first, end in groups]),
        }
        starts = leaf_starts(self.feature, self.roots)
        if self.output == "each":
            return found | self.plain_parameters()
        if self.output == "leaves":
            return found | {"first_leaf": starts}
        sums = self.plain_parameters()
        leaves = sums["leaves"]
        held = leaves[:, 0].astype(np.int64, copy=False) if leaves.shape[1] == 1 else np.arange(len(leaves))
        plain, quads = np.zeros(0, dtype=np.int64), Quads.none()
        if not wide and not len(self.sets):
            quads = pack_quads(self.feature, self.threshold, self.child, roots, held) or quads
            if len(self.feature) <= MOST_PLAIN * len(groups):
                plain = pack_plain(self.feature, self.threshold, self.child, held)
        found |= fill_groups(self.starts, order) if self.output == "ordered" else {"first_tree": self.starts}
        return found | {"plain": plain, "quads": quads.words, "quad_roots": quads.roots} | sums

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the leaves in the form of the output."""
        if self.output == "sum":
            first = leaf_starts(self.feature, self.roots)
            parts = [
                integer_leaves(self.values[first[start] : first[end]], first[start : end + 1] - first[start])
                for start, end in self._groups
            ]
            leaves, unit = (np.concatenate(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True))
            return {"leaves": leaves, "unit": unit, "baseline": self.baseline}
        if self.output == "ordered":
            return {"leaves": leaf_bits(self.values), "starts": self.starts, "baseline": self.baseline}
        return {"values": self.values} if self.output == "each" else {}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        leaf = descend_rows(
            inputs[0], self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, self.rounding
        )  # [rows, trees]
        if self.output == "each":
            return parameters["values"][leaf].flatten(1)
        if self.output == "leaves":
            return torch.zeros(len(leaf), self._width, dtype=torch.float64).scatter_(1, leaf, 1.0)
        if self.output == "sum":
            held = parameters["leaves"][leaf]  # [rows, trees, outputs / groups]
            total = torch.cat([held[:, first:end].sum(1) for first, end in self._groups], dim=1)
            return FUNCTIONS[self.function]((parameters["baseline"] + total * parameters["unit"]) / self.divisor)
        values = torch.tensor(self.values)
        total = torch.tensor(self.baseline).view(-1, values.shape[1]).repeat(len(leaf), 1, 1)  # [rows, groups, W]
        for group, (first, end) in enumerate(itertools.pairwise(self.starts.tolist())):
            for tree in range(first, end):
                total[:, group] += values[leaf[:, tree]]
        return FUNCTIONS[self.function](total.flatten(1).double())

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        trees, outputs = len(self.roots), self.values.shape[1]
        dtype = torch.float32 if self.threshold.dtype == np.float32 else torch.float64
        answer = torch.empty(len(x), self._width, dtype=torch.float64)
        tile = max(min(LANES // (trees * max(outputs, 1)), LARGEST_TILE // x.shape[1]), 1)
        for part, out in zip(x.split(tile), answer.split(tile), strict=True):
            leaf = self._find_leaves(part.to(dtype))  # [trees · rows]
            if self.output == "sum":
                held = parameters["leaves"].index_select(0, leaf).view(trees, len(part), outputs)
                sums = [held[first:end].sum(0) for first, end in self._groups]
                total = sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)
                y = (parameters["baseline"] + total * parameters["unit"]) / self.divisor
                out.copy_(apply(FUNCTIONS[self.function], y))
            elif self.output == "ordered":
                y = ordered_sum(leaf, parameters, len(part)).double()
                out.copy_(apply(FUNCTIONS[self.function], y))
            elif self.output == "each":
                values = parameters["values"].index_select(0, leaf).view(trees, len(part), outputs)
                out.view(len(part), trees, outputs).copy_(values.transpose(0, 1))
            else:
                out.zero_().scatter_(1, leaf.view(trees, len(part)).T.long(), 1.0)
        return answer

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), trees, leaves, (wide, bits) = inputs, len(self.roots), len(self.values), self._layout
        values = {"x": x, **parameters, "out": output, "rows": rows}
        layout = {
            "FEATURES": x.shape[1],
            "FEATURE_BITS": bits,
            "WIDE": wide,
            "WORDS": self.sets.shape[1] if len(self.sets) else 0,
            "FLOOR": self.rounding == "floor",
        }
        if self.output == "ordered":
            launch_ordered(parameters, x, output, rows, layout, self.function)
            return
        if self.output == "leaves":
            grid = (triton.cdiv(rows, LEAVES_BLOCK["BLOCK_ROWS"]), trees)
            tree_leaves_kernel[grid](**values, LEAVES=leaves, **layout, **LEAVES_BLOCK)
            return
        if self.output == "sum":
            largest = max(end - first for first, end in self._groups)
            launch_sum(parameters, x, output, rows, layout, largest, self.divisor, self.function)
            return
        launch_each({"first_tree": x, **parameters}, x, output, rows, layout, trees, one_member(x))

    def launches(self, inputs: int) -> int:
        return 2 if self.output == "ordered" else 1

    def writes_rows_whole(self) -> bool:
        return self.output == "sum" and len(self._groups) == 1

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        what = {"sum": "summed", "ordered": "summed in order", "each": "side by side", "leaves": "as leaf indicators"}[
            self.output
        ]
        what += f" in {len(self._groups)} groups" if self.output == "sum" and len(self._groups) > 1 else ""
        return f"{len(self.roots)} trees of {len(self.feature)} nodes {what}" + function_suffix(self.function)

    @functools.cached_property
    def _tables(self) -> Sequence[Cells | Descent]:
        """Return the objects with which plain torch finds leaves, each for some of the trees, in their order."""
        trees = (self.feature, self.threshold, self.child, self.flags, self.sets, self.roots, self.rounding)
        return build_cells(*trees) or [Descent(*trees)]

    def _find_leaves(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`."""
        parts = [table.find_leaves(x) for table in self._tables]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @functools.cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """Return the first tree of each group and the end of its trees; without groups all trees are one."""
        return list(itertools.pairwise(self.starts.tolist())) or [(0, len(self.roots))]

    @functools.cached_property
    def _layout(self) -> tuple[bool, int]:
        return node_layout(self.feature, self.threshold, self.child)

    @property
    def _width(self) -> int:
        leaves, outputs = self.values.shape
        return {"each": len(self.roots) * outputs, "leaves": leaves}.get(self.output, len(self.baseline))
