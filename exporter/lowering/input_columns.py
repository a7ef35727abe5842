"""A fitted model's information about its input: the record that lowerings fill while they build a plan.

A lowering names columns of the input by the features of the value that it reads, `x.features`, which has none where
another step made it. The first statement about a feature holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.text_columns import TextColumns

Features = Sequence[int]
"""The features of the model's input that the columns of a value are, `[width]`, −1 for none; or nothing."""


class Profile:
    """The location of the features of a model's input, the numbers that they take, and those that are strings.

    `location` and `scale` are `[n_features]`, NaN where the model does not say; `choices` are the only numbers that a
    feature takes, `integers` those features whose choices are whole numbers by their dtype, `booleans` those whose
    choices are booleans, and `never_floats` those where the estimator takes these as integers alone. `categories` are
    those of the features that the estimator takes as columns of pandas' categories. `text` are the features that are
    strings; `missing_strings` stand for a missing value in them. Rows are drawn from all this where an export is given
    none, and the input's tensors and their types are chosen by it.

    `read` are the features that some estimator or transformer is given, and `unread` those that are no inputs, which
    are known once the model is lowered.
    `names` are the features' names, if they have any. `given` returns the values of a feature in the user's sample, if
    there is one. `lacking` is what to raise where the estimator alone does not say enough: all that is known then is
    which features are strings.
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
        self.booleans: set[int] = set()
        self.never_floats: set[int] = set()
        self.categories: dict[int, tuple[Any, ...]] = {}
        self.text = TextColumns(missing_strings)
        self.read: set[int] = set()
        self.unread: frozenset[int] = frozenset()
        self.names: Sequence[str] = ()
        self.given = given
        self.lacking: ExportError | None = None

    @property
    def n_features(self) -> int:
        """The number of features of the input."""
        return len(self.location)

    def note_read(self, features: Features) -> None:
        """Record that an estimator or a transformer is given features."""
        self.read |= {feature for feature in features if feature >= 0}

    def called(self, features: Features, column: int) -> str:
        """Return what to call a column of a value with these features: by the feature's name, if it is one with a name.

        Args:
            features: the value's.
            column: a column of the value.
        """
        feature = features[column] if len(features) else -1
        if feature < 0:
            return f"column {column}"
        return f"column '{self.names[feature]}'" if feature < len(self.names) else f"column {feature}"

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
            if given.dtype.kind == "b":
                self.booleans.add(feature)

    def note_categories(self, feature: int, categories: Sequence[Any]) -> None:
        """Record that the estimator takes a feature as a column of pandas' categories, these among them."""
        self.categories[feature] = tuple(dict.fromkeys((*self.categories.get(feature, ()), *categories)))

    def as_categories(self, table: Any) -> Any:
        """Return a table of all features, a DataFrame where pandas' categories are among them, as the estimator's.

        What is none of a column's categories is a category of the table's own.
        """
        if not self.categories:
            return table
        import pandas as pd

        frame = table.copy(deep=False) if hasattr(table, "columns") else pd.DataFrame(table).infer_objects()
        for feature, categories in self.categories.items():
            values = frame.iloc[:, feature]
            if not isinstance(values.dtype, pd.CategoricalDtype):
                known = {category: category for category in categories}
                cells = [known.get(value, value) for value in values.tolist()]
                dtype = pd.CategoricalDtype(dict.fromkeys([*categories, *values.dropna()]))
                frame.isetitem(feature, pd.Series(pd.Categorical(cells, dtype=dtype), index=frame.index))
        return frame

    def name_tensor(self, features: Features, name: str) -> None:
        """Name the tensor that brings these features, unless they have one, in case they are strings."""
        self.text.group(features, name)
