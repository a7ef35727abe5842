"""skrub's transformers of tables: each column goes through transformers of its own.

A fitted TableVectorizer or Cleaner is a pipeline of `ApplyToEachCol`, which holds a fitted transformer for each column
that it changes. Their numbers are float32 in the end, and the plan rounds where skrub rounds.

Columns of strings that skrub parsed as dates or numbers during the fit are taken as dates or numbers: skrub's own
`transform` takes these too, and an entry parses no strings.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.category_tables import tabulate_strings
from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.feature_engine import in_place
from triton_regressors.exporter.estimators.own_code import column_kind, known_strings
from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import Pieces, add_pieces
from triton_regressors.exporter.lowering.registry import lowers, names_columns, qualified_name, refuses
from triton_regressors.exporter.tracing.algebra import Algebra
from triton_regressors.exporter.tracing.dates import Dates
from triton_regressors.exporter.tracing.expressions import DATE, FLOAT, INTEGER, SINGLE, Expression, Kind
from triton_regressors.exporter.tracing.lowered import Lowered
from triton_regressors.kernels.ops.columns.float32 import Float32

SPACES = (" ", "  ", "   ", "\t", "\n")
"""Strings of white space alone that count as missing, as the empty string does; skrub takes those of any length."""

SAME = (
    "skrub._clean_categories.CleanCategories",
    "skrub._drop_uninformative.DropUninformative",
    "skrub._table_vectorizer.PassThrough",
    "skrub._to_categorical.ToCategorical",
    "skrub._to_str.ToStr",
)
"""The transformers of a column that change no value: in a plan a string and a category are the same number."""

EMPTY = ("Drop", "DropUninformative")
"""The transformers of a column that may make no column of it."""

DATE_PARTS = {"weekday": "day_of_week", "day_of_year": "day_of_year"}
"""skrub's names of the parts of dates that pandas calls otherwise or that are no `resolution`."""

PERIODS = {"month": 12, "day": 31, "hour": 23, "weekday": 7}
"""The largest number of each part of a date that has a periodic encoding; the smallest is 0 or 1."""

refuses(
    "its embeddings come from a language model, which no kernel computes",
    "Give the column a TableVectorizer(high_cardinality=...) with a StringEncoder, an OrdinalEncoder or a "
    "TargetEncoder, or transform rows before they are sent: export the steps behind it, as in pipeline[1:].",
    "skrub._llm_encoder.LLMEncoder",
    "skrub._llm_encoder.TextEncoder",
)
refuses(
    "it joins rows with another table, or makes numbers of several rows",
    "Keep the step in front of the client: export the steps behind it, pipeline[k:], and send "
    "pipeline[:k].transform(rows).",
    "skrub._agg_joiner.AggJoiner",
    "skrub._agg_joiner.AggTarget",
    "skrub._interpolation_joiner.InterpolationJoiner",
    "skrub._joiner.Joiner",
    "skrub._multi_agg_joiner.MultiAggJoiner",
    "skrub._session_encoder.SessionEncoder",
)
refuses(
    "it reads durations, and an entry reads numbers, strings and dates",
    "Give the column as seconds, as column.dt.total_seconds() makes them, before the fit.",
    "skrub._duration_to_float.DurationToFloat",
)
refuses(
    "it predicts from an environment of variables, not from a table",
    "Fit its steps as a scikit-learn Pipeline, such as skrub.tabular_pipeline(Ridge()), and export that.",
    "skrub._data_ops._estimator.SkrubLearner",
    "skrub._data_ops._estimator.ParamSearch",
)


# Columns by name


def places(transformer: Any, names: Sequence[Any], x: Value, builder: Builder) -> list[int]:
    """Return the places of named columns of `x`."""
    known = list(x.names)
    missing = [name for name in names if name not in known]
    if missing:
        reason = f"it takes the column {missing[0]!r} by name, and the step in front of it names no such column"
        raise builder.refuse(transformer, reason)
    return [known.index(name) for name in names]


def select(transformer: Any, names: Sequence[Any], x: Value, builder: Builder) -> Value:
    """Return the named columns of `x`; the others may hold anything."""
    if not len(names):
        raise builder.refuse(transformer, "it keeps no column")
    chosen = places(transformer, names, x, builder)
    if x.features:
        builder.profile.text.drop(np.delete(x.features, chosen).tolist())
    return x if chosen == list(range(x.width)) else builder.columns(x, chosen)


