"""The tensors of a request: conversion of rows in a user's form to input name → array, ready to send.

The model's configuration gives each input's type: numbers become float32, float64 or int64 arrays, and strings arrays
of `bytes` objects in UTF-8; all are [rows, columns]. A missing string is an empty one.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype

from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.kernels.format.columns_digest import CATEGORIES, COLUMNS, DATES
from triton_regressors.model_config import sent_inputs
from triton_regressors.tables import frames
from triton_regressors.tables.columns import check_columns, take_columns
from triton_regressors.tables.dates import dates
from triton_regressors.tables.errors import raised_as
from triton_regressors.tables.values import NUMERIC_KINDS, numbers, strings

Tensors: TypeAlias = dict[str, np.ndarray]
Given: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""The accepted forms of rows: an array for a model's only input, arrays by the inputs' names, or a pandas DataFrame."""

DTYPES: dict[str, Any] = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BYTES": np.object_}
"""The name of a type in requests → NumPy's type."""

LARGEST = {np.float32: "3.4e38", np.float64: "1.8e308"}

FIRST_ROWS = slice(64)
"""The rows that are searched first for a rounded number, since most tables of float64 have one there."""


@dataclass(frozen=True)
class InputTensor:
    """An input of a model. width: of a row, −1 if it is not fixed. columns: their names in training; () without.

    categories: the places of the columns whose numbers are categories, which are sent exactly or not at all.
    dates: the places of the columns of dates, which are sent in nanoseconds since 1970-01-01 UTC, each with its time
    zone or None.
    """

    name: str
    datatype: str  # as requests call it: "FP32", "FP64", "INT64", "BYTES"
    width: int
    columns: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()
    dates: tuple[tuple[int, str | None], ...] = ()

    def __repr__(self) -> str:
        more = ", ..." if len(self.columns) > 3 else ""
        names = f", columns {', '.join(map(repr, self.columns[:3]))}{more}" if self.columns else ""
        categories = f", {len(self.categories)} of them categories" if self.categories else ""
        of_dates = f", {len(self.dates)} of them dates" if self.dates else ""
        return f"<InputTensor '{self.name}' {self.datatype} [{self.width}]{names}{categories}{of_dates}>"

    @property
    def text(self) -> bool:
        """True if the input takes strings."""
        return self.datatype == "BYTES"

    def zones(self) -> dict[str, str | None]:
        """Return the time zones of the columns of dates, by the columns' names."""
        return {self.columns[place]: zone for place, zone in self.dates if self.columns}


def input_tensors(config: model_config_pb2.ModelConfig) -> tuple[InputTensor, ...]:
    """Return the inputs of a model that this client sends, in the order of its configuration."""
    columns, categories = _of_inputs(config, COLUMNS, str), _of_inputs(config, CATEGORIES, int)
    of_dates = _of_inputs(config, DATES, lambda date: (int(date["column"]), date["zone"]))
    return tuple(
        InputTensor(
            tensor.name,
            model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_").replace("STRING", "BYTES"),
            int(tensor.dims[-1]) if tensor.dims else -1,
            columns.get(tensor.name, ()),
            categories.get(tensor.name, ()),
            of_dates.get(tensor.name, ()),
        )
        for tensor in sent_inputs(config)
    )


