"""feature_engine's transformers that make columns of others: of dates, of numbers, and of strings.

Each puts its columns behind those of the table, and drops what they are made of with `drop_original`. Most are written
here as functions of a DataFrame and traced, see `exporter/tracing/trace.py`, so that they have pandas' own rules.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.category_tables import tabulate_strings
from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.feature_engine import ABOVE_ZERO, guard_missing, places
from triton_regressors.exporter.estimators.own_code import column_kind, lower_function
from triton_regressors.exporter.estimators.trees import fitted_trees
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import note_range
from triton_regressors.exporter.lowering.registry import lowers, refuses
from triton_regressors.exporter.lowering.tree_nodes import add_trees, note_thresholds
from triton_regressors.exporter.tracing.expressions import DATE
from triton_regressors.exporter.tracing.trace import NotTraced

refuses(
    "it makes numbers of other rows of the table, and an entry answers each row alone",
    "Send such numbers as columns of the row: export the steps behind it, pipeline[k:], and send "
    "pipeline[:k].transform(rows).",
    "feature_engine.timeseries.forecasting.expanding_window_features.ExpandingWindowFeatures",
    "feature_engine.timeseries.forecasting.lag_features.LagFeatures",
    "feature_engine.timeseries.forecasting.window_features.WindowFeatures",
)

DATE_FEATURES: dict[str, Callable[[Any], Any]] = {
    "month": lambda date: date.dt.month,
    "quarter": lambda date: date.dt.quarter,
    "semester": lambda date: np.where(date.dt.month <= 6, 1, 2),
    "year": lambda date: date.dt.year,
    "week": lambda date: date.dt.isocalendar().week,
    "day_of_week": lambda date: date.dt.dayofweek,
    "day_of_month": lambda date: date.dt.day,
    "day_of_year": lambda date: date.dt.dayofyear,
    "weekend": lambda date: np.where(date.dt.dayofweek <= 4, 0, 1),
    "month_start": lambda date: date.dt.is_month_start.astype(np.int64),
    "month_end": lambda date: date.dt.is_month_end.astype(np.int64),
    "quarter_start": lambda date: date.dt.is_quarter_start.astype(np.int64),
    "quarter_end": lambda date: date.dt.is_quarter_end.astype(np.int64),
    "year_start": lambda date: date.dt.is_year_start.astype(np.int64),
    "year_end": lambda date: date.dt.is_year_end.astype(np.int64),
    "leap_year": lambda date: date.dt.is_leap_year.astype(np.int64),
    "days_in_month": lambda date: date.dt.days_in_month,
    "hour": lambda date: date.dt.hour,
    "minute": lambda date: date.dt.minute,
    "second": lambda date: date.dt.second,
}
"""The numbers that DatetimeFeatures makes of a date."""

REFUSING_NAT = ("week", "days_in_month")
"""Those of them at which a missing date is an error."""

FIRST_ORDINAL = 719_163
"""`datetime.date(1970, 1, 1).toordinal()`."""


def _traced(make: Callable[[Any], dict[Any, Any]], transformer: Any, x: Value, builder: Builder) -> Value:
    """Return the columns of `x`, and behind them those that a function makes of the DataFrame.

    With `drop_original` the columns that the transformer reads are left out.
    """
    read = [*transformer.variables_, *_references(transformer)] if transformer.drop_original else []
    if x.features and read:
        builder.profile.text.drop(np.array(x.features)[places(transformer, list(dict.fromkeys(read)))].tolist())

    def function(table: Any) -> Any:
        made = table.assign(**make(table))
        return made.drop(columns=list(dict.fromkeys(read))) if read else made

    builder.profile.note_read(x.features)
    try:
        return lower_function(function, transformer, x, builder, tuple(transformer.feature_names_in_))
    except NotTraced as error:
        raise builder.refuse(transformer, str(error)) from error


def _references(transformer: Any) -> list[Any]:
    """Return the columns that a transformer compares its variables with."""
    found = getattr(transformer, "reference_", getattr(transformer, "reference", None))
    return [] if found is None else [found] if isinstance(found, str | int) else list(found)


def _guard(transformer: Any, x: Value, builder: Builder, names: Sequence[Any] | None = None) -> None:
    """Make the answer NaN where the transformer raises an error: at a missing value."""
    read = [*transformer.variables_, *_references(transformer)] if names is None else names
    guard_missing(x, places(transformer, list(dict.fromkeys(read))), builder)


# Dates


@lowers("feature_engine.datetime.datetime.DatetimeFeatures")
def lower_datetime_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """The parts of each date."""
    if transformer.variables == "index":
        raise builder.refuse(transformer, "it reads the index of the table; supported: columns")
    dates = _dates(transformer, transformer.variables_, x, builder)
    features = transformer.features_to_extract_
    if transformer.missing_values == "raise" or set(features) & set(REFUSING_NAT):
        _guard(transformer, x, builder)

    def make(table: Any) -> dict[Any, Any]:
        read = {name: dates[name](table[name]) for name in transformer.variables_}
        return {f"{name}_{each}": DATE_FEATURES[each](date) for name, date in read.items() for each in features}

    return _traced(make, transformer, x, builder)


@lowers("feature_engine.datetime.datetime_subtraction.DatetimeSubtraction")
def lower_datetime_subtraction(transformer: Any, x: Value, builder: Builder) -> Value:
    """The time between dates, in a unit."""
    read = list(dict.fromkeys([*transformer.variables_, *transformer.reference_]))
    dates = _dates(transformer, read, x, builder)
    unit = np.timedelta64(1, transformer.output_unit).astype("timedelta64[ns]")
    if not unit:
        raise builder.refuse(transformer, f"its output_unit is {transformer.output_unit!r}; supported: up to 'ns'")
    if transformer.missing_values == "raise":
        _guard(transformer, x, builder)
    pairs = [(name, other) for other in transformer.reference_ for name in transformer.variables_]
    names = transformer.new_variables_names or [f"{name}_sub_{other}" for name, other in pairs]

    def make(table: Any) -> dict[Any, Any]:
        found = {name: dates[name](table[name]) for name in read}
        return {made: (found[name] - found[other]) / unit for made, (name, other) in zip(names, pairs, strict=True)}

    return _traced(make, transformer, x, builder)


@lowers("feature_engine.datetime.datetime_ordinal.DatetimeOrdinal")
def lower_datetime_ordinal(transformer: Any, x: Value, builder: Builder) -> Value:
    """The number of each date's day since the year 1, or since `start_date`."""
    dates = _dates(transformer, transformer.variables_, x, builder)
    if transformer.missing_values == "raise":
        _guard(transformer, x, builder)
    start = transformer.start_date_ordinal_
    shift = float(FIRST_ORDINAL - (0 if start is None else start - 1))
    epoch = np.datetime64("1970-01-01")

    def make(table: Any) -> dict[Any, Any]:
        found = {}
        for name in transformer.variables_:
            local = dates[name](table[name])
            local = local.dt.tz_localize(None) if zones[name] else local
            found[f"{name}_ordinal"] = (local - epoch).dt.days + shift
        return found

    zones = {
        name: column_kind(x, place, builder).zone
        for name, place in zip(transformer.variables_, places(transformer).tolist(), strict=True)
    }
    return _traced(make, transformer, x, builder)


