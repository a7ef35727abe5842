"""The contents of CatBoost's own files, `.cbm`: trees, their questions, and the statistics of categories.

A tree refers to questions by their numbers in the whole model. They come in this order: whether a number exceeds a
border, for each border of each numeric feature; whether a category equals a value, for each value of each feature that
is encoded one-hot; and whether a statistic of categories, a CTR in CatBoost's words, exceeds a border. Yes goes to the
right.

A category is identified by the lowest 32 bits of its string's hash. A CTR looks up a combination of categories and
answers to questions: their hashes are folded into one of 64 bits, `h ← M · (h + M · part)`, for which a table may hold
counts. The statistic is computed from these counts and a prior, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap

import numpy as np

from triton_regressors.exporter.boosters.catboost_trees import (
    CTR,
    FLOAT,
    ONE_HOT,
    Nodes,
    Questions,
    Symmetric,
    read_trees,
    require,
    within,
)
from triton_regressors.exporter.boosters.cityhash import city_hash_64
from triton_regressors.exporter.boosters.flat_tables import Table

MULTIPLIER = np.uint64(0x4906BA494954CB65)
NO_HASH = 2**64 - 1
"""The hash that marks a table's empty places."""

AT_ONCE = 2**20
"""Combinations looked up at a time."""

MARK = b"CBM1"
TEXTS = (12, 13, 18)
"""The fields of a model's trees that are about text and embeddings."""

AS_TRUE = 2
"""The file's code for a numeric feature whose NaN exceeds every border."""

FEATURES = 2**20
"""The largest number of features that a model may have."""

BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])
"""A place of a table of statistics."""

KINDS = ("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue", "Counter", "FeatureFreq")
MEANS, CLASSES = KINDS[2:4], KINDS[:2]
"""Kinds of statistics: those that hold a sum and a count, and those that hold a count of each class of the target."""


@dataclass(frozen=True)
class Ctr:
    """A statistic of categories: `values` for the combinations with these `keys`, and `unknown` for all others.

    A key is made from the hashes of the categories in `columns` and the answers to `questions`, in this order.
    """

    columns: tuple[int, ...]
    questions: tuple[int, ...]
    keys: np.ndarray  # uint64 [keys], ascending
    values: np.ndarray  # float32 [keys]
    unknown: float


@dataclass(frozen=True)
class CatBoostModel:
    """A model: `scale · Σₜ value[leaf(t, x)] + bias`.

    `numeric` are the columns of the input that are compared with borders. `nan_right` are those of them in which NaN
    exceeds every border. `categorical` are the columns of categories.
    """

    questions: Questions
    ctrs: tuple[Ctr, ...]
    trees: Symmetric | Nodes
    scale: float
    bias: np.ndarray  # [outputs]
    numeric: tuple[int, ...]
    nan_right: frozenset[int]
    categorical: tuple[int, ...]


def category_hash(text: str) -> int:
    """Return CatBoost's number of a category, −2³¹ to 2³¹ − 1."""
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
    """Find the combinations, with one member of each choice, whose key is among the keys.

    Args:
        choices: for each part of a key its possible hashes or answers, integers.
        keys: uint64, ascending.

    Returns:
        The combinations' numbers, the last choice varying fastest, and the place of each one's key.
    """
    weights, weight = [], MULTIPLIER
    with np.errstate(over="ignore"):
        for _ in choices:
            weight = weight * MULTIPLIER
            weights.append(weight)  # the last part's weight first; a key is a weighted sum in 64-bit integers
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
    """Return all sums of one member of each part, the last part varying fastest."""
    sums = np.zeros(1, dtype=np.uint64)
    for part in parts:
        sums = (sums[:, None] + part).ravel()
    return sums


def read_model(data: bytes | mmap) -> CatBoostModel:
    """Return the model in a file that CatBoost wrote, a `.cbm`, if its numbers fit together.

    The checks go beyond the needs of this reader, because CatBoost's compiled code trusts the numbers.

    Raises:
        ValueError: a part does not fit or is not supported; the message says which in one clause.
    """
    if data[:4] != MARK or len(data) < 8:
        raise ValueError("it is not a model of CatBoost's")
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
    require(outputs >= 1 and len(bias) == outputs, "bias does not have a number for each output")
    require(bool(np.isfinite([scale, *bias]).all()), "scale or bias is not finite")
    tables = _tables(rest) if core.count(3) else {}
    numbers = _numbers(floats, one_hot)
    return CatBoostModel(
        questions,
        tuple(_ctr(table.table(0), tables, categories, numbers) for table in ctrs),
        read_trees(trees, questions, outputs),
        scale,
        bias,
        tuple(feature.column for feature in floats if len(feature.borders)),
        frozenset(feature.column for feature in floats if feature.nan_right),
        tuple(categories.values()),
    )


