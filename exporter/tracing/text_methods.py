"""Methods of `.str` as steps that an entry runs on strings that nobody has seen, see `kernels/format/text_steps.py`.

pandas holds strings as Python's objects, or in Arrow's arrays, whose functions of characters are not Python's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd

from triton_regressors.kernels.format.text_steps import CASES, TESTS, Cases, is_cased

Step = tuple[str, tuple[Any, ...]]
"""A step's name and its arguments."""

SPECIAL = frozenset(".^$*+?{}[]\\|()")
"""Characters that stand for something else in a regular expression."""

CASED = range(0x80, 0x20000)
"""Code points among which are all that have a case, except for ASCII."""

ARROW = "string[pyarrow]"
"""The dtype of strings that every pandas holds in Arrow's arrays."""

NO_ARGUMENTS = frozenset({*CASES, *TESTS, "casefold", "len", "isupper", "islower", "istitle"})
ONE_STRING = {
    "removeprefix": "prefix",
    "removesuffix": "suffix",
    "startswith": "pat",
    "endswith": "pat",
}
CONTEXTUAL = ("isupper", "islower", "istitle")
"""Tests of strings that Arrow's functions do in a way of their own."""


def step_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
    """Return a method of `.str` as a step; None if no step does the same. `[]` is the method of brackets.

    `split` and `rsplit` are steps only before `get`, which makes one string of the list.
    """
    if name == "[]":
        (key,) = args
        if isinstance(key, slice):
            return _whole("slice", key.start, key.stop, key.step) if key.step != 0 else None
        return _whole("get", key) if key is not None else None
    try:
        given = inspect.signature(getattr(pd.Series.str, name)).bind(None, *args, **kwargs)
    except TypeError:  # pandas says what is wrong
        return None
    given.apply_defaults()
    values = dict(list(given.arguments.items())[1:])
    if name in NO_ARGUMENTS:
        return name, ()
    if name in ONE_STRING:
        text = values[ONE_STRING[name]]
        return (name, (text,)) if isinstance(text, str) else None
    return METHODS[name](values) if name in METHODS else None


def literal(pattern: Any) -> str | None:
    """Return the only string that a regular expression matches; None if it matches others, or the empty one."""
    if not isinstance(pattern, str):
        return None
    found, escaped = "", False
    for character in pattern:
        if escaped:
            if character not in SPECIAL:
                return None
            found, escaped = found + character, False
        elif character == "\\":
            escaped = True
        elif character in SPECIAL:
            return None
        else:
            found += character
    return found if found and not escaped else None


def _whole(name: str, *numbers: Any) -> Step | None:
    """Return a step whose arguments are whole numbers or None."""
    known = all(number is None or type(number) is int for number in numbers)
    return (name, numbers) if known else None


def _strip(name: str) -> Callable[[dict[str, Any]], Step | None]:
    def step(values: dict[str, Any]) -> Step | None:
        characters = values["to_strip"]
        return (name, (characters,)) if characters is None or isinstance(characters, str) else None

    return step


def _split(values: dict[str, Any]) -> Step | None:
    separator, regex, most = values["pat"], values.get("regex"), values["n"] or -1
    if separator is not None:
        alone = isinstance(separator, str) and (regex is False or (regex is None and len(separator) == 1))
        separator = separator if alone else literal(separator)
        if not separator:
            return None
    return ("split", (separator, most)) if type(most) is int else None


def _rsplit(values: dict[str, Any]) -> Step | None:
    separator, most = values["pat"], values["n"] or -1
    known = separator is None or (isinstance(separator, str) and separator)
    return ("rsplit", (separator, most)) if known and type(most) is int else None


def _pattern(values: dict[str, Any]) -> str | None:
    """Return the string that a method looks for; None if it looks for others too."""
    if not values.get("case", True) or values.get("flags"):
        return None
    wanted = values["pat"]
    if values.get("regex", True):
        return literal(wanted)
    return wanted if isinstance(wanted, str) and wanted else None


def _contains(values: dict[str, Any]) -> Step | None:
    wanted = _pattern(values)
    return None if wanted is None else ("contains", (wanted,))


