"""Steps of strings against pandas' own methods, on strings of every kind that pandas' two stores tell apart."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from triton_regressors.exporter.tracing.text_methods import (
    ARROW,
    CASED,
    CONTEXTUAL,
    in_arrow,
    is_arrow,
    literal,
    step_of,
)
from triton_regressors.kernels.format.text_steps import CASES, TESTS, TextStep, function

METHODS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    **{name: (name, (), {}) for name in (*CASES, *TESTS, "casefold", "len", "strip", "lstrip", "rstrip")},
    **{name: (name, (), {}) for name in ("isupper", "islower", "istitle")},
    "strip characters": ("strip", ("ab\u00a0",), {}),
    "lstrip characters": ("lstrip", (), {"to_strip": "ßİ "}),
    "rstrip characters": ("rstrip", ("ß",), {}),
    "removeprefix": ("removeprefix", ("a",), {}),
    "removesuffix": ("removesuffix", ("ß",), {}),
    "startswith": ("startswith", ("a",), {}),
    "endswith": ("endswith", ("\u0308",), {}),
    "contains": ("contains", ("ab",), {}),
    "contains an escaped dot": ("contains", (r"\.",), {}),
    "contains no regex": ("contains", (".",), {"regex": False}),
    "count": ("count", ("a",), {}),
    "replace": ("replace", ("a", "ßx"), {}),
    "replace by nothing": ("replace", (".", ""), {"regex": False}),
    "replace a plain regex": ("replace", ("ab", ""), {"regex": True}),
    "find": ("find", ("b",), {}),
    "rfind": ("rfind", ("b",), {}),
    "slice": ("slice", (1, -1), {}),
    "slice by steps": ("slice", (), {"start": 4, "step": -2}),
    "brackets": ("[]", (slice(None, 2),), {}),
    "brackets from the end": ("[]", (slice(-2, None),), {}),
    "first": ("[]", (0,), {}),
    "last": ("get", (-1,), {}),
    "third": ("get", (2,), {}),
    "zfill": ("zfill", (4,), {}),
    "pad": ("pad", (4,), {}),
    "ljust": ("ljust", (4, "ß"), {}),
    "rjust": ("rjust", (4,), {}),
    "center": ("center", (5, "*"), {}),
    "center in even widths": ("center", (4, "*"), {}),
}
SPLITS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "by whitespace": ("split", (), {}),
    "by whitespace once": ("split", (), {"n": 1}),
    "by a character": ("split", (".",), {}),
    "by a string": ("split", ("ab",), {"n": 1}),
    "by an escaped dot": ("split", (r"\. ",), {}),
    "no regex": ("split", (". ",), {"regex": False}),
    "from the right": ("rsplit", (".",), {"n": 1}),
    "from the right by whitespace": ("rsplit", (), {"n": 1}),
}
CHARACTERS = "aAbB .,-+_0123\u00a0\u2003\u200b\x1c\x85\t\nßẞİıŉǆǅΣσςée\u0301\u0308ªʰ²½٣Ⅷ𝐀𐐀\u1c89\ua7cb😀日"
TEXTS = st.lists(st.text(st.one_of(st.sampled_from(CHARACTERS), st.characters(codec="utf-8"))) | st.none(), max_size=20)
DTYPES = ("object", "str", "string[python]", "string[pyarrow]")


def _called(series: Any, method: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
    name, args, kwargs = method
    return series.str[args[0]] if name == "[]" else getattr(series.str, name)(*args, **kwargs)


def _check(texts: list[str | None], results: Any, step: TextStep) -> None:
    """Compare a step with pandas' results for strings that are not missing."""
    does = function(step)
    for text, result in zip(texts, results.tolist(), strict=True):
        if text is not None:
            made = does(text)
            same = pd.isna(result) if made is None else type(result)(made) == result
            assert same, (step.name, text, made, result)


@pytest.mark.parametrize("dtype", DTYPES)
@given(texts=TEXTS)
def test_steps_do_what_pandas_does(dtype: str, texts: list[str | None]) -> None:
    series = pd.Series([*texts, "a"], dtype=dtype)  # an empty column of objects has no .str
    for method in METHODS.values():
        step = step_of(*method)
        assert step is not None
        found = in_arrow(step) if is_arrow(dtype) else step
        if found is None:
            assert method[0] in CONTEXTUAL
        else:
            _check([*texts, "a"], _called(series, method), TextStep(found[0], (0,), found[1]))


@pytest.mark.parametrize("dtype", DTYPES)
@given(texts=TEXTS, place=st.integers(-3, 3))
def test_parts_are_what_pandas_splits(dtype: str, texts: list[str | None], place: int) -> None:
    given_texts = pd.Series([*texts, "a"], dtype=dtype)
    for method in SPLITS.values():
        step = step_of(*method)
        assert step is not None
        name = {"split": "part", "rsplit": "part_from_right"}[step[0]]
        found = TextStep(name, (0,), (*step[1], place))
        _check([*texts, "a"], _called(given_texts, method).str[place], found)


@pytest.mark.parametrize("name", [*CASES, *TESTS])
def test_each_character_is_what_arrow_makes_of_it(name: str) -> None:
    characters = [chr(code) for code in CASED if not 0xD800 <= code < 0xE000]
    step = in_arrow((name, ()))
    assert step is not None
    does = function(TextStep(step[0], (0,), step[1]))
    for before, after in (("", ""), ("a", "b")):
        words = [before + character + after for character in characters]
        found = getattr(pd.Series(words, dtype=ARROW).str, name)().tolist()
        wrong = [(word, does(word), made) for word, made in zip(words, found, strict=True) if does(word) != made]
        assert not wrong, wrong[:5]


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("contains", ("a.c",), {}),
        ("contains", ("a",), {"case": False}),
        ("contains", ("",), {}),
        ("replace", ("a", r"\0"), {"regex": True}),
        ("replace", ("a", str.upper), {"regex": True}),
        ("replace", ("a", "b"), {"n": 1}),
        ("split", ("[, ]+",), {}),
        ("split", ("",), {}),
        ("startswith", (("a", "b"),), {}),
        ("extract", ("(a)",), {}),
        ("count", ("a|b",), {}),
        ("find", ("a", 3), {}),
        ("get", ("a",), {}),
        ("pad", (3,), {"fillchar": "ab"}),
        ("translate", ({},), {}),
        ("lower", (1, 2), {}),
    ],
)
def test_what_no_step_does_is_none(name: str, args: Any, kwargs: Any) -> None:
    assert step_of(name, args, kwargs) is None


@given(st.text(alphabet="ab.\\|(", max_size=6))
def test_a_literal_pattern_matches_itself_alone(pattern: str) -> None:
    import re

    found = literal(pattern)
    if found is not None:
        assert re.fullmatch(pattern, found)
        assert np.array(re.findall(pattern, f"x{found}y")).tolist() == [found]
