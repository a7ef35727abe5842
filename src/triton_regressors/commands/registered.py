"""What `export` does with a model of MLflow's: downloads it, reads its file and makes its input example the sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_regressors.commands.loading import loading
from triton_regressors.commands.model_file import read_model

if TYPE_CHECKING:
    from triton_regressors.registry import Fetched


def read_registered(
    uri: str, folder: Path, tracking_uri: str | None, sample: Path | None, **reading: Any
) -> tuple[Any, Any | None, Fetched]:
    """Return the estimator of a model in MLflow, its rows or None, and where it came from; its files go into a folder.

    Rows are the given ones, else the model's input example. `reading` says how its file is read, see `read_model`.

    Raises:
        RegistryError: MLflow does not have it, or its signature names other columns than the estimator.
        ExportError: its file cannot be read, or is not trusted.
    """
    with loading():
        from triton_regressors.errors import RegistryError
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.oracle import feature_names
        from triton_regressors.registry import fetch
    fetched = fetch(uri, folder, tracking_uri)
    model = fetched.model
    try:
        estimator, rows = read_model(model.file, sample, **reading)
    except ExportError as error:  # of a file that the user does not know
        shown = f"{model.file.name} of {fetched.source.uri}"
        raise ExportError(str(error).replace(str(model.file), shown)) from error
    names = feature_names(estimator)
    told = None if model.columns is None else [column.name for column in model.columns]
    if names is not None and told is not None and told != names:
        first = next((i for i, pair in enumerate(zip(told, names, strict=False)) if pair[0] != pair[1]), None)
        differ = (
            f"{len(told)} columns against {len(names)}" if first is None else f"{told[first]} against {names[first]}"
        )
        raise RegistryError(f"The signature of {fetched.source.uri} has other columns than its estimator: {differ}.")
    if rows is None:
        rows = model.table()
        if rows is not None and names is None and hasattr(rows, "to_numpy"):
            rows = rows.to_numpy()
    return estimator, rows, fetched
