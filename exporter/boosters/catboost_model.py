"""What CatBoost's own files, `.cbm`, hold: trees, what they ask, and the statistics of categories.

A tree asks questions by their numbers among those of the whole model, which are in this order: whether a number exceeds
a border, for each border of each numeric feature; whether a category is a certain one, for each value of each feature
that is encoded one-hot; and whether a statistic of categories, a CTR in CatBoost's words, exceeds a border. Yes is to
the right. A symmetric tree asks the same question at each node of a level, and leaf `Σₖ 2ᵏ · answerₖ` holds its value.

A category is known by the lowest 32 bits of its string's hash. A CTR looks up categories, and answers to questions,
together: their hashes are folded into one of 64 bits, `h ← M · (h + M · part)`, which has some counts in a table or
none. What it asks of these, with a prior, is computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.cityhash import city_hash_64
from triton_regressors.exporter.boosters.flat_tables import Table

MULTIPLIER = np.uint64(0x4906BA494954CB65)
NO_HASH = 2**64 - 1
"""The hash that stands in a table's empty places."""

AT_ONCE = 2**20
"""How many combinations are looked for at a time."""

TREES_AT_ONCE = 512
"""Of how many symmetric trees nodes are made at a time."""

MARK = b"CBM1"
TEXTS = (12, 13, 18)
"""The fields of a model's trees that are about text and embeddings."""

AS_TRUE = 2
"""What the file says of a numeric feature whose NaN exceeds every border."""

FEATURES = 2**20
"""How many features a model may have."""

DEEPEST = 16
"""The levels of questions that a symmetric tree has at most."""

BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])
"""A place of a table of statistics."""

STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
"""How many nodes further a node's children are."""

KINDS = ("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue", "Counter", "FeatureFreq")
MEANS, CLASSES = KINDS[2:4], KINDS[:2]
"""Kinds of statistics: those that hold a sum and a count, and those that hold a count of each class of the target."""

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


def read_model(data: bytes) -> CatBoostModel:
    """Return the model in a file that CatBoost wrote, a `.cbm`, if its numbers fit together.

    They are looked at more closely than reading them asks for: CatBoost's compiled code trusts them.

    Raises:
        ValueError: in one clause, what of it does not fit or is not read.
    """
    if data[:4] != MARK or len(data) < 8:
        raise ValueError("it is no model of CatBoost's")
    size = int.from_bytes(data[4:8], "little")
    view = memoryview(data)
    core, rest = Table.root(view[8 : 8 + size]), view[8 + size :]
    trees = core.table(1)
    if any(trees.count(field) for field in TEXTS):
        raise ValueError("it reads text or embeddings; supported: numbers and categories")
    outputs = trees.number(0, "i", 0)
    floats = [_float(table) for table in trees.tables(5)]
    categories = {table.number(0, "i", -1): table.number(1, "i", -1) for table in trees.tables(4)}
    one_hot = [(table.number(0, "i", -1), table.array(1, "<i4")) for table in trees.tables(6)]
    ctrs = trees.tables(7)
    _check_features(floats, categories, one_hot)
    questions = _questions(floats, categories, one_hot, [table.array(1, "<f4") for table in ctrs])
    bias = trees.array(16, "<f8") if trees.count(16) else np.full(max(outputs, 0), trees.number(15, "d", 0.0))
    scale = trees.number(14, "d", 1.0)
    _require(outputs >= 1 and len(bias) == outputs, "bias is not of each output")
    _require(bool(np.isfinite([scale, *bias]).all()), "scale or bias is not finite")
    tables = _tables(rest) if core.count(3) else {}
    numbers = _numbers(floats, one_hot)
    return CatBoostModel(
        questions,
        tuple(_ctr(table.table(0), tables, categories, numbers) for table in ctrs),
        _nodes(trees, questions, outputs),
        scale,
        bias,
        tuple(feature.column for feature in floats if len(feature.borders)),
        frozenset(feature.column for feature in floats if feature.nan_right),
        tuple(categories.values()),
    )


@dataclass(frozen=True)
class _Float:
    """A numeric feature: its number among those, its column of the input, and the borders that it is compared with."""

    index: int
    column: int
    borders: np.ndarray
    nan_right: bool


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _within(numbers: np.ndarray, end: int) -> bool:
    return bool(((numbers >= 0) & (numbers < end)).all())