def _dates(transformer: Any, names: Sequence[Any], x: Value, builder: Builder) -> dict[Any, Callable[[Any], Any]]:
    """Return what makes the transformer's dates of each named column; with `utc` they are times of UTC."""
    found: dict[Any, Callable[[Any], Any]] = {}
    for name, place in zip(names, places(transformer, names).tolist(), strict=True):
        kind = column_kind(x, place, builder)
        if kind.name != DATE:
            called = builder.profile.called(x.features, place)
            raise builder.refuse(
                transformer,
                f"it reads dates, and nothing tells that {called} holds them. Give rows of your data with their "
                "types: a DataFrame as sample, or --sample with a .parquet file; pd.to_datetime makes dates of "
                "strings, before the fit",
            )
        found[name] = lambda column: column
        if getattr(transformer, "utc", None):
            found[name] = functools.partial(_in_utc, aware=kind.zone is not None)
    return found


def _in_utc(column: Any, *, aware: bool) -> Any:
    return column.dt.tz_convert("UTC") if aware else column.dt.tz_localize("UTC")


# Numbers


@lowers("feature_engine.creation.math_features.MathFeatures")
def lower_math_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """Functions of several columns: sums, means and the like."""
    functions = transformer.func if isinstance(transformer.func, list) else [transformer.func]
    if transformer.missing_values == "raise":
        _guard(transformer, x, builder)

    def make(table: Any) -> dict[Any, Any]:
        chosen = table[transformer.variables]
        return {
            name: getattr(chosen, each)(axis=1) if isinstance(each, str) else chosen.apply(each, axis=1)
            for name, each in zip(transformer._get_new_features_name(), functions, strict=True)
        }

    return _traced(make, transformer, x, builder)


