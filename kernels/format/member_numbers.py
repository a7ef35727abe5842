"""The numbers of a fleet's models in requests, which may have them in place of the models' ids.

A request names the models of its rows in one of three ways: `X` and the ids; `X` and the numbers, INT32 `[rows, 1]`,
the places of the ids among the categories; or rows and numbers joined, one tensor of X's type with the columns of `X`
and then the number. The last way is there only if `X` holds all of the model's columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .inputs import NUMBERS, UNKNOWN, Inputs


def joined(inputs: Inputs) -> str | None:
    """Return the name of the tensor of rows and numbers joined, or None."""
    whole = inputs.numbered is not None and inputs.numeric == tuple(range(inputs.n_features - 1))
    return f"{NUMBERS}_{inputs.numbered}" if whole else None


def tensors_of_numbers(inputs: Inputs) -> dict[str, tuple[str, int]]:
    """Return the type and the width of each tensor that a request may have in place of ids; none for a single model."""
    found, name = {} if inputs.numbered is None else {inputs.numbered: ("INT32", 1)}, joined(inputs)
    return found if name is None else {**found, name: (inputs.datatypes()[NUMBERS], inputs.n_features)}


def write_numbers(inputs: Inputs, tensors: Mapping[str, np.ndarray], matrix: np.ndarray) -> bool:
    """Write the numbers of models into the last column of the plan's matrix, if a request has no ids.

    A number that no model has becomes that of the default model, or `UNKNOWN`. NaN says that the request names no
    model; this also refuses a request without `X`, which is optional where rows and numbers may be joined. Returns
    whether the matrix is complete.
    """
    name = joined(inputs)
    if name is not None and name in tensors:
        matrix[:] = tensors[name]
        matrix[:, -1] = _known(inputs, matrix[:, -1])
        return True
    if name is not None and NUMBERS not in tensors:
        matrix[:, -1] = np.nan
        return True
    if inputs.numbered in tensors:
        matrix[:, -1] = _known(inputs, tensors[str(inputs.numbered)][:, 0])
    elif inputs.ids not in tensors:
        matrix[:, -1] = np.nan
    return False


def _known(inputs: Inputs, numbers: np.ndarray) -> np.ndarray:
    known = (numbers >= 0) & (numbers < len(inputs.models)) & (numbers % 1 == 0)
    found: np.ndarray = np.where(known, numbers, UNKNOWN if inputs.default is None else inputs.default)
    return found