@names_columns("skrub._select_cols.SelectCols")
def name_selected(selector: Any) -> list[str]:
    """Return the columns that it selects: it takes tables that hold them, whatever else they hold."""
    return list(map(str, selector.columns_))


@names_columns("skrub._select_cols.DropCols")
def name_kept(selector: Any) -> list[str]:
    """Return the columns that it keeps: it takes tables that hold them, whatever else they hold."""
    return list(map(str, selector.kept_cols_))


@names_columns("skrub._drop_similar.DropSimilar")
def name_dissimilar(selector: Any) -> list[str]:
    """Return the columns that it keeps."""
    return name_kept(selector._dropper)


@names_columns("skrub._table_vectorizer.Cleaner")
def name_cleaned(cleaner: Any) -> list[str]:
    """Return the columns that the first step of its pipeline was fitted on."""
    return list(map(str, cleaner._pipeline.steps[0][1].feature_names_in_))


@lowers("skrub._select_cols.SelectCols")
def lower_selected(selector: Any, x: Value, builder: Builder) -> Value:
    """The columns that were selected."""
    return select(selector, selector.columns_, x, builder)


@lowers("skrub._select_cols.DropCols")
def lower_kept(selector: Any, x: Value, builder: Builder) -> Value:
    """The columns that were not dropped."""
    return select(selector, selector.kept_cols_, x, builder)


@lowers("skrub._drop_similar.DropSimilar")
def lower_dissimilar(selector: Any, x: Value, builder: Builder) -> Value:
    """The columns that are not similar to another one."""
    return lower_kept(selector._dropper, x, builder)


@lowers("skrub._apply_to_cols.ApplyToCols")
def lower_applied(wrapper: Any, x: Value, builder: Builder) -> Value:
    """The transformer of each column, or the one of all of them."""
    step = getattr(wrapper, "_wrapped_transformer", wrapper)  # earlier releases have no wrapper
    if not x.names and len(step.all_inputs_) == x.width:
        x = dataclasses.replace(x, names=tuple(step.all_inputs_))
    return _each_applied(step, x, builder) if hasattr(step, "transformers_") else _applied_together(step, x, builder)


def _applied_together(wrapper: Any, x: Value, builder: Builder) -> Value:
    """Return the columns that are not transformed, all of them with `keep_original`, and behind them the others."""
    chosen = places(wrapper, wrapper.used_inputs_, x, builder)
    if not chosen:
        return x
    kept = np.arange(x.width) if wrapper.keep_original else np.setdiff1d(np.arange(x.width), chosen)
    with builder.at("transformer_"):
        z = builder.lower_transform(wrapper.transformer_, builder.columns(x, chosen))
    parts = [builder.columns(x, kept), z] if len(kept) else [z]
    return dataclasses.replace(builder.concatenate(parts), names=tuple(wrapper.all_outputs_))


def _each_applied(step: Any, x: Value, builder: Builder) -> Value:
    """Return each column as its own transformer makes it, and columns without one as they are."""
    left = [name for name in x.names if not _is_dropped(step.transformers_.get(name))]
    return each_column(step, select(step, left, x, builder), builder)


def each_column(step: Any, x: Value, builder: Builder, untouched: Collection[Any] = ()) -> Value:
    """Return the columns of `x` as a step's transformers make them, `untouched` ones and those without one as is."""
    parts, names, waiting = list[Value](), list[Any](), list[int]()
    rounded, cleaned = list[int](), list[tuple[int, Any]]()

    def hand_on() -> None:
        if waiting:
            parts.append(builder.columns(x, waiting))
            waiting.clear()

    for place, name in enumerate(x.names):
        transformer = None if name in untouched else step.transformers_.get(name)
        if transformer is None or step.keep_original:
            waiting.append(place)
            names.append(name)
        if transformer is None:
            continue
        kind = qualified_name(type(transformer))
        if kind in SAME:
            waiting.append(place)
        elif kind.endswith(("ToFloat", "CleanNullStrings")) and not step.keep_original:  # all such columns at once
            _check_float(transformer, builder)
            if kind.endswith("ToFloat"):
                rounded.append(len(names))
            else:
                cleaned.append((len(names), transformer))
            waiting.append(place)
        else:
            hand_on()
            with builder.at(f"transformers_['{name}']"):
                parts.append(_applied(transformer, builder.columns(x, [place]), builder))
        names.extend(step.input_to_outputs_[name])
    hand_on()
    z = dataclasses.replace(builder.concatenate(parts), names=tuple(names))
    if rounded:
        z = _as_float32(z, rounded, builder)
    return _without_null_strings(z, cleaned, builder) if cleaned else z


