"""The tensors of a request: rows in any form that a user has them → input name → array, ready to send.

Numbers are float32 arrays, strings are arrays of `bytes` objects in UTF-8; both are [rows, columns]. A missing string
is an empty one.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients import tables
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.kernels.inputs import NUMBERS

Rows = npt.NDArray[np.float32]
Tensors: TypeAlias = dict[str, npt.NDArray[Any]]
Given: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""What rows may be given as: an array for the input X, arrays by the inputs' names, or a pandas DataFrame."""

COLUMNS = "columns"
"""Parameter of a configuration: JSON, an object of each input's name to the names that its columns had in training."""

_NUMERIC_KINDS = "fiub"


@dataclass(frozen=True)
class InputTensor:
    """An input of a model. width: of a row, −1 if it is not fixed. columns: their names in training; () without."""

    name: str
    datatype: str  # as requests call it: "FP32", "BYTES"
    width: int
    columns: tuple[str, ...] = ()

    @property
    def text(self) -> bool:
        """Whether it takes strings."""
        return self.datatype == "BYTES"


def input_tensors(config: model_config_pb2.ModelConfig) -> tuple[InputTensor, ...]:
    """The inputs of a model, in the order of its configuration."""
    named = config.parameters[COLUMNS].string_value if COLUMNS in config.parameters else "{}"
    try:
        columns = {name: tuple(map(str, names)) for name, names in json.loads(named).items()}
    except (ValueError, TypeError, AttributeError):
        raise ServerFault(
            f"Parameter {COLUMNS!r} of model '{config.name}' does not name its inputs' columns."
        ) from None
    return tuple(
        InputTensor(
            tensor.name,
            model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_").replace("STRING", "BYTES"),
            int(tensor.dims[-1]) if tensor.dims else -1,
            columns.get(tensor.name, ()),
        )
        for tensor in config.input
    )


def request_tensors(X: Given) -> Tensors | None:
    """The tensors that X is; None for a table of which the model's configuration alone tells, see `split`.

    Raises:
        InvalidRequest: X cannot be sent to any model.
    """
    if isinstance(X, Mapping):
        return _by_name(X)
    if tables.is_table(X):
        array = np.asarray(X)
        # A column without a single value may be of numbers or of strings.
        empty = array.dtype.kind == "f" and np.isnan(array[:1]).any() and np.isnan(array).all(axis=0).any()
        return None if empty or array.dtype.kind not in _NUMERIC_KINDS else {NUMBERS: float32_rows(array)}
    return {NUMBERS: float32_rows(X)}


def model_tensors(X: Given, config: model_config_pb2.ModelConfig) -> Tensors:
    """The tensors that X is for the model of this configuration."""
    tensors = request_tensors(X)
    return split(X, input_tensors(config), config.name) if tensors is None else tensors


def split(table: Any, inputs: Sequence[InputTensor], model: str) -> Tensors:
    """A DataFrame as the inputs of a model: their columns, by name.

    A single input whose columns have no names takes all columns in their order, and so does one of numbers if they are
    all numeric.

    Raises:
        InvalidRequest: a column is missing or of the wrong kind, or the model does not tell its columns' names.
    """
    if len(inputs) == 1 and (not inputs[0].columns or (not inputs[0].text and tables.all_numeric(table))):
        parts = {inputs[0].name: table}
    else:
        unnamed = [tensor for tensor in inputs if not tensor.columns]
        if unnamed:
            raise InvalidRequest(
                f"Model '{model}' does not tell which columns its {listed(inputs)} are: it was fitted on columns "
                "without names; give a mapping of each input's name to an array."
            )
        parts = {tensor.name: tables.take(table, tensor.columns, f" of {listed([tensor])}") for tensor in inputs}
    return {
        tensor.name: text_rows(parts[tensor.name], tensor.name)
        if tensor.text
        else float32_rows(tables.numbers(parts[tensor.name], f" of {listed([tensor])}"), tensor.name)
        for tensor in inputs
    }


def listed(inputs: Sequence[InputTensor]) -> str:
    """The inputs in words."""
    names = " and ".join(f"'{tensor.name}'" for tensor in inputs)
    return f"input{'s' if len(inputs) > 1 else ''} {names}"


