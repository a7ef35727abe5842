"""The rows of a file as the inputs of a model."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.tensors import (
    InputTensor,
    Tensors,
    input_tensors,
    listed,
    model_tensors,
    named,
    split,
)
from triton_regressors.clients.errors import InvalidRequest, RowsError
from triton_regressors.tables.columns import check_shape
from triton_regressors.tables.errors import TableError, raised_as
from triton_regressors.tables.files import holds_objects, nameless, read_dates, read_table
from triton_regressors.tables.frames import has_names
from triton_regressors.tables.values import cell_numbers


def read_tensors(path: Path, config: model_config_pb2.ModelConfig, columns: Sequence[str] | None = None) -> Tensors:
    """Return the rows of a file as the inputs of a model.

    The model's columns are found by their names, if both it and the file have names; other columns are left out. A file
    without names must have as many columns as the model. If the model takes strings, the first line of a .csv holds
    names, and likewise if it takes dates. A string is the whole content of a cell, spaces included; an empty cell is a
    missing string. The dates of a .csv are those of `tables.dates.written_dates`.

    Args:
        path: see `tables.files.read_table`.
        config: the model's configuration as the server has it.
        columns: the names of the columns to take, input after input, in place of the names that the configuration has.

    Raises:
        RowsError: the file cannot be read, is of another kind, has no rows, or holds something else in place of a
            number or a date; or columns are missing, or lack the names that they need.
    """
    with raised_as(RowsError):
        inputs, values = _found(path, config, columns)
    with raised_as(RowsError, f"{path}: ", InvalidRequest):
        return model_tensors(values, inputs, config.name)


def read_by_row(
    path: Path, config: model_config_pb2.ModelConfig, columns: Sequence[str] | None = None
) -> tuple[dict[str, Any], np.ndarray, dict[int, str]]:
    """Return the rows of a file without wrong numbers and dates, by input, as `Client.infer` takes them.

    The arguments are those of `read_tensors`.

    Returns:
        The rows; the number in the file of each, from 0; and the reason for every other row.

    Raises:
        RowsError: as `read_tensors`, except for cells that are not numbers or dates; or no row is left.
    """
    refused, found = dict[int, str](), dict[str, pd.DataFrame]()
    with raised_as(RowsError):
        inputs, values = _found(path, config, columns, refused)
    if not isinstance(values, pd.DataFrame):
        return {inputs[0].name: values}, np.arange(len(values)), {}
    with raised_as(RowsError, f"{path}: ", InvalidRequest):
        parts = split(values, inputs, config.name)
    for (tensor, part), told in zip(parts, input_tensors(config), strict=True):
        found[tensor.name] = part if tensor.text else part.apply(_numbers, args=(refused, path, tensor.zones()))
        found[tensor.name].columns = list(told.columns) or range(part.shape[1])
    kept = np.array([row for row in range(len(values)) if row not in refused])
    if not len(kept):
        raise RowsError(f"{path}: {refused[0]}")
    return {name: part.iloc[kept] for name, part in found.items()}, kept, refused


def _numbers(column: pd.Series, refused: dict[int, str], path: Path, others: Collection[str]) -> pd.Series:
    """Return a column of numbers with NaN for other cells; add the reason for each such row to `refused`.

    The columns `others` hold no numbers, and are returned unchanged.
    """
    if column.name in others or not holds_objects(column):
        return column
    written = path.suffix.lower() == ".csv"
    return pd.Series(cell_numbers(column.tolist(), column.name, refused, written=written), column.index)


def _found(
    path: Path,
    config: model_config_pb2.ModelConfig,
    columns: Sequence[str] | None,
    refused: dict[int, str] | None = None,
) -> tuple[tuple[InputTensor, ...], Any]:
    """Return a model's inputs, with the names of their columns in a file, and the file's content.

    With `refused` it gets the reason for each row of a .csv with a cell that is not a date.
    """
    inputs = input_tensors(config)
    if len(inputs) == 1 and not inputs[0].text and not inputs[0].dates:
        names = tuple(inputs[0].columns if columns is None else columns)
        inputs, values = (replace(inputs[0], columns=names),), read_table(path, names=names)
        if names and not has_names(values):
            check_shape(values.shape, str(path), len(names))
        return inputs, values
    if columns is not None:
        with raised_as(RowsError, caught=InvalidRequest):
            inputs = named(inputs, columns, config.name)
    elif not all(tensor.columns for tensor in inputs):
        raise TableError(
            f"Model '{config.name}' was fitted on columns without names: say which columns of the file are its "
            f"{listed(inputs)}, in this order, as --columns of `predict` does."
        )
    wanted = [name for tensor in inputs for name in tensor.columns]
    zones = {name: zone for tensor in inputs for name, zone in tensor.zones().items()}
    text = [name for tensor in inputs if tensor.text for name in tensor.columns]
    table = read_table(path, [*text, *zones] or None, wanted)
    if not isinstance(table, pd.DataFrame) or not set(wanted) & set(table.columns):
        raise nameless(path, wanted, config.name)
    read_dates(table, path, zones, refused)
    return inputs, table
