"""Strings that an entry makes of a request's strings before it looks them up: a fixed list of named steps, and no code.

A step reads one earlier step, or two that it joins, and makes a string, a number or a boolean of each string. The last
steps fill columns of the plan's matrix: with a number, or with the place of a string among the column's categories.
Steps do what Python's methods of strings do. Those that change the case, and tests of characters, can instead do what
Arrow's functions do, which map each character by itself. Arrow and Python know characters of different editions of
Unicode; the arguments of such a step hold the characters in which the two differ.

A missing string stays missing, until the step `fill` replaces it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import PlanError

FEW = 512
"""The strings that tell whether strings are often the same."""


@dataclass(frozen=True)
class TextStep:
    """A step: its name, the places of the steps that it reads, and its arguments.

    The step `column` reads no other: its argument is a column of the plan's matrix that a tensor of strings holds.
    """

    name: str
    of: tuple[int, ...] = ()
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class MadeColumn:
    """A column of the plan's matrix that the step at the place `step` makes.

    `categories` are the strings whose numbers it holds; None if the step makes numbers. `closed` says whether another
    string is refused.
    """

    column: int
    step: int
    categories: tuple[str, ...] | None = None
    closed: bool = False

    @functools.cached_property
    def numbers(self) -> dict[Any, float]:
        """Return the number of each category."""
        return {text: float(number) for number, text in enumerate(self.categories or ())}


@dataclass(frozen=True)
class MadeTexts:
    """The columns that an entry makes of strings; they follow all others in the plan's matrix.

    `unread` are the columns of strings that no step of the plan reads. Their categories are only those of the golden
    rows.
    """

    steps: tuple[TextStep, ...]
    columns: tuple[MadeColumn, ...]
    unread: tuple[int, ...] = ()

    def sources(self, column: MadeColumn) -> list[int]:
        """Return the columns of strings that a column is made of."""
        return list(dict.fromkeys(step.arguments[0] for step in self._behind(column.step) if step.name == "column"))

    def names(self, column: MadeColumn) -> list[str]:
        """Return the names of the steps that make a column, in order."""
        return [step.name for step in self._behind(column.step) if step.name != "column"]

    def _behind(self, place: int) -> list[TextStep]:
        """Return a step and those that it reads, which come first."""
        step = self.steps[place]
        return [*(each for other in step.of for each in self._behind(other)), step]

    @functools.cached_property
    def functions(self) -> list[Callable[[Any], Any] | None]:
        """What each step of one input does; raises `PlanError` if this release does not know a step."""
        return [None if step.name in ("column", "join") else function(step) for step in self.steps]

    @functools.cached_property
    def all_sources(self) -> list[int]:
        """Return the columns of strings that any column is made of."""
        return list(dict.fromkeys(source for column in self.columns for source in self.sources(column)))


@dataclass(frozen=True)
class Texts:
    """Strings, or what steps made of them: the `values` that differ, None for a missing one, and each row's place."""

    values: Sequence[Any]
    rows: np.ndarray

    @staticmethod
    def of(values: Sequence[Any]) -> Texts:
        """Return the strings of some rows; if they are seldom the same, each row keeps its own."""
        if 2 * len(set(values[:FEW])) > len(values[:FEW]):
            return Texts(values, _in_order(len(values)))
        places = dict(zip(dict.fromkeys(values), itertools.count(), strict=False))
        rows = np.fromiter(map(places.__getitem__, values), dtype=np.int64, count=len(values))
        return Texts(list(places), rows)


@functools.lru_cache(maxsize=8)
def _in_order(count: int) -> np.ndarray:
    """Return the numbers from 0 to `count`, one array for each count: columns with the same rows are joined at once."""
    return np.arange(count)


def read_texts(
    numbered: Callable[[Sequence[bytes]], np.ndarray], texts: Sequence[bytes], too_long: float
) -> tuple[np.ndarray, Texts, np.ndarray]:
    """Return a column's numbers, its strings, None for a missing one, and the mask of rows that no step may read.

    Those hold bytes that are not UTF-8, or strings that are too long. `numbered` returns the numbers of strings: NaN
    for a missing one, and `too_long` for one that is too long.
    """
    found = Texts.of(texts)
    numbers = numbered(found.values)
    refused = numbers == too_long
    values = list[str | None]()
    for place, (text, missing) in enumerate(zip(found.values, np.isnan(numbers).tolist(), strict=True)):
        try:
            values.append(None if missing or refused[place] else text.decode())
        except UnicodeDecodeError:
            values.append(None)
            refused[place] = True
    return numbers[found.rows], Texts(values, found.rows), refused[found.rows]


