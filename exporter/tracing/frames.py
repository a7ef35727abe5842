"""pandas with cells: what pandas computes with values is done by instructions while a function is traced.

Tables and columns are pandas' own, with cells as objects. Selecting, assigning, renaming, dropping and putting tables
side by side is pandas' own code. The methods that look at values are replaced during a trace, and behave as before on
tables without cells.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.core import indexing, ops

from triton_regressors.exporter.tracing import cells, numpy_functions
from triton_regressors.exporter.tracing.algebra import misused
from triton_regressors.exporter.tracing.cells import (
    Cell,
    algebra,
    as_cells,
    call_ufunc,
    holds_cells,
    mapped,
    of,
    row_of,
)
from triton_regressors.exporter.tracing.dates import DAYS, MONTHS, Dates
from triton_regressors.exporter.tracing.expressions import (
    BOOLEAN,
    DATE,
    DURATION,
    FLOAT,
    INTEGER,
    SINGLE,
    TEXT,
    Expression,
    Kind,
)
from triton_regressors.exporter.tracing.numpy_functions import call_function, filled, unframed, vectorized
from triton_regressors.exporter.tracing.patches import Patches, Stand, own_globals, patches
from triton_regressors.exporter.tracing.refusal import Untraceable, is_own

OPERATIONS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
}
"""Python's operators, as pandas hands them to its array functions, and their instructions."""

ROW_REMOVING = ("dropna", "drop_duplicates", "query", "sample", "nlargest", "nsmallest", "sort_values")
OVER_ROWS = (
    *("rolling", "expanding", "ewm", "shift", "diff", "pct_change", "groupby", "rank", "quantile", "describe", "corr"),
    *("cumsum", "cumprod", "cummax", "cummin", "ffill", "bfill", "interpolate", "value_counts", "unique", "nunique"),
    *("mode", "median", "duplicated", "resample", "pivot", "melt", "merge", "join", "factorize", "idxmax", "idxmin"),
)
"""Methods whose answer for a row depends on other rows."""


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
                    when_cells(owner, name, _refusing(name))
            when_cells(owner, "__getitem__", _getitem(owner.__getitem__), any_argument=True)
            when_cells(owner, "__setitem__", _setitem(owner.__setitem__), any_argument=True)
            active.put(owner, "values", property(_values(inspect.getattr_static(owner, "values"))))
        when_cells(pd.DataFrame, "apply", _apply_rows)
        when_cells(pd.DataFrame, "select_dtypes", _select_dtypes(pd.DataFrame.select_dtypes))
        active.put(pd.DataFrame, "dtypes", property(_dtypes(inspect.getattr_static(pd.DataFrame, "dtypes"))))
        active.put(pd.Series, "str", _Accessor(inspect.getattr_static(pd.Series, "str"), _Texts))
        active.put(pd.Series, "dt", _Accessor(inspect.getattr_static(pd.Series, "dt"), _Times))
        active.put(indexing._LocIndexer, "__setitem__", _loc_setitem(indexing._LocIndexer.__setitem__))
        active.put(indexing._LocIndexer, "__getitem__", _loc_getitem(indexing._LocIndexer.__getitem__))
        active.put(np.vectorize, "__call__", _vectorize(np.vectorize.__call__))
        _put_functions(active, function, rows)
        yield


def _put_functions(active: Patches, function: Any, rows: int) -> None:
    """Replace functions of numpy and pandas in the user's own code, whether it calls them by their module or not."""
    arrays = {name: _array_maker(getattr(np, name)) for name in ("asarray", "array", "asanyarray", "ascontiguousarray")}
    for name, filling in (("zeros", 0.0), ("ones", 1.0), ("empty", 0.0), ("full", None)):
        arrays[name] = _new_array(getattr(np, name), rows, filling)
    frames = {name: _of_values(getattr(pd, name), METHODS[name]) for name in ("isna", "isnull", "notna", "notnull")}
    frames |= {"cut": _of_values(pd.cut, _cut), "to_datetime": _of_values(pd.to_datetime, _to_datetime)}
    frames["to_numeric"] = _of_values(pd.to_numeric, lambda values, *_, **__: values)
    frames["get_dummies"] = _of_values(pd.get_dummies, _no_dummies)
    frames["qcut"] = _of_values(pd.qcut, _refusing("qcut"))
    replacements: dict[int, Any] = {id(np): Stand(np, arrays), id(pd): Stand(pd, frames)}
    for module, others in ((np, arrays), (pd, frames)):
        replacements |= {id(getattr(module, name)): other for name, other in others.items()}
    for names in own_globals(function):
        active.put_in(names, replacements)


