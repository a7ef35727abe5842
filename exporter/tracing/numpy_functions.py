"""numpy's functions of cells.

A function that only moves elements is numpy's own, run on arrays of objects. A function that computes is made of
instructions here. Any other is refused by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing import cells
from triton_regressors.exporter.tracing.branches import explored
from triton_regressors.exporter.tracing.cells import (
    Cell,
    Cells,
    accumulated,
    algebra,
    as_cells,
    calls_functions,
    holds_cells,
    mapped,
    product,
    reduced,
    row_of,
)
from triton_regressors.exporter.tracing.expressions import INTEGER, Expression, Kind
from triton_regressors.exporter.tracing.refusal import Untraceable

MOVING = frozenset(
    {
        *("append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to"),
        *("column_stack", "concatenate", "copy", "delete", "dsplit", "dstack", "expand_dims", "flip", "fliplr"),
        *("hsplit", "hstack", "insert", "moveaxis", "ndim", "ravel", "repeat", "reshape", "resize", "roll", "rollaxis"),
        *("row_stack", "shape", "size", "split", "squeeze", "stack", "swapaxes", "take", "tile", "transpose"),
        *("unstack", "vsplit", "vstack", "matrix_transpose", "permute_dims", "diff", "cross", "result_type", "einsum"),
    }
)
"""Functions that only move elements, or whose own code in numpy uses operators alone."""

_HANDLERS: dict[str, Callable[..., Any]] = {}


@calls_functions
def call_function(function: Any, args: Any, kwargs: Any) -> Any:
    """Call one of numpy's functions on cells."""
    name = function.__name__
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(*args, **kwargs)
    if name not in MOVING:
        raise Untraceable(f"it calls numpy.{name}, which no kernel computes")
    return _wrapped(function(*_plain(args), **{key: _plain(value) for key, value in kwargs.items()}))


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function that stands for numpy's functions of these names."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _plain(value: Any) -> Any:
    """Return arrays of cells, in sequences too, as plain arrays of objects."""
    if isinstance(value, Cells):
        return value.view(np.ndarray)
    if hasattr(value, "iloc") and holds_cells(value):
        return _of_frame(value).view(np.ndarray)
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value


def _of_frame(value: Any) -> Cells:
    """Return a column or a table of pandas as an array."""
    if value.ndim == 1:
        return as_cells(value._values)
    return as_cells(np.stack([np.asarray(value.iloc[:, i]._values, dtype=object) for i in range(value.shape[1])], 1))


def unframed(value: Any) -> Any:
    """Return a column or a table of pandas, or a table of polars, as an array, and anything else as it is."""
    if hasattr(value, "traced_columns"):
        return value.to_numpy()
    return _of_frame(value) if hasattr(value, "iloc") else value


def _wrapped(found: Any) -> Any:
    if isinstance(found, np.ndarray) and found.dtype == object:
        return as_cells(found)
    if isinstance(found, list | tuple) and not hasattr(found, "_fields"):
        return type(found)(map(_wrapped, found))
    return found


# Choice


@handles("where")
def _where(condition: Any, *values: Any) -> Any:
    if len(values) != 2:
        raise Untraceable("it asks numpy.where at which places a condition holds", "Give numpy.where both values")
    return mapped(algebra().where, *map(unframed, (condition, *values)))


@handles("select")
def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Any:
    found: Any = default
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        found = _where(condition, choice, found)
    return found


