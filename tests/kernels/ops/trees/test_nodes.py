"""Both ways in which plain torch finds leaves, and plain nodes, against a walk down each tree."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations_trees import tree_ensemble
from tests.kernels.ops.trees.test_tree_ensemble import leaves, walk
from triton_regressors.kernels.ops.trees import cpu_quickscorer
from triton_regressors.kernels.ops.trees.cpu_descent import Descent
from triton_regressors.kernels.ops.trees.cpu_quickscorer import Cells, build_cells
from triton_regressors.kernels.ops.trees.nodes import depths, feature_bits, pack_plain
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble


def arrays(op: TreeEnsemble) -> tuple[Any, ...]:
    return op.feature, op.threshold, op.child, op.flags, op.sets, op.roots, op.rounding


def drawn_rows(op: TreeEnsemble, features: int, rows: int, seed: int) -> np.ndarray:
    """Return rows of which some numbers are thresholds, whole, missing, infinite or just beside a whole number."""
    rng = np.random.default_rng(seed)
    x: np.ndarray = rng.standard_normal((rows, features)).astype(op.threshold.dtype)
    places = rng.integers(0, 8, x.shape)
    x[places == 0] = rng.choice(op.threshold, (places == 0).sum())
    x[places == 1] = rng.integers(-2, 32 * op.sets.shape[1] + 2, (places == 1).sum())
    x[places == 2] = np.nan
    x[places == 3] = rng.choice([-np.inf, np.inf, -0.0, 1e30, -0.5, -1], (places == 3).sum())
    x[places == 4] = np.nextafter(x[places == 4].round(), x.dtype.type(-np.inf))
    return x


@pytest.mark.parametrize(("sets", "words", "rounding"), [(0, 1, "trunc"), (3, 2, "trunc"), (3, 63, "floor")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("features", "trees", "depth", "stop"), [(1, 1, 1, 0.0), (3, 7, 5, 0.0), (40, 20, 5, 0.3)])
def test_leaves(
    monkeypatch: pytest.MonkeyPatch,
    features: int,
    trees: int,
    depth: int,
    stop: float,
    dtype: type,
    sets: int,
    words: int,
    rounding: str,
) -> None:
    monkeypatch.setattr(cpu_quickscorer, "STEP", np.inf)
    op = tree_ensemble(
        features, trees, depth, dtype=dtype, sets=sets, stop=stop, seed=depth, words=words, rounding=rounding
    )
    for rows in (0, 1, 50):
        x = drawn_rows(op, features, rows, seed=rows)
        expected = leaves(op, x).T.ravel()
        (cells,) = build_cells(*arrays(op))
        for way in (cells, Descent(*arrays(op))):
            assert np.array_equal(way.find_leaves(torch.from_numpy(x)).numpy(), expected)


def test_trees_of_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_quickscorer, "STEP", np.inf)
    monkeypatch.setattr(cpu_quickscorer, "TABLE_BYTES", 2**14)
    op = tree_ensemble(5, 30, 4)
    x = drawn_rows(op, 5, 20, seed=1)
    parts = build_cells(*arrays(op))
    assert len(parts) > 1
    found = torch.cat([part.find_leaves(torch.from_numpy(x)) for part in parts])
    assert np.array_equal(found.numpy(), leaves(op, x).T.ravel())


def test_which_trees_have_tables() -> None:
    def tables(op: TreeEnsemble) -> list[Cells]:
        return build_cells(*arrays(op))

    assert len(tables(tree_ensemble(8, 50, 5))) == 1
    assert not tables(tree_ensemble(300, 50, 5)), "a row would look at a line for each of many features"
    assert not tables(tree_ensemble(8, 50, 6, stop=0.0)), "64 leaves have no bits"
    assert not tables(tree_ensemble(8, 2, 0)), "a tree of one leaf asks for nothing"


@pytest.mark.parametrize(("features", "trees", "depth"), [(1, 3, 3), (40, 9, 7), (5, 2, 0)])
def test_plain_nodes_reach_what_nodes_reach(features: int, trees: int, depth: int) -> None:
    op = tree_ensemble(features, trees, depth, 1, seed=features)
    held = np.random.default_rng(0).integers(-(2**62) + 1, 2**62, len(op.values))
    plain, bits = pack_plain(op.feature, op.threshold, op.child, held), feature_bits(op.feature)
    for row in np.random.default_rng(1).standard_normal((20, features)).astype(np.float32):
        for root in op.roots:
            node = int(root)
            while (word := int(plain[node])) >= 0:
                high, threshold = word >> 32, np.uint32(word & 2**32 - 1).view(np.float32)
                node += (high >> 5 + bits) + int(row[high >> 5 & (1 << bits) - 1] > threshold)
            value = word & 2**63 - 1
            assert (value - 2**63 if value >> 62 else value) == held[walk(op, int(root), row)]


def test_what_does_not_fit_has_no_plain_nodes() -> None:
    """Features below 2²⁵ take 25 bits and the distance to the left child 1; with one bit more they do not fit."""
    threshold, child, held = np.zeros(3, dtype=np.float32), np.array([1, 0, 1]), np.zeros(2, dtype=np.int64)
    for feature, nodes in ((2**25 - 1, 3), (2**25, 0)):
        assert len(pack_plain(np.array([feature, -1, -1]), threshold, child, held)) == nodes


def test_depths() -> None:
    ops = [tree_ensemble(3, 1, depth, stop=0.0) for depth in (0, 1, 5)]
    assert [depths(op.feature, op.child, op.roots).tolist() for op in ops] == [[0], [1], [5]]
    op = tree_ensemble(3, 4, 3, stop=0.6, seed=2)
    alone = [max(_levels(op.feature, op.child, int(root))) for root in op.roots]
    assert depths(op.feature, op.child, op.roots).tolist() == alone


def _levels(feature: np.ndarray, child: np.ndarray, node: int) -> list[int]:
    if feature[node] < 0:
        return [0]
    return [1 + level for below in (child[node], child[node] + 1) for level in _levels(feature, child, int(below))]
