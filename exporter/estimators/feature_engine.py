"""feature_engine's transformers of numbers: imputers, functions, bins, caps, and selections of columns.

They take and return DataFrames. Each changes the columns `variables_` in their places and leaves the others as they
are. Many raise an error at a missing number or one outside a function's domain; a served row's answer is NaN then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import is_classifier

from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.trees import fitted_trees
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import add_pieces, constant_pieces, note_range
from triton_regressors.exporter.lowering.registry import lowers, refuses
from triton_regressors.exporter.lowering.tree_nodes import add_trees, note_thresholds
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.power import Power

NOTHING = np.zeros(0, dtype=np.int32)
ABOVE_ZERO = np.nextafter(0.0, 1.0)

SELECTORS = {
    "drop_constant_features": "DropConstantFeatures",
    "drop_correlated_features": "DropCorrelatedFeatures",
    "drop_duplicate_features": "DropDuplicateFeatures",
    "drop_features": "DropFeatures",
    "drop_psi_features": "DropHighPSIFeatures",
    "information_value": "SelectByInformationValue",
    "mrmr": "MRMR",
    "probe_feature_selection": "ProbeFeatureSelection",
    "recursive_feature_addition": "RecursiveFeatureAddition",
    "recursive_feature_elimination": "RecursiveFeatureElimination",
    "shuffle_features": "SelectByShuffling",
    "single_feature_performance": "SelectBySingleFeaturePerformance",
    "smart_correlation_selection": "SmartCorrelatedSelection",
    "target_mean_selection": "SelectByTargetMeanPerformance",
}
"""The classes that drop columns, by module."""

refuses(
    "it drops rows, and a served row has an answer",
    "Fit the steps behind it on the rows that it keeps, without it in the Pipeline.",
    "feature_engine.imputation.drop_missing_data.DropMissingData",
    "feature_engine.outliers.trimmer.OutlierTrimmer",
)
refuses(
    "it fills in values that it draws at random",
    "Use a MeanMedianImputer or a CategoricalImputer.",
    "feature_engine.imputation.random_sample.RandomSampleImputer",
)


def places(transformer: Any, names: Sequence[Any] | None = None) -> np.ndarray:
    """Return the places of columns among those that a transformer was fitted on, by default of `variables_`."""
    known = list(transformer.feature_names_in_)
    return np.array([known.index(name) for name in (transformer.variables_ if names is None else names)], dtype=int)


def in_place(made: Value, chosen: np.ndarray, x: Value, builder: Builder) -> Value:
    """Return `x` with the columns of `made` in place of the chosen ones."""
    others = np.setdiff1d(np.arange(x.width), chosen)
    together = builder.concatenate([made, builder.columns(x, others)]) if len(others) else made
    return builder.columns(together, np.argsort(np.concatenate([chosen, others])))


def guard_missing(x: Value, columns: ArrayLike, builder: Builder) -> None:
    """Make the answer NaN if one of these columns is missing, where the transformer would raise an error."""
    codes = [Codes(column, np.zeros(0), np.zeros(0), np.nan, 0.0) for column in np.asarray(columns).tolist()]
    if codes:
        builder.guard(lookup(builder, x, codes, summed=True))


# Imputation


@lowers(
    "feature_engine.imputation.mean_median.MeanMedianImputer",
    "feature_engine.imputation.arbitrary_number.ArbitraryNumberImputer",
    "feature_engine.imputation.end_tail.EndTailImputer",
)
def lower_number_imputer(imputer: Any, x: Value, builder: Builder) -> Value:
    """The number of `imputer_dict_` in place of a missing one."""
    chosen = places(imputer, list(imputer.imputer_dict_))
    numbers = np.array(list(imputer.imputer_dict_.values()), dtype=np.float64)
    return impute(x, chosen, numbers, builder)


def impute(x: Value, chosen: np.ndarray, numbers: np.ndarray, builder: Builder, keep: bool = False) -> Value:
    """Return `x` with numbers in place of missing ones in the chosen columns; `keep` says that they stay features."""
    filled = np.full(x.width, np.nan)
    filled[chosen] = numbers
    made = builder.add(Impute(np.arange(x.width, dtype=np.int32), filled, NOTHING, None), x)
    if not keep:
        location = np.where(np.isfinite(filled), filled, np.nan)
        builder.profile.note_scale(x.features, location, np.where(location != 0, np.abs(location), 1.0))
    features = np.array(x.features or [-1] * x.width)
    if not keep:
        features[chosen] = -1
    return dataclasses.replace(made, features=tuple(features.tolist()) if features.max() >= 0 else ())


@lowers("feature_engine.imputation.missing_indicator.AddMissingIndicator")
def lower_missing_indicator(transformer: Any, x: Value, builder: Builder) -> Value:
    """The columns, and behind them one for each of `variables_`: 1 if it is missing, otherwise 0."""
    chosen = places(transformer).astype(np.int32)
    if not len(chosen):
        return x
    return builder.concatenate([x, builder.add(Impute(NOTHING, np.zeros(0), chosen, None), x)])


# Selection


@lowers(*(f"feature_engine.selection.{module}.{name}" for module, name in SELECTORS.items()))
def lower_selector(selector: Any, x: Value, builder: Builder) -> Value:
    """The columns that are not dropped."""
    dropped = set(selector.features_to_drop_)
    kept = [place for place, name in enumerate(selector.feature_names_in_) if name not in dropped]
    if not kept:
        raise builder.refuse(selector, "it keeps no column")
    if x.features:
        builder.profile.text.drop(np.delete(x.features, kept).tolist())
    return builder.columns(x, kept)


# Functions


@lowers("feature_engine.transformation.log.LogTransformer")
def lower_log(transformer: Any, x: Value, builder: Builder) -> Value:
    """The logarithm of each column, with the base e or 10."""
    name, function = ("log", np.log) if transformer.base == "e" else ("log10", np.log10)
    return _each(transformer, x, builder, lambda part: builder.elementwise(part, name), function, above=ABOVE_ZERO)


@lowers("feature_engine.transformation.log.LogCpTransformer")
def lower_log_of_sum(transformer: Any, x: Value, builder: Builder) -> Value:
    """The logarithm of each column and a constant, with the base e or 10."""
    name, function = ("log", np.log) if transformer.base == "e" else ("log10", np.log10)
    added = transformer.C_
    constants = np.array([added[v] for v in transformer.variables_] if isinstance(added, dict) else added, dtype=float)
    return _each(
        transformer,
        x,
        builder,
        lambda part: builder.elementwise(builder.scale(part, -constants, 1.0), name),
        lambda X: function(X + constants),
        above=np.nextafter(-constants, np.inf),
    )


@lowers("feature_engine.transformation.reciprocal.ReciprocalTransformer")
def lower_reciprocal(transformer: Any, x: Value, builder: Builder) -> Value:
    """1 divided by each column, which must not be zero."""
    chosen = places(transformer)
    codes = [Codes(column, np.zeros(1), np.full(1, np.nan), np.nan, 0.0) for column in chosen.tolist()]
    builder.guard(lookup(builder, x, codes, summed=True))
    return _each(transformer, x, builder, lambda part: builder.elementwise(part, "reciprocal"), None)


@lowers("feature_engine.transformation.arcsin.ArcsinTransformer")
def lower_arcsin(transformer: Any, x: Value, builder: Builder) -> Value:
    """The arcsine of each column's square root."""
    return _each(
        transformer,
        x,
        builder,
        lambda part: builder.elementwise(builder.elementwise(part, "sqrt"), "arcsin"),
        lambda X: np.arcsin(np.sqrt(X)),
        above=0.0,
        below=np.nextafter(1.0, 2.0),
    )