@handles("choose")
def _choose(index: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> Any:
    found = choices[-1]
    for place in range(len(choices) - 2, -1, -1):
        found = _where(unframed(index) == place, choices[place], found)
    return found


@handles("piecewise")
def _piecewise(x: Any, conditions: Sequence[Any], functions: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    def value(function: Any) -> Any:
        return function(x, *args, **kwargs) if callable(function) else function

    found = value(functions[-1]) if len(functions) > len(conditions) else 0.0
    for condition, function in zip(conditions, functions, strict=False):  # a later condition wins
        found = _where(condition, value(function), found)
    return found


@handles("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **more: Any) -> Any:
    low = more.get("min", a_min)
    high = more.get("max", a_max)
    found = unframed(a)
    if low is not None:
        found = np.maximum(found, unframed(low))
    return found if high is None else np.minimum(found, unframed(high))


@handles("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    own, largest = algebra(), float(np.finfo(np.float64).max)
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf

    def each(value: Any, filling: Any) -> Expression:
        found = own.where(own.missing(value), filling, value)
        found = own.where(own.binary("equal", value, np.inf), high, found)
        return own.where(own.binary("equal", value, -np.inf), low, found)

    return mapped(each, unframed(x), nan)


@handles("isin")
def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, **_: Any) -> Any:
    wanted = np.asarray(test_elements).ravel().tolist()
    own = algebra()

    def each(value: Any) -> Expression:
        found = [own.binary("equal", value, one) for one in wanted]
        held = own.folded("logical_or", found) if found else own.expression(False)
        return own.unary("logical_not", held) if invert else held

    return mapped(each, unframed(element))


@handles("isclose")
def _isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    a, b = unframed(a), unframed(b)
    return np.abs(a - b) <= atol + rtol * np.abs(b)


@handles("real", "ascontiguousarray", "asfortranarray", "asanyarray", "asarray", "array", "require")
def _same(x: Any, *_: Any, **__: Any) -> Any:
    return unframed(x)


@handles("iscomplexobj", "iscomplex")
def _not_complex(_: Any) -> bool:
    return False


@handles("isrealobj")
def _is_real(_: Any) -> bool:
    return True


@handles("round", "around", "round_")
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return cells.rounded(unframed(a), decimals)


@handles("fix")
def _fix(x: Any, out: Any = None) -> Any:
    return np.trunc(unframed(x))


@handles("sinc")
def _sinc(x: Any) -> Any:
    y = np.pi * _where(unframed(x) == 0, 1.0e-20, x)
    return np.sin(y) / y


# Bins and interpolation


@handles("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = np.asarray(bins, dtype=np.float64)
    descending = len(edges) > 1 and edges[0] > edges[-1]
    found = _places(unframed(x), edges[::-1] if descending else edges, right)
    return len(edges) - found if descending else found


@handles("searchsorted")
def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if holds_cells(a) or sorter is not None:
        raise Untraceable("it calls numpy.searchsorted on places that are not constants")
    return _places(unframed(v), np.asarray(a, dtype=np.float64), side == "left")


def _places(x: Any, edges: np.ndarray, right: bool) -> Any:
    """Return how many ascending edges lie below each value, or also at it unless `right`; NaN lies above all."""
    own = algebra()

    def each(value: Any) -> Expression:
        number = own.expression(value)
        found = own.graph.make("places", number, edges, right, kind=Kind(INTEGER))
        return own.where(own.missing(number), len(edges), found)

    return mapped(each, x)


@handles("interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None or holds_cells(xp) or holds_cells(fp):
        raise Untraceable("it calls numpy.interp with a period, or with points that are not constants")
    places, values = np.asarray(xp, dtype=np.float64), np.asarray(fp, dtype=np.float64)
    ends = (values[0] if left is None else float(left), values[-1] if right is None else float(right))
    own = algebra()
    kind = own.expression(0.0).kind
    return mapped(lambda v: own.graph.make("interp", own.expression(v), places, values, ends, kind=kind), unframed(x))


# Sums over columns


def _axis(values: Any, axis: Any) -> Any:
    """Return an axis counted from the first."""
    return None if axis is None else axis if isinstance(axis, tuple) else int(axis) % max(np.ndim(values), 1)


def _count(values: Any, axis: Any) -> int:
    shape = np.shape(values)
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    return int(np.prod([shape[each] for each in axes]))


@handles("sum")
def _sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("add", values, _axis(values, axis), bool(keepdims is True))


@handles("prod")
def _prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("multiply", values, _axis(values, axis), bool(keepdims is True))


@handles("max", "amax")
def _max(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("maximum", values, _axis(values, axis), bool(keepdims is True))


@handles("min", "amin")
def _min(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("minimum", values, _axis(values, axis), bool(keepdims is True))


@handles("any")
def _any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("logical_or", values != 0, _axis(values, axis), bool(keepdims is True))


@handles("all")
def _all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("logical_and", values != 0, _axis(values, axis), bool(keepdims is True))


@handles("count_nonzero")
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _sum(unframed(a) != 0, axis, keepdims=keepdims)


@handles("mean", "average")
def _mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **more: Any) -> Any:
    values, weights = unframed(a), more.get("weights")
    if weights is not None:
        w = np.asarray(weights, dtype=np.float64)
        return _sum(values * w, axis) / w.sum()
    return _sum(values, axis, keepdims=keepdims) / _count(values, axis)


@handles("var")
def _var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = False, **_: Any
) -> Any:
    values = unframed(a)
    differences = values - _mean(values, axis, keepdims=True)
    return _sum(differences * differences, axis, keepdims=keepdims) / (_count(values, axis) - ddof)


@handles("std")
def _std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = False, **_: Any
) -> Any:
    return np.sqrt(_var(a, axis, ddof=ddof, keepdims=keepdims))


@handles("ptp")
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return _max(a, axis, keepdims=keepdims) - _min(a, axis, keepdims=keepdims)


@handles("nansum")
def _nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return _sum(_where(np.isnan(values), 0.0, values), axis, keepdims=keepdims)


@handles("nanmean")
def _nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return _nansum(values, axis, keepdims=keepdims) / _sum(~np.isnan(values), axis, keepdims=keepdims)


@handles("nanmax")
def _nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("fmax", values, _axis(values, axis), bool(keepdims is True))


@handles("nanmin")
def _nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **_: Any) -> Any:
    values = unframed(a)
    return reduced("fmin", values, _axis(values, axis), bool(keepdims is True))


@handles("cumsum", "cumulative_sum")
def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return accumulated("add", unframed(a), -1 if axis is None else axis)


@handles("cumprod", "cumulative_prod")
def _cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return accumulated("multiply", unframed(a), -1 if axis is None else axis)


# Products


@handles("dot", "inner")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = unframed(a), unframed(b)
    return a * b if np.ndim(a) == 0 or np.ndim(b) == 0 else product(a, b)


@handles("outer")
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    return np.ravel(unframed(a))[:, None] * np.ravel(unframed(b))[None]


@handles("norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    values = unframed(x)
    if ord in (None, 2) and axis is not None:
        return np.sqrt(_sum(values * values, axis, keepdims=keepdims))
    if ord == 1 and axis is not None:
        return _sum(np.abs(values), axis, keepdims=keepdims)
    if ord == np.inf and axis is not None:
        return _max(np.abs(values), axis, keepdims=keepdims)
    raise Untraceable(f"it calls numpy.linalg.norm with ord={ord!r} and axis={axis!r}")


@handles("polyval")
def _polyval(p: Any, x: Any) -> Any:
    found: Any = 0.0
    for coefficient in np.asarray(p).tolist():
        found = found * unframed(x) + coefficient
    return found


@handles("apply_along_axis")
def _apply_along_axis(function: Any, axis: int, array: Any, *args: Any, **kwargs: Any) -> Any:
    if axis % np.ndim(array) != np.ndim(array) - 1 or np.ndim(array) != 2:
        raise Untraceable("it applies a function along rows")
    rows = [explored(functools.partial(function, row, *args, **kwargs)) for row in unframed(array)]
    return np.stack(rows) if np.ndim(rows[0]) else as_cells(rows)


# New arrays


def _filled_like(value: float | None) -> Callable[..., Any]:
    def handler(a: Any, fill_value: Any = None, dtype: Any = None, *_: Any, **more: Any) -> Any:
        if value is not None:
            filling: Any = value
            kind = fill_value if dtype is None else dtype
        else:
            filling, kind = fill_value, dtype
        kind = more.get("dtype", kind)
        number = filling if holds_cells(filling) or kind in (None, object) else np.dtype(kind).type(filling)
        if kind is None and not holds_cells(filling):
            number = float(filling)
        return filled(np.shape(a), number)

    return handler


for _name, _value in (("zeros_like", 0.0), ("ones_like", 1.0), ("empty_like", 0.0), ("full_like", None)):
    _HANDLERS[_name] = _filled_like(_value)


def filled(shape: Any, value: Any) -> Cells:
    """Return an array of one constant, into which cells can be written."""
    array = np.empty(shape, dtype=object)
    array[...] = value
    return array.view(Cells)


def vectorized(function: Any, values: Sequence[Any]) -> Any:
    """Return a function of single numbers applied to each cell, with its branches followed."""

    def each(*elements: Any) -> Any:
        result = explored(functools.partial(function, *elements))
        return result if isinstance(result, Cell) else Cell(algebra().expression(result), row_of(elements))

    found = np.frompyfunc(each, len(values), 1)(*map(cells._plain, map(unframed, values)))
    return as_cells(found) if isinstance(found, np.ndarray) else found


def stacked(values: Any) -> np.ndarray:
    """Return nested sequences of cells as one array of objects."""
    parts = [stacked(value) if isinstance(value, list | tuple) else value for value in values]
    if any(np.ndim(part) for part in parts):
        return np.stack([np.asarray(unframed(part), dtype=object).view(np.ndarray) for part in parts])
    found = np.empty(len(parts), dtype=object)
    found[:] = parts
    return found
