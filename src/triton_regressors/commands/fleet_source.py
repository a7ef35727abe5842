"""The models that `export-fleet` and `update-fleet` read, by their ids: files, those in manifests, and in MLflow."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import read_calibration, read_rows
from triton_regressors.commands.model_source import RETRIES, ModelRead, read_named
from triton_regressors.errors import RegistryError

if TYPE_CHECKING:
    import pandas as pd

    from triton_regressors.exporter.fleets.containers import Models

FILE, ID = "file", "id"
"""The columns of a manifest; the second may have the name of the ids' column instead."""


def find_models(
    files: Sequence[Path] | None, manifest: Path | None, mlflow: str | None, tracking_uri: str | None, by: Sequence[str]
) -> dict[Any, Path]:
    """Return the file or the address in MLflow of each model, by its id.

    Args:
        files: files whose stems are the ids.
        manifest: a table with a file or an address in MLflow for each id.
        mlflow: a pattern of names of registered models, see `registered_models`.
        tracking_uri: MLflow's address; None: that in MLFLOW_TRACKING_URI.
        by: the names of the columns of ids; only a manifest has several.

    Raises:
        ExportError: not one of the three is given, two models have one id, or names of models lack columns of ids.
        RowsError: the manifest cannot be read, or is incomplete.
        RegistryError: MLflow does not have such models.
    """
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.mlflow.model_registry import registered_models
    if sum(map(bool, (files, manifest, mlflow))) != 1:
        raise ExportError("Give the models as files, or with --manifest, or with --mlflow.")
    if len(by) > 1 and (mlflow is not None or len(files or ()) > 1):
        raise ExportError(f"Ids in several columns come from a --manifest with the columns {', '.join((FILE, *by))}.")
    if mlflow is not None:
        os.environ.setdefault(*RETRIES)
        return {name: Path(address) for name, address in registered_models(mlflow, tracking_uri).items()}
    found = _by_stem(files or ()) if manifest is None else _listed(manifest, by)
    _check_tracking(found, tracking_uri)
    return found


def find_set_models(
    given: Sequence[str], manifest: Path | None, tracking_uri: str | None, by: Sequence[str]
) -> dict[Any, Path]:
    """Return the file or the address in MLflow of each model that an update sets, by its id.

    Args:
        given: texts such as `shop-7=new.skops`, or `north,shop-7=new.skops` if there are several columns of ids.
        manifest: see `find_models`; None: there are no others.
        tracking_uri: see `find_models`.
        by: see `find_models`.

    Raises:
        ExportError: a text has no id, or two models have one id.
        RowsError: see `find_models`.
    """
    with loading():
        from triton_regressors.exporter.errors import ExportError
    found = {} if manifest is None else _listed(manifest, by)
    for each in given:
        name, _, file = each.partition("=")
        if not name or not file:
            raise ExportError(f"--set takes an id and a model, such as shop-7=new.skops, not {each!r}.")
        key = id_of(name, by)
        if key in found:
            raise ExportError(f"{found[key]} and {file} would both have the id {key!r}.")
        found[key] = Path(file)
    _check_tracking(found, tracking_uri)
    return found


def id_of(text: str, by: Sequence[str]) -> Any:
    """Return the id of a text, as `id_text` writes it; its parts are strings."""
    if len(by) == 1:
        return text
    return () if text == "()" else tuple(next(csv.reader([text])))


def _check_tracking(places: Mapping[Any, Path], tracking_uri: str | None) -> None:
    """Raise `ExportError` if there is an address of MLflow, and no model there."""
    from triton_regressors.exporter.errors import ExportError
    from triton_regressors.mlflow.model_registry import is_model_uri

    if tracking_uri is not None and not any(is_model_uri(str(place)) for place in places.values()):
        raise ExportError("--tracking-uri goes with models in MLflow.")


def _by_stem(files: Sequence[Path]) -> dict[str, Path]:
    """Return files by their stems."""
    from triton_regressors.exporter.errors import ExportError
    from triton_regressors.mlflow.model_registry import is_model_uri

    found = dict[str, Path]()
    for file in files:
        if is_model_uri(str(file)):
            raise ExportError(f"{file} has no id: give models in MLflow with --mlflow, or list them in a --manifest.")
        if file.stem in found:
            raise ExportError(
                f"{found[file.stem]} and {file} would both have the id {file.stem!r}; give ids with --manifest."
            )
        found[file.stem] = file
    return found


def _listed(manifest: Path, by: Sequence[str]) -> dict[Any, Path]:
    """Return the files that a manifest lists; their paths are relative to its folder.

    In several columns of ids the last cells of a row may be empty, for an id of fewer parts.
    """
    with loading():
        from triton_regressors.clients.errors import RowsError
        from triton_regressors.mlflow.model_registry import is_model_uri
        from triton_regressors.tables.errors import raised_as
        from triton_regressors.tables.files import read_table
        from triton_regressors.tables.frames import has_names
    with raised_as(RowsError):
        table = read_table(manifest, (*by, ID, FILE))
    columns = list(table.columns) if has_names(table) else []
    keys = [ID] if len(by) == 1 and by[0] not in columns else [*by]
    if not {*keys, FILE} <= set(columns):
        ids = " and ".join(map(repr, by)) if len(by) > 1 or by[0] == ID else f"{by[0]!r} or '{ID}'"
        raise RowsError(f"{manifest} must have the columns '{FILE}' and {ids}.")
    rows = table[[FILE, *keys]]
    if len(by) > 1:
        rows = rows.convert_dtypes()  # whole numbers stay whole beside empty cells
    rows = rows.astype(object)
    found = dict[Any, Path]()
    for place, (file, *cells) in enumerate(rows.where(rows.notna(), None).itertuples(index=False, name=None)):
        parts = [None if cell in (None, "") else str(cell) for cell in cells]
        while len(by) > 1 and parts and parts[-1] is None:
            del parts[-1]
        lacking = "id" if None in parts else "file" if not isinstance(file, str) or not file else None
        if lacking is not None:
            raise RowsError(f"Row {place} of {manifest} lacks its {lacking}.")
        name = parts[0] if len(by) == 1 else tuple(parts)
        if name in found:
            raise RowsError(f"{manifest} has the id {name!r} more than once.")
        found[name] = Path(file) if is_model_uri(file) else manifest.parent / file
    return found