def _float(table: Table) -> _Float:
    nan_right = table.number(0, "?", False) and table.number(5, "b", 0) == AS_TRUE
    return _Float(table.number(1, "i", -1), table.number(2, "i", -1), table.array(3, "<f4"), nan_right)


def _check_features(
    floats: Sequence[_Float], categories: Mapping[int, int], one_hot: Sequence[tuple[int, np.ndarray]]
) -> None:
    columns = [*(feature.column for feature in floats), *categories.values()]
    indices = [feature.index for feature in floats]
    places = np.array([*columns, *indices, *categories], dtype=np.int64)
    _require(_within(places, FEATURES), f"a feature's number is not in [0, {FEATURES:,})")
    _require(len(set(columns)) == len(columns) and len(set(indices)) == len(indices), "two features are the same")
    for feature in floats:
        _require(bool((np.diff(feature.borders) > 0).all()), "borders do not ascend")
    _require(all(feature in categories for feature, _ in one_hot), "a feature of categories is not there")


def _questions(
    floats: Sequence[_Float],
    categories: Mapping[int, int],
    one_hot: Sequence[tuple[int, np.ndarray]],
    ctrs: Sequence[np.ndarray],
) -> Questions:
    """Return all questions in the order of their numbers."""
    parts = [
        *((FLOAT, feature.column, feature.borders) for feature in floats),
        *((ONE_HOT, categories[feature], values) for feature, values in one_hot),
        *((CTR, number, borders) for number, borders in enumerate(ctrs)),
    ]
    counts = [len(borders) for _, _, borders in parts]
    return Questions(
        np.repeat([kind for kind, _, _ in parts], counts).astype(np.int8),
        np.repeat([source for _, source, _ in parts], counts).astype(np.int64),
        np.concatenate([np.zeros(0), *(borders for _, _, borders in parts)]),
    )


def _numbers(floats: Sequence[_Float], one_hot: Sequence[tuple[int, np.ndarray]]) -> dict[tuple[int, int, float], int]:
    """Return the numbers of questions by what a combination says of them."""
    named = [(FLOAT, feature.index, border) for feature in floats for border in feature.borders.tolist()]
    named += [(ONE_HOT, feature, value) for feature, values in one_hot for value in values.tolist()]
    return {name: number for number, name in enumerate(named)}


@dataclass(frozen=True)
class _Base:
    """What a table of statistics is of: the features that make its keys, its kind, and how targets were split."""

    categories: tuple[int, ...]
    floats: tuple[tuple[int, float], ...]
    one_hot: tuple[tuple[int, int], ...]
    kind: str
    classifier: int


def _base(table: Table) -> _Base:
    parts, kind = table.table(0), table.number(1, "b", 0)
    _require(0 <= kind < len(KINDS), f"it has CTR statistics of type {kind}; supported: {', '.join(KINDS)}")
    return _Base(
        tuple(parts.array(0, "<i4").tolist()),
        tuple(parts.array(1, [("feature", "<i4"), ("border", "<f4")]).tolist()),
        tuple(parts.array(2, [("feature", "<i4"), ("value", "<i4")]).tolist()),
        KINDS[kind],
        table.number(2, "i", 0),
    )


def _tables(data: memoryview) -> dict[_Base, Table]:
    """Return the tables of statistics that follow the trees."""
    found, place = {}, 4
    for _ in range(int.from_bytes(data[:4], "little")):
        size = int.from_bytes(data[place : place + 4], "little")
        _require(0 < size <= len(data) - place - 4, "its end is missing")
        table = Table.root(data[place + 4 : place + 4 + size])
        found[_base(table.table(0))] = table
        place += 4 + size
    return found


