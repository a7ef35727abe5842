"""Imputation of missing numbers, and indicators of what was missing.

What is missing is NaN, or one number: `missing_values`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.impute._iterative import IterativeImputer  # without the switch that makes it public

from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.estimators.transforms import as_numpy_compares
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.impute_sequence import ImputeSequence
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.linear.affine import Affine

NOTHING = np.zeros(0, dtype=np.int32)


@lowers(SimpleImputer)
def lower_simple_imputer(imputer: SimpleImputer, x: Value, builder: Builder) -> Value:
    """Each column's statistic where a number is missing, without the columns that had no number to learn from."""
    statistics = _statistics(imputer, x, builder)
    kept = _indices(range(x.width) if imputer.keep_empty_features else np.flatnonzero(~np.isnan(statistics)))
    indicators = _indicators(imputer)
    if not len(kept) + len(indicators):
        raise builder.refuse(imputer, "it keeps no feature: it was fitted on columns without a number")
    location = np.nan_to_num(statistics)
    builder.profile.note_scale(x.features, location, np.where(location != 0, np.abs(location), 1.0))
    filled = builder.add(Impute(kept, statistics[kept], indicators, _missing_number(imputer, x, builder)), x)
    if not _are_strings(imputer) or not x.features:
        return filled
    return dataclasses.replace(filled, features=(*filled.holding(x, kept).features, *[-1] * len(indicators)))


@lowers(MissingIndicator)
def lower_missing_indicator(indicator: MissingIndicator, x: Value, builder: Builder) -> Value:
    """One column for each feature with missing numbers in training, or for all: 1 where it is missing, else 0.

    With `error_on_new`, scikit-learn raises an error at a missing number in another feature; here the columns are NaN.
    """
    features, missing = _indices(indicator.features_), _missing_number(indicator, x, builder)
    others = np.setdiff1d(np.arange(x.width), features)
    if not len(features):
        raise builder.refuse(indicator, "it makes no column: no feature had missing values in training")
    if not indicator.error_on_new or not len(others):
        return builder.add(Impute(NOTHING, np.zeros(0), features, missing), x)
    found = np.zeros((x.width, len(features)))
    found[features, np.arange(len(features))] = 1.0
    found[others] = np.nan
    nothing = np.zeros_like(found)
    if missing is None:
        starts, keys, table = np.zeros(x.width + 1, dtype=np.int32), np.zeros(0), [found, nothing]
    else:
        starts, keys, table = _indices(range(x.width + 1)), np.full(x.width, missing), [found, nothing, nothing]
    return builder.add(Lookup(_indices(range(x.width)), starts, keys, np.concatenate(table), summed=True), x)


@lowers(IterativeImputer)
def lower_iterative_imputer(imputer: IterativeImputer, x: Value, builder: Builder) -> Value:
    """A first guess, then the fitted estimators in the order of their fit, each for one column.

    scikit-learn leaves the first guess in a batch in which everything is missing; a row here does not depend on others.
    """
    if imputer.sample_posterior:
        raise builder.refuse(imputer, "sample_posterior is True, which draws its answers at random; supported: False")
    with builder.at("initial_imputer_"):
        z = builder.lower(imputer.initial_imputer_, x)
    sequence = _Sequence(imputer, x, builder)
    for number, (feature, neighbors, estimator) in enumerate(imputer.imputation_sequence_ if imputer.n_iter_ else []):
        if not (imputer.keep_empty_features and imputer._is_empty_feature[feature]):
            with builder.at(f"imputation_sequence_[{number}].estimator"):
                z = sequence.update(z, feature, neighbors, estimator)
    z, indicators = sequence.finish(z), _indicators(imputer)
    if not len(indicators):
        return z
    missing = _missing_number(imputer, x, builder)
    return builder.concatenate([z, builder.add(Impute(NOTHING, np.zeros(0), indicators, missing), x)])


