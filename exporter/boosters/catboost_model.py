"""What CatBoost writes of a model as JSON: its trees, what they ask, and the statistics of its categories.

A tree asks questions by their numbers among those of the whole model, which are in this order: whether a number exceeds
a border, for each border of each numeric feature; whether a category is a certain one, for each value of each feature
that is encoded one-hot; and whether a statistic of categories, a CTR in CatBoost's words, exceeds a border. Yes is to
the right. A symmetric tree asks the same question at each node of a level, and leaf `Σₖ 2ᵏ · answerₖ` holds its value.

A category is known by the lowest 32 bits of its string's hash. A CTR looks up categories, and answers to questions,
together: their hashes are folded into one of 64 bits, `h ← M · (h + M · part)`, which has some counts in a table or
none. What it asks of these, with a prior, is computed in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.cityhash import city_hash_64

MULTIPLIER = np.uint64(0x4906BA494954CB65)
NO_HASH = 2**64 - 1
"""The hash that stands in a table's empty places."""

AT_ONCE = 2**20
"""How many combinations are looked for at a time."""

KINDS = ("Borders", "Buckets", "Counter", "FeatureFreq", "BinarizedTargetMeanValue", "FloatTargetMeanValue")
FLOAT, ONE_HOT, CTR = range(3)
"""What a question is about."""


@dataclass(frozen=True)
class Questions:
    """What trees ask, `[questions]` each: a kind, of what, and the border or hash that it is compared with.

    `source` is a column of the input for a number and a category, and a number among the CTRs.
    """

    kind: np.ndarray
    source: np.ndarray
    border: np.ndarray  # float64; floats as they are in float32, and hashes, −2³¹ to 2³¹ − 1


@dataclass(frozen=True)
class Ctr:
    """A statistic of categories: `values` for the combinations that have these `keys`, and `unknown` for others.

    The hashes of the categories in `columns` and the answers to `questions` make a key, in this order.
    """

    columns: tuple[int, ...]
    questions: tuple[int, ...]
    keys: np.ndarray  # uint64 [keys], ascending
    values: np.ndarray  # float32 [keys]
    unknown: float


@dataclass(frozen=True)
class Nodes:
    """Nodes of several trees, tree after tree, each tree's root first, `[nodes]` each.

    `left` and `right` count within the tree, −1 at a leaf, where `question` is −1 too.
    """

    sizes: np.ndarray  # [trees]
    question: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray  # float64 [nodes, outputs]


@dataclass(frozen=True)
class CatBoostModel:
    """A model: `scale · Σₜ value[leaf(t, x)] + bias`.

    `numeric` are the columns of the input that are compared with borders, `nan_right` those of them in which NaN
    exceeds every border, and `categorical` those that hold categories.
    """

    questions: Questions
    ctrs: tuple[Ctr, ...]
    nodes: Nodes
    scale: float
    bias: np.ndarray  # [outputs]
    numeric: tuple[int, ...]
    nan_right: frozenset[int]
    categorical: tuple[int, ...]


def category_hash(text: str) -> int:
    """Return the number that CatBoost knows a category by, −2³¹ to 2³¹ − 1."""
    low = city_hash_64(text.encode()) & 0xFFFFFFFF
    return low - (low >> 31 << 32)


