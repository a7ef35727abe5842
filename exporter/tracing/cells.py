"""Cells: the values that a traced function computes with, in arrays of numpy.

A `Cell` is an expression in one row. A function is run on a table of a few rows of cells, which are real arrays and
tables of objects. Whatever only moves cells, such as selecting, stacking or renaming columns, is therefore numpy's and
pandas' own code. Each cell knows its row: a result that mixes rows, such as a column's mean, is refused at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from triton_regressors.exporter.tracing.algebra import COMPARING, OPERATORS, Algebra
from triton_regressors.exporter.tracing.dates import METHODS_OF_DATES, OF_TIMESTAMP, Dates
from triton_regressors.exporter.tracing.expressions import BOOLEAN, DATE, DURATION, TEXT, Expression
from triton_regressors.exporter.tracing.paths import Decision, current
from triton_regressors.exporter.tracing.refusal import NoAttribute, Untraceable

_algebra: ContextVar[Algebra] = ContextVar("algebra")


def algebra() -> Algebra:
    """Return the algebra of the trace under way."""
    return _algebra.get()


@contextlib.contextmanager
def recording(of: Algebra) -> Iterator[None]:
    """Have cells computed with an algebra."""
    token = _algebra.set(of)
    try:
        yield
    finally:
        _algebra.reset(token)


class Cell:
    """An expression in a row of the traced table."""

    __slots__ = ("expression", "row")
    __array_priority__ = 1000

    def __init__(self, expression: Expression, row: int) -> None:
        self.expression, self.row = expression, row

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return call_ufunc(ufunc, method, *inputs, **keywords)

    def __bool__(self) -> bool:
        path = current.get()
        if path is None:
            raise Decision
        return path.decide(algebra().truth(self.expression), self.row)

    def __hash__(self) -> int:
        path, own = current.get(), algebra()
        if path is None:
            raise Decision(
                "it looks values of a column up in a set or a dictionary", "Use Series.map with the dictionary"
            )
        text = self.expression.kind.name == TEXT
        for key in own.keys:
            same = isinstance(key, str) == text
            if same and path.decide(own.binary("equal", self.expression, key), self.row):
                return hash(key)
        return object.__hash__(self)

    def __float__(self) -> float:
        raise Untraceable("it takes a cell's value as a Python number", "Use functions of numpy or math")

    __int__ = __index__ = __complex__ = __float__

    def __str__(self) -> str:
        raise Untraceable("it makes text of a number")

    def __format__(self, _: str) -> str:
        raise Untraceable("it makes text of a number")

    def __iter__(self) -> Iterator[Any]:
        raise Untraceable("it iterates over a cell")

    def __len__(self) -> int:
        raise Untraceable("it takes the length of a cell", "Use Series.str.len")

    def __round__(self, decimals: int | None = None) -> Any:
        return rounded(self, decimals or 0)

    def __repr__(self) -> str:
        return f"<cell of row {self.row}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.expression.kind.name in (DATE, DURATION):
            return single_date(name, self)
        raise NoAttribute(f"it uses .{name} of a single cell", "Use the methods of the column, such as .str and .dt")


def single_date(name: str, cell: Cell) -> Any:
    """Return an attribute of a pandas.Timestamp or a pandas.Timedelta: a part of it, or a method."""

    def recorded(function: Callable[[Dates], Expression]) -> Cell:
        return Cell(function(Dates(algebra(), cell.expression)), cell.row)

    if name in METHODS_OF_DATES:
        return lambda *values, **keywords: recorded(lambda dates: METHODS_OF_DATES[name](dates, *values, **keywords))
    if name == "isocalendar":
        parts = (Dates.iso_year, Dates.iso_week, Dates.isoweekday)
        return lambda: IsoCalendar(*map(recorded, parts))
    return recorded(OF_TIMESTAMP.get(name, lambda dates: dates.part(name)))


class IsoCalendar(NamedTuple):
    """A date in the calendar of ISO 8601."""

    year: Any
    week: Any
    weekday: Any


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: Cell(algebra().unary(name, self.expression), self.row)


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Cell, other: Any) -> Any:
        if isinstance(other, np.ndarray) or hasattr(other, "iloc"):
            return NotImplemented
        return combined(name, other, self) if reflected else combined(name, self, other)

    return method


for _operator, _name in OPERATORS.items():
    setattr(Cell, f"__{_operator}__", _binary(_name))
    setattr(Cell, f"__r{_operator}__", _binary(_name, reflected=True))
for _operator, _name in COMPARING.items():
    setattr(Cell, f"__{_operator}__", _binary(_name))
for _operator, _name in {"neg": "negative", "abs": "absolute", "invert": "bitwise_not", "pos": "positive"}.items():
    setattr(Cell, f"__{_operator}__", _unary(_name))


def row_of(values: Sequence[Any]) -> int:
    """Return the row of the cells among some values, −1 if there is none."""
    rows = {value.row for value in values if isinstance(value, Cell)} - {-1}
    if len(rows) > 1:
        raise Untraceable(
            "it computes with several rows at once (such as a mean, a sort or a shift over rows), so that a row's "
            "answer would depend on the others of its request",
            "Compute such numbers in fit and keep them as attributes",
        )
    return rows.pop() if rows else -1


def of(value: Any) -> Any:
    """Return a cell's expression, or a constant as it is."""
    return value.expression if isinstance(value, Cell) else value


