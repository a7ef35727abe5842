"""Columns that lookups compute for the questions that CatBoost's trees ask about categories.

A model holds its categories' hashes and not their strings. The strings come from the user's sample: each column's
strings, or whole numbers, must explain every hash that the model knows, or the export is refused. Categories that are
whole numbers near zero need no sample: they are found by their hashes.

A statistic of one column is a lookup. A statistic of several columns, and of answers about numbers, is two lookups. The
first sums a share for each category into a number for the combination, to which trees of one question add a share for
each answer; the second looks this number up.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.catboost_model import (
    CatBoostModel,
    Ctr,
    category_hash,
    combine,
    find_combinations,
)
from triton_regressors.exporter.boosters.catboost_trees import CTR, FLOAT, ONE_HOT
from triton_regressors.exporter.estimators.encoding import EXACT, Codes, lookup
from triton_regressors.exporter.estimators.strings import number_integers, number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.tables.values import is_missing

COMBINATIONS = 2**28
"""The most combinations that a statistic may have, including those that no row had."""

NEAR_ZERO = range(-1024, 2**16)
"""The whole numbers that are found by their hashes."""

ALL_ROWS = "Give rows with every category that it was trained on as sample (--sample), such as its training rows"


@dataclass(frozen=True)
class Categories:
    """The categories of a column: the numbers that the plan has for them, ascending, and their hashes."""

    numbers: np.ndarray  # float64
    hashes: np.ndarray  # int64


def known_categories(
    estimator: Any,
    model: CatBoostModel,
    x: Value,
    builder: Builder,
    codes: Mapping[int, int | Sequence[str]] = MappingProxyType({}),
) -> dict[int, Categories]:
    """Return the categories of each categorical column of `x`, and record the columns of strings in the profile.

    `codes` are the columns that hold codes from 0 on, each with its categories, or their number if they are the codes.

    Raises:
        ExportError: the sample lacks categories, or holds values that are not categories.
    """
    if x.features:
        builder.profile.name_tensor([x.features[column] for column in model.categorical], "categories")
    return {
        column: _of_codes(codes[column]) if column in codes else _of_column(estimator, model, column, x, builder)
        for column in model.categorical
    }


def _of_codes(categories: int | Sequence[str]) -> Categories:
    """Return the categories that the codes 0, 1, … stand for, which are the codes themselves if a number is given."""
    names = [str(code) for code in range(categories)] if isinstance(categories, int) else categories
    return _sorted(np.arange(len(names), dtype=np.float64), [category_hash(name) for name in names])


def add_categories(
    estimator: Any,
    model: CatBoostModel,
    known: Mapping[int, Categories],
    place: Mapping[int, int],
    read: Value,
    builder: Builder,
) -> tuple[Value, dict[int, int]]:
    """Append the columns that answer the trees' questions about categories.

    Args:
        estimator: the estimator being lowered.
        model: its model.
        known: its categories, by the column of its input.
        place: the column of `read` for each column of its input that it reads.
        read: the columns that it reads.
        builder: takes the lookups.

    Returns:
        `read` with the new columns, and the column of the answer to each question about categories.
    """
    questions = model.questions
    asked = np.unique(model.trees.question[model.trees.question >= 0])
    values = [read]
    codes: list[Codes] = []
    combined: list[int] = []
    columns: dict[int, int] = {}
    for question in asked[questions.kind[asked] == ONE_HOT].tolist():
        own = known[int(questions.source[question])]
        same = own.numbers[own.hashes == questions.border[question]]
        columns[question] = read.width + len(codes)
        codes.append(Codes(place[int(questions.source[question])], same, np.ones(len(same)), 0.0, 0.0))
    of_ctr: dict[int, int] = {}
    for number in np.unique(questions.source[asked[questions.kind[asked] == CTR]]).tolist():
        ctr = model.ctrs[number]
        if len(ctr.columns) > 1 or ctr.questions:
            combined.append(number)
            continue
        own = known[ctr.columns[0]]
        of_ctr[number] = read.width + len(codes)
        codes.append(Codes(place[ctr.columns[0]], own.numbers, _values(ctr, own), ctr.unknown, ctr.unknown))
    if codes:
        values.append(lookup(builder, read, codes))
    if combined:
        start = read.width + len(codes)
        of_ctr |= {number: start + index for index, number in enumerate(combined)}
        ctrs = [model.ctrs[number] for number in combined]
        values.append(_combinations(estimator, model, ctrs, known, place, read, builder))
    columns |= {
        question: of_ctr[int(questions.source[question])] for question in asked[questions.kind[asked] == CTR].tolist()
    }
    return builder.concatenate(values), columns


def _of_column(estimator: Any, model: CatBoostModel, column: int, x: Value, builder: Builder) -> Categories:
    """Return a column's categories, from the sample or by their hashes."""
    profile, name = builder.profile, f"column '{estimator.feature_names_[column]}'"
    feature = x.features[column] if x.features else -1
    given = None
    if feature >= 0 and profile.given is not None:
        with contextlib.suppress(KeyError, IndexError):  # reading the whole sample later raises an error that says why
            given = set(profile.given(feature))
    if given is not None:
        filled = profile.text.known(feature)  # an imputer's strings, if one is in front
        if not filled and any(is_missing(value) for value in given):
            raise builder.refuse(
                estimator,
                f"{name} of the sample has missing values, and CatBoost takes only categories there. Replace missing "
                "values by the string that the model was trained on, or put a SimpleImputer in front",
            )
        given = {value for value in given if not is_missing(value)} | set(filled)
    stated = _stated(model, column)
    whole = given is not None and len(given) > 0 and all(map(_is_whole, given))
    if given is not None and not whole:
        strings = sorted(value for value in given if isinstance(value, str))
        numbers = number_strings(builder, estimator, x, column, strings if len(strings) == len(given) else [*given])
        found = _sorted(numbers, [category_hash(text) for text in strings])
    else:
        integers = sorted(int(value) for value in given or ())
        hashes = [category_hash(str(integer)) for integer in integers]
        near = _near_zero()
        more = sorted(near[key] for key in stated - set(hashes) if key in near)
        integers, hashes = integers + more, hashes + [category_hash(str(integer)) for integer in more]
        if given is None and (not stated or stated - set(hashes)):
            if feature < 0:
                what = f"{name}, which another step makes, has categories that are not whole numbers near zero"
                raise builder.refuse(estimator, f"{what}; supported: strings of the input, or such numbers")
            number_strings(builder, estimator, x, column, [])
            if stated or any(column in ctr.columns for ctr in model.ctrs):
                profile.lacking = builder.refuse(
                    estimator, f"it holds the hashes of its categories, and not the categories. {ALL_ROWS}"
                )
            return Categories(np.zeros(0), np.zeros(0, dtype=np.int64))
        found = _sorted(_numbers(estimator, integers, column, x, builder), hashes)
        if feature >= 0:
            profile.note_choices(feature, np.array(integers))
            profile.never_floats.add(feature)
    absent = len(stated - set(found.hashes.tolist()))
    if absent:
        raise builder.refuse(
            estimator,
            f"{name} of the sample lacks {absent:,} of {len(stated):,} categories, which the model knows by hashes "
            f"alone. {ALL_ROWS}",
        )
    return found


