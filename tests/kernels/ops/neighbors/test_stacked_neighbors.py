"""Stacked searches of neighbours: rows whose points are equally near, many points, and what cannot be stacked."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_on_cpu
from tests.kernels.operations_neighbors import neighbors, tree_neighbors
from tests.kernels.operations_stacked import stacked
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.neighbors.launch import FEW_ROWS, MOST_VISITED
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.stacked_neighbors import StackedNeighbors
from triton_regressors.kernels.ops.neighbors.stacked_tree_neighbors import StackedTreeNeighbors


@pytest.mark.parametrize("balls", [False, True])
def test_each_members_own_tree_chooses_among_equally_near_points(device: torch.device, balls: bool) -> None:
    members = [tree_neighbors(2, points, 3, seed=points, balls=balls, numbers=3) for points in (30, 13, 20)]
    rng = np.random.default_rng(0)
    x, numbers = rng.integers(0, 3, (60, 2)).astype(np.float32), rng.integers(0, 3, (60, 1)).astype(np.float32)
    op = stacked(members)
    found, on_cpu, other = run_kernel(op, [x, numbers], device), run_on_cpu(op, [x, numbers]), 0
    for place, member in enumerate(members):
        mine = numbers[:, 0] == place
        assert found[mine].tobytes() == run_kernel(member, [x[mine]], device).tobytes()
        assert on_cpu[mine].tobytes() == run_on_cpu(member, [x[mine]]).tobytes()
        names = [field.name for field in dataclasses.fields(Neighbors)]
        by_index = Neighbors(**{name: getattr(member, name) for name in names})
        other += np.count_nonzero(run_on_cpu(by_index, [x[mine]]) != on_cpu[mine])
    assert other > 10, "the first of equally near points are those of the trees"


@pytest.mark.parametrize("rows", [3, FEW_ROWS + 4])
def test_members_of_several_tiles_give_the_bits_of_searches_by_bounds(device: torch.device, rows: int) -> None:
    members = [neighbors(2, points, 9, weights="distance", seed=points) for points in (2100, 12)]
    rng = np.random.default_rng(1)
    x, numbers = rng.standard_normal((rows, 2)).astype(np.float32), (np.arange(rows) % 40 > 0).astype(np.float32)
    found = run_kernel(stacked(members), [x, numbers[:, None]], device)
    for place, member in enumerate(members):
        mine = numbers == place
        assert found[mine].tobytes() == run_kernel(member, [x[mine]], device).tobytes()


def test_what_cannot_be_stacked_says_so() -> None:
    alike, plain = StackedNeighbors.alike, neighbors(2, 20, 3)
    assert alike(plain) == alike(neighbors(2, 30, 3, seed=4)) is not None
    for other in (
        neighbors(3, 20, 3),
        neighbors(2, 20, 4),
        neighbors(2, 20, 3, outputs=2),
        neighbors(2, 20, 3, weights="distance"),
        neighbors(2, 20, 3, metric="manhattan"),
        neighbors(2, 20, 3, weighted=True),
    ):
        assert alike(other) not in (None, alike(plain))
    for alone in (
        neighbors(2, 20, 3, metric="minkowski", p=3.0),  # compilers add its powers in more than one way
        neighbors(2, 20, 3, metric="manhattan", weighted=True),
        neighbors(2, 20, 3, metric="canberra"),  # without bounds: sums follow the order in which points were found
        neighbors(2, 80, 65),
        neighbors(1, MOST_VISITED + 1, 1),
    ):
        assert alike(alone) is None
    of_trees = StackedTreeNeighbors.alike
    assert of_trees(tree_neighbors(2, 13, 3)) != of_trees(tree_neighbors(2, 13, 3, balls=True))
    assert of_trees(tree_neighbors(3, 12, 2, balls=True, metric="hamming")) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_point": np.array([0, 9, 29])}, "stacked_tree_neighbors: first_point must count the points"),
        ({"targets": np.zeros((29, 1))}, "stacked_tree_neighbors: first_point must count the points"),
        ({"n_neighbors": 14}, "stacked_tree_neighbors: each member must have n_neighbors points, 14, or more."),
        ({"order": np.arange(29, dtype=np.int32)}, "stacked_tree_neighbors: first_node must count the nodes"),
        ({"first_node": np.array([0, 1, 2])}, "stacked_tree_neighbors: first_node must count the nodes"),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_named(changes: dict[str, object], message: str) -> None:
    op = stacked([tree_neighbors(2, 13, 3), tree_neighbors(2, 17, 3)])
    op.check(2, 1)
    with pytest.raises(PlanError, match=message):
        dataclasses.replace(op, **changes).check(2, 1)  # type: ignore[arg-type]
