"""The repeated search of a tree: the points that scikit-learn's own tree finds if many are equally near."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import BallTree, KDTree

from tests.kernels.examples import examples
from tests.kernels.operations import run_kernel, run_reference
from tests.kernels.operations_neighbors import tree_neighbors
from triton_regressors.exporter.estimators.search_tree import as_search_tree
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.neighbors import tree_search
from triton_regressors.kernels.ops.neighbors.distances import transposed
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.tree_neighbors import TreeNeighbors
from triton_regressors.kernels.ops.neighbors.tree_search import BALL_METRICS, BOX_METRICS, search

KINDS: list[tuple[Any, str]] = [*((KDTree, m) for m in BOX_METRICS), *((BallTree, m) for m in BALL_METRICS)]
DRAWS = {
    "whole": lambda rng, shape: rng.integers(0, 5, shape).astype(np.float64),
    "boolean": lambda rng, shape: rng.integers(0, 2, shape).astype(np.float64),
    "rounded": lambda rng, shape: rng.normal(size=shape).round(1),
}


def rows_near(points: np.ndarray, rng: np.random.Generator, draw: str) -> np.ndarray:
    """Return rows like the points, points, places halfway between points, and rows far away."""
    few = min(len(points), 4)
    some, others = points[rng.integers(0, len(points), (2, few))]
    drawn = DRAWS[draw](rng, (8, points.shape[1]))
    return np.concatenate([drawn, some, (some + others) / 2, drawn[:2] + 1e6])


def fitted(kind: Any, metric: str, points: np.ndarray, leaf_size: int) -> Any:
    return kind(points, leaf_size=leaf_size, metric=metric, **({"p": 3} if metric == "minkowski" else {}))


@pytest.mark.parametrize(("kind", "metric"), KINDS)
@examples(25)
@given(
    points=st.integers(2, 700),
    features=st.integers(1, 6),
    neighbors=st.integers(1, tree_search.MOST_NEIGHBORS),
    leaf_size=st.integers(1, 30),
    draw=st.sampled_from([*DRAWS]),
    few=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_search_finds_the_points_of_scikit_learns_tree(
    kind: Any, metric: str, points: int, features: int, neighbors: int, leaf_size: int, draw: str, few: bool, seed: int
) -> None:
    """The same points are found if all distances are known at the start and if the search computes them on its way."""
    if metric == "minkowski" and draw == "rounded":
        draw = "whole"  # the C library's pow rounds cubes in its own way
    rng = np.random.default_rng(seed)
    places = DRAWS[draw](rng, (points, features))
    rows = rows_near(places, rng, draw)
    rows = rows[:-2] if metric == "minkowski" else rows
    tree = fitted(kind, metric, places, leaf_size)
    neighbors = min(neighbors, points - 1)
    wanted = np.sort(tree.query(rows, neighbors, return_distance=False), axis=1)
    again = as_search_tree(tree)
    again.check("a tree", points, features, metric)
    columns = torch.from_numpy(transposed(places[again.order]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_search, "FEW_NUMBERS", 0 if few else 2**17)
        distance, found = search(torch.from_numpy(rows), again, columns, metric, 3.0, neighbors)
    assert np.array_equal(found.numpy(), wanted)
    assert distance.isfinite().all()


def test_the_bounds_of_balls_have_the_bits_of_their_definition() -> None:
    """A bound that is 10⁻³² and not 0 sends the search to another of several equally near points."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 2, (400, 5)).astype(np.float64)
    tree = BallTree(places, leaf_size=1)
    again, rows = as_search_tree(tree), places[:50]
    found = tree_search.node_bounds(torch.from_numpy(rows), again, "euclidean", 2.0).numpy()
    for row, bounds in zip(rows.tolist(), found, strict=True):
        for centre, radius, bound in zip(again.bounds[0].tolist(), again.radii.tolist(), bounds, strict=True):
            square = 0.0
            for a, b in zip(row, centre, strict=True):
                square += (a - b) * (a - b)
            low = max(math.sqrt(square) - radius, 0.0)
            assert bound == low * low


def test_a_search_by_smallest_indices_finds_others() -> None:
    """The comparison with scikit-learn's tree is one that the search of `Neighbors` fails."""
    op = tree_neighbors(2, 200, 5, leaf_size=30)
    plain = Neighbors(op.points, op.targets, op.factor, 5)
    rows = np.random.default_rng(5).integers(0, 4, (50, 2)).astype(np.float64)
    assert (np.abs(run_reference(op, [rows]) - run_reference(plain, [rows])) > 1e-6).mean() > 0.5


