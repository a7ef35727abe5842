"""Values of polars: an expression that is NaN where polars has null, and where that is.

polars tells null from NaN. A null makes the result of most functions null, NaN is a number above all others. Integers
wrap around in their own width.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from triton_regressors.exporter.lowering.polars_tables import BOTH, NAN, NULL, PolarsType
from triton_regressors.exporter.tracing.algebra import Algebra
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
from triton_regressors.exporter.tracing.refusal import Untraceable

Bounds = tuple[float, float]
"""The smallest and the largest value that an integer may have."""

EVERYWHERE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Nullable:
    """The values of a column.

    `raw` is undefined where the value is null, unless it is `clean` and NaN there, or `low` and zero there. `null` says
    where that is, None for nowhere. A `finite` value is neither NaN nor infinite. `mixed` columns hold null and NaN in
    the sample, which a request cannot tell. `cells` are the constants of a list, or one for each row.
    """

    dtype: Any
    raw: Expression
    null: Expression | None = None
    finite: bool = True
    filled: bool = False
    clean: bool = True
    low: bool = False
    bounds: Bounds = EVERYWHERE
    mixed: bool = False
    cells: tuple[Any, ...] | None = None

    @property
    def real(self) -> bool:
        """Whether no value is NaN: all are finite, or NaN is `filled`."""
        return self.finite or self.filled

    @property
    def missing(self) -> str:
        """What a missing value is."""
        if self.mixed:
            return BOTH
        return NULL if self.real else BOTH if self.null is not None else NAN

    @property
    def text(self) -> bool:
        """Whether the values are strings."""
        return self.raw.kind.name == TEXT

    @property
    def constant(self) -> Any:
        """The number or the string of a constant; None for any other value."""
        return self.raw.arguments[0] if self.raw.constant and self.null is None else None


def is_text(dtype: Any) -> bool:
    """Return whether a dtype is one of strings."""
    return dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)


def kind_of(dtype: Any, known: PolarsType | None = None) -> Kind:
    """Return the kind of values of a dtype, of a column of which more is `known`."""
    base = dtype.base_type()
    if base == pl.Float32:
        return Kind(SINGLE, polars=known)
    if dtype.is_float() or base == pl.Null:
        return Kind(FLOAT, polars=known)
    if dtype.is_integer():
        return Kind(INTEGER, polars=known)
    if base == pl.Boolean:
        return Kind(BOOLEAN, polars=known)
    if is_text(dtype):
        return Kind(TEXT, "object", polars=known)
    if base == pl.Date:
        return Kind(DATE, "s", polars=known)
    if base == pl.Datetime:
        return Kind(DATE, dtype.time_unit, dtype.time_zone, polars=known)
    if base == pl.Duration:
        return Kind(DURATION, dtype.time_unit, polars=known)
    raise Untraceable(f"it makes values of the type {dtype}")


def bounds_of(dtype: Any) -> Bounds:
    """Return the range of a dtype of integers."""
    if not dtype.is_integer():
        return EVERYWHERE
    bits = int(str(dtype).lstrip("UInt"))
    return (0.0, 2.0**bits - 1) if dtype.is_unsigned_integer() else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)


def unknown(name: str) -> Untraceable:
    """Return the refusal of what no plan computes."""
    if name == "anonymousfunction":
        return Untraceable(
            "it hands values to a function of Python (map_elements, map_batches or a function of NumPy)",
            "Write it in expressions of polars",
        )
    return Untraceable(f"it calls {name}, which no plan computes")


class Values:
    """Computes with values by polars' rules."""

    def __init__(self, algebra: Algebra) -> None:
        self.own = algebra

    # Making values

    def make(self, name: str, *arguments: Expression, kind: Kind | str = BOOLEAN) -> Expression:
        """Return an instruction."""
        return self.own.graph.make(name, *arguments, kind=Kind(kind) if isinstance(kind, str) else kind)

    def number(self, value: float, kind: Kind | str = INTEGER) -> Expression:
        """Return a constant."""
        return self.own.graph.constant(float(value), Kind(kind) if isinstance(kind, str) else kind)

    def column(self, leaf: Expression, known: PolarsType) -> Nullable:
        """Return a column of the traced table."""
        nan, mixed = known.missing == NAN, known.missing == BOTH
        null = None if nan else self.own.missing(leaf)
        return Nullable(known.dtype, leaf, null, finite=not nan, bounds=bounds_of(known.dtype), mixed=mixed)

    def literal(self, dtype: Any, value: float | str | None) -> Nullable:
        """Return a constant; None is null."""
        kind = kind_of(dtype)
        if value is None:
            raw = self.own.graph.constant(math.nan, kind)
            return Nullable(dtype, raw, self.own.graph.constant(1.0, Kind(BOOLEAN)))
        raw = self.own.graph.constant(value if isinstance(value, str) else float(value), kind)
        if isinstance(value, str):
            return Nullable(dtype, raw)
        return Nullable(dtype, raw, finite=math.isfinite(value), bounds=(float(value), float(value)))

    def of_text(self, dtype: Any, text: Expression) -> Nullable:
        """Return what a function of strings answers: NaN where it is null."""
        return Nullable(dtype, text, self.own.missing(text), bounds=bounds_of(dtype))

    def computed(
        self,
        dtype: Any,
        raw: Expression,
        *inputs: Nullable,
        finite: bool | None = None,
        bounds: Bounds | None = None,
        also: Expression | None = None,
    ) -> Nullable:
        """Return a value that NaN goes through, computed from inputs; it is null where one is, or where `also` holds.

        It is finite if the inputs are, unless `finite` says so.
        """
        finite = all(each.finite for each in inputs) if finite is None else finite
        null = self.any_null(inputs)
        if also is not None:
            raw = self.make("where", also, self.number(math.nan, raw.kind), raw, kind=raw.kind)
            null = also if null is None else self.either(null, also)
        elif null is not None and finite:
            null = self.own.missing(raw)
        return Nullable(dtype, raw, null, finite, bounds=bounds or bounds_of(dtype))

    def truth(self, raw: Expression, *inputs: Nullable, low: bool = False) -> Nullable:
        """Return a boolean that is null where an input is; `low` if it is zero there."""
        return Nullable(pl.Boolean(), raw, self.any_null(inputs), clean=False, low=low)

    # Null

    def any_null(self, values: Sequence[Nullable]) -> Expression | None:
        """Return where one of some values is null."""
        nulls = dict.fromkeys(value.null for value in values if value.null is not None)
        return functools.reduce(self.either, nulls) if nulls else None

    def all_null(self, values: Sequence[Nullable]) -> Expression | None:
        """Return where all values are null."""
        nulls = [value.null for value in values if value.null is not None]
        return functools.reduce(self.both, nulls) if len(nulls) == len(values) else None

    def is_null(self, value: Nullable) -> Expression:
        """Return where a value is null."""
        return self.number(0.0, BOOLEAN) if value.null is None else value.null

    def value(self, value: Nullable) -> Expression:
        """Return a value with NaN where it is null."""
        if value.null is None or value.clean:
            return value.raw
        return self.make("where", value.null, self.number(math.nan, value.raw.kind), value.raw, kind=value.raw.kind)

    def true(self, value: Nullable) -> Expression:
        """Return where a boolean is true."""
        if value.null is None or value.low:
            return value.raw
        return self.both(value.raw, self.opposite(value.null))

    def false(self, value: Nullable) -> Expression:
        """Return where a boolean is false."""
        no = self.opposite(value.raw)
        return no if value.null is None else self.both(no, self.opposite(value.null))

    # Booleans

    def either(self, x: Expression, y: Expression) -> Expression:
        """Return whether one of two conditions holds."""
        if x is y:
            return x
        for one, other in ((x, y), (y, x)):
            if one.constant:
                return one if one.arguments[0] else other
        return self.make("logical_or", x, y)

    def both(self, x: Expression, y: Expression) -> Expression:
        """Return whether two conditions hold."""
        if x is y:
            return x
        for one, other in ((x, y), (y, x)):
            if one.constant:
                return other if one.arguments[0] else one
        return self.make("logical_and", x, y)

    def opposite(self, x: Expression) -> Expression:
        """Return whether a condition does not hold."""
        if x.constant:
            return self.number(0.0 if x.arguments[0] else 1.0, BOOLEAN)
        return self.make("logical_not", x)

    def conjunction(self, x: Nullable, y: Nullable) -> Nullable:
        """Return Kleene's and: false beside null is false."""
        yes = self.both(self.true(x), self.true(y))
        return self._kleene(yes, x, y, lambda: self.either(self.false(x), self.false(y)), yes_is_true=True)

    def disjunction(self, x: Nullable, y: Nullable) -> Nullable:
        """Return Kleene's or: true beside null is true."""
        yes = self.either(self.true(x), self.true(y))
        return self._kleene(yes, x, y, lambda: yes, yes_is_true=False)

    def _kleene(
        self, yes: Expression, x: Nullable, y: Nullable, decided: Callable[[], Expression], yes_is_true: bool
    ) -> Nullable:
        null = self.any_null((x, y))
        if null is not None:
            null = self.both(null, self.opposite(decided()))
        return Nullable(pl.Boolean(), yes, null, clean=False, low=True)

    def negation(self, x: Nullable) -> Nullable:
        """Return the opposite of a boolean."""
        return dataclasses.replace(x, raw=self.opposite(x.raw), clean=False, low=False)

    # Comparisons

    def compared(self, name: str, x: Nullable, y: Nullable) -> Nullable:
        """Return a comparison: "equal", "not_equal", "less", "less_equal", "greater" or "greater_equal"."""
        if name == "greater" or name == "greater_equal":
            return self.compared({"greater": "less", "greater_equal": "less_equal"}[name], y, x)
        if x.text or y.text:
            if name not in ("equal", "not_equal"):
                raise Untraceable("it compares strings by their order")
            equal = self.own.binary("equal", self.value(x), self.value(y))
            found = self.truth(equal, x, y)
            return found if name == "equal" else self.negation(found)
        a, b = self.value(x), self.value(y)
        if name == "less_equal" and not (x.real and y.real):  # NaN is above all numbers
            return self.negation(self.compared("less", y, x))
        if name == "not_equal" and not (x.real or y.real):
            return self.negation(self.compared("equal", x, y))
        raw = self.make(name, a, b)
        if name == "equal" and not (x.real or y.real):
            raw = self.either(raw, self.both(self.own.missing(a), self.own.missing(b)))
        if name == "less" and not y.real:
            raw = self.either(raw, self.both(self.own.missing(b), self.opposite(self.own.missing(a))))
        low = name != "not_equal" and x.real and y.real
        return self.truth(raw, x, y, low=low)

    def alike(self, x: Nullable, y: Nullable) -> Nullable:
        """Return whether two values are equal, or both null."""
        found = self.true(self.compared("equal", x, y))
        nulls = self.all_null((x, y))
        return Nullable(pl.Boolean(), found if nulls is None else self.either(found, nulls))

    # Choice

    def chosen(self, condition: Nullable, yes: Nullable, no: Nullable, dtype: Any) -> Nullable:
        """Return one of two values; where the condition is null, it is the second."""
        test = self.true(condition)
        if test.constant:
            return dataclasses.replace(yes if test.arguments[0] else no, dtype=dtype)
        a, b = self.value(yes), self.value(no)
        kind = kind_of(dtype)
        raw = a if a is b else self.make("where", test, a, b, kind=kind)
        finite, real, null = yes.finite and no.finite, yes.real and no.real, None
        if yes.null is not None or no.null is not None:
            nulls = self.is_null(yes), self.is_null(no)
            null = self.own.missing(raw) if real else self.make("where", test, *nulls)
        bounds = min(yes.bounds[0], no.bounds[0]), max(yes.bounds[1], no.bounds[1])
        return Nullable(dtype, raw, null, finite, filled=real, bounds=bounds)

    def filled(self, x: Nullable, filling: Nullable, dtype: Any) -> Nullable:
        """Return a value with another one where it is null."""
        if x.null is None:
            return x
        return self.chosen(Nullable(pl.Boolean(), x.null), filling, x, dtype)

    def nan_filled(self, x: Nullable, filling: Nullable, dtype: Any) -> Nullable:
        """Return a value with another one where it is NaN."""
        if x.real:
            return x
        if filling.null is not None and filling.raw.constant:
            return dataclasses.replace(x, null=self.own.missing(x.raw), filled=True)
        nan = self.both(self.own.missing(self.value(x)), self.opposite(self.is_null(x)))
        found = self.chosen(Nullable(pl.Boolean(), nan), filling, x, dtype)
        if not filling.real:
            return found
        null = None if found.null is None else self.own.missing(found.raw)
        return dataclasses.replace(found, null=null, filled=True)

    # Integers

    def wrapped(self, found: Nullable) -> Nullable:
        """Return an integer as its width keeps it; `bounds` are those of the exact number."""
        low, high = bounds_of(found.dtype)
        if not found.dtype.is_integer() or (low <= found.bounds[0] and found.bounds[1] <= high):
            return found
        if high >= 2.0**62:  # float64 does not hold what such an integer wraps to
            if low == 0 and found.bounds[0] < 0:
                raise Untraceable("it subtracts integers without a sign (UInt64)", "Cast them to Int64 before")
            return dataclasses.replace(found, bounds=(low, high))
        width, raw = self.number(high - low + 1), found.raw
        if low:
            raw = self.make("subtract", raw, self.number(low), kind=INTEGER)
        raw = self.make("remainder", raw, width, kind=INTEGER)
        if low:
            raw = self.make("add", raw, self.number(low), kind=INTEGER)
        return dataclasses.replace(found, raw=raw, bounds=(low, high))
