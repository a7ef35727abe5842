"""pandas with cells: what pandas computes with values is done by instructions while a function is traced.

Tables and columns are pandas' own, with cells as objects. Selecting, assigning, renaming, dropping and putting tables
side by side is pandas' own code. The methods that look at values are replaced during a trace, and behave as before on
tables without cells.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.core import indexing, ops

from triton_regressors.exporter.tracing import cells, numpy_functions
from triton_regressors.exporter.tracing.accessors import Accessor, DatetimeIndex, Texts, Times
from triton_regressors.exporter.tracing.algebra import COMPARING, OPERATORS
from triton_regressors.exporter.tracing.cells import (
    Cell,
    algebra,
    as_cells,
    call_ufunc,
    holds_cells,
    mapped,
)
from triton_regressors.exporter.tracing.expressions import (
    DATE,
    DURATION,
    TEXT,
)
from triton_regressors.exporter.tracing.frame_cells import like
from triton_regressors.exporter.tracing.frame_methods import METHODS, apply_rows, mask, no_categories, where
from triton_regressors.exporter.tracing.numpy_functions import call_function, filled, unframed, vectorized
from triton_regressors.exporter.tracing.over_rows import OVER_ROWS, ROW_REMOVING, refusing
from triton_regressors.exporter.tracing.pandas_functions import cut, no_dummies, to_datetime
from triton_regressors.exporter.tracing.patches import Patches, Stand, own_globals, patches
from triton_regressors.exporter.tracing.python_numbers import BUILTINS, math_functions
from triton_regressors.exporter.tracing.refusal import Untraceable, is_own


@contextlib.contextmanager
def patched(function: Any, rows: int) -> Iterator[None]:
    """Replace what looks at values in pandas and numpy while a function is run; `rows` is the number of rows traced."""
    with patches() as active:

        def when_cells(owner: Any, name: str, ours: Callable[..., Any], any_argument: bool = False) -> None:
            original = getattr(owner, name)

            @functools.wraps(original)
            def method(self: Any, *args: Any, **kwargs: Any) -> Any:
                if holds_cells(self) or (any_argument and any(map(holds_cells, args))):
                    return ours(self, *args, **kwargs)
                return original(self, *args, **kwargs)

            active.put(owner, name, method)

        for module in (ops, ops.array_ops):
            for name in ("arithmetic_op", "comparison_op", "logical_op"):
                active.put(module, name, _array_operation(getattr(module, name)))
        for owner in (pd.Series, pd.DataFrame):
            active.put(owner, "__array_ufunc__", _frame_ufunc(owner.__array_ufunc__))
            active.put(owner, "__array_function__", _frame_function)
            active.put(owner, "__array__", _as_array(owner.__array__))
            for name, ours in METHODS.items():
                if hasattr(owner, name):
                    when_cells(owner, name, ours)
            for name in (*ROW_REMOVING, *OVER_ROWS):
                if hasattr(owner, name):
                    when_cells(owner, name, refusing(name))
            when_cells(owner, "__getitem__", _getitem(owner.__getitem__), any_argument=True)
            when_cells(owner, "__setitem__", _setitem(owner.__setitem__), any_argument=True)
            active.put(owner, "values", property(_values(inspect.getattr_static(owner, "values"))))
        when_cells(pd.DataFrame, "apply", apply_rows)
        when_cells(pd.DataFrame, "select_dtypes", _select_dtypes(pd.DataFrame.select_dtypes))
        active.put(pd.DataFrame, "dtypes", property(_dtypes(inspect.getattr_static(pd.DataFrame, "dtypes"))))
        active.put(pd.Series, "str", Accessor(inspect.getattr_static(pd.Series, "str"), Texts))
        active.put(pd.Series, "dt", Accessor(inspect.getattr_static(pd.Series, "dt"), Times))
        active.put(pd.Series, "cat", Accessor(inspect.getattr_static(pd.Series, "cat"), no_categories))
        active.put(indexing._LocIndexer, "__setitem__", _loc_setitem(indexing._LocIndexer.__setitem__))
        active.put(indexing._LocIndexer, "__getitem__", _loc_getitem(indexing._LocIndexer.__getitem__))
        active.put(np.vectorize, "__call__", _vectorize(np.vectorize.__call__))
        _put_functions(active, function, rows)
        yield


def _put_functions(active: Patches, function: Any, rows: int) -> None:
    """Replace functions of numpy, pandas and math in the user's own code, called by their module or by their name."""
    arrays = {name: _array_maker(getattr(np, name)) for name in ("asarray", "array", "asanyarray", "ascontiguousarray")}
    for name, filling in (("zeros", 0.0), ("ones", 1.0), ("empty", 0.0), ("full", None)):
        arrays[name] = _new_array(getattr(np, name), rows, filling)
    frames = {name: _of_values(getattr(pd, name), METHODS[name]) for name in ("isna", "isnull", "notna", "notnull")}
    frames |= {"cut": _of_values(pd.cut, cut), "to_datetime": _of_values(pd.to_datetime, to_datetime)}
    frames["DatetimeIndex"] = DatetimeIndex
    frames["to_numeric"] = _of_values(pd.to_numeric, lambda values, *_, **__: values)
    frames["get_dummies"] = _of_values(pd.get_dummies, no_dummies)
    frames["qcut"] = _of_values(pd.qcut, refusing("qcut"))
    replacements: dict[int, Any] = {}
    for module, others in ((np, arrays), (pd, frames), (math, math_functions())):
        replacements[id(module)] = Stand(module, others)
        replacements |= {id(getattr(module, name)): other for name, other in others.items()}
    for names in own_globals(function):
        active.put_in(names, replacements)
        active.hide(names, BUILTINS)


