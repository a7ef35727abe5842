"""The base of operations that hold the arrays of several members of a fleet, and use those of each row's own member.

A fleet is an entry of many models, its members, which are numbered from 0. The last input of a stacked operation is
`[rows, 1]`, the number of each row's member. An operation holds the arrays of the members from `start` on, one after
the other. Rows of other members get some answer, which nobody reads.

`stacked_affine` is the class `StackedAffine` of `ops/linear/stacked_affine.py`; it stacks operations of the kind
`affine`. A row's bits are those that its member's own operation gives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from ..format.errors import PlanError
from ..ops.kinds import MODULES
from .plan import Operation, operation_class

Member = TypeVar("Member", bound=Operation)

PREFIX = "stacked_"


@dataclass(frozen=True, eq=False)
class Stacked(Operation, Generic[Member]):
    """Operations of one kind, one for each of `members` members from number `start` on."""

    RAGGED: ClassVar[bool] = False
    """Whether members may read other numbers of columns of the first input: a row begins with those of its member."""

    @classmethod
    @abstractmethod
    def alike(cls, operation: Member) -> Hashable | None:
        """Return a key that operations have in common if they can be stacked; None if this one cannot be."""

    @classmethod
    @abstractmethod
    def of(cls, operations: Sequence[Member], start: int = 0) -> Stacked[Member]:
        """Return the stack of operations with the same key."""

    @property
    @abstractmethod
    def members(self) -> int:
        """The number of members."""

    @property
    def first(self) -> int:
        """The number of the first member, which is the field `start` of each stack."""
        return int(vars(self)["start"])

    def check_stacked(self, widths: Sequence[int], inputs: int = 1) -> None:
        """Raise `PlanError` unless there are members, and inputs of these widths end in the members' numbers."""
        if len(widths) != inputs + 1 or widths[-1] != 1:
            raise PlanError(f"{self.kind()}: the last of {inputs + 1} inputs must be [rows, 1], the members' numbers.")
        if self.members < 1 or self.first < 0:
            raise PlanError(f"{self.kind()}: there must be at least one member, and numbers from 0 on.")

    def places(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the place of each row's member in this stack, int64 `[rows]`; any place for rows of other members."""
        return (numbers.reshape(-1).long() - self.first).clamp_(0, self.members - 1)

    def members_of(self, numbers: torch.Tensor) -> dict[str, Any]:
        """Return the arguments by which a kernel finds each row's member; those of a single model are `one_member`."""
        return {"numbers": numbers, "first": self.first, "members": self.members, "STACKED": True}

    def describe(self) -> str:
        """Return the number of members in words."""
        return f"{self.members:,} members"


def stacked_class(operation: Operation) -> type[Stacked[Any]] | None:
    """Return the class that stacks operations of this kind; None if there is none."""
    kind = PREFIX + operation.kind()
    if kind not in MODULES:
        return None
    found = operation_class(kind)
    assert issubclass(found, Stacked)
    return found


def stacked_fields(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the fields of operations with the same attributes and shapes, each array stacked over the members."""
    arrays = {name: np.stack([getattr(each, name) for each in operations]) for name, _ in operations[0].arrays()}
    return {**operations[0].attributes(), **arrays}


def attributes_key(operation: Operation) -> tuple[Any, ...]:
    """Return the fields of an operation that are not arrays, as a key."""
    return tuple(sorted(operation.attributes().items()))


def shapes_key(operation: Operation) -> tuple[Any, ...]:
    """Return the shapes and dtypes of an operation's arrays, as a key."""
    return tuple((name, array.shape, array.dtype.str) for name, array in operation.arrays())
