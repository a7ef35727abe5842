"""What `export` does with a model of MLflow's: downloads it, reads its file and makes its input example the sample."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_regressors.commands.loading import loading
from triton_regressors.commands.model_file import read_model

if TYPE_CHECKING:
    from triton_regressors.registry import Fetched

RETRIES = ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
"""How often MLflow's client asks again, where the user does not say. Its own default, 7, is four minutes of silence."""


def read_registered(
    uri: str, folder: Path, tracking_uri: str | None, sample: Path | None, **reading: Any
) -> tuple[Any, Any | None, Fetched]:
    """Return the estimator of a model in MLflow, its rows or None, and where it came from; its files go into a folder.

    Rows are the given ones, else the model's input example if it is one of rows. `reading` says how its file is read,
    see `read_model`.

    Raises:
        RegistryError: MLflow does not have it, or its signature names other columns than the estimator.
        ExportError: its file cannot be read, or is not trusted.
        MissingExtra: MLflow or the library of its flavor is not installed.
    """
    with loading():
        from triton_regressors.errors import MissingExtra, RegistryError
        from triton_regressors.exporter.columns import unlike
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.oracle import feature_names
        from triton_regressors.registry import fetch
    os.environ.setdefault(*RETRIES)
    fetched = fetch(uri, folder, tracking_uri)
    model, address = fetched.model, fetched.source.uri
    try:
        estimator, rows = read_model(model.file, sample, **reading)
    except (ExportError, MissingExtra) as error:  # of a file that the user does not know
        raise type(error)(str(error).replace(str(model.file), f"{model.file.name} of {address}")) from error
    difference = None if model.names is None else unlike(model.names, feature_names(estimator))
    if difference is not None:
        raise RegistryError(f"The signature of {address} has other columns than its estimator: {difference}.")
    try:
        return estimator, model.table() if rows is None else rows, fetched
    except RegistryError as error:
        raise RegistryError(f"{address}: {str(error).rstrip('.')}; give rows with --sample.") from None