# Operators and ufuncs


def _array_operation(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return pandas' function of an operator on arrays that computes cells by instructions."""

    def operation(left: Any, right: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if not (holds_cells(left) or holds_cells(right)):
            return original(left, right, op, *args, **kwargs)
        name = op.__name__.rstrip("_")
        reflected = name.startswith("r") and name[1:] in OPERATORS
        name = (OPERATORS | COMPARING).get(name[1:] if reflected else name, name)
        first, second = (right, left) if reflected else (left, right)
        return mapped(lambda x, y: algebra().binary(name, x, y), first, second).view(np.ndarray)

    return operation


def _frame_ufunc(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, ufunc: Any, how: str, *inputs: Any, **keywords: Any) -> Any:
        if not any(map(holds_cells, inputs)):
            return original(self, ufunc, how, *inputs, **keywords)
        found = call_ufunc(ufunc, how, *map(unframed, inputs), **keywords)
        return like(found, next(each for each in inputs if hasattr(each, "iloc")))

    return method


def _frame_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    if holds_cells(list(args)) or holds_cells(list(kwargs.values())):
        return call_function(function, args, kwargs)
    return function._implementation(*args, **kwargs)


def _as_array(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, dtype: Any = None, copy: Any = None) -> Any:
        if not holds_cells(self):
            return original(self, dtype, copy)
        found = unframed(self)
        return found if dtype is None else cells.cast(found, dtype)

    return method


def _values(original: Any) -> Callable[[Any], Any]:
    return lambda self: unframed(self) if holds_cells(self) else original.__get__(self, type(self))


def _array_maker(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not holds_cells(value):
            return original(value, dtype, *args, **kwargs)
        if hasattr(value, "iloc") or hasattr(value, "traced_columns"):
            found = unframed(value)
        else:
            found = as_cells(value if isinstance(value, np.ndarray) else numpy_functions.stacked(value))
        return found.copy() if dtype in (None, object) else cells.cast(found, dtype)

    return function


def _new_array(original: Callable[..., Any], rows: int, filling: float | None) -> Callable[..., Any]:
    """Return numpy's maker of arrays that makes arrays for cells where the user's code asks for a row each."""

    def function(shape: Any, *args: Any, **kwargs: Any) -> Any:
        first = shape[0] if isinstance(shape, tuple | list) and len(shape) else shape
        if first != rows:
            return original(shape, *args, **kwargs)
        if filling is not None:
            return filled(shape, filling)
        return filled(shape, args[0] if args else kwargs["fill_value"])

    return function


def _vectorize(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(map(holds_cells, args)):
            return original(self, *args, **kwargs)
        return vectorized(functools.partial(self.pyfunc, **kwargs), args)

    return method


def _of_values(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(values: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(values, *args, **kwargs) if holds_cells(values) else original(values, *args, **kwargs)

    return function


# Selection and assignment by masks


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, key: Any) -> Any:
        if holds_cells(key):
            if hasattr(key, "columns"):
                return where(self, key)
            raise Untraceable(
                "it keeps the rows for which a condition holds, so that a request would get fewer answers than rows",
                "Use numpy.where or Series.where to give the other rows a value",
            )
        return original(self, key)

    return method


def _setitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, key: Any, value: Any) -> None:
        if not holds_cells(key):
            if self.ndim == 2 and isinstance(value, cells.Cells):
                value = value.view(np.ndarray)
            if self.ndim == 2 and isinstance(value, Cell):
                raise Untraceable("it puts one cell into every row of a column")
            original(self, key, value)
            return
        if self.ndim == 1 or not hasattr(key, "columns"):
            raise Untraceable("it assigns to rows by a mask", "Use df.loc[mask, column] = value")
        found = mask(self, key, value)
        for place, name in enumerate(self.columns):
            original(self, name, found.iloc[:, place])

    return method


def _loc_setitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, key: Any, value: Any) -> None:
        mask, column = (*key, None)[:2] if isinstance(key, tuple) else (key, None)
        if not holds_cells(mask):
            original(self, key, value)
            return
        table = self.obj
        if table.ndim == 1 or column is None:
            raise Untraceable(
                "it assigns to rows by a mask without naming a column", "Use df.loc[mask, column] = value"
            )
        for name in column if isinstance(column, list) else [column]:
            old = table[name] if name in table.columns else pd.Series(np.nan, index=table.index)
            cell_values = as_cells(np.asarray(old._values, dtype=object)) if not holds_cells(old) else unframed(old)
            new = value[name] if hasattr(value, "columns") else value
            found = mapped(algebra().where, unframed(mask), unframed(new), cell_values)
            table[name] = pd.Series(found.view(np.ndarray), index=table.index, dtype=object)

    return method


def _loc_getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, key: Any) -> Any:
        mask = key[0] if isinstance(key, tuple) else key
        if not holds_cells(mask):
            return original(self, key)
        if isinstance(key, tuple) and not hasattr(mask, "columns"):
            found = self.obj[key[1]]  # aligned with all rows, the others are missing
            if found.ndim == 1:
                return where(found, mask)
        raise Untraceable("it keeps the rows for which a condition holds (.loc)")

    return method


# Types of columns


def _dtypes(original: Any) -> Callable[[Any], Any]:
    def getter(self: Any) -> Any:
        found = original.__get__(self, type(self))
        if not is_own(sys._getframe(1).f_code.co_filename) or not holds_cells(self):
            return found
        return pd.Series(_types(self), index=found.index, dtype=object)

    return getter


def _select_dtypes(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        types = dict(enumerate(_types(self)))
        empty = pd.DataFrame({place: pd.Series(dtype=dtype) for place, dtype in types.items()})
        kept = original(empty, *args, **kwargs).columns
        return self.iloc[:, list(kept)]

    return method


def _types(table: Any) -> list[Any]:
    """Return the dtype that each column of a table of cells has in the user's tables."""
    return [_type(table.iloc[:, place]) for place in range(table.shape[1])]


def _type(column: Any) -> Any:
    first = column._values[0] if len(column) else None
    if not isinstance(first, Cell):
        return column.dtype
    kind = first.expression.kind
    if kind.name == DATE:
        return pd.DatetimeTZDtype(kind.unit or "us", kind.zone) if kind.zone else np.dtype(f"datetime64[{kind.unit}]")
    if kind.name == DURATION:
        return np.dtype("timedelta64[us]")
    if kind.name == TEXT:
        return pd.Series(["a"]).dtype if kind.unit in (None, "str") else np.dtype(object)
    return np.dtype(kind.name)


# The traced table


def frame(names: Sequence[Any], table: np.ndarray) -> Any:
    """Return a table of cells as a DataFrame."""
    columns = {}
    for place, _ in enumerate(names):
        column = np.empty(len(table), dtype=object)
        column[:] = table[:, place].tolist()
        columns[place] = column
    return pd.DataFrame(columns, index=range(len(table))).set_axis(list(names), axis=1)
