"""Methods of pandas' columns and tables that look at values, for those that hold cells."""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing import cells
from triton_regressors.exporter.tracing.algebra import misused
from triton_regressors.exporter.tracing.branches import explored
from triton_regressors.exporter.tracing.cells import (
    Cell,
    algebra,
    as_cells,
    holds_cells,
    mapped,
    of,
    row_of,
)
from triton_regressors.exporter.tracing.expressions import (
    BOOLEAN,
    FLOAT,
    INTEGER,
    TEXT,
    Expression,
    Kind,
)
from triton_regressors.exporter.tracing.frame_cells import each_cell, like
from triton_regressors.exporter.tracing.frame_reductions import REDUCTIONS
from triton_regressors.exporter.tracing.frame_types import astype
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.refusal import Untraceable


def _isna(self: Any) -> Any:
    return each_cell(self, algebra().missing)


def _notna(self: Any) -> Any:
    return each_cell(self, lambda x: algebra().unary("logical_not", algebra().missing(x)))


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
            call, step = lambda series: series.fillna(filling), ("fill", (filling,))
            return own.text_call(x, "fillna", call, filling, safe=True, step=step, mentions=[filling])
        if kind.name in (INTEGER, BOOLEAN):
            return own.expression(x)  # its column holds no missing value
        return own.where(own.missing(x), filling, x)

    return each_cell(self, each, unframed(value))


def _clip(self: Any, lower: Any = None, upper: Any = None, *, axis: Any = None, inplace: bool = False, **_: Any) -> Any:
    own, found = algebra(), unframed(self)
    # pandas keeps a missing value, and a missing limit is none
    if lower is not None:
        found = mapped(lambda x, low: own.where(own.binary("less", x, low), low, x), found, unframed(lower))
    if upper is not None:
        found = mapped(lambda x, high: own.where(own.binary("greater", x, high), high, x), found, unframed(upper))
    return like(found, self)


def where(self: Any, cond: Any, other: Any = np.nan, **_: Any) -> Any:
    """Return `self` where a condition holds, else the other values."""
    condition = cond(self) if callable(cond) else cond
    other = other(self) if callable(other) else other
    return each_cell(self, lambda x, c, o: algebra().where(c, x, o), unframed(condition), unframed(other))


def mask(self: Any, cond: Any, other: Any = np.nan, **_: Any) -> Any:
    """Return the other values where a condition holds, else `self`."""
    condition = cond(self) if callable(cond) else cond
    other = other(self) if callable(other) else other
    return each_cell(self, lambda x, c, o: algebra().where(c, o, x), unframed(condition), unframed(other))


def _isin(self: Any, values: Any) -> Any:
    if isinstance(values, Mapping) or (hasattr(values, "iloc") and values.ndim == 2):
        raise Untraceable("it calls isin with values for each column")
    wanted = list(values)

    def each(x: Any) -> Expression:
        own = algebra()
        value = own.expression(x)
        if value.kind.name == TEXT:
            return own.text_call(
                *(value, "isin", lambda series: series.isin(wanted), tuple(wanted)),
                kind=BOOLEAN,
                safe=True,
                mentions=wanted,
            )
        found = [
            own.missing(value) if one != one else own.binary("equal", value, one)
            for one in wanted
            if not isinstance(one, str)
        ]
        if value.kind.assumed and len(found) < len(wanted):
            raise misused(value, "strings")
        return own.folded("logical_or", found) if found else own.expression(False)

    return each_cell(self, each)


def _map(self: Any, func: Any, na_action: Any = None, **kwargs: Any) -> Any:
    if hasattr(self, "columns"):
        return self.apply(lambda column: _map(column, func, na_action, **kwargs))
    if isinstance(func, Mapping) or hasattr(func, "iloc"):
        return each_cell(self, lambda x: _looked_up(x, func))
    if func is str:
        return astype(self, str)
    return _each_value(self, functools.partial(func, **kwargs) if kwargs else func, na_action)


def _looked_up(x: Any, table: Any) -> Expression:
    """Return the entry of a dictionary, or of a Series by its index, for a value; a missing one for unknown values."""
    own = algebra()
    value = own.expression(x)
    entries = dict(table.items())
    results = [entry for entry in entries.values() if entry == entry and entry is not None]
    texts = bool(results) and all(isinstance(entry, str) for entry in results)
    if value.kind.name == TEXT:
        own.texts.mention(value, entries)
        return own.text_call(
            value,
            "map",
            lambda series: series.map(table),
            tuple(map(repr, entries.items())),
            kind=TEXT if texts else FLOAT,
            safe=True,
            mentions=entries,
        )
    if any(isinstance(key, str) for key in entries) and value.kind.assumed:
        raise misused(value, "strings")
    if texts:
        names = tuple(dict.fromkeys(results))
        numbers = {key: float(names.index(entry)) for key, entry in entries.items() if isinstance(entry, str)}
        return own.graph.make("text_of", number_of(value, numbers), names, kind=Kind(TEXT, "object"))
    return number_of(value, {key: np.nan if entry is None else float(entry) for key, entry in entries.items()})


def number_of(value: Expression, entries: Mapping[Any, float]) -> Expression:
    """Return the number that a table has for a number, NaN for one that it does not have."""
    missing = [entry for key, entry in entries.items() if key != key]
    known = {float(key): entry for key, entry in entries.items() if key == key and not isinstance(key, str)}
    keys = np.array(sorted(known), dtype=np.float64)
    table = np.array([*(known[key] for key in keys.tolist()), missing[0] if missing else np.nan, np.nan])
    return algebra().graph.make("lookup", value, keys, table, kind=Kind(FLOAT))


