"""The algebra of expressions: which instruction an operator or a ufunc is, and the kind of its result.

The rules of numbers are numpy's: integers and booleans become float64 in divisions and functions, float32 stays float32
beside Python numbers, and each float32 result is rounded. Whole numbers are held in float64, exactly below 2⁵³.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.composed import COMPOSED
from triton_regressors.exporter.tracing.expressions import (
    BOOLEAN,
    DATE,
    DURATION,
    FLOAT,
    INTEGER,
    SINGLE,
    TEXT,
    Expression,
    Graph,
    Kind,
    common,
)
from triton_regressors.exporter.tracing.refusal import Untraceable
from triton_regressors.exporter.tracing.text_methods import Step
from triton_regressors.exporter.tracing.texts import MadeOf, Texts, kind_of
from triton_regressors.kernels.numerics.functions import FUNCTIONS

OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
"""Python's operators that may be reflected, and their instructions."""

COMPARING = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
"""Python's comparisons and their instructions."""

COMPARISONS = frozenset(COMPARING.values())
LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor"})
BITWISE = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
TESTS = frozenset({"isnan", "isfinite", "isinf", "signbit"})
KEEPING = frozenset(
    {"absolute", "negative", "sign", "square", "ceil", "floor", "trunc", "rint", "positive", "conjugate"}
)
"""Functions of an integer that are integers."""
ARITHMETIC = frozenset(
    {"add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "power"}
)
"""Functions of two integers that are integers."""
FLOATING = frozenset({"divide", "arctan2", "hypot", "copysign"})
SAME = {
    "abs": "absolute",
    "fabs": "absolute",
    "true_divide": "divide",
    "mod": "remainder",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "float_power": "power",
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "pow": "power",
    "invert": "bitwise_not",
    "bitwise_invert": "bitwise_not",
}
"""Other names of instructions."""
POWERS = {2.0: "square", 0.5: "sqrt", 1.0: "positive"}
"""Powers that are functions of their own."""

IN_ORDER = 7
"""The most terms of a sum that are added one after the other, as numpy adds them."""

Operand = Any
"""An expression, or a constant of Python, numpy or pandas."""


class Algebra:
    """Makes the expressions of one trace."""

    def __init__(
        self,
        strings: Mapping[int, Sequence[str]],
        digits: Iterable[str] = (),
        columns: MadeOf | None = None,
        keys: Sequence[Any] = (),
    ) -> None:
        """Take the known strings of each column of strings, and what is known of what they are made of.

        `digits` are whole numbers whose texts are asked for, and `keys` those of dictionaries and sets that the traced
        code may look a value up in.
        """
        self.graph, self.keys = Graph(), keys
        self.texts = Texts(self.graph, strings, digits, columns)

    # Constants

    def expression(self, value: Operand, beside: Kind | None = None) -> Expression:
        """Return a value as an expression; a constant takes the kind of what stands `beside` it where it can."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if value is None or value is pd.NA or value is pd.NaT:
            return self.graph.constant(math.nan, beside or Kind(FLOAT))
        if isinstance(value, str):
            if beside is not None and beside.name == DATE:
                return self._date(pd.Timestamp(value), beside)
            return self.graph.constant(str(value), Kind(TEXT))
        if isinstance(value, bool | np.bool_):
            return self.graph.constant(float(value), Kind(BOOLEAN))
        if isinstance(value, np.timedelta64 | datetime.timedelta):
            delta = pd.Timedelta(value)
            return self.graph.constant(_microseconds(delta), Kind(DURATION, getattr(delta, "unit", "ns")))
        if isinstance(value, np.datetime64 | datetime.date):
            return self._date(pd.Timestamp(value), beside)
        if isinstance(value, np.generic):
            if value.dtype.kind in "iu":
                return self.graph.constant(_whole(int(value)), Kind(INTEGER))
            if value.dtype == np.float32:
                return self.graph.constant(float(value), Kind(SINGLE))
            if value.dtype.kind == "f":
                return self.graph.constant(float(value), Kind(FLOAT))
        if isinstance(value, int):  # Python's numbers take the type of what stands beside them
            float_beside = beside is not None and beside.name in (FLOAT, SINGLE)
            return self.graph.constant(_whole(value), Kind(beside.name if beside and float_beside else INTEGER))
        if isinstance(value, float):
            single_beside = beside is not None and beside.name == SINGLE
            return self.graph.constant(value, Kind(SINGLE if single_beside else FLOAT))
        raise Untraceable(f"it computes with a value of type {type(value).__name__}")

    def _date(self, stamp: pd.Timestamp, beside: Kind | None) -> Expression:
        zone = None if stamp.tzinfo is None else str(stamp.tzinfo)
        if beside is not None and beside.name == DATE and (zone is None) != (beside.zone is None):
            raise Untraceable("it compares a date that has a time zone with one that has none")
        unit = getattr(stamp, "unit", "ns")
        return self.graph.constant(microseconds_of(stamp), Kind(DATE, unit, beside.zone if beside else zone))

    # Functions of one value

    def unary(self, name: str, value: Operand) -> Expression:
        """Return a ufunc of one value."""
        name = SAME.get(name, name)
        x = self.expression(value)
        kind = x.kind.name
        if name in ("positive", "conjugate"):
            return x
        if name in ("isnan", "isnat"):
            return self.missing(x)
        if name == "bitwise_not":
            if kind == BOOLEAN:
                return self._make("logical_not", x, kind=BOOLEAN)
            if kind == INTEGER:
                return self.binary("subtract", -1, x)
            raise Untraceable(f"it applies ~ to a {kind} column")
        if name == "logical_not":
            return self._make("logical_not", self.truth(x), kind=BOOLEAN)
        if kind == DURATION and name in ("negative", "absolute", "sign"):
            return self.graph.make(name, x, kind=Kind(FLOAT) if name == "sign" else x.kind)
        self._check_number(x, name)
        if name in TESTS:
            return self._make(name, x, kind=BOOLEAN)
        if name not in FUNCTIONS:
            raise Untraceable(f"it calls {name}, which no kernel computes")
        if name in KEEPING and kind in (INTEGER, BOOLEAN):
            if name in ("ceil", "floor", "trunc", "rint"):
                return x
            return self._make(name, x, kind=INTEGER)
        return self._rounded(name, x)

    def missing(self, value: Operand) -> Expression:
        """Return whether a value of any kind is missing."""
        x = self.expression(value)
        return self._make("isnan", x, kind=BOOLEAN)

    def truth(self, value: Operand) -> Expression:
        """Return a number as a boolean: whether it is not zero."""
        x = self.expression(value)
        if x.kind.name == BOOLEAN:
            return x
        self._check_number(x, "a logical operation")
        return self._make("not_equal", x, self.expression(0, x.kind), kind=BOOLEAN)

    def cast(self, value: Operand, kind: str) -> Expression:
        """Return a number as another kind, as numpy's `astype` converts it."""
        x = self.expression(value)
        if x.kind.name == kind:
            return x
        if x.kind.name in (DATE, DURATION) and kind == INTEGER:
            raise Untraceable("it casts dates to integers")
        self._check_number(x, f"a cast to {kind}")
        if kind == BOOLEAN:
            return self.truth(x)
        if kind == SINGLE:
            return self._make("float32", x, kind=SINGLE)
        if kind == INTEGER and x.kind.name in (FLOAT, SINGLE):
            return self._make("trunc", x, kind=INTEGER)
        if x.constant:
            return self.graph.constant(x.arguments[0], Kind(kind))
        return self._make("identity", x, kind=kind)

    # Functions of two values

    def binary(self, name: str, left: Operand, right: Operand) -> Expression:
        """Return a ufunc of two values."""
        name = SAME.get(name, name)
        left_kind, right_kind = (each.kind if isinstance(each, Expression) else None for each in (left, right))
        x, y = self.expression(left, right_kind), self.expression(right, left_kind)
        kinds = {x.kind.name, y.kind.name}
        if kinds & {DATE, DURATION}:
            return self._times(name, x, y)
        if TEXT in kinds:
            return self._texts(name, x, y)
        if name in COMPARISONS:
            return self._make(name, x, y, kind=BOOLEAN)
        if name in LOGICAL:
            return self._make(name, self.truth(x), self.truth(y), kind=BOOLEAN)
        if name in BITWISE:
            if kinds != {BOOLEAN}:
                raise Untraceable("it applies a bitwise operator to numbers that are no booleans")
            return self._make(BITWISE[name], x, y, kind=BOOLEAN)
        if kinds == {BOOLEAN} and name in ("add", "maximum", "fmax", "multiply", "minimum", "fmin"):
            return self._make("logical_or" if name in ("add", "maximum", "fmax") else "logical_and", x, y, kind=BOOLEAN)
        if name == "power" and y.constant and y.arguments[0] in POWERS:  # numpy computes these powers so too
            return self.unary(POWERS[y.arguments[0]], x)
        if name in COMPOSED:
            found: Expression = COMPOSED[name](self, x, y)
            return found
        if name not in ARITHMETIC | FLOATING:
            raise Untraceable(f"it calls {name}, which no kernel computes")
        if name in ARITHMETIC and kinds <= {INTEGER, BOOLEAN}:
            return self._make(name, x, y, kind=INTEGER)
        return self._rounded(name, x, y)

    def where(self, condition: Operand, yes: Operand, no: Operand) -> Expression:
        """Return `yes` where the condition holds, else `no`."""
        yes_kind, no_kind = (each.kind if isinstance(each, Expression) else None for each in (yes, no))
        a, b = self.expression(yes, no_kind), self.expression(no, yes_kind)
        test = self.truth(condition)
        if a is b:
            return a
        if test.constant:
            return a if test.arguments[0] else b
        missing = [
            each for each in (a, b) if each.constant and each.kind.number and each.arguments[0] != each.arguments[0]
        ]
        if len(missing) == 1:  # a missing value of whatever kind the other is
            other = b if missing[0] is a else a
            kind = Kind(FLOAT) if other.kind.name in (INTEGER, BOOLEAN) else other.kind
        else:
            kind = common([a.kind, b.kind])
        return self.graph.make("where", test, a, b, kind=kind)

    def clip(self, value: Operand, low: Operand | None, high: Operand | None) -> Expression:
        """Return a value clipped as `numpy.clip` does: minimum(maximum(value, low), high)."""
        x = self.expression(value)
        if low is not None:
            x = self.binary("maximum", x, low)
        return x if high is None else self.binary("minimum", x, high)

    def total(self, values: list[Operand]) -> Expression:
        """Return the sum of several values."""
        numbers = [self.number(value) for value in values]
        if len(numbers) <= IN_ORDER:
            return self.folded("add", numbers)
        return self._dot(numbers, np.ones(len(numbers)))

    def number(self, value: Operand) -> Expression:
        """Return a value as a number: a boolean as an integer."""
        x = self.expression(value)
        return self.cast(x, INTEGER) if x.kind.name == BOOLEAN else x

    def folded(self, name: str, values: list[Operand]) -> Expression:
        """Return an associative ufunc of several values, from the first to the last."""
        found = self.expression(values[0])
        for value in values[1:]:
            found = self.binary(name, found, value)
        return found

    def weighted(self, values: list[Operand], weights: np.ndarray) -> Expression:
        """Return `Σ weights[i] · values[i]`."""
        numbers = [self.number(value) for value in values]
        if len(numbers) <= IN_ORDER:
            products = [self.binary("multiply", x, np.float64(w)) for x, w in zip(numbers, weights, strict=True)]
            return self.folded("add", products)
        return self._dot(numbers, weights)

    def _dot(self, numbers: list[Expression], weights: np.ndarray) -> Expression:
        for number in numbers:
            self._check_number(number, "a sum")
        whole = all(number.kind.name == INTEGER for number in numbers) and (weights == 1).all()
        return self.graph.make("dot", *numbers, weights, kind=Kind(INTEGER if whole else FLOAT))

    # Dates and strings

    def _times(self, name: str, x: Expression, y: Expression) -> Expression:
        """Return an operation on dates and durations."""
        kinds, unit = (x.kind.name, y.kind.name), finer(x.kind, y.kind)
        duration = Kind(DURATION, unit)
        if name in COMPARISONS and kinds in ((DATE, DATE), (DURATION, DURATION)):
            self._check_zones(x, y)
            return self._make(name, x, y, kind=BOOLEAN)
        if name == "subtract" and kinds == (DATE, DATE):
            self._check_zones(x, y)
            return self.graph.make("subtract", x, y, kind=duration)
        if name in ("add", "subtract") and kinds == (DATE, DURATION):
            return self.graph.make(name, x, y, kind=x.kind)
        if name == "add" and kinds == (DURATION, DATE):
            return self.graph.make("add", y, x, kind=y.kind)
        if name in ("add", "subtract", "minimum", "maximum", "fmin", "fmax") and kinds == (DURATION, DURATION):
            return self.graph.make(name, x, y, kind=duration)
        if name in ("minimum", "maximum", "fmin", "fmax") and kinds == (DATE, DATE):
            self._check_zones(x, y)
            return self.graph.make(name, x, y, kind=x.kind)
        if name in ("divide", "floor_divide") and kinds == (DURATION, DURATION):
            if unit == "ns" and name == "divide":  # pandas divides nanoseconds, which float64 rounds
                x, y = (self._make("multiply", each, self.expression(1000.0), kind=FLOAT) for each in (x, y))
            return self._make(name, x, y, kind=FLOAT)
        if name in ("multiply",) and DURATION in kinds and (x.kind.number or y.kind.number):
            return self.graph.make(name, x, y, kind=duration)
        if name == "divide" and kinds[0] == DURATION and y.kind.number:
            return self.graph.make("trunc", self._make(name, x, y, kind=FLOAT), kind=duration)
        raise Untraceable(f"it computes {name} of {' and '.join(kinds)} values")

    def _check_zones(self, x: Expression, y: Expression) -> None:
        if (x.kind.zone is None) != (y.kind.zone is None):
            raise Untraceable("it compares a date that has a time zone with one that has none")

    def _texts(self, name: str, x: Expression, y: Expression) -> Expression:
        """Return a comparison of strings, or two strings put together."""
        if name in ("equal", "not_equal"):
            text, other = (x, y) if not x.constant else (y, x)
            if text.kind.assumed:
                raise misused(text, "strings")
            if other.constant and not other.kind.number:
                wanted = other.arguments[0]
                equal = self.text_call(
                    text, "equal", lambda series: series == wanted, wanted, kind=BOOLEAN, safe=True, mentions=[wanted]
                )
                return equal if name == "equal" else self._make("logical_not", equal, kind=BOOLEAN)
        if name == "add" and x.kind.name == y.kind.name == TEXT:
            if x.constant:
                prepended = x.arguments[0]
                return self.text_call(y, "prepend", _Prepend(prepended), prepended, step=("prepend", (prepended,)))
            if y.constant:
                appended = y.arguments[0]
                return self.text_call(x, "append", _Append(appended), appended, step=("append", (appended,)))
            return self.texts.joined(x, y)
        raise Untraceable(f"it computes {name} of strings")

    def text_call(
        self,
        value: Expression,
        name: str,
        call: Callable[[Any], Any],
        *key: Any,
        kind: str | None = TEXT,
        safe: bool = False,
        mentions: Iterable[Any] = (),
        step: Step | None = None,
    ) -> Expression:
        """Return a function of strings, `call`, which maps a Series of strings to a Series.

        `name` and `key` tell one call from another. A `safe` call has an answer for strings that nobody knows yet,
        which is that for `texts.ANY`; `mentions` are all strings that it has another answer for, or returns. Without a
        `kind` the answers for the known strings decide it.
        `step` does the same in an entry.
        """
        if value.kind.name != TEXT:
            raise misused(value, "strings")
        self.texts.mention(value, mentions)
        if kind is None:
            unknown = self.graph.make("text", value, name, key, call, safe, step, kind=Kind(TEXT))
            kind = kind_of(self.texts.results(unknown))
        unit = "object" if self.texts.lists(value) else value.kind.unit  # what pandas makes of lists
        return self.graph.make("text", value, name, key, call, safe, step, kind=Kind(kind, unit))

    # Rules

    def _make(self, operation: str, *arguments: Any, kind: str) -> Expression:
        return self.graph.make(operation, *arguments, kind=Kind(kind))

    def _rounded(self, name: str, *inputs: Expression) -> Expression:
        """Return a function in floats; in float32 if numpy computes it so, with the result rounded."""
        names = {each.kind.name for each in inputs}
        single = SINGLE in names and names <= {SINGLE, BOOLEAN}
        found = self._make(name, *inputs, kind=SINGLE if single else FLOAT)
        exact = name in ("negative", "absolute", "sign", "ceil", "floor", "trunc", "rint", "maximum", "minimum")
        return found if not single or exact else self._make("float32", found, kind=SINGLE)

    def _check_number(self, x: Expression, use: str) -> None:
        if not x.kind.number:
            raise Untraceable(f"it applies {use} to a {x.kind.name} column")


def misused(value: Expression, use: str) -> Untraceable:
    """Return the refusal of a column that is used as strings or dates and is not known to hold them."""
    if value.kind.assumed:
        return Untraceable(
            f"it uses a column as {use}, and nothing tells that it holds them",
            "Give rows of your data with their types: a DataFrame as sample, or --sample with a .parquet file",
        )
    return Untraceable(f"it uses a {value.kind.name} column as {use}")


class _Append:
    """Appends a string to each of a Series."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, series: Any) -> Any:
        return series + self.text


class _Prepend(_Append):
    """Puts a string in front of each of a Series."""

    def __call__(self, series: Any) -> Any:
        return self.text + series


def microseconds_of(stamp: Any) -> float:
    """Return a timestamp as microseconds since 1970 in UTC, rounded down; NaN for NaT."""
    if stamp is pd.NaT:
        return math.nan
    return float(stamp.as_unit("ns").value // 1000)


UNITS = ("s", "ms", "us", "ns")
"""The units of dates and durations, each finer than the one before."""


def finer(*kinds: Kind) -> str:
    """Return the finest unit of some dates and durations."""
    return max((kind.unit or "s" for kind in kinds if kind.name in (DATE, DURATION)), key=UNITS.index)


def _microseconds(delta: Any) -> float:
    return math.nan if delta is pd.NaT else float(delta.as_unit("ns").value / 1000)


def _whole(value: int) -> float:
    if abs(value) > 2**53:
        raise Untraceable(f"it computes with the integer {value}, which float64 rounds")
    return float(value)
