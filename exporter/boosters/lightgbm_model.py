"""LightGBM's model text, as `Booster.model_to_string` writes it, as arrays.

The text holds every number to its last bit, and only the trees that `predict` uses. LightGBM reads it as follows:

- A number goes to the left if it is at most the threshold, both float64. Numbers of at most 1e-35f in magnitude are
  read as 0, so that all thresholds among them are equivalent.
- NaN goes where 0 goes, unless its feature had NaN in training, or zero_as_missing is set: then the node says where. If
  zero_as_missing is set, 0 goes there too.
- A category is a number without its fraction. It goes to the left if it is in the node's set. All other numbers, with
  NaN and negative ones, go to the right.
- A leaf of a linear tree is `const + Σ coefficient · x`, and has a value for rows in which one of these `x` is NaN.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.rounds import joined
from triton_regressors.exporter.lowering.soundness import check_nodes
from triton_regressors.exporter.lowering.tree_nodes import Trees, narrow
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT

NEAR_ZERO = float(np.float32(1e-35))
"""Numbers of at most this magnitude are read as 0."""

BY_CATEGORY, DEFAULT_LEFT = 1, 2
"""Bits of a node's decision_type; the two bits above them say what counts as missing: nothing, zeros, or NaN."""

NO_MISSING, ZERO_MISSING = 0, 1

UNREAD = ("split_gain", "leaf_weight", "internal_value", "internal_weight")
"""The fields of trees that affect neither answers nor their contributions."""

COUNTS = ("internal_count", "leaf_count")
"""The fields with the number of training rows that reached each inner node and each leaf."""

OF_INNER = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
"""The fields that the text holds for each inner node."""


@dataclass(frozen=True)
class LinearLeaves:
    """The functions of the leaves of linear trees, leaf after leaf; the leaves of other trees have only a constant."""

    constant: np.ndarray  # float64 [leaves]
    terms: np.ndarray  # int64 [leaves], the number of features that a leaf reads
    feature: np.ndarray  # int64 [Σ terms]
    coefficient: np.ndarray  # float64 [Σ terms]


@dataclass(frozen=True)
class LightGBMModel:
    """A model of LightGBM.

    The nodes lie tree after tree, first each tree's inner nodes and then its leaves, in LightGBM's order. Tree `t` adds
    to output `t % outputs`: `trees.value`, `[leaves, outputs]`, is 0 in the other columns. `zero_missing` marks inner
    nodes whose feature has its zeros read as NaN.

    `objective` is empty if it was a function of the user's. `categorical` are the features of categories. `infos` say
    which numbers each feature had in training. `pandas_categories` are the categories of each categorical column of the
    pandas table, from left to right.
    """

    n_features: int
    outputs: int
    averaged: bool
    objective: tuple[str, ...]
    trees: Trees
    zero_missing: np.ndarray  # bool [nodes]
    linear: LinearLeaves | None
    categorical: tuple[int, ...]
    infos: tuple[str, ...]
    pandas_categories: tuple[tuple[Any, ...], ...]

    @property
    def rounds(self) -> int:
        """The number of trees in the sum of each output."""
        return len(self.trees.sizes) // self.outputs

    def codes(self, feature: int) -> list[int]:
        """Return the codes of a feature's categories in training, ascending."""
        info = self.infos[feature] if feature < len(self.infos) else "none"
        return [] if info[0] in "[n" else sorted(int(code) for code in info.split(":") if int(code) >= 0)