def fill_columns(
    matrix: np.ndarray,
    made: MadeTexts,
    columns: Mapping[int, Texts],
    refused: Mapping[int, np.ndarray],
    unknown: float,
    too_long: float,
) -> None:
    """Fill the columns of a plan's matrix that steps make of strings, with `too_long` in rows that no step may read.

    The other arguments are those of `run`, and the masks of these rows by the columns of their strings.
    """
    for column, numbers in run(made, columns, unknown).items():
        matrix[:, column] = numbers
    for each in made.columns:
        for source in made.sources(each):
            matrix[refused[source], each.column] = too_long


def run(made: MadeTexts, columns: Mapping[int, Texts], unknown: float) -> dict[int, np.ndarray]:
    """Return the numbers of each column that steps make of the strings of others, float64 `[rows]`.

    Args:
        made: the steps and the columns.
        columns: the strings of each column that a step reads.
        unknown: the number of a string that is no category.
    """
    found: list[Texts] = []
    pairs: dict[tuple[int, int], tuple[Any, Any, np.ndarray]] = {}
    for step, does in zip(made.steps, made.functions, strict=True):
        of = [found[place] for place in step.of]
        if step.name == "column":
            found.append(columns[step.arguments[0]])
        elif does is None:
            found.append(_joined(of[0], of[1], pairs))
        else:
            found.append(Texts([*map(does, of[0].values)], of[0].rows))
    return {column.column: numbers_of(column, found[column.step], unknown) for column in made.columns}


def numbers_of(column: MadeColumn, made: Texts, unknown: float) -> np.ndarray:
    """Return the numbers of a column, float64 `[rows]`: NaN for a missing value, `unknown` for another string."""
    if column.categories is None:
        each = [np.nan if value is None else float(value) for value in made.values]
    else:
        known = column.numbers
        each = [np.nan if value is None else known.get(value, unknown) for value in made.values]
    found: np.ndarray = np.array(each, dtype=np.float64)[made.rows]
    return found


def _joined(first: Texts, second: Texts, pairs: dict[tuple[int, int], tuple[Any, Any, np.ndarray]]) -> Texts:
    """Return each row's two strings put together."""
    if first.rows is second.rows:
        return Texts([*map(_together, first.values, second.values)], first.rows)
    key = id(first.rows), id(second.rows)
    if key not in pairs:
        both, rows = np.unique(first.rows * len(second.values) + second.rows, return_inverse=True)
        pairs[key] = (*(each.tolist() for each in np.divmod(both, len(second.values))), rows.reshape(-1))
    left, right, rows = pairs[key]
    one, other = map(first.values.__getitem__, left), map(second.values.__getitem__, right)
    return Texts([*map(_together, one, other)], rows)


def _together(first: str | None, second: str | None) -> str | None:
    return None if first is None or second is None else first + second


def function(step: TextStep) -> Callable[[Any], Any]:
    """Return what a step of one input does, as a function of a string or None.

    Raises:
        PlanError: no step has this name, or it does not take these arguments.
    """
    if step.name == "fill":
        (filling,) = step.arguments
        return lambda text: filling if text is None else text
    if step.name not in FUNCTIONS:
        raise PlanError(f"this release knows no step of strings {step.name!r}")
    does = FUNCTIONS[step.name]
    arguments = step.arguments
    return lambda text: None if text is None else does(text, *arguments)


def _sliced(text: str, start: int | None, stop: int | None, by: int | None) -> str:
    return text[start:stop:by]


def _get(text: str, place: int) -> str | None:
    return text[place] if -len(text) <= place < len(text) else None


def _part(text: str, separator: str | None, most: int, place: int) -> str | None:
    parts = text.split(separator, most)
    return parts[place] if -len(parts) <= place < len(parts) else None


def _part_from_right(text: str, separator: str | None, most: int, place: int) -> str | None:
    parts = text.rsplit(separator, most)
    return parts[place] if -len(parts) <= place < len(parts) else None


def _exchanged(text: str, *pairs: str) -> str:
    return _exchanges(*pairs).get(text, text)


@functools.lru_cache(maxsize=32)
def _exchanges(*pairs: str) -> dict[str, str]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _padded(text: str, width: int, side: str, character: str) -> str:
    if side == "both":
        return text.center(width, character)
    return text.rjust(width, character) if side == "left" else text.ljust(width, character)


