"""The tensors that a request for a fleet may have in place of `X` and the ids of its rows' models.

A request names the models of its rows in one of four ways:

- by `X` and the ids;
- by `X` and the numbers of the models, INT32 `[rows, 1]`, the places of the ids among the categories;
- by rows and numbers joined, one tensor of X's type with the columns of `X` and then the number;
- by rows and ids joined, one INT32 tensor with the bytes of both.

A second tensor costs a server more than all that is done with an id. Joined tensors are there only if `X` holds all of
the model's columns, and the last way only if the ids have one column.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .inputs import NUMBERS, UNKNOWN, Inputs

WORD = 4
"""The bytes of a number of INT32."""

ID_BYTES, MOST_ID_BYTES = 8, 64
"""An id's bytes in a joined tensor are a multiple of the first. Longer ids than the second are not joined with rows."""


def numbered(by: str) -> str:
    """Return the name of the tensor of numbers beside the tensor of ids."""
    return f"{by}_number"


def joined_with(name: str) -> str:
    """Return the name of the tensor of rows and numbers joined beside the tensor of numbers."""
    return f"{NUMBERS}_{name}"


@dataclass(frozen=True)
class JoinedNumbers:
    """One tensor `[rows, columns + 1]` of X's type `datatype`: its columns and the number of each row's model."""

    numbered: str
    columns: int
    datatype: str

    @property
    def name(self) -> str:
        """The tensor's name."""
        return joined_with(self.numbered)

    def apart(self, both: np.ndarray) -> dict[str, np.ndarray]:
        """Return `X` and the numbers; a number that is not whole is `UNKNOWN`."""
        numbers = both[:, self.columns :]
        return {NUMBERS: both[:, : self.columns], self.numbered: np.where(numbers % 1 == 0, numbers, UNKNOWN)}


@dataclass(frozen=True)
class JoinedIds:
    """One tensor INT32 `[rows, width]` with the bytes of rows and of the ids `by` of their models.

    A row begins with the bytes of its `columns` numbers of X's type `numbers`. Those of its id follow: of an INT64, or
    of a string in UTF-8 and then bytes of 0. They are those of no float, so that nothing on their way takes an id for
    NaN. The name says all this except the width, so that a server refuses a request that was made for another model.
    Only the width tells how many bytes a string has, so that versions with longer and shorter ids take the same tensor.
    """

    by: str
    columns: int
    numbers: str
    ids: str

    datatype = "INT32"

    @functools.cached_property
    def name(self) -> str:
        """The tensor's name."""
        return f"{NUMBERS}_{self.by}_{self.numbers}x{self.columns}_{self.ids}"

    @functools.cached_property
    def id_at(self) -> int:
        """The place at which a row's id begins."""
        return self.columns * self._dtype.itemsize // WORD

    def width(self, ids: tuple[str | int, ...]) -> int:
        """Return the width that holds all of these ids, except for strings of more than `MOST_ID_BYTES`."""
        longest = max((len(each.encode()) for each in ids if isinstance(each, str)), default=ID_BYTES)
        return self.id_at + -(-min(max(longest, 1), MOST_ID_BYTES) // ID_BYTES) * ID_BYTES // WORD

    def takes(self, width: int) -> bool:
        """Return whether rows and ids may have this width."""
        words = width - self.id_at
        return words > 0 if self.ids == "BYTES" else words * WORD == ID_BYTES

    def join(self, X: np.ndarray, ids: np.ndarray, width: int) -> np.ndarray | None:
        """Return the tensor of this width for `X` `[rows, columns]` and ids `[rows, 1]`, bytes or int64.

        None: they have other shapes, or a string is longer, or it ends with a byte of 0, which would be lost.
        """
        if X.shape[1:] != (self.columns,) or ids.shape[1:] != (1,):
            return None
        both = np.empty((len(X), width), dtype=np.int32)
        both[:, : self.id_at].view(self._dtype)[...] = X
        held = self._ids(both)
        held[...] = ids
        return None if ids.dtype == object and held.tolist() != ids.tolist() else both

    def apart(self, both: np.ndarray) -> dict[str, np.ndarray]:
        """Return `X` and the ids, int64 or strings as NumPy's bytes; both are views."""
        return {NUMBERS: both[:, : self.id_at].view(self._dtype), self.by: self._ids(both)}

    @functools.cached_property
    def _dtype(self) -> np.dtype:
        return np.dtype(np.float64 if self.numbers == "FP64" else np.float32)

    def _ids(self, both: np.ndarray) -> np.ndarray:
        """Return a view of the ids in the tensor, `[rows, 1]`."""
        ids = both[:, self.id_at :]
        return ids.view(np.int64 if self.ids == "INT64" else f"S{ids.shape[1] * WORD}")


def joined(inputs: Inputs) -> tuple[JoinedNumbers | JoinedIds, ...]:
    """Return the tensors that have rows and models joined; a request may lack `X` then."""
    columns, types = inputs.n_features - 1, inputs.datatypes()
    if inputs.numbered is None or inputs.numeric != tuple(range(columns)):
        return ()
    by_number = JoinedNumbers(inputs.numbered, columns, types[NUMBERS])
    if len(inputs.ids) > 1:
        return (by_number,)
    return by_number, JoinedIds(inputs.ids[0], columns, types[NUMBERS], types[inputs.ids[0]])


def tensors_in_place(inputs: Inputs) -> dict[str, tuple[str, int]]:
    """Return the type and the width of each tensor that a request may have in place of ids; none for a single model."""
    found = {} if inputs.numbered is None else {inputs.numbered: ("INT32", 1)}
    for each in joined(inputs):
        width = each.width(inputs.models) if isinstance(each, JoinedIds) else each.columns + 1
        found[each.name] = each.datatype, width
    return found


def check_tensors(inputs: Inputs, configured: Mapping[str, tuple[str | None, list[int]]]) -> None:
    """Raise ValueError if config.pbtxt gives such a tensor another type or other dims than `tensors_in_place`.

    An older version's ids may have been longer or shorter.
    """
    of_ids = {each.name: each for each in joined(inputs) if isinstance(each, JoinedIds)}
    for name, (datatype, width) in tensors_in_place(inputs).items():
        given, dims = configured.get(name, (datatype, [width]))
        fits = len(dims) == 1 and of_ids[name].takes(dims[0]) if name in of_ids else dims == [width]
        if given != datatype or not fits:
            raise ValueError(f"config.pbtxt must give {name} the type {datatype} and the dims [{width}].")
