"""Quads: a walk through their bits reaches the same leaf as a walk through the nodes."""

import numpy as np
import pytest

from tests.kernels.operations_trees import tree_ensemble
from tests.kernels.ops.trees.test_tree_ensemble import walk
from triton_regressors.kernels.ops.trees.nodes import feature_bits
from triton_regressors.kernels.ops.trees.two_level_nodes import Quads, pack_quads


def walk_quads(quads: Quads, bits: int, tree: int, x: np.ndarray) -> tuple[int, int]:
    """Return the value of the leaf that one row reaches, and the number of quads above it, as the module describes."""
    group, slot, steps = int(quads.roots[tree]), 0, 0
    while True:
        low, high = (int(word) & 2**64 - 1 for word in quads.words[group, slot])
        if high >> 63:
            return int(quads.words[group, slot, 0]), steps
        limits = np.array([low & 2**32 - 1, low >> 32, high & 2**32 - 1], dtype=np.uint32).view(np.float32)
        features = [high >> 32 + k * bits & (1 << bits) - 1 for k in range(3)]
        first = int(x[features[0]] > limits[0])
        second = int(x[features[1 + first]] > limits[1 + first])
        group, slot, steps = group + (high >> 32 + 3 * bits), 2 * first + second, steps + 1


@pytest.mark.parametrize(("features", "trees", "depth", "stop"), [(1, 3, 3, 0.2), (40, 9, 7, 0.3), (5, 2, 0, 0.0)])
def test_quads_reach_what_nodes_reach(features: int, trees: int, depth: int, stop: float) -> None:
    op = tree_ensemble(features, trees, depth, 1, seed=features, stop=stop)
    held = np.random.default_rng(0).integers(-(2**62), 2**62, len(op.values))
    quads = pack_quads(op.feature, op.threshold, op.child, op.roots, held)
    assert quads is not None
    x = np.random.default_rng(1).standard_normal((20, features)).astype(np.float32)
    x[0], x[1] = np.inf, -np.inf
    for row in x:
        for tree, root in enumerate(op.roots):
            reached, steps = walk_quads(quads, feature_bits(op.feature), tree, row)
            assert reached == held[walk(op, root, row)]
            assert steps <= -(-depth // 2)


def test_what_does_not_fit_has_no_quads() -> None:
    """Three features below 1,024 take 30 bits and the way to the grandchildren 1; above, features alone take 33."""
    feature, child = np.array([0, 1, -1, -1, -1]), np.array([1, 3, 0, 1, 2])
    threshold, roots, held = np.zeros(5, dtype=np.float32), np.zeros(1, dtype=np.int32), np.arange(3)
    for highest, fits in ((1023, True), (1024, False)):
        feature[1] = highest
        assert (pack_quads(feature, threshold, child, roots, held) is not None) == fits