def combined(name: str, left: Any, right: Any) -> Cell:
    """Return a ufunc of two values, one of them a cell."""
    return Cell(algebra().binary(name, of(left), of(right)), row_of((left, right)))


def mapped(function: Callable[..., Expression], *values: Any) -> Any:
    """Apply a function of expressions to arrays of cells and constants, broadcast against each other.

    Elements without any cell are given to the function too.
    """

    def each(*elements: Any) -> Any:
        return Cell(function(*map(of, elements)), row_of(elements))

    plain = [_plain(value) for value in values]
    found = np.frompyfunc(each, len(plain), 1)(*plain)
    return as_cells(found) if isinstance(found, np.ndarray) else found


def _plain(value: Any) -> Any:
    """Return a value as a plain array of objects, or as it is if it has no dimensions."""
    if isinstance(value, Cells):
        return value.view(np.ndarray)
    if isinstance(value, Cell) or np.ndim(value) == 0:
        holder = np.empty((), dtype=object)
        holder[()] = value
        return holder
    array = np.asarray(value)
    if array.dtype.kind in "mM":
        found = np.empty(array.shape, dtype=object)
        for place, element in np.ndenumerate(array):
            found[place] = element
        return found
    return array if array.dtype == object else _elements(array)


def _elements(array: np.ndarray) -> np.ndarray:
    """Return numbers as an array of numpy's own scalars, which keep their types."""
    found = np.empty(array.shape, dtype=object)
    found.reshape(-1)[:] = [*array.ravel()] if array.size else []
    return found


class Cells(np.ndarray):
    """An array of objects that are cells, or constants among them."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return call_ufunc(ufunc, method, *inputs, **keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _FUNCTIONS[0](function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        if any(map(holds_cells, key if isinstance(key, tuple) else (key,))):
            raise Untraceable(
                "it selects rows by their values, so that a request would get fewer answers than rows",
                "Use numpy.where to give those rows another value",
            )
        found = super().__getitem__(key)
        return found.view(Cells) if isinstance(found, np.ndarray) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        first, *rest = key if isinstance(key, tuple) else (key,)
        if holds_cells(first):
            columns = (slice(None), *rest)
            target = plain[columns] if rest else plain
            mask = first if np.ndim(first) == np.ndim(target) else np.asarray(first)[:, None]
            target[...] = mapped(algebra().where, mask, value, target.copy()).view(np.ndarray)
        elif holds_cells(rest):
            raise Untraceable("it selects columns by the values of cells")
        else:
            elements = _plain(value)
            plain[key] = elements if elements.ndim else elements[()]

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the cells as numbers of another type."""
        return cast(self, dtype)

    def item(self, *args: Any) -> Any:
        """Return the only cell."""
        return self.view(np.ndarray).item(*args)

    def tolist(self) -> Any:
        """Return the cells in lists."""
        return self.view(np.ndarray).tolist()


