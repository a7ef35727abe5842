"""Categories that a plan replaces by numbers of its own: strings, and whole numbers that float64 cannot tell apart.

See `exporter/lowering/text_columns.py`. They are features of the model's input, or strings that own code makes of such.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.tracing.texts import is_whole
from triton_regressors.tables.values import is_missing


class MadeStrings(tuple[str, ...]):
    """The strings that own code makes of known ones, in the order of their numbers.

    `sources` are the features of the model's input whose other strings the code may hand on as they are. `digits` says
    that it writes whole numbers as text.
    """

    sources: tuple[int, ...]
    digits: bool

    def __new__(cls, strings: Sequence[str], sources: Iterable[int] = (), digits: bool = False) -> MadeStrings:
        """Return the strings."""
        made = super().__new__(cls, strings)
        made.sources, made.digits = tuple(sources), digits
        return made


def number_strings(builder: Builder, estimator: Any, x: Value, column: int, values: Sequence[Any]) -> np.ndarray:
    """Return the plan's numbers for strings of a column of `x`, NaN for a missing one."""
    made = x.strings[column] if x.strings else None
    if made is not None:
        know(builder, made, values)
        return _numbers_of_made(made, values)
    if not x.features or x.features[column] < 0:
        raise builder.refuse(estimator, "it reads strings that another step makes; supported: strings of the input")
    feature, text = x.features[column], builder.profile.text
    if builder.place:
        text.group([feature], builder.place)
    try:
        return text.numbers(feature, values)
    except ValueError as error:
        raise builder.refuse(
            estimator, f"{builder.profile.called(x.features, column)} holds {error}; supported: strings, or numbers"
        ) from None


def know(builder: Builder, made: Sequence[str], values: Iterable[Any]) -> None:
    """Have strings known that own code may hand on and has not made of known ones: the model is then lowered again."""
    others = [str(value) for value in values if isinstance(value, str) and value not in made]
    if isinstance(made, MadeStrings) and others:
        for source in made.sources:
            builder.profile.text.numbers(source, others)
        if made.digits:
            builder.profile.text.digits.update(dict.fromkeys(filter(is_whole, others)))


def _numbers_of_made(made: Sequence[str], values: Sequence[Any]) -> np.ndarray:
    """Return the numbers of strings that own code makes; a string that it never makes has one that no row holds."""
    known = {text: float(number) for number, text in enumerate(made)}
    others = itertools.count(len(made))
    return np.array(
        [np.nan if is_missing(value) else known.get(value, float(next(others))) for value in values], dtype=np.float64
    )


def number_integers(builder: Builder, estimator: Any, x: Value, column: int, integers: np.ndarray) -> np.ndarray:
    """Return the plan's numbers for whole numbers of a column of `x` that float64 cannot hold."""
    if not x.features or x.features[column] < 0:
        called = builder.profile.called(x.features, column)
        reason = f"{called}, which another step makes, has categories beyond 2⁵³ that float64 merges"
        raise builder.refuse(estimator, reason)
    return builder.profile.text.places(x.features[column], integers.tolist())


def refuse_unknown(builder: Builder, x: Value, column: int) -> None:
    """Have requests refused that hold a category without a number in a column of `x`."""
    if not (x.strings and x.strings[column] is not None):
        builder.profile.text.close(x.features[column])