def _ctr(
    ctr: Table,
    tables: Mapping[_Base, Table],
    column: Mapping[int, int],
    numbers: Mapping[tuple[int, int, float], int],
) -> Ctr:
    """Return a statistic with its values."""
    base, border = _base(ctr.table(0)), ctr.number(1, "i", 0)
    asked = [*((FLOAT, *split) for split in base.floats), *((ONE_HOT, *split) for split in base.one_hot)]
    _require(
        base in tables and all(feature in column for feature in base.categories) and all(q in numbers for q in asked),
        "a statistic is of what is not there",
    )
    table = tables[base]
    buckets = table.array(1, "u1")
    _require(len(buckets) % BUCKET.itemsize == 0, "a table of statistics is cut off")
    buckets = buckets.view(BUCKET)
    held = buckets["hash"] != NO_HASH
    # It is searched from the place that the hash's lowest bits say, up to the first empty one.
    _require(len(buckets).bit_count() == 1 and not held.all(), "a table of statistics has no empty place")
    means, classes = base.kind in MEANS, table.number(4, "i", 0)
    width = 2 if means else classes if base.kind in CLASSES else 1
    _require(0 < width < 2**16, "a table of statistics is of no classes")
    blob = table.array(2, "u1")
    _require(len(blob) % (4 * width) == 0, "a table of statistics is cut off")
    values = blob.view([("sum", "<f4"), ("count", "<i4")] if means else "<i4")
    counts = np.stack([values["sum"], values["count"]], axis=1) if means else values.reshape(-1, width)
    _require(_within(buckets["index"][held].astype(np.int64), len(counts)), "a statistic lies beyond its table")
    last = width - 1 if base.kind == "Borders" else width
    _require(base.kind not in CLASSES or 0 <= border < last, "a statistic is of a class that is not there")
    keys, order = np.unique(buckets["hash"][held], return_index=True)
    counts = counts[buckets["index"][held][order]].astype(np.float64)
    good, total, none = _counts(base.kind, border, counts, table.number(3, "i", 0))
    prior, below, shift, scale = (
        np.float32(ctr.number(field, "f", default)) for field, default in ((2, 0.0), (3, 1.0), (4, 0.0), (5, 1.0))
    )

    def value(good: np.ndarray, total: np.ndarray) -> np.ndarray:
        found: np.ndarray = ((good.astype(np.float32) + prior) / (total.astype(np.float32) + below) + shift) * scale
        return found

    with np.errstate(all="ignore"):
        unknown = value(np.zeros(1), np.array([none]))
        return Ctr(
            tuple(column[feature] for feature in base.categories),
            tuple(numbers[question] for question in asked),
            keys,
            value(good, total),
            float(unknown[0]),
        )


