"""Tables of polars in a traced function: polars plans what is done to them, and the plan is read.

polars computes in Rust, where no cell of ours can be. A traced table is a DataFrame of polars without values, whose
methods plan as polars' own do, by `lazy().with_columns(...).collect()`. Where such a plan would be run, it is read
instead: each column becomes a value, and the result is a traced table again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import polars as pl

from triton_regressors.exporter.lowering.polars_tables import NAN, NULL, PolarsType
from triton_regressors.exporter.tracing.algebra import Algebra
from triton_regressors.exporter.tracing.cells import Cell, as_cells, holds_cells, of
from triton_regressors.exporter.tracing.expressions import (
    BOOLEAN,
    DATE,
    FLOAT,
    INTEGER,
    SINGLE,
    TEXT,
    Expression,
    Kind,
)
from triton_regressors.exporter.tracing.frames import frame
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.patches import Patches, own_globals, patches
from triton_regressors.exporter.tracing.polars_plans import TAG, Tracing
from triton_regressors.exporter.tracing.polars_values import Nullable, kind_of
from triton_regressors.exporter.tracing.refusal import NoAttribute, Untraceable

PLANNED = frozenset(
    {
        *("with_columns", "with_columns_seq", "select", "select_seq", "drop", "rename", "cast", "fill_null"),
        *("fill_nan", "pipe", "lazy", "columns", "schema", "collect_schema", "dtypes", "width", "height", "shape"),
        *("filter", "sort", "unique", "drop_nulls", "drop_nans", "group_by", "join", "shift", "interpolate", "explode"),
        *("mean", "sum", "min", "max", "median", "std", "var", "quantile", "reverse", "remove", "unpivot", "pivot"),
        *("sum_horizontal", "mean_horizontal", "min_horizontal", "max_horizontal", "flags", "get_column_index"),
    }
)
"""Attributes of DataFrames that polars makes of plans, or of the names and types of columns."""

DTYPES = {FLOAT: pl.Float64(), SINGLE: pl.Float32(), INTEGER: pl.Int64(), BOOLEAN: pl.Boolean(), TEXT: pl.String()}
"""The types that polars gives numbers and strings of numpy and pandas."""

_tracing: ContextVar[Tracing] = ContextVar("tracing")


class Table(pl.DataFrame):
    """A traced table: a DataFrame with the names and types of its columns, and without their values."""

    def __init__(self, columns: Mapping[str, Nullable]) -> None:
        tracing = _tracing.get()
        nulls = {name: pl.Series(name, [None] * tracing.rows, dtype=c.dtype) for name, c in columns.items()}
        super().__init__(list(nulls.values()))
        self._traced = dict(columns)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in PLANNED or name in vars(Table):
            return super().__getattribute__(name)
        if not hasattr(pl.DataFrame, name):
            raise NoAttribute(f"it uses .{name}, which DataFrames of polars do not have")
        raise Untraceable(f"it uses DataFrame.{name}, which is not traced", "Use select or with_columns")

    def lazy(self) -> Any:
        """Return the plan of the table itself."""
        if not self._traced:
            return _lazy(pl.DataFrame([_tracing.get().tag(_tracing.get().values.literal(pl.Null(), None))]))
        tags = {name: _tracing.get().tag(column) for name, column in self._traced.items()}
        source = _lazy(pl.DataFrame(list(tags.values())))
        return source.select(pl.col(tag.name).alias(name) for name, tag in tags.items())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and key[0] in (slice(None), ...):
            key = key[1]
            key = self.columns[key] if isinstance(key, int | slice) else key
        if isinstance(key, str):
            return self.get_column(key)
        if isinstance(key, list | tuple) and all(isinstance(name, str) for name in key):
            return self.select(list(key))
        raise Untraceable("it selects rows of a table", "An entry answers every row that it is sent, in order")

    def get_column(self, name: str, **_: Any) -> Any:
        """Return a column: an expression that stands for it in any table."""
        if name not in self._traced:
            raise pl.exceptions.ColumnNotFoundError(name)
        return pl.lit(_tracing.get().tag(self._traced[name])).alias(name)

    def get_columns(self) -> list[Any]:
        """Return all columns."""
        return [self.get_column(name) for name in self.columns]

    def iter_columns(self) -> Iterator[Any]:
        """Return all columns."""
        return iter(self.get_columns())

    def to_series(self, index: int = 0) -> Any:
        """Return a column by its place."""
        return self.get_column(self.columns[index])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_columns())

    def hstack(self, columns: Any, **_: Any) -> Any:
        """Return the table with more columns."""
        return self.with_columns(columns.get_columns() if isinstance(columns, pl.DataFrame) else columns)

    def clone(self) -> Table:
        """Return the table, which nothing changes."""
        return self

    __copy__ = clone
    rechunk = clone

    def __deepcopy__(self, _: Any = None) -> Table:
        return self

    def to_pandas(self, **_: Any) -> Any:
        """Return the table as one of pandas with cells: null is NaN."""
        return frame(list(self._traced), self._cells())

    def to_numpy(self, **_: Any) -> Any:
        """Return the table as an array of cells: null is NaN."""
        return as_cells(self._cells())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.to_numpy()

    def _cells(self) -> np.ndarray:
        rows = _tracing.get().rows
        found = np.empty((rows, len(self._traced)), dtype=object)
        for place, column in enumerate(self._traced.values()):
            value = _outside(column)
            found[:, place] = [Cell(value, row) for row in range(rows)]
        return found

    def traced_columns(self) -> tuple[list[str], list[Expression], list[Kind]]:
        """Return the names, the expressions and the kinds of the columns."""
        values, columns = _tracing.get().values, self._traced.values()
        kinds = [kind_of(column.dtype, PolarsType(column.dtype, column.missing)) for column in columns]
        return list(self._traced), [values.value(column) for column in columns], kinds


def _refuse_operator(self: Any, *_: Any) -> Any:
    raise Untraceable("it computes with whole tables of polars by operators", "Use select(pl.all() * 2)")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "radd", "rsub", "rmul", "rtruediv", "eq", "ne"):
    setattr(Table, f"__{_name}__", _refuse_operator)
for _name in ("lt", "le", "gt", "ge", "setitem", "arrow_c_stream", "dataframe"):
    setattr(Table, f"__{_name}__", _refuse_operator)
Table.__hash__ = None  # type: ignore[assignment]


def _outside(column: Nullable) -> Expression:
    """Return a column as pandas and numpy hold it: an integer or a boolean that may be null is a float."""
    values = _tracing.get().values
    found = values.value(column)
    if column.null is not None and found.kind.name in (INTEGER, BOOLEAN):
        return values.make("identity", found, kind=FLOAT)
    return found


_lazy: Callable[[Any], Any] = pl.DataFrame.lazy


@contextlib.contextmanager
def polars_patched(function: Any, algebra: Algebra, rows: int) -> Iterator[Tracing]:
    """Have plans of traced tables read while a function is run."""
    tracing = Tracing(algebra, rows)
    token = _tracing.set(tracing)
    try:
        with patches() as active:
            for name in ("collect", "_collect_eager"):
                if hasattr(pl.LazyFrame, name):
                    active.put(pl.LazyFrame, name, _collect(getattr(pl.LazyFrame, name)))
            _put_expressions(active)
            active.put(pl.DataFrame, "__init__", _of_columns(pl.DataFrame.__init__))
            others = {"concat": _concat(pl.concat), "from_pandas": _from_pandas(pl.from_pandas)}
            replacements = {id(getattr(pl, name)): other for name, other in others.items()}
            for names in own_globals(function):
                active.put_in(names, replacements)
            for name, other in others.items():
                active.put(pl, name, other)
            yield tracing
    finally:
        _tracing.reset(token)


def _collect(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if TAG not in self.explain(optimized=False):
            return original(self, *args, **kwargs)
        return Table(_tracing.get().read(self))

    return method


def _of_columns(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the constructor of DataFrames that takes a dictionary of traced columns too."""

    def init(self: Any, data: Any = None, *args: Any, **kwargs: Any) -> None:
        if not isinstance(data, Mapping) or not any(isinstance(v, pl.Expr) or holds_cells(v) for v in data.values()):
            original(self, data, *args, **kwargs)
            return
        own = {name: _of_cells(value) if holds_cells(value) else value for name, value in data.items()}
        table = Table({}).select(**own)
        self.__class__ = Table
        self.__dict__.update(table.__dict__)

    return init


