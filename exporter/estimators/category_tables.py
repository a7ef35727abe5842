"""Encoders of other libraries, tabulated by asking them: one row for each category.

These encoders have many options for unknown, missing and rare categories. Each encoded column depends on one column of
the input alone, so the encoder's own `transform` of every category says all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from triton_regressors.exporter.estimators.encoding import Codes, are_large, are_strings, category_numbers, lookup
from triton_regressors.exporter.estimators.own_code import given_values, known_strings
from triton_regressors.exporter.estimators.strings import number_strings, refuse_unknown
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.text_columns import UNKNOWN_TEXT
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.tables.values import is_missing

CELLS_AT_ONCE = 2**22
"""Cells of an encoder's output that are made at a time."""


@dataclass(frozen=True)
class Answers:
    """An encoder's outputs for one column: `found`, `[categories + 2, outputs]`, the last two for missing and unknown.

    `asked` says for each of these two whether the encoder has an answer; it raises an error otherwise.
    """

    found: sparse.csc_matrix
    asked: tuple[bool, bool]

    def varying(self) -> np.ndarray:
        """Return the mask of the outputs that differ between categories, `[outputs]` bool."""
        rows = np.flatnonzero([*[True] * (self.found.shape[0] - 2), *self.asked])
        held = self.found[rows].tocsc()
        parts = np.split(held.data, held.indptr[1:-1])  # the numbers of each output that are not 0
        return np.array([len(part) > 0 and not (len(part) == len(rows) and _all_equal(part)) for part in parts])


def tabulate_categories(
    encoder: Any, known: Mapping[int, Sequence[Any]], passed: Sequence[int], x: Value, builder: Builder
) -> Value:
    """Return the output of an encoder that passes columns on, or makes columns of the categories of one column each.

    The encoder may raise an error at an unknown or a missing category. A served row cannot raise: its answer is NaN.

    Args:
        encoder: the fitted encoder.
        known: the categories of each encoded column of `x`, without missing ones.
        passed: for each column of the output the column of `x` that it is, or −1 if it is encoded.
        x: the value that the encoder reads.
        builder: the builder of the plan.
    """
    if not len(passed):
        raise builder.refuse(encoder, "it makes no column")
    order = np.asarray(passed)
    kept, encoded = order[order >= 0], np.flatnonzero(order < 0)
    if not len(encoded):
        return builder.columns(x, kept)
    answers = {column: _answers(encoder, column, known, encoded) for column in known}
    codes, guards = [], []
    for column, categories in known.items():
        values = as_array(categories)
        numbers = category_numbers(builder, encoder, x, column, values)
        rows = np.arange(len(numbers), dtype=np.float64)
        missing, unknown = (np.nan if not asked else 0.0 for asked in answers[column].asked)
        codes.append(_codes(column, numbers, rows, len(rows) + missing, len(rows) + 1 + unknown))
        if missing or unknown:
            guards.append(_codes(column, numbers, np.zeros(len(rows)), missing, unknown))
        if unknown and (are_strings(values) or are_large(values)):
            refuse_unknown(builder, x, column)
    if guards:
        builder.guard(lookup(builder, x, guards, summed=True))
    made = builder.add(_by_number(encoder, list(answers.values()), builder), lookup(builder, x, codes))
    if not len(kept):
        return made
    places = np.empty(len(order), dtype=np.int32)
    places[encoded] = np.arange(len(encoded))
    places[order >= 0] = len(encoded) + np.arange(len(kept))
    return builder.columns(builder.concatenate([made, builder.columns(x, kept)]), places)