def _of_inputs(
    config: model_config_pb2.ModelConfig, parameter: str, kind: Callable[[Any], Any]
) -> dict[str, tuple[Any, ...]]:
    """Return a parameter's values for each input's columns."""
    text = config.parameters[parameter].string_value if parameter in config.parameters else "{}"
    try:
        return {name: tuple(map(kind, values)) for name, values in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ServerFault(
            f"Parameter {parameter!r} of model '{config.name}' does not describe the columns of its inputs."
        ) from None


def model_tensors(X: Given, inputs: Sequence[InputTensor], model: str) -> Tensors:
    """Return X as the tensors of a model with these inputs.

    An array is for a model's only input; the arrays of a mapping are for the inputs of these names. The columns of a
    table (see `tables.frames`) are taken by their names if the model and the table have names, and in their
    order otherwise.

    Raises:
        InvalidRequest: something does not fit an input, a column is missing, or rounding would turn a whole number or
            a category into another one.
    """
    if isinstance(X, Mapping):
        return _by_name(X, {tensor.name: tensor for tensor in inputs}, model)
    X = as_frame(X)
    if frames.is_table(X):
        return {tensor.name: _rows(part, tensor, "The table") for tensor, part in split(X, inputs, model)}
    if len(inputs) != 1:
        raise InvalidRequest(
            f"Model '{model}' has the {listed(inputs)}: give a table with named columns, or a mapping of their names "
            "to arrays."
        )
    return {inputs[0].name: _rows(X, inputs[0])}


def split(table: Any, inputs: Sequence[InputTensor], model: str) -> list[tuple[InputTensor, Any]]:
    """Return each input and its columns of a DataFrame; raise `InvalidRequest` if a column is missing."""
    if len(inputs) == 1 and not (inputs[0].columns and frames.has_names(table)):
        return [(inputs[0], table)]
    unnamed = [tensor for tensor in inputs if not tensor.columns]
    if unnamed:
        raise InvalidRequest(
            f"Model '{model}' does not say which columns its {listed(inputs)} are: it was fitted on columns without "
            "names; give a mapping of each input's name to an array."
        )
    with raised_as(InvalidRequest):
        check_columns(table.columns, [name for tensor in inputs for name in tensor.columns])
    return [(tensor, table[list(tensor.columns)]) for tensor in inputs]


def named(inputs: Sequence[InputTensor], columns: Sequence[str], model: str) -> tuple[InputTensor, ...]:
    """Return the inputs with these names of their columns; raise `InvalidRequest` if there are more or fewer."""
    if len(columns) != sum(tensor.width for tensor in inputs):
        widths = ", ".join(f"{tensor.width} for '{tensor.name}'" for tensor in inputs)
        raise InvalidRequest(f"{len(columns)} columns are named; model '{model}' takes {widths}.")
    names = iter(columns)
    return tuple(replace(tensor, columns=tuple(islice(names, tensor.width))) for tensor in inputs)


def as_frame(X: Any) -> Any:
    """Return a table of any kind as a DataFrame, anything else unchanged; raise `InvalidRequest` on failure."""
    if not frames.is_tabular(X):
        return X
    with raised_as(InvalidRequest):
        return frames.as_frame(X)


def listed(inputs: Sequence[InputTensor]) -> str:
    """Return the inputs in words."""
    names = " and ".join(f"'{tensor.name}'" for tensor in inputs)
    return f"input{'s' if len(inputs) > 1 else ''} {names}"


def number_rows(X: npt.ArrayLike, tensor: InputTensor, called: str | None = None) -> np.ndarray:
    """Return X in the form of a request for an input of numbers: [rows, columns] in the input's type.

    An array of that type is not converted. Other floats, integers, booleans and Decimals are rounded to the nearest
    float, unless they are categories. None and pandas' own missing values are NaN. NaN and infinity pass through to
    float inputs; the model decides on them.

    Raises:
        InvalidRequest: X is not two-dimensional, has no rows, is not numeric, or holds a number that the type cannot
            hold: a finite one out of range, a fraction or a missing one for INT64, or a category that would be rounded.
    """
    dtype, whole = DTYPES[tensor.datatype], tensor.datatype == "INT64"
    if isinstance(X, np.ndarray) and X.dtype.kind in NUMERIC_KINDS and X.ndim == 2 and len(X):  # nothing to convert
        array = np.asarray(X)
    else:
        with raised_as(InvalidRequest):
            rows = frames.as_rows(X, called or tensor.name)
            array = numbers(rows, called or tensor.name, tensor.columns, whole=whole or isinstance(rows, np.ndarray))
    if array.dtype == dtype:
        return array
    if array.dtype == np.bool_:
        return array.astype(dtype)
    if whole:
        with np.errstate(invalid="ignore"):
            rows = array.astype(dtype)
        _refuse(_changed(rows, array), array, tensor, "which is not a whole number that INT64 holds")
        return rows
    try:
        with np.errstate(over="raise", invalid="ignore"):
            rows = array.astype(dtype)
    except FloatingPointError:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = array.astype(dtype)
        beyond = np.isinf(rows) & np.isfinite(array)
        _refuse(beyond, array, tensor, f"beyond {np.dtype(dtype)}, whose largest value is about {LARGEST[dtype]}")
    if tensor.categories:
        places, rounded = list(tensor.categories), np.zeros(array.shape, dtype=bool)
        rounded[:, places] = _changed(rows[:, places], array[:, places])
        _refuse(rounded, array, tensor, f"a category, which {tensor.datatype} would round to another number")
    return rows


def same(given: object, array: np.ndarray) -> bool:
    """Return whether an input's tensor equals the values given for it: its strings, or exactly its numbers.

    The names of the columns and the categories do not matter then. For a table it is False: columns go by name.
    """
    if frames.is_tabular(given):
        return False
    if array.dtype == object:
        return True
    original = np.asarray(given)
    if original.dtype.kind in "OM":  # Python's own numbers, which may have been rounded, or dates
        return False
    if original.dtype in (array.dtype, np.bool_):
        return True
    return not any(_changed(array[rows], original[rows]).any() for rows in (FIRST_ROWS, slice(None)))


def _changed(rows: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Return a mask of the numbers of an array that the conversion changed."""
    with np.errstate(invalid="ignore"):
        same = rows.astype(array.dtype) == array
    if array.dtype.kind != "f":  # a whole number may come back from another that it overflowed to
        same &= np.sign(rows) == np.sign(array)
    elif not same.all():
        same |= np.isnan(rows) & np.isnan(array)
    return np.asarray(~same)


def _refuse(wrong: np.ndarray, array: np.ndarray, tensor: InputTensor, why: str) -> None:
    """Raise InvalidRequest that names the first wrong number, if there is one."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        named = f" ('{tensor.columns[column]}')" if tensor.columns else ""
        raise InvalidRequest(f"{tensor.name}[{row}, {column}]{named} is {array[row, column]}, {why}.")


def text_rows(X: npt.ArrayLike, tensor: InputTensor, called: str | None = None) -> np.ndarray:
    """Return strings in the form of a request: `bytes` objects in UTF-8 [rows, columns]; a missing one is empty.

    A string is str or bytes; None, NaN and pandas' own missing values are missing.

    Raises:
        InvalidRequest: they are not two-dimensional, have no rows, or hold a value that is not a string.
    """
    with raised_as(InvalidRequest):
        rows = frames.as_rows(frames.as_frame(X), called or tensor.name, objects=True)
        return strings(rows, called or tensor.name, tensor.columns)


def date_rows(X: npt.ArrayLike, tensor: InputTensor, called: str | None = None) -> Any:
    """Return X with nanoseconds since 1970-01-01 UTC in place of the dates of an input, for `number_rows`.

    Raises:
        InvalidRequest: X is not two-dimensional, has no rows, or holds something else in a column of dates.
    """
    called, (places, zones) = called or tensor.name, zip(*tensor.dates, strict=True)
    names = [tensor.columns[place] if tensor.columns else place for place in places]
    with raised_as(InvalidRequest):
        rows = frames.as_rows(X, called, tensor.width if tensor.width > 0 else None)
        part = rows.iloc[:, list(places)] if frames.is_table(rows) else rows[:, list(places)]
        found = dates(part, called, names, zones)
    if len(places) == rows.shape[1]:
        return found
    changed = rows.copy(deep=False) if frames.is_table(rows) else rows.astype(object)
    for place, column in zip(places, found.T, strict=True):
        if frames.is_table(rows):
            changed.isetitem(place, column)
        else:
            changed[:, place] = column
    return changed


def datatype(array: np.ndarray) -> str:
    """Return the name of a tensor's type in requests."""
    return str(np_to_triton_dtype(array.dtype))


def wire(array: np.ndarray) -> bytes:
    """Return the bytes of a tensor in a request: little-endian numbers, or strings with their lengths before them."""
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(text)) + text for text in array.ravel().tolist())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def row_count(tensors: Mapping[str, np.ndarray]) -> int:
    """Return the number of rows of the tensors."""
    return len(next(iter(tensors.values())))


