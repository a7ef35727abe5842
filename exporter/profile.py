"""What a fitted model says of its input: the record that lowerings fill while they build a plan.

A lowering names columns of the input by the features of the value that it reads, `x.features`, which has none where
another step made it. What is said first of a feature holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.text import TextColumns

Features = Sequence[int]
"""The features of the model's input that the columns of a value are, `[width]`, −1 for none; or nothing."""


class Profile:
    """Where the features of a model's input lie, which numbers they take, and which are strings.

    `location` and `scale` are `[n_features]`, NaN where the model does not say; `choices` are the only numbers that a
    feature takes, `integers` those features whose choices are whole numbers by their dtype, and `never_floats` those
    where the estimator takes these as integers alone. `text` are the features that are strings; `missing_strings` stand
    for a missing value in them. Rows are drawn from all this where an export is given none, and the input's tensors and
    their types are chosen by it.

    `given` returns the values of a feature in the user's sample, if there is one. `lacking` is what to raise where the
    estimator alone does not say enough: all that is known then is which features are strings.
    """

    def __init__(
        self,
        n_features: int,
        missing_strings: Sequence[str] = (),
        given: Callable[[int], list[Any]] | None = None,
    ) -> None:
        self.location = np.full(n_features, np.nan)
        self.scale = np.full(n_features, np.nan)
        self.choices: dict[int, np.ndarray] = {}
        self.integers: set[int] = set()
        self.never_floats: set[int] = set()
        self.text = TextColumns(missing_strings)
        self.given = given
        self.lacking: ExportError | None = None

    @property
    def n_features(self) -> int:
        """How many features the input has."""
        return len(self.location)

    def note_scale(self, features: Features, location: ArrayLike, scale: ArrayLike) -> None:
        """Record where features lie, those that are not yet known; numbers stand for all of them."""
        if not len(features):
            return
        for numbers, known in ((location, self.location), (scale, self.scale)):
            given = np.broadcast_to(np.asarray(numbers, dtype=np.float64), (len(features),))
            for feature, number in zip(features, given, strict=True):
                if feature >= 0 and np.isnan(known[feature]) and np.isfinite(number):
                    known[feature] = number

    def note_choices(self, feature: int, numbers: ArrayLike) -> None:
        """Record the only numbers that a feature takes."""
        given = np.asarray(numbers)
        if len(given) and feature >= 0:
            self.choices.setdefault(feature, given.astype(np.float64))
            if given.dtype.kind in "iu":
                self.integers.add(feature)

    def name_tensor(self, features: Features, name: str) -> None:
        """Name the tensor that brings these features, unless they have one, in case they are strings."""
        self.text.group(features, name)
