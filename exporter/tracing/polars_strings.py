"""Functions of strings: polars itself is asked about every string that is known of a column."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import polars as pl

from triton_regressors.exporter.tracing.expressions import TEXT
from triton_regressors.exporter.tracing.polars_values import Nullable, Values, is_text, kind_of, unknown
from triton_regressors.exporter.tracing.refusal import Untraceable

Call = Callable[..., Any]
"""Takes the expression of a column of strings, what the function knows, and its constants; returns an expression."""

CALLS: dict[str, Call] = {
    "Lowercase": lambda c, _: c.str.to_lowercase(),
    "Uppercase": lambda c, _: c.str.to_uppercase(),
    "Titlecase": lambda c, _: c.str.to_titlecase(),
    "StripChars": lambda c, _, chars: c.str.strip_chars(chars),
    "StripCharsStart": lambda c, _, chars: c.str.strip_chars_start(chars),
    "StripCharsEnd": lambda c, _, chars: c.str.strip_chars_end(chars),
    "StripPrefix": lambda c, _, prefix: c.str.strip_prefix(prefix),
    "StripSuffix": lambda c, _, suffix: c.str.strip_suffix(suffix),
    "LenChars": lambda c, _: c.str.len_chars(),
    "LenBytes": lambda c, _: c.str.len_bytes(),
    "StartsWith": lambda c, _, prefix: c.str.starts_with(prefix),
    "EndsWith": lambda c, _, suffix: c.str.ends_with(suffix),
    "Contains": lambda c, more, pattern: c.str.contains(pattern, literal=more[0], strict=more[1]),
    "ContainsAny": lambda c, more, words: c.str.contains_any(words, ascii_case_insensitive=more[0]),
    "CountMatches": lambda c, more, pattern: c.str.count_matches(pattern, literal=more[0]),
    "Find": lambda c, more, pattern: c.str.find(pattern, literal=more[0], strict=more[1]),
    "Replace": lambda c, more, pattern, new: (
        c.str.replace_all(pattern, new, literal=more[1])
        if more[0] == -1
        else c.str.replace(pattern, new, literal=more[1], n=more[0])
    ),
    "Slice": lambda c, _, first, length: c.str.slice(first, length),
    "Head": lambda c, _, count: c.str.head(count),
    "Tail": lambda c, _, count: c.str.tail(count),
    "ZFill": lambda c, _, length: c.str.zfill(length),
    "PadStart": lambda c, more, length: c.str.pad_start(length, more[0]),
    "PadEnd": lambda c, more, length: c.str.pad_end(length, more[0]),
    "Extract": lambda c, more, pattern: c.str.extract(pattern, more[0]),
    "Reverse": lambda c, _: c.str.reverse(),
    "ToInteger": lambda c, more, base: c.str.to_integer(base=base, strict=False),
    "Split": lambda c, more, by: c.str.split(by, inclusive=more[0]),
    "Get": lambda c, more, place: c.list.get(place, null_on_oob=more[0]),
    "Length": lambda c, _: c.list.len(),
}
"""Functions of strings, and of lists of their parts, by their names in plans of polars."""

SAFE = frozenset({"replace", "replace_strict", "IsIn"})
"""Functions with an answer for every string."""


class InPolars:
    """A function of a Series of pandas that polars computes."""

    def __init__(self, call: Callable[[Any], Any], dtype: Any) -> None:
        self._call, self._dtype = call, dtype

    def __call__(self, series: Any) -> Any:
        """Return the answers for strings, or lists of them; None for null."""
        given = [cell if isinstance(cell, str | list) else None for cell in series.tolist()]
        table = pl.Series("text", given, dtype=self._dtype).to_frame()
        return pd.Series(table.select(self._call(pl.col("text")).alias("text"))["text"].to_list(), dtype=object)


def of_strings(
    values: Values, name: str, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any
) -> Nullable | None:
    """Return a function of strings by its name in plans of polars; None if its inputs are none."""
    if name == "ConcatHorizontal":
        return _joined(values, inputs, more, dtype)
    x, *others = inputs
    if not x.text and x.dtype.base_type() != pl.List:
        return None
    if name == "cast":
        return _asked(values, x, name, lambda c: c.cast(dtype, strict=False), (), dtype)
    if name in SAFE:
        return _looked_up(values, name, x, others, more, dtype)
    if name not in CALLS:
        raise unknown(f"str.{name}")
    constants = [_constant(each, name) for each in others]
    return _asked(values, x, name, lambda c: CALLS[name](c, more, *constants), (tuple(more), tuple(constants)), dtype)


def _asked(
    values: Values,
    x: Nullable,
    name: str,
    call: Callable[[Any], Any],
    key: Any,
    dtype: Any,
    mentions: Sequence[Any] | None = None,
) -> Nullable:
    """Return a function of strings, of which polars is asked.

    `mentions` are the strings that it looks for and puts in their place, if it answers all others alike.
    """
    listed = dtype.base_type() == pl.List
    kind = TEXT if listed else kind_of(dtype).name
    inner = x.dtype if x.dtype.base_type() == pl.List else pl.String()
    if kind not in (TEXT, "float64", "float32", "int64", "bool"):
        raise Untraceable(f"it makes {dtype} values of strings ({name})", "Give the model columns of that type")
    safe = mentions is not None
    found = values.own.text_call(
        x.raw, name, InPolars(call, inner), repr(key), kind=kind, safe=safe, mentions=mentions or ()
    )
    return values.of_text(dtype, found)


def _constant(value: Nullable, name: str) -> Any:
    if value.cells is not None:
        return list(value.cells)
    if value.dtype == pl.Null() or (value.null is not None and value.raw.constant):
        return None
    if value.constant is None:
        raise Untraceable(f"it calls str.{name} with a column as argument", "Use constants")
    return value.constant if isinstance(value.constant, str) else int(value.constant)


def _looked_up(
    values: Values, name: str, x: Nullable, others: Sequence[Nullable], more: Sequence[Any], dtype: Any
) -> Nullable:
    """Return what a table has for a string, and the default for any other."""
    if any(each.cells is None for each in others[: 1 if name == "IsIn" else 2]):
        raise Untraceable("it looks values up in a column")
    lists = [[None if cell is None else cell for cell in each.cells or ()] for each in others]
    key = (*map(tuple, lists), tuple(more))
    if name == "IsIn":
        wanted = pl.Series(lists[0], dtype=pl.String)
        keywords = {"nulls_equal": True} if more and more[0] else {}
        return _asked(values, x, name, lambda c: c.is_in(wanted.implode(), **keywords), key, dtype, lists[0])
    (old, new), default = lists[:2], others[2:]
    if len(new) == 1:
        new = new * len(old)
    if name == "replace":
        return _asked(values, x, name, lambda c: c.replace(old, new), key, dtype, [*old, *new])
    made = dtype if not is_text(dtype) else pl.String()

    def table(c: Any) -> Any:
        return c.replace_strict(old, new, default=None, return_dtype=made)

    found = _asked(values, x, name, table, (*key, str(dtype)), dtype, old)
    if not default or default[0].dtype == pl.Null():
        return found
    known = _asked(
        values, x, "is_in", lambda c: c.is_in(pl.Series(old, dtype=pl.String).implode()), key, pl.Boolean(), old
    )
    if None in old:
        known = values.disjunction(known, Nullable(pl.Boolean(), values.is_null(x)))
    return values.chosen(known, found, dataclasses.replace(default[0], dtype=dtype), dtype)


def _joined(values: Values, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    """Return a column of strings put together with constants."""
    columns = [each for each in inputs if each.constant is None]
    if len({id(each.raw) for each in columns}) != 1 or not columns[0].text:
        raise Untraceable("it joins two columns of strings, or strings and numbers")
    parts = [None if each.constant is None else str(each.constant) for each in inputs]
    separator, ignores = str(more[0]), bool(more[1])

    def call(c: Any) -> Any:
        given = [c if part is None else pl.lit(part) for part in parts]
        return pl.concat_str(given, separator=separator, ignore_nulls=ignores)

    return _asked(values, columns[0], "concat_str", call, (tuple(parts), separator, ignores), dtype)
