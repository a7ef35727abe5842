"""The path-dependent game by its definition, from a step of trees and its covers."""

from math import comb

import numpy as np

from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble


def as_nodes(trees: SymmetricTrees, leaf_covers: np.ndarray) -> tuple[TreeEnsemble, np.ndarray]:
    """Return symmetric trees as trees of nodes, and the covers of all nodes."""
    feature, threshold, child, missing, covers, roots = [], [], [], [], [], []
    first_leaf = first_level = 0
    for depth in trees.depth.tolist():
        asked = trees.asked[first_level : first_level + depth][::-1]  # a leaf's highest bit first
        root, leaves = len(feature), slice(first_leaf, first_leaf + 2**depth)
        roots.append(root)
        for level, question in enumerate(asked.tolist()):
            start = root + 2**level - 1
            feature += [trees.feature[question]] * 2**level
            threshold += [trees.threshold[question]] * 2**level
            missing += [0 if trees.missing[question] else MISSING_LEFT] * 2**level
            child += [start + 2**level + 2 * place for place in range(2**level)]
            covers.append(leaf_covers[leaves].reshape(2**level, -1).sum(axis=1))
        feature += [-1] * 2**depth
        threshold += [0.0] * 2**depth
        missing += [0] * 2**depth
        child += range(leaves.start, leaves.stop)
        covers.append(leaf_covers[leaves])
        first_leaf, first_level = leaves.stop, first_level + depth
    nodes = TreeEnsemble(
        feature=np.array(feature, dtype=np.int32),
        threshold=np.array(threshold, dtype=trees.threshold.dtype),
        child=np.array(child, dtype=np.int32),
        flags=np.array(missing, dtype=np.uint8),
        sets=np.zeros((0, 8), dtype=np.int32),
        roots=np.array(roots, dtype=np.int32),
        values=trees.values,
        baseline=trees.baseline,
    )
    return nodes, np.concatenate(covers)


def goes_left(trees: TreeEnsemble, X: np.ndarray) -> np.ndarray:
    """Return whether each node sends each row to the left, `[nodes, rows]`."""
    x = X.T[np.maximum(trees.feature, 0)].astype(trees.threshold.dtype)
    left = x <= trees.threshold[:, None]
    bits = np.unpackbits(trees.sets.view(np.uint8), axis=1, bitorder="little") > 0
    for node in np.flatnonzero(trees.flags & CATEGORICAL):
        last = bits.shape[1] - 1
        code = np.nan_to_num(np.trunc(x[node]), nan=-1)
        left[node] = bits[int(trees.threshold[node]), np.where((code >= 0) & (code < last), code, last).astype(int)]
    plain = (trees.flags & CATEGORICAL == 0)[:, None]
    found: np.ndarray = np.where(np.isnan(x) & plain, (trees.flags & MISSING_LEFT > 0)[:, None], left)
    return found


def reached(trees: TreeEnsemble, X: np.ndarray) -> np.ndarray:
    """Return whether each node is reached by each row, `[nodes, rows]`."""
    left, found = goes_left(trees, X), np.zeros((len(trees.feature), len(X)), dtype=bool)
    found[trees.roots] = True
    for node in np.flatnonzero(trees.feature >= 0):  # children come after their parents
        for side, goes in ((0, left[node]), (1, ~left[node])):
            found[trees.child[node] + side] = found[node] & goes
    return found


def share(covers: np.ndarray, node: int, child: int) -> float:
    """Return the part of a node's training rows that a child has; a node that had none counts as having one in each."""
    return float(covers[child] / covers[node]) if covers[node] > 0 else 0.5


def path_values(trees: TreeEnsemble, covers: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return Shapley's values and the base before the function, `[rows, outputs, columns + 1]`, float64.

    `v(S)` of a row sums each leaf's value times a product over its path: 1 or 0 for a column in `S`, as the row goes
    there or not, and `cover[child] / cover[node]` for another.
    """
    rows, columns = X.shape
    outputs = len(trees.baseline)
    left, inner = goes_left(trees, X), trees.feature >= 0
    games = np.zeros((2**columns, rows, outputs))
    output = np.zeros(len(trees.feature), dtype=int)  # of each node, where each tree has one
    if len(trees.starts):
        tree_output = np.repeat(np.arange(len(trees.starts) - 1), np.diff(trees.starts))
        output = tree_output[np.searchsorted(np.sort(trees.roots), np.arange(len(output)), side="right") - 1]
    for coalition, game in enumerate(games):
        weight = np.zeros((len(trees.feature), rows))
        weight[trees.roots] = 1.0
        for node in np.flatnonzero(inner):
            for side, goes in ((0, left[node]), (1, ~left[node])):
                child = trees.child[node] + side
                known = coalition >> int(trees.feature[node]) & 1
                weight[child] = weight[node] * (goes if known else share(covers, node, child))
        of_leaves = weight[~inner]
        values = trees.values[trees.child[~inner]].astype(np.float64)
        if len(trees.starts) > 2:
            values = values * (output[~inner][:, None] == np.arange(outputs))
        game[:] = (trees.baseline + of_leaves.T @ values) / trees.divisor
    size = np.array([bin(coalition).count("1") for coalition in range(2**columns)])
    orders = np.array([1.0 / (columns * comb(columns - 1, count)) for count in range(columns)])
    found = np.zeros((rows, outputs, columns + 1))
    for column in range(columns):
        without = np.flatnonzero(np.arange(2**columns) >> column & 1 == 0)
        gains = games[without | 1 << column] - games[without]
        found[:, :, column] = np.tensordot(orders[size[without]], gains, axes=1)
    found[:, :, -1] = games[0]
    return found
