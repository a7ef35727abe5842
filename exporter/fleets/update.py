"""The user's function that changes some models of a fleet: only these are compiled, and the others are kept."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from triton_regressors.defaults import DEFAULT_PRECISION, MISSING_STRINGS
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fleets.fleet import FleetExport, golden_rows, publish_fleet
from triton_regressors.exporter.fleets.member import Member, compile_members
from triton_regressors.exporter.fleets.records import USED, columns_of, numbered_columns, read_fleet
from triton_regressors.exporter.fleets.samples import arguments_of_models, check_ids, default_of, has_parents
from triton_regressors.exporter.publish import repository as repositories
from triton_regressors.exporter.publish.config import ServingOptions
from triton_regressors.kernels.entry import Document, Entry, find_entry, read_document
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.fleet import Fleet


def update_fleet(
    repository: str | Path,
    name: str,
    *,
    set: Mapping[Any, Any] | None = None,
    remove: Collection[Any] = (),
    samples: Mapping[Any, Any] | pd.DataFrame | None = None,
    calibrate: Mapping[Any, tuple[Any, Any]] | tuple[pd.DataFrame, Any] | None = None,
    quantiles: Mapping[Any, tuple[Any, Any]] | None = None,
    precision: str = DEFAULT_PRECISION,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    columns: Sequence[str] | None = None,
    ties: str = "refuse",
    progress: Callable[[int], object] | None = None,
) -> FleetExport:
    """Write the next version of a fleet, in which some models are added, replaced or removed.

    Only the models that are set are compiled and verified, by the fleet's tolerance. All others, of the newest version,
    are kept with their golden rows and their parity, and their answers have the same bits as before. The entry's
    config.pbtxt keeps its settings. Kept models keep their order, a replaced model has the place of the one before it,
    and new ones come last. As in any fleet, like models then stand together, so that the places of ids, `<by>_number`
    and `model_used`, can differ from those of the version before.

    Args:
        repository: the model repository.
        name: the entry, which `export_fleet` wrote.
        set: fitted estimators by their ids: a new id is added, and the model of another id is replaced.
        remove: the ids of the models to remove.
        samples: rows to verify the set models on, as for `export_fleet`; rows of other models of the fleet are not
            read. None: rows drawn to each model's fitted scale.
        calibrate: rows of the set models that they were not fitted on, and their targets, as for `export_fleet`; the
            level is the fleet's. They are needed if the fleet has prediction intervals and a model is set. Rows of
            other models are not read, and the models that are kept keep their intervals. None: there are none.
        quantiles: models of quantiles of the set models, as for `export_fleet`.
        precision: see `export`.
        input: see `export`. The type of the numbers is the fleet's: a model that needs FP64 is refused if that is FP32,
            unless `input` is "fp32".
        missing_strings: see `export`.
        columns: see `export`.
        ties: see `export`.
        progress: is called with the number of models compiled so far.

    Raises:
        ExportError: there is no such fleet or no such model, a model cannot be exported, its answers are not its
            estimator's, or it takes other columns than the fleet. Nothing is written.
    """
    repository, models = Path(repository), {} if set is None else set
    entry, document = find_fleet(repository, name)
    by = document.inputs.ids
    _check(document, name, models, remove)
    fleet, removed, ids = document.fleet, frozenset(remove), dict.fromkeys(document.inputs.models)
    assert fleet is not None
    left = [each for each in {**ids, **dict.fromkeys(models)} if each not in removed]
    default = default_of(left, _default(document))
    _check_calibration(fleet, name, models, calibrate)
    own = arguments_of_models(models, by, samples=samples, calibrate=calibrate, quantiles=quantiles, others=ids)
    try:
        kept = {member.id: member for member in read_fleet(entry.version_directory, document)}
    except PlanError as error:
        raise ExportError(f"Cannot keep the models of {name} version {entry.version}: {error}") from error
    double = document.inputs.dtype == "float64"
    options = {
        "level": fleet.level,
        "tolerance": document.parity.tolerance,
        "precision": precision,
        "input": "fp64" if double and input == "auto" else input,
        "missing_strings": missing_strings,
        "columns": columns,
        "kept": [column for column in repositories.columns_taken(repository, name) if column not in by],
        "ties": ties,
    }
    compiled = compile_members(models, own, golden_rows(len(left)), options, progress)
    members = [_fitting(member, document) for member in compiled]
    whole = {**kept, **{member.id: member for member in members}}
    version = entry.version + 1
    taken = f"{name} got a version {version} during this update; update that version."
    if os.path.lexists(entry.directory / str(version)):
        raise ExportError(taken)
    changes = _changes(ids, models, removed, entry.version)
    try:
        return publish_fleet(
            [whole[each] for each in left],
            repository,
            name,
            by,
            default,
            document.parity.tolerance,
            fleet.level,
            ServingOptions(),
            version,
            changes,
        )
    except ExportError as error:
        if os.path.lexists(entry.directory / str(version)):
            raise ExportError(taken) from error
        raise


def find_fleet(repository: Path, name: str) -> tuple[Entry, Document]:
    """Return the newest version of a fleet and what it holds; raise `ExportError` if there is no such fleet."""
    repositories.check_name(name)
    try:
        entry = find_entry(repository / name)
        if not entry.exported:
            raise ExportError(f"{entry.version_directory} has no plan.json: no export wrote it.")
        document = read_document(entry.version_directory)
    except PlanError as error:
        raise ExportError(f"Cannot update {name}: {error}") from error
    if document.fleet is None:
        raise ExportError(f"{name} is an entry of one model; `export` writes its next version.")
    return entry, document


def _check(document: Document, name: str, models: Any, remove: Any) -> None:
    """Raise `ExportError` unless these models may be set and removed."""
    if not isinstance(models, Mapping):
        raise ExportError(f"set must be a mapping of fitted models by their ids, not {models!r}.")
    if isinstance(remove, str) or not isinstance(remove, Collection):
        raise ExportError(f"remove must be a list of ids, not {remove!r}.")
    if not models and not remove:
        raise ExportError(f"Name a model of {name} to set or to remove.")
    ids = frozenset[Any](document.inputs.models)
    check_ids([*document.inputs.models, *models], document.inputs.ids)
    if has_parents(models, document.inputs.ids) and USED not in document.parity.outputs:
        raise ExportError(
            f"{name} has no output {USED}, which ids of fewer parts need; export all models again under another name."
        )
    for each in remove:
        if each in models:
            raise ExportError(f"The model {each!r} is both set and removed.")
        if each not in ids:
            raise ExportError(f"{name} has no model {each!r} to remove.")
        if each == _default(document):
            raise ExportError(f"{each!r} answers rows with an unknown id; it can be replaced, but not removed.")
    if not models and ids == frozenset(remove):
        raise ExportError(f"A fleet needs at least one model, and these are all models of {name}.")


def _check_calibration(fleet: Fleet, name: str, models: Mapping[Any, Any], calibrate: Any) -> None:
    """Raise `ExportError` unless there are calibration rows for models to set if the fleet has intervals."""
    if calibrate is None and models and fleet.level is not None:
        raise ExportError(
            f"{name} has prediction intervals, so the models to set need calibration rows: give calibrate."
        )
    if calibrate is not None and fleet.level is None:
        raise ExportError(
            f"{name} has no prediction intervals, so calibrate cannot be given; for intervals export all models again."
        )


def _default(document: Document) -> Any:
    """Return the id of the model that answers rows with an unknown id."""
    default = document.inputs.default
    return None if default is None else document.inputs.models[default]


def _fitting(member: Member, document: Document) -> Member:
    """Return a member as one of the fleet; raise `ExportError` if it needs FP64 and the fleet takes FP32."""
    if member.inputs.dtype == "float64" and document.inputs.dtype == "float32":
        raise ExportError(
            f"The fleet takes FP32, and the model {member.id!r} needs {member.parity.why}; export all models again "
            "under another name, or use --input fp32."
        )
    named = not columns_of(document) and member.columns == numbered_columns(len(member.columns))
    return dataclasses.replace(member, columns=()) if named else member


def _changes(before: Collection[Any], models: Collection[Any], removed: Collection[Any], version: int) -> str:
    """Return the number of models that were added, replaced and removed, in a sentence."""
    replaced = sum(each in models for each in before)
    counts = {"added": len(models) - replaced, "replaced": replaced, "removed": len(removed)}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{said}; {len(before) - replaced - len(removed):,} are those of version {version}."
