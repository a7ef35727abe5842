"""The command `update-fleet`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from triton_regressors.commands.fleet_progress import fleet_progress
from triton_regressors.commands.fleet_source import (
    find_set_models,
    id_of,
    read_models,
    read_pairs,
    read_samples,
    signed_columns,
)
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import (
    INTERVAL,
    VERIFIED,
    WHAT,
    ImportOption,
    InputOption,
    LargestMbOption,
    MissingOption,
    MissingStringOption,
    PrecisionOption,
    RepositoryOption,
    TargetOption,
    TiesOption,
    TrackingUriOption,
    TrustPickleOption,
    TrustTypeOption,
    make_console,
    missing_strings,
)
from triton_regressors.defaults import DEFAULT_PRECISION, DEFAULT_REPOSITORY, LARGEST_MB
from triton_regressors.extras import require

if TYPE_CHECKING:
    import pandas as pd


def update_fleet(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry, which `export-fleet` wrote.")],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="ID=MODEL",
            help="A model to add, or to put in place of the one with this id: a file of any kind that `export` takes, "
            "or a model in MLflow; repeatable. In several columns an id is written as north,shop-7.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .csv or .parquet that lists such models: the columns file, relative to it, and id or the name of "
            "the ids' input.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="The id of a model to remove; repeatable.", rich_help_panel=WHAT),
    ] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows of the models to verify on, with their ids in the column of the ids' input: .csv or .parquet. "
            "Rows of other models are not read. Default: rows drawn at random to each model's fitted scale.",
            rich_help_panel=VERIFIED,
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows that the models were not fitted on, with their target, if the fleet has prediction intervals: "
            "as --samples.",
            rich_help_panel=INTERVAL,
        ),
    ] = None,
    target: TargetOption = None,
    precision: PrecisionOption = DEFAULT_PRECISION,
    input: InputOption = "auto",
    ties: TiesOption = "refuse",
    trust_pickle: TrustPickleOption = False,
    trust_type: TrustTypeOption = None,
    import_: ImportOption = None,
    largest_mb: LargestMbOption = LARGEST_MB,
    missing: MissingOption = None,
    tracking_uri: TrackingUriOption = None,
    missing_string: MissingStringOption = None,
) -> None:
    """Write the next version of a fleet, in which some models are added, replaced or removed.

    Only these models are compiled and verified. All others are kept as they are.

    Examples:
        triton-regressors update-fleet demand --set shop-7=new.skops --remove shop-9
        triton-regressors update-fleet demand --manifest new.csv --samples rows.csv
    """
    require("export", "Exporting models")
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.fleets.update import find_fleet
        from triton_regressors.exporter.fleets.update import update_fleet as update_models
    if target and calibrate is None:
        raise ExportError("--target goes with --calibrate.")
    _, document = find_fleet(repository, name)
    inputs = document.inputs
    by = inputs.ids
    whole = [isinstance(inputs.models[0], int)] if inputs.id_columns is None else inputs.id_columns.whole
    with ExitStack() as kept:  # CatBoost reads its files again
        places = find_set_models(set_ or (), manifest, tracking_uri, by)
        for option, given in (("--samples", samples), ("--calibrate", calibrate)):
            if given is not None and not places:
                raise ExportError(f"{option} goes with models to set.")
        with fleet_progress(len(places)) as (reading, compiling):
            read = read_models(
                places,
                kept,
                tracking_uri,
                reading,
                trust_pickle=trust_pickle,
                trusted_types=trust_type,
                imported=import_,
                largest_mb=largest_mb,
                missing=missing,
            )
            rows, targets = (None, None) if calibrate is None else read_pairs(calibrate, read, by, target)
            result = update_models(
                repository,
                name,
                set=dict(zip(_ids(read, whole), (each.estimator for each in read.values()), strict=True)),
                remove=_ids([id_of(each, by) for each in remove or ()], whole),
                samples=_as_known(read_samples(samples, read, by), whole, by),
                calibrate=None if rows is None else (_as_known(rows, whole, by), targets),
                precision=precision,
                input=input,
                missing_strings=missing_strings(missing_string),
                columns=signed_columns(read),
                ties=ties,
                progress=compiling,
            )
    text = Text(result.text())
    text.stylize("bold", len("Wrote "), len("Wrote ") + len(result.entry.name))
    make_console().print(text, soft_wrap=True)


def _ids(texts: Iterable[Any], whole: Sequence[bool]) -> list[Any]:
    """Return ids of the fleet's kind; `whole` says in which columns they are whole numbers.

    Raises:
        ExportError: an id, or its part in such a column, is no whole number.
    """
    from triton_regressors.exporter.errors import ExportError

    def number(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ExportError(f"The ids of this fleet are whole numbers, and {text!r} is none.") from None

    def own(name: Any) -> Any:
        if not isinstance(name, tuple):
            return number(name) if whole[0] else name
        kinds = [*whole, *[False] * len(name)]
        return tuple(number(part) if kind else part for part, kind in zip(name, kinds, strict=False))

    return [own(each) for each in texts]


def _as_known(
    samples: pd.DataFrame | dict[Any, Any] | None, whole: Sequence[bool], by: Sequence[str]
) -> pd.DataFrame | dict[Any, Any] | None:
    """Return samples whose ids are of the fleet's kind."""
    if samples is None:
        return None
    if isinstance(samples, dict):
        return dict(zip(_ids(samples, whole), samples.values(), strict=True)) if samples else None
    return samples.assign(**{name: _ids(samples[name], [kind]) for name, kind in zip(by, whole, strict=True)})
