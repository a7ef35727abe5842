"""Encoders of categories: one-hot, ordinal and target encoders, as lookups.

scikit-learn's encoders find a number among the sorted categories of its feature: numbers compare as float64, −0 equals
0, and NaN equals NaN if NaN is a category. Categories that are strings, and whole numbers that float64 cannot tell
apart, have other numbers in the plan, see `exporter/lowering/text_columns.py`.

With handle_unknown="error" scikit-learn raises an error at an unknown category. A served row cannot raise: its encoded
feature is NaN instead, and so is its answer, even if the steps behind the encoder would take NaN for a missing value.
A request with an unknown string is refused before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder

from triton_regressors.exporter.estimators.strings import number_integers, number_strings, refuse_unknown
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.lookup import Lookup

EXACT = 2.0**53
"""Every whole number below this one has a float64 of its own."""


@dataclass(frozen=True)
class Codes:
    """The codes of one feature's categories: `values` for the `keys`, `missing` for NaN, `unknown` for the rest."""

    column: int
    keys: np.ndarray
    values: np.ndarray
    missing: float
    unknown: float


@lowers(OneHotEncoder)
def lower_one_hot_encoder(encoder: OneHotEncoder, x: Value, builder: Builder) -> Value:
    """A lookup of a category's column within its feature, then one indicator column for each of these numbers."""
    codes, all_categories = [], _categories(encoder, x, builder)
    for feature, categories in enumerate(all_categories):
        numbers = _without_dropped(encoder, feature, _grouped(encoder, feature, np.arange(len(categories))))
        infrequent = _infrequent(encoder, feature)
        unknown = np.nan if encoder.handle_unknown == "error" else -1.0
        if encoder.handle_unknown in ("infrequent_if_exist", "warn") and infrequent is not None:
            unknown = numbers[infrequent[0]]
        codes.append(_codes(feature, categories, numbers, unknown))
    widths = np.array(encoder._n_features_outs)
    if not widths.any():
        raise builder.refuse(encoder, "it makes no column: every category is dropped")
    if encoder.handle_unknown == "error":
        _guard_unknown(encoder, all_categories, x, builder)
    found = lookup(builder, x, codes)
    if encoder.handle_unknown == "error" and not widths.all():
        # A feature whose only category is dropped has no column to be NaN in; 0 · NaN makes the other columns NaN.
        found = builder.affine(found, np.eye(found.width), 0.0)
    columns = np.repeat(np.arange(len(widths), dtype=np.int32), widths)
    starts = np.arange(len(columns) + 1, dtype=np.int32)
    keys = np.concatenate([np.arange(width, dtype=np.float64) for width in widths])
    table = np.repeat([1.0, np.nan, 0.0], len(columns))[:, None]  # for its number, for NaN, for any other number
    return builder.add(Lookup(columns, starts, keys, table), found)


@lowers(OrdinalEncoder)
def lower_ordinal_encoder(encoder: OrdinalEncoder, x: Value, builder: Builder) -> Value:
    """The number of a category within its feature."""
    codes, all_categories = [], _categories(encoder, x, builder)
    for feature, categories in enumerate(all_categories):
        unknown = np.nan
        if encoder.handle_unknown == "use_encoded_value":
            unknown = _in_dtype(encoder, "unknown_value", builder)
        known = np.array([category == category for category in encoder.categories_[feature].tolist()])  # None is known
        numbers = np.full(len(categories), np.nan)
        numbers[known] = _grouped(encoder, feature, np.arange(known.sum())).astype(encoder.dtype)
        if not known.all():
            numbers[~known] = _in_dtype(encoder, "encoded_missing_value", builder)
        codes.append(_codes(feature, categories, numbers, unknown))
    if encoder.handle_unknown == "error":
        _guard_unknown(encoder, all_categories, x, builder)
    return lookup(builder, x, codes)


