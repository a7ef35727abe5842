"""A fitted model's information about its input: the record that lowerings fill while they build a plan.

A lowering names columns of the input by the features of the value that it reads, `x.features`; a value that another
step made has none. The first statement about a feature holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.polars_tables import PolarsTables
from triton_regressors.exporter.lowering.text_columns import TextColumns, made_rows
from triton_regressors.kernels.format.inputs import DateColumn, Inputs, IntegerInput
from triton_regressors.tables.dates import UNITS

Features = Sequence[int]
"""The feature of the model's input that each column of a value is, `[width]`, −1 for none; or empty."""


class Profile:
    """The location of the features of a model's input, the numbers that they take, and those that are strings.

    `location` and `scale` are `[n_features]`, NaN if the model does not say. `choices` are the only numbers that a
    feature takes. `integers` are the features whose choices are whole numbers by their dtype, `booleans` the features
    whose choices are booleans, and `never_floats` the features whose choices the estimator takes only as integers.
    `categories` holds the categories of features that the estimator takes as pandas' categorical columns. `text` are
    the features that are strings; `missing_strings` stand for a missing value in them. `dates` are the features that
    are dates; their location, scale and choices are in microseconds since 1970-01-01 UTC. An export without a sample
    draws rows from this record, and it decides the input's tensors and their types.

    `read` are the features that some estimator or transformer is given. `unread` are the features that are not inputs;
    they are known once the model is lowered.
    `names` are the features' names, if they have any. `dtypes` are those of a sample's columns, if there is one, and
    `kept` those that features have in every table that is asked, because own code may depend on them. `polars` holds
    the types of a sample that is a DataFrame of polars, and `asks_polars` says that own code takes such tables. `given`
    returns the values of a feature in the user's sample, if there is one. `lacking` is the error to raise if the
    estimator alone does not say enough; the record then only says which features are strings.
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
        self.text = TextColumns(missing_strings, n_features)
        self.dates: dict[int, DateColumn] = {}
        self.read: set[int] = set()
        self.unread: frozenset[int] = frozenset()
        self.names: Sequence[str] = ()
        self.dtypes: Sequence[Any] = ()
        self.kept: dict[int, Any] = {}
        self.polars: PolarsTables | None = None
        self.asks_polars = False
        self._given = given
        self.lacking: ExportError | None = None

    @property
    def n_features(self) -> int:
        """The number of features of the input."""
        return len(self.location)

    @property
    def given(self) -> Callable[[int], list[Any]] | None:
        """Return the function of a feature that returns its values in the sample; None without a sample."""
        return None if self._given is None else self._values

    def _values(self, feature: int) -> list[Any]:
        assert self._given is not None
        if feature < self.n_features:
            return self._given(feature)
        return made_rows(self.text.made_of(feature), self._given)

    def note_read(self, features: Features) -> None:
        """Record that an estimator or a transformer is given features."""
        self.read |= {feature for feature in features if 0 <= feature < self.n_features}

    def called(self, features: Features, column: int) -> str:
        """Return the name of a column in messages: the feature's name if it has one, otherwise its number.

        Args:
            features: the features of the value.
            column: a column of the value.
        """
        feature = features[column] if len(features) else -1
        if feature < 0:
            return f"column {column}"
        return f"column '{self.names[feature]}'" if feature < len(self.names) else f"column {feature}"

    def note_scale(self, features: Features, location: ArrayLike, scale: ArrayLike) -> None:
        """Record the location and scale of features that have none yet; a single number applies to all of them."""
        if not len(features):
            return
        for numbers, known in ((location, self.location), (scale, self.scale)):
            given = np.broadcast_to(np.asarray(numbers, dtype=np.float64), (len(features),))
            for feature, number in zip(features, given, strict=True):
                if 0 <= feature < self.n_features and np.isnan(known[feature]) and np.isfinite(number):
                    known[feature] = number

    def note_choices(self, feature: int, numbers: ArrayLike) -> None:
        """Record the only numbers that a feature takes."""
        given = np.asarray(numbers)
        if len(given) and 0 <= feature < self.n_features:
            self.choices.setdefault(feature, given.astype(np.float64))
            if given.dtype.kind in "iu":
                self.integers.add(feature)
            if given.dtype.kind == "b":
                self.booleans.add(feature)

    def note_date(self, feature: int, unit: str, zone: str | None = None) -> None:
        """Record that the estimator takes a feature as dates of this unit, "s", "ms", "us" or "ns".

        `zone` is the name of the dates' time zone as pandas' `tz_convert` takes it; None for dates without one. The
        plan's matrix holds whole microseconds since 1970-01-01 UTC, rounded down, and NaN for NaT.
        """
        if unit not in UNITS:
            raise ValueError(f"the unit of dates must be one of {', '.join(UNITS)}, not {unit!r}")
        if feature >= 0:
            self.dates.setdefault(feature, DateColumn(unit, zone))

    def note_categories(self, feature: int, categories: Sequence[Any]) -> None:
        """Record that the estimator takes a feature as pandas' categorical column, with these among its categories."""
        if feature < self.n_features:
            self.categories[feature] = tuple(dict.fromkeys((*self.categories.get(feature, ()), *categories)))

    def as_categories(self, table: Any) -> Any:
        """Return a table of all features with categorical columns as the estimator takes them, in a DataFrame if any.

        A value outside a column's categories becomes a category of the table's own.
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
        """Name the tensor for these features, unless they have one, in case they are strings."""
        self.text.group(features, name)


def with_integers(
    inputs: Inputs, columns: Sequence[int], dates: Mapping[int, DateColumn] = MappingProxyType({})
) -> Inputs:
    """Return the inputs with these columns of `X` in the tensor of whole numbers; `dates` are those that are dates."""
    if not columns:
        return inputs
    known = inputs.integers
    categories = dict(zip(known.columns, zip(known.categories, known.closed, strict=True), strict=True))
    together = sorted({*categories, *columns})
    kinds = tuple({**inputs.dates, **dates}.get(column) for column in together)
    return dataclasses.replace(
        inputs,
        numeric=tuple(column for column in inputs.numeric if column not in columns),
        categorical=tuple(column for column in inputs.categorical if column not in columns),
        integers=IntegerInput(
            tuple(together),
            tuple(categories.get(column, ((), False))[0] for column in together),
            tuple(categories.get(column, ((), False))[1] for column in together),
            kinds if any(kinds) else None,
        ),
    )
