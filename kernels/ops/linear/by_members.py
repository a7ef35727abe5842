"""Stacked operations whose rows plain torch computes member by member, by the operation of each member.

Sums whose answers are outputs alone, and so are rounded to float32, it computes for all rows at once; see
`cpu/member_sums.py`.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.member_sums import in_order_of_members, rounded_sums
from ...numerics.functions import FUNCTIONS
from ...plan.plan import Joined, Parameters, Step
from ...plan.stacked import Member, Stacked

MOST_KEPT = 4096
"""The most members of an operation whose own operations are kept, so that memory does not grow with a fleet."""

FEW = 4
"""The sums of up to so many rows take less time row by row than for all rows at once."""

NEVER_FALLING = ("identity", "exp", "exp2", "exp10", "expit", "expm1", "sinh", "tanh")
"""Functions that never fall, and that every processor computes to a few units in the last place of float64."""


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
        x, numbers = inputs
        if x.shape[0] == 1:
            return self._row_by_row(x, numbers)
        return in_order_of_members(x, self.places(numbers), self.of_members)

    def _row_by_row(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return the answers of a few rows, without the tensors that bring them in the order of their members."""
        if x.shape[0] == 1:
            place = min(self.members - 1, max(0, numbers.item() - self.first))  # 0 for NaN, the number of no member
            return self.of_members(x, (int(place),), (1,))
        return torch.cat([self._row_by_row(x[row : row + 1], numbers[row]) for row in range(x.shape[0])])

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


@dataclass(frozen=True, eq=False)
class SumsByMembers(ByMembers[Member]):
    """Functions of sums; the field `function` names the function."""

    @abstractmethod
    def terms(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return new tensors of what is added up for rows, float64 `[rows, targets, terms]`.

        Args:
            parameters: those of plain torch.
            x: the rows, float64 `[rows, features]`.
            place: the place of each row's member.
        """

    @property
    @abstractmethod
    def terms_per_row(self) -> int:
        """How many terms a row has, for all targets."""

    def join(self, step: Step, steps: Sequence[Step], readers: Mapping[str, int]) -> Joined | None:
        """Return the step with rounded answers if none of the steps reads them, so that they are an output alone."""
        return None if any(step.output in each.inputs for each in steps) else Rounded(step)

    def compute_rounded(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        """Return float64 numbers that are those of `compute_on_cpu` once they are rounded to float32."""
        function: str = self.function  # type: ignore[attr-defined]
        if 1 <= inputs[0].shape[0] <= FEW:
            return self._row_by_row(*inputs)
        if function not in NEVER_FALLING:
            return self.compute_on_cpu(parameters, *inputs)
        x, place, terms = inputs[0], self.places(inputs[1]), functools.partial(self.terms, parameters)
        return rounded_sums(x, place, self.of_members, terms, FUNCTIONS[function], self.terms_per_row)

    def tables(self, place: torch.Tensor, names: Sequence[str]) -> list[torch.Tensor]:
        """Return tables of members' plain torch, `[rows, …]` float64, of the member at each row's place.

        The tables of members whose rows come for the first time are made now.
        """
        made, tables = self.__dict__.setdefault("_tables", (np.zeros(self.members, dtype=bool), {}))
        for each in np.unique(place[~made[place]]):
            for name, table in self.own(each)[1].items():
                if name not in tables:
                    tables[name] = np.empty((self.members, *table.shape), dtype=table.numpy().dtype)
                tables[name][each] = table
            made[each] = True
        return [torch.from_numpy(tables[name]).index_select(0, place).double() for name in names]


@dataclass(frozen=True)
class Rounded:
    """A step of sums by members whose answers are rounded to float32."""

    step: Step

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the step."""
        return (self.step,)

    def run(self, parameters: Mapping[str, Parameters], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the answers."""
        operation, output = self.step.operation, self.step.output
        assert isinstance(operation, SumsByMembers)
        inputs = (values[name] for name in self.step.inputs)
        return {output: operation.compute_rounded(parameters[output], *inputs)}