@lowers(TargetEncoder)
def lower_target_encoder(encoder: TargetEncoder, x: Value, builder: Builder) -> Value:
    """The mean target of a category, shrunk towards the mean of all rows; an unknown category has that mean.

    scikit-learn treats a target of few whole numbers as classes: each feature then has a column for each class.
    """
    categories, means = _categories(encoder, x, builder), np.atleast_1d(encoder.target_mean_)
    codes = [
        _codes(place // len(means), categories[place // len(means)], encodings, means[place % len(means)])
        for place, encodings in enumerate(encoder.encodings_)
    ]
    return lookup(builder, x, codes)


def lookup(builder: Builder, x: Value, codes: list[Codes], summed: bool = False) -> Value:
    """Return one column for each of `codes`, or their sum."""
    values = np.concatenate([code.values for code in codes])
    absent = [code.missing for code in codes] + [code.unknown for code in codes]
    return builder.add(
        Lookup(
            np.array([code.column for code in codes], dtype=np.int32),
            np.cumsum([0, *(len(code.keys) for code in codes)], dtype=np.int32),
            np.concatenate([code.keys for code in codes]),
            np.append(values, absent)[:, None],
            summed,
        ),
        x,
    )


def _guard_unknown(encoder: Any, categories: list[np.ndarray], x: Value, builder: Builder) -> None:
    """Make the answer NaN if a number is not a category of its feature, independent of the steps after the encoder.

    Strings that no encoder of their column knows are refused in the request; other strings have a number.
    """
    codes = []
    for feature, numbers in enumerate(categories):
        if are_strings(encoder.categories_[feature]) or are_large(encoder.categories_[feature]):
            refuse_unknown(builder, x, feature)
        codes.append(_codes(feature, numbers, np.zeros(len(numbers)), np.nan))
    builder.guard(lookup(builder, x, codes, summed=True))


def _codes(column: int, categories: np.ndarray, values: np.ndarray, unknown: float) -> Codes:
    """Return the codes of a feature's categories; NaN is unknown if it is not among them."""
    known = ~np.isnan(categories)
    missing = unknown if known.all() else float(np.asarray(values)[~known][0])
    keys, first = np.unique(categories[known], return_index=True)
    return Codes(column, keys, np.asarray(values, dtype=np.float64)[known][first], missing, unknown)


def _categories(encoder: Any, x: Value, builder: Builder) -> list[np.ndarray]:
    """Return each feature's categories as float64, strings as their numbers, and record their location."""
    found = [
        category_numbers(builder, encoder, x, feature, categories)
        for feature, categories in enumerate(encoder.categories_)
    ]
    known = [categories[~np.isnan(categories)] for categories in found]
    spread = [values.std() if len(values) else 0.0 for values in known]
    builder.profile.note_scale(
        x.features,
        [values.mean() if len(values) else 0.0 for values in known],
        np.where(np.array(spread) > 0, spread, 1.0),
    )
    return found


def category_numbers(builder: Builder, encoder: Any, x: Value, column: int, categories: np.ndarray) -> np.ndarray:
    """Return the categories of a column of `x` as float64, strings as their numbers in the plan, and record them."""
    if are_strings(categories):
        return number_strings(builder, encoder, x, column, categories.tolist())
    kinds = sorted({type(category).__name__ for category in categories.tolist() if category is not None})
    if not set(kinds) <= {"int", "float", "bool"}:
        what = f"{builder.profile.called(x.features, column)} has categories of type {' and '.join(kinds)}"
        raise builder.refuse(encoder, f"{what}; supported: numbers, or strings")
    if are_large(categories):
        return number_integers(builder, encoder, x, column, categories)
    numbers = categories if categories.dtype.kind in "iub" else categories.astype(np.float64)
    if x.features:
        builder.profile.note_choices(x.features[column], numbers[numbers == numbers])
    return categories.astype(np.float64)


def are_strings(categories: np.ndarray) -> bool:
    """Return whether a feature's categories are strings; a missing value may be among them."""
    return categories.dtype.kind in "UT" or any(isinstance(category, str) for category in categories.tolist())


def are_large(categories: np.ndarray) -> bool:
    """Return whether a feature's categories are whole numbers, some of them too large for float64 to hold exactly."""
    return categories.dtype.kind in "iu" and bool((np.abs(categories.astype(np.float64)) >= EXACT).any())


def _infrequent(encoder: Any, feature: int) -> np.ndarray | None:
    """Return the indices of a feature's categories that are grouped as infrequent, or None."""
    indices = encoder._infrequent_indices[feature] if encoder._infrequent_enabled else None
    return None if indices is None else np.asarray(indices)


def _grouped(encoder: Any, feature: int, numbers: np.ndarray) -> np.ndarray:
    """Return the categories' numbers with the infrequent ones grouped into one."""
    mapping = None if _infrequent(encoder, feature) is None else encoder._default_to_infrequent_mappings[feature]
    return numbers if mapping is None else np.asarray(mapping)[numbers]


def _without_dropped(encoder: OneHotEncoder, feature: int, numbers: np.ndarray) -> np.ndarray:
    """Return the categories' columns: −1 for the dropped one, one less for those after it."""
    dropped = None if encoder._drop_idx_after_grouping is None else encoder._drop_idx_after_grouping[feature]
    columns = numbers.astype(np.float64)
    if dropped is not None:
        columns = np.where(numbers == dropped, -1.0, columns - (numbers > dropped))
    return columns


def _in_dtype(encoder: OrdinalEncoder, parameter: str, builder: Builder) -> float:
    """Return a parameter as the encoder's dtype holds it."""
    holder, value = np.zeros(1, dtype=encoder.dtype), getattr(encoder, parameter)
    try:
        holder[0] = value
    except (OverflowError, ValueError):
        name = np.dtype(encoder.dtype).name
        raise builder.refuse(encoder, f"{parameter} is {value!r}, which its dtype {name} does not hold") from None
    return float(holder[0])