def _upper(character: str) -> str:
    """Return a character's upper-case form if it is one character, otherwise the character."""
    found = character.upper()
    return found if len(found) == 1 else character


def _lower(character: str) -> str:
    found = character.lower()
    return found if len(found) == 1 else character


def _swapped(character: str) -> str:
    found = _upper(character)
    return found if found != character else _lower(character)


def is_cased(character: str) -> bool:
    """Return whether Python knows a character as upper, lower or title case."""
    return character.isupper() or character.islower() or character.istitle()


class Cases:
    """The case of single characters: Python's, except for those given.

    `upper` and `uppers` are strings of the same length: characters, and what they become; so are `lower` and `lowers`.
    `cased` holds the characters of which `is_cased` says the opposite. For `swapcase` the first two hold what it does.
    """

    def __init__(self, upper: str, uppers: str, lower: str, lowers: str, cased: str) -> None:
        self._upper, self._lower = dict(zip(upper, uppers, strict=True)), dict(zip(lower, lowers, strict=True))
        self._cased = frozenset(cased)

    def upper(self, text: str) -> str:
        """Return a text with each character in upper case."""
        return text.upper() if text.isascii() else "".join([self._upper.get(c) or _upper(c) for c in text])

    def lower(self, text: str) -> str:
        """Return a text with each character in lower case."""
        return text.lower() if text.isascii() else "".join([self._lower.get(c) or _lower(c) for c in text])

    def capitalize(self, text: str) -> str:
        """Return a text with its first character in upper case."""
        return self.upper(text[:1]) + self.lower(text[1:])

    def title(self, text: str) -> str:
        """Return a text with each character in upper case that no cased one precedes."""
        if text.isascii():
            return text.title()
        made, inside = list[str](), False
        for character in text:
            made.append(self.lower(character) if inside else self.upper(character))
            inside = is_cased(character) != (character in self._cased)
        return "".join(made)

    def swapcase(self, text: str) -> str:
        """Return a text with each character in its other case."""
        if text.isascii():
            return text.swapcase()
        return "".join([self._upper.get(c) or _swapped(c) for c in text])


@functools.lru_cache(maxsize=32)
def _cases(*arguments: str) -> Cases:
    return Cases(*arguments)


def _by_character(name: str) -> Callable[..., str]:
    """Return a change of case that maps each character by itself, with the arguments of `Cases`."""

    def changed(text: str, *arguments: str) -> str:
        if text.isascii():
            return str(getattr(text, name)())
        return str(getattr(_cases(*arguments), name)(text))

    return changed


def _tested(name: str) -> Callable[..., bool]:
    """Return a test of all characters; two characters each of its argument span those that Python knows otherwise."""
    test = getattr(str, name)

    @functools.lru_cache(maxsize=8)
    def other(spans: str) -> frozenset[str]:
        ends = zip(spans[::2], spans[1::2], strict=True)
        return frozenset(chr(code) for first, last in ends for code in range(ord(first), ord(last) + 1))

    def holds(text: str, spans: str = "") -> bool:
        if not spans or text.isascii():
            return bool(test(text))
        others = other(spans)
        return bool(text) and all(test(character) != (character in others) for character in text)

    return holds


CASES = ("lower", "upper", "title", "capitalize", "swapcase")
"""Steps that change the case; by each character with the suffix `_each`."""

TESTS = ("isalpha", "isalnum", "isdigit", "isnumeric", "isdecimal", "isspace")
"""Steps that test all characters of a string."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(str, name) for name in (*CASES, "casefold", "strip", "lstrip", "rstrip", "zfill")},
    **{name: getattr(str, name) for name in ("removeprefix", "removesuffix", "replace", "find", "rfind", "count")},
    **{name: getattr(str, name) for name in ("startswith", "endswith", "isupper", "islower", "istitle")},
    **{f"{name}_each": _by_character(name) for name in CASES},
    **{name: _tested(name) for name in TESTS},
    "append": lambda text, more: text + more,
    "prepend": lambda text, more: more + text,
    "exchange": _exchanged,
    "slice": _sliced,
    "get": _get,
    "part": _part,
    "part_from_right": _part_from_right,
    "pad": _padded,
    "contains": lambda text, wanted: wanted in text,
    "len": len,
}
"""What each step of one input does to a string that is not missing."""
