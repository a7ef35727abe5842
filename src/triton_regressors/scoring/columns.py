"""Conversion of tables to the tensors of requests, by the rules of `clients/client/tensors.py`, with a fast path.

Columns of plain numbers are copied contiguously, and the matrix is a view of them. On a CPU the entry transposes each
batch when it stages it, in memory that stays in a core's cache, so that consecutive numbers are written close together;
for a GPU the columns lie in pinned memory, and the GPU transposes them.
A table with strings, categories, dates, a number beyond float32 or a missing column takes the slower path of a
client's table, and gets its messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.clients.client.tensors import DTYPES, InputTensor, Tensors, as_frame, model_tensors
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.tables.columns import check_shape
from triton_regressors.tables.errors import raised_as
from triton_regressors.tables.values import NUMERIC_KINDS, arrow_strings

MOST_ROWS, MOST_NUMBERS = 2**16, 2**23
"""The limits, in rows and in numbers, on the rows that are read, converted and given to a GPU at once."""

MANY_NUMBERS, THREADS = 2**20, min(4, max(len(os.sched_getaffinity(0)) - 1, 1))
"""From this many numbers on, this many threads copy them while one core computes; more than four gain nothing."""

NewMatrix = Callable[[int, int, "np.dtype[Any]"], np.ndarray]
"""A function that makes a matrix from rows, columns and type; `buffers.py` has two."""


class Columns:
    """The columns of a user's table.

    `table` is a pandas DataFrame, a pyarrow Table or RecordBatch, any other table that `as_frame` takes, or a mapping
    of names to arrays of one dimension.
    """

    def __init__(self, table: Any) -> None:
        self._arrow = type(table).__module__.partition(".")[0] == "pyarrow" and hasattr(table, "schema")
        self.table = table = table if self._arrow else as_frame(table)
        self._pandas = isinstance(table, pd.DataFrame)
        if not (self._arrow or self._pandas or isinstance(table, Mapping)):
            raise InvalidRequest(
                "A table must be a DataFrame of pandas or polars, a table of pyarrow, a list of records, or a "
                f"mapping of columns to arrays, not {type(table).__name__}."
            )
        self.names: list[Any] = list(table.schema.names if self._arrow else table.columns if self._pandas else table)

    def __len__(self) -> int:
        if self._arrow:
            return int(self.table.num_rows)
        return len(self.table) if self._pandas else len(next(iter(self.table.values()), ()))

    def rows(self, first: int, stop: int) -> Columns:
        """Return some of the rows."""
        if self._arrow:
            return Columns(self.table.slice(first, stop - first))
        if self._pandas:
            return Columns(self.table.iloc[first:stop])
        return Columns({name: array[first:stop] for name, array in self.table.items()})

    def without(self, names: Sequence[str]) -> Columns:
        """Return the other columns."""
        if not names:
            return self
        left = [name for name in self.names if name not in names]
        if self._arrow:
            return Columns(self.table.select(left))
        return Columns(self.table[left] if self._pandas else {name: self.table[name] for name in left})

    def data_frame(self) -> pd.DataFrame:
        """Return the table as a DataFrame, the form for a client."""
        if self._arrow:
            return self.table.to_pandas()
        return self.table if self._pandas else pd.DataFrame(dict(self.table))

    def numbers(self, names: Sequence[str]) -> Iterator[np.ndarray | None]:
        """Yield columns of numbers, with NaN for a missing one; None for a column with anything else."""
        if self._pandas and len(set(self.table.dtypes)) == 1:  # one by one they take longer than their numbers
            places = {name: place for place, name in enumerate(self.names)}
            columns = self.table.to_numpy().T
            arrays: Iterable[Any] = (columns[places[name]] for name in names)
        elif self._pandas:
            arrays = (self.table[name].to_numpy() for name in names)
        else:
            arrays = (_of_arrow(self.table[name]) if self._arrow else np.asarray(self.table[name]) for name in names)
        for array in arrays:
            yield array if array is not None and array.dtype.kind in NUMERIC_KINDS and array.ndim == 1 else None

    def strings(self, name: str) -> np.ndarray | None:
        """Return a pyarrow column of strings as bytes in UTF-8, a missing one empty; None for any other."""
        if not self._arrow:
            return None
        import pyarrow as pa

        column = self.table[name]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return None
        return arrow_strings(column)


def _of_arrow(column: Any) -> np.ndarray | None:
    """Return pyarrow's numbers, without a copy if none is missing; None for anything else."""
    from pyarrow import types

    kind = column.type
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        return None
    if types.is_boolean(kind) and column.null_count:  # NumPy has no missing boolean: the numbers are 0, 1 and NaN
        from pyarrow import uint8

        column = column.cast(uint8())
    if getattr(column, "num_chunks", 0) == 1:
        column = column.chunk(0)
    return np.asarray(column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False))


