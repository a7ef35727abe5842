"""The facts that an entry of many models states of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemberClass:
    """Members of a fleet whose plans are alike, numbered one after the other.

    `estimator` names their classes, `members` is their number, `launches` that of the kernels that their rows need, and
    `bytes` the size of their arrays. `stacked` says whether these kernels answer rows of all members at once; otherwise
    the class has one member.
    """

    estimator: str
    members: int
    launches: int
    stacked: bool
    bytes: int


@dataclass(frozen=True)
class MemberOrigin:
    """The origin of members: their estimator's class, scikit-learn's version at their export, their rows' source."""

    estimator: str
    scikit_learn: str
    rows_from: str


@dataclass(frozen=True)
class Fleet:
    """The members of an entry of many models.

    The last column of the plan's matrix, called `by`, is the number of a row's member. Requests have the ids of members
    in the tensor `by`, whose categories they are, or in several tensors, whose names joined by "_" are `by`. `origins`
    are those of the members, see `MemberTable`. `level` is the share of new rows that each member's prediction interval
    is made to cover; None if there are no intervals.
    """

    by: str
    classes: tuple[MemberClass, ...]
    origins: tuple[MemberOrigin, ...]
    level: float | None = None

    @property
    def members(self) -> int:
        """The number of members."""
        return sum(each.members for each in self.classes)
