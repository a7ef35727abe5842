"""Stacked operations of members that agree in all but the numbers of their arrays."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ..format.errors import PlanError
from .plan import Operation, Parameters, operation_class
from .stacked import PREFIX, Member, Stacked, attributes_key, shapes_key, stacked_fields


@dataclass(frozen=True, eq=False)
class StackedFields(Stacked[Member]):
    """An operation for each member, of the same attributes and shapes.

    The fields are those of a member's operation and `start`, the number of the first member. The arrays that members
    have in common are as they are, and all others are `[members, …]`.
    """

    IN_COMMON: ClassVar[tuple[str, ...]] = ()
    """The names of arrays that are the same for all members."""

    @classmethod
    def alike(cls, operation: Member) -> Hashable | None:
        """Return the attributes, the shapes, and the arrays that members must have in common."""
        common = tuple(array.tobytes() for name, array in operation.arrays() if name in cls.IN_COMMON)
        return attributes_key(operation), shapes_key(operation), common

    @classmethod
    def of(cls, operations: Sequence[Member], start: int = 0) -> StackedFields[Member]:
        """Return the stack of operations with the same key."""
        common = {name: getattr(operations[0], name) for name in cls.IN_COMMON}
        return cls(**{**stacked_fields(operations), **common}, start=start)  # type: ignore[call-arg]  # of subclasses

    @functools.cached_property
    def members(self) -> int:
        """The number of members."""
        return min(len(array) for _, array in self.own_arrays())

    def own_arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and value of each array with the members' own numbers."""
        yield from (each for each in self.arrays() if each[0] not in self.IN_COMMON)

    def member(self, place: int) -> Operation:
        """Return the operation of the member at a place."""
        attributes = {name: value for name, value in self.attributes().items() if name != "start"}
        own = {name: array[place] for name, array in self.own_arrays()}
        own |= {name: getattr(self, name) for name in self.IN_COMMON}
        return operation_class(self.kind().removeprefix(PREFIX))(**attributes, **own)

    def check(self, *widths: int) -> None:
        """Raise `PlanError` unless each member has arrays of its own, which fit inputs of these widths."""
        self.check_stacked(widths)
        for name, array in self.own_arrays():
            if len(array) != self.members:
                raise PlanError(f"{self.kind()}: {name} must be [{self.members}, …], not {list(array.shape)}.")
        self.member(0).check(*widths[:-1])

    def output_width(self, *widths: int) -> int:
        """Return the width of a member's output."""
        return self.member(0).output_width(*widths[:-1])

    def own(self, parameters: Parameters, numbers: torch.Tensor) -> Parameters:
        """Return parameters with the line of each row's member in place of the lines of all."""
        place = self.places(numbers)
        return {
            name: array if name in self.IN_COMMON else array.index_select(0, place)
            for name, array in parameters.items()
        }