@lowers("feature_engine.transformation.arcsinh.ArcSinhTransformer")
def lower_arcsinh(transformer: Any, x: Value, builder: Builder) -> Value:
    """The inverse hyperbolic sine of `(x − loc) / scale`."""
    loc, scale = float(transformer.loc), float(transformer.scale)
    return _each(
        transformer,
        x,
        builder,
        lambda part: builder.elementwise(builder.divide(part, loc, scale), "arcsinh"),
        lambda X: np.arcsinh((X - loc) / scale),
    )


@lowers("feature_engine.transformation.power.PowerTransformer")
def lower_power(transformer: Any, x: Value, builder: Builder) -> Value:
    """Each column to the power of `exp`."""
    power = Combine("sum", exponent=float(transformer.exp))
    if power.exponent != round(power.exponent):
        part = builder.columns(x, places(transformer))
        note_range(builder, part, np.full(part.width, ABOVE_ZERO), np.full(part.width, 6.0), within=True)
    return _each(transformer, x, builder, lambda part: builder.add(power, part), None)


@lowers("feature_engine.transformation.boxcox.BoxCoxTransformer")
def lower_box_cox(transformer: Any, x: Value, builder: Builder) -> Value:
    """The transform of Box and Cox of each column."""
    return _power_transform(transformer, "box-cox", stats.boxcox, x, builder, above=ABOVE_ZERO)


