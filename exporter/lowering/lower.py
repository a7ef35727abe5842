"""From a fitted estimator to its plan as lowered, and to the model's information about its input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from triton_regressors.exporter.boosters import fitted
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.decision_tables import tabulate
from triton_regressors.exporter.lowering.estimator import INNER_ESTIMATORS, table_names
from triton_regressors.exporter.lowering.input_columns import Profile, with_integers
from triton_regressors.exporter.lowering.memory import hand_back
from triton_regressors.exporter.lowering.polars_tables import PolarsTables, PolarsType
from triton_regressors.exporter.lowering.registry import find_answers, find_count, find_names
from triton_regressors.exporter.lowering.row_types import DOUBLE, ROWS, RowTypes, dtypes_of
from triton_regressors.exporter.lowering.soundness import in_one_sentence
from triton_regressors.exporter.lowering.tables import Tables
from triton_regressors.exporter.lowering.text_columns import TextColumns
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.plan.plan import Plan
from triton_regressors.tables.frames import as_frame, has_names

ENDS = ("lower", "upper")
"""The outputs of a prediction interval."""

MOST_FEATURES = 2**22
"""The largest number of features of a model. One row of them fills 16 MB of a request in FP32."""


@dataclass(frozen=True)
class Lowered:
    """An estimator as a plan before any pass, the tensors of its rows, and its information about these rows.

    The numbers of `inputs` and the plan's input are FP32 here; their final type is chosen after lowering.
    """

    plan: Plan
    inputs: Inputs
    profile: Profile
    sums: tuple[str, ...] = ()  # the transformers that sum in float32 before a decision
    covers: Mapping[str, np.ndarray] = field(default_factory=dict)  # of trees, see `Builder`
    makers: Mapping[str, str] = field(default_factory=dict)  # the estimators that steps compute, by the steps' outputs


def lower(
    estimator: Any,
    sample: Any | None = None,
    missing_strings: Sequence[str] = (),
    quantiles: Sequence[Any] = (),
    kept: Collection[str] = (),
    types: RowTypes = DOUBLE,
    round_everywhere: bool = False,
    polars: Mapping[str, PolarsType] | None = None,
    covers: bool = False,
) -> Lowered:
    """Lower a fitted regressor. `sample` gives the number of features if the estimator does not state it.

    `quantiles` are empty or two more regressors, which answer the outputs `lower` and `upper`. If columns have names,
    those that reach no transformer and no regressor are not inputs, except `kept` ones; without names all columns are
    inputs. With `types`, those of the sample, the plan rounds to float32 as scikit-learn does: in front of decisions,
    or `round_everywhere`. `polars` are the types of the columns of a sample that was a DataFrame of polars.
    With `covers` the training covers of trees are known too, where the estimator holds them.

    Raises:
        ExportError: the estimator or a fitted parameter has no lowering, or the model is only known with a sample.
    """
    lowered = _lower(estimator, sample, missing_strings, quantiles, kept, types, round_everywhere, polars, covers)
    hand_back()
    if lowered.profile.lacking is not None:
        if sample is not None:
            Tables(estimator, lowered.profile).table(sample)  # raises an error that says what is wrong with it
        raise lowered.profile.lacking
    return lowered


def _lower(
    estimator: Any,
    sample: Any | None,
    missing_strings: Sequence[str],
    quantiles: Sequence[Any] = (),
    kept: Collection[str] = (),
    types: RowTypes = DOUBLE,
    round_everywhere: bool = False,
    polars: Mapping[str, PolarsType] | None = None,
    covers: bool = False,
) -> Lowered:
    n_features = _feature_count(estimator, sample)
    names = table_names(estimator, sample)
    strings: Mapping[int, Sequence[str]] = {}
    digits: dict[str, None] = {}
    before: TextColumns | None = None
    while True:
        profile = Profile(n_features, missing_strings, _given_columns(names, sample))
        profile.names, profile.dtypes = names or (), _dtypes(names, sample, n_features)
        if before is not None:
            profile.text.make_again(before)
        if polars is not None and names is not None:
            profile.polars = PolarsTables(tuple(map(polars.get, names)))
        for column, known in strings.items():
            profile.text.numbers(column, known)
        profile.text.digits.update(digits)
        rows = _first_rows(estimator, profile, sample, types)
        builder = Builder(n_features, profile, rows=rows, round_everywhere=round_everywhere, covers=covers)
        outputs = builder.lower_outputs(estimator, builder.input)
        if not profile.text.untabled and len(profile.text.digits) == len(digits):
            break
        # An encoder behind own code knows more than its tables.
        strings, before, digits = profile.text.untabled or strings, profile.text, dict(profile.text.digits)
    if not hasattr(estimator, "predict") and (hasattr(estimator, "transform") or find_answers(estimator) is None):
        what = "transforms rows" if hasattr(estimator, "transform") else "does not transform new rows"
        raise builder.refuse(
            estimator, f"it {what}, and has no predict. Give a regressor, or a Pipeline that ends in one"
        )
    answered = {id(estimator): outputs["y"]}
    for end, model in zip(ENDS, quantiles, strict=False):
        with builder.at(end):
            outputs[end] = answered[id(model)] if id(model) in answered else builder.lower(model, builder.input)
    try:
        plan = builder.plan(outputs)
        plan, left = tabulate(plan, builder.functions)
    except PlanError as error:
        raise ExportError(f"Cannot export {builder.subject(estimator)}: {error}") from error
    inputs = profile.text.inputs(plan, _columns_taken(profile, kept))
    inputs = with_integers(inputs, sorted(profile.dates.keys() & set(inputs.numeric)), profile.dates)
    taken = {column for columns in inputs.columns().values() for column in columns}
    profile.unread = frozenset(range(n_features)) - taken
    categorical = tuple(sorted(profile.choices.keys() & set(inputs.numeric)))
    single = tuple(column for column in types.float32 if column in inputs.numeric)
    inputs = dataclasses.replace(inputs, categorical=categorical, float32=single or None)
    sums = tuple(dict.fromkeys((*builder.sums, *left)))
    held = {step.output: builder.covers[step.output] for step in plan.steps if step.output in builder.covers}
    return Lowered(plan, inputs, profile, sums, held, builder.makers)


def _first_rows(estimator: Any, profile: Profile, sample: Any | None, types: RowTypes) -> Any | None:
    """Return the first rows of a sample with float32 columns, as `predict` takes them; None for other samples."""
    if sample is None or not types.float32:
        return None
    first, names = sample.iloc[:ROWS] if hasattr(sample, "iloc") else sample[:ROWS], profile.names
    if hasattr(first, "columns") and names:  # columns that nothing reads may be absent
        first = first.assign(**{name: 0.0 for name in names if name not in first.columns})
    try:
        return Tables(estimator, profile, types).table(first)
    except ExportError:  # the same error is raised when the estimator is asked about the whole sample
        return None


def _columns_taken(profile: Profile, kept: Collection[str]) -> Collection[int]:
    """Return the columns that are inputs of a model without strings: those that a part of it reads, and `kept` ones.

    All columns are inputs if they have no names, since users then send whole matrices, or if the model is a constant,
    which reads none.
    """
    names = profile.names
    if not names or not profile.read:
        return range(profile.n_features)
    return profile.read | {column for column, name in enumerate(names) if name in kept}


@in_one_sentence
def written_columns(estimator: Any, table: Any | None = None) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return the columns that a fitted estimator reads as strings, and those that it reads as dates, by name.

    Own code in the estimator tells neither: a `table` then says which columns look like strings or dates.

    Each column of strings has the value of an empty cell: "" if that is a category of the column, otherwise the missing
    value that the estimator was fitted with: None, or NaN, as pandas reads it. Each column of dates has its time zone,
    or None. Both are empty if the estimator's columns have no names.
    The estimator is lowered for this: nothing else tells a column of strings from one of numbers written as strings.
    """
    names = table_names(estimator, table)
    if names is None:
        return {}, {}
    profile = _lower(estimator, table, ()).profile
    text = profile.text
    strings = {names[column]: "" if "" in text.known(column) else text.missing(column) for column in text.columns()}
    return strings, {names[column]: date.zone for column, date in profile.dates.items()}


