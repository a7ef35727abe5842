"""Own code in a model: functions in a FunctionTransformer, and classes without a lowering, are traced.

See `exporter/tracing/trace.py`. An attribute that holds a fitted estimator with a lowering is called as such: what it
answers is a step of the plan.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.estimators.strings import MadeStrings, know
from triton_regressors.exporter.lowering import registry
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.polars_tables import PolarsTables
from triton_regressors.exporter.lowering.registry import registered_base, traces_own_code
from triton_regressors.exporter.tracing.expressions import DATE, FLOAT, SINGLE, TEXT, Expression, Kind, walk
from triton_regressors.exporter.tracing.lowered import Lowered
from triton_regressors.exporter.tracing.models import TracedModel, answering_cells, with_models
from triton_regressors.exporter.tracing.refusal import Untraceable
from triton_regressors.exporter.tracing.texts import MadeOf, Texts
from triton_regressors.exporter.tracing.trace import NotTraced, Trace, polars_kind, trace
from triton_regressors.tables.values import is_missing

INSTEAD = (
    "Or keep the step in front of the client: export the steps behind it, pipeline[k:], and send "
    "pipeline[:k].transform(rows) (docs/own_code.md)"
)


@traces_own_code
def trace_own_code(estimator: Any, x: Value, builder: Builder, method: str, why: str) -> Value:
    """What a method of the class computes, with its attributes as constants."""
    inside = with_models(copy.copy(estimator), functools.partial(_has_lowering, builder))
    names = x.names or tuple(getattr(estimator, "feature_names_in_", ()))
    base = registered_base(estimator, method)
    try:
        with answering_cells(estimator, base, method):
            return lower_function(
                getattr(inside, method), estimator, x, builder, names, getattr(estimator, method), method
            )
    except NotFittedError as error:
        raise builder.refuse(estimator, "it is not fitted; call fit first") from error
    except NotTraced as error:
        reason, _, instead = why.partition(". ")
        if " it raises " in str(error) and not names and not len(builder.profile.dtypes):
            instead = f"If it takes a DataFrame, give one as sample (--sample). {instead}"
        said = f"{reason}, and {error}. {instead}" if _is_users(type(estimator)) else why
        raise ExportError(f"Cannot export {builder.subject(estimator)}: {said}") from error


def lower_function(
    function: Callable[[Any], Any],
    transformer: Any,
    x: Value,
    builder: Builder,
    names: Sequence[Any],
    ask: Callable[[Any], Any] | None = None,
    method: str = "transform",
) -> Value:
    """Return what a function makes of `x`, which is a DataFrame if it has `names`.

    `ask` is the function as the user calls it.

    Raises:
        NotTraced: the function cannot be traced.
    """
    columns = range(x.width)
    kinds = [column_kind(x, column, builder) for column in columns]
    strings = {column: known_strings(x, column, builder) for column in columns if kinds[column].name == TEXT}
    profile = builder.profile
    made = {
        column: profile.text.made_of(x.features[column])
        for column in strings
        if x.features and x.features[column] >= 0 and kinds[column].unit != "category"
    }
    known = MadeOf(made, profile.text, functools.partial(given_values, profile))
    found = trace(function, kinds, list(names) or None, strings, profile.text.digits, known)
    profile.asks_polars |= x.of_polars and bool(names)
    if len(profile.dtypes):
        own = [feature for feature in x.features if 0 <= feature < profile.n_features]
        features = [feature for feature in own if profile.dtypes[feature] is not None]
        profile.kept.update((feature, profile.dtypes[feature]) for feature in features)
    if method != "predict" and found.dimensions != 2:
        raise NotTraced(f"its {method} returns a column and no table")
    texts = found.algebra.texts
    try:
        roots = texts.numbered(found.columns)
    except Untraceable as error:
        raise NotTraced(f"it cannot be traced: {error}{f'. {error.instead}' if error.instead else ''}") from error
    strings = {column: texts.values(found.algebra.graph.leaf(column, kinds[column])) for column in strings}
    for column, those in strings.items():
        if x.strings and x.strings[column] is not None:
            know(builder, x.strings[column], those)
    _note(roots, x, builder, kinds, strings)
    for feature in sorted(texts.sources):
        profile.note_read([feature])
        _note_strings(profile, feature)
    for column in texts.closed:
        if x.features and x.features[column] >= 0:
            builder.profile.text.close(x.features[column])
    asked = _asked(ask or function, list(names), kinds) if all(kind.number for kind in kinds) else None
    value = Lowered(builder, x, names).columns(roots, asked, transformer)
    return _marked(value, found, roots, x)


def _origins(text: Expression, texts: Texts, x: Value) -> set[int]:
    """Return the features of the model's input, and made ones, whose strings an expression of `x` may hand on."""
    leaves, found = texts.origins(text)
    for column in leaves:
        made = x.strings[column] if x.strings else None
        if made is not None:
            found |= set(made.sources)
        elif x.features and x.features[column] >= 0:
            found.add(x.features[column])
    return found