def read_model(text: str) -> LightGBMModel:
    """Return the model that a text of LightGBM's describes.

    Raises:
        ValueError: something is wrong with the text; the message says what in one clause.
    """
    begin = text.find("\nTree=")
    end = text.find("\nend of trees", max(begin, 0))
    if not text.startswith("tree") or begin < 0 or end < 0:
        raise ValueError("it is not a complete text of trees by LightGBM")
    said, tail = dict(line.partition("=")[::2] for line in text[:begin].splitlines()), text[end:]
    fields = _Fields(text, begin, end)
    features, outputs = int(said["max_feature_idx"]) + 1, int(said["num_tree_per_iteration"])
    leaves = fields.integers("num_leaves")
    if (leaves > len(text)).any():
        raise ValueError("a tree has more leaves than the text could hold")
    layout = _Layout(leaves)
    if len(layout.leaves) % outputs:
        raise ValueError(f"{len(layout.leaves)} trees are not shared among {outputs} outputs")
    inner = layout.inner.sum()
    decision, feature = fields.integers("decision_type", inner), fields.integers("split_feature", inner)
    if ((feature < 0) | (feature >= features)).any():
        raise ValueError(f"a node asks for a feature that is not in [0, {features})")
    categorical, missing = decision & BY_CATEGORY > 0, decision >> 2 & 3
    threshold = fields.floats("threshold", inner)
    goes_left = np.where(missing == NO_MISSING, threshold >= 0, decision & DEFAULT_LEFT > 0)
    number_of_set, sets = _sets(fields, threshold[categorical], layout.tree_of_inner[categorical])
    snapped = _snap(threshold)
    snapped[categorical] = number_of_set
    value = np.zeros((layout.leaves.sum(), outputs))
    value[np.arange(len(value)), layout.tree_of_leaf % outputs] = fields.floats("leaf_value", len(value))
    if not np.isfinite(value).all():
        raise ValueError("the value of a leaf is not finite")
    infos = tuple(said.get("feature_infos", "").split())
    return LightGBMModel(
        n_features=features,
        outputs=outputs,
        averaged="average_output" in said,
        objective=tuple(said.get("objective", "").split()),
        trees=Trees(
            sizes=layout.sizes,
            feature=layout.inner_nodes(narrow(feature)),
            threshold=layout.inner_nodes(snapped),
            left=layout.inner_nodes(layout.children(fields.integers("left_child", inner)), -1),
            right=layout.inner_nodes(layout.children(fields.integers("right_child", inner)), -1),
            flags=layout.inner_nodes(np.where(categorical, CATEGORICAL, MISSING_LEFT * goes_left).astype(np.uint8)),
            value=value,
            sets=sets,
            cover=_cover(fields, layout),
        ),
        zero_missing=layout.inner_nodes(~categorical & (missing == ZERO_MISSING)),
        linear=_linear_leaves(fields, layout, value, features),
        categorical=_categorical_features(infos, tail),
        infos=infos,
        pandas_categories=_pandas_categories(tail),
    )


def read_parts(texts: Iterable[str]) -> LightGBMModel:
    """Return the model whose rounds are described by consecutive texts of LightGBM's, some rounds each.

    Raises:
        ValueError: something is wrong with one of them; the message says what in one clause.
    """
    trees: list[Trees] = []
    zero_missing, leaves = [], []
    for text in texts:
        model = read_model(text)
        trees.append(model.trees)
        zero_missing.append(model.zero_missing)
        leaves.append(model.linear)
    linear = None
    if any(leaves):
        every = [vars(own or _constants(part.value)) for own, part in zip(leaves, trees, strict=True)]
        linear = LinearLeaves(**{name: np.concatenate([own[name] for own in every]) for name in every[0]})
    return dataclasses.replace(model, trees=joined(trees), zero_missing=np.concatenate(zero_missing), linear=linear)


class _Fields:
    """The fields of the trees, each field's numbers of all trees joined, with their count checked."""

    def __init__(self, text: str, begin: int, end: int) -> None:
        self._text = text
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for found in re.compile(r"^(\w+)=(.*)$", re.MULTILINE).finditer(text, begin, end):
            if found[1] not in UNREAD:
                self._lines.setdefault(found[1], []).append(found.span(2))

    def integers(self, name: str, count: int | None = None, dtype: type = np.int64) -> np.ndarray:
        """Return whole numbers."""
        return self._numbers(name, dtype, count)

    def floats(self, name: str, count: int) -> np.ndarray:
        """Return float64 numbers."""
        return self._numbers(name, np.float64, count)

    def _numbers(self, name: str, dtype: type, count: int | None) -> np.ndarray:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)
                lines = [self._text[slice(*line)] for line in self._lines.get(name, [])]
                words = " ".join(lines).strip()  # numpy would read a number from blanks
                found: np.ndarray = np.fromstring(words, dtype, sep=" ")
        except (DeprecationWarning, ValueError):
            raise ValueError(f"{name} holds a value that is not a number") from None
        if len(found) != (len(self._lines["num_leaves"]) if count is None else count):
            raise ValueError(f"{name} does not have as many numbers as its trees")
        return found