def _applied(transformer: Any, x: Value, builder: Builder) -> Value:
    """Return what the transformer of one column makes of it."""
    single = hasattr(transformer, "__single_column_transformer__")
    return builder.lower_transform(transformer, dataclasses.replace(x, rows=None) if single else x)


def _is_dropped(transformer: Any) -> bool:
    """Return whether a transformer of a column makes no column of it."""
    return type(transformer).__name__ in EMPTY and not transformer.all_outputs_


def _as_float32(x: Value, chosen: Sequence[int], builder: Builder) -> Value:
    """Return `x` with the chosen columns rounded to float32."""
    mask = np.zeros(x.width, dtype=np.uint8)
    mask[list(chosen)] = 1
    return dataclasses.replace(x, name=builder.add(Float32(mask[:0] if mask.all() else mask), x).name)


def _without_null_strings(x: Value, cleaned: Sequence[tuple[int, Any]], builder: Builder) -> Value:
    """Return `x` with missing values for the strings that stand for them."""
    functions, chosen = [], [place for place, _ in cleaned]
    for place, cleaner in cleaned:
        nulls = list(dict.fromkeys([*cleaner.null_strings_, *SPACES]))
        numbers = np.sort(number_strings(builder, cleaner, x, place, nulls))
        functions.append(_missing_at(numbers))
    made = add_pieces(builder, x, chosen, functions)
    features = tuple(x.features[place] for place in chosen) if x.features else ()
    z = in_place(dataclasses.replace(made, features=features), np.array(chosen), x, builder)
    return dataclasses.replace(z, names=x.names)


def _missing_at(numbers: np.ndarray) -> Pieces:
    """Return the function that is NaN for these ascending whole numbers, and any other number itself."""
    first = numbers[np.append(True, np.diff(numbers) > 1)]
    last = numbers[np.append(np.diff(numbers) > 1, True)]
    starts = np.append(-np.inf, np.stack([first - 0.5, last + 0.5], axis=1).ravel())
    origins = np.append(starts[1], starts[1:])
    coefficients = np.stack([origins, np.ones(len(origins))], axis=1)
    coefficients[1::2] = np.nan, 0.0
    return Pieces(starts, origins, coefficients)


# Whole tables


@lowers("skrub._table_vectorizer.TableVectorizer")
def lower_table_vectorizer(vectorizer: Any, x: Value, builder: Builder) -> Value:
    """Cleaned columns, each encoded by its kind, as float32; only categories and specific transformers' are not."""
    z = _cleaned(vectorizer, vectorizer._preprocessors, x, builder)
    for step in [*vectorizer._encoders, *vectorizer._specific_transformers]:
        rows = z.rows
        z = each_column(step, z, builder)
        z = dataclasses.replace(z, rows=_rows(z.names, {name for name in z.names if _is_single(rows, name)}))
    rounded = vectorizer._postprocessors[0].transformers_.keys()
    z = builder.rounded(z, builder.subject(vectorizer), np.array([name in rounded for name in z.names]))
    return dataclasses.replace(z, rows=_rows(z.names, rounded))


@lowers("skrub._table_vectorizer.Cleaner")
def lower_cleaner(cleaner: Any, x: Value, builder: Builder) -> Value:
    """Columns of strings with missing values for what stands for them, dates, and numbers as float32 if asked."""
    z = _cleaned(cleaner, [step for _, step in cleaner._pipeline.steps], x, builder)
    return dataclasses.replace(z, rows=None)