@dataclass(frozen=True)
class _Float:
    """A numeric feature: its number among the numeric ones, its column of the input, and its borders."""

    index: int
    column: int
    borders: np.ndarray
    nan_right: bool


def _float(table: Table) -> _Float:
    nan_right = table.number(0, "?", False) and table.number(5, "b", 0) == AS_TRUE
    return _Float(table.number(1, "i", -1), table.number(2, "i", -1), table.array(3, "<f4"), nan_right)


def _check_features(
    floats: Sequence[_Float], categories: Mapping[int, int], one_hot: Sequence[tuple[int, np.ndarray]]
) -> None:
    columns = [*(feature.column for feature in floats), *categories.values()]
    indices = [feature.index for feature in floats]
    places = np.array([*columns, *indices, *categories], dtype=np.int64)
    require(within(places, FEATURES), f"a feature's number is not in [0, {FEATURES:,})")
    require(len(set(columns)) == len(columns) and len(set(indices)) == len(indices), "two features are the same")
    for feature in floats:
        require(bool((np.diff(feature.borders) > 0).all()), "borders do not ascend")
    require(all(feature in categories for feature, _ in one_hot), "a feature of categories does not exist")


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
    """Return the number of each question by its kind, feature and border or value, as a combination names it."""
    named = [(FLOAT, feature.index, border) for feature in floats for border in feature.borders.tolist()]
    named += [(ONE_HOT, feature, value) for feature, values in one_hot for value in values.tolist()]
    return {name: number for number, name in enumerate(named)}


@dataclass(frozen=True)
class _Base:
    """The subject of a table of statistics: the features of its keys, its kind, and its split of the targets."""

    categories: tuple[int, ...]
    floats: tuple[tuple[int, float], ...]
    one_hot: tuple[tuple[int, int], ...]
    kind: str
    classifier: int


def _base(table: Table) -> _Base:
    parts, kind = table.table(0), table.number(1, "b", 0)
    require(0 <= kind < len(KINDS), f"it has CTR statistics of type {kind}; supported: {', '.join(KINDS)}")
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
        require(0 < size <= len(data) - place - 4, "its end is missing")
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
    require(
        base in tables and all(feature in column for feature in base.categories) and all(q in numbers for q in asked),
        "a statistic reads features or tables that do not exist",
    )
    table = tables[base]
    buckets = table.array(1, "u1")
    require(len(buckets) % BUCKET.itemsize == 0, "a table of statistics is cut off")
    buckets = buckets.view(BUCKET)
    held = buckets["hash"] != NO_HASH
    # CatBoost searches the table from the place that the hash's lowest bits name, up to the first empty place.
    require(len(buckets).bit_count() == 1 and not held.all(), "a table of statistics has no empty place")
    means, classes = base.kind in MEANS, table.number(4, "i", 0)
    width = 2 if means else classes if base.kind in CLASSES else 1
    require(0 < width < 2**16, "a table of statistics has no classes")
    blob = table.array(2, "u1")
    require(len(blob) % (4 * width) == 0, "a table of statistics is cut off")
    values = blob.view([("sum", "<f4"), ("count", "<i4")] if means else "<i4")
    counts = np.stack([values["sum"], values["count"]], axis=1) if means else values.reshape(-1, width)
    require(within(buckets["index"][held].astype(np.int64), len(counts)), "a statistic lies beyond its table")
    last = width - 1 if base.kind == "Borders" else width
    require(base.kind not in CLASSES or 0 <= border < last, "a statistic is of a class that does not exist")
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
    """Return a statistic's numerators and denominators for a table's rows, and its denominator for unknown keys."""
    if kind in MEANS:
        return counts[:, 0], counts[:, 1], 0.0
    if kind == "Buckets":
        return counts[:, border], counts.sum(axis=1), 0.0
    if kind == "Borders":
        return counts[:, border + 1 :].sum(axis=1), counts.sum(axis=1), 0.0
    return counts[:, 0], np.full(len(counts), float(denominator)), float(denominator)