@lowers("feature_engine.transformation.yeojohnson.YeoJohnsonTransformer")
def lower_yeo_johnson(transformer: Any, x: Value, builder: Builder) -> Value:
    """The transform of Yeo and Johnson of each column."""
    return _power_transform(transformer, "yeo-johnson", stats.yeojohnson, x, builder)


def _power_transform(
    transformer: Any, method: str, function: Any, x: Value, builder: Builder, above: float | None = None
) -> Value:
    powers = np.array([transformer.lambda_dict_[name] for name in transformer.variables_], dtype=np.float64)
    return _each(
        transformer,
        x,
        builder,
        lambda part: builder.add(Power(powers, 2.0 - powers, method), part),
        lambda X: np.stack([function(column, lmbda) for column, lmbda in zip(X.T, powers, strict=True)], axis=1),
        above,
    )


@lowers("feature_engine.scaling.mean_normalization.MeanNormalizationScaler")
def lower_mean_normalization(scaler: Any, x: Value, builder: Builder) -> Value:
    """Each column without its mean, divided by its range."""
    mean, width = (np.array([of[name] for name in scaler.variables_]) for of in (scaler.mean_, scaler.range_))
    builder.profile.note_scale(builder.columns(x, places(scaler)).features, mean, width / 4)
    return _each(scaler, x, builder, lambda part: builder.divide(part, mean, width), None)


def _each(
    transformer: Any,
    x: Value,
    builder: Builder,
    make: Callable[[Value], Value],
    function: Callable[[np.ndarray], np.ndarray] | None,
    above: ArrayLike | None = None,
    below: float = np.inf,
) -> Value:
    """Return `x` with a function of the transformer's columns in their places.

    Args:
        transformer: the transformer, which raises an error at a missing number.
        x: the value that it reads.
        builder: the builder of the plan.
        make: adds the function to the plan.
        function: the same in NumPy, if the two may differ in the last bits.
        above: the smallest number of the function's domain, or one for each column.
        below: the first number beyond the domain.
    """
    chosen = places(transformer)
    part = builder.columns(x, chosen)
    if above is None:
        guard_missing(x, chosen, builder)
    else:
        lowest = np.broadcast_to(np.asarray(above, dtype=np.float64), (len(chosen),))
        note_range(builder, part, lowest, lowest + (5.0 if below == np.inf else 1.0), within=True)
        _guard_range(part, lowest.tolist(), [below] * len(chosen), builder)
    z = make(part)
    if function is not None:
        z = builder.computed(z, part, function, transformer)
    return in_place(z, chosen, x, builder)


# Caps


@lowers(
    "feature_engine.outliers.winsorizer.Winsorizer",
    "feature_engine.outliers.artbitrary.ArbitraryOutlierCapper",
)
def lower_winsorizer(capper: Any, x: Value, builder: Builder) -> Value:
    """Each column within its caps; with `add_indicators` also what was beyond them."""
    chosen = places(capper)
    tails = capper.left_tail_caps_, capper.right_tail_caps_
    lows, highs = ([caps.get(name) for name in capper.variables_] for caps in tails)
    part = builder.columns(x, chosen)
    known = [0.0 if low is None else low for low in lows], [0.0 if high is None else high for high in highs]
    note_range(builder, part, *known)
    if capper.missing_values == "raise":
        guard_missing(x, chosen, builder)
    capped = [
        builder.elementwise(builder.columns(part, [column]), "identity", *(_optional(cap) for cap in caps))
        for column, caps in enumerate(zip(lows, highs, strict=True))
    ]
    z = in_place(builder.concatenate(capped), chosen, x, builder)
    if not getattr(capper, "add_indicators", False):
        return z
    source: list[int] = []
    functions = []
    for column, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if low is not None:
            functions.append(constant_pieces([low], [1.0, 0.0]))
        if high is not None:
            functions.append(constant_pieces([np.nextafter(high, np.inf)], [0.0, 1.0]))
        source += [column] * (len(functions) - len(source))
    return builder.concatenate([z, add_pieces(builder, part, source, functions, nan_is_zero=True)])


def _optional(cap: Any) -> float | None:
    return None if cap is None else float(cap)


# Bins


@lowers(
    "feature_engine.discretisation.arbitrary.ArbitraryDiscretiser",
    "feature_engine.discretisation.equal_frequency.EqualFrequencyDiscretiser",
    "feature_engine.discretisation.equal_width.EqualWidthDiscretiser",
    "feature_engine.discretisation.geometric_width.GeometricWidthDiscretiser",
)
def lower_discretiser(discretiser: Any, x: Value, builder: Builder) -> Value:
    """The number of the bin that holds each column's number; bins include their upper edge."""
    if discretiser.return_boundaries:
        raise builder.refuse(
            discretiser, "return_boundaries=True makes strings of numbers; supported: the numbers of the bins"
        )
    return _bins(discretiser, getattr(discretiser, "errors", "ignore") == "raise", x, builder)


