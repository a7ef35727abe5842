"""Expressions of polars, read from a plan of polars after its types are resolved.

polars offers a plan to engines other than its own (`LazyFrame._ldf.visit`): its nodes, with every column named, every
selector expanded and every cast written out. Each node of an expression becomes a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from triton_regressors.exporter.tracing.polars_functions import FUNCTIONS
from triton_regressors.exporter.tracing.polars_numbers import arithmetic, cast, plain
from triton_regressors.exporter.tracing.polars_strings import of_strings
from triton_regressors.exporter.tracing.polars_times import part_of_time, times
from triton_regressors.exporter.tracing.polars_values import Nullable, Values, unknown
from triton_regressors.exporter.tracing.refusal import Untraceable

COMPARISONS = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
}

IN_FIT = "Compute such numbers in fit and keep them as attributes"

OVER_ROWS = frozenset(
    {
        *("shift", "diff", "rank", "reverse", "unique", "sample", "shuffle", "interpolate", "value_counts", "rle"),
        *("cum_sum", "cum_prod", "cum_min", "cum_max", "cum_count", "fill_null_with_strategy", "null_count", "qcut"),
        *("arg_unique", "arg_max", "arg_min", "arg_sort", "mode", "n_unique", "top_k", "bottom_k", "pct_change"),
        *("IsDuplicated", "IsUnique", "IsFirstDistinct", "IsLastDistinct", "Any", "All", "skew", "kurtosis", "hist"),
    }
)
"""Functions whose answer for a row depends on other rows."""

ROWS_TOGETHER = frozenset({"Agg", "Window", "Len", "Sort", "SortBy", "Gather", "Slice", "Filter", "Rolling", "Explode"})
"""Nodes whose answer for a row depends on other rows."""


class Reader:
    """Reads the expressions of one node of a plan; `columns` are those of the table that it takes."""

    def __init__(
        self, values: Values, traverser: Any, columns: Mapping[str, Nullable], tagged: Callable[[str], Nullable | None]
    ) -> None:
        self.values, self._traverser, self._columns, self._tagged = values, traverser, columns, tagged

    def read(self, node: int) -> Nullable:
        """Return the value of an expression."""
        try:
            view, dtype = self._traverser.view_expression(node), self._traverser.get_dtype(node)
        except NotImplementedError as error:
            raise unknown(str(error)) from None
        name = type(view).__name__
        match name:
            case "Column":
                return self._columns[view.name]
            case "Alias":
                return self.read(view.expr)
            case "Literal":
                return self._literal(view.value, dtype)
            case "BinaryExpr":
                operator = str(view.op).rpartition(".")[2]
                return self._binary(operator, self.operand(view.left), self.operand(view.right), dtype)
            case "Ternary" if self._fills_nan(view):
                return self.values.nan_filled(self.operand(view.truthy), self.operand(view.falsy), dtype)
            case "Ternary":
                condition, yes, no = map(self.operand, (view.predicate, view.truthy, view.falsy))
                return self.values.chosen(condition, yes, no, dtype)
            case "Cast":
                return cast(self.values, self.operand(view.expr), view.dtype, wraps=view.options == 2)
            case "Function":
                return self._function(view, dtype)
        if name in ROWS_TOGETHER:
            what = getattr(view, "name", name.lower()) if name == "Agg" else {"Window": "over"}.get(name, name.lower())
            raise Untraceable(f"it calls {what}, whose result depends on other rows", IN_FIT)
        raise unknown(name)

    def operand(self, node: int) -> Nullable:
        """Return the value of an expression that another one computes with."""
        found = self.read(node)
        if found.mixed:
            raise Untraceable(
                "it computes with a column that may hold both null and NaN, which no request or step can tell",
                "Make one of them the other before this step, in the sample too, by fill_nan(None)",
            )
        if found.dtype == pl.Date() and found.raw.operation == "leaf":  # a request may hold a time of the day
            return times(self.values, found).date(found)
        return found

    def _fills_nan(self, view: Any) -> bool:
        """Return whether a choice is what polars makes of `fill_nan`: the value itself where it is null or not NaN."""
        either = self._traverser.view_expression(view.predicate)
        if type(either).__name__ != "BinaryExpr" or not str(either.op).endswith(".Or"):
            return False
        tests = [self._traverser.view_expression(each) for each in (either.left, either.right)]
        if any(type(test).__name__ != "Function" for test in tests):
            return False
        names = [str(test.function_data[0]) for test in tests]
        if names != ["BooleanFunction.IsNotNan", "BooleanFunction.IsNull"]:
            return False
        tested = [self.operand(test.input[0]).raw for test in tests]
        return all(raw is self.operand(view.truthy).raw for raw in tested)

    def _function(self, view: Any, dtype: Any) -> Nullable:
        data = view.function_data
        first, *more = data if isinstance(data, tuple) else (data,)
        owner, _, name = (str(first) if not isinstance(first, str) else first).rpartition(".")
        if name in OVER_ROWS or owner in ("RollingFunction", "RollingFunctionBy", "EwmFunction", "RangeFunction"):
            name = name if name in OVER_ROWS else f"{owner.partition('Function')[0].lower()}_{name.lower()}"
            raise Untraceable(f"it calls {name}, whose result depends on other rows", IN_FIT)
        if owner in ("StringFunction", "ListFunction") or name in ("replace", "replace_strict", "IsIn", "cut"):
            found = of_strings(self.values, name, [self.operand(each) for each in view.input], more, dtype)
            if found is not None:
                return found
        inputs = [self.operand(each) for each in view.input]
        if owner == "TemporalFunction":
            return part_of_time(self.values, name, inputs, more, dtype)
        if name not in FUNCTIONS:
            raise unknown(name)
        return FUNCTIONS[name](self.values, inputs, more, dtype)

    def _literal(self, value: Any, dtype: Any) -> Nullable:
        if hasattr(value, "rechunk") and not isinstance(value, pl.Series):  # a Series as polars' core holds it
            value = pl.Series._from_pyseries(value)
        if isinstance(value, pl.Series):
            known = self._tagged(value.name)
            if known is not None:
                return known
            cells = value.to_list()
            if dtype.base_type() == pl.List or len(set(cells)) != 1:
                return Nullable(dtype, self.values.number(0.0), cells=tuple(cells))
            value = cells[0]
        if isinstance(value, list | tuple):
            return Nullable(dtype, self.values.number(0.0), cells=tuple(value))
        return self.values.literal(dtype, plain(value, dtype))

    # Operators

    def _binary(self, operator: str, x: Nullable, y: Nullable, dtype: Any) -> Nullable:
        if x.cells is not None or y.cells is not None:
            raise Untraceable("it computes with a value for each row, whose number no request has")
        values = self.values
        if operator in COMPARISONS:
            return values.compared(COMPARISONS[operator], x, y)
        if operator in ("EqValidity", "NotEqValidity"):
            found = values.alike(x, y)
            return found if operator == "EqValidity" else values.negation(found)
        booleans = x.dtype == pl.Boolean() and y.dtype == pl.Boolean()
        if operator in ("And", "Or", "Xor", "LogicalAnd", "LogicalOr") and booleans:
            if operator == "Xor":
                return values.truth(values.make("logical_xor", x.raw, y.raw), x, y)
            return values.conjunction(x, y) if operator.endswith("And") else values.disjunction(x, y)
        if x.dtype.is_temporal() or y.dtype.is_temporal():
            return times(values, x, y).arithmetic(operator, x, y, dtype)
        if x.text or y.text or operator in ("And", "Or", "Xor"):
            raise Untraceable(f"it computes {operator} of {x.dtype} and {y.dtype} columns")
        return arithmetic(values, operator, x, y, dtype)