def read_models(
    places: Mapping[Any, Path],
    kept: ExitStack,
    tracking_uri: str | None,
    progress: Callable[[int], object],
    **reading: Any,
) -> dict[Any, ModelRead]:
    """Return models by their ids; `reading` are the arguments of `read_named`, and downloaded files exist until `kept`.

    Args:
        places: their files or addresses in MLflow.
        kept: see `read_named`.
        tracking_uri: see `read_named`.
        progress: is called with the number of models read so far.
        reading: the arguments of `read_model`.

    Raises:
        RegistryError: see `read_named`; also for models whose signatures name different columns.
        ExportError: a file cannot be read, or is not trusted.
    """
    found = dict[Any, ModelRead]()
    for name, place in places.items():
        found[name] = read_named(place, kept, tracking_uri, **reading)
        progress(len(found))
    return found


def container_in(models: Mapping[Any, ModelRead], by: Sequence[str] | None) -> Models | None:
    """Return the models of the only file if it holds a container of a model for each group, or None.

    Raises:
        ExportError: see `models_of`.
    """
    with loading():
        from triton_regressors.exporter.fleets.containers import models_of
        from triton_regressors.exporter.lowering.containers import is_container
    (only, *others) = models.values()
    return None if others or not is_container(only.estimator) else models_of(only.estimator, by)


def signed_columns(models: Mapping[Any, ModelRead]) -> list[str] | None:
    """Return the columns that the signatures of models in MLflow name, None if they name none.

    Raises:
        RegistryError: signatures name different columns.
    """
    with loading():
        from triton_regressors.exporter.lowering.column_names import unlike
    named = {key: each.fetched.model.names for key, each in models.items() if each.fetched is not None}
    signed = {key: names for key, names in named.items() if names is not None}
    first = next(iter(signed), None)
    for key, names in signed.items():
        difference = unlike(names, signed[first]) if first is not None else None
        if difference is not None:
            raise RegistryError(f"The signatures of the models {first!r} and {key!r} differ: {difference}.")
    return None if first is None else signed[first]


def read_samples(
    file: Path | None, models: Mapping[Any, ModelRead], by: Sequence[str], container: Models | None = None
) -> pd.DataFrame | dict[Any, Any] | None:
    """Return the rows of all models in a file, or each model's input example if all have one, or None.

    Args:
        file: the file, or None.
        models: the models read.
        by: the names of the columns of ids.
        container: the models of the container if it is the only one read.

    Raises:
        RowsError: the file cannot be read, or lacks a column of ids.
        RegistryError: an example does not match its model's signature.
    """
    if file is None:
        examples = {key: _example(key, each) for key, each in models.items()}
        if container is not None:
            return next(iter(examples.values()))
        return None if any(rows is None for rows in examples.values()) else examples
    return _with_ids(read_rows(file, _first(models, container), by), file, by, container)


def read_pairs(
    file: Path,
    models: Mapping[Any, ModelRead],
    by: Sequence[str],
    targets: Sequence[str] | None,
    container: Models | None = None,
) -> tuple[pd.DataFrame, Any]:
    """Return the calibration rows of all models in a file, with their ids, and their targets; see `read_calibration`.

    The other arguments are those of `read_samples`.

    Raises:
        RowsError: the file cannot be read, lacks a column of ids, or does not say which column is the target.
    """
    table, found = read_calibration(file, _first(models, container), targets, by)
    return _with_ids(table, file, by, container), found


def _first(models: Mapping[Any, ModelRead], container: Models | None) -> Any:
    """Return the first estimator, which says how a file is read."""
    return next(iter(models.values())).estimator if container is None else next(iter(container.models.values()))


def _with_ids(table: Any, file: Path, by: Sequence[str], container: Models | None) -> pd.DataFrame:
    """Return the rows of a file with ids of the models' kind; raise `RowsError` if it has none."""
    with loading():
        from triton_regressors.clients.errors import RowsError
        from triton_regressors.tables.frames import has_names
    ids = {}
    for place, name in enumerate(by):
        if not has_names(table) or name not in table.columns:
            raise RowsError(f"{file} has no column '{name}' with the id of each row's model; name it with --by.")
        known = () if container is None else container.models
        parts = known if len(by) == 1 else (each[place] for each in known if len(each) > place)
        try:
            ids[name] = table[name].astype("int64" if isinstance(next(iter(parts), None), int) else str)
        except ValueError:
            raise RowsError(
                f"The column '{name}' of {file} must hold whole numbers, as the model's groups are."
            ) from None
    found: pd.DataFrame = table.assign(**ids)
    return found


def _example(key: Any, model: ModelRead) -> Any | None:
    """Return the rows of a model's input example, None if it has none."""
    try:
        return None if model.fetched is None else model.fetched.model.table()
    except RegistryError as error:
        raise RegistryError(f"Model {key!r}: {str(error).rstrip('.')}; give rows with --samples.") from None