RELATIVE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda column, other: column + other,
    "sub": lambda column, other: column - other,
    "mul": lambda column, other: column * other,
    "div": lambda column, other: column / other,
    "truediv": lambda column, other: column / other,
    "floordiv": lambda column, other: column // other,
    "mod": lambda column, other: column % other,
    "pow": lambda column, other: column**other,
}
"""The operators of RelativeFeatures."""

DIVIDING = ("div", "truediv", "floordiv", "mod")
"""Those that divide: by zero they have `fill_value`, or are an error."""


@lowers("feature_engine.creation.relative_features.RelativeFeatures")
def lower_relative_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """Each column with each column of reference, by an operator."""
    fill, divides = transformer.fill_value, bool(set(transformer.func) & set(DIVIDING))
    if transformer.missing_values == "raise":
        _guard(transformer, x, builder)
    if "pow" in transformer.func:  # a fractional power of a number below zero is no number
        part = builder.columns(x, places(transformer, transformer.variables))
        note_range(builder, part, np.full(part.width, ABOVE_ZERO), np.full(part.width, 6.0), within=True)
    if divides and fill is None:
        chosen = places(transformer, transformer.reference).tolist()
        zero = [Codes(column, np.zeros(1), np.full(1, np.nan), 0.0, 0.0) for column in chosen]
        builder.guard(lookup(builder, x, zero, summed=True))

    def make(table: Any) -> dict[Any, Any]:
        found = {}
        for function in transformer.func:
            for other in transformer.reference:
                for name in transformer.variables:
                    made = RELATIVE[function](table[name], table[other])
                    if function in DIVIDING and fill is not None:
                        made = made.where(table[other] != 0, float(fill))
                    found[f"{name}_{function}_{other}"] = made
        return found

    return _traced(make, transformer, x, builder)


@lowers("feature_engine.creation.cyclical_features.CyclicalFeatures")
def lower_cyclical_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """The sine and the cosine of each column, as an angle whose full turn is the largest number."""
    _guard(transformer, x, builder)

    def make(table: Any) -> dict[Any, Any]:
        angles = {name: table[name] * (2.0 * np.pi / transformer.max_values_[name]) for name in transformer.variables_}
        functions = (("sin", np.sin), ("cos", np.cos))
        return {f"{name}_{called}": each(angle) for name, angle in angles.items() for called, each in functions}

    return _traced(make, transformer, x, builder)


@lowers("feature_engine.creation.geo_features.GeoDistanceFeatures")
def lower_geo_distance(transformer: Any, x: Value, builder: Builder) -> Value:
    """The distance between two places."""
    _guard(transformer, x, builder)
    distance = getattr(transformer, f"_{transformer.method}_distance")

    def make(table: Any) -> dict[Any, Any]:
        return {transformer.output_col: distance(*(table[name] for name in transformer.variables_))}

    return _traced(make, transformer, x, builder)