def rows_together(width: int) -> int:
    """Return how many rows of `width` columns are read and converted at once."""
    return max(min(MOST_ROWS, MOST_NUMBERS // max(width, 1)), 1)


def tensors_of(columns: Columns, inputs: Sequence[InputTensor], model: str, new: NewMatrix) -> Tensors:
    """Return a table as the tensors of a model with these inputs, with the results of `model_tensors`.

    `new` makes matrices for columns of numbers.

    Raises:
        InvalidRequest: a column is missing, or its content does not fit; see `model_tensors`.
    """
    named = all(isinstance(name, str) for name in columns.names)
    if len(inputs) == 1 and not (named and inputs[0].columns):
        inputs = (replace(inputs[0], columns=tuple(columns.names)),) if named else inputs
    there = named and len(set(columns.names)) == len(columns.names)
    found: Tensors = {}
    longer = []
    for tensor in inputs:
        array = None
        if there and tensor.columns and set(tensor.columns) <= set(columns.names) and len(columns):
            array = _text(columns, tensor) if tensor.text else _matrix(columns, tensor, new)
        if array is None:
            longer.append(tensor)
        else:
            found[tensor.name] = array
    if longer:
        by_name = named and all(tensor.columns for tensor in inputs)
        made = model_tensors(columns.data_frame(), longer if by_name else inputs, model)
        found |= {tensor.name: made[tensor.name] for tensor in longer}
    check_tensors(found, inputs, model)
    return found


def check_tensors(tensors: Mapping[str, Any], inputs: Sequence[InputTensor], model: str) -> None:
    """Raise InvalidRequest unless there is a tensor for each input with the width that a server requires."""
    for tensor in inputs:
        if tensor.name not in tensors:
            raise InvalidRequest(f"Input '{tensor.name}' of model '{model}' is missing.")
        with raised_as(InvalidRequest):
            check_shape(tensors[tensor.name].shape, tensor.name, tensor.width)


def _matrix(columns: Columns, tensor: InputTensor, new: NewMatrix) -> np.ndarray | None:
    """Return a tensor of numbers; None if the slower path has to check it."""
    if tensor.categories or tensor.dates or tensor.datatype not in DTYPES:
        return None
    dtype, found = np.dtype(DTYPES[tensor.datatype]), list[np.ndarray]()
    for numbers in columns.numbers(tensor.columns):
        if numbers is None:
            return None
        if dtype.kind == "i" and (numbers.dtype.kind not in "ib" or numbers.dtype == np.uint64):
            return None
        found.append(numbers)
    matrix = new(len(columns), len(found), dtype)
    try:
        _copy(found, matrix)
    except FloatingPointError:  # beyond float32
        return None
    return matrix


def _copy(columns: Sequence[np.ndarray], matrix: np.ndarray) -> None:
    """Copy columns of numbers into a matrix, many numbers in several threads, or raise FloatingPointError."""

    def copy(first: int, step: int) -> None:
        with np.errstate(over="raise"):
            for place in range(first, len(columns), step):
                numbers = columns[place]
                if numbers.dtype.kind in "iu" and numbers.dtype.itemsize == 8 and matrix.dtype.kind == "f":
                    numbers = numbers.astype(np.float64)  # as a table of them is, before it is rounded to float32
                matrix[:, place] = numbers

    if matrix.size < MANY_NUMBERS:
        copy(0, 1)
        return
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(copy, range(THREADS), [THREADS] * THREADS))


def _text(columns: Columns, tensor: InputTensor) -> np.ndarray | None:
    """Return a tensor of strings; None if the slower path has to check it."""
    found = [each for name in tensor.columns if (each := columns.strings(name)) is not None]
    return np.stack(found, axis=1) if len(found) == len(tensor.columns) else None
