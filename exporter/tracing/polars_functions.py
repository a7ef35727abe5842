"""Functions of polars that answer numbers and booleans."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from triton_regressors.exporter.tracing.expressions import BOOLEAN, FLOAT, INTEGER, Expression, Kind
from triton_regressors.exporter.tracing.polars_numbers import arithmetic, as_number, cast, plain
from triton_regressors.exporter.tracing.polars_values import Nullable, Values, is_text, kind_of, unknown
from triton_regressors.exporter.tracing.refusal import Untraceable

Function = Callable[[Values, Sequence[Nullable], Sequence[Any], Any], Nullable]
"""Takes the values, the inputs, what the function knows beside them, and the dtype of the answer."""


def _elementwise(name: str, finite: bool | None = False) -> Function:
    """Return a function of one number; `finite` is None if it is finite for finite numbers."""

    def function(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
        (x,) = inputs
        if x.dtype.is_temporal():
            raw = values.make(name, values.value(x), kind=kind_of(dtype))
            return values.computed(dtype, raw, x)
        return values.computed(dtype, values.own.unary(name, as_number(values, x, dtype)), x, finite=finite)

    return function


def _signed(name: str) -> Function:
    """Return a function of one number that keeps its type: "absolute" or "negative"."""

    def function(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
        found, (low, high) = _elementwise(name, None)(values, inputs, more, dtype), inputs[0].bounds
        bounds = (-high, -low) if name == "negative" else (0.0, max(abs(low), abs(high)))
        return values.wrapped(dataclasses.replace(found, bounds=bounds)) if dtype.is_integer() else found

    return function


def _whole(name: str) -> Function:
    """Return a function that rounds to a whole number: an integer is one."""

    def function(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
        return inputs[0] if dtype.is_integer() else _elementwise(name, None)(values, inputs, more, dtype)

    return function


def _round(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    (x,), own = inputs, values.own
    decimals, mode = int(more[0]), str(more[1]) if len(more) > 1 else "half_away_from_zero"
    if dtype.is_integer():
        return x
    raw, scale = as_number(values, x, dtype), values.number(10.0**decimals, kind_of(dtype))
    scaled = own.binary("multiply", raw, scale) if decimals else raw
    if mode == "half_to_even":
        whole = own.unary("rint", scaled)
    elif mode == "half_away_from_zero":
        size = own.unary("absolute", scaled)
        down = own.unary("floor", size)
        up = values.make("greater_equal", own.binary("subtract", size, down), values.number(0.5, FLOAT))
        size = own.binary("add", down, own.cast(up, kind_of(dtype).name))
        whole = values.make("copysign", size, scaled, kind=kind_of(dtype))
    else:
        raise Untraceable(f"it rounds by {mode}")
    return values.computed(dtype, own.binary("divide", whole, scale) if decimals else whole, x)


def _log(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    x, own = inputs[0], values.own
    base = inputs[1].constant if len(inputs) > 1 else more[0]
    raw = own.unary("log", as_number(values, x, dtype))
    if base is None:
        raise Untraceable("it takes logarithms to a base that is a column")
    if base != math.e:
        raw = own.binary("divide", raw, values.number(math.log(base), kind_of(dtype)))
    return values.computed(dtype, raw, x, finite=False)


def _pow(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    x, y = inputs
    exponent, own = y.constant, values.own
    raw = as_number(values, x, dtype)
    if dtype.is_integer():
        if exponent is None or exponent < 0:
            raise Untraceable("it raises integers to powers that are no constants", "Cast them to Float64 before")
        low, high = x.bounds
        ends = [low**exponent, high**exponent] if math.isfinite(low) and abs(low) < 2**31 else [-math.inf, math.inf]
        bounds = (min(0.0, *ends), max(ends))
        return values.wrapped(values.computed(dtype, own.binary("power", raw, int(exponent)), x, bounds=bounds))
    if exponent == 3:
        cube = own.binary("multiply", own.binary("multiply", raw, raw), raw)
        return values.computed(dtype, cube, x)
    power = raw if exponent is None else values.number(exponent, kind_of(dtype))
    if exponent is None:
        power = as_number(values, y, dtype)
    found = values.computed(dtype, own.binary("power", raw, power), x, y, finite=exponent in (1.0, 2.0) and x.finite)
    if x.null is None and y.null is None:
        return found
    null = values.any_null((x, y))  # 1 to the power of NaN is 1
    assert null is not None
    missing = values.make("where", null, values.number(math.nan, found.raw.kind), found.raw, kind=found.raw.kind)
    return dataclasses.replace(found, raw=missing, null=null)


def _arctan2(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    y, x = (as_number(values, each, dtype) for each in inputs)
    return values.computed(dtype, values.own.binary("arctan2", y, x), *inputs)


def _clip(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    x, *limits = inputs
    names = [name for name, given in zip(("less", "greater"), more, strict=True) if given]
    raw, finite, real, (least, most) = values.value(x), x.finite, x.real, x.bounds
    for name, limit in zip(names, limits, strict=True):
        if x.dtype.is_temporal() or dtype.is_temporal():
            end = values.value(limit)
        else:
            end = values.value(cast(values, limit, dtype))
        raw = values.make("where", values.make(name, raw, end), end, raw, kind=raw.kind)
        finite, real = finite and limit.finite, real and limit.real
        low, high = limit.bounds
        least, most = (max(least, low), max(most, low)) if name == "less" else (min(least, high), min(most, high))
    null = x.null if x.null is None or not real else values.own.missing(raw)
    return Nullable(dtype, raw, null, finite, filled=real, bounds=(least, most))


# Null and NaN


def _fill_null(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    x, filling = inputs
    return values.filled(x, filling, dtype)


def _coalesce(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    found = inputs[-1]
    for each in reversed(inputs[:-1]):
        found = values.filled(each, found, dtype)
    return found


def _is_null(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    return Nullable(dtype, values.is_null(inputs[0]))


def _is_not_null(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    return Nullable(dtype, values.opposite(values.is_null(inputs[0])))


def _number_test(name: str, of_finite: bool, opposite: bool = False) -> Function:
    """Return a test of a number: the answer for a finite one is known."""

    def function(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
        (x,) = inputs
        if x.finite or (x.real and name == "isnan"):
            return values.truth(values.number(float(of_finite), BOOLEAN), x)
        found = values.make(name, values.value(x))
        return values.truth(values.opposite(found) if opposite else found, x)

    return function


def _not(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    if dtype != pl.Boolean():
        raise Untraceable("it applies ~ to integers")
    return values.negation(inputs[0])


def _is_between(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    x, low, high = inputs
    closed = str(more[0]).lower()
    above = values.compared("greater_equal" if closed in ("both", "left") else "greater", x, low)
    below = values.compared("less_equal" if closed in ("both", "right") else "less", x, high)
    return values.conjunction(above, below)


# Several columns


def _extreme(name: str) -> Function:
    def function(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
        found = functools.reduce(
            lambda a, b: values.make(name, a, b, kind=kind_of(dtype)), [values.value(each) for each in inputs]
        )
        finite, real = all(each.finite for each in inputs), all(each.real for each in inputs)
        return Nullable(dtype, found, values.all_null(inputs), finite, filled=real)

    return function


def _sum(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    skips = not more or bool(more[0])
    parts = [cast(values, each, dtype) for each in inputs]
    if skips:
        parts = [values.filled(each, values.literal(dtype, 0.0), dtype) for each in parts]
    return _halved(values, parts, dtype)


def _halved(values: Values, parts: Sequence[Nullable], dtype: Any) -> Nullable:
    """Return a sum as polars adds it: the sum of the first half plus that of the second."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    halves = _halved(values, parts[:middle], dtype), _halved(values, parts[middle:], dtype)
    return arithmetic(values, "Plus", *halves, dtype)


