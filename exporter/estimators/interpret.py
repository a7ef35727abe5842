"""InterpretML's explainable boosting machines: sums of tables, each indexed by the bins of one or more features.

Bin 0 of a feature holds missing values and the last bin unknown categories. Those between are the categories, or lie
between the cuts of a continuous feature. Pairs of features may have fewer bins than the features alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import add_pieces, constant_pieces, note_range
from triton_regressors.exporter.lowering.registry import lowers

FUNCTIONS = {"identity": "identity", "log": "exp"}
"""The function of the sum, by link."""


@lowers("interpret.glassbox._ebm._ebm.ExplainableBoostingRegressor")
def lower_explainable_boosting(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = f(intercept + Σₜ scoresₜ[bins of the term's features])`; the inverse link `f` is exp or the identity."""
    if estimator.link_ not in FUNCTIONS:
        raise builder.refuse(estimator, f"its link is '{estimator.link_}'; supported: 'identity', 'log'")
    bounds = np.asarray(estimator.feature_bounds_, dtype=np.float64)
    note_range(builder, x, bounds[:, 0], bounds[:, 1])
    bins = _Bins(estimator, x, builder)
    tables = [np.asarray(table, dtype=np.float64) for table in estimator.term_scores_]
    terms = list(zip(map(tuple, estimator.term_features_), tables, strict=True))
    alone = [((*term, 0), table) for term, table in terms if len(term) == 1]
    joint = [(term, table) for term, table in terms if len(term) > 1]
    values = bins.look_up(alone) if alone else []
    if joint:
        values.append(_joint_tables(bins, joint, builder))
    z = builder.concatenate(values) if values else x
    weight = np.ones(z.width) if values else np.zeros(z.width)
    return builder.affine(z, weight, np.ravel(estimator.intercept_)[:1], FUNCTIONS[estimator.link_])


class _Bins:
    """The bins of a machine's features. A feature has a list of them: the first for itself, the others for pairs."""

    def __init__(self, estimator: Any, x: Value, builder: Builder) -> None:
        self._bins, self._x, self._builder = estimator.bins_, x, builder
        self._keys = {
            feature: self._category_keys(estimator, feature)
            for feature, kind in enumerate(estimator.feature_types_in_)
            if kind != "continuous"
        }

    def of_term(self, feature: int, features: int) -> tuple[int, int]:
        """Return a feature, and which of its bins a term of so many features has."""
        return feature, min(len(self._bins[feature]), features) - 1

    def is_categorical(self, feature: int) -> bool:
        """Return whether a feature's bins are categories."""
        return feature in self._keys

    def look_up(self, tables: Sequence[tuple[tuple[int, int], np.ndarray]]) -> list[Value]:
        """Return a column for each table, continuous features first, and one more if they score missing numbers.

        Args:
            tables: a feature, which of its bins, and a number for each of these, `[bins]`.
        """
        continuous = [(self._bins[f][level], f, table) for (f, level), table in tables if f not in self._keys]
        values = []
        if continuous:
            source, pieces = zip(*((f, constant_pieces(cuts, t[1:-1])) for cuts, f, t in continuous), strict=True)
            values.append(add_pieces(self._builder, self._x, source, pieces, nan_is_zero=True))
        codes = [self._codes(f, self._bins[f][level], table) for (f, level), table in tables if f in self._keys]
        if codes:
            values.append(lookup(self._builder, self._x, codes))
        missing = [Codes(f, np.zeros(0), np.zeros(0), table[0], 0.0) for _, f, table in continuous if table[0]]
        if missing:
            values.append(lookup(self._builder, self._x, missing, summed=True))
        return values

    def _codes(self, feature: int, bins: dict[str, int], table: np.ndarray) -> Codes:
        numbers = self._keys[feature]
        keys, first = np.unique([numbers[category] for category in bins], return_index=True)
        values = table[np.array(list(bins.values()), dtype=np.int64)[first]] if bins else np.zeros(0)
        return Codes(feature, keys, values, table[0], table[-1])

    def _category_keys(self, estimator: Any, feature: int) -> dict[str, float]:
        """Return the plan's number for each category of a feature; InterpretML keeps numbers as strings."""
        categories = list(dict.fromkeys(category for level in self._bins[feature] for category in level))
        if self._are_strings(feature, categories):
            numbers = number_strings(self._builder, estimator, self._x, feature, categories)
        else:
            numbers = np.array([float(category) for category in categories])
            if self._x.features:
                self._builder.profile.note_choices(self._x.features[feature], numbers)
        return dict(zip(categories, numbers.tolist(), strict=True))

    def _are_strings(self, feature: int, categories: Sequence[str]) -> bool:
        """Return whether a column holds strings: it has a category that is no number, or the sample says it."""
        try:
            numbers = [float(category) for category in categories]
        except ValueError:
            return True
        place = self._x.features[feature] if self._x.features else -1
        given = self._builder.profile.given
        if given is None or place < 0:
            return not numbers
        try:
            return any(isinstance(value, str) for value in given(place))
        except (IndexError, KeyError):
            return False


def _joint_tables(bins: _Bins, terms: Sequence[tuple[tuple[int, ...], np.ndarray]], builder: Builder) -> Value:
    """Return the sum of tables of several features each: the features' bins make one place in the table."""
    sizes: dict[tuple[int, int], int] = {}
    for term, table in terms:
        sizes |= {bins.of_term(feature, len(term)): size for feature, size in zip(term, table.shape, strict=True)}
    used = sorted(sizes, key=lambda each: (bins.is_categorical(each[0]), each))
    strides = np.zeros((len(used), len(terms)))
    for column, (term, table) in enumerate(terms):
        for axis, feature in enumerate(term):
            strides[used.index(bins.of_term(feature, len(term))), column] += np.prod(table.shape[axis + 1 :])
    numbers = builder.concatenate(bins.look_up([(each, np.arange(sizes[each], dtype=np.float64)) for each in used]))
    codes = [
        Codes(column, np.arange(table.size, dtype=np.float64), table.ravel(), np.nan, np.nan)
        for column, (_, table) in enumerate(terms)
    ]
    return lookup(builder, builder.affine(numbers, strides, 0.0), codes, summed=True)