def _counts(kind: str, border: int, counts: np.ndarray, denominator: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return what a statistic divides by what, for the rows of a table and for what it does not hold."""
    if kind in MEANS:
        return counts[:, 0], counts[:, 1], 0.0
    if kind == "Buckets":
        return counts[:, border], counts.sum(axis=1), 0.0
    if kind == "Borders":
        return counts[:, border + 1 :].sum(axis=1), counts.sum(axis=1), 0.0
    return counts[:, 0], np.full(len(counts), float(denominator)), float(denominator)


def _nodes(trees: Table, questions: Questions, outputs: int) -> Nodes:
    """Return the nodes of the trees, which a row can reach."""
    splits, sizes, starts = (trees.array(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    values, steps, leaf = trees.array(8, "<f8"), trees.array(10, STEP), trees.array(11, "<u4")
    _require(len(sizes) > 0, "it has no trees")
    _require(_within(sizes, len(splits) + 1) and len(splits) == sizes.sum(), "questions are not of each tree")
    _require(np.array_equal(starts, np.cumsum(sizes) - sizes), "questions of a tree lie elsewhere")
    _require(_within(splits, max(len(questions.kind), 1)), "a node asks what is no question")
    _require(bool(np.isfinite(values).all()), "the value of a leaf is not finite")
    if not len(steps):
        _require(not len(leaf), "steps are not of each node")
        _require(not sizes.any() or len(questions.kind) > 0, "a node asks what is no question")
        _require(_within(sizes, DEEPEST + 1), f"a tree is deeper than {DEEPEST}")
        leaves = int((1 << sizes).sum())
        _require(len(values) == leaves * outputs, "values are not of each leaf")
        _require(trees.count(9) in (0, leaves), "weights are not of each leaf")
        return _symmetric_parts(splits, sizes, values.reshape(-1, outputs), questions)
    return _stepping(splits, sizes, np.stack([steps["left"], steps["right"]]).astype(np.int64), leaf, values, outputs)


def _symmetric_parts(splits: np.ndarray, depth: np.ndarray, leaf_values: np.ndarray, questions: Questions) -> Nodes:
    """Return the nodes of symmetric trees, made of some trees after the other, as making them takes several times more.

    Args:
        splits: the questions' numbers, tree after tree.
        depth: how many of these each tree has.
        leaf_values: `[leaves, outputs]`, tree after tree.
        questions: of the whole model.
    """
    first, leaf = np.cumsum([0, *depth]), np.cumsum([0, *(1 << depth)])
    parts = []
    for begin in range(0, len(depth), TREES_AT_ONCE):
        end = min(begin + TREES_AT_ONCE, len(depth))
        own, held = splits[first[begin] : first[end]], leaf_values[leaf[begin] : leaf[end]]
        parts.append(list(vars(_symmetric(own, depth[begin:end], held, questions)).values()))
    return Nodes(*(np.concatenate([part.pop(0) for part in parts]) for _ in range(len(parts[0]))))


def _symmetric(splits: np.ndarray, depth: np.ndarray, leaf_values: np.ndarray, questions: Questions) -> Nodes:
    """Return the nodes of symmetric trees, without those that no row reaches.

    A question whose answer follows from those before it is not asked. Levels are made one after the other, of all trees
    at once; a node of a level is a tree and the answers so far.
    """
    asked = np.full((len(depth), max(depth.max(initial=0), 1)), -1)
    asked[np.arange(asked.shape[1]) < depth[:, None]] = splits
    first_leaf = np.cumsum([0, *(1 << depth)])[:-1].astype(np.int32)
    tree = np.arange(len(depth), dtype=np.int32)
    answers, node = np.zeros_like(tree), tree
    count = len(depth)  # of nodes
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
    return _in_order(made, count, len(depth), leaf_values)


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


def _stepping(
    question: np.ndarray, sizes: np.ndarray, steps: np.ndarray, leaf: np.ndarray, values: np.ndarray, outputs: int
) -> Nodes:
    """Return the nodes of trees that say of each node how far its children are from it.

    A node without one of its children holds a value of its own for the rows that would go there: it gets a leaf of its
    own, behind its tree's nodes.

    Args:
        question: of each node; of one without children it means nothing.
        sizes: `[trees]`, how many nodes.
        steps: `[2, nodes]`, to the left child and to the right one, 0 where there is none.
        leaf: `[nodes]`, where the values of a node without one of its children begin.
        values: of all nodes.
        outputs: how many values a node has.
    """
    nodes = len(question)
    _require(steps.shape[1] == len(leaf) == nodes, "steps are not of each node")
    tree, trees = np.repeat(np.arange(len(sizes)), sizes), len(sizes)
    first = (np.cumsum(sizes) - sizes)[tree]
    place = np.arange(nodes) - first
    child = place + steps
    inner = steps.max(axis=0) > 0
    _require(bool((child < sizes[tree]).all()) and bool((sizes > 0).all()), "a node's child is not in its tree")
    times = np.bincount((first + child)[steps > 0], minlength=nodes)
    _require(np.array_equal(times, place > 0), "a node is not the child of one other node")
    ends = steps.min(axis=0) == 0
    begins = leaf[ends].astype(np.int64)
    _require(bool((begins % outputs == 0).all()) and _within(begins + outputs - 1, len(values)), "a leaf has no value")
    value = np.zeros((nodes, outputs))
    value[ends] = values.reshape(-1, outputs)[begins // outputs]
    single = np.flatnonzero(inner & ends)
    more = np.bincount(tree[single], minlength=trees)
    own = sizes[tree[single]] + np.arange(len(single)) - (np.cumsum(more) - more)[tree[single]]  # the leaves added
    child[:, single] = np.where(steps[:, single] > 0, child[:, single], own)
    order = np.argsort(np.concatenate([tree, tree[single]]), kind="stable")
    none = np.full(len(single), -1)
    left, right = (np.concatenate([np.where(inner, side, -1), none])[order] for side in child)
    asked = np.concatenate([np.where(inner, question, -1), none])[order]
    held = np.concatenate([np.where(inner[:, None], 0.0, value), value[single]])[order]
    return Nodes(sizes + more, asked, left, right, held)
