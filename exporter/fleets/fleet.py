"""The user's function for fleets: many fitted estimators become one entry of a model repository."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.defaults import (
    DEFAULT_LEVEL,
    DEFAULT_PRECISION,
    DEFAULT_REPOSITORY,
    DEFAULT_TOLERANCE,
    MISSING_STRINGS,
)
from triton_regressors.describe.contract import Contract, contract_of
from triton_regressors.exporter.compilation import next_steps, stage_summary
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fleets.agreement import check_alike
from triton_regressors.exporter.fleets.categories import share_categories
from triton_regressors.exporter.fleets.classes import NUMBER, classes_of, fleet_plan
from triton_regressors.exporter.fleets.containers import models_of
from triton_regressors.exporter.fleets.indicators import align_indicators
from triton_regressors.exporter.fleets.member import Member, compile_members
from triton_regressors.exporter.fleets.records import USED, numbered_columns, table_of, units_of
from triton_regressors.exporter.fleets.samples import arguments_of_models, check_models, default_of, has_parents
from triton_regressors.exporter.publish import repository as repositories
from triton_regressors.exporter.publish.config import ServingOptions
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import Document, Entry, Golden, OutputParity, Provenance
from triton_regressors.kernels.format.fleet import Fleet
from triton_regressors.kernels.format.id_columns import IdColumns
from triton_regressors.kernels.format.inputs import Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.member_table import MemberTable
from triton_regressors.kernels.format.member_tensors import numbered
from triton_regressors.kernels.format.parity import Parity, measure
from triton_regressors.kernels.plan.plan import FLEET_PROTOCOL, Plan
from triton_regressors.version import __version__

GOLDEN_ROWS, GOLDEN_ROWS_OF_ALL = 16, 20_000
"""The most golden rows of a member, and about the most of a fleet, which has at least one of each member."""

CHECKED_AT_ONCE = 4096


@dataclass(frozen=True, repr=False)
class FleetExport:
    """A fleet that was written, and its contract."""

    entry: Entry
    plan: Plan
    document: Document
    golden: Golden
    table: MemberTable
    changes: str = ""
    """A sentence on what an update changed."""

    @property
    def contract(self) -> Contract:
        """The inputs and outputs of the entry."""
        return contract_of(self.entry.name, self.entry.version, self.document, self.golden, members=self.table)

    def __repr__(self) -> str:
        return f"FleetExport of {self.entry.name} version {self.entry.version}\n{self.contract.brief()}"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the text that the command prints: the files written, the classes, and a short contract."""
        entry, fleet = self.entry, self.document.fleet
        assert fleet is not None
        lines = [
            f"Wrote {entry.name} version {entry.version} to {entry.version_directory}: {fleet.members:,} models in "
            f"{len(fleet.classes):,} class{'es' * (len(fleet.classes) != 1)}, {self.plan.parameter_bytes():,} bytes.",
            self.contract.brief(),
            *self.contract.fleet,
            *([self.changes] if self.changes else []),
            *next_steps(entry),
        ]
        return "\n".join(lines)


