"""Strings of cells as numbers: the strings that an expression may have, and its number among them.

A plan has no strings. A column of strings holds each string's number among those that are known, −1 for any other, and
NaN for a missing one. A function of strings that steps of the entry do, see `kernels/format/text_steps.py`, becomes a
column of its own, which the entry makes of any string. Any other function is asked at export about every known string,
and becomes a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.lowering.text_columns import Made, TextColumns, made_rows
from triton_regressors.exporter.tracing.expressions import BOOLEAN, FLOAT, TEXT, Expression, Graph, Kind, walk
from triton_regressors.exporter.tracing.refusal import Untraceable
from triton_regressors.exporter.tracing.text_methods import in_arrow, is_arrow
from triton_regressors.kernels.format.text_steps import TextStep, function

ANY = "\0"
"""Stands for a string that nobody knows."""


@dataclass(frozen=True)
class MadeOf:
    """What an entry can make of the strings of a trace's columns.

    `columns` says for each column what it is itself made of, `text` holds all columns that are made, and `given`
    returns the values of a feature in the sample.
    """

    columns: Mapping[int, Made]
    text: TextColumns
    given: Callable[[int], list[Any]]


class Texts:
    """The strings of a trace's expressions; `known` are those of each column of the input.

    `closed` are the columns whose unknown strings no table answers.
    """

    def __init__(
        self,
        graph: Graph,
        known: Mapping[int, Sequence[str]],
        digits: Iterable[str] = (),
        made: MadeOf | None = None,
    ) -> None:
        self._graph, self._known, self._digits, self._made_of = graph, known, dict.fromkeys(digits), made
        self._values: dict[Expression, list[str]] = {}
        self._made: dict[Expression, Made | None] = {}
        self._mentioned: dict[Expression, dict[str, None]] = {}
        self.closed: set[int] = set()
        self.sources: set[int] = set()

    def values(self, text: Expression) -> list[str]:
        """Return the strings that an expression of strings may have."""
        found = self._values.get(text)
        if found is None:
            own = self._found(text)
            found = self._values[text] = list(
                dict.fromkeys([*self._numbered(text), *own, *self._mentioned.get(text, ())])
            )
        return found

    def mention(self, text: Expression, strings: Iterable[Any]) -> None:
        """Have strings known that code compares an expression with, or puts in the place of others.

        A row may hold them, even if no row of the sample does: they are those of a column, or of what is made of one.
        """
        mentioned = dict.fromkeys(each for each in strings if isinstance(each, str))
        if text.operation == "leaf" or self.made(text) is not None:
            self._mentioned.setdefault(text, {}).update(mentioned)
        elif text.operation == "digits":
            self._digits.update(dict.fromkeys(filter(is_whole, mentioned)))
        else:
            for inner in self._handed_on(text):
                self.mention(inner, mentioned)
        self._values.clear()

    def _handed_on(self, text: Expression) -> Sequence[Expression]:
        """Return the expressions whose strings an expression hands on, known ones and others."""
        match text.operation:
            case "where":
                return text.arguments[1:]
            case "text" if text.arguments[4]:
                return text.arguments[:1]
        return ()

    def origins(self, text: Expression) -> tuple[set[int], set[int]]:
        """Return the columns whose strings an expression may hand on: those of the input, and those that are made."""
        if text.operation == "leaf":
            return {text.arguments[0]}, set()
        column = self._column(text)
        if column is not None:
            return set(), {column.arguments[0]}
        found: tuple[set[int], set[int]] = (set(), set())
        for inner in self._handed_on(text):
            for those, more in zip(found, self.origins(inner), strict=True):
                those |= more
        return found

    def writes_digits(self, text: Expression) -> bool:
        """Return whether an expression may hand on a whole number that is written as text."""
        return text.operation == "digits" or any(map(self.writes_digits, self._handed_on(text)))

    def _numbered(self, text: Expression) -> list[str]:
        """Return the strings of a made column that have numbers by now."""
        made = self._made.get(text)
        if made is None or self._made_of is None or text.operation == "leaf":
            return []
        column = self._made_of.text.found(made)
        return [] if column is None else self._made_of.text.known(column)

    # Strings that the entry makes

    def made(self, text: Expression) -> Made | None:
        """Return how the entry makes an expression of strings, or a number of strings; None if no steps do."""
        if self._made_of is None:
            return None
        if text not in self._made:
            self._made[text] = None
            self._made[text] = self._steps(text)
        return self._made[text]

    def _steps(self, text: Expression) -> Made | None:
        assert self._made_of is not None
        if text.operation == "leaf":
            return self._made_of.columns.get(text.arguments[0])
        if text.operation == "join":
            parts = [self.made(each) for each in text.inputs]
            return None if None in parts else ("join", (), *parts)
        if text.operation != "text":
            return None
        inner, step = text.arguments[0], text.arguments[5]
        if step is None:
            return None
        name, arguments = step
        if self.lists(inner):
            if name != "get" or inner.arguments[5] is None:
                return None
            name = {"split": "part", "rsplit": "part_from_right"}[inner.arguments[5][0]]
            arguments, inner = (*inner.arguments[5][1], *arguments), inner.arguments[0]
        elif name in ("split", "rsplit"):
            return None
        of = self.made(inner)
        found = in_arrow((name, arguments)) if is_arrow(inner.kind.unit) else (name, arguments)
        if of is None or found is None or not self._agrees(text, inner, TextStep(found[0], (0,), found[1])):
            return None
        return (*found, of)

    def _agrees(self, text: Expression, inner: Expression, step: TextStep) -> bool:
        """Return whether a step makes of every known string what pandas makes of it."""
        does, strings, results = function(step), self.values(inner), self.results(text)
        if text.kind.name == TEXT and step.name != "fill" and not _missing(results[len(strings)]):
            return False
        return all(_same(does(string), result) for string, result in zip(strings, results, strict=False))

    def joined(self, first: Expression, second: Expression) -> Expression:
        """Return two columns of strings put together."""
        both = self._graph.make("join", first, second, kind=Kind(TEXT, first.kind.unit))
        if self.made(both) is None:
            raise Untraceable(
                "it joins two columns of strings, one of which an entry cannot make of a request's strings",
                "Join columns of the table, or what the methods of .str that docs/own_code.md lists make of them",
            )
        return both

    def _joined_strings(self, join: Expression) -> list[str]:
        """Return what the rows of the sample hold in a column of joined strings."""
        made = self.made(join)
        rows = [] if made is None or self._made_of is None else made_rows(made, self._made_of.given)
        return list(dict.fromkeys(text for text in rows if text is not None))

    def _column(self, text: Expression, tabled: bool = False) -> Expression | None:
        """Return the column of the plan that the entry makes, None if it makes none of this expression.

        A column that is `tabled` is read by a table of its strings.
        """
        made = self.made(text) if text.operation != "leaf" else None
        if made is None or self._made_of is None:
            return None
        of_text = text.kind.name == TEXT
        strings = self.values(text) if of_text and tabled else []
        column = self._made_of.text.make(made, of_text)
        if of_text and tabled:
            self._made_of.text.table(column, strings)
        self.sources |= _sources(made)
        return self._graph.make("made", column, of_text, kind=Kind(FLOAT))

    def _found(self, text: Expression) -> list[str]:
        match text.operation:
            case "leaf":
                return list(self._known.get(text.arguments[0], ()))
            case "constant":
                return [text.arguments[0]] if isinstance(text.arguments[0], str) else []
            case "text_of":
                return list(text.arguments[1])
            case "digits":
                return list(self._digits)
            case "where":
                return list(dict.fromkeys([*self.values(text.arguments[1]), *self.values(text.arguments[2])]))
            case "join":
                return self._joined_strings(text)
            case "text":
                results = self.results(text)
                wrong = next((r for r in results if not isinstance(r, str) and not _missing(r)), None)
                if wrong is not None:
                    raise Untraceable(f"it makes a value of type {type(wrong).__name__} of a string")
                return list(dict.fromkeys(r for r in results if isinstance(r, str)))
        raise Untraceable(f"it computes {text.operation} of strings")

    def results(self, call: Expression) -> list[Any]:
        """Return what a call makes of each string, of a missing one, and, if it is safe, of any other string."""
        inner, _, _, own, safe, _ = call.arguments
        chain = [own]
        while self.lists(inner):
            inner, own = inner.arguments[0], inner.arguments[3]
            chain.append(own)
        strings = self.values(inner)
        if self.writes_digits(inner) and not safe:
            raise Untraceable("it computes with the text of numbers", "Compute with the numbers themselves")
        if not strings and inner.operation == "leaf":
            raise Untraceable(
                "it computes with strings of a column, and none are known",
                "Give rows of your data (sample=, --sample), which hold every string of the column",
            )
        others = [ANY] if safe else []
        if self._may_be_missing(inner):
            try:
                return self._asked([*strings, None, *others], inner.kind, chain)
            except Exception:  # the function refuses missing strings in any way
                pass
        found = self._asked([*strings, *others], inner.kind, chain)
        return [*found[: len(strings)], np.nan, *found[len(strings) :]]

    def _asked(self, strings: list[Any], kind: Kind, chain: list[Any]) -> list[Any]:
        series = pd.Series(strings, dtype=kind.unit if kind.unit not in (None, "category") else None)
        for call in reversed(chain):
            series = call(series)
        return list(series.tolist())

    def _may_be_missing(self, text: Expression) -> bool:
        """Return whether an expression of strings has a missing one in some rows."""
        match text.operation:
            case "constant":
                return not isinstance(text.arguments[0], str)
            case "where":
                return any(map(self._may_be_missing, text.arguments[1:]))
            case "text":
                return any(map(_missing, self.results(text)))
        return True

    def number(self, text: Expression) -> Expression:
        """Return the number of an expression's string among its `values`: −1 for any other, NaN for a missing one."""
        make, number = self._graph.make, Kind(FLOAT)
        column = self._column(text)
        if column is not None:
            return column
        match text.operation:
            case "leaf":
                return text
            case "constant":
                return self._graph.constant(0.0 if isinstance(text.arguments[0], str) else np.nan, number)
            case "text_of":
                inner: Expression = text.arguments[0]
                return inner
            case "digits":
                whole = np.array([int(digits) for digits in self._digits], dtype=np.float64)
                order = np.argsort(whole)
                keys, table = whole[order], np.append(order.astype(np.float64), [np.nan, -1.0])
                return make("lookup", text.arguments[0], keys, table, kind=number)
            case "where":
                condition, *branches = text.arguments
                union = self.values(text)
                moved = [self._moved(branch, union) for branch in branches]
                return make("where", condition, *moved, kind=number)
        places = {value: float(place) for place, value in enumerate(self.values(text))}
        return self.table(text, [self._place(result, places) for result in self.results(text)])

    def table(self, call: Expression, numbers: Sequence[float]) -> Expression:
        """Return a table of a call's results, given as numbers, by the string that it reads."""
        inner, safe = call.arguments[0], call.arguments[4]
        while self.lists(inner):
            inner, safe = inner.arguments[0], safe and inner.arguments[4]
        count, column = len(self.values(inner)), self._column(inner, tabled=True)
        if not safe and column is not None and self._made_of is not None:
            self._made_of.text.close(column.arguments[0])
        elif not safe:
            self.closed |= inner.leaves()
        table = np.array([*numbers[: count + 1], numbers[count + 1] if safe else np.nan], dtype=np.float64)
        keys = np.arange(count, dtype=np.float64)
        return self._graph.make("lookup", self.number(inner), keys, table, kind=Kind(FLOAT))

    def lists(self, text: Expression) -> bool:
        """Return whether an expression makes lists of strings."""
        return text.operation == "text" and any(isinstance(result, list) for result in self.results(text))

    def _read(self, call: Expression) -> Expression:
        """Return the strings that a call reads, or the call reads that makes the lists that it reads."""
        inner: Expression = call.arguments[0]
        return self._read(inner) if self.lists(inner) else inner

    def _filled(self, column: Expression, number: float) -> Expression:
        """Return a column with a number in place of a missing one."""
        missing = self._graph.make("isnan", column, kind=Kind(BOOLEAN))
        filling = self._graph.constant(number, Kind(FLOAT))
        return self._graph.make("where", missing, filling, column, kind=Kind(FLOAT))

    def _moved(self, branch: Expression, union: Sequence[str]) -> Expression:
        """Return the number of a branch's string among the strings of all branches."""
        own = self.values(branch)
        self._column(branch, tabled=True)
        if branch.constant:
            return self._graph.constant(float(union.index(own[0])) if own else np.nan, Kind(FLOAT))
        if own == list(union[: len(own)]):
            return self.number(branch)
        table = np.array([*(union.index(value) for value in own), np.nan, -1.0], dtype=np.float64)
        keys = np.arange(len(own), dtype=np.float64)
        return self._graph.make("lookup", self.number(branch), keys, table, kind=Kind(FLOAT))

    @staticmethod
    def _place(result: Any, places: Mapping[str, float]) -> float:
        if result == ANY:
            return places.get(result, -1.0)
        return places[result] if isinstance(result, str) else np.nan

    def numbered(self, roots: Sequence[Expression]) -> list[Expression]:
        """Return expressions with every string replaced by its number."""
        self._mention_branches(roots)
        done: dict[Expression, Expression] = {}

        def replaced(expression: Expression) -> Expression:
            found = done.get(expression)
            if found is None:
                found = done[expression] = self._replaced(expression, replaced)
            return found

        return [replaced(root) for root in roots]

    def _mention_branches(self, roots: Sequence[Expression]) -> None:
        """Have the strings of each branch known in the others: behind a `where` they are the same string."""
        choices = [each for each in walk(list(roots)) if each.operation == "where" and each.kind.name == TEXT]
        while True:
            before = sum(map(len, self._mentioned.values())) + len(self._digits)
            for choice in choices:
                self.mention(choice, self.values(choice))
            if sum(map(len, self._mentioned.values())) + len(self._digits) == before:
                return

    def _replaced(self, expression: Expression, replaced: Any) -> Expression:
        if expression.operation in ("leaf", "constant") and expression.kind.name != TEXT:
            return expression
        if expression.kind.name == TEXT:
            number = self.number(expression)
            found: Expression = number if number.operation in ("leaf", "constant") else replaced(number)
            return found
        if expression.operation == "text":
            column = self._column(expression)
            if column is not None:
                missing = self.results(expression)[len(self.values(self._read(expression)))]
                return column if _missing(missing) else self._filled(column, _number(missing))
            results = [np.nan if _missing(result) else _number(result) for result in self.results(expression)]
            table: Expression = replaced(self.table(expression, results))
            return table
        arguments = tuple(replaced(each) if isinstance(each, Expression) else each for each in expression.arguments)
        return self._graph.make(expression.operation, *arguments, kind=expression.kind)


def is_whole(text: str) -> bool:
    """Return whether a string is how Python writes a whole number that float64 holds exactly."""
    return text.removeprefix("-").isdecimal() and str(int(text)) == text and abs(int(text)) <= 2**53


def kind_of(results: Sequence[Any]) -> str:
    """Return the kind of the values that a function of strings returned."""
    known = [result for result in results if not _missing(result)]
    if known and all(isinstance(result, str | list) for result in known):
        return TEXT  # lists of strings are parts of a chain, such as .str.split("-").str[0]
    if known and all(isinstance(result, bool | np.bool_) for result in known) and len(known) == len(results):
        return "bool"
    return FLOAT


def _sources(made: Made) -> set[int]:
    """Return the columns that something is made of."""
    name, *rest = made
    return {rest[0]} if name == "column" else {source for each in rest[1:] for source in _sources(each)}


def _same(made: Any, result: Any) -> bool:
    """Return whether a step's value is pandas'."""
    return _missing(result) if made is None else not _missing(result) and bool(made == result)


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float | np.floating) and value != value)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Untraceable(f"it makes a value of type {type(value).__name__} of a string") from None