def tabulate_strings(
    encoder: Any,
    ask: Callable[[Sequence[Any]], np.ndarray],
    column: int,
    x: Value,
    builder: Builder,
    known: Sequence[str] = (),
) -> Value:
    """Return a table of what an encoder makes of known strings; requests that hold others are refused.

    Args:
        encoder: the encoder.
        ask: returns its outputs, `[strings, outputs]`, for strings and a missing value, NaN.
        column: the column of `x` that holds the strings.
        x: the value that it reads.
        builder: the builder of the plan.
        known: the strings, by default those of the column in the sample.
    """
    made = bool(x.strings) and x.strings[column] is not None
    feature = x.features[column] if x.features and not made else -1
    given = given_values(builder.profile, feature) if feature >= 0 else []
    if not made and feature < 0:
        number_strings(builder, encoder, x, column, [])  # raises the error of strings that another step makes
    strings = list(dict.fromkeys(known)) or known_strings(x, column, builder)
    if not made and not known and not any(isinstance(value, str) for value in given):
        raise builder.refuse(
            encoder,
            "it computes with the characters of strings, and an entry reads strings only as known categories. Give "
            "rows of your data (sample=, --sample), which hold every string of the column, or encode the column by "
            "its categories, as with a TargetEncoder or an OrdinalEncoder",
        )
    numbers = number_strings(builder, encoder, x, column, strings)
    refuse_unknown(builder, x, column)
    if not made:
        text = builder.profile.text
        text.numbers(feature, [value for value in given if is_missing(value)][:1])
        text.table(feature, text.known(feature))
    found = ask(strings)
    try:
        missing = ask([np.nan])[0]
    except (TypeError, ValueError):
        missing = np.full(found.shape[1], np.nan)
        builder.guard(lookup(builder, x, [Codes(column, np.zeros(0), np.zeros(0), np.nan, 0.0)]))
    order = np.argsort(numbers)
    codes = [
        Codes(column, numbers[order], values[order], none, np.nan)
        for values, none in zip(found.T, missing, strict=True)
    ]
    return lookup(builder, x, codes)


def as_array(values: Sequence[Any]) -> np.ndarray:
    """Return categories as an array of numbers if all of them are numbers, otherwise of objects."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = list(values)
    return np.array(values) if all(isinstance(value, bool | int | float | np.number) for value in values) else objects


def _by_number(encoder: Any, answers: Sequence[Answers], builder: Builder) -> Lookup:
    """Return the lookup of each encoded output by the number of a category within its column."""
    varying = np.stack([answer.varying() for answer in answers])
    if (varying.sum(axis=0) > 1).any():
        raise builder.refuse(encoder, "it encodes several columns together; supported: each column on its own")
    source = varying.argmax(axis=0)  # an output that does not vary is found by any column
    keys, values = [], []
    for output, column in enumerate(source.tolist()):
        found = answers[column].found
        held = slice(found.indptr[output], found.indptr[output + 1])
        ascending = np.argsort(found.indices[held])
        keys.append(found.indices[held][ascending].astype(np.float64))
        values.append(found.data[held][ascending])
    count = len(source)
    table = np.concatenate([*values, np.full(count, np.nan), np.zeros(count)])
    starts = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    return Lookup(source.astype(np.int32), starts, np.concatenate(keys), table[:, None])


def _codes(column: int, numbers: np.ndarray, values: np.ndarray, missing: float, unknown: float) -> Codes:
    keys, first = np.unique(numbers, return_index=True)
    return Codes(column, keys, values[first], missing, unknown)


def _answers(encoder: Any, column: int, known: Mapping[int, Sequence[Any]], encoded: np.ndarray) -> Answers:
    """Return an encoder's outputs for the categories of a column, and the first category in each other column."""
    categories = list(known[column])
    unknown: Any = UNKNOWN_TEXT
    if not are_strings(as_array(categories)):
        unknown = max((category for category in categories), default=0) + 1
    parts = _asked(encoder, column, categories, known, encoded)
    extra = []
    for value in (np.nan, unknown):
        try:
            extra.append(_asked(encoder, column, [value], known, encoded))
        except (TypeError, ValueError):
            extra.append(None)
    nothing = sparse.csr_matrix((1, len(encoded)))
    found = sparse.vstack([parts, *(nothing if part is None else part for part in extra)])
    return Answers(sparse.csc_matrix(found), (extra[0] is not None, extra[1] is not None))


def _asked(
    encoder: Any, column: int, values: list[Any], known: Mapping[int, Sequence[Any]], encoded: np.ndarray
) -> sparse.csr_matrix:
    """Return an encoder's outputs for values of a column, `[values, encoded]`."""
    import pandas as pd

    names = list(encoder.feature_names_in_)
    first = [next(iter(known[place]), np.nan) if place in known else 0.0 for place in range(len(names))]
    rows, parts = max(1, CELLS_AT_ONCE // len(encoded)), [sparse.csr_matrix((0, len(encoded)))]
    for begin in range(0, len(values), rows):
        some, table = values[begin : begin + rows], {}
        for place, name in enumerate(names):
            cells = pd.Series(some if place == column else [first[place]] * len(some), dtype=object)
            table[name] = cells if are_strings(cells.to_numpy()) else cells.infer_objects()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = np.asarray(encoder.transform(pd.DataFrame(table)), dtype=object)
        parts.append(sparse.csr_matrix(made[:, encoded].astype(np.float64)))
    return sparse.vstack(parts).tocsr()


def _all_equal(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers[0]).all() or np.isnan(numbers).all())