CASES = {
    "kd-tree": tree_neighbors(2, 150, 5, 2, leaf_size=10),
    "by distance": tree_neighbors(3, 150, 4, leaf_size=2, metric="manhattan", weights="distance"),
    "chebyshev": tree_neighbors(2, 90, 7, leaf_size=5, metric="chebyshev"),
    "cubed": tree_neighbors(2, 90, 3, leaf_size=5, metric="minkowski", p=3.0),
    "ball tree": tree_neighbors(2, 150, 5, leaf_size=10, balls=True, weights="distance"),
    "many neighbours": tree_neighbors(2, 150, 33, leaf_size=10),
    "decimals": tree_neighbors(2, 200, 5, places=np.random.default_rng(0).normal(size=(200, 2)).round(1)),
    **{name: tree_neighbors(3, 60, 4, leaf_size=7, balls=True, metric=name) for name in BALL_METRICS[2:]},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_finds_the_points_of_scikit_learns_tree(device: torch.device, name: str, dtype: type) -> None:
    op = CASES[name]
    rng = np.random.default_rng(7)
    if name == "decimals":
        rows = op.points[:6] if dtype == np.float64 else op.points[:6].round().astype(dtype)
    else:
        rows = rng.integers(0, 4, (6, op.points.shape[1])).astype(dtype)
    wanted = by_scikit_learn(op, rows)
    assert np.abs(run_reference(op, [rows]) - wanted).max() < 1e-12
    assert np.abs(run_kernel(op, [rows], device, torch.float64) - wanted).max() < 1e-12


def by_scikit_learn(op: TreeNeighbors, rows: np.ndarray) -> np.ndarray:
    """Return the means of the targets of the points that scikit-learn's tree finds, which the operation's came from."""
    kind, sizes = (BallTree if len(op.bounds) == 1 else KDTree), range(1, 41)
    trees = (kind(op.points, leaf_size=size, metric=op.metric, **_power(op)) for size in sizes)
    tree = next(tree for tree in trees if np.array_equal(as_search_tree(tree).nodes, op.nodes))
    distance, index = tree.query(rows.astype(np.float64), op.n_neighbors)
    if op.weights == "uniform":
        mean: np.ndarray = op.targets[index].mean(axis=1)
        return mean
    with np.errstate(divide="ignore"):
        weight = 1 / distance
    hit = np.isinf(weight)
    weight = np.where(hit.any(axis=1, keepdims=True), hit, weight)
    return (weight[:, :, None] * op.targets[index]).sum(axis=1) / weight.sum(axis=1, keepdims=True)


def _power(op: TreeNeighbors) -> dict[str, float]:
    return {"p": op.p} if op.metric == "minkowski" else {}


def test_rows_that_are_no_numbers_have_no_answer(device: torch.device) -> None:
    op = tree_neighbors(2, 40, 3)
    rows = np.array([[np.nan, 0.0], [1.0, 1.0], [1.0, np.inf]], dtype=np.float32)
    for found in (run_reference(op, [rows]), run_kernel(op, [rows], device)):
        assert np.isnan(found[:, 0]).tolist() == [True, False, True]


RIGHT = tree_neighbors(2, 40, 3)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a point twice": ({"order": RIGHT.order * 0}, "order must hold each of the 40 points once."),
    "no nodes": ({"nodes": RIGHT.nodes[:0]}, "nodes must be [nodes, 3], not [0, 3]."),
    "points past the last": ({"nodes": RIGHT.nodes + 40}, "nodes must lie within the 40 points"),
    "no children": ({"nodes": RIGHT.nodes * [1, 1, 0]}, "have both children or none."),
    "other bounds": (
        {"bounds": RIGHT.bounds[:, 1:]},
        f"bounds and radii must be of {len(RIGHT.nodes)} nodes and 2 features",
    ),
    "radii of boxes": (
        {"radii": np.ones(len(RIGHT.nodes))},
        f"bounds and radii must be of {len(RIGHT.nodes)} nodes and 2 features",
    ),
    "boxes by hamming": ({"metric": "hamming"}, "the search of a kd-tree by 'hamming' is not repeated."),
    "all points": ({"n_neighbors": 40}, "n_neighbors must be at most 39, not 40."),
    "weights of features": ({"factor": np.array([1.0, 2.0])}, "repeated for equal weights and whole powers."),
    "a broken power": ({"metric": "minkowski", "p": 2.5}, "repeated for equal weights and whole powers."),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_tree_that_does_not_fit_is_named(case: str) -> None:
    fields, message = WRONG[case]
    RIGHT.check(2)
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(RIGHT, **fields).check(2)
    assert str(raised.value).startswith("tree_neighbors: ")
    assert message in str(raised.value)