# Operators and ufuncs


def _array_operation(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return pandas' function of an operator on arrays that computes cells by instructions."""

    def operation(left: Any, right: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if not (holds_cells(left) or holds_cells(right)):
            return original(left, right, op, *args, **kwargs)
        name = op.__name__
        reflected = name.startswith("r") and name[1:] in OPERATIONS
        name = OPERATIONS.get(name[1:] if reflected else name, name)
        first, second = (right, left) if reflected else (left, right)
        return mapped(lambda x, y: algebra().binary(name, x, y), first, second).view(np.ndarray)

    return operation


def _frame_ufunc(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, ufunc: Any, how: str, *inputs: Any, **keywords: Any) -> Any:
        if not any(map(holds_cells, inputs)):
            return original(self, ufunc, how, *inputs, **keywords)
        found = call_ufunc(ufunc, how, *map(unframed, inputs), **keywords)
        return _like(found, next(each for each in inputs if hasattr(each, "iloc")))

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
        if hasattr(value, "iloc"):
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


def _like(found: Any, frame: Any) -> Any:
    """Return an array as a column or a table with the labels of another."""
    if np.ndim(found) == 1:
        index = frame.index
        return pd.Series(
            np.asarray(found).view(np.ndarray), index=index, name=getattr(frame, "name", None), dtype=object
        )
    if np.ndim(found) == 2 and hasattr(frame, "columns"):
        return pd.DataFrame(found.view(np.ndarray), index=frame.index, columns=frame.columns, dtype=object)
    return found


def _each(frame: Any, function: Callable[..., Expression], *others: Any) -> Any:
    """Return a function of each cell of a column or a table."""
    return _like(mapped(function, unframed(frame), *others), frame)


# Methods


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any, **__: Any) -> Any:
        if name in ROW_REMOVING:
            raise Untraceable(
                f"it calls {name}, which changes the rows", "An entry answers every row that it is sent, in order"
            )
        raise Untraceable(
            f"it calls {name}, whose result depends on other rows",
            "Compute such numbers in fit and keep them as attributes",
        )

    return method


def _isna(self: Any) -> Any:
    return _each(self, algebra().missing)


def _notna(self: Any) -> Any:
    return _each(self, lambda x: algebra().unary("logical_not", algebra().missing(x)))


def _fillna(self: Any, value: Any = None, *, axis: Any = None, inplace: bool = False, **_: Any) -> Any:
    if inplace:
        raise Untraceable("it calls fillna with inplace=True", "Assign its result")
    if hasattr(self, "columns") and (isinstance(value, Mapping) or (hasattr(value, "iloc") and value.ndim == 1)):
        found = self.copy()
        for name in value.keys():  # noqa: SIM118 (a Series iterates over its values)
            if name in found.columns:
                found[name] = (
                    _fillna(found[name], value[name]) if holds_cells(found[name]) else found[name].fillna(value[name])
                )
        return found

    def each(x: Any, filling: Any) -> Expression:
        own, kind = algebra(), algebra().expression(x).kind
        if kind.name == TEXT and isinstance(filling, str):
            return own.text_call(x, "fillna", lambda series: series.fillna(filling), filling, safe=True)
        if kind.name in (INTEGER, BOOLEAN):
            return own.expression(x)  # its column holds no missing value
        return own.where(own.missing(x), filling, x)

    return _each(self, each, unframed(value))


def _clip(self: Any, lower: Any = None, upper: Any = None, *, axis: Any = None, inplace: bool = False, **_: Any) -> Any:
    own, found = algebra(), unframed(self)
    # pandas keeps a missing value, and a missing limit is none
    if lower is not None:
        found = mapped(lambda x, low: own.where(own.binary("less", x, low), low, x), found, unframed(lower))
    if upper is not None:
        found = mapped(lambda x, high: own.where(own.binary("greater", x, high), high, x), found, unframed(upper))
    return _like(found, self)


def _where(self: Any, cond: Any, other: Any = np.nan, **_: Any) -> Any:
    condition = cond(self) if callable(cond) else cond
    other = other(self) if callable(other) else other
    return _each(self, lambda x, c, o: algebra().where(c, x, o), unframed(condition), unframed(other))


def _mask(self: Any, cond: Any, other: Any = np.nan, **_: Any) -> Any:
    condition = cond(self) if callable(cond) else cond
    other = other(self) if callable(other) else other
    return _each(self, lambda x, c, o: algebra().where(c, o, x), unframed(condition), unframed(other))


def _isin(self: Any, values: Any) -> Any:
    if isinstance(values, Mapping) or (hasattr(values, "iloc") and values.ndim == 2):
        raise Untraceable("it calls isin with values for each column")
    wanted = list(values)

    def each(x: Any) -> Expression:
        own = algebra()
        value = own.expression(x)
        if value.kind.name == TEXT:
            return own.text_call(
                value, "isin", lambda series: series.isin(wanted), tuple(wanted), kind=BOOLEAN, safe=True
            )
        found = [
            own.missing(value) if one != one else own.binary("equal", value, one)
            for one in wanted
            if not isinstance(one, str)
        ]
        if value.kind.assumed and len(found) < len(wanted):
            raise misused(value, "strings")
        return own.folded("logical_or", found) if found else own.expression(False)

    return _each(self, each)


def _map(self: Any, func: Any, na_action: Any = None, **kwargs: Any) -> Any:
    if hasattr(self, "columns"):
        return self.apply(lambda column: _map(column, func, na_action, **kwargs))
    if isinstance(func, Mapping) or hasattr(func, "iloc"):
        return _each(self, lambda x: _looked_up(x, func))
    return _each_value(self, functools.partial(func, **kwargs) if kwargs else func, na_action)


def _looked_up(x: Any, table: Any) -> Expression:
    """Return the entry of a dictionary, or of a Series by its index, for a value; a missing one for unknown values."""
    own = algebra()
    value = own.expression(x)
    entries = dict(table.items())
    results = [entry for entry in entries.values() if entry == entry and entry is not None]
    texts = bool(results) and all(isinstance(entry, str) for entry in results)
    if value.kind.name == TEXT:
        return own.text_call(
            value,
            "map",
            lambda series: series.map(table),
            tuple(map(repr, entries.items())),
            kind=TEXT if texts else FLOAT,
            safe=True,
        )
    if any(isinstance(key, str) for key in entries) and value.kind.assumed:
        raise misused(value, "strings")
    if texts:
        names = tuple(dict.fromkeys(results))
        numbers = {key: float(names.index(entry)) for key, entry in entries.items() if isinstance(entry, str)}
        return own.graph.make("text_of", _number_of(value, numbers), names, kind=Kind(TEXT, "object"))
    return _number_of(value, {key: np.nan if entry is None else float(entry) for key, entry in entries.items()})


def _number_of(value: Expression, entries: Mapping[Any, float]) -> Expression:
    """Return the number that a table has for a number, NaN for one that it does not have."""
    missing = [entry for key, entry in entries.items() if key != key]
    known = {float(key): entry for key, entry in entries.items() if key == key and not isinstance(key, str)}
    keys = np.array(sorted(known), dtype=np.float64)
    table = np.array([*(known[key] for key in keys.tolist()), missing[0] if missing else np.nan, np.nan])
    return algebra().graph.make("lookup", value, keys, table, kind=Kind(FLOAT))


def _each_value(self: Any, function: Callable[..., Any], na_action: Any = None) -> Any:
    """Return a function of single values applied to each cell of a column; of strings it is asked string by string."""

    def each(x: Any) -> Any:
        own = algebra()
        if isinstance(x, Cell) and x.expression.kind.name == TEXT:
            kind = own.text_call(x.expression, "map", lambda s: s.map(function, na_action), id(function), kind=None)
            return Cell(kind, x.row)
        result = cells.explored(functools.partial(function, x))
        if not isinstance(result, Cell):
            result = Cell(own.expression(result), row_of((x,)))
        if na_action == "ignore":
            return Cell(own.where(own.missing(of(x)), np.nan, result.expression), result.row)
        return result

    found = np.frompyfunc(each, 1, 1)(unframed(self).view(np.ndarray))
    return _like(as_cells(found), self)


def _apply(self: Any, func: Any, args: Any = (), **kwargs: Any) -> Any:
    if isinstance(func, np.ufunc):
        return func(self)
    if isinstance(func, str):
        return getattr(self, func)(*args, **kwargs)
    return _each_value(self, functools.partial(func, *args, **kwargs) if args or kwargs else func)


def _apply_rows(
    self: Any, func: Any, axis: Any = 0, raw: bool = False, result_type: Any = None, args: Any = (), **kwargs: Any
) -> Any:
    if isinstance(func, np.ufunc):
        return func(self)
    if axis in (0, "index"):
        columns = {name: func(self[name], *args, **kwargs) for name in self.columns}
        if any(not hasattr(column, "iloc") for column in columns.values()):
            raise Untraceable("it applies a function over rows (DataFrame.apply with axis=0)")
        return pd.DataFrame(columns)
    table = unframed(self).view(np.ndarray)

    def of_row(row: np.ndarray) -> Any:
        return func(as_cells(row) if raw else pd.Series(row, index=self.columns, dtype=object), *args, **kwargs)

    rows = [cells.explored(functools.partial(of_row, row)) for row in table]
    if isinstance(rows[0], pd.Series):
        return pd.DataFrame([list(row._values) for row in rows], index=self.index, columns=rows[0].index, dtype=object)
    if isinstance(rows[0], list | tuple | np.ndarray):
        if result_type != "expand" and not isinstance(rows[0], np.ndarray):
            raise Untraceable("it makes lists of cells (DataFrame.apply)", 'Give apply result_type="expand"')
        return pd.DataFrame([list(row) for row in rows], index=self.index, dtype=object)
    found = np.empty(len(rows), dtype=object)
    found[:] = [
        row if isinstance(row, Cell) else Cell(algebra().expression(row), place) for place, row in enumerate(rows)
    ]
    return pd.Series(found, index=self.index, dtype=object)


def _replace(self: Any, to_replace: Any = None, value: Any = None, **more: Any) -> Any:
    if more.get("regex") or more.get("inplace"):
        raise Untraceable("it calls replace with regex or inplace")
    if isinstance(to_replace, Mapping):
        pairs = list(to_replace.items())
        if any(isinstance(new, Mapping) for _, new in pairs):
            found = self.copy()
            for name, inner in pairs:
                found[name] = found[name].replace(inner)
            return found
    elif isinstance(to_replace, list | tuple):
        news = value if isinstance(value, list | tuple) else [value] * len(to_replace)
        pairs = list(zip(to_replace, news, strict=True))
    else:
        pairs = [(to_replace, value)]

    def each(x: Any) -> Expression:
        own = algebra()
        old = own.expression(x)
        if old.kind.name == TEXT:
            table = dict(pairs)
            return own.text_call(
                old,
                "replace",
                lambda series: series.map(lambda text: table.get(text, text)),
                tuple(map(repr, pairs)),
                safe=True,
            )
        found = old
        for key, new in reversed(pairs):
            if isinstance(key, str):
                continue
            test = own.missing(old) if key != key or key is None else own.binary("equal", old, key)
            found = own.where(test, new, found)
        return found

    return _each(self, each)


def _astype(self: Any, dtype: Any, *_: Any, **__: Any) -> Any:
    if isinstance(dtype, Mapping):
        found = self.copy()
        for name, one in dtype.items():
            found[name] = found[name].astype(one)
        return found

    def each(x: Any) -> Expression:
        own = algebra()
        value, name = own.expression(x), str(getattr(dtype, "__name__", dtype))
        if value.kind.name == TEXT:
            if name in ("str", "string", "category", "object") or isinstance(
                dtype, pd.CategoricalDtype | pd.StringDtype
            ):
                return value
            return own.text_call(value, "astype", lambda series: series.astype(dtype), name, kind=FLOAT)
        if name in ("category", "object"):
            return value
        if name in ("str", "string") or isinstance(dtype, pd.StringDtype):
            raise misused(value, "strings") if value.kind.assumed else Untraceable("it makes text of numbers (astype)")
        if value.kind.name == DATE and name.startswith("datetime64"):
            return value
        if value.kind.name == DATE and name in ("int64", "int"):
            return _whole_time(value)
        return own.cast(value, _kind_of(dtype))

    return _each(self, each)


def _whole_time(value: Expression) -> Expression:
    """Return a date as the integer that pandas keeps: a count of the column's unit since 1970."""
    own = algebra()
    unit = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[value.kind.unit or "us"]
    if unit >= 1:
        return own.graph.make("floor_divide", value, own.graph.constant(unit, Kind(INTEGER)), kind=Kind(INTEGER))
    return own.graph.make("multiply", value, own.graph.constant(1000.0, Kind(INTEGER)), kind=Kind(INTEGER))


def _kind_of(dtype: Any) -> str:
    try:
        kind = np.dtype(str(dtype).lower() if isinstance(dtype, pd.api.extensions.ExtensionDtype) else dtype)
    except TypeError:
        raise Untraceable(f"it casts a column to {dtype}") from None
    if kind.kind == "b":
        return BOOLEAN
    if kind.kind in "iu":
        return INTEGER
    if kind.kind == "f" and kind.itemsize in (4, 8):
        return SINGLE if kind.itemsize == 4 else FLOAT
    raise Untraceable(f"it casts a column to {dtype}")


def _round(self: Any, decimals: int = 0, *_: Any, **__: Any) -> Any:
    return _like(cells.rounded(unframed(self), decimals), self)


def _to_numpy(self: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    found = unframed(self)
    return found if dtype is None else cells.cast(found, dtype)


def _no_eval(self: Any, expr: str, *_: Any, **__: Any) -> Any:
    raise Untraceable("it calls DataFrame.eval", 'Write the expression in Python, as in df["a"] * df["b"]')


# Reductions


def _reduction(name: str) -> Callable[..., Any]:
    def method(self: Any, axis: Any = None, skipna: bool = True, numeric_only: bool = False, **more: Any) -> Any:
        over_rows = self.ndim == 1 or axis in (None, 0, "index")
        table = self
        if numeric_only and self.ndim == 2:
            table = self.select_dtypes("number")
        values = unframed(table)
        ddof = more.get("ddof", 1)
        return _reduced(name, values, 0 if over_rows else 1, skipna, ddof, self.index if not over_rows else None)

    return method


def _reduced(name: str, values: Any, axis: int, skipna: bool, ddof: int, index: Any) -> Any:
    missing = np.isnan(values)
    if name in ("sum", "mean", "std", "var", "sem", "prod"):
        neutral = 1.0 if name == "prod" else 0.0
        kept = np.where(missing, neutral, values) if skipna else values
        count = np.sum(~missing, axis=axis) if skipna else values.shape[axis]
        found = np.prod(kept, axis=axis) if name == "prod" else np.sum(kept, axis=axis)
        if name in ("mean", "std", "var", "sem"):
            found = found / count
        if name in ("std", "var", "sem"):
            mean = found if axis == 0 else found[:, None]
            squares = (values - mean) ** 2
            squares = np.where(missing, 0.0, squares) if skipna else squares
            found = np.sum(squares, axis=axis) / (count - ddof)
            if name == "std":
                found = np.sqrt(found)
            elif name == "sem":
                found = np.sqrt(found) / np.sqrt(count)
    elif name in ("min", "max"):
        fold = {("min", True): np.fmin, ("max", True): np.fmax, ("min", False): np.minimum, ("max", False): np.maximum}
        found = fold[name, skipna].reduce(values, axis=axis)
    elif name == "count":
        found = np.sum(~missing, axis=axis)
    else:
        found = getattr(np, name)(np.where(missing, name == "all", values) if skipna else values, axis=axis)
    return pd.Series(found.view(np.ndarray), index=index, dtype=object) if index is not None else found


REDUCTIONS = ("sum", "mean", "std", "var", "sem", "prod", "min", "max", "count", "any", "all")

METHODS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("isna", "isnull"), _isna),
    **dict.fromkeys(("notna", "notnull"), _notna),
    "fillna": _fillna,
    "clip": _clip,
    "where": _where,
    "mask": _mask,
    "isin": _isin,
    "map": _map,
    "apply": _apply,
    "replace": _replace,
    "astype": _astype,
    "round": _round,
    "to_numpy": _to_numpy,
    "eval": _no_eval,
    **dict.fromkeys(("convert_dtypes", "infer_objects"), lambda self, *_, **__: self.copy()),
    **{name: _reduction(name) for name in REDUCTIONS},
}
"""What methods of Series and DataFrame do where they hold cells."""