def _mean(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    kinds = {each.dtype for each in inputs}
    if len(kinds) > 1:
        inputs = [cast(values, each, dtype) for each in inputs]
    inner = pl.UInt32() if inputs[0].dtype == pl.Boolean() else inputs[0].dtype
    total = _sum(values, inputs, more, inner)
    if more and not more[0] and total.null is not None:
        count = values.number(len(inputs), FLOAT)
    else:
        held = [values.own.cast(values.opposite(values.is_null(each)), INTEGER) for each in inputs]
        count = functools.reduce(lambda x, y: values.make("add", x, y, kind=INTEGER), held)
    raw = values.own.binary("divide", as_number(values, total, dtype), values.own.cast(count, kind_of(dtype).name))
    null, finite = values.all_null(inputs), total.finite
    null = total.null if null is None else null
    if null is not None and finite:
        null = values.own.missing(raw)
    return Nullable(dtype, raw, null, finite)


# Tables


def _is_in(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    x, wanted = inputs
    cells = _cells(wanted)
    nulls, known = any(cell is None for cell in cells), [cell for cell in cells if cell is not None]
    inner = getattr(wanted.dtype, "inner", None) or wanted.dtype
    tests = [values.compared("equal", x, values.literal(inner, plain(cell, inner))) for cell in known]
    raw = values.number(0.0, BOOLEAN)
    for test in tests:
        raw = values.either(raw, test.raw)
    if more and more[0]:  # null equals null
        found = values.both(raw, values.opposite(values.is_null(x)))
        return Nullable(dtype, values.either(found, values.is_null(x)) if nulls else found)
    return values.truth(raw, x, low=all(test.low for test in tests))


def _cells(value: Nullable) -> list[Any]:
    if value.cells is None:
        raise Untraceable("it looks values up in a column")
    return list(value.cells)


def _replace(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    return _replaced(values, inputs[0], inputs[1:3], inputs[0], dtype)


def _replace_strict(values: Values, inputs: Sequence[Nullable], _: Sequence[Any], dtype: Any) -> Nullable:
    x, old, new, *default = inputs
    return _replaced(values, x, (old, new), default[0] if default else values.literal(dtype, None), dtype)


def _replaced(values: Values, x: Nullable, lists: Sequence[Nullable], base: Nullable, dtype: Any) -> Nullable:
    """Return what a table has for a number, and the value of `base` for any other."""
    old, new = lists
    inner = getattr(old.dtype, "inner", None) or old.dtype
    keys, cells = [plain(cell, inner) for cell in _cells(old)], _cells(new)
    news = cells * len(keys) if len(cells) == 1 else cells
    if any(isinstance(key, float) and key != key for key in keys):
        raise Untraceable("it replaces NaN by a table", "Use fill_nan")
    if is_text(dtype):
        return _named(values, x, keys, news, base, dtype)
    numbers = [plain(cell, dtype) for cell in news]
    entries = {key: math.nan if n is None else float(n) for key, n in zip(keys, numbers, strict=True)}
    known = [entry for entry in entries.values() if entry == entry]
    least, most = min(known, default=0.0), max(known, default=0.0)
    nulls, constant = base.null is not None and base.raw.constant, base.constant
    other = math.nan if nulls or constant is None else float(constant)
    found = values.own.cast(_looked_up(values, x, entries, other), kind_of(dtype).name)
    table = Nullable(dtype, found, values.own.missing(found), bounds=(np.fmin(least, other), np.fmax(most, other)))
    if nulls or constant is not None:
        never = constant is not None and len(known) == len(entries)
        return dataclasses.replace(table, null=None) if never else table
    if x.null is None and len(known) == len(entries):
        table = dataclasses.replace(table, null=None)
    within = values.make(
        "not_equal", _looked_up(values, x, dict.fromkeys(entries, 1.0), 0.0), values.number(0.0, FLOAT)
    )
    return values.chosen(Nullable(pl.Boolean(), within), table, cast(values, base, dtype), dtype)


def _looked_up(values: Values, x: Nullable, entries: Mapping[Any, float], other: float) -> Expression:
    """Return the entry of a number in a table; that of None for null, and another one for any other number."""
    known = {float(key): entry for key, entry in entries.items() if key is not None}
    keys = np.array(sorted(known), dtype=np.float64)
    missing = entries.get(None, other)
    table = np.array([*(known[key] for key in keys.tolist()), missing, other], dtype=np.float64)
    return values.own.graph.make("lookup", values.value(x), keys, table, kind=Kind(FLOAT))


def _named(values: Values, x: Nullable, keys: list[Any], news: list[Any], base: Nullable, dtype: Any) -> Nullable:
    """Return the string that a table has for a number."""
    names = [new for new in news if new is not None]
    if base.constant is not None:
        names.append(str(base.constant))
    elif base.null is None or not base.raw.constant:
        raise Untraceable("it replaces numbers by strings, and others by a column")
    names = list(dict.fromkeys(names))
    other = math.nan if base.constant is None else float(names.index(str(base.constant)))
    entries = {key: math.nan if new is None else float(names.index(new)) for key, new in zip(keys, news, strict=True)}
    number = _looked_up(values, x, entries, other)
    return values.of_text(dtype, values.own.graph.make("text_of", number, tuple(names), kind=kind_of(dtype)))


def _cut(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    """Return the bin of a number, null for NaN."""
    (x,) = inputs
    breaks, labels, left_closed, with_breaks = more
    if labels is None:
        labels = list(getattr(dtype, "categories", ()))
    if with_breaks or not len(labels):
        raise unknown("cut without labels, or with include_breaks")
    edges = np.asarray(list(breaks), dtype=np.float64)
    number = values.own.cast(values.value(x), FLOAT)
    place = values.own.graph.make("places", number, edges, not left_closed, kind=Kind(INTEGER))
    place = values.make("where", values.own.missing(number), values.number(math.nan, FLOAT), place, kind=FLOAT)
    text = values.own.graph.make("text_of", place, tuple(map(str, labels)), kind=kind_of(dtype))
    return values.of_text(dtype, text)


FUNCTIONS: dict[str, Function] = {
    "abs": _signed("absolute"),
    "negate": _signed("negative"),
    "sign": _elementwise("sign", None),
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "round": _round,
    "log": _log,
    "pow": _pow,
    "atan2": _arctan2,
    "clip": _clip,
    "degrees": _elementwise("degrees", None),
    "radians": _elementwise("radians", None),
    **{name: _elementwise(name) for name in ("sqrt", "cbrt", "exp", "log1p", "sin", "cos", "tan", "sinh", "cosh")},
    **{name: _elementwise(name) for name in ("tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")},
    "fill_null": _fill_null,
    "coalesce": _coalesce,
    "IsNull": _is_null,
    "IsNotNull": _is_not_null,
    "IsNan": _number_test("isnan", False),
    "IsNotNan": _number_test("isnan", True, opposite=True),
    "IsFinite": _number_test("isfinite", True),
    "IsInfinite": _number_test("isinf", False),
    "Not": _not,
    "IsBetween": _is_between,
    "max_horizontal": _extreme("fmax"),
    "min_horizontal": _extreme("fmin"),
    "sum_horizontal": _sum,
    "mean_horizontal": _mean,
    "IsIn": _is_in,
    "replace": _replace,
    "replace_strict": _replace_strict,
    "cut": _cut,
}
"""The functions by their names in plans of polars."""
