"""Functions of pandas itself, such as `pandas.cut`, for columns that hold cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.algebra import misused
from triton_regressors.exporter.tracing.cells import (
    algebra,
    mapped,
)
from triton_regressors.exporter.tracing.expressions import (
    DATE,
    FLOAT,
    INTEGER,
    TEXT,
    Expression,
    Kind,
)
from triton_regressors.exporter.tracing.frame_cells import each_cell, like
from triton_regressors.exporter.tracing.frame_methods import number_of
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.refusal import Untraceable


def cut(
    x: Any,
    bins: Any,
    right: bool = True,
    labels: Any = None,
    retbins: bool = False,
    precision: int = 3,
    include_lowest: bool = False,
    **_: Any,
) -> Any:
    """Return the bin of each value, as `pandas.cut` with given edges and labels does."""
    if isinstance(bins, int) or np.ndim(bins) != 1:
        raise Untraceable("it calls pandas.cut with a number of bins", "Give pandas.cut the edges of the bins")
    if retbins:
        raise Untraceable("it calls pandas.cut with retbins=True")
    edges = np.asarray(bins, dtype=np.float64)
    count = len(edges) - 1
    if labels is None:
        raise Untraceable("it makes intervals (pandas.cut without labels)", "Give pandas.cut labels, or labels=False")
    own = algebra()

    def each(value: Any) -> Expression:
        number = own.expression(value)
        place = own.graph.make("places", number, edges, right, kind=Kind(INTEGER))
        if include_lowest and right:
            place = own.where(own.binary("equal", number, edges[0]), 1, place)
        elif include_lowest:
            place = own.where(own.binary("equal", number, edges[-1]), count, place)
        index = own.binary("subtract", place, 1)
        within = own.binary("logical_and", own.binary("greater_equal", index, 0), own.binary("less", index, count))
        within = own.binary("logical_and", within, own.unary("logical_not", own.missing(number)))
        found = own.where(within, own.cast(index, FLOAT), np.nan)
        if labels is False:
            return found
        if all(isinstance(label, str) for label in labels):
            return own.graph.make("text_of", found, tuple(labels), kind=Kind(TEXT, "object"))
        numbers = {float(place): float(label) for place, label in enumerate(labels)}
        return number_of(found, numbers)

    found = mapped(each, unframed(x))
    return like(found, x) if hasattr(x, "iloc") else found


def to_datetime(arg: Any, *args: Any, **kwargs: Any) -> Any:
    """Return dates as they are, or numbers of a unit since 1970 as dates."""
    first = unframed(arg).view(np.ndarray).ravel()[0]
    kind = first.expression.kind
    if kind.name == DATE:
        return arg
    unit = kwargs.get("unit")
    if unit in ("s", "ms", "us") and kind.name in (INTEGER, FLOAT) and not kind.assumed:
        own = algebra()
        scale = {"s": 1e6, "ms": 1e3, "us": 1.0}[unit]

        def each(x: Any) -> Expression:
            number = own.graph.make("multiply", own.expression(x), own.expression(scale), kind=Kind(FLOAT))
            return own.graph.make("floor", number, kind=Kind(DATE, "ns"))

        return each_cell(arg, each)
    if kind.name == TEXT:
        raise Untraceable("it reads dates from strings", "Give the model columns of dates (datetime64)")
    raise misused(first.expression, "dates")


def no_dummies(*_: Any, **__: Any) -> Any:
    """Refuse to make columns of the values of a batch."""
    raise Untraceable("it makes columns of the values of a batch (get_dummies)", "Use a OneHotEncoder behind this step")
