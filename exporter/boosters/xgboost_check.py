"""Checks that XGBoost's document is consistent before XGBoost's compiled code reads it and trusts its numbers.

What is looked at are those numbers that are places in an array, and how long arrays are. What else may be wrong with a
document XGBoost finds itself, or it answers with other numbers than it was trained to.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.soundness import one_line

CATEGORIES = 2**24
"""One more than the largest category."""

OF_NODES = (
    "left_children",
    "right_children",
    "parents",
    "split_indices",
    "split_conditions",
    "default_left",
    "split_type",
    "sum_hessian",
    "loss_changes",
)
"""The fields of a tree that hold a number for each of its nodes."""

LATER = ("split_type", "sum_hessian", "loss_changes", "parents")
"""Those that not every version and kind of tree has."""


def check_document(document: Any) -> None:
    """Raise `ValueError`, in one clause, unless what a file of XGBoost's holds, read as JSON, holds together."""
    try:
        _check_learner(document["learner"])
    except Exception as error:  # what is missing or of another type can raise almost anything
        raise ValueError(f"its document does not hold together: {one_line(error)}") from error


def _check_learner(learner: Any) -> None:
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]
    features = int(parameters["num_feature"])
    outputs = max(1, int(parameters["num_class"]), int(parameters.get("num_target", 1)))
    for name in ("feature_names", "feature_types"):
        _require(len(learner.get(name, ())) in (0, features), f"{name} do not match the features")
    if booster["name"] == "gblinear":
        weights = _numbers(booster["model"], "weights")
        _require(len(weights) == (features + 1) * outputs, "weights do not match features and outputs")
        return
    _require(booster["name"] in ("gbtree", "dart"), f"its booster is {booster['name']!r}")
    model = (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]
    trees = model["trees"]
    _require(len(trees) > 0, "it has no trees")
    _require(int(model["gbtree_model_param"]["num_trees"]) == len(trees), "num_trees is not the number of trees")
    to = _integers(model, "tree_info")
    _require(len(to) == len(trees), "tree_info does not match the trees")
    _require(_within(to, 0, outputs), "a tree adds to an output that does not exist")
    vectors = outputs > 1 and all(int(tree["tree_param"]["size_leaf_vector"]) == outputs for tree in trees)
    _require(vectors or len(np.unique(to)) == outputs, f"it has {outputs:,} outputs, and trees of fewer")
    for holder in (booster, model):
        if len(holder.get("weight_drop", ())):
            _require(len(_numbers(holder, "weight_drop")) == len(trees), "weight_drop does not match the trees")
    rounds = len(trees)
    if "iteration_indptr" in model:
        first = _integers(model, "iteration_indptr")
        _require(
            len(first) > 1 and first[0] == 0 and first[-1] == len(trees), "iteration_indptr does not match the trees"
        )
        _require(bool((np.diff(first) >= 0).all()), "iteration_indptr does not ascend")
        rounds = len(first) - 1
    best = learner.get("attributes", {}).get("best_iteration")
    _require(best is None or 0 <= int(best) < rounds, "its best iteration does not exist")
    for tree in trees:
        _check_tree(tree, features, outputs)
    for column in (model.get("cats") or {}).get("enc", ()):
        if "offsets" in column:
            offsets = _integers(column, "offsets")
            _require(_within(offsets, 0, len(column["values"]) + 1), "a category's name lies elsewhere")
            _require(all(one <= two for one, two in itertools.pairwise(offsets)), "categories' names do not ascend")


def _check_tree(tree: Any, features: int, outputs: int) -> None:
    nodes, width = int(tree["tree_param"]["num_nodes"]), int(tree["tree_param"]["size_leaf_vector"])
    found = {name: _numbers(tree, name) for name in OF_NODES if name in tree or name not in LATER}
    for name, numbers in found.items():
        _require(len(numbers) == nodes > 0 or (name in LATER and not len(numbers)), f"{name} does not match the nodes")
    _require(width in (0, 1, outputs), "a leaf has another number of values than there are outputs")
    _require(len(tree["base_weights"]) == nodes * max(width, 1), "base_weights does not match the nodes")
    left, right, split = (_integers(tree, name) for name in ("left_children", "right_children", "split_indices"))
    inner = left != -1
    children = np.stack([left[inner], right[inner]])
    _require(_within(children, 1, nodes), "a node's child is not in its tree")
    # The root is no child, and the others are one node's at most: so no node is above itself.
    _require(np.unique(children).size == children.size, "a node is the child of several")
    _require(_within(split[inner], 0, features), "a node asks for a feature that does not exist")
    if len(parents := found.get("parents", ())):
        _require(_within(_integers(tree, "parents")[1:], 0, nodes), "a node's parent is not in its tree")
        above = np.flatnonzero(inner)
        _require(bool((parents[children] == above).all()), "a node's parent is another one")
    if width > 1 and "leaf_weights" in tree:
        rows = len(_numbers(tree, "leaf_weights")) // width
        _require(len(tree["leaf_weights"]) == rows * width, "leaf_weights does not match the outputs")
        _require(_within(right[~inner], 0, rows), "a leaf has no row of leaf_weights")
    asking, first, sizes, categories = (
        _integers(tree, name) if name in tree else np.zeros(0, int)
        for name in ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    )
    _require(len(asking) == len(first) == len(sizes), "sets of categories do not match the nodes that ask for one")
    _require(_within(asking, 0, nodes) and bool((np.diff(asking) > 0).all()), "nodes of categories do not ascend")
    _require(_within(first, 0, len(categories) + 1) and _within(sizes, 1, len(categories) + 1), "a set is empty")
    _require(bool((first + sizes <= len(categories)).all()), "a set of categories lies elsewhere")
    _require(_within(categories, 0, CATEGORIES), f"a category is not in [0, {CATEGORIES:,})")
    kinds = found.get("split_type", ())
    if len(kinds):
        _require(np.array_equal(np.flatnonzero(np.asarray(kinds) == 1), asking), "a node asks for no set")


def _numbers(holder: Any, name: str) -> np.ndarray:
    numbers = np.asarray(holder[name])
    _require(numbers.ndim == 1 and (numbers.dtype.kind in "biuf" or not len(numbers)), f"{name} are not numbers")
    return numbers


def _integers(holder: Any, name: str) -> np.ndarray:
    numbers = _numbers(holder, name)
    _require(numbers.dtype.kind in "biu" or not len(numbers), f"{name} are not whole numbers")
    return numbers.astype(np.int64)


def _within(numbers: np.ndarray, low: int, end: int) -> bool:
    return bool(((numbers >= low) & (numbers < end)).all())


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
