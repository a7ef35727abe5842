"""The numbers of a fleet's models in requests, which may have them in place of the models' ids.

A request names the models of its rows in one of three ways: `X` and the ids; `X` and the numbers, INT32 `[rows, 1]`,
the places of the ids among the categories; or rows and numbers joined, one tensor of X's type with the columns of `X`
and then the number. The last way is there only if `X` holds all of the model's columns.
"""

from __future__ import annotations

from .inputs import NUMBERS, Inputs


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
