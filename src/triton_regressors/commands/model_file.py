"""Common parts of the commands that read a fitted estimator's file: options, the estimator and its sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from triton_regressors.commands.lazy_imports import import_modules, loading
from triton_regressors.defaults import DEFAULT_LEVEL, MISSING_STRINGS

WHAT, VERIFIED, READING = "What is exported", "How it is verified", "Reading the file"
INTERVAL = "Prediction intervals"

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A fitted estimator: .skops, or XGBoost's .json and .ubj, LightGBM's .txt, CatBoost's .cbm and .json; "
        ".joblib, .pkl, PyTorch's .pt and .pth and the directory of an AutoGluon predictor need --trust-pickle. "
        "`export` also takes a model in MLflow, such as models:/demand/3.",
    ),
]
RepositoryOption = Annotated[
    Path, typer.Option(metavar="DIR", help="The model repository to write into.", rich_help_panel=WHAT)
]
SampleOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Rows to verify on: .npy, .csv or .parquet. Default: rows drawn at random to the fitted scale.",
        rich_help_panel=VERIFIED,
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Target column of --calibrate; default: the one that is not a feature, or the last. Can be repeated.",
        rich_help_panel=INTERVAL,
    ),
]
LevelOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help=f"Share of new rows between lower and upper; default {DEFAULT_LEVEL}.",
        rich_help_panel=INTERVAL,
    ),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        metavar="STD",
        help="Largest difference from the estimator's own prediction, in its standard deviations.",
        rich_help_panel=VERIFIED,
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Error that kernels may make: exact (5e-07 standard deviations) or fast (a quarter of the tolerance).",
        rich_help_panel=VERIFIED,
    ),
]
InputOption = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="TYPE",
        help="Type of the numbers in requests: fp32, fp64, or auto (FP32 if rounding moves no answer).",
        rich_help_panel=WHAT,
    ),
]
TiesOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Rows with neighbours at equal distance or on thresholds behind sums: refuse to export, or accept "
        "other answers than scikit-learn's.",
        rich_help_panel=VERIFIED,
    ),
]
MissingStringOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A string that means a missing value unless it is a category; repeatable. Default: "
        f"{', '.join(MISSING_STRINGS)}; '' for none.",
        rich_help_panel=WHAT,
    ),
]
TrackingUriOption = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="Address of MLflow; default: $MLFLOW_TRACKING_URI.",
        rich_help_panel=READING,
    ),
]
TrustPickleOption = Annotated[
    bool,
    typer.Option("--trust-pickle", help="Load a pickle, running whatever code it holds.", rich_help_panel=READING),
]
TrustTypeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE", help="A further type that skops may load; can be repeated.", rich_help_panel=READING),
]
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A module of yours to import first, with classes and lowerings; can be repeated.",
        rich_help_panel=READING,
    ),
]
LargestMbOption = Annotated[
    int,
    typer.Option(min=1, metavar="MB", help="Largest size of an unpacked .skops file.", rich_help_panel=READING),
]


MissingOption = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Number that means a missing value in an XGBoost file, which does not record it; mostly nan.",
        rich_help_panel=READING,
    ),
]


def read_model(
    path: Path, *, imported: Sequence[str] | None, trusted_types: Sequence[str] | None, **options: Any
) -> Any:
    """Import the user's modules, and return the estimator in a file; the options are those of `load_estimator`."""
    with loading():
        from triton_regressors.exporter.files.loading import load_estimator
    import_modules(imported)
    return load_estimator(path, trusted_types=trusted_types or (), **options)


def read_rows(path: Path, estimator: Any, ids: Sequence[str] = ()) -> Any:
    """Return the rows of a file.

    Columns that the estimator reads as strings keep the file's text unchanged, and so do the columns `ids`; an empty
    cell is a missing value there. Columns that the estimator reads as dates are dates.
    """
    with loading():
        from triton_regressors.clients.errors import RowsError
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.lowering.estimator import named_by_sample, table_names
        from triton_regressors.exporter.lowering.lower import written_columns
        from triton_regressors.tables.errors import raised_as
        from triton_regressors.tables.files import read_dates, read_table, read_typed
        from triton_regressors.tables.frames import has_names
    with raised_as(RowsError):
        written = path.suffix.lower() == ".csv"
        typed = read_typed(path) if written and named_by_sample(estimator) else None
        names, others = table_names(estimator, typed), dict.fromkeys(ids, float("nan"))
        if names is None:
            return read_table(path, others or None)
        try:
            strings, zones = written_columns(estimator, typed)
        except ExportError:  # of own code and the like, whose columns no fit describes
            strings, zones = written_columns(estimator, read_typed(path) if written else read_table(path))
        table = read_table(path, {**strings, **dict.fromkeys(zones, float("nan")), **others} or None, names)
        if zones and has_names(table):
            read_dates(table, path, zones)
        return table


def read_calibration(
    path: Path, estimator: Any, targets: Sequence[str] | None, ids: Sequence[str] = ()
) -> tuple[Any, Any]:
    """Return the rows of a file and their targets, which `export` takes as `calibrate`.

    The targets are the named columns. Without names, the target is the one column that the model does not know, or the
    last one if the model or the file has no names. The columns `ids` stay among the rows and are no targets.

    Raises:
        RowsError: the file cannot be read, or does not say which column is the target.
    """
    with loading():
        from triton_regressors.clients.errors import RowsError
        from triton_regressors.exporter.lowering.estimator import feature_names
        from triton_regressors.tables.columns import in_words
        from triton_regressors.tables.frames import has_names
    names, table = feature_names(estimator), read_rows(path, estimator, ids)
    if table.ndim != 2 or table.shape[1] < 2:
        raise RowsError(f"{path} has shape {table.shape}; the model's columns and one for the target are needed.")
    if not has_names(table):
        if targets:
            raise RowsError(f"--target names {in_words(targets)}, but the columns of {path} have no names.")
        array = table.to_numpy() if hasattr(table, "columns") else table
        return array[:, :-1], array[:, -1]
    others = [name for name in table.columns if name not in (*(names or ()), *ids)]
    beside = f"besides the model's own columns it has {in_words(others) if others else 'none'}"
    absent = [name for name in targets or () if name not in others]
    if absent:
        why = "the model itself reads" if absent[0] in (names or ()) else "is not there"
        raise RowsError(f"--target names the column '{absent[0]}' of {path}, which {why}; {beside}.")
    if not targets:
        if names is not None and len(others) != 1:
            raise RowsError(f"Say with --target which column of {path} is the target: {beside}.")
        targets = others[-1:]
    chosen = list(targets)
    return table.drop(columns=chosen), table[chosen]


def missing_strings(given: Sequence[str] | None) -> Sequence[str]:
    """Return the strings for a missing value that the option says; an empty one stands for none."""
    return MISSING_STRINGS if given is None else [text for text in given if text]


def make_console() -> Console:
    """Return a console that prints names and paths unchanged, including brackets and colons."""
    return Console(markup=False, emoji=False, highlight=False)