def _of_cells(value: Any) -> Any:
    """Return an array of cells as a column, whose missing numbers are NaN."""
    return pl.lit(_tracing.get().tag(_column_of(value, NAN)))


def _from_pandas(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(data: Any, *args: Any, nan_to_null: bool = True, **kwargs: Any) -> Any:
        if not holds_cells(data) or not hasattr(data, "columns"):
            return original(data, *args, nan_to_null=nan_to_null, **kwargs)
        missing = NULL if nan_to_null else NAN
        return Table({str(name): _column_of(data[name], missing) for name in data.columns})

    return function


def _column_of(value: Any, missing: str) -> Nullable:
    """Return an array or a column of cells as a column of polars, in which a missing number is null or NaN."""
    values, cells = _tracing.get().values, np.asarray(unframed(value), dtype=object).tolist()
    found = {id(expression): expression for expression in map(values.own.expression, _in_order(cells))}
    if len(found) != 1:
        raise Untraceable("it makes a column of values that depend on the place of a row")
    (expression,) = found.values()
    kind = expression.kind
    if kind.name in (INTEGER, BOOLEAN):
        return Nullable(DTYPES[kind.name], expression)
    if kind.name == DATE:
        dtype = pl.Datetime({"ns": "ns", "us": "us"}.get(kind.unit or "us", "ms"), kind.zone)  # type: ignore[arg-type]
        return values.column(expression, PolarsType(dtype, NULL))
    if kind.name not in DTYPES:
        raise Untraceable(f"it makes a column of polars of {kind.name} cells")
    return values.column(expression, PolarsType(DTYPES[kind.name], missing if kind.number else NULL))


def _in_order(cells: Sequence[Any]) -> list[Any]:
    if any(isinstance(cell, Cell) and cell.row not in (row, -1) for row, cell in enumerate(cells)):
        raise Untraceable("it changes the order of rows")
    return list(map(of, cells))


def _concat(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(items: Any, *args: Any, **kwargs: Any) -> Any:
        items = list(items)
        if not any(isinstance(item, Table) for item in items):
            return original(items, *args, **kwargs)
        if kwargs.get("how", args[0] if args else "vertical") != "horizontal":
            raise Untraceable("it puts tables below each other (pl.concat)")
        found = [item.lazy() if isinstance(item, pl.DataFrame) else item for item in items]
        return original(found, how="horizontal").collect()

    return function


def _put_expressions(active: Patches) -> None:
    """Have columns, which are expressions, answer what Series do, and functions of numpy."""

    def one(self: Any) -> Any:
        return Table({}).select(self)

    def to_numpy(self: Any, **_: Any) -> Any:
        return as_cells(one(self)._cells()[:, 0])

    def array_ufunc(self: Any, ufunc: Any, how: str, *inputs: Any, **_: Any) -> Any:
        name = {"absolute": "abs"}.get(ufunc.__name__, ufunc.__name__)
        if how != "__call__" or len(inputs) != 1 or not hasattr(pl.Expr, name):
            raise Untraceable(f"it calls numpy.{ufunc.__name__} with an expression of polars", "Use its methods")
        return getattr(self, name)()

    def refusing(reason: str, instead: str) -> Callable[..., Any]:
        def method(*_: Any, **__: Any) -> Any:
            raise Untraceable(reason, instead)

        return method

    in_python = refusing(
        "it takes the values of a column of polars into Python",
        "Use expressions, and give a DataFrame of polars as sample if the function takes one",
    )
    branch = refusing("it decides by the values of a column (if, and, or, not)", "Use pl.when(…).then(…).otherwise(…)")
    active.put(pl.Expr, "to_numpy", to_numpy)
    active.put(pl.Expr, "__array__", lambda self, *_, **__: to_numpy(self))
    active.put(pl.Expr, "__array_ufunc__", array_ufunc)
    active.put(pl.Expr, "to_frame", lambda self, name=None: one(self if name is None else self.alias(name)))
    active.put(pl.Expr, "to_list", in_python)
    active.put(pl.Expr, "__bool__", branch)
    active.put(pl.Expr, "__getitem__", refusing("it takes single values of a column", "Use expressions of polars"))


def kind_in_polars(known: PolarsType | None, single: bool) -> Kind:
    """Return the kind of a column; one of no known type holds the floats of an array, of which NaN is missing."""
    known = PolarsType(DTYPES[SINGLE if single else FLOAT], NAN) if known is None else known
    return kind_of(known.dtype, known)


def polars_table(tracing: Tracing, names: Sequence[str], leaves: Sequence[Expression]) -> Table:
    """Return the traced table of a function, whose columns are leaves of the graph."""
    columns = {}
    for name, leaf in zip(names, leaves, strict=True):
        columns[str(name)] = tracing.values.column(leaf, leaf.kind.polars)
    return Table(columns)
