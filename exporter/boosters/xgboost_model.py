"""XGBoost's models as arrays, from the bytes of `Booster.save_raw("ubj")`; of XGBoost 2.1 to 3.2.

A model's margin is `base + Σₜ leaf(t, x)` in float32, one tree after the other, and its answer is a function of the
margin. A node sends a row to the left if `x < condition`, which for a float32 `x` means that `x` is at most the next
float32 below `condition`. A node that asks for a category sends the categories that it lists to the right, and all
others to the left, negative numbers included; fractions are cut off first. NaN goes to the side that the node names.

Nothing here imports XGBoost: XGBoost itself reads its files, of any format, and turns them into these bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.rounds import joined
from triton_regressors.exporter.boosters.ubjson import parse_ubjson
from triton_regressors.exporter.lowering.tree_nodes import Trees, narrow
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT

LINKS = {
    **dict.fromkeys(
        (
            "reg:squarederror",
            "reg:linear",
            "reg:squaredlogerror",
            "reg:pseudohubererror",
            "reg:absoluteerror",
            "reg:quantileerror",
            "binary:logitraw",
        ),
        "identity",
    ),
    **dict.fromkeys(("reg:logistic", "binary:logistic"), "expit"),
    **dict.fromkeys(("reg:gamma", "reg:tweedie", "count:poisson", "survival:cox", "survival:aft"), "exp"),
}
"""The function of each objective that turns a margin into an answer."""

CLIPPED = 1e-6
"""The least distance of a probability from 0 and 1 when its logit is taken."""


@dataclass(frozen=True)
class XGBoostModel:
    """A model of trees, or an affine map if `weights` are given.

    Args:
        objective: its name.
        link: the function of the margin.
        base: the margin before the first tree, float32 `[outputs]`.
        named: whether the features have names, as the columns of a DataFrame.
        categorical: the features whose numbers are codes of categories.
        categories: the categories of these features by their codes, strings or whole numbers, if the model holds them.
        trees: the trees that `predict` uses, in order, with the nodes that a row can reach.
        output_of_tree: the output that each tree adds to, `[trees]`; None if a leaf has a value for each output.
        nodes: the number that XGBoost gives each node in its tree.
        weights: the weights of the booster "gblinear", float32 `[features + 1, outputs]`, the intercept last.
    """

    objective: str
    link: str
    base: np.ndarray
    n_features: int
    named: bool
    categorical: tuple[int, ...]
    categories: dict[int, list[str] | np.ndarray]
    trees: Trees | None
    output_of_tree: np.ndarray | None
    nodes: np.ndarray
    weights: np.ndarray | None


def read_xgboost(raw: bytes | bytearray | mmap) -> XGBoostModel:
    """Return the model in the bytes of `Booster.save_raw("ubj")`, cut at the best iteration.

    Raises:
        ValueError: it cannot be served; the message says why in one clause.
    """
    learner = parse_ubjson(raw)["learner"]
    objective, parameters = learner["objective"]["name"], learner["learner_model_param"]
    link = LINKS.get(objective)
    if link is None:
        raise ValueError(f"its objective is '{objective}'; supported: {', '.join(map(repr, LINKS))}")
    outputs = max(1, int(parameters["num_class"]), int(parameters["num_target"]))
    base = _margins(parameters["base_score"], outputs, link)
    types, n_features = learner["feature_types"], int(parameters["num_feature"])
    categorical = tuple(feature for feature, kind in enumerate(types) if kind == "c")
    named, booster = len(learner["feature_names"]) > 0, learner["gradient_booster"]
    if booster["name"] == "gblinear":
        weights = np.asarray(booster["model"]["weights"], np.float32).reshape(n_features + 1, outputs)
        base = np.broadcast_to(base[:1], outputs)  # XGBoost's predict adds the first to all
        return XGBoostModel(
            objective, link, base, n_features, named, categorical, {}, None, None, np.zeros(0, int), weights
        )
    inner = booster["gbtree"] if booster["name"] == "dart" else booster
    model = inner["model"]
    dropped = booster.get("weight_drop", model.get("weight_drop"))
    best = learner["attributes"].get("best_iteration")
    used = len(model["trees"]) if best is None else int(model["iteration_indptr"][int(best) + 1])
    documents = model["trees"][:used]
    vectors = any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in documents)
    trees, nodes = _read_trees(documents, outputs if vectors else 1)
    output_of_tree = None if vectors or outputs == 1 else np.asarray(model["tree_info"][:used])
    if dropped is not None and len(dropped):
        first = base if output_of_tree is None else base[output_of_tree]
        trees.value[:] = _weighted(trees, np.asarray(dropped, np.float32)[:used], first)
    categories = _categories(model.get("cats"), categorical, learner["feature_names"])
    return XGBoostModel(
        objective, link, base, n_features, named, categorical, categories, trees, output_of_tree, nodes, None
    )


def read_parts(raws: Iterable[bytes | bytearray | mmap]) -> XGBoostModel:
    """Return the model of trees whose rounds are in consecutive parts, each as `read_xgboost` reads it.

    Raises:
        ValueError: it cannot be served; the message says why in one clause.
    """
    trees: list[Trees] = []
    outputs, nodes = [], []
    for raw in raws:
        model = read_xgboost(raw)
        assert model.trees is not None
        trees.append(model.trees)
        nodes.append(model.nodes)
        if model.output_of_tree is not None:
            outputs.append(model.output_of_tree)
    output_of_tree = np.concatenate(outputs) if outputs else None
    return dataclasses.replace(model, trees=joined(trees), output_of_tree=output_of_tree, nodes=np.concatenate(nodes))


def _margins(text: str, outputs: int, link: str) -> np.ndarray:
    """Return the margins of a base score, "3.28E0" or "[1E0,2E0]", float32 `[outputs]`."""
    scores = np.array([float(number) for number in text.strip("[]").split(",")]).astype(np.float32)
    margins: np.ndarray = np.broadcast_to(np.array([_margin(score, link) for score in scores], np.float32), outputs)
    return margins


def _margin(score: np.float32, link: str) -> float:
    """Return the inverse of the link, each step rounded to float32."""
    if link == "exp":
        return math.log(score) if score > 0 else -math.inf if score == 0 else math.nan
    if link == "expit":
        clipped = min(max(score, np.float32(CLIPPED)), np.float32(1) - np.float32(CLIPPED))
        return -math.log(np.float32(1) / clipped - np.float32(1))
    return float(score)


def _read_trees(documents: list[dict[str, Any]], width: int) -> tuple[Trees, np.ndarray]:
    """Return the trees' nodes that a row can reach, level after level, and their numbers in the documents.

    A leaf has `width` values.
    """

    def field(name: str) -> np.ndarray:
        joined = np.concatenate([np.asarray(tree[name]) for tree in documents])
        return joined.astype(joined.dtype.newbyteorder("="))

    sizes = np.array([len(tree["left_children"]) for tree in documents])
    starts, tree_of = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    left, right = field("left_children"), field("right_children")
    inner = left != -1
    if ((left[inner] < 0) | (left[inner] >= sizes[tree_of[inner]])).any():
        raise ValueError("a node's child is not in its tree")
    if ((right[inner] < 0) | (right[inner] >= sizes[tree_of[inner]])).any():
        raise ValueError("a node's child is not in its tree")
    order = _reachable(starts, tree_of, left, right, inner)
    condition = field("split_conditions")
    threshold = np.nextafter(condition, np.float32(-np.inf))
    row_of, sets = _sets(documents, starts)
    numeric = inner & (row_of < 0)
    if np.isneginf(condition[order][numeric[order]]).any():
        raise ValueError("a node asks whether a number is below −infinity, as models of features beyond 1.7e38 do")
    if np.isnan(condition[order][numeric[order]]).any():
        raise ValueError("a node's condition is NaN")
    place, leaves = np.full(len(left), -1, np.int32), order[~inner[order]]
    new_starts = np.searchsorted(tree_of[order], np.arange(len(sizes)))
    place[order] = np.arange(len(order)) - new_starts[tree_of[order]]  # within its tree
    flags = np.where(inner & (field("default_left") > 0), MISSING_LEFT, 0) | np.where(row_of >= 0, CATEGORICAL, 0)
    if width > 1:
        value = np.concatenate([_leaf_vectors(tree, width) for tree in documents])[leaves].astype(np.float32)
    else:
        value = condition[leaves, None]
    found = Trees(
        np.bincount(tree_of[order], minlength=len(sizes)),
        narrow(field("split_indices")[order]),
        (np.where(row_of >= 0, row_of, threshold) if len(sets) else threshold)[order],
        narrow(np.where(inner, place[starts[tree_of] + left], -1)[order]),
        narrow(np.where(inner, place[starts[tree_of] + right], -1)[order]),
        flags[order].astype(np.uint8),
        value,
        sets,
        (field("sum_hessian")[order],) if all(len(tree.get("sum_hessian", ())) for tree in documents) else (),
    )
    return found, (order - starts[tree_of[order]]).astype(np.int32)


def _reachable(
    starts: np.ndarray, tree_of: np.ndarray, left: np.ndarray, right: np.ndarray, inner: np.ndarray
) -> np.ndarray:
    """Return the nodes that can be reached from the roots, tree after tree, and level after level in each."""
    levels, count = [starts], len(starts)
    while len(parents := levels[-1][inner[levels[-1]]]):
        first = starts[tree_of[parents]]
        levels.append(np.stack([first + left[parents], first + right[parents]], axis=1).ravel())
        count += 2 * len(parents)
        if count > len(tree_of):
            raise ValueError("a node is the child of several")
    nodes = np.concatenate(levels)
    order: np.ndarray = nodes[np.argsort(tree_of[nodes], kind="stable")]
    return order


def _sets(documents: list[dict[str, Any]], starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each node's row of `sets`, −1 if it does not ask for a category, and the sets.

    A set is int32 words; each bit says whether its category goes to the left, and the last bit also says so for all
    further categories.
    """
    total = int(starts[-1]) + len(documents[-1]["left_children"])
    row_of = np.full(total, -1, np.int32)
    asking = [place for place, tree in enumerate(documents) if len(tree["categories_nodes"])]
    if not asking:
        return row_of, np.zeros((0, 8), np.int32)
    count = sum(len(documents[place]["categories_nodes"]) for place in asking)
    largest = max(int(np.max(documents[place]["categories"], initial=0)) for place in asking)
    words = max(8, (largest + 2 + 31) // 32)
    sets, end = np.empty((count, words), np.int32), 0
    for place in asking:  # a tree at a time: lists of many categories are long
        tree = documents[place]
        segments, sizes = np.asarray(tree["categories_segments"]), np.asarray(tree["categories_sizes"])
        first = np.repeat(segments - (np.cumsum(sizes) - sizes), sizes)
        left = np.ones((len(sizes), 32 * words), bool)
        left[np.repeat(np.arange(len(sizes)), sizes), np.asarray(tree["categories"])[first + np.arange(len(first))]] = 0
        begin, end = end, end + len(sizes)
        sets[begin:end] = np.packbits(left, axis=1, bitorder="little").view("<i4")
        row_of[starts[place] + np.asarray(tree["categories_nodes"])] = np.arange(begin, end)
    return row_of, sets


def _leaf_vectors(tree: dict[str, Any], width: int) -> np.ndarray:
    """Return the values `[nodes, width]` of a tree whose leaves have several values each."""
    leaf = np.asarray(tree["left_children"]) == -1
    if "leaf_weights" not in tree:
        return np.asarray(tree["base_weights"]).reshape(-1, width)
    values = np.zeros((len(leaf), width), np.float32)
    values[leaf] = np.asarray(tree["leaf_weights"]).reshape(-1, width)[np.asarray(tree["right_children"])[leaf]]
    return values


def _weighted(trees: Trees, weight: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return the leaves of "dart" as `predict` adds them: plus the base and minus it again, times the tree's weight.

    Args:
        trees: trees whose leaves have one value each.
        weight: float32 `[trees]`.
        base: the margin before the first tree, one for all trees or one for each.
    """
    leaves = (trees.sizes + 1) // 2
    first = np.repeat(np.broadcast_to(base, weight.shape), leaves)[:, None]
    through = (first + trees.value) - first
    scaled: np.ndarray = through * np.repeat(weight, leaves)[:, None]
    return scaled


def _categories(document: Any, categorical: tuple[int, ...], names: Sequence[str]) -> dict[int, list[str] | np.ndarray]:
    """Return the categories that a model holds for each feature; it truncates strings that are not all ASCII."""
    found: dict[int, list[str] | np.ndarray] = {}
    for feature, encoded in enumerate(document["enc"] if document else ()):
        if feature not in categorical or not len(encoded["values"]):
            continue
        values = np.asarray(encoded["values"])
        if "offsets" not in encoded:
            found[feature] = values.astype(np.int64)
            continue
        if (values < 0).any():
            called = f"column '{names[feature]}'" if len(names) else f"feature {feature}"
            raise ValueError(
                f"a category of {called} has letters beyond ASCII, which XGBoost's model does not hold completely; "
                "encode the column by OrdinalEncoder in a Pipeline, or rename its categories"
            )
        text, offsets = values.astype(np.uint8).tobytes().decode("ascii"), encoded["offsets"]
        found[feature] = [text[begin:end] for begin, end in itertools.pairwise(offsets)]
    return found
