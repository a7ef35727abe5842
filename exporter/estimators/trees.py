"""Decision trees and forests of them: `y = mean of the trees' leaves`; embeddings by leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor, RandomTreesEmbedding
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import OwnCode, find_lowering, lowers
from triton_regressors.exporter.lowering.soundness import NO_CHILD
from triton_regressors.exporter.lowering.tree_nodes import Trees, add_trees, note_thresholds
from triton_regressors.kernels.ops.trees.nodes import MISSING_LEFT


@lowers(DecisionTreeRegressor, ExtraTreeRegressor)
def lower_tree(tree: Any, x: Value, builder: Builder) -> Value:
    """`y = value[leaf(x)]`."""
    return lower_side_by_side([tree], x, builder)


@lowers(ExtraTreesRegressor, RandomForestRegressor)
def lower_forest(forest: Any, x: Value, builder: Builder) -> Value:
    """`y = Σₜ value[leaf(t, x)] / trees`."""
    trees = fitted_trees(_own_trees(forest, builder))
    note_thresholds(trees, x, builder)
    return add_trees(trees, x, builder, divisor=float(len(trees.sizes)))


@lowers(RandomTreesEmbedding)
def lower_embedding(embedding: RandomTreesEmbedding, x: Value, builder: Builder) -> Value:
    """One column for each leaf of each tree, in the order of the trees and of their nodes: 1 if `x` reaches it."""
    trees = fitted_trees(_own_trees(embedding, builder))
    note_thresholds(trees, x, builder)
    return add_trees(trees, x, builder, output="leaves")


def lower_side_by_side(estimators: Sequence[Any], x: Value, builder: Builder) -> Value:
    """Return the predictions of these fitted trees, side by side."""
    trees = fitted_trees(estimators)
    note_thresholds(trees, x, builder)
    return add_trees(trees, x, builder, output="each")


def are_trees(estimators: Sequence[Any], builder: Builder) -> bool:
    """Return whether all members of the estimator being lowered are plain trees, lowered by `lower_tree`.

    Raises:
        ExportError: one of them has no lowering.
    """
    plain = True
    for index, estimator in enumerate(estimators):
        with builder.at(f"estimators_[{index}]"):
            lowering = find_lowering(estimator, builder.subject(estimator))
            if isinstance(lowering, OwnCode):  # a forest's sums take trees alone
                raise ExportError(f"Cannot export {builder.subject(estimator)}: {lowering.why}")
            plain = lowering is lower_tree and plain
    return plain


def _own_trees(forest: Any, builder: Builder) -> Sequence[Any]:
    """Return a forest's trees; a subclass may fit trees of another class than the forest's."""
    if not are_trees(forest.estimators_, builder):
        raise builder.refuse(forest, "its trees have a lowering of their own. A BaggingRegressor of them is exported")
    trees: Sequence[Any] = forest.estimators_
    return trees


def fitted_trees(estimators: Sequence[Any], factor: float = 1.0) -> Trees:
    """Return the nodes of fitted estimators of `sklearn.tree`, their values multiplied by `factor`."""
    trees = [estimator.tree_ for estimator in estimators]

    def field(name: str) -> np.ndarray:
        return np.concatenate([getattr(tree, name) for tree in trees])

    return Trees(
        np.array([tree.node_count for tree in trees]),
        field("feature"),
        field("threshold"),
        field("children_left"),
        field("children_right"),
        np.where(field("missing_go_to_left"), MISSING_LEFT, 0).astype(np.uint8),
        factor * np.concatenate([tree.value[tree.children_left == NO_CHILD, :, 0] for tree in trees]),
        np.zeros((0, 8), dtype=np.int32),
        tuple(tree.weighted_n_node_samples for tree in trees),
    )