def float32_rows(X: npt.ArrayLike, name: str = NUMBERS) -> Rows:
    """X as a request carries it: float32 [rows, n_features].

    float32 is taken as it is. Other floats, integers and booleans are rounded to the nearest float32; NaN and infinity
    pass through, for the model to judge.

    Raises:
        InvalidRequest: X is not two-dimensional, has no rows, is not numeric, or holds a finite value beyond float32.
    """
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not an array: {error}") from None
    if array.dtype.kind not in _NUMERIC_KINDS:
        hint = "; strings are given as a mapping of each input's name to an array" if array.dtype.kind in "USTO" else ""
        if array.ndim == 0 and hasattr(X, "toarray"):
            hint = "; use .toarray() on a sparse matrix"
        raise InvalidRequest(f"{name} has dtype {array.dtype}; accepted: floats, integers and booleans{hint}.")
    _check_shape(array, name)
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32)
    beyond = np.isinf(rows) & np.isfinite(array)
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        value = array[row, column]
        raise InvalidRequest(
            f"{name}[{row}, {column}] is {value}, beyond float32, whose largest value is about 3.4e38."
        )
    return rows


def text_rows(strings: npt.ArrayLike, name: str) -> npt.NDArray[np.object_]:
    """Strings as a request carries them: `bytes` objects in UTF-8 [rows, columns]; a missing one is empty.

    A string is str or bytes; None, NaN and pandas.NA are missing.

    Raises:
        InvalidRequest: they are not two-dimensional, have no rows, or hold what is no string.
    """
    names = list(strings.columns) if tables.is_table(strings) else None
    try:
        array = np.asarray(strings, dtype=object)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not an array: {error}") from None
    _check_shape(array, name)
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


def datatype(array: npt.NDArray[Any]) -> str:
    """What requests call the type of a tensor."""
    return "BYTES" if array.dtype == object else "FP32"


def wire(array: npt.NDArray[Any]) -> bytes:
    """The bytes of a tensor in a request: little-endian numbers, or strings with their lengths before them."""
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(text)) + text for text in array.ravel().tolist())
    return array.astype("<f4", copy=False).tobytes()


def row_count(tensors: Mapping[str, npt.NDArray[Any]]) -> int:
    """How many rows they have."""
    return len(next(iter(tensors.values())))


def take(tensors: Mapping[str, npt.NDArray[Any]], rows: slice | npt.NDArray[np.intp]) -> Tensors:
    """Some rows of them."""
    return {name: array[rows] for name, array in tensors.items()}


def _by_name(given: Mapping[str, Any]) -> Tensors:
    tensors = {name: _array(value, name) for name, value in given.items()}
    if len({len(array) for array in tensors.values()}) != 1:
        counts = ", ".join(f"'{name}' {len(array)}" for name, array in tensors.items())
        raise InvalidRequest(
            f"The inputs differ in their number of rows: {counts}."
            if counts
            else "There are no inputs: a mapping of each input's name to an array is empty."
        )
    return tensors


def _array(value: Any, name: str) -> npt.NDArray[Any]:
    if not isinstance(name, str):
        raise InvalidRequest(f"The mapping has the key {name!r}; its keys must be the names of inputs.")
    if tables.is_table(value):
        numeric = tables.all_numeric(value)
        return float32_rows(tables.numbers(value), name) if numeric else text_rows(value, name)
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError as error:
        raise InvalidRequest(f"{name} is not an array: {error}") from None
    return text_rows(value, name) if kind in "USTO" and not hasattr(value, "toarray") else float32_rows(value, name)


def _check_shape(array: npt.NDArray[Any], name: str) -> None:
    if array.ndim != 2:
        hint = f"; one row is {name}.reshape(1, -1)" if array.ndim == 1 else ""
        raise InvalidRequest(f"{name} has shape {array.shape}; it must be two-dimensional, [rows, n_features]{hint}.")
    if not array.shape[0]:
        raise InvalidRequest(f"{name} has no rows (shape {array.shape}); a request needs one at least.")


def _utf8(value: object) -> bytes | None:
    """None for what is no string."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
    if isinstance(value, bytes):
        return bytes(value)  # numpy's own kind of bytes too
    missing = value is None or (isinstance(value, (float, np.floating)) and value != value) or tables.is_missing(value)
    return b"" if missing else None
