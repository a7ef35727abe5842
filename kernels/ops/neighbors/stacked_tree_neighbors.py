"""Nearest neighbours of the members of a fleet, with each member's own tree choosing among equally near points.

The trees of all members lie one after the other: `order`, int32 `[points of all]`, counts from a member's first point.
`nodes`, int32 `[nodes of all, 3]`, `bounds`, `[2 or 1, nodes of all, features]`, and `radii`, `[nodes of all]` or
`[0]`, hold the nodes of member `m` from `first_node[m]` to below `first_node[m + 1]`. The rest is as in
`stacked_neighbors.py` and `tree_neighbors.py`: a second launch repeats, for each row that is tied, the search of its
member's tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from .distances import transposed
from .launch import LEAF_BLOCK
from .neighbors import Neighbors, store_means
from .stacked_neighbors import StackedNeighbors
from .stacked_search import nearest_of_member, row_of_program
from .top_k import by_index
from .tree_neighbors import TreeNeighbors, store_untied
from .tree_search import SLACK
from .tree_search_kernel import search_tree


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_untied_neighbors_kernel(
    x,  # like the next five and `rows` as in `stacked_neighbors_kernel`
    numbers,
    columns,
    factor,
    first_point,
    targets,
    tied,  # int32 [rows]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    OUTPUTS: tl.constexpr,
    SLACK: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program answers a row as if it were not tied, and writes 1 to `tied` if it may be."""
    METRIC: tl.constexpr = SEARCH.metric
    FOUND: tl.constexpr = SEARCH.neighbors
    row, member = row_of_program(numbers, rows, first, members)
    best, chosen = nearest_of_member(x, columns, factor, first_point, row, member, rows, SEARCH)
    own = targets + tl.load(first_point + member) * OUTPUTS
    store_untied(best, chosen, own, tied, out, row, rows, OUTPUTS, SLACK, METRIC, FOUND, BY_DISTANCE)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_tied_neighbors_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    columns,  # float64 [FEATURES, POINTS], the points of each member in its tree's order
    order,  # int32 [POINTS]
    nodes,  # int32 [NODES, 3]
    bounds,  # float64 [2, NODES, FEATURES] or [1, NODES, FEATURES]
    radii,  # float64 [NODES], of ball trees
    factor,  # float64 [members, FEATURES], ones
    first_point,  # int64 [members + 1]
    first_node,  # int64 [members + 1]
    targets,  # float64 [POINTS, OUTPUTS]
    tied,  # int32 [rows]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NODES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    BALLS: tl.constexpr,
    METRIC: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK_LEAF: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program answers one row if it is tied."""
    here, member = row_of_program(numbers, rows, first, members)
    row = tl.program_id(0).to(tl.int64)
    if tl.load(tied + row) != 0:
        point, node = tl.load(first_point + member), tl.load(first_node + member)
        heap, held = search_tree(
            x, columns + point, order + point, nodes + 3 * node, bounds + node * FEATURES, radii + node,
            factor + member * FEATURES, row, FEATURES=FEATURES, POINTS=POINTS, NODES=NODES,
            NEIGHBORS=NEIGHBORS, BALLS=BALLS, METRIC=METRIC, SLOTS=SLOTS, BLOCK_LEAF=BLOCK_LEAF, UNROLL=UNROLL,
        )  # fmt: skip
        best, chosen = by_index(heap[None, :], held[None, :], tl.arange(0, SLOTS)[None, :], NEIGHBORS)
        real = tl.arange(0, SLOTS)[None, :] < NEIGHBORS
        own = targets + point * OUTPUTS
        store_means(best, chosen, real, own, out, here, rows, OUTPUTS, METRIC, BY_DISTANCE)


@dataclass(frozen=True, eq=False, kw_only=True)
class StackedTreeNeighbors(StackedNeighbors):
    """The mean of the nearest points' targets for each member, with a tree for each."""

    order: np.ndarray
    nodes: np.ndarray
    first_node: np.ndarray
    bounds: np.ndarray
    radii: np.ndarray

    @classmethod
    def alike(cls, operation: Neighbors) -> Hashable | None:
        assert isinstance(operation, TreeNeighbors)
        key = super().alike(operation)
        return None if key is None else (key, len(operation.bounds))

    @classmethod
    def fields_of(cls, operations: Sequence[Neighbors]) -> dict[str, Any]:
        trees = [each for each in operations if isinstance(each, TreeNeighbors)]
        return {
            **super().fields_of(operations),
            "order": np.concatenate([each.order for each in trees]),
            "nodes": np.concatenate([each.nodes for each in trees]),
            "first_node": np.concatenate([[0], np.cumsum([len(each.nodes) for each in trees])]).astype(np.int64),
            "bounds": np.concatenate([each.bounds for each in trees], axis=1),
            "radii": np.concatenate([each.radii for each in trees]),
        }

    def check(self, *widths: int) -> None:
        first, nodes = self.first_node, len(self.nodes)
        whole = len(first) == self.members + 1 and first[0] == 0 and (np.diff(first) > 0).all() and first[-1] == nodes
        if not whole or self.bounds.shape[1] != nodes or len(self.order) != len(self.points):
            raise PlanError("stacked_tree_neighbors: first_node must count the nodes and their bounds of each member.")
        super().check(*widths)

    def member(self, place: int) -> TreeNeighbors:
        points = slice(self.first_point[place], self.first_point[place + 1])
        nodes = slice(self.first_node[place], self.first_node[place + 1])
        tree: dict[str, Any] = {"nodes": self.nodes[nodes], "bounds": self.bounds[:, nodes], "radii": self.radii[nodes]}
        return TreeNeighbors(**self.member_fields(place), order=self.order[points], **tree)

    def parameters(self) -> dict[str, np.ndarray]:
        begin = np.repeat(self.first_point[:-1], np.diff(self.first_point))
        return {
            **super().parameters(),
            "tree_columns": transposed(self.points[begin + self.order]),
            **{name: getattr(self, name) for name in ("order", "nodes", "first_node", "bounds")},
            "radii": self.radii if len(self.radii) else np.zeros(1),
        }

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        tied = torch.empty(rows, dtype=torch.int32, device=inputs[0].device)
        arguments = self.search_arguments(parameters, inputs, output, rows)
        stacked_untied_neighbors_kernel[(rows,)](tied=tied, SLACK=SLACK, **arguments)
        searched = ("SEARCH", "num_warps", "columns")
        stacked_tied_neighbors_kernel[(rows,)](
            **{name: value for name, value in arguments.items() if name not in searched},
            columns=parameters["tree_columns"],
            **{name: parameters[name] for name in ("order", "nodes", "first_node", "bounds", "radii")},
            tied=tied,
            FEATURES=self.points.shape[1],
            POINTS=len(self.points),
            NODES=len(self.nodes),
            NEIGHBORS=self.n_neighbors,
            BALLS=len(self.bounds) == 1,
            METRIC=self._one.search.kernel_metric,
            SLOTS=triton.next_power_of_2(self.n_neighbors),
            **LEAF_BLOCK,
            enable_fp_fusion=False,  # so that a distance has scikit-learn's bits
        )

    def launches(self, inputs: int) -> int:
        return 2

    def describe(self) -> str:
        kind = "ball tree" if len(self.bounds) == 1 else "kd-tree"
        return f"{super().describe()}, equally near ones as a {kind} takes them"