def _cleaned(owner: Any, steps: Sequence[Any], x: Value, builder: Builder) -> Value:
    """Return the columns of `x` that are kept, behind a check of the table and steps that change columns in place."""
    check, *steps = steps
    if check.module_name_ != "pandas":
        raise builder.refuse(owner, f"it was fitted on a table of {check.module_name_}; supported: those of pandas")
    builder.profile.name_tensor(x.features, "text")
    every = [step for _, step in owner._pipeline.steps[1:]]
    dropped = {name for step in every for name, each in step.transformers_.items() if _is_dropped(each)}
    parsed = {name for step in steps for name, each in step.transformers_.items() if type(each).__name__ in PARSING}
    names = tuple(check.feature_names_out_)
    z = select(
        owner, [name for name in names if name not in dropped], dataclasses.replace(x, names=names, rows=None), builder
    )
    single = set[Any]()
    for step in steps:
        z = each_column(step, z, builder, parsed if type(step.transformer).__name__ == "CleanNullStrings" else ())
        if type(step.transformer).__name__ == "ToFloat":
            single |= step.transformers_.keys()
    return dataclasses.replace(z, rows=_rows(z.names, single))


PARSING = ("ToDatetime", "ToFloat")
"""The transformers whose columns are dates or numbers, whatever they were before."""


def _rows(names: Sequence[Any], single: Collection[Any]) -> Any:
    """Return rows with the dtypes of a table: float32 for the columns of `single`, and no numbers in others."""
    import pandas as pd

    return pd.DataFrame({name: np.zeros(2, dtype=np.float32 if name in single else object) for name in names})


def _is_single(rows: Any, name: Any) -> bool:
    return name in rows and rows[name].dtype == np.float32


# Single columns


@lowers("skrub._drop_uninformative.DropUninformative", "skrub._to_categorical.ToCategorical")
def lower_same(transformer: Any, x: Value, builder: Builder) -> Value:
    """The column itself."""
    if _is_dropped(transformer):
        raise builder.refuse(transformer, "it makes no column")
    return x


@lowers("skrub._to_float.ToFloat")
def lower_to_float(transformer: Any, x: Value, builder: Builder) -> Value:
    """The numbers of a column as float32."""
    _check_float(transformer, builder)
    return _as_float32(x, range(x.width), builder)


def _check_float(transformer: Any, builder: Builder) -> None:
    if getattr(transformer, "_needs_str_replace", False):
        raise builder.refuse(
            transformer,
            "it reads numbers from strings with signs of their own (decimal, thousand, parentheses), and an entry "
            "reads strings only as known categories. Make numbers of them before the fit",
        )


@lowers("skrub._to_datetime.ToDatetime")
def lower_to_datetime(transformer: Any, x: Value, builder: Builder) -> Value:
    """The dates of a column, in the time zone of the fit."""
    dtype = transformer.output_dtype_
    unit = dtype.unit if hasattr(dtype, "unit") else np.datetime_data(dtype)[0]
    return as_dates(x, Kind(DATE, unit, transformer.output_time_zone_), builder)


def as_dates(x: Value, kind: Kind, builder: Builder) -> Value:
    """Return a column marked as dates."""
    if x.features:
        builder.profile.note_date(x.features[0], kind.unit or "us", kind.zone)
    return dataclasses.replace(x, kinds=(kind,))


@lowers("skrub._datetime_encoder.DatetimeEncoder")
def lower_datetime_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """The parts of dates, and the seconds since 1970 as float32; behind them periodic functions of the parts."""
    kind = column_kind(x, 0, builder)
    if kind.name != DATE:
        reason = "nothing tells the type and the time zone of the dates that it reads"
        raise builder.refuse(
            encoder,
            f"{reason}. Give rows of your data with their types: a DataFrame as sample, or --sample with a .parquet "
            "file",
        )
    x, own = as_dates(x, kind, builder), Algebra({})
    date = own.graph.leaf(0, kind)
    dates, plain, periodic = Dates(own, date), list[Expression](), dict[str, Expression]()
    for name in encoder.extracted_features_:
        if name == "nanosecond":
            raise builder.refuse(encoder, "its resolution is 'nanosecond'; supported: up to 'microsecond'")
        if name == "total_seconds":
            seconds = own.graph.make("divide", date, own.expression(1e6), kind=Kind(FLOAT))
            plain.append(own.graph.make("float32", seconds, kind=Kind(SINGLE)))
            continue
        part = dates.part(DATE_PARTS.get(name, name))
        if name == "weekday":
            part = own.graph.make("add", part, own.expression(1), kind=Kind(INTEGER))
        if name in encoder._periodic_encoders:
            periodic[name] = part
        else:
            plain.append(part)
    if not plain and not periodic:
        raise builder.refuse(encoder, "it makes no column")
    z = Lowered(builder, x).columns([*plain, *periodic.values()], None, encoder)
    if not periodic:
        return z
    codes = [
        Codes(column, np.arange(len(table), dtype=np.float64), values, np.nan, np.nan)
        for column, name in enumerate(periodic, len(plain))
        for table in [_periodic(encoder._periodic_encoders[name], PERIODS[name])]
        for values in table.T
    ]
    made = lookup(builder, z, codes)
    return builder.concatenate([builder.columns(z, np.arange(len(plain))), made]) if plain else made


