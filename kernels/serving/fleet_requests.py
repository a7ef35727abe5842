"""The ids of models in requests for a fleet, or their numbers, and the messages on rows that name no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..format.inputs import Inputs
from ..format.member_table import MemberTable
from .member_counts import MemberCounts
from .quoting import quoted
from .tensors import pb_utils, strings_in

if TYPE_CHECKING:
    from .backend_types import Request


class FleetRequests:
    """The requests for a fleet whose members a table describes.

    `numbers` returns a request's tensor of numbers by its name.
    """

    def __init__(self, inputs: Inputs, members: MemberTable, numbers: Callable[[Request, str], np.ndarray]) -> None:
        self._by, self._numbered, self._models = str(inputs.ids), str(inputs.numbered), inputs.models
        self.refused, self.closed = members.refused, members.closed
        self._own, self._numbers = members.own_places(inputs), numbers

    def own(self, matrix: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix with the places of categories among those of each row's member."""
        return matrix if self._own is None else self._own(matrix)

    def given(self, request: Request, datatypes: Mapping[str, str]) -> dict[str, str]:
        """Return the tensors of a request and their types: it has its models' numbers, their ids or neither."""
        names = dict(datatypes)
        if pb_utils.get_input_tensor_by_name(request, self._numbered) is not None:
            names[self._numbered] = "INT32"
        if self._numbered in names or pb_utils.get_input_tensor_by_name(request, self._by) is None:
            del names[self._by]
        return names

    def member(self, number: float) -> str | None:
        """Return the id of the member with that number as an error shows it; None if there is none."""
        if not 0 <= number < len(self._models):
            return None
        found = self._models[int(number)]
        return quoted(found.encode()) if isinstance(found, str) else str(found)

    def unknown(self, request: Request, datatypes: Mapping[str, str], row: int) -> str:
        """Return a message on a row whose model does not exist."""
        given, shown = self.given(request, datatypes), ""
        if self._numbered in given:
            last, number = len(self._models) - 1, self._numbers(request, self._numbered)[row, 0]
            return f"{self._numbered} must be from 0 to {last}: row {row} is {number}."
        if self._by not in given:
            return f"{self._by} is missing: it must name a model of this fleet."
        if given[self._by] == "BYTES":
            shown = quoted(strings_in(request, self._by)[row, 0])
        else:
            shown = str(self._numbers(request, self._by)[row, 0])
        return f"{self._by} must name a model of this fleet: row {row} is {shown}."

    def counts(self, classes: Sequence[tuple[str, int]]) -> MemberCounts:
        """Return the counts of members, in classes of an estimator and a number of members each."""
        return MemberCounts(self._models, classes)