def _numbers(estimator: Any, integers: Sequence[int], column: int, x: Value, builder: Builder) -> np.ndarray:
    """Return the plan's numbers for whole numbers."""
    numbers = np.array(integers, dtype=np.int64)
    if len(numbers) and np.abs(numbers.astype(np.float64)).max() >= EXACT:
        return number_integers(builder, estimator, x, column, numbers)
    return numbers.astype(np.float64)


def _stated(model: CatBoostModel, column: int) -> set[int]:
    """Return the hashes of a column that the model names: those in one-hot questions, and those with own statistics."""
    questions = model.questions
    named = questions.border[(questions.kind == ONE_HOT) & (questions.source == column)].astype(np.int64)
    return set(named.tolist()) | _hashes(model, column)


def _hashes(model: CatBoostModel, column: int) -> set[int]:
    """Return the hashes that have statistics of their own: a key of one part is a multiple of the part."""
    inverse = np.uint64(pow(int(combine([np.ones(1, dtype=np.int64)])[0]), -1, 2**64))
    found: set[int] = set()
    for ctr in model.ctrs:
        if ctr.columns == (column,) and not ctr.questions:
            found |= set((ctr.keys * inverse).view(np.int64).tolist())
    return found


@functools.cache
def _near_zero() -> dict[int, int]:
    """Return whole numbers near zero by their hashes."""
    return {category_hash(str(integer)): integer for integer in NEAR_ZERO}


def _sorted(numbers: np.ndarray, hashes: Sequence[int]) -> Categories:
    order = np.argsort(numbers)
    return Categories(np.asarray(numbers, dtype=np.float64)[order], np.array(hashes, dtype=np.int64)[order])


def _is_whole(value: Any) -> bool:
    """Return whether a value of a sample is a whole number."""
    return not isinstance(value, str | bytes) and value == np.round(value) and abs(value) < 2**63


def _values(ctr: Ctr, own: Categories) -> np.ndarray:
    """Return a statistic of one column for each of its categories."""
    if not len(ctr.keys):
        return np.full(len(own.hashes), ctr.unknown)
    keys = combine([own.hashes])
    place = np.minimum(np.searchsorted(ctr.keys, keys), len(ctr.keys) - 1)
    return np.where(ctr.keys[place] == keys, ctr.values[place], np.float32(ctr.unknown)).astype(np.float64)


# Combinations