def combine(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the keys, uint64, of combinations of hashes and answers, integers `[rows]` each."""
    key = np.zeros(np.broadcast_shapes(*(part.shape for part in parts)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            key = MULTIPLIER * (key + MULTIPLIER * part.astype(np.int64).view(np.uint64))
    return key


def find_combinations(choices: Sequence[np.ndarray], keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which combinations of one of each of the choices have one of the keys, and which one.

    Args:
        choices: hashes or answers, integers, of each part of a key.
        keys: uint64, ascending.

    Returns:
        The combinations' numbers, the last choice varying fastest; and of each the place of its key.
    """
    weights, weight = [], MULTIPLIER
    with np.errstate(over="ignore"):
        for _ in choices:
            weight = weight * MULTIPLIER
            weights.append(weight)  # of the last part first: a key is a sum, as integers of 64 bits are added
        parts = [w * c.astype(np.int64).view(np.uint64) for w, c in zip(reversed(weights), choices, strict=True)]
        split = len(parts) - 1
        while split and len(parts[split - 1]) * np.prod([len(part) for part in parts[split:]]) <= AT_ONCE:
            split -= 1
        tail, head = _sums(parts[split:]), _sums(parts[: split if len(keys) else 0])
        low = np.uint64(max(1 << (16 * len(keys)).bit_length(), 2**16) - 1)
        maybe = np.zeros(int(low) + 1, dtype=bool)
        maybe[keys & low] = True
        places, found = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for number, first in enumerate(head):
            sums = first + tail
            at = np.flatnonzero(maybe[sums & low])
            place = np.minimum(np.searchsorted(keys, sums[at]), len(keys) - 1)
            held = keys[place] == sums[at]
            places.append(at[held] + number * len(tail))
            found.append(place[held])
    return np.concatenate(places), np.concatenate(found)


def _sums(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return all sums of one of each of the parts, the last one varying fastest."""
    sums = np.zeros(1, dtype=np.uint64)
    for part in parts:
        sums = (sums[:, None] + part).ravel()
    return sums


def read_model(path: Path) -> CatBoostModel:
    """Return the model in a file that CatBoost wrote with `save_model(format="json")`.

    Raises:
        ValueError: in one clause, what of it is not read.
    """
    # CatBoost writes an emoji, for which Python takes 4 bytes a character. What is read of the document is ASCII.
    document = json.loads(path.read_bytes().decode("latin-1"), object_hook=_compact)
    features = document["features_info"]
    if not document.get("oblivious_trees") and not document.get("trees"):
        raise ValueError("it has no trees")
    _check_tables(document.get("model_info", {}))
    scale, bias = document["scale_and_bias"]
    floats, categories = features.get("float_features") or [], features.get("categorical_features") or []
    ctrs = features.get("ctrs") or []
    column = {feature["feature_index"]: feature["flat_feature_index"] for feature in categories}
    questions = _questions(floats, categories, ctrs)
    numbers = _numbers(floats, categories)
    outputs = len(bias)
    return CatBoostModel(
        questions,
        tuple(_ctr(ctr, document["ctr_data"], column, numbers) for ctr in ctrs),
        _symmetric(document["oblivious_trees"], questions, outputs)
        if "oblivious_trees" in document
        else _nested(document["trees"], outputs),
        float(scale),
        np.array(bias, dtype=np.float64),
        tuple(feature["flat_feature_index"] for feature in floats if feature["borders"]),
        frozenset(
            feature["flat_feature_index"]
            for feature in floats
            if feature["has_nans"] and feature["nan_value_treatment"] == "AsTrue"
        ),
        tuple(column.values()),
    )


def _compact(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the document with leaves' values as an array, and without their weights: both are long."""
    part.pop("leaf_weights", None)
    if "leaf_values" in part:
        part["leaf_values"] = np.array(part["leaf_values"], dtype=np.float64)
    return part


def _check_tables(info: Mapping[str, Any]) -> None:
    """Raise `ValueError` where two tables of statistics have one name in the document, which then holds one alone.

    A table is named by its kind and its features, and not by how many classes the target was split into.
    """
    given = info.get("params", "{}")
    options = (json.loads(given) if isinstance(given, str) else given).get("cat_feature_params", {})
    lists = [options.get("simple_ctrs", []), options.get("combinations_ctrs", [])]
    for described in [*lists, *(options.get("per_feature_ctrs") or {}).values()]:
        kinds = [ctr["ctr_type"] for ctr in described if isinstance(ctr, dict)]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(
                f"it has several CTR statistics of type {twice[0]}, which its JSON merges; supported: one of each"
            )


def _questions(floats: Any, categories: Any, ctrs: Any) -> Questions:
    """Return all questions in the order of their numbers."""
    parts = [
        *((FLOAT, feature["flat_feature_index"], feature["borders"]) for feature in floats),
        *((ONE_HOT, feature["flat_feature_index"], feature.get("values") or []) for feature in categories),
        *((CTR, number, ctr["borders"]) for number, ctr in enumerate(ctrs)),
    ]
    counts = [len(borders) for _, _, borders in parts]
    return Questions(
        np.repeat([kind for kind, _, _ in parts], counts).astype(np.int8),
        np.repeat([source for _, source, _ in parts], counts).astype(np.int64),
        np.array([border for _, _, borders in parts for border in borders], dtype=np.float64),
    )


def _numbers(floats: Any, categories: Any) -> dict[tuple[str, int, float], int]:
    """Return the numbers of questions by what a combination's element says of them."""
    named = [("float_feature", feature["feature_index"], border) for feature in floats for border in feature["borders"]]
    named += [
        ("cat_feature_exact_value", feature["feature_index"], value)
        for feature in categories
        for value in feature.get("values") or []
    ]
    return {name: number for number, name in enumerate(named)}


def _ctr(ctr: Any, tables: Any, column: Mapping[int, int], numbers: Mapping[tuple[str, int, float], int]) -> Ctr:
    """Return a statistic with its values."""
    columns, questions = [], []
    for element in ctr["elements"]:
        kind = element["combination_element"]
        if kind == "cat_feature_value":
            columns.append(column[element["cat_feature_index"]])
        elif kind == "float_feature":
            questions.append(numbers[kind, element["float_feature_index"], element["border"]])
        else:
            questions.append(numbers[kind, element["cat_feature_index"], element["value"]])
    table = tables[ctr["identifier"]]
    stride, flat = table["hash_stride"], table["hash_map"]
    keys = np.array([int(key) for key in flat[::stride]], dtype=np.uint64)
    counts = np.array([flat[place::stride] for place in range(1, stride)], dtype=np.float64).T.reshape(len(keys), -1)
    held = keys != np.uint64(NO_HASH)
    keys, order = np.unique(keys[held], return_index=True)
    good, total, none = _counts(ctr, counts[held][order], table.get("counter_denominator", 0))
    prior, below, shift, scale = (
        np.float32(ctr[name]) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
    )

    def value(good: np.ndarray, total: np.ndarray) -> np.ndarray:
        found: np.ndarray = ((good.astype(np.float32) + prior) / (total.astype(np.float32) + below) + shift) * scale
        return found

    with np.errstate(divide="ignore", invalid="ignore"):
        unknown = value(np.zeros(1), np.array([none]))
        return Ctr(tuple(columns), tuple(questions), keys, value(good, total), float(unknown[0]))


def _counts(ctr: Any, counts: np.ndarray, denominator: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return what a statistic divides by what, for the rows of a table and for what it does not hold.

    Raises:
        ValueError: its type is unknown.
    """
    kind, border = ctr["ctr_type"], ctr["target_border_idx"]
    if kind in ("Counter", "FeatureFreq"):
        return counts[:, 0], np.full(len(counts), float(denominator)), float(denominator)
    if kind in ("BinarizedTargetMeanValue", "FloatTargetMeanValue"):
        return counts[:, 0], counts[:, 1], 0.0
    if kind == "Buckets":
        return counts[:, border], counts.sum(axis=1), 0.0
    if kind == "Borders":
        return counts[:, border + 1 :].sum(axis=1), counts.sum(axis=1), 0.0
    raise ValueError(f"it has CTR statistics of type {kind}; supported: {', '.join(KINDS)}")


def _symmetric(trees: Any, questions: Questions, outputs: int) -> Nodes:
    """Return the nodes of symmetric trees, without those that no row reaches.

    A question whose answer follows from those before it is not asked. Levels are made one after the other, of all trees
    at once; a node of a level is a tree and the answers so far.
    """
    depth = np.array([len(tree["splits"] or ()) for tree in trees])
    asked = np.full((len(trees), max(depth.max(initial=0), 1)), -1)
    for row, tree in zip(asked, trees, strict=True):
        row[: len(tree["splits"] or ())] = [split["split_index"] for split in tree["splits"] or ()]
    leaf_values = np.concatenate([tree["leaf_values"] for tree in trees]).reshape(-1, outputs)
    first_leaf = np.cumsum([0, *(1 << depth)])[:-1].astype(np.int32)
    tree = np.arange(len(trees), dtype=np.int32)
    answers, node = np.zeros_like(tree), tree
    count = len(trees)  # of nodes
    made: list[Any] = []  # what each level gives to its nodes
    for level in range(int(depth.max(initial=0)) + 1):
        ended = depth[tree] == level
        end = node[ended]
        made.append((end, tree[ended], -1, -1, first_leaf[tree[ended]] + answers[ended]))
        tree, answers, node = tree[~ended], answers[~ended], node[~ended]
        if not len(tree):
            break
        yes, no = (found[tree] for found in _follows(asked[:, : level + 1], questions))
        can = [(answers & no[:, 0]) == 0, ((answers & yes[:, 0]) == yes[:, 0]) & ((answers & yes[:, 1]) == 0)]
        both = can[0] & can[1]
        left = count + 2 * np.arange(int(both.sum()), dtype=np.int32)
        made.append((node[both], tree[both], asked[tree[both], level], left, -1))
        count += 2 * len(left)
        single, bit = ~both, np.int32(1 << level)
        tree = np.concatenate([tree[single], tree[both], tree[both]])
        answers = np.concatenate([answers[single] + bit * can[1][single], answers[both], answers[both] + bit])
        node = np.concatenate([node[single], left, left + 1])
    return _in_order(made, count, len(trees), leaf_values)


def _follows(asked: np.ndarray, questions: Questions) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each tree's last question, which answers to those before it decide it, as masks of bits.

    Args:
        asked: the questions so far, `[trees, levels]`.
        questions: all of them.

    Returns:
        `[trees, 2]`: yes is possible where all of the first answers are yes and none of the second ones.
        `[trees, 1]`: no is possible where none of these answers is yes.
    """
    before, last = asked[:, :-1], asked[:, -1:]
    kind, source, border = questions.kind, questions.source, questions.border
    same = (kind[before] == kind[last]) & (source[before] == source[last])
    one_hot = kind[last] == ONE_HOT
    lower = same & np.where(one_hot, border[before] == border[last], border[before] <= border[last])
    higher = same & np.where(one_hot, border[before] == border[last], border[before] >= border[last])
    other = same & one_hot & (border[before] != border[last])
    weight = np.int64(1) << np.arange(before.shape[1])
    masks = [np.where(which, weight, 0).sum(axis=1, dtype=np.int64) for which in (lower, other, higher)]
    return np.stack(masks[:2], axis=1), masks[2][:, None]


def _in_order(made: list[Any], count: int, trees: int, leaf_values: np.ndarray) -> Nodes:
    """Return nodes that were numbered level by level, tree by tree."""
    tree_of = np.zeros(count, dtype=np.int32)
    question, left, leaf = (np.full_like(tree_of, -1) for _ in range(3))
    while made:  # which frees them
        node, tree, asked, child, value = made.pop()
        tree_of[node], question[node], left[node], leaf[node] = tree, asked, child, value
    order = np.argsort(tree_of, kind="stable")
    sizes = np.bincount(tree_of, minlength=trees)
    place = np.empty_like(tree_of)
    place[order] = np.arange(count)
    place -= (np.cumsum(sizes) - sizes).astype(np.int32)[tree_of]  # of each node within its tree
    inner = left >= 0
    left, right = (np.where(inner, place[np.maximum(child, 0)], -1) for child in (left, np.where(inner, left + 1, 0)))
    values = np.where(inner[:, None], 0.0, leaf_values[leaf])
    return Nodes(sizes, question[order], left[order], right[order], values[order])


def _nested(trees: Any, outputs: int) -> Nodes:
    """Return the nodes of trees that are written as nodes in nodes."""
    sizes: list[int] = []
    question: list[int] = []
    left: list[int] = []
    right: list[int] = []
    values: list[list[float]] = []
    nothing = [0.0] * outputs
    for tree in trees:
        waiting, start = [tree], len(question)
        for node in waiting:  # level by level, while it grows
            inside = "split" in node
            left.append(len(waiting) if inside else -1)
            right.append(len(waiting) + 1 if inside else -1)
            question.append(node["split"]["split_index"] if inside else -1)
            if inside:
                waiting += [node["left"], node["right"]]
                values.append(nothing)
            else:
                value = node["value"]
                values.append(value if isinstance(value, list) else [value])
        sizes.append(len(question) - start)
    return Nodes(
        np.array(sizes), np.array(question), np.array(left), np.array(right), np.array(values, dtype=np.float64)
    )