class _Sequence:
    """Adds updates of one column each, as few steps as can be: linear ones in a row are one."""

    def __init__(self, imputer: IterativeImputer, x: Value, builder: Builder) -> None:
        self._imputer, self._x, self._builder = imputer, x, builder
        self._missing = _missing_number(imputer, x, builder)
        dropped = np.zeros(x.width, dtype=bool) if imputer.keep_empty_features else imputer._is_empty_feature
        self._columns = _indices(np.flatnonzero(~dropped))
        self._waiting: list[tuple[int, np.ndarray, float]] = []

    def update(self, z: Value, feature: int, neighbors: np.ndarray, estimator: Any) -> Value:
        """Predict a feature from its neighbors."""
        linear = self._as_affine(neighbors, estimator)
        if linear is None:
            z = self.finish(z)
            y = self._builder.lower(estimator, self._builder.columns(z, neighbors))
            return self._add([(feature, np.zeros(z.width), 0.0)], z, y)
        weight = np.zeros(z.width)
        np.add.at(weight, neighbors, linear.weight[:, 0])
        self._waiting.append((feature, weight, float(linear.intercept[0])))
        return z

    def finish(self, z: Value) -> Value:
        """Add the linear updates that wait."""
        waiting, self._waiting = self._waiting, []
        return self._add(waiting, z) if waiting else z

    def _add(self, updates: list[tuple[int, np.ndarray, float]], z: Value, *y: Value) -> Value:
        targets = _indices([feature for feature, _, _ in updates])
        operation = ImputeSequence(
            self._columns,
            targets,
            np.array([weight for _, weight, _ in updates]),
            np.array([intercept for _, _, intercept in updates]),
            np.asarray(self._imputer._min_value, dtype=np.float64)[targets],
            np.asarray(self._imputer._max_value, dtype=np.float64)[targets],
            self._missing,
        )
        return self._builder.add(operation, self._x, z, *y)

    def _as_affine(self, neighbors: np.ndarray, estimator: Any) -> Affine | None:
        """Return the estimator as one affine map of its neighbors, or None if it is more than that."""
        apart = self._builder.apart(len(neighbors))
        plan = fuse(apart.plan({"y": apart.lower(estimator, apart.input)}))
        only = plan.steps[0].operation if len(plan.steps) == 1 else None
        return only if isinstance(only, Affine) and only.function == "identity" else None


def _missing_number(imputer: Any, x: Value, builder: Builder) -> float | None:
    """Return the number that stands for a missing one, or None for NaN, which pandas' NA and an empty string become."""
    value = imputer.missing_values
    if type(value).__name__ == "NAType" or (value is None and _are_strings(imputer)):
        return None
    if value is None or isinstance(value, str):
        raise builder.refuse(imputer, f"missing_values is {value!r}; supported: NaN and numbers")
    return None if np.isnan(value) else as_numpy_compares(value, x)


def _statistics(imputer: SimpleImputer, x: Value, builder: Builder) -> np.ndarray:
    """Return what each column is filled with, as the dtype of the training data holds it, strings as their numbers."""
    if _are_strings(imputer):
        values = [[imputer.missing_values, value] for value in np.ravel(imputer.statistics_).tolist()]
        return np.array([number_strings(builder, imputer, x, column, pair)[1] for column, pair in enumerate(values)])
    try:
        found = np.asarray(imputer.statistics_, dtype=np.float64)
    except (TypeError, ValueError):
        raise builder.refuse(imputer, "it fills in objects that are not numbers; supported: numbers, strings") from None
    filled = ~np.isnan(found)
    found[filled] = found[filled].astype(imputer._fill_dtype).astype(np.float64)
    return found


def _are_strings(imputer: Any) -> bool:
    """Return whether an imputer fills in strings."""
    statistics = np.asarray(getattr(imputer, "statistics_", 0.0))
    return statistics.dtype.kind in "UT" or any(isinstance(value, str) for value in np.ravel(statistics).tolist())


def _indicators(imputer: Any) -> np.ndarray:
    """Return the features that the imputer adds indicators for."""
    return _indices(imputer.indicator_.features_ if imputer.add_indicator else [])


def _indices(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, dtype=np.int32)
