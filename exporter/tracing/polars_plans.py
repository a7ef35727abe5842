"""Plans of polars, read node by node: what each makes of the columns below it."""

from __future__ import annotations

from typing import Any

import polars as pl

from triton_regressors.exporter.tracing.algebra import Algebra
from triton_regressors.exporter.tracing.polars_expressions import Reader
from triton_regressors.exporter.tracing.polars_values import Nullable, Values
from triton_regressors.exporter.tracing.refusal import Untraceable

TAG = "\0traced "
"""Begins the names of columns without values, which a number follows."""

ROWS_CHANGED = {
    "Filter": "keeps the rows for which a condition holds",
    "Slice": "keeps some of the rows",
    "Distinct": "keeps distinct rows",
    "Sort": "sorts the rows",
    "GroupBy": "groups the rows",
    "Union": "puts tables below each other",
    "MergeSorted": "merges tables",
}


class Tracing:
    """The columns of one trace, by the numbers of their tags; `rows` is the number of rows of its tables."""

    def __init__(self, algebra: Algebra, rows: int) -> None:
        self.values, self.rows = Values(algebra), rows
        self._columns: list[Nullable] = []

    def tag(self, column: Nullable) -> Any:
        """Return a column as a Series without values, whose name refers to it."""
        self._columns.append(column)
        return pl.Series(f"{TAG}{len(self._columns) - 1}", [None] * self.rows, dtype=column.dtype)

    def tagged(self, name: str) -> Nullable | None:
        """Return the column that a name refers to; None for any other name."""
        return self._columns[int(name.removeprefix(TAG))] if name.startswith(TAG) else None

    def read(self, plan: Any) -> dict[str, Nullable]:
        """Return the columns of a plan."""
        try:
            traverser = plan._ldf.visit()
        except NotImplementedError as error:
            raise Untraceable(f"it uses {error} of LazyFrames, which is not traced") from None
        found = self._node(traverser)
        return {name: found[name] for name in plan.collect_schema().names()}

    def _node(self, traverser: Any) -> dict[str, Nullable]:
        """Return the columns of a node of a plan."""
        try:
            view = traverser.view_current_node()
        except NotImplementedError as error:
            raise Untraceable(f"it uses {error} of tables, which is not traced") from None
        name, here, inputs = type(view).__name__, traverser.get_node(), traverser.get_inputs()
        if name == "DataFrameScan":
            return self._scanned(pl.DataFrame._from_pydf(view.df), view)
        if name == "MapFunction":
            raise Untraceable(f"it calls {view.function[0]}, which is not traced")
        if name == "Join":
            raise Untraceable("it joins tables by their rows", "Use replace_strict with a dictionary to look values up")
        if name in ROWS_CHANGED:
            raise Untraceable(f"it {ROWS_CHANGED[name]}", "An entry answers every row that it is sent, in order")
        if name not in ("Select", "HStack", "SimpleProjection", "HConcat", "Cache"):
            raise Untraceable(f"it uses {name} of tables, which is not traced")
        below: dict[str, Nullable] = {}
        for node in inputs:
            traverser.set_node(node)
            below |= self._node(traverser)
        if name in ("Select", "HStack"):
            reader = Reader(self.values, traverser, below, self.tagged)
            traverser.set_node(inputs[0])
            made = {
                each.output_name: reader.read(each.node) for each in (view.expr if name == "Select" else view.exprs)
            }
            if any(column.cells is not None for column in made.values()):
                raise Untraceable("it makes a column of values of its own, one for each row")
            below = made if name == "Select" else {**below, **made}
        traverser.set_node(here)
        return below

    def _scanned(self, table: Any, view: Any) -> dict[str, Nullable]:
        if table.height != self.rows or getattr(view, "selection", None) is not None:
            raise Untraceable("it takes another number of rows than it is given, or constants alone")
        found: dict[str, Nullable] = {}
        for column in table.get_columns():
            known = self.tagged(column.name)
            if known is None:
                raise Untraceable("it takes rows of a table of its own")
            found[column.name] = known
        return found