def _given_columns(names: Sequence[str] | None, sample: Any | None) -> Callable[[int], list[Any]] | None:
    """Return a function that returns a feature's values in a sample, and may raise `KeyError` or `IndexError`."""
    if sample is None:
        return None

    def column(feature: int) -> list[Any]:
        if not hasattr(sample, "columns"):
            return [row[feature] for row in sample]
        by_name = names is not None and has_names(sample)
        values: list[Any] = (sample[(names or ())[feature]] if by_name else sample.iloc[:, feature]).tolist()
        return values

    return column


def _dtypes(names: Sequence[str] | None, sample: Any | None, n_features: int) -> list[Any]:
    """Return the dtype of each of a model's columns in a sample, None for an absent one; nothing without a sample."""
    if sample is None:
        return []
    table = as_frame(sample)
    if names is not None and has_names(table):
        given = dict(zip(table.columns, table.dtypes, strict=True))
        return [given.get(name) for name in names]
    try:
        dtypes = dtypes_of(table) if hasattr(table, "dtypes") else [np.asarray(table).dtype] * n_features
    except ValueError:  # rows of different lengths, which are refused later
        return []
    return dtypes if len(dtypes) == n_features else []


def _feature_count(estimator: Any, sample: Any | None) -> int:
    """Return how many features the estimator was fitted on."""
    stated = _stated_width(estimator)
    if stated is not None:
        if stated > MOST_FEATURES:  # a number that a file may state without holding anything of that size
            raise ExportError(
                f"Cannot export {type(estimator).__name__}: it states {stated:,} features; at most {MOST_FEATURES:,} "
                "are exported."
            )
        return stated
    given = np.empty(0) if sample is None else np.asarray(sample)
    if given.ndim == 2:
        return len(given.T)
    # An unfitted or unknown estimator is refused by name before its width matters.
    unsized = ExportError(
        f"Cannot export {type(estimator).__name__}: it does not say how many features it was fitted on; give a sample."
    )
    builder = Builder(1, misfit=unsized)
    builder.lower_outputs(estimator, builder.input)
    raise unsized


def _stated_width(estimator: Any) -> int | None:
    """Return how many features an estimator states that it takes, or its first part that knows the number."""
    if isinstance(estimator, IsotonicRegression):
        return 1
    counting, naming = find_count(estimator), find_names(estimator)
    if counting is not None:
        return counting(estimator)
    names = None if naming is None else naming(estimator)
    if names is not None:
        return len(names)
    try:
        return fitted.width(estimator)
    except (AttributeError, TypeError):
        steps = getattr(estimator, "steps", getattr(estimator, "transformer_list", None))
    if isinstance(steps, list):
        # A step without a count may change the number of features, so later steps tell nothing. The members of a union
        # all get the same features.
        first = next((step for _, step in steps if step is not None and not isinstance(step, str)), None)
        return None if first is None else _stated_width(first)
    inner = next((getattr(estimator, name) for name in INNER_ESTIMATORS if hasattr(estimator, name)), None)
    return None if inner is None else _stated_width(inner)
