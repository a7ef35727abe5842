"""Order among the cells of a row: the largest one's place, sorted cells, medians and quantiles, as numpy has them.

Cells are sorted by a network of exchanges, which compares the same places whatever they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.cells import algebra, mapped
from triton_regressors.exporter.tracing.numpy_functions import handles, unframed
from triton_regressors.exporter.tracing.refusal import Untraceable

MOST_SORTED = 32
"""The most cells of a row that are sorted: n cells take about n log² n exchanges."""


@handles("argmax")
def _argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return _place_of(a, axis, "greater")


@handles("argmin")
def _argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return _place_of(a, axis, "less")


def _place_of(a: Any, axis: Any, comparison: str) -> Any:
    """Return the first place of the extreme cell, or of the first missing one."""
    own, (first, *others) = algebra(), _along(a, axis)
    best, found = first, np.zeros(np.shape(first), dtype=np.int64)
    for place, value in enumerate(others, 1):
        beyond = mapped(
            lambda x, y: own.binary(
                "logical_and",
                own.unary("logical_not", own.missing(y)),
                own.binary("logical_or", own.binary(comparison, x, y), own.missing(x)),
            ),
            *(value, best),
        )
        best = mapped(own.where, beyond, value, best)
        found = mapped(own.where, beyond, place, found)
    return found


@handles("sort")
def _sort(a: Any, axis: Any = -1, **_: Any) -> Any:
    values = unframed(a)
    return np.stack(ascending(_along(values, axis)), axis=axis)


@handles("median")
def _median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    ordered = ascending(_along(a, axis))
    middle = len(ordered) // 2
    found = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return _kept(_unless_missing(found, ordered), axis, keepdims)


@handles("quantile")
def _quantile(
    a: Any, q: Any, axis: Any = None, *_: Any, method: str = "linear", keepdims: bool = False, **__: Any
) -> Any:
    if method != "linear" or np.ndim(q):
        raise Untraceable(
            "it calls numpy.quantile with several quantiles or a method", "Ask for one quantile at a time"
        )
    ordered = ascending(_along(a, axis))
    virtual = float(q) * (len(ordered) - 1)
    below = min(math.floor(virtual), len(ordered) - 1)
    share, above = virtual - below, min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    span = high - low  # numpy goes from the nearer of the two
    found = low + span * share if share < 0.5 else high - span * (1 - share)
    return _kept(_unless_missing(found, ordered), axis, keepdims)


@handles("percentile")
def _percentile(a: Any, q: Any, axis: Any = None, *more: Any, **keywords: Any) -> Any:
    return _quantile(a, np.true_divide(q, 100), axis, *more, **keywords)


def _kept(found: Any, axis: Any, keepdims: bool) -> Any:
    return np.expand_dims(found, axis) if keepdims else found


def _along(a: Any, axis: Any) -> list[Any]:
    """Return the slices of an array along an axis."""
    values = unframed(a)
    if axis is None and np.ndim(values) != 1:
        raise Untraceable("it compares cells of several rows", "Give the axis of the columns, axis=1")
    return list(np.moveaxis(values, -1 if axis is None else axis, 0))


def _unless_missing(found: Any, ordered: Sequence[Any]) -> Any:
    own = algebra()
    return mapped(lambda x, last: own.where(own.missing(last), math.nan, x), found, ordered[-1])


def ascending(values: Sequence[Any]) -> list[Any]:
    """Return arrays of cells in ascending order, element by element, missing ones last."""
    found = list(values)
    for left, right in _exchanges(len(found)):
        found[left], found[right] = _exchanged(found[left], found[right])
    return found


def _exchanges(count: int) -> Iterator[tuple[int, int]]:
    """Yield the places that are compared, and exchanged if they are in the wrong order.

    The network is Batcher's odd-even merge sort (Knuth, The Art of Computer Programming 3, algorithm 5.2.2M).
    """
    if count > MOST_SORTED:
        raise Untraceable(f"it sorts {count} columns of a row; at most {MOST_SORTED} are sorted")
    widest = 1 << max((count - 1).bit_length() - 1, 0)
    step = widest
    while step > 0:
        q, remainder, distance = widest, 0, step
        while True:
            yield from ((i, i + distance) for i in range(count - distance) if i & step == remainder)
            if q == step:
                break
            distance, q, remainder = q - step, q >> 1, step
        step >>= 1


def _exchanged(left: Any, right: Any) -> tuple[Any, Any]:
    own = algebra()

    def chosen(which: Callable[[Any, Any, Any], Any]) -> Any:
        return mapped(
            lambda x, y: which(own.binary("logical_or", own.binary("greater", x, y), own.missing(x)), x, y), left, right
        )

    return chosen(lambda test, x, y: own.where(test, y, x)), chosen(lambda test, x, y: own.where(test, x, y))