def export_fleet(
    models: Mapping[Any, Any] | Any,
    repository: str | Path = DEFAULT_REPOSITORY,
    *,
    name: str,
    by: str | Sequence[str] | None = None,
    samples: Mapping[Any, Any] | pd.DataFrame | None = None,
    calibrate: Mapping[Any, tuple[Any, Any]] | tuple[pd.DataFrame, Any] | None = None,
    level: float | None = None,
    quantiles: Mapping[Any, tuple[Any, Any]] | None = None,
    default: Any = None,
    tolerance: float = DEFAULT_TOLERANCE,
    precision: str = DEFAULT_PRECISION,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    columns: Sequence[str] | None = None,
    ties: str = "refuse",
    version: int | None = None,
    progress: Callable[[int], object] | None = None,
    **serving: Any,
) -> FleetExport:
    """Write many fitted estimators into a model repository as one entry, whose rows name the model that answers them.

    The entry has one more input, BYTES or INT64 `[rows, 1]`, with the id of each row's model, or one more for each of
    several columns of ids. Rows of one request may name different models. Each model is compiled and verified as
    `export` does it alone, and a row's answer has the bits that an entry of its model alone gives.

    Args:
        models: the fitted estimators by their ids, which are all strings or all whole numbers: regressors, or Pipelines
            or searches that end in one. They take the same columns. In several columns an id is a tuple of strings and
            whole numbers. One of fewer parts answers rows whose id is unknown and begins so, and () answers all others,
            as by `default`. Or a fitted GroupedPredictor or HierarchicalRegressor of scikit-lego: its groups are the
            ids, and its global model is the default, with an id of its own, or () if there are several columns.
        repository: the model repository, a directory; it is made if it does not exist.
        name: the entry's name on the server.
        by: the name of the input with the ids, and of their column in tables, or several such names in the order of an
            id's parts; None: "id", or a container's columns.
        samples: rows to verify on, as `predict` takes them: one table of each model by its id, or one DataFrame with
            the rows of all models and their ids in the columns `by`; all rows that begin with the parts of an id of
            fewer parts are its model's. None: rows drawn to each model's fitted scale.
        calibrate: rows that the models were not fitted on, and their targets: a pair `(X, y)` of each model by its id,
            or one pair of a DataFrame with the rows of all models, and their ids in the columns `by`, and its targets.
            Each model then answers `lower` and `upper` as by `export` with its own rows. None: there are no such
            outputs.
        level: see `export`; it holds for each model by itself.
        quantiles: see `export`: a pair of models of each model by its id. None: there are none.
        default: the id of the model that answers rows whose id is unknown; None: a request with such a row is refused.
            The entry then has one more output, `model_used`, FP32 `[rows, 1]`: the place among the ids of the model
            that answered. It has it too if an id has fewer parts than columns.
        tolerance: see `export`.
        precision: see `export`.
        input: see `export`; "auto" is FP64 for all models if one of them needs it.
        missing_strings: see `export`.
        columns: see `export`.
        ties: see `export`.
        version: the number of the version, at least 1, which the entry must not have yet; None: the next one.
        progress: is called with the number of models compiled so far.
        serving: the arguments of `export` from `max_batch_size` on, such as `instances`.

    Raises:
        ExportError: a model cannot be exported, or its answers are not its estimator's; models differ in their
            columns; or an option or the repository does not allow the export. Nothing is written.
    """
    for option in ("contributions", "background", "permutations"):
        if option in serving:
            raise ExportError(f"A fleet has no contributions, so it takes no {option}; export its models one by one.")
    options = ServingOptions(**serving)
    repository = Path(repository)
    repositories.check_name(name)
    repositories.check_version(repository / name, version)
    given = models_of(models, by, default, samples, calibrate)
    models, ids = given.models, given.by
    check_models(models, ids)
    own = arguments_of_models(models, ids, samples=given.samples, calibrate=given.calibrate, quantiles=quantiles)
    default = default_of(models, given.default)
    existing = repositories.input_type(repository, name)
    if input == "auto" and existing == "fp64":
        input = "fp64"
    arguments = {
        "level": level,
        "tolerance": tolerance,
        "precision": precision,
        "missing_strings": missing_strings,
        "columns": columns,
        "kept": [column for column in repositories.columns_taken(repository, name) if column not in ids],
        "ties": ties,
    }
    rows = golden_rows(len(models))
    members = compile_members(models, own, rows, {**arguments, "input": input}, progress)
    if input == "auto" and len({member.plan.dtype for member in members} | {m.inputs.dtype for m in members}) > 1:
        members = compile_members(models, own, rows, {**arguments, "input": "fp64"}, progress)
    members = [given.member(each) for each in members]
    if calibrate is not None and level is None:
        level = DEFAULT_LEVEL
    return publish_fleet(members, repository, name, ids, default, tolerance, level, options, version)


