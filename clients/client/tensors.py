"""The tensors of a request: conversion of rows in a user's form to input name → array, ready to send.

The model's configuration gives each input's type: numbers become float32, float64 or int64 arrays, and strings arrays
of `bytes` objects in UTF-8; all are [rows, columns]. A missing string is an empty one.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import model_config_pb2

from triton_regressors import tables as rules
from triton_regressors.clients import tables
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.kernels.format.columns_digest import CATEGORIES, COLUMNS

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
    """

    name: str
    datatype: str  # as requests call it: "FP32", "FP64", "INT64", "BYTES"
    width: int
    columns: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()

    def __repr__(self) -> str:
        more = ", ..." if len(self.columns) > 3 else ""
        names = f", columns {', '.join(map(repr, self.columns[:3]))}{more}" if self.columns else ""
        categories = f", {len(self.categories)} of them categories" if self.categories else ""
        return f"<InputTensor '{self.name}' {self.datatype} [{self.width}]{names}{categories}>"

    @property
    def text(self) -> bool:
        """True if the input takes strings."""
        return self.datatype == "BYTES"


def input_tensors(config: model_config_pb2.ModelConfig) -> tuple[InputTensor, ...]:
    """Return the inputs of a model, in the order of its configuration."""
    columns, categories = _of_inputs(config, COLUMNS, str), _of_inputs(config, CATEGORIES, int)
    return tuple(
        InputTensor(
            tensor.name,
            model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_").replace("STRING", "BYTES"),
            int(tensor.dims[-1]) if tensor.dims else -1,
            columns.get(tensor.name, ()),
            categories.get(tensor.name, ()),
        )
        for tensor in config.input
    )