_FUNCTIONS: list[Callable[..., Any]] = []


def calls_functions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register the function that calls numpy's functions on cells: `call(function, args, kwargs)`."""
    _FUNCTIONS[:] = [function]
    return function


def _method(name: str) -> Callable[..., Any]:
    """Return a method of arrays that is numpy's function of the same name."""
    return lambda self, *args, **kwargs: getattr(np, name)(self, *args, **kwargs)


def _refusal(name: str) -> Callable[..., Any]:
    def method(self: Cells, *_: Any, **__: Any) -> Any:
        raise Untraceable(f"it calls {name}, which compares values with each other")

    return method


for _name in (
    "sum",
    "mean",
    "std",
    "var",
    "prod",
    "max",
    "min",
    "any",
    "all",
    "clip",
    "dot",
    "round",
    "cumsum",
    "cumprod",
    "argmax",
    "argmin",
):
    setattr(Cells, _name, _method(_name))
for _name in ("sort", "argsort", "partition", "argpartition", "searchsorted", "nonzero"):
    setattr(Cells, _name, _refusal(_name))


def as_cells(array: Any) -> Cells:
    """Return an array of objects as cells."""
    found: Cells = np.asarray(array, dtype=object).view(Cells)
    return found


def holds_cells(value: Any) -> bool:
    """Return whether a value is a cell, or an array, a column, a table or a sequence that holds one."""
    if isinstance(value, Cell):
        return True
    if isinstance(value, Cells) or hasattr(value, "traced_columns"):  # the second is a table of polars
        return True
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(isinstance(element, Cell) for element in value.ravel().tolist())
    if hasattr(value, "iloc") and hasattr(value, "dtypes"):
        if value.ndim == 1:
            return value.dtype == object and holds_cells(value._values)
        columns = (value.iloc[:, place]._values for place in range(value.shape[1]))
        return any(column.dtype == object and holds_cells(column) for column in columns)
    if isinstance(value, list | tuple):
        return any(map(holds_cells, value))
    return False


def call_ufunc(ufunc: Any, method: str, *inputs: Any, out: Any = None, where: Any = True, **keywords: Any) -> Any:
    """Compute a ufunc of cells."""
    name, own = ufunc.__name__, algebra()
    if method == "__call__" and keywords:
        raise Untraceable(f"it calls numpy.{name} with {' and '.join(keywords)}", "Use astype to choose types")
    if method == "reduce":
        return reduced(name, inputs[0], keywords.get("axis", 0), bool(keywords.get("keepdims", False)))
    if method == "outer":
        return call_ufunc(ufunc, "__call__", np.asarray(inputs[0])[:, None], np.asarray(inputs[1])[None])
    if method == "accumulate":
        return accumulated(name, inputs[0], keywords.get("axis", 0))
    if method != "__call__":
        raise Untraceable(f"it calls numpy.{name}.{method}")
    if name == "matmul":
        found = product(*inputs)
    elif name == "clip":
        found = mapped(own.clip, *inputs)
    elif name == "divmod":
        return mapped(lambda a, b: own.binary("floor_divide", a, b), *inputs), mapped(
            lambda a, b: own.binary("remainder", a, b), *inputs
        )
    elif ufunc.nin == 1:
        found = mapped(lambda x: own.unary(name, x), *inputs)
    elif ufunc.nin == 2 and ufunc.nout == 1:
        found = mapped(lambda x, y: own.binary(name, x, y), *inputs)
    else:
        raise Untraceable(f"it calls numpy.{name}, which no kernel computes")
    if where is not True:
        if out is None:
            raise Untraceable(f"it calls numpy.{name} with where and without out")
        found = mapped(own.where, where, found, out[0] if isinstance(out, tuple) else out)
    if out is None:
        return found
    target = out[0] if isinstance(out, tuple) else out
    if not isinstance(target, Cells):
        raise Untraceable(f"it writes the result of numpy.{name} into an array of numbers (out=)")
    target[...] = found
    return target