def _periodic(encoder: Any, largest: int) -> np.ndarray:
    """Return what an encoder makes of the whole numbers up to the largest, `[numbers, functions]`."""
    import pandas as pd

    return np.asarray(encoder.transform(pd.Series(np.arange(largest + 1), name="part")), dtype=np.float64)


@lowers("skrub._squashing_scaler.SquashingScaler")
def lower_squashing_scaler(scaler: Any, x: Value, builder: Builder) -> Value:
    """`z / √(1 + (z / B)²)`, where `z` is a centred and scaled column and `B` is `max_absolute_value`."""
    shift, factor = np.zeros(x.width), np.zeros(x.width)  # of a constant column, zero
    if scaler.robust_scaler_ is not None:
        shift[scaler.robust_cols_] = scaler.robust_scaler_.center_
        factor[scaler.robust_cols_] = 1.0 / scaler.robust_scaler_.scale_
    if scaler.minmax_scaler_ is not None:
        shift[scaler.minmax_cols_], factor[scaler.minmax_cols_] = (
            scaler.minmax_scaler_.median_,
            scaler.minmax_scaler_.scale_,
        )
    builder.profile.note_scale(x.features, shift, np.where(factor != 0, 1.0 / np.where(factor != 0, factor, 1.0), 1.0))
    scaled, own = builder.scale(x, shift, factor), Algebra({})
    roots = []
    for column in range(x.width):
        z = own.graph.leaf(column, Kind(FLOAT))
        below = own.unary(
            "sqrt",
            own.binary("add", 1.0, own.unary("square", own.binary("divide", z, float(scaler.max_absolute_value)))),
        )
        roots.append(own.binary("divide", z, below))
    squashed = Lowered(builder, scaled).columns(roots, None, scaler)
    return builder.stored(builder.computed(squashed, x, functools.partial(_squash, scaler), scaler), x, scaler)


def _squash(scaler: Any, X: np.ndarray) -> np.ndarray:
    """Return a scaler's own answers; those for the largest numbers, whose squares overflow, are their neighbours'."""
    largest = 1e15 if X.dtype == np.float32 else 1e140
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the matrix has no names
        return np.asarray(scaler.transform(np.clip(X, -largest, largest)))


# Encoders of strings


@lowers("skrub._cat_encoder.CatEncoder")
def lower_cat_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """One-hot columns, and behind them the means of the target."""
    members = ("one_hot_encoder_", "target_encoder_")
    return builder.concatenate([builder.lower_transform(getattr(encoder, name), x) for name in members])


@lowers("skrub._gap_encoder.GapEncoder", "skrub._minhash_encoder.MinHashEncoder", "skrub._string_encoder.StringEncoder")
def lower_string_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """A table of what the encoder makes of each string of the sample; a request with another string is refused."""
    import pandas as pd

    def ask(strings: Sequence[Any]) -> np.ndarray:
        return np.asarray(encoder.transform(pd.Series(strings, name="column", dtype=object)), dtype=np.float64)

    return tabulate_strings(encoder, ask, 0, x, builder)


@lowers("skrub._similarity_encoder.SimilarityEncoder")
def lower_similarity_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """A table of how similar each known string is to the categories; a request with another string is refused."""
    ends = np.cumsum([0, *map(len, encoder.categories_)])
    first = [categories[0] for categories in encoder.categories_]

    def ask(column: int, strings: Sequence[Any]) -> np.ndarray:
        table = np.array([first] * len(strings), dtype=object)
        table[:, column] = strings
        found: np.ndarray = np.asarray(encoder.transform(table), dtype=np.float64)[:, ends[column] : ends[column + 1]]
        return found

    parts = []
    for column, categories in enumerate(encoder.categories_):
        known = () if encoder.handle_unknown == "error" else known_strings(x, column, builder)
        parts.append(
            tabulate_strings(encoder, functools.partial(ask, column), column, x, builder, [*categories, *known])
        )
    return builder.concatenate(parts)
