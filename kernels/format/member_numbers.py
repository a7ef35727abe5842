"""The numbers of a fleet's models in requests, which may have them in place of the models' ids.

A request names the models of its rows in one of three ways: `X` and the ids; `X` and the numbers, INT32 `[rows, 1]`,
the places of the ids among the categories; or rows and numbers joined, one tensor of X's type with the columns of `X`
and then the number. The last way is there only if `X` holds all of the model's columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .inputs import NUMBERS, UNKNOWN, Inputs


def numbered(by: str) -> str:
    """Return the name of the tensor of numbers beside the tensor of ids."""
    return f"{by}_number"


def joined_with(name: str) -> str:
    """Return the name of the tensor of rows and numbers joined beside the tensor of numbers."""
    return f"{NUMBERS}_{name}"


def joined(inputs: Inputs) -> str | None:
    """Return the name of the tensor of rows and numbers joined, or None."""
    if inputs.numbered is None or inputs.numeric != tuple(range(inputs.n_features - 1)):
        return None
    return joined_with(inputs.numbered)


def tensors_of_numbers(inputs: Inputs) -> dict[str, tuple[str, int]]:
    """Return the type and the width of each tensor that a request may have in place of ids; none for a single model."""
    found, name = {} if inputs.numbered is None else {inputs.numbered: ("INT32", 1)}, joined(inputs)
    return found if name is None else {**found, name: (inputs.datatypes()[NUMBERS], inputs.n_features)}


def place_models(inputs: Inputs, tensors: Mapping[str, np.ndarray], numbers: np.ndarray, max_bytes: float) -> None:
    """Complete the last column of a plan's matrix, the numbers of rows' models, which has those of ids in one tensor.

    They are NaN without ids and numbers, and `UNKNOWN` for an unknown model, unless a default one answers the row.
    """
    given = tensors.get(str(inputs.numbered))
    if given is not None:
        known = (given >= 0) & (given < len(inputs.models))
        numbers[:] = np.where(known, given, UNKNOWN)[:, 0]
    elif inputs.ids[0] not in tensors:
        numbers[:] = np.nan
    elif inputs.id_columns is not None:
        numbers[:] = inputs.id_columns.encode(tensors, max_bytes)
    if inputs.default is not None:
        numbers[numbers == UNKNOWN] = inputs.default