def reduced(name: str, values: Any, axis: Any, keepdims: bool = False) -> Any:
    """Return a ufunc's reduction of cells along an axis; None is all axes."""
    array = np.asarray(values).view(np.ndarray)
    axes = tuple(range(array.ndim)) if axis is None else tuple(np.atleast_1d(axis) % max(array.ndim, 1))
    own = algebra()

    def fold(elements: Sequence[Any]) -> Any:
        row = row_of(elements)
        if name == "add":
            return Cell(own.total(list(map(of, elements))), row)
        return Cell(own.folded(name, list(map(of, elements))), row)

    moved = np.moveaxis(array, axes, range(array.ndim - len(axes), array.ndim))
    kept = moved.shape[: array.ndim - len(axes)]
    flat = moved.reshape(*kept, -1)
    found = np.empty(kept, dtype=object)
    for place in np.ndindex(*kept):
        found[place] = fold(flat[place].tolist())
    if keepdims:
        found = np.expand_dims(found, axes)
    return as_cells(found) if found.ndim else found[()]


def accumulated(name: str, values: Any, axis: int) -> Cells:
    """Return a ufunc's running reduction of cells along an axis."""
    array = np.moveaxis(np.asarray(values).view(np.ndarray).copy(), axis, 0)
    own = algebra()
    for place in range(1, len(array)):
        array[place] = mapped(lambda a, b: own.binary(name, a, b), array[place - 1], array[place])
    return as_cells(np.moveaxis(array, 0, axis))


def product(left: Any, right: Any) -> Any:
    """Return the matrix product of cells and numbers; two matrices of cells are multiplied too."""
    a, b = _plain(left), _plain(right)
    columns = b[:, None] if b.ndim == 1 else b
    rows = a[None] if a.ndim == 1 else a
    if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != columns.shape[0]:
        raise Untraceable(f"it multiplies matrices of shapes {a.shape} and {b.shape}")
    own, found = algebra(), np.empty((rows.shape[0], columns.shape[1]), dtype=object)
    for i, j in np.ndindex(*found.shape):
        terms = [*rows[i].tolist(), *columns[:, j].tolist()]
        row, count = row_of(terms), rows.shape[1]
        factors = list(map(of, terms))
        if not any(isinstance(factor, Expression) for factor in factors[count:]):
            value = own.weighted(factors[:count], np.array(factors[count:], dtype=np.float64))
        else:
            value = own.total(
                [own.binary("multiply", x, y) for x, y in zip(factors[:count], factors[count:], strict=True)]
            )
        found[i, j] = Cell(value, row)
    shaped = found.reshape((*a.shape[:-1], *(() if b.ndim == 1 else b.shape[1:])))
    return as_cells(shaped) if shaped.ndim else shaped[()]


def cast(values: Any, dtype: Any) -> Any:
    """Return cells as numbers of another type."""
    if dtype in (object, "object", "O"):
        return values
    kind = np.dtype(dtype)
    if kind.kind not in "fiub" or (kind.itemsize < 4 and kind.kind == "f"):
        raise Untraceable(f"it casts cells to {dtype}")
    name = {"f": f"float{min(64, 8 * kind.itemsize)}", "b": BOOLEAN}.get(kind.kind, "int64")
    return mapped(lambda x: algebra().cast(x, name), values)


def rounded(values: Any, decimals: int) -> Any:
    """Return cells rounded to some decimals, as numpy computes it: rint(x · 10ᵈ) / 10ᵈ."""
    own = algebra()

    def each(x: Any) -> Expression:
        value = own.expression(x)
        if decimals == 0 or value.kind.name in ("int64", BOOLEAN):
            return own.unary("rint", value)
        scale = 10.0 ** abs(decimals)
        first, last = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
        return own.binary(last, own.unary("rint", own.binary(first, value, scale)), scale)

    return mapped(each, values)