def take(tensors: Mapping[str, np.ndarray], rows: slice | np.ndarray) -> Tensors:
    """Return some rows of the tensors."""
    return {name: array[rows] for name, array in tensors.items()}


def some_rows(X: Any, rows: slice | np.ndarray) -> Any:
    """Return some rows of X in a form of `model_tensors`: of each array of a mapping, a DataFrame, or an array."""
    if isinstance(X, Mapping):
        return {name: some_rows(as_frame(values), rows) for name, values in X.items()}
    if frames.is_table(X):
        return X.iloc[rows]
    if isinstance(X, list | tuple) and isinstance(rows, np.ndarray):
        return [X[row] for row in rows]
    return X[rows] if isinstance(X, list | tuple | np.ndarray) else np.asarray(X)[rows]


def _rows(X: Any, tensor: InputTensor, called: str | None = None, *, by_hand: bool = False) -> np.ndarray:
    """Return X in the form of a request for an input; `called` begins the sentences of errors, or else its name.

    A matrix of whole numbers for an input with dates is taken as its nanoseconds only `by_hand`.
    """
    if tensor.datatype not in DTYPES:
        accepted = ", ".join(DTYPES)
        raise InvalidRequest(f"Input '{tensor.name}' takes {tensor.datatype}; this client sends {accepted}.")
    if tensor.dates and not (by_hand and _is_whole(X)):
        X = date_rows(X, tensor, called)
    return (text_rows if tensor.text else number_rows)(X, tensor, called)


def _is_whole(X: Any) -> bool:
    """Return whether X is a matrix of whole numbers by its dtype."""
    if frames.is_table(X):
        return False
    with raised_as(InvalidRequest):
        return frames.as_matrix(X, "The matrix").dtype.kind in "iu"


def _by_name(given: Mapping[str, Any], inputs: Mapping[str, InputTensor], model: str) -> Tensors:
    unknown = [name for name in given if name not in inputs]
    if unknown or not given:
        which = f"no input {unknown[0]!r}" if unknown else "inputs, and the mapping is empty"
        raise InvalidRequest(f"Model '{model}' has {which}; it takes the {listed(list(inputs.values()))}.")
    tensors = {
        name: _rows(_own_columns(value, inputs[name]), inputs[name], by_hand=True) for name, value in given.items()
    }
    if len({len(array) for array in tensors.values()}) != 1:
        counts = ", ".join(f"'{name}' {len(array)}" for name, array in tensors.items())
        raise InvalidRequest(f"The inputs differ in their number of rows: {counts}.")
    return tensors


def _own_columns(value: Any, tensor: InputTensor) -> Any:
    """Return an input's columns of a DataFrame, by name if both have names; anything else unchanged."""
    value = as_frame(value)
    if not (tensor.columns and frames.has_names(value)):
        return value
    with raised_as(InvalidRequest):
        return take_columns(value, tensor.columns, tensor.name)
