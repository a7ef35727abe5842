"""Strings of cells as numbers: the strings that an expression may have, and its number among them.

A plan has no strings. A column of strings holds each string's number among those that are known, −1 for any other, and
NaN for a missing one. A function of strings is asked at export about every known string, and becomes a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.expressions import FLOAT, TEXT, Expression, Graph, Kind, walk
from triton_regressors.exporter.tracing.refusal import Untraceable

ANY = "\0"
"""Stands for a string that nobody knows."""


class Texts:
    """The strings of a trace's expressions.

    `known` are those of each column of the input: of the sample, and those that the code mentions.
    """

    def __init__(self, graph: Graph, known: Mapping[int, Sequence[str]], digits: Iterable[str] = ()) -> None:
        self._graph = graph
        self._digits = list(digits)
        self._values: dict[Expression, list[str]] = {}
        self.known = {column: list(strings) for column, strings in known.items()}
        self.closed: set[int] = set()

    def values(self, text: Expression) -> list[str]:
        """Return the strings that an expression of strings may have."""
        found = self._values.get(text)
        if found is None:
            found = self._values[text] = self._found(text)
        return found

    def _found(self, text: Expression) -> list[str]:
        match text.operation:
            case "leaf":
                return list(self.known.get(text.arguments[0], ()))
            case "constant":
                return [text.arguments[0]] if isinstance(text.arguments[0], str) else []
            case "text_of":
                return list(text.arguments[1])
            case "digits":
                return list(self._digits)
            case "where":
                return list(dict.fromkeys([*self.values(text.arguments[1]), *self.values(text.arguments[2])]))
            case "text":
                results = self.results(text)
                wrong = next((r for r in results if not isinstance(r, str) and not _missing(r)), None)
                if wrong is not None:
                    raise Untraceable(f"it makes a value of type {type(wrong).__name__} of a string")
                return list(dict.fromkeys(r for r in results if isinstance(r, str)))
        raise Untraceable(f"it computes {text.operation} of strings")

    def mention(self, text: Expression, strings: Iterable[Any]) -> None:
        """Have strings known that code compares an expression with, or puts in the place of others.

        A row may hold them, even if no row of the sample does.
        """
        mentioned = dict.fromkeys(string for string in strings if isinstance(string, str))
        lists = [self.known.setdefault(column, []) for column in self.sources(text)]
        for known in lists:
            known += [string for string in mentioned if string not in known]
        if self.writes_digits(text):
            self._digits += [string for string in mentioned if is_whole(string) and string not in self._digits]
        self._values.clear()

    def sources(self, text: Expression) -> set[int]:
        """Return the columns of the input whose strings an expression may hand on, known ones and others."""
        match text.operation:
            case "leaf":
                return {text.arguments[0]}
            case "where":
                return set().union(*map(self.sources, text.arguments[1:]))
            case "text" if text.arguments[4]:
                return self.sources(text.arguments[0])
        return set()

    def writes_digits(self, text: Expression) -> bool:
        """Return whether an expression may hand on a whole number that is written as text."""
        match text.operation:
            case "digits":
                return True
            case "where":
                return any(map(self.writes_digits, text.arguments[1:]))
            case "text" if text.arguments[4]:
                return self.writes_digits(text.arguments[0])
        return False

    def results(self, call: Expression) -> list[Any]:
        """Return what a call makes of each string, of a missing one, and, if it is safe, of any other string."""
        inner, _, _, function, safe = call.arguments
        chain = [function]
        while inner.operation == "text" and self._lists(inner):
            inner, function = inner.arguments[0], inner.arguments[3]
            chain.append(function)
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
        for function in reversed(chain):
            series = function(series)
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
        while inner.operation == "text" and self._lists(inner):
            inner, safe = inner.arguments[0], safe and inner.arguments[4]
        count = len(self.values(inner))
        if not safe:
            self.closed |= inner.leaves()
        table = np.array([*numbers[: count + 1], numbers[count + 1] if safe else np.nan], dtype=np.float64)
        keys = np.arange(count, dtype=np.float64)
        return self._graph.make("lookup", self.number(inner), keys, table, kind=Kind(FLOAT))

    def _lists(self, text: Expression) -> bool:
        """Return whether a call makes lists of strings."""
        return any(isinstance(result, list) for result in self.results(text))

    def _moved(self, branch: Expression, union: Sequence[str]) -> Expression:
        """Return the number of a branch's string among the strings of all branches."""
        own = self.values(branch)
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
            before = sum(map(len, self.known.values())) + len(self._digits)
            for choice in choices:
                self.mention(choice, self.values(choice))
            if sum(map(len, self.known.values())) + len(self._digits) == before:
                return

    def _replaced(self, expression: Expression, replaced: Any) -> Expression:
        if expression.operation in ("leaf", "constant") and expression.kind.name != TEXT:
            return expression
        if expression.kind.name == TEXT:
            number = self.number(expression)
            found: Expression = number if number.operation in ("leaf", "constant") else replaced(number)
            return found
        if expression.operation == "text":
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


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float | np.floating) and value != value)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Untraceable(f"it makes a value of type {type(value).__name__} of a string") from None