def _marked(value: Value, found: Trace, roots: Sequence[Expression], x: Value) -> Value:
    """Return the value with what is known of columns that a trace of `x` made: their kinds, strings and names."""
    kinds = tuple(kind if root.operation != "leaf" else None for kind, root in zip(found.kinds, roots, strict=True))
    made = [root.operation not in ("leaf", "made") for root in roots]
    texts = found.algebra.texts
    strings = tuple(
        MadeStrings(texts.values(column), _origins(column, texts, x), texts.writes_digits(column))
        if new and column.kind.name == TEXT
        else None
        for column, new in zip(found.columns, made, strict=True)
    )
    old_kinds, old_strings = value.kinds or (None,) * value.width, value.strings or (None,) * value.width
    return dataclasses.replace(
        value,
        names=found.names or (),
        of_polars=found.of_polars,
        kinds=tuple(a or b for a, b in zip(kinds, old_kinds, strict=True)),
        strings=tuple(b if a is None else a for a, b in zip(strings, old_strings, strict=True)),
    )


def _note(
    roots: Sequence[Expression], x: Value, builder: Builder, kinds: Sequence[Kind], strings: dict[int, list[str]]
) -> None:
    """Record what the function reads of the model's input: columns that it hands on are not read by it."""
    computed = [root for root in roots if root.operation not in ("leaf", "made")]
    for column in sorted({each.arguments[0] for each in walk(computed) if each.operation == "leaf"}):
        feature = x.features[column] if x.features else -1
        if feature < 0:
            continue
        kind, profile = kinds[column], builder.profile
        profile.note_read([feature])
        if kind.name == TEXT:
            profile.text.table(feature, strings[column])
            _note_strings(profile, feature)
        elif kind.name == DATE:
            profile.note_date(feature, kind.unit or "us", kind.zone)


def column_kind(x: Value, column: int, builder: Builder) -> Kind:
    """Return the kind of a column of `x`."""
    if x.kinds and x.kinds[column] is not None:
        kind: Kind = x.kinds[column]
        return kind
    feature, profile = x.features[column] if x.features else -1, builder.profile
    if x.of_polars:
        known = profile.polars.types[feature] if feature >= 0 and profile.polars is not None else None
        return polars_kind(known, x.single)
    if feature < 0:
        return Kind(SINGLE if x.single else FLOAT)
    if feature >= profile.n_features:
        return Kind(TEXT, "object")
    dtype = profile.dtypes[feature] if len(profile.dtypes) else None
    if dtype is None:
        return Kind(FLOAT, assumed=True)
    return _kind_of(dtype, functools.partial(given_values, profile, feature))


def _kind_of(dtype: Any, values: Callable[[], list[Any]]) -> Kind:
    """Return the kind of a column of a user's table."""
    import pandas as pd

    if isinstance(dtype, pd.DatetimeTZDtype):
        return Kind(DATE, dtype.unit, str(dtype.tz))
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        return Kind(DATE, np.datetime_data(dtype)[0])
    if isinstance(dtype, np.dtype) and dtype.kind in "fiub":
        return Kind(SINGLE if dtype == np.float32 else {"f": FLOAT, "b": "bool"}.get(dtype.kind, "int64"))
    if isinstance(dtype, pd.CategoricalDtype):
        text = any(isinstance(category, str) for category in dtype.categories)
        return Kind(TEXT, "category") if text else Kind(FLOAT)
    if isinstance(dtype, pd.StringDtype):
        return Kind(TEXT, "str" if dtype.na_value is not pd.NA else f"string[{dtype.storage}]")
    known = [value for value in values() if not is_missing(value)]
    if any(isinstance(value, str) for value in known):
        return Kind(TEXT, "object")
    return Kind(FLOAT)


def _note_strings(profile: Any, feature: int) -> None:
    """Record the strings of a feature in the sample, and which value is missing there."""
    given = given_values(profile, feature)
    missing = [value for value in given if is_missing(value)][:1]
    profile.text.numbers(feature, [*sorted({value for value in given if isinstance(value, str)}), *missing])


def given_values(profile: Any, feature: int) -> list[Any]:
    """Return a feature's values in the sample."""
    try:
        return [] if profile.given is None else profile.given(feature)
    except (KeyError, IndexError):
        return []


def known_strings(x: Value, column: int, builder: Builder) -> list[str]:
    """Return the known strings of a column of `x`, in the order of their numbers."""
    if x.strings and x.strings[column] is not None:
        return list(x.strings[column] or ())
    feature, text = x.features[column], builder.profile.text
    given = {value for value in given_values(builder.profile, feature) if isinstance(value, str)}
    return list(dict.fromkeys([*text.known(feature), *sorted(given)]))


def _asked(
    function: Callable[[Any], Any], names: Sequence[Any], kinds: Sequence[Kind]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of a table of numbers as one of a float64 matrix."""

    def ask(X: np.ndarray) -> np.ndarray:
        import pandas as pd

        table: Any = pd.DataFrame(X, columns=list(names)) if names else X
        if names and kinds[0].polars is not None:
            table = PolarsTables(tuple(kind.polars for kind in kinds)).table(table)
        found = np.asarray(function(table), dtype=np.float64)
        return found.reshape(len(X), -1)

    return ask


def _has_lowering(builder: Builder, estimator: Any) -> bool:
    """Return whether a fitted estimator's own answers can be steps of a plan."""
    try:
        registry.find_transform(estimator, "")
    except ExportError:
        return False
    return not isinstance(estimator, TracedModel)


def _is_users(cls: type) -> bool:
    """Return whether a class is the user's own, not a library's."""
    import inspect

    try:
        return "site-packages" not in inspect.getfile(cls)
    except (OSError, TypeError):  # a class of a notebook or of a prompt
        return True
