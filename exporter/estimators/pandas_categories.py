"""Columns of pandas' categories, which some libraries read as the codes of the categories that they were fitted on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value


def number_pandas_categories(
    estimator: Any, categories: Mapping[int, Sequence[Any]], numeric: Collection[int], x: Value, builder: Builder
) -> tuple[Value, np.ndarray]:
    """Return `x` with codes in place of pandas' categories, and the column that each column of `x` has in it.

    A code is a category's place among those of its column. It is NaN where a category is missing or unknown. In columns
    that are not `numeric` an unknown one may also be −1, which is in no set of codes.

    Args:
        estimator: for errors.
        categories: the categories of each such column of `x`.
        numeric: the columns that are not only asked for sets of categories.
        x: `[rows, width]`.
        builder: of the plan.

    Raises:
        ExportError: another step makes such a column, or categories are neither numbers nor strings.
    """
    columns, codes = np.arange(x.width), list[Codes]()
    for column, values in categories.items():
        feature = x.features[column] if x.features else -1
        if feature < 0:
            reason = "it reads pandas' categories that another step makes; supported: those of the input"
            raise builder.refuse(estimator, reason)
        builder.profile.name_tensor([feature], "categories")
        builder.profile.note_categories(feature, values)
        strings = any(isinstance(value, str) for value in values)
        if strings:
            keys = number_strings(builder, estimator, x, column, values)
            if column not in numeric and np.array_equal(keys, np.arange(len(values))):
                continue
        elif all(isinstance(value, bool | int | float) for value in values):
            keys = np.array(values, dtype=np.float64)
            builder.profile.note_choices(feature, keys)
        else:
            kinds = sorted({type(value).__name__ for value in values})
            what = f"{builder.profile.called(x.features, column)} has categories of type {' and '.join(kinds)}"
            raise builder.refuse(estimator, f"{what}; supported: numbers, or strings")
        order = np.argsort(keys)
        columns[column] = x.width + len(codes)
        codes.append(Codes(column, keys[order], order.astype(np.float64), np.nan, np.nan))
    return (builder.concatenate([x, lookup(builder, x, codes)]) if codes else x), columns
