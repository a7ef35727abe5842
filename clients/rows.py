"""Reading rows to predict from .npy, .csv and .parquet files."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.errors import InvalidRequest, RowsError
from triton_regressors.clients.tables import in_words, numbers
from triton_regressors.clients.tables import take as take_columns
from triton_regressors.clients.tensors import InputTensor, Tensors, float32_rows, input_tensors, listed, split
from triton_regressors.kernels.entry import PLAN, versions

SUFFIXES = (".npy", ".csv", ".parquet")


def read_rows(path: Path, feature_names: Sequence[str] | None = None) -> npt.NDArray[np.float32]:
    """The rows of a file, float32 [rows, n_features].

    Args:
        path: .npy (one 2-D array), .csv (commas; the first line is a header if any of its cells is not a number) or
            .parquet. Empty cells are NaN.
        feature_names: the columns to take, in this order, from a file whose columns have names; others are left out. A
            file without names must have as many columns.

    Raises:
        RowsError: the file cannot be read, is of another kind, has no rows, or holds what is not a number.
    """
    values = read_table(path)
    try:
        if isinstance(values, pd.DataFrame):
            if feature_names is not None and all(isinstance(name, str) for name in values.columns):
                values = take_columns(values, feature_names)
            values = numbers(values)
        if feature_names is not None and (values.ndim != 2 or values.shape[1] != len(feature_names)):
            raise RowsError(f"{path} has shape {values.shape}; {len(feature_names)} features are expected.")
        return float32_rows(values)
    except InvalidRequest as error:
        raise RowsError(f"Cannot read rows from {path}: {error}") from None


def read_tensors(
    path: Path,
    config: model_config_pb2.ModelConfig,
    columns: Sequence[str] | None = None,
    entry: Path | None = None,
    version: str = "",
) -> Tensors:
    """The rows of a file as the inputs of a model.

    Where the model takes strings, its columns are found by their names, which the first line of a .csv holds; a string
    is then whatever a cell holds, spaces and all, and missing where it is empty.

    Args:
        path: see `read_rows`.
        config: the model's, as the server has it.
        columns: the names of the columns to take, those of one input after those of another, in place of the names that
            the configuration has.
        entry: where a model of numbers alone lies, if here: its names, see `feature_names`, stand in for `columns`.
        version: of the entry.

    Raises:
        RowsError: see `read_rows`; or columns are missing, or have no names where they need them.
    """
    inputs = input_tensors(config)
    if len(inputs) == 1 and not inputs[0].text:
        names = columns if columns is not None or entry is None else feature_names(entry, version)
        return {inputs[0].name: read_rows(path, names)}
    inputs = _named(inputs, config.name, columns)
    wanted = [name for tensor in inputs for name in tensor.columns]
    table = read_table(path, [name for tensor in inputs if tensor.text for name in tensor.columns])
    if not isinstance(table, pd.DataFrame) or not set(wanted) & set(table.columns):
        raise RowsError(f"{path} does not name its columns; model '{config.name}' needs {in_words(wanted)}.")
    try:
        return split(table, inputs, config.name)
    except InvalidRequest as error:
        raise RowsError(f"Cannot read rows from {path}: {error}") from None


def read_table(path: Path, text: Sequence[str] | None = None) -> Any:
    """What a file of rows holds: a DataFrame, or of a .npy the array.

    Args:
        path: see `read_rows`.
        text: names of columns of a .csv that hold strings, which are taken as they are written. With this the first
            line is a header whatever it holds, and spaces after a comma belong to the cell.

    Raises:
        RowsError: the file cannot be read, or is of another kind.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RowsError(f"Cannot read rows from {path}: the suffix must be {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise RowsError(f"Cannot read rows from {path}: there is no such file.")
    if suffix == ".csv":
        return _read_csv(path, text)
    return _read_npy(path) if suffix == ".npy" else _read_parquet(path)


def feature_names(entry: Path, version: str = "") -> list[str] | None:
    """The names of the columns that an entry was trained with, in order.

    Args:
        entry: its directory, which need not exist.
        version: which version; "": the newest there.

    Returns:
        None if the entry is not at hand, or was trained on columns without names.

    Raises:
        RowsError: its plan.json cannot be read.
    """
    if not version:
        version = str(max(versions(entry, PLAN), default=""))
    plan = entry / version / PLAN
    if not version or not plan.is_file():
        return None
    try:
        names = json.loads(plan.read_text(encoding="utf-8")).get("provenance", {}).get("feature_names", [])
    except (OSError, ValueError, AttributeError) as error:
        raise RowsError(f"{plan} cannot be read: {error}.") from None
    return [str(name) for name in names] or None


def _read_npy(path: Path) -> npt.NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RowsError(f"{path} is not a .npy file of numbers: {error}.") from None
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{path} is an archive of arrays; one .npy array is expected.")
    return array


def _named(inputs: tuple[InputTensor, ...], model: str, columns: Sequence[str] | None) -> tuple[InputTensor, ...]:
    """The inputs with these names of their columns, if there are any."""
    if columns is None:
        if all(tensor.columns for tensor in inputs):
            return inputs
        raise RowsError(
            f"Model '{model}' was fitted on columns without names: say which columns of the file are its "
            f"{listed(inputs)}, in this order, as --columns of `predict` does."
        )
    if len(columns) != sum(tensor.width for tensor in inputs):
        widths = ", ".join(f"{tensor.width} for '{tensor.name}'" for tensor in inputs)
        raise RowsError(f"{len(columns)} columns are named; model '{model}' needs {widths}.")
    names = iter(columns)
    return tuple(replace(tensor, columns=tuple(islice(names, tensor.width))) for tensor in inputs)


def _read_csv(path: Path, text: Sequence[str] | None) -> Any:
    options: dict[str, Any] = {"skipinitialspace": text is None, "encoding": "utf-8-sig", "index_col": False}
    try:
        first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        has_header = text is not None or any(not _is_number(cell) for cell in first.iloc[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # cells that the header has no column for
            table = pd.read_csv(path, header=0 if has_header else None, low_memory=False, **options)
        strings = [name for name in dict.fromkeys(text or ()) if name in table.columns]
        if strings:  # once more, now that the file is known to be regular: "NA" is a word, and 01234 keeps its 0
            table[strings] = pd.read_csv(path, usecols=strings, dtype=str, keep_default_na=False, **options)[strings]
        return table
    except pd.errors.ParserWarning:
        raise RowsError(f"{path} has lines with more cells than its first.") from None
    except pd.errors.EmptyDataError:
        raise RowsError(f"{path} has no rows.") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise RowsError(f"{path} is not a .csv file: {_one_line(error)}.") from None


def _read_parquet(path: Path) -> Any:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise RowsError(f"{path} is not a .parquet file: {_one_line(error)}.") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