# Selection and assignment by masks


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, key: Any) -> Any:
        if holds_cells(key):
            if hasattr(key, "columns"):
                return _where(self, key)
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
        found = _mask(self, key, value)
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
                return _where(found, mask)
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


# Accessors


class _Accessor:
    """Stands for an accessor of Series while a function is traced."""

    def __init__(self, original: Any, ours: Callable[[Any], Any]) -> None:
        self._original, self._ours = original, ours

    def __get__(self, series: Any, owner: Any) -> Any:
        if series is not None and holds_cells(series):
            return self._ours(series)
        return self._original.__get__(series, owner)


class _Texts:
    """Methods of strings: they are evaluated on the strings that are known of a column."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __getitem__(self, key: Any) -> Any:
        shown = (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)
        return self._call("[]", lambda series: series.str[key], shown)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(pd.Series(["a"]).str, name):
            raise AttributeError(f"'StringMethods' has no attribute '{name}'")

        def method(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("expand") or name in ("cat", "get_dummies", "extractall", "partition", "rpartition"):
                raise Untraceable(f"it makes a table of strings (.str.{name})", "Take one part of them, by .str[0]")
            shown = (*map(repr, args), *map(repr, sorted(kwargs.items())))
            return self._call(name, lambda series: getattr(series.str, name)(*args, **kwargs), shown)

        return method

    def _call(self, name: str, call: Callable[[Any], Any], shown: Any) -> Any:
        def each(x: Any) -> Expression:
            own = algebra()
            return own.text_call(own.expression(x), f"str.{name}", call, shown, kind=None)

        return _each(self._series, each)


class _Times:
    """Parts and methods of dates and durations."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def _each(self, function: Callable[[Dates], Expression]) -> Any:
        own = algebra()
        return _each(self._series, lambda x: function(Dates(own, own.expression(x))))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._each(lambda dates: dates.part(name))

    def isocalendar(self) -> Any:
        """Return the year, week and day of ISO 8601."""
        day = self._each(lambda dates: dates._op("add", dates.dayofweek(), 1))
        return pd.DataFrame({"year": self._each(Dates.iso_year), "week": self._each(Dates.iso_week), "day": day})

    def total_seconds(self) -> Any:
        """Return durations in seconds."""
        return self._each(Dates.total_seconds)

    def normalize(self) -> Any:
        """Return dates at midnight."""
        return self._each(Dates.midnight)

    def floor(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded down."""
        return self._each(lambda dates: dates.rounded("floor", freq))

    def ceil(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded up."""
        return self._each(lambda dates: dates.rounded("ceil", freq))

    def round(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded to the nearest."""
        return self._each(lambda dates: dates.rounded("round", freq))

    def tz_convert(self, tz: Any) -> Any:
        """Return dates in another zone."""
        return self._each(lambda dates: dates.converted(None if tz is None else str(tz)))

    def tz_localize(self, tz: Any, *_: Any, **__: Any) -> Any:
        """Return local times as dates without a zone, or such dates in UTC."""
        return self._each(lambda dates: dates.localized(None if tz is None else str(tz)))

    def day_name(self, locale: Any = None) -> Any:
        """Return the names of days."""
        return self._each(lambda dates: dates.named(dates.dayofweek(), DAYS))

    def month_name(self, locale: Any = None) -> Any:
        """Return the names of months."""
        return self._each(lambda dates: dates.named(dates._op("subtract", dates.month(), 1), MONTHS))

    def strftime(self, *_: Any) -> Any:
        """Refuse to write dates as text."""
        raise Untraceable("it writes dates as text (strftime)", "Use parts of dates, such as .dt.month")

    def to_period(self, *_: Any) -> Any:
        """Refuse periods."""
        raise Untraceable("it makes periods of dates (to_period)", "Use parts of dates, such as .dt.month")


# Functions of pandas


def _cut(
    x: Any,
    bins: Any,
    right: bool = True,
    labels: Any = None,
    retbins: bool = False,
    precision: int = 3,
    include_lowest: bool = False,
    **_: Any,
) -> Any:
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
        return _number_of(found, numbers)

    found = mapped(each, unframed(x))
    return _like(found, x) if hasattr(x, "iloc") else found


def _to_datetime(arg: Any, *args: Any, **kwargs: Any) -> Any:
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

        return _each(arg, each)
    if kind.name == TEXT:
        raise Untraceable("it reads dates from strings", "Give the model columns of dates (datetime64)")
    raise misused(first.expression, "dates")


def _no_dummies(*_: Any, **__: Any) -> Any:
    raise Untraceable("it makes columns of the values of a batch (get_dummies)", "Use a OneHotEncoder behind this step")


def frame(names: Sequence[Any], table: np.ndarray) -> Any:
    """Return a table of cells as a DataFrame."""
    columns = {}
    for place, _ in enumerate(names):
        column = np.empty(len(table), dtype=object)
        column[:] = table[:, place].tolist()
        columns[place] = column
    return pd.DataFrame(columns, index=range(len(table))).set_axis(list(names), axis=1)
