"""The trace: a function is run once on a table of cells, and its result's columns are expressions of the table's."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from triton_regressors.exporter.lowering.polars_tables import PolarsType
from triton_regressors.exporter.tracing.algebra import Algebra
from triton_regressors.exporter.tracing.cells import Cell, as_cells, recording
from triton_regressors.exporter.tracing.expressions import Expression, Kind
from triton_regressors.exporter.tracing.frames import frame, patched
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.refusal import Untraceable, place

ROWS = (5, 7)
"""The number of rows of the traced table: the first one that is not its number of columns."""


@dataclass(frozen=True)
class Trace:
    """The columns of a function's result as expressions, and their names if the result is a DataFrame.

    `kinds` are those of the columns, which tell polars' types if the result is a DataFrame `of_polars`.
    """

    algebra: Algebra
    columns: tuple[Expression, ...]
    names: tuple[Any, ...] | None
    dimensions: int
    kinds: tuple[Kind, ...]
    of_polars: bool = False


class NotTraced(Exception):  # noqa: N818
    """A function that cannot be traced; the message is one or two sentences without an end."""


def trace(
    function: Callable[[Any], Any],
    kinds: Sequence[Kind],
    names: Sequence[Any] | None,
    strings: Mapping[int, Sequence[str]],
) -> Trace:
    """Run a function on a table of cells and return its result.

    Args:
        function: takes a table, `[rows, columns]`, and returns one, or a column.
        kinds: the kind of each column.
        names: the columns' names if the table is a DataFrame, of polars if the kinds tell polars' types; None for an
            array.
        strings: the known strings of each column of strings.

    Raises:
        NotTraced: the function does what no plan can take, or raises an error.
    """
    own = Algebra(strings)
    rows = next(count for count in ROWS if count != len(kinds))
    leaves = [own.graph.leaf(column, kind) for column, kind in enumerate(kinds)]
    try:
        with (
            recording(own),
            patched(function, rows),
            _given(function, own, rows, leaves, names) as given,
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            return _read(own, function(given), rows)
    except Untraceable as error:
        raise NotTraced(_sentence(error, str(error), error.instead or _of_polars(error, leaves, names))) from error
    except Exception as error:
        if not place(error) or isinstance(error, NotFittedError):
            raise
        text = str(error).splitlines()[0].rstrip(".") if str(error) else ""
        reason = f"it raises {type(error).__name__}{f' ({text})' if text else ''} on a table whose values are not known"
        raise NotTraced(_sentence(error, reason, _of_polars(error, leaves, names))) from error


def polars_kind(known: PolarsType | None, single: bool) -> Kind:
    """Return the kind of a column of a table of polars; one of no known type holds floats of scikit-learn."""
    from triton_regressors.exporter.tracing.polars_frames import kind_in_polars

    return kind_in_polars(known, single)


@contextlib.contextmanager
def _given(
    function: Any, own: Algebra, rows: int, leaves: Sequence[Expression], names: Sequence[Any] | None
) -> Iterator[Any]:
    """Yield the table that a function is given: an array, or a DataFrame of pandas or polars."""
    if "polars" in sys.modules:
        from triton_regressors.exporter.tracing.polars_frames import polars_patched, polars_table

        with polars_patched(function, own, rows) as tracing:
            if names is not None and any(leaf.kind.polars is not None for leaf in leaves):
                yield polars_table(tracing, names, leaves)
            else:
                yield _of_cells(rows, leaves, names)
        return
    yield _of_cells(rows, leaves, names)


def _of_cells(rows: int, leaves: Sequence[Expression], names: Sequence[Any] | None) -> Any:
    """Return an array of cells, or a DataFrame of pandas if it has names."""
    table = np.empty((rows, len(leaves)), dtype=object)
    for column, leaf in enumerate(leaves):
        for row in range(rows):
            table[row, column] = Cell(leaf, row)
    return as_cells(table) if names is None else frame(names, table)


def _sentence(error: BaseException, reason: str, instead: str) -> str:
    where = place(error)
    said = f"{where} cannot be traced: {reason}" if where else f"it cannot be traced: {reason}"
    return f"{said}. {instead}" if instead else said


def _of_polars(error: Exception, leaves: Sequence[Expression], names: Sequence[Any] | None) -> str:
    """Return what to do for code that may take tables of polars and was given one of pandas; or nothing."""
    given = names is None or any(leaf.kind.polars is not None for leaf in leaves)
    if given or "polars" not in sys.modules or not (isinstance(error, AttributeError) or "Expr" in str(error)):
        return ""
    return "If it takes a DataFrame of polars, give a DataFrame of polars as sample"


def _read(own: Algebra, result: Any, rows: int) -> Trace:
    """Return the columns of a result."""
    if hasattr(result, "traced_columns"):
        names, columns, kinds = result.traced_columns()
        return Trace(own, tuple(columns), tuple(names), 2, tuple(kinds), of_polars=True)
    if hasattr(result, "toarray") or not (hasattr(result, "iloc") or isinstance(result, np.ndarray)):
        raise Untraceable(f"it returns a value of type {type(result).__name__}", "Return an array or a DataFrame")
    names = tuple(result.columns) if hasattr(result, "columns") else None
    array = np.asarray(unframed(result), dtype=object)
    if array.ndim not in (1, 2) or len(array) != rows:
        raise Untraceable(
            f"it returns {len(array) if array.ndim else 0} rows for {rows}"
            if array.ndim in (1, 2)
            else f"it returns an array of {array.ndim} dimensions"
        )
    columns = [_column(own, column.tolist()) for column in (array.T if array.ndim == 2 else [array])]
    return Trace(own, tuple(columns), names, array.ndim, tuple(column.kind for column in columns))


def _column(own: Algebra, values: list[Any]) -> Expression:
    """Return a column's expression, which must be the same in every row."""
    found = {id(expression): expression for expression in (own.expression(_of_row(v, r)) for r, v in enumerate(values))}
    if len(found) > 1:
        raise Untraceable("its result depends on the place of a row in its table")
    return next(iter(found.values()))


def _of_row(value: Any, row: int) -> Any:
    if isinstance(value, Cell):
        if value.row not in (row, -1):
            raise Untraceable("it changes the order of rows")
        return value.expression
    return value