@lowers("feature_engine.creation.decision_tree_features.DecisionTreeFeatures")
def lower_tree_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """The prediction of each combination's own tree, rounded to `precision` digits."""
    _guard(transformer, x, builder)
    fitted = [estimator.best_estimator_ for estimator in transformer.estimators_]
    kind = "regression" if transformer.regression else transformer._is_binary
    trees = fitted_trees(fitted)
    value, node = trees.value, 0
    if kind != "regression":
        leaves = [tree.tree_.value[tree.tree_.children_left < 0, 0] for tree in fitted]
        value = np.concatenate([_answer(tree, counts, kind) for tree, counts in zip(fitted, leaves, strict=True)])
        value = value[:, None]
    if transformer.precision is not None and kind in ("regression", "binary"):
        value = np.round(value, transformer.precision)
    feature = trees.feature.copy()
    for names, size in zip(transformer.input_features_, trees.sizes.tolist(), strict=True):
        chosen = places(transformer, [names] if isinstance(names, str) else list(names))
        own = feature[node : node + size]
        feature[node : node + size] = np.where(own >= 0, chosen[np.maximum(own, 0)], own)
        node += size
    trees = dataclasses.replace(trees, feature=feature, value=value)
    note_thresholds(trees, x, builder)
    made = add_trees(trees, x, builder, output="each")
    return _behind(made, transformer, x, builder)


def _answer(tree: Any, counts: np.ndarray, kind: str) -> np.ndarray:
    """Return a classifier's answer at each leaf: the probability of the second class, or the class."""
    if kind == "binary":
        shares: np.ndarray = counts[:, 1] / counts.sum(axis=1)
        return shares
    classes: np.ndarray = np.asarray(tree.classes_, dtype=np.float64)[counts.argmax(axis=1)]
    return classes


def _behind(made: Value, transformer: Any, x: Value, builder: Builder) -> Value:
    """Return new columns behind those of `x` that are kept."""
    dropped = places(transformer) if transformer.drop_original else np.zeros(0, dtype=int)
    kept = np.setdiff1d(np.arange(x.width), dropped)
    if x.features:
        builder.profile.text.drop(np.array(x.features)[dropped].tolist())
    return builder.concatenate([builder.columns(x, kept), made]) if len(kept) else made


# Strings


@lowers("feature_engine.text.text_features.TextFeatures")
def lower_text_features(transformer: Any, x: Value, builder: Builder) -> Value:
    """Counts of characters and words, as a table of the strings of the sample."""
    parts = [
        _tabulated(transformer, name, [f"{name}_{each}" for each in transformer.features_], x, builder)
        for name in transformer.variables_
    ]
    return _behind(builder.concatenate(parts), transformer, x, builder)


@lowers("feature_engine.encoding.similarity_encoder.StringSimilarityEncoder")
def lower_string_similarity(encoder: Any, x: Value, builder: Builder) -> Value:
    """The similarity of strings to the most frequent ones, as a table of the strings of the sample."""
    parts = [
        _tabulated(encoder, name, [f"{name}_{each or 'nan'}" for each in encoder.encoder_dict_[name]], x, builder)
        for name in encoder.variables_
    ]
    others = np.setdiff1d(np.arange(x.width), places(encoder))
    made = builder.concatenate(parts)
    return builder.concatenate([builder.columns(x, others), made]) if len(others) else made


def _tabulated(transformer: Any, name: Any, made: Sequence[str], x: Value, builder: Builder) -> Value:
    """Return the named columns that a transformer makes of a column of strings."""
    import pandas as pd

    names = list(transformer.feature_names_in_)

    def ask(strings: Sequence[Any]) -> np.ndarray:
        table = {each: [0.0] * len(strings) for each in names} | {each: ["x"] * len(strings) for each in text}
        rows = pd.DataFrame(table | {name: pd.Series(strings, dtype=object)}, columns=names)
        found: np.ndarray = transformer.transform(rows)[list(made)].to_numpy(np.float64)
        return found

    text = set(transformer.variables_)
    return tabulate_strings(transformer, ask, names.index(name), x, builder)


# Tables as those of the fit


@lowers("feature_engine.preprocessing.match_columns.MatchVariables")
def lower_match_variables(transformer: Any, x: Value, builder: Builder) -> Value:
    """The columns themselves: requests to an entry have those of the fit."""
    if transformer.match_dtypes:
        reason = "match_dtypes=True changes the types of columns, which an entry fixes; leave it out"
        raise builder.refuse(transformer, reason)
    if transformer.missing_values == "raise":
        guard_missing(x, np.arange(x.width), builder)
    return x