class _Layout:
    """The layout of the nodes: tree after tree, first each tree's inner nodes and then its leaves."""

    def __init__(self, leaves: np.ndarray) -> None:
        if not len(leaves) or (leaves < 1).any():
            raise ValueError("a tree has no leaf, or there is no tree")
        self.leaves, self.inner, self.sizes = leaves, leaves - 1, 2 * leaves - 1
        trees, first = np.arange(len(leaves)), np.cumsum(self.sizes) - self.sizes
        self.tree_of_inner, self.tree_of_leaf = np.repeat(trees, self.inner), np.repeat(trees, leaves)
        is_inner = np.arange(self.sizes.sum()) < np.repeat(first + self.inner, self.sizes)
        self._nodes, self._inner = len(is_inner), np.flatnonzero(is_inner)

    def inner_nodes(self, values: np.ndarray, of_leaves: int = 0) -> np.ndarray:
        """Return an array for all nodes with these values at the inner ones; the value at leaves has no meaning."""
        found: np.ndarray = np.full(self._nodes, of_leaves, values.dtype)
        found[self._inner] = values
        return found

    def children(self, child: np.ndarray) -> np.ndarray:
        """Return the places in their tree of children in LightGBM's numbering, in which leaf `l` is `~l`."""
        inner = self.inner[self.tree_of_inner]
        if ((child >= inner) | (~child > inner)).any():
            raise ValueError("a node's child is none of its tree's nodes")
        return narrow(np.where(child >= 0, child, inner + ~child))


def _cover(fields: _Fields, layout: _Layout) -> tuple[np.ndarray, ...]:
    """Return the number of training rows that reached each node, nothing if the text does not hold all of them."""
    inner, leaves = (int(count.sum()) for count in (layout.inner, layout.leaves))
    try:
        of_inner, of_leaves = fields.integers(COUNTS[0], inner, np.int32), fields.integers(COUNTS[1], leaves, np.int32)
    except ValueError:  # no answer depends on them
        return ()
    counts = layout.inner_nodes(of_inner)
    counts[~layout.inner_nodes(np.ones(inner, dtype=bool))] = of_leaves
    return (counts,)


def _snap(threshold: np.ndarray) -> np.ndarray:
    """Return thresholds that decide numbers as they are like `threshold` decides them with near-zero ones read as 0."""
    below = np.nextafter(-NEAR_ZERO, -np.inf)
    snapped = np.where((threshold >= -NEAR_ZERO) & (threshold < 0), below, threshold)
    found: np.ndarray = np.where((threshold >= 0) & (threshold < NEAR_ZERO), NEAR_ZERO, snapped)
    return found