def _of_inputs(config: model_config_pb2.ModelConfig, parameter: str, kind: type) -> dict[str, tuple[Any, ...]]:
    """Return a parameter's values for each input's columns."""
    text = config.parameters[parameter].string_value if parameter in config.parameters else "{}"
    try:
        return {name: tuple(map(kind, values)) for name, values in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise ServerFault(
            f"Parameter {parameter!r} of model '{config.name}' does not describe the columns of its inputs."
        ) from None


def model_tensors(X: Given, inputs: Sequence[InputTensor], model: str) -> Tensors:
    """Return X as the tensors of a model with these inputs.

    An array is for a model's only input; the arrays of a mapping are for the inputs of these names. The columns of a
    table (see `triton_regressors.tables`) are taken by their names if the model and the table have names, and in their
    order otherwise.

    Raises:
        InvalidRequest: something does not fit an input, a column is missing, or rounding would turn a whole number or
            a category into another one.
    """
    if isinstance(X, Mapping):
        return _by_name(X, {tensor.name: tensor for tensor in inputs}, model)
    X = as_frame(X)
    if rules.is_table(X):
        return {tensor.name: _rows(part, tensor) for tensor, part in split(X, inputs, model)}
    if len(inputs) != 1:
        raise InvalidRequest(
            f"Model '{model}' has the {listed(inputs)}: give a table with named columns, or a mapping of their names "
            "to arrays."
        )
    return {inputs[0].name: _rows(X, inputs[0])}


def split(table: Any, inputs: Sequence[InputTensor], model: str) -> list[tuple[InputTensor, Any]]:
    """Return each input and its columns of a DataFrame; raise `InvalidRequest` if a column is missing."""
    named = all(isinstance(name, str) for name in table.columns)
    if len(inputs) == 1 and not (named and inputs[0].columns):
        return [(inputs[0], table)]
    unnamed = [tensor for tensor in inputs if not tensor.columns]
    if unnamed:
        raise InvalidRequest(
            f"Model '{model}' does not say which columns its {listed(inputs)} are: it was fitted on columns without "
            "names; give a mapping of each input's name to an array."
        )
    tables.check_columns(table, [(tensor.columns, f" of {listed([tensor])}") for tensor in inputs])
    return [(tensor, table[list(tensor.columns)]) for tensor in inputs]


def as_frame(X: Any) -> Any:
    """Return a table of any kind as a DataFrame, anything else unchanged; raise `InvalidRequest` on failure."""
    try:
        return rules.as_frame(X)
    except TypeError as error:
        raise InvalidRequest(f"{str(error)[0].upper()}{str(error)[1:]}.") from None


def listed(inputs: Sequence[InputTensor]) -> str:
    """Return the inputs in words."""
    names = " and ".join(f"'{tensor.name}'" for tensor in inputs)
    return f"input{'s' if len(inputs) > 1 else ''} {names}"


def number_rows(X: npt.ArrayLike, tensor: InputTensor) -> np.ndarray:
    """Return X in the form of a request for an input of numbers: [rows, columns] in the input's type.

    An array of that type is not converted. Other floats, integers, booleans and Decimals are rounded to the nearest
    float, unless they are categories. None and pandas' own missing values are NaN. NaN and infinity pass through to
    float inputs; the model decides on them.

    Raises:
        InvalidRequest: X is not two-dimensional, has no rows, is not numeric, or holds a number that the type cannot
            hold: a finite one out of range, a fraction or a missing one for INT64, or a category that would be rounded.
    """
    name, dtype = tensor.name, DTYPES[tensor.datatype]
    if rules.is_table(X):
        X = tables.numbers(X, f" of {listed([tensor])}", whole=tensor.datatype == "INT64")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not an array: {error}") from None
    if array.dtype == object and array.ndim == 2 and array.size:
        array = _of_objects(array, tensor)
    if array.dtype.kind not in rules.NUMERIC_KINDS:
        hint = f"; input '{name}' takes no strings" if array.dtype.kind in "USTO" else ""
        if array.ndim == 0 and hasattr(X, "toarray"):
            hint = "; use .toarray() on a sparse matrix"
        raise InvalidRequest(f"{name} has dtype {array.dtype}; accepted: floats, integers and booleans{hint}.")
    check_shape(array.shape, name)
    if array.dtype == dtype:
        return array
    if array.dtype == np.bool_:
        return array.astype(dtype)
    if tensor.datatype == "INT64":
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


def _of_objects(array: np.ndarray, tensor: InputTensor) -> np.ndarray:
    """Return a matrix of Python's numbers as float64, or as int64 if all of them are whole."""
    columns = []
    for place in range(array.shape[1]):
        try:
            columns.append(rules.column_numbers(array[:, place]))
        except rules.NotNumber as error:
            named = f" ('{tensor.columns[place]}')" if place < len(tensor.columns) else ""
            raise InvalidRequest(
                f"{tensor.name}[{error.row}, {place}]{named} is {error.value!r}, not a number; input '{tensor.name}' "
                "takes only numbers."
            ) from None
    return np.stack(columns, axis=1)


def same(given: object, array: np.ndarray) -> bool:
    """Return whether an input's tensor equals the values given for it: its strings, or exactly its numbers.

    The names of the columns and the categories do not matter then. For a table it is False: columns go by name.
    """
    if rules.is_tabular(given):
        return False
    if array.dtype == object:
        return True
    original = np.asarray(given)
    if original.dtype == object:  # Python's own numbers, which may have been rounded
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


def text_rows(strings: npt.ArrayLike, name: str) -> np.ndarray:
    """Return strings in the form of a request: `bytes` objects in UTF-8 [rows, columns]; a missing one is empty.

    A string is str or bytes; None, NaN and pandas.NA are missing.

    Raises:
        InvalidRequest: they are not two-dimensional, have no rows, or hold a value that is not a string.
    """
    strings = as_frame(strings)
    names = list(strings.columns) if rules.is_table(strings) else None
    try:
        array = np.asarray(strings, dtype=object)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not an array: {error}") from None
    check_shape(array.shape, name)
    found = np.empty(array.shape, dtype=object)
    for column in range(array.shape[1]):
        for row, value in enumerate(array[:, column].tolist()):
            text = _utf8(value)
            if text is None:
                where = f"{name}[{row}, {column}]"
                if names is not None:
                    where = f"Row {row} of column '{names[column]}' of input '{name}'"
                raise InvalidRequest(f"{where} is {value!r}, not a string: str, or bytes in UTF-8.")
            found[row, column] = text
    return found


def datatype(array: np.ndarray) -> str:
    """Return the name of a tensor's type in requests."""
    return next(name for name, dtype in DTYPES.items() if array.dtype == dtype)


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


def some_rows(X: Any, rows: slice) -> Any:
    """Return some rows of X in a form of `model_tensors`: of each array of a mapping, a DataFrame, or an array."""
    if isinstance(X, Mapping):
        return {name: some_rows(as_frame(values), rows) for name, values in X.items()}
    if rules.is_table(X):
        return X.iloc[rows]
    return X[rows] if isinstance(X, list | tuple | np.ndarray) else np.asarray(X)[rows]


def _rows(X: Any, tensor: InputTensor) -> np.ndarray:
    """Return X in the form of a request for an input."""
    if tensor.datatype not in DTYPES:
        accepted = ", ".join(DTYPES)
        raise InvalidRequest(f"Input '{tensor.name}' takes {tensor.datatype}; this client sends {accepted}.")
    return text_rows(X, tensor.name) if tensor.text else number_rows(X, tensor)


def _by_name(given: Mapping[str, Any], inputs: Mapping[str, InputTensor], model: str) -> Tensors:
    unknown = [name for name in given if name not in inputs]
    if unknown or not given:
        which = f"no input {unknown[0]!r}" if unknown else "inputs, and the mapping is empty"
        raise InvalidRequest(f"Model '{model}' has {which}; it takes the {listed(list(inputs.values()))}.")
    tensors = {name: _rows(_own_columns(value, inputs[name]), inputs[name]) for name, value in given.items()}
    if len({len(array) for array in tensors.values()}) != 1:
        counts = ", ".join(f"'{name}' {len(array)}" for name, array in tensors.items())
        raise InvalidRequest(f"The inputs differ in their number of rows: {counts}.")
    return tensors


def _own_columns(value: Any, tensor: InputTensor) -> Any:
    """Return an input's columns of a DataFrame, by name if both have names; anything else unchanged."""
    value = as_frame(value)
    named = rules.is_table(value) and tensor.columns and all(isinstance(name, str) for name in value.columns)
    return tables.take(value, tensor.columns, f" of {listed([tensor])}") if named else value


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise InvalidRequest unless the shape is that of a matrix with at least one row."""
    if len(shape) != 2:
        hint = f"; one row is {name}.reshape(1, -1)" if len(shape) == 1 else ""
        raise InvalidRequest(f"{name} has shape {shape}; it must be two-dimensional, [rows, n_features]{hint}.")
    if not shape[0]:
        raise InvalidRequest(f"{name} has no rows (shape {shape}); a request needs at least one.")


def _utf8(value: object) -> bytes | None:
    """Return a string's bytes in UTF-8, empty for a missing value; None for any other value."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
    if isinstance(value, bytes):
        return bytes(value)  # numpy's own kind of bytes too
    missing = value is None or (isinstance(value, (float, np.floating)) and value != value) or rules.is_missing(value)
    return b"" if missing else None