def _combinations(
    estimator: Any,
    model: CatBoostModel,
    ctrs: Sequence[Ctr],
    known: Mapping[int, Categories],
    place: Mapping[int, int],
    read: Value,
    builder: Builder,
) -> Value:
    """Return a column for each of these statistics."""
    kinds = list(dict.fromkeys((ctr.columns, ctr.questions) for ctr in ctrs))
    strides = {kind: _strides(estimator, known, *kind, builder) for kind in kinds}
    numbers = _add_numbers(model, kinds, strides, known, place, read, builder)
    codes, tables = [], {}
    for ctr in ctrs:
        kind = ctr.columns, ctr.questions
        parts = [*(known[column].hashes for column in ctr.columns), *(np.arange(2) for _ in ctr.questions)]
        table = kind, ctr.keys.tobytes()  # several statistics share one table
        if table not in tables:
            tables[table] = find_combinations(parts, ctr.keys)
        number, key = tables[table]
        if len(np.unique(key)) < len(ctr.keys) and builder.profile.lacking is None:
            raise builder.refuse(
                estimator,
                f"{_names(estimator, ctr.columns)} of the sample lack categories: the model knows combinations of "
                f"categories that no row of the sample has. {ALL_ROWS}",
            )
        sizes = [len(part) for part in parts]
        own = np.array(np.unravel_index(number, sizes)).T @ strides[kind]  # unknown categories have numbers too
        order = np.argsort(own)
        values = ctr.values[key[order]].astype(np.float64)
        codes.append(Codes(kinds.index(kind), own[order].astype(np.float64), values, ctr.unknown, ctr.unknown))
    return lookup(builder, numbers, codes)


def _strides(
    estimator: Any, known: Mapping[int, Categories], columns: Sequence[int], questions: Sequence[int], builder: Builder
) -> np.ndarray:
    """Return the stride of each part of a combination in the combination's number."""
    sizes = [*(len(known[column].hashes) + 1 for column in columns), *(2 for _ in questions)]
    if np.prod(np.array(sizes, dtype=np.float64)) > COMBINATIONS:
        raise builder.refuse(
            estimator,
            f"{_names(estimator, columns)} have more than 2²⁸ combinations with statistics. Fit it with a smaller "
            "max_ctr_complexity, or with fewer categories",
        )
    return np.append(np.cumprod(np.array(sizes[:0:-1], dtype=np.int64))[::-1], 1)


def _add_numbers(
    model: CatBoostModel,
    kinds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    strides: Mapping[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray],
    known: Mapping[int, Categories],
    place: Mapping[int, int],
    read: Value,
    builder: Builder,
) -> Value:
    """Return the number of each kind's combination in a row, the sum of a share for each category and each answer."""
    questions = model.questions
    shares: dict[int, np.ndarray] = {}  # by column: the shares of its categories, and of an unknown one
    answered: dict[int, np.ndarray] = {}  # by question about a number: the share of the answer yes
    for index, kind in enumerate(kinds):
        columns, asked = kind
        for column, stride in zip(columns, strides[kind], strict=False):
            _share(shares, column, known, len(kinds))[:, index] += stride * np.arange(len(known[column].hashes) + 1)
        for question, stride in zip(asked, strides[kind][len(columns) :], strict=True):
            source = int(questions.source[question])
            if questions.kind[question] == FLOAT:
                answered.setdefault(question, np.zeros(len(kinds)))[index] += stride
            else:
                same = np.append(known[source].hashes == questions.border[question], False)
                _share(shares, source, known, len(kinds))[:, index] += stride * same
    keys = [known[column].numbers for column in shares]
    table = [share[:-1] for share in shares.values()] + [share[-1:] for share in shares.values()] * 2
    starts = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    columns_read = np.array([place[column] for column in shares], dtype=np.int32)
    numbers = builder.add(Lookup(columns_read, starts, np.concatenate(keys), np.concatenate(table), True), read)
    if not answered:
        return numbers
    order, trees = list(answered), len(answered)
    values = np.zeros((2 * trees, len(kinds)))
    values[1::2] = np.stack(list(answered.values()))
    answers = SymmetricTrees(
        feature=np.array([place[int(questions.source[question])] for question in order], dtype=np.int32),
        threshold=questions.border[order].astype(np.float32),
        missing=np.isin(questions.source[order], list(model.nan_right)).astype(np.uint8),
        asked=np.arange(trees, dtype=np.int32),
        depth=np.ones(trees, dtype=np.int32),
        values=values,
        baseline=np.zeros(len(kinds)),
    )
    return builder.add(Combine("sum"), numbers, builder.add(answers, read))


def _share(shares: dict[int, np.ndarray], column: int, known: Mapping[int, Categories], kinds: int) -> np.ndarray:
    """Return the table of the shares of a column's categories in each kind's number, and make it if it is missing."""
    return shares.setdefault(column, np.zeros((len(known[column].hashes) + 1, kinds)))


def _names(estimator: Any, columns: Sequence[int]) -> str:
    """Return the names of columns as errors show them."""
    return "columns " + ", ".join(f"'{estimator.feature_names_[column]}'" for column in columns)