def _sets(fields: _Fields, own: np.ndarray, tree: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the sets of categorical nodes, and all sets, int32 `[sets, words]`.

    The last bit of a set stands for every number that is not a category below it, and is 0: such numbers go to the
    right.

    Args:
        fields: the fields of the trees.
        own: the number of each node's set within its tree.
        tree: each node's tree.
    """
    count = fields.integers("num_cat")
    first = np.cumsum(count) - count
    if ((own < 0) | (own >= count[tree])).any():
        raise ValueError("a node asks for a set of categories that its tree does not have")
    total, trees = int(count.sum()), np.count_nonzero(count)
    if not total:
        return first[tree], np.zeros((0, 1), dtype=np.int32)
    boundaries = fields.integers("cat_boundaries", total + trees)
    starts = np.arange(trees) + np.append(0, np.cumsum(count[count > 0])[:-1])
    words = np.delete(np.diff(boundaries), starts[1:] - 1)  # a tree's first boundary is 0
    if (boundaries[starts] != 0).any() or (words < 0).any():
        raise ValueError("cat_boundaries do not ascend from 0")
    sets = np.zeros((total, int(words.max(initial=0)) + 1), dtype=np.uint32)
    sets[np.arange(sets.shape[1]) < words[:, None]] = fields.integers("cat_threshold", int(words.sum()), np.uint32)
    last = int(np.flatnonzero(sets.any(axis=0)).max(initial=0))
    sets = sets[:, : last + 1 + int((sets[:, last] >> 31).any())].copy()
    return first[tree] + own.astype(np.int64), sets.view(np.int32)


def _constants(value: np.ndarray) -> LinearLeaves:
    """Return the constant functions of ordinary leaves with values `[leaves, outputs]`."""
    return LinearLeaves(
        value.sum(axis=1), np.zeros(len(value), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    )


def _linear_leaves(fields: _Fields, layout: _Layout, value: np.ndarray, features: int) -> LinearLeaves | None:
    """Return the linear functions of leaves with values `[leaves, outputs]`; None if no tree is linear."""
    is_linear = fields.integers("is_linear") > 0
    if not is_linear.any():
        return None
    in_linear = is_linear[layout.tree_of_leaf]
    constant, terms = value.sum(axis=1), np.zeros(len(value), dtype=np.int64)
    constant[in_linear] = fields.floats("leaf_const", int(in_linear.sum()))
    terms[in_linear] = fields.integers("num_features", int(in_linear.sum()))
    feature = fields.integers("leaf_features", terms.sum())
    coefficient = fields.floats("leaf_coeff", len(feature))
    if ((feature < 0) | (feature >= features)).any():
        raise ValueError(f"a leaf reads a feature that is not in [0, {features})")
    if not np.isfinite(constant).all() or not np.isfinite(coefficient).all():
        raise ValueError("a coefficient of a leaf is not finite")
    return LinearLeaves(constant, terms, feature, coefficient)


def checked_text(text: str) -> str:
    """Return a text that is safe for LightGBM's compiled code, which trusts its numbers, after checking them.

    The result lacks the line that says where each tree begins. With it LightGBM reads all trees at once, and an error
    in one of them then ends the process.

    Raises:
        ValueError: the numbers do not fit together; the message says which in one clause.
    """
    if "\r" in text or "\0" in text:
        raise ValueError("it holds characters that LightGBM does not write")
    model = read_model(text)
    trees = model.trees
    start = np.cumsum(trees.sizes) - trees.sizes
    for first, size in zip(start, trees.sizes, strict=True):
        left, right = trees.left[first : first + size], trees.right[first : first + size]
        check_nodes(left, right, left >= 0)
    head, _, rest = text.partition("\nTree=")
    lines = head.split("\n")
    said = dict(line.partition("=")[::2] for line in lines)
    if int(said["num_class"]) != model.outputs or len(said["feature_names"].split()) != model.n_features:
        raise ValueError("its head does not match its classes or features")
    body, _, tail = rest.partition("\nend of trees")
    for block in body.split("\nTree="):
        _check_block(block)
    parameters = tail.partition("\nparameters:")[2].partition("\nend of parameters")[0]
    if not all(re.fullmatch(r"\[\w+: .*\]|", line) for line in parameters.split("\n")):
        raise ValueError("a parameter is not a name with a value")
    kept = "\n".join(line for line in lines if not line.startswith("tree_sizes"))
    return f"{kept}\nTree={rest}"


def _check_block(block: str) -> None:
    """Raise `ValueError` unless each line of a tree holds as many numbers as LightGBM reads from it."""
    _, *lines = block.rstrip("\n").split("\n")
    fields = dict(line.partition("=")[::2] for line in lines)
    counts = {name: len(words.split()) for name, words in fields.items()}
    if len(fields) < len(lines) or "" in fields:
        raise ValueError("a tree has a name twice, or is cut in two")
    leaves, sets = int(fields["num_leaves"]), int(fields["num_cat"])
    words = int(fields["cat_boundaries"].split()[-1]) if sets else 0
    expected = dict.fromkeys(OF_INNER, leaves - 1) | {"leaf_value": leaves}
    expected |= {"cat_boundaries": sets + 1 if sets else 0, "cat_threshold": words}
    if int(fields.get("is_linear", 0)):
        terms = sum(map(int, fields["num_features"].split()))
        expected |= {"leaf_const": leaves, "num_features": leaves, "leaf_features": terms, "leaf_coeff": terms}
    unread = {name: leaves if name.startswith("leaf") else leaves - 1 for name in UNREAD + COUNTS if counts.get(name)}
    for name, count in (expected | unread).items():
        if counts.get(name, 0) != count:
            raise ValueError(f"{name} does not have as many numbers as its tree")


def _categorical_features(infos: tuple[str, ...], tail: str) -> tuple[int, ...]:
    """Return the features of categories: those with a list of codes, and declared ones without any information.

    A declaration can be without effect, as in the parameters of an estimator that is fitted on a DataFrame.
    """
    found = re.search(r"^\[categorical_feature: ([\d,]*)\]$", tail, re.MULTILINE)
    declared = {int(feature) for feature in found[1].split(",") if feature} if found else set()
    return tuple(f for f, info in enumerate(infos) if info[0] not in "[n" or (info == "none" and f in declared))


def _pandas_categories(tail: str) -> tuple[tuple[Any, ...], ...]:
    """Return the categories of pandas' columns, which stand at the end of the text."""
    _, _, found = tail.rpartition("pandas_categorical:")
    columns = json.loads(found) if found.strip() else None
    return tuple(tuple(categories) for categories in columns or ())