def golden_rows(members: int) -> int:
    """Return the most golden rows of a member among that many."""
    return max(1, min(GOLDEN_ROWS, GOLDEN_ROWS_OF_ALL // members))


def publish_fleet(
    members: Sequence[Member],
    repository: Path,
    name: str,
    by: tuple[str, ...],
    default: Any,
    tolerance: float,
    level: float | None,
    options: ServingOptions,
    version: int | None,
    changes: str = "",
) -> FleetExport:
    """Write members as a version of an entry; see `export_fleet` and `FleetExport` for the arguments.

    Raises:
        ExportError: members differ in their columns, or an option or the repository does not allow the export.
    """
    check_alike(members, by)
    members = align_indicators(members)
    classes = classes_of(members)
    plan, records = fleet_plan(classes)
    in_order = [member for alike in classes for member in alike.members]
    if default is not None or has_parents([member.id for member in members], by):
        plan = dataclasses.replace(plan, outputs={**plan.outputs, USED: NUMBER})
        in_order = [_telling(member, number) for number, member in enumerate(in_order)]
    origins = tuple(dict.fromkeys(member.origin for member in in_order))
    places = {member.id: place for place, member in enumerate(members)}
    shared = share_categories([member.inputs for member in members], [places[member.id] for member in in_order])
    golden, table = _golden(in_order, plan), table_of(in_order, plan, origins, shared)
    fleet = Fleet("_".join(by), tuple(records), origins, level)
    document = _document(in_order, plan, fleet, by, table, default, shared.inputs)
    _verify(plan, golden, tolerance)
    if shared.categories is not None:
        golden = dataclasses.replace(golden, X=shared.categories.shared(golden.X))
    repositories.check_target(
        repository, name, document.inputs, plan.output_widths(), document.provenance.feature_names
    )
    try:
        entry = repositories.publish(repository, name, plan, golden, document, options, version, members=table)
    except OSError as error:
        raise ExportError(f"Cannot write into the repository {repository}: {error}.") from error
    return FleetExport(entry, plan, document, golden, table, changes)


def _telling(member: Member, number: int) -> Member:
    """Return a member that answers its number too."""
    outputs = {**member.outputs, USED: np.full((len(member.X), 1), float(number))}
    parity = {**member.parity.outputs, USED: OutputParity((1.0,), 0.0, 0.0, 0.0)}
    return dataclasses.replace(member, outputs=outputs, parity=dataclasses.replace(member.parity, outputs=parity))


def _golden(members: Sequence[Member], plan: Plan) -> Golden:
    """Return the golden rows of all members, each with the number of its member."""
    numbers = np.repeat(np.arange(len(members)), [len(member.X) for member in members])[:, None]
    X = np.hstack([np.concatenate([member.X for member in members]), numbers]).astype(members[0].X.dtype)
    outputs = {name: np.concatenate([member.outputs[name] for member in members]) for name in plan.outputs}
    return Golden(X, outputs, units_of(members, plan.outputs, numbers[:, 0]))


def _document(
    members: Sequence[Member],
    plan: Plan,
    fleet: Fleet,
    by: tuple[str, ...],
    table: MemberTable,
    default: Any,
    shared: Inputs,
) -> Document:
    """Return what `plan.json` holds; `shared` are the inputs of all members, without their ids."""
    first, number = members[0], plan.n_features - 1
    inputs = dataclasses.replace(
        shared,
        n_features=plan.n_features,
        **_ids(members, shared, by, number, closed=default is None),
        numbered=numbered(fleet.by),
        default=None if default is None else [member.id for member in members].index(default),
        categorical=tuple(sorted({column for member in members for column in member.inputs.categorical})),
    )
    names = first.columns or numbered_columns(number)
    kinds = Counter(member.origin.estimator for member in members)
    rows_from = " or ".join(dict.fromkeys(origin.rows_from for origin in fleet.origins))
    booleans = sorted({column for member in members for column in member.boolean_columns})
    return Document(
        plan={**plan.to_json(), "protocol": FLEET_PROTOCOL},
        provenance=Provenance(
            estimator=", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()),
            class_="fleet",
            feature_names=(*names, fleet.by),
            scikit_learn=", ".join(sorted({origin.scikit_learn for origin in fleet.origins})),
            triton_regressors=__version__,
        ),
        inputs=inputs,
        nan_columns=tuple(np.flatnonzero(~table.refused.all(axis=0)).tolist()),
        parity=dataclasses.replace(
            first.parity,
            rows=sum(member.parity.rows for member in members),
            rows_from=f"{len(members):,} models, {rows_from} of each",
            outputs={name: _worst(members, name) for name in plan.outputs},
            types=inputs.datatypes(),
        ),
        stages=(stage_summary("stacked", plan),),
        answers_column=first.answers_column or None,
        boolean_columns=tuple(booleans) or None,
        fleet=fleet,
    )


def _ids(
    members: Sequence[Member], shared: Inputs, by: tuple[str, ...], column: int, *, closed: bool
) -> dict[str, Any]:
    """Return the fields of `Inputs` with the ids in a column of the matrix."""
    ids, several = tuple(member.id for member in members), len(by) > 1
    parts = [[each[place] for each in ids if len(each) > place] for place in range(len(by))] if several else [ids]
    whole = tuple(isinstance(each[0], int) for each in parts)
    if several:
        return {"id_columns": IdColumns(by, whole, (column,), (ids,), (closed,))}
    if whole[0]:
        return {"whole_ids": IntegerInput((column,), (ids,), (closed,), name=by[0])}
    return {"text": (*shared.text, TextInput(by[0], (column,), (ids,), (closed,)))}


def _worst(members: Sequence[Member], name: str) -> OutputParity:
    """Return the largest numbers of an output's parity over all members, and the unit of the largest error."""
    found = [member.parity.outputs[name] for member in members]
    rounded = [each.rounded for each in found if each.rounded is not None]
    return OutputParity(
        max(found, key=lambda each: each.max_error).unit,
        *_maxima(found),
        Parity(*_maxima(rounded)) if rounded else None,
    )


def _maxima(found: Sequence[OutputParity | Parity]) -> tuple[float, float, float]:
    """Return the largest `max_error`, `max_ulp` and `excess`."""
    return (
        max(each.max_error for each in found),
        max(each.max_ulp for each in found),
        max(each.excess for each in found),
    )


def _verify(plan: Plan, golden: Golden, tolerance: float) -> None:
    """Raise `ExportError` unless the fleet's plan answers the golden rows as their models do."""
    runner = Runner(plan, engine="auto", max_rows=min(len(golden.X), CHECKED_AT_ONCE))
    for name, answers in runner.predict(golden.X, tuple(plan.outputs)).items():
        parity = measure(answers, golden.outputs[name], golden.units[name])
        if not parity.within(tolerance):
            raise ExportError(f"The fleet's output {name!r} differs from its models' by {parity.max_error:.1e} std.")
