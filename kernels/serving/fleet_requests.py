"""The ids of models in requests for a fleet, or their numbers, and the messages on rows that name no model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.member_check import MemberAllowed
from ..format.inputs import NUMBERS, Inputs
from ..format.member_table import MemberTable
from ..format.member_tensors import JoinedIds, JoinedNumbers, check_tensors, joined
from .member_counts import MemberCounts
from .other_tensors import matrices
from .quoting import quoted
from .tensors import check_strings, strings_in, tensors_in

if TYPE_CHECKING:
    from ..engine.gather import Part
    from .backend_types import Request, ServerTensor

    Reader = Callable[[list[Request]], list[Part]]

FEW = 64
"""The ids of so few rows are looked up one by one, which takes less time than NumPy's calls."""


class FleetRequests:
    """The requests for a fleet whose members a table describes.

    `numbers` returns a tensor of numbers in CPU memory, and `configured` has the types and dims of the inputs
    in config.pbtxt. A string of more than `max_string_bytes` that is no id is refused. Raises ValueError if the inputs
    with the numbers of models have other types or dims.
    """

    def __init__(
        self,
        inputs: Inputs,
        members: MemberTable,
        numbers: Callable[[ServerTensor], np.ndarray],
        configured: Mapping[str, tuple[str | None, list[int]]],
        max_string_bytes: int,
    ) -> None:
        check_tensors(inputs, configured)
        self._ids, self._numbered, self._models = inputs.ids, str(inputs.numbered), inputs.models
        both, self._datatypes = joined(inputs), inputs.datatypes()
        self._joined = {each.name: each for each in both}
        self._with_numbers = next((each.name for each in both if isinstance(each, JoinedNumbers)), "")
        self._with_ids = next((each for each in both if isinstance(each, JoinedIds)), None)
        if "BYTES" in self._datatypes.values():
            check_strings()
        self._kinds: dict[frozenset[str], dict[str, str]] = {}
        self._inputs, self._refused, self._closed = inputs, members.refused, members.closed
        self._max_string_bytes = max_string_bytes
        self._own, self._numbers = members.own_places(inputs), numbers
        self._known = {} if self._with_ids is None else _numbers_by_id(inputs)

    def allowed(self, nan_columns: Sequence[int]) -> MemberAllowed:
        """Return what looks for numbers that members do not take."""
        inputs = self._inputs
        members = len(self._models)
        return MemberAllowed(inputs.n_features, nan_columns, inputs.closed, members, self._refused, self._closed)

    def reader(self, numbers: Callable[[ServerTensor], Part], otherwise: Reader) -> Reader:
        """Return what reads the plan's matrix of each request of a batch.

        If each request has its rows and numbers joined, they are the matrix as they are; if each has rows and ids
        joined, it is made of them. A batch that is refused is read by `otherwise`, as others are at once.
        """
        with_numbers, with_ids = {self._with_numbers}, self._with_ids

        def read(requests: list[Request]) -> list[Part]:
            found = []
            for request in requests:
                tensors = request.inputs()
                if len(tensors) != 1:
                    return otherwise(requests)
                found.append(tensors[0])
            names = {tensor.name() for tensor in found}
            if names == with_numbers:
                return list(map(numbers, found))
            if with_ids is not None and names == {with_ids.name}:
                both = list(map(self._numbers, found))
                if len(both) == 1:  # `matrices` and `apart` would take half as long again
                    return [self._encoded(with_ids.apart(both[0]))]
                return matrices({with_ids.name: both}, self.encode)
            return otherwise(requests)

        return read

    def encode(self, tensors: dict[str, np.ndarray]) -> np.ndarray:
        """Return the plan's matrix for the tensors of requests, with the members' own categories."""
        return self._encoded(self.apart(tensors))

    def _encoded(self, given: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the plan's matrix for `X` and the models apart.

        A few rows of `X` with known ids need little of what `Inputs.encode` does for all others.
        """
        ids = given.get(self._ids[0]) if self._known else None
        if ids is not None and len(ids) <= FEW:
            found = list(map(self._known.get, ids.ravel().tolist()))
            if None not in found:
                X = given[NUMBERS]
                matrix = np.empty((len(X), X.shape[1] + 1), dtype=X.dtype)
                matrix[:, :-1] = X
                matrix[:, -1] = found
                return self.own(matrix)
        return self.own(self._inputs.encode(given, self._max_string_bytes))

    def own(self, matrix: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix with the places of categories among those of each row's member."""
        return matrix if self._own is None else self._own(matrix)

    def given(self, tensors: Collection[str]) -> dict[str, str]:
        """Return the tensors that a request with `tensors` is read from, and their types.

        It has its models' numbers, their ids or neither. A tensor of rows and models joined stands for all others: if
        there are such tensors, a request may lack `X`. Requests with the same tensors have the same dictionary.
        """
        there = frozenset(tensors)
        found = self._kinds.get(there)
        if found is None:
            found = self._kinds[there] = self._given(there)
        return found

    def _given(self, there: Collection[str]) -> dict[str, str]:
        """Return the tensors to read and their types of requests that have the tensors `there`."""
        for name, tensor in self._joined.items():
            if name in there:
                return {name: tensor.datatype}
        types = {**self._datatypes, self._numbered: "INT32"}
        if self._joined and NUMBERS not in there:  # the others tell how many rows it has
            return {name: types[name] for name in (self._numbered, *self._ids) if name in there}
        if self._numbered in there or not all(name in there for name in self._ids):
            for name in self._ids:
                del types[name]
        if self._numbered not in there:
            del types[self._numbered]
        return types

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tensors of requests with `X` and the models apart; without `X` their rows name no model."""
        for name, tensor in self._joined.items():
            if name in tensors:
                return tensor.apart(tensors[name])
        if self._joined and NUMBERS not in tensors:
            return {NUMBERS: np.zeros((len(next(iter(tensors.values()))), len(self._inputs.numeric)))}
        return tensors

    def of_numbers(self, request: Request) -> str:
        """Return the name of a request's tensor with the columns of `X`, `X` itself if it is joined with ids."""
        return self._with_numbers if self._with_numbers in tensors_in(request) else NUMBERS

    def member(self, number: float) -> str | None:
        """Return the id of the member with that number as an error shows it; None if there is none."""
        if not 0 <= number < len(self._models):
            return None
        found = self._models[int(number)]
        return f"({', '.join(map(_quoted, found))})" if isinstance(found, tuple) else _quoted(found)

    def unknown(self, request: Request, row: int) -> str:
        """Return a message on a row whose model does not exist."""
        tensors, last = tensors_in(request), len(self._models) - 1
        given = self.given(tensors)
        if self._with_numbers in given:
            number = self._numbers(tensors[self._with_numbers])[row, -1]
            return f"{self._with_numbers} must end with a whole number from 0 to {last}: row {row} ends with {number}."
        if self._with_ids is not None and self._with_ids.name in given:
            (name,) = self._ids
            ids = self._with_ids.apart(self._numbers(tensors[self._with_ids.name]))[name]
            return self._names_none(row, [ids])
        if NUMBERS in self._datatypes and NUMBERS not in given:
            return f"{NUMBERS} is missing."
        if self._numbered in given:
            number = self._numbers(tensors[self._numbered])[row, 0]
            return f"{self._numbered} must be from 0 to {last}: row {row} is {number}."
        missing = [name for name in self._ids if name not in tensors]
        if missing:
            return f"{missing[0]} is missing: it must name a model of this fleet."
        columns = [(strings_in if given[name] == "BYTES" else self._numbers)(tensors[name]) for name in self._ids]
        return self._names_none(row, columns)

    def _names_none(self, row: int, columns: Sequence[np.ndarray]) -> str:
        """Return a message on a row whose id, `[rows, 1]` for each of its columns, is no model's."""
        shown = ", ".join(_quoted(column[row, 0]) for column in columns)
        return f"{', '.join(self._ids)} must name a model of this fleet: row {row} is {shown}."

    def counts(self, classes: Sequence[tuple[str, int]]) -> MemberCounts:
        """Return the counts of members, in classes of an estimator and a number of members each."""
        return MemberCounts(self._models, classes)


def _numbers_by_id(inputs: Inputs) -> dict[Any, float]:
    """Return the numbers of models by their ids of one column, whole numbers or strings in UTF-8."""
    if inputs.text:  # all other columns are in `X`
        return inputs.text[0].numbers[0]
    return {each: float(number) for number, each in enumerate(inputs.models)}


def _quoted(part: str | bytes | int) -> str:
    """Return an id, or a part of one, as an error shows it."""
    text = part.encode() if isinstance(part, str) else part
    return quoted(text) if isinstance(text, bytes) else str(text)
