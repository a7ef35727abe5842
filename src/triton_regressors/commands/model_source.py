"""The models that `export` reads: those in files, and those in MLflow, which it downloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import read_model, read_rows
from triton_regressors.errors import MissingExtra, RegistryError, TritonRegressorsError

if TYPE_CHECKING:
    from triton_regressors.exporter.compilation import Compilation
    from triton_regressors.mlflow.model_registry import Fetched

RETRIES = ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
"""The default number of retries of MLflow's client. The client's own default, 7, means four minutes of silence."""


@dataclass(frozen=True)
class ModelRead:
    """A model under the user's name for it, its estimator, and its source if it was in MLflow."""

    path: Path
    estimator: Any
    fetched: Fetched | None = None

    @property
    def columns(self) -> list[str] | None:
        """The names of its columns: its signature's, or else those that it was fitted on; None if it has none."""
        with loading():
            from triton_regressors.exporter.evidence.oracle import feature_names
        signed = None if self.fetched is None else self.fetched.model.names
        return feature_names(self.estimator) if signed is None else signed

    def rows(self, sample: Path | None) -> Any | None:
        """Return the rows of a file, or else those of the model's input example if it holds rows, or else None.

        Raises:
            RegistryError: the example does not match the signature.
            RowsError: the file cannot be read.
        """
        if sample is not None:
            return read_rows(sample, self.estimator)
        if self.fetched is None:
            return None
        try:
            return self.fetched.model.table()
        except RegistryError as error:
            address = self.fetched.source.uri
            raise RegistryError(f"{address}: {str(error).rstrip('.')}; give rows with --sample.") from None


@contextmanager
def naming_optional_columns(read: ModelRead, rows: Any | None) -> Iterator[None]:
    """Add the signature's optional columns that are missing in every one of the sample's `rows` to a refusal."""
    with loading():
        from triton_regressors.exporter.errors import ExportError
    try:
        yield
    except ExportError as error:
        optional = [] if read.fetched is None else read.fetched.model.optional
        table: Any = rows  # an array has no columns
        missing = [name for name in optional if name in getattr(table, "columns", ()) and table[name].isna().all()]
        if not missing:
            raise
        raise ExportError(
            f"{str(error).rstrip('.')}. The signature lets a table leave out {', '.join(map(repr, missing))}, which is "
            "missing in every row of the sample; give rows that have it with --sample."
        ) from error


def optional_columns(read: ModelRead, compilation: Compilation) -> str | None:
    """Return a sentence on a signature's optional columns in an entry, None if there are none."""
    optional = [] if read.fetched is None else read.fetched.model.optional
    if not optional:
        return None
    takes_nan = {compilation.columns[place] for place in compilation.nan_columns}
    unknown = {True: "NaN or null if it is unknown", False: "it must be known, because the model refuses NaN"}
    told = ", ".join(f"'{name}' ({unknown[name in takes_nan]})" for name in optional)
    return f"The signature makes these columns optional, but every request to the entry must have them: {told}."


def read_named(path: Path, kept: ExitStack, tracking_uri: str | None, **reading: Any) -> ModelRead:
    """Return the model in a file or at an address in MLflow; the downloaded files exist until `kept` ends.

    `reading` holds the arguments of `read_model` for its file.

    Raises:
        RegistryError: MLflow does not have it, or its signature names other columns than the estimator.
        ExportError: its file cannot be read, or is not trusted.
        MissingExtra: MLflow or the library of its flavor is not installed.
    """
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.evidence.oracle import feature_names
        from triton_regressors.exporter.lowering.column_names import unlike
        from triton_regressors.mlflow.model_registry import fetch, is_model_uri
    if not is_model_uri(str(path)):
        return ModelRead(path, read_model(path, None, **reading)[0])
    os.environ.setdefault(*RETRIES)
    folder = Path(kept.enter_context(TemporaryDirectory(prefix="triton-regressors-")))
    fetched = fetch(str(path), folder, tracking_uri)
    model, address = fetched.model, fetched.source.uri
    try:
        estimator, _ = read_model(model.file, None, **reading)
    except (ExportError, MissingExtra) as error:  # the file is one that the user does not know
        raise type(error)(str(error).replace(str(model.file), f"{model.file.name} of {address}")) from error
    difference = None if model.names is None else unlike(model.names, feature_names(estimator))
    if difference is not None:
        raise RegistryError(f"The signature of {address} has other columns than its estimator: {difference}.")
    return ModelRead(path, estimator, fetched)


def read_quantiles(
    lower: Path | None, upper: Path | None, middle: ModelRead, kept: ExitStack, tracking_uri: str | None, **reading: Any
) -> tuple[Any, Any] | None:
    """Return the estimators of two quantiles' models, read as `read_named` does, or None if there are none.

    `middle` is the model of `y`, which may be one of them. Errors are those of `read_named`, and name the option.

    Raises:
        ExportError: also if one has other columns than the model of `y`.
    """
    if lower is None or upper is None:
        return None
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.lowering.column_names import unlike
    found = []
    for option, path in (("--lower", lower), ("--upper", upper)):
        try:
            model = middle if path == middle.path else read_named(path, kept, tracking_uri, **reading)
        except TritonRegressorsError as error:
            raise type(error)(f"{option}: {error}") from error
        difference = None if model.columns is None else unlike(model.columns, middle.columns)
        if difference is not None:
            raise ExportError(
                f"{option}: {path} has other columns than {middle.path}, or in another order: {difference}; fit all of "
                "them on the same table."
            )
        found.append(model.estimator)
    return found[0], found[1]
