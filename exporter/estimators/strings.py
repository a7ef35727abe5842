"""Categories that a plan knows by numbers of its own: strings, and whole numbers that float64 does not tell apart.

See `exporter/text.py`. They must be features of the model's input, since no step makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value


def number_strings(builder: Builder, estimator: Any, x: Value, column: int, values: Sequence[Any]) -> np.ndarray:
    """Return the numbers that the plan has for strings of a column of `x`, NaN for a missing one."""
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


def number_integers(builder: Builder, estimator: Any, x: Value, column: int, integers: np.ndarray) -> np.ndarray:
    """Return the numbers that the plan has for whole numbers of a column of `x` that float64 does not hold."""
    if not x.features or x.features[column] < 0:
        called = builder.profile.called(x.features, column)
        reason = f"{called}, which another step makes, has categories beyond 2⁵³ that float64 merges"
        raise builder.refuse(estimator, reason)
    return builder.profile.text.places(x.features[column], integers.tolist())


def refuse_unknown(builder: Builder, x: Value, column: int) -> None:
    """Have requests refused that hold another category than those that were numbered in a column of `x`."""
    builder.profile.text.close(x.features[column])