def _each_value(self: Any, function: Callable[..., Any], na_action: Any = None) -> Any:
    """Return a function of single values applied to each cell of a column; of strings it is asked string by string."""
    if any(
        function == getattr(cls, getattr(function, "__name__", ""), None) for cls in (pd.Timestamp, datetime.datetime)
    ):
        function = operator.methodcaller(function.__name__)  # a method of compiled code, such as Timestamp.toordinal

    def each(x: Any) -> Any:
        own = algebra()
        if isinstance(x, Cell) and x.expression.kind.name == TEXT:
            kind = own.text_call(x.expression, "map", lambda s: s.map(function, na_action), id(function), kind=None)
            return Cell(kind, x.row)
        result = explored(functools.partial(function, x))
        if not isinstance(result, Cell):
            result = Cell(own.expression(result), row_of((x,)))
        if na_action == "ignore":
            return Cell(own.where(own.missing(of(x)), np.nan, result.expression), result.row)
        return result

    found = np.frompyfunc(each, 1, 1)(unframed(self).view(np.ndarray))
    return like(as_cells(found), self)


def _apply(self: Any, func: Any, args: Any = (), **kwargs: Any) -> Any:
    if isinstance(func, np.ufunc):
        return func(self)
    if isinstance(func, str):
        return getattr(self, func)(*args, **kwargs)
    if func is str:
        return astype(self, str)
    return _each_value(self, functools.partial(func, *args, **kwargs) if args or kwargs else func)


def apply_rows(
    self: Any, func: Any, axis: Any = 0, raw: bool = False, result_type: Any = None, args: Any = (), **kwargs: Any
) -> Any:
    """Return what a function makes of each row of a table, or of each column."""
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

    rows = [explored(functools.partial(of_row, row)) for row in table]
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
            return _replaced_texts(old, dict(pairs))
        found = old
        for key, new in reversed(pairs):
            if isinstance(key, str):
                continue
            test = own.missing(old) if key != key or key is None else own.binary("equal", old, key)
            found = own.where(test, new, found)
        return found

    return each_cell(self, each)


def _replaced_texts(text: Expression, table: Mapping[Any, Any]) -> Expression:
    """Return a table's entry in place of each string that it has: a number if it has one for every known string."""
    own, key = algebra(), tuple(map(repr, table.items()))
    own.texts.mention(text, table)
    numbers = bool(own.texts.values(text)) and not any(
        isinstance(table.get(known, known), str) for known in own.texts.values(text)
    )
    call = functools.partial(_replaced_in, table)
    if numbers:
        return own.text_call(text, "replace", call, key, kind=FLOAT)
    words = tuple(word for pair in table.items() for word in pair)
    step = ("exchange", words) if all(isinstance(word, str) for word in words) else None
    return own.text_call(text, "replace", call, key, safe=True, step=step, mentions=table.values())


def _replaced_in(table: Mapping[Any, Any], series: Any) -> Any:
    return series.map(lambda text: table.get(text, text))


def _round(self: Any, decimals: int = 0, *_: Any, **__: Any) -> Any:
    return like(cells.rounded(unframed(self), decimals), self)


def _to_numpy(self: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    found = unframed(self)
    return found if dtype is None else cells.cast(found, dtype)


def _no_eval(self: Any, expr: str, *_: Any, **__: Any) -> Any:
    raise Untraceable("it calls DataFrame.eval", 'Write the expression in Python, as in df["a"] * df["b"]')


def no_categories(self: Any) -> Any:
    """Refuse the accessor `.cat`."""
    raise Untraceable(
        "it uses .cat, whose codes depend on the categories of a batch",
        "Use Series.map with a dictionary, or an OrdinalEncoder behind this step",
    )


def _merge(self: Any, right: Any, how: str = "inner", on: Any = None, **more: Any) -> Any:
    """Put the columns of a constant table beside, row by row: its rows are told apart by one column."""
    left_on, right_on = more.pop("left_on", on), more.pop("right_on", on)
    plain = how == "left" and not more and isinstance(left_on, str) and isinstance(right_on, str)
    if not plain or holds_cells(right) or not right[right_on].is_unique:
        raise Untraceable(
            "it calls merge", 'Merge with a constant table, how="left", on one column whose values are unique'
        )
    found, table = self.copy(), right.set_index(right_on, drop=left_on == right_on)
    if set(table.columns) & set(found.columns):
        raise Untraceable("it merges tables with columns of the same name", "Rename the columns before")
    for name in table.columns:
        found[name] = self[left_on].map(table[name])
    return found


METHODS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("isna", "isnull"), _isna),
    **dict.fromkeys(("notna", "notnull"), _notna),
    "fillna": _fillna,
    "clip": _clip,
    "where": where,
    "mask": mask,
    "isin": _isin,
    "map": _map,
    "apply": _apply,
    "replace": _replace,
    "astype": astype,
    "round": _round,
    "to_numpy": _to_numpy,
    "eval": _no_eval,
    **dict.fromkeys(("convert_dtypes", "infer_objects"), lambda self, *_, **__: self.copy()),
    **REDUCTIONS,
    "merge": _merge,
}
"""What methods of Series and DataFrame do where they hold cells."""