def _count(values: dict[str, Any]) -> Step | None:
    wanted = _pattern(values)
    return None if wanted is None else ("count", (wanted,))


def _replace(values: dict[str, Any]) -> Step | None:
    wanted, new = _pattern({**values, "case": values["case"] is not False}), values["repl"]
    if wanted is None or not isinstance(new, str) or values["n"] != -1 or (values["regex"] and "\\" in new):
        return None
    return "replace", (wanted, new)


def _find(name: str) -> Callable[[dict[str, Any]], Step | None]:
    def step(values: dict[str, Any]) -> Step | None:
        whole = values["start"] == 0 and values["end"] is None
        return (name, (values["sub"],)) if whole and isinstance(values["sub"], str) and values["sub"] else None

    return step


def _pad(side: str | None = None) -> Callable[[dict[str, Any]], Step | None]:
    def step(values: dict[str, Any]) -> Step | None:
        width, chosen, character = values["width"], side or values["side"], values["fillchar"]
        known = type(width) is int and isinstance(character, str) and len(character) == 1
        return ("pad", (width, chosen, character)) if known and chosen in ("left", "right", "both") else None

    return step


METHODS: dict[str, Callable[[dict[str, Any]], Step | None]] = {
    **{name: _strip(name) for name in ("strip", "lstrip", "rstrip")},
    **{name: _find(name) for name in ("find", "rfind")},
    "split": _split,
    "rsplit": _rsplit,
    "contains": _contains,
    "count": _count,
    "replace": _replace,
    "slice": lambda values: _whole("slice", values["start"], values["stop"], values["step"]),
    "get": lambda values: _whole("get", values["i"]) if values["i"] is not None else None,
    "zfill": lambda values: _whole("zfill", values["width"]) if values["width"] is not None else None,
    "pad": _pad(),
    "center": _pad("both"),
    "ljust": _pad("right"),
    "rjust": _pad("left"),
}
"""Methods with several arguments: what each returns of these."""


def is_arrow(unit: str | None) -> bool:
    """Return whether pandas holds strings of this dtype in Arrow's arrays."""
    return bool(unit) and getattr(pd.Series([], dtype=unit).dtype, "storage", "") == "pyarrow"


def in_arrow(step: Step) -> Step | None:
    """Return a step as pandas does it on Arrow's arrays; None if no step does the same."""
    name, arguments = step
    if name in CONTEXTUAL:
        return None
    if name in CASES:
        first = {"lower": ("", ""), "swapcase": _changed("swapcase")}.get(name) or _changed("upper")
        second = ("", "") if name in ("upper", "swapcase") else _changed("lower")
        return f"{name}_each", (*first, *second, _cased() if name == "title" else "")
    if name in TESTS:
        spans = _spans(name)
        return (name, (spans,)) if spans else step
    return name, arguments


@functools.cache
def _changed(name: str) -> tuple[str, str]:
    """Return the characters that Arrow changes otherwise than Python changes each by itself, and what they become."""
    characters = [chr(code) for code in CASED if not 0xD800 <= code < 0xE000]
    does, found = getattr(Cases("", "", "", "", ""), name), getattr(pd.Series(characters, dtype=ARROW).str, name)()
    other = [(a, b) for a, b in zip(characters, found.tolist(), strict=True) if does(a) != b]
    return "".join(a for a, _ in other), "".join(b for _, b in other)


@functools.cache
def _cased() -> str:
    """Return the characters of which Arrow says otherwise than Python whether they have a case."""
    characters = [chr(code) for code in CASED if not 0xD800 <= code < 0xE000]
    inside = ("a" + pd.Series(characters, dtype=ARROW) + "b").str.title().str[-1] == "b"
    return "".join(a for a, known in zip(characters, inside.tolist(), strict=True) if known != is_cased(a))


@functools.cache
def _spans(name: str) -> str:
    """Return the first and last characters of each span that Arrow's test of characters knows otherwise than Python."""
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    found = getattr(pd.Series(characters, dtype=ARROW).str, name)().tolist()
    test = getattr(str, name)
    codes = [ord(a) for a, holds in zip(characters, found, strict=True) if holds != test(a)]
    spans = list[list[int]]()
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(chr(code) for span in spans for code in span)
