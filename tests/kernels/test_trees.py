"""Plain nodes: what a walk through their bits reaches is what a walk through the nodes reaches."""

import numpy as np
import pytest

from tests.kernels.operations_trees import tree_ensemble
from tests.kernels.test_tree_ensemble import walk
from triton_regressors.kernels.trees import depths, feature_bits, pack_plain


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
