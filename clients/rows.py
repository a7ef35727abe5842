"""Reading rows to predict from .npy, .csv and .parquet files."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.tensors import InputTensor, Tensors, input_tensors, listed, model_tensors, split
from triton_regressors.clients.errors import InvalidRequest, RowsError
from triton_regressors.extras import require
from triton_regressors.tables import NotNumber, cell_numbers, in_words, number_in

SUFFIXES = (".npy", ".csv", ".parquet")
FEW = 4
"""Below this many columns, a data row that looks like column numbers, such as 0,1, is common."""


def read_tensors(path: Path, config: model_config_pb2.ModelConfig, columns: Sequence[str] | None = None) -> Tensors:
    """Return the rows of a file as the inputs of a model.

    The model's columns are found by their names, if both it and the file have names; other columns are left out. A file
    without names must have as many columns as the model. If the model takes strings, the first line of a .csv holds
    names. A string is the whole content of a cell, spaces included; an empty cell is a missing string.

    Args:
        path: .npy (one 2-D array), .csv (commas; see `read_table` for what its first line is) or .parquet. Empty cells
            are NaN.
        config: the model's configuration as the server has it.
        columns: the names of the columns to take, input after input, in place of the names that the configuration has.

    Raises:
        RowsError: the file cannot be read, is of another kind, has no rows, or holds something else in place of a
            number; or columns are missing, or lack the names that they need.
    """
    inputs, values = _found(path, config, columns)
    try:
        return model_tensors(values, inputs, config.name)
    except InvalidRequest as error:
        raise RowsError(f"Cannot read rows from {path}: {error}") from None


def read_by_row(
    path: Path, config: model_config_pb2.ModelConfig, columns: Sequence[str] | None = None
) -> tuple[dict[str, Any], np.ndarray, dict[int, str]]:
    """Return the rows of a file without wrong cells in number columns, by input, as `Client.infer` takes them.

    Args:
        path: see `read_tensors`.
        config: see there.
        columns: see there.

    Returns:
        The rows; the number in the file of each, from 0; and the reason for every other row.

    Raises:
        RowsError: as `read_tensors`, except for cells that are not numbers; or no row is left.
    """
    inputs, values = _found(path, config, columns)
    if not isinstance(values, pd.DataFrame):
        return {inputs[0].name: values}, np.arange(len(values)), {}
    try:
        parts = split(values, inputs, config.name)
    except InvalidRequest as error:
        raise RowsError(f"Cannot read rows from {path}: {error}") from None
    refused, found = dict[int, str](), dict[str, pd.DataFrame]()
    for (tensor, part), told in zip(parts, input_tensors(config), strict=True):
        found[tensor.name] = part if tensor.text else part.apply(_numbers, refused=refused, path=path)
        found[tensor.name].columns = list(told.columns) or range(part.shape[1])
    kept = np.array([row for row in range(len(values)) if row not in refused])
    if not len(kept):
        raise RowsError(f"Cannot read rows from {path}: {refused[0]}")
    return {name: part.iloc[kept] for name, part in found.items()}, kept, refused


def _numbers(column: pd.Series, refused: dict[int, str], path: Path) -> pd.Series:
    """Return a column of numbers with NaN for other cells; add the reason for each such row to `refused`."""
    if not _holds_objects(column):
        return column
    wrong = dict[int, NotNumber]()
    numbers = cell_numbers(column.tolist(), wrong, written=path.suffix.lower() == ".csv")
    for row, error in wrong.items():
        refused.setdefault(row, error.of_row(column.name))
    return pd.Series(numbers, column.index)


def _holds_objects(column: pd.Series) -> bool:
    """Return whether a column holds Python objects, such as strings."""
    return bool(column.dtype == object or pd.api.types.is_string_dtype(column))


def _found(
    path: Path, config: model_config_pb2.ModelConfig, columns: Sequence[str] | None
) -> tuple[tuple[InputTensor, ...], Any]:
    """Return a model's inputs, with the names of their columns in a file, and the file's content."""
    inputs = input_tensors(config)
    if len(inputs) == 1 and not inputs[0].text:
        names = tuple(inputs[0].columns if columns is None else columns)
        inputs, values = (replace(inputs[0], columns=names),), read_table(path, names=names)
        if names and np.shape(values)[1:] != (len(names),) and not _has_names(values):
            raise RowsError(f"{path} has shape {values.shape}; {len(names)} features are expected.")
        return inputs, values
    inputs = _named(inputs, config.name, columns)
    wanted = [name for tensor in inputs for name in tensor.columns]
    table = read_table(path, [name for tensor in inputs if tensor.text for name in tensor.columns] or None, wanted)
    if not isinstance(table, pd.DataFrame) or not set(wanted) & set(table.columns):
        raise RowsError(f"{path} does not name its columns; model '{config.name}' needs {in_words(wanted)}.")
    return inputs, table


def read_table(path: Path, text: Mapping[str, Any] | Iterable[str] | None = None, names: Sequence[str] = ()) -> Any:
    """Return the content of a file of rows: a DataFrame, its columns numbered if they have no names, or a .npy's array.

    The first line of a .csv is a header if any of its cells is not a number, or if it holds all of `names`. A line that
    counts the columns, 0,1,2,3,4 as pandas writes for columns without names, or from 1, is also a header if the line
    below holds anything but whole numbers. Otherwise, or with only a few columns counted from 0, the line may equally
    be a row, and is refused.

    Args:
        path: see `read_tensors`.
        text: names of columns of a .csv that hold strings, which are taken as they are written, "NA" included. An empty
            cell is NaN, as pandas reads it, or the mapping's value for the column. With this argument the first line is
            always a header, and spaces after a comma belong to the cell.
        names: of columns that are looked for.

    Raises:
        RowsError: the file cannot be read, is of another kind, or its header has a name twice.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RowsError(f"Cannot read rows from {path}: the suffix must be {', '.join(SUFFIXES)}.")
    if not path.is_file():  # reading a pipe may never end
        what = "it is not a regular file" if path.exists() else "there is no such file"
        raise RowsError(f"Cannot read rows from {path}: {what}.")
    if suffix == ".csv":
        return _read_csv(path, text, names)
    return _read_npy(path) if suffix == ".npy" else _read_parquet(path)


