"""Stacked operations whose rows plain torch computes member by member, by the operation of each member."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.member_sums import in_order_of_members
from ...plan.plan import Parameters
from ...plan.stacked import Member, Stacked

MOST_KEPT = 4096
"""The most members of an operation whose own operations are kept, so that memory does not grow with a fleet."""


@dataclass(frozen=True, eq=False)
class ByMembers(Stacked[Member]):
    """Operations of one kind, which compute their members' rows on a CPU and in the reference."""

    @abstractmethod
    def member(self, place: int) -> Member:
        """Return the operation of the member at a place."""

    def own(self, place: int) -> tuple[Member, Parameters]:
        """Return the operation of the member at a place, and what its plain torch reads; both are kept for a while."""
        kept: dict[int, tuple[Member, Parameters]] = self.__dict__.setdefault("_own", {})
        if place not in kept:
            if len(kept) == MOST_KEPT:
                kept.clear()
            member = self.member(place)
            arrays = member.plain_parameters().items()
            kept[place] = member, {name: torch.from_numpy(np.require(a, requirements=["C", "W"])) for name, a in arrays}
        return kept[place]

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return no parameters: `own` has those of members whose rows are in a batch."""
        return {}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        for each in place.unique().tolist():
            member, tables = self.own(each)
            answer[place == each] = member.reference(tables, x[place == each])
        return answer

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return in_order_of_members(inputs[0], self.places(inputs[1]), self.of_members)

    def of_members(self, x: torch.Tensor, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        """Return the answers of rows on a CPU.

        Args:
            x: `[rows, features]`, the rows of one member after those of another.
            places: the places of these members.
            counts: how many rows each of them has.
        """
        if len(places) == 1:
            member, tables = self.own(places[0])
            return member.compute_on_cpu(tables, x)
        parts = zip(places, counts, x.split(list(counts)), strict=True)
        return torch.cat([self.of_members(rows, (place,), (count,)) for place, count, rows in parts])