@lowers("feature_engine.discretisation.decision_tree.DecisionTreeDiscretiser")
def lower_tree_discretiser(discretiser: Any, x: Value, builder: Builder) -> Value:
    """The prediction of each column's own tree, rounded to `precision` digits, or the number of an interval."""
    if discretiser.bin_output == "boundaries":
        raise builder.refuse(
            discretiser, "bin_output='boundaries' makes strings of numbers; supported: 'prediction', 'bin_number'"
        )
    if discretiser.bin_output == "bin_number":
        return _bins(discretiser, False, x, builder)
    chosen = places(discretiser)
    guard_missing(x, chosen, builder)
    fitted = [discretiser.binner_dict_[name].best_estimator_ for name in discretiser.variables_]
    trees = fitted_trees(fitted)
    value = trees.value
    if is_classifier(fitted[0]):
        leaves = [tree.tree_.value[tree.tree_.children_left < 0, 0] for tree in fitted]
        value = np.concatenate([counts[:, 1] / counts.sum(axis=1) for counts in leaves])[:, None]
    if discretiser.precision is not None:
        value = np.round(value, discretiser.precision)
    trees = dataclasses.replace(trees, feature=np.repeat(chosen, trees.sizes), value=value)
    note_thresholds(trees, x, builder)
    return in_place(add_trees(trees, x, builder, output="each"), chosen, x, builder)


def _bins(discretiser: Any, closed: bool, x: Value, builder: Builder) -> Value:
    """Return `x` with bin numbers in place; `closed` says that a number outside the bins is an error."""
    chosen = places(discretiser)
    guard_missing(x, chosen, builder)
    part, functions = builder.columns(x, chosen), []
    edges = [np.asarray(discretiser.binner_dict_[name], dtype=np.float64) for name in discretiser.variables_]
    finite = [each[np.isfinite(each)] for each in edges]
    low, high = ([each[end] if len(each) else 0.0 for each in finite] for end in (0, -1))
    note_range(builder, part, low, high, within=True)
    for each in edges:
        starts = np.concatenate([each[:1], np.nextafter(each[1:], np.inf)])  # the first bin has its lower edge too
        values = np.concatenate([[np.nan], np.arange(len(each) - 1, dtype=np.float64), [np.nan]])
        first, last = int(starts[0] == -np.inf), len(starts) - int(starts[-1] == np.inf)
        functions.append(constant_pieces(starts[first:last], values[first : last + 1]))
    if closed:
        _guard_range(part, [each[0] for each in edges], [np.nextafter(each[-1], np.inf) for each in edges], builder)
    return in_place(add_pieces(builder, part, np.arange(len(chosen)), functions), chosen, x, builder)


def _guard_range(part: Value, above: Sequence[float], below: Sequence[float], builder: Builder) -> None:
    """Make the answer NaN unless each column lies in its range, from `above` up to, but without, `below`."""
    inside = []
    for low, high in zip(above, below, strict=True):
        edges = [edge for edge in (low, high) if np.isfinite(edge)]
        values = [np.nan] * bool(np.isfinite(low)) + [0.0] + [np.nan] * bool(np.isfinite(high))
        inside.append(constant_pieces(edges, values))
    outside = add_pieces(builder, part, np.arange(part.width), inside)
    builder.guard(builder.affine(outside, np.ones(part.width), 0.0))


# scikit-learn's transformers


@lowers("feature_engine.wrappers.wrappers.SklearnTransformerWrapper")
def lower_wrapper(wrapper: Any, x: Value, builder: Builder) -> Value:
    """The columns that scikit-learn's transformer makes in place of its own, or behind the others if it makes more."""
    if hasattr(wrapper, "features_to_drop_"):
        return lower_selector(wrapper, x, builder)
    chosen, name = places(wrapper), type(wrapper.transformer_).__name__
    with builder.at("transformer_"):
        z = builder.lower_transform(wrapper.transformer_, builder.columns(x, chosen))
    if name not in ("OneHotEncoder", "PolynomialFeatures"):
        return in_place(z, chosen, x, builder)
    others = np.setdiff1d(np.arange(x.width), chosen)
    return builder.concatenate([builder.columns(x, others), z]) if len(others) else z