def _has_names(values: Any) -> bool:
    """Return whether the values are a table whose columns have names."""
    return isinstance(values, pd.DataFrame) and all(isinstance(name, str) for name in values.columns)


def _read_npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        raise RowsError(f"{path} is not a .npy file of numbers: {_one_line(error)}.") from None
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{path} is an archive of arrays; one .npy array is expected.")
    return array


def _named(inputs: tuple[InputTensor, ...], model: str, columns: Sequence[str] | None) -> tuple[InputTensor, ...]:
    """Return the inputs with these names of their columns, if there are any."""
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


def _read_csv(path: Path, text: Mapping[str, Any] | Iterable[str] | None, names: Sequence[str]) -> Any:
    options: dict[str, Any] = {"skipinitialspace": text is None, "encoding": "utf-8-sig", "index_col": False}
    try:
        first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        cells = first.iloc[0].tolist()
        asked_for = bool(names) and set(names) <= set(cells)
        has_header = text is not None or asked_for or any(number_in(cell) is None for cell in cells)
        numbered = not has_header and _counts(cells)
        if numbered and (len(cells) < FEW or _whole_numbers_below(path, options)):
            raise RowsError(
                f"The first line of {path}, {','.join(cells[:3])}{',...' * (len(cells) > 3)}, may be a header of "
                "column numbers or a row of data; write column names there, or give a .npy file."
            )
        twice = [name for name, count in Counter(cells).items() if name and count > 1]
        if has_header and twice:
            raise RowsError(f"The header of {path} has {in_words(twice)} more than once.")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # cells that the header has no column for
            header = 0 if has_header or numbered else None
            table = pd.read_csv(path, header=header, low_memory=False, **options)
        if numbered:
            table.columns = pd.RangeIndex(len(cells))
        empty_cells = dict(text) if isinstance(text, Mapping) else dict.fromkeys(text or (), np.nan)
        strings = [name for name in empty_cells if name in table.columns]
        if strings:  # once more, now that the file is known to be regular: "NA" is a word, and 01234 keeps its 0
            words = pd.read_csv(path, usecols=strings, dtype=str, keep_default_na=False, na_values=[""], **options)
            for name in strings:
                table[name] = _filled(words[name], empty_cells[name])
        for name in table.columns.difference(strings, sort=False):
            if _holds_objects(table[name]):
                with suppress(NotNumber):  # not a column of numbers; a later check reports it if numbers are needed
                    table[name] = cell_numbers(table[name].tolist(), written=True)
        return table
    except pd.errors.ParserWarning:
        raise RowsError(f"{path} has lines with more cells than its first.") from None
    except pd.errors.EmptyDataError:
        raise RowsError(f"{path} has no rows.") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise RowsError(f"{path} is not a .csv file: {_one_line(error)}.") from None


def _filled(column: pd.Series, value: Any) -> pd.Series:
    """Return a column of strings with a value in place of NaN: "", None or NaN itself."""
    if value is None:
        column = column.astype(object)  # a column of strings has one missing value, NaN
        return column.where(column.notna(), None)
    return column if value != value else column.fillna(value)


def _read_parquet(path: Path) -> Any:
    require("parquet", f"Reading {path}")
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow raises either
        raise RowsError(f"{path} is not a .parquet file: {_one_line(error)}.") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _counts(cells: Sequence[str]) -> bool:
    """Return whether the cells count the columns, from 0, or from 1 if there are more than a few."""
    from_0, from_1 = ([str(number + first) for number in range(len(cells))] for first in (0, 1))
    return cells == from_0 or (len(cells) >= FEW and cells == from_1)


def _whole_numbers_below(path: Path, options: dict[str, Any]) -> bool:
    """Return whether the second line of a .csv holds only whole numbers, as the first does, or is missing."""
    below = pd.read_csv(path, header=0, nrows=1, dtype=str, keep_default_na=False, **options)
    return all(cell.strip().lstrip("-").isdecimal() for cell in below.to_numpy().ravel())
