"""Sums of rows of several members of a fleet, each with the bits that its member's own sum has.

A matrix library adds up a single map, and may do so in another order than code that computes all rows at once. Where
an answer is rounded to float32 and nothing else reads it, that matters only to answers next to the middle of two
float32 numbers. These rows, and all rows whose answers something else reads, are computed member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import torch

from .tiles import TILE_ELEMENTS

SAFETY = 4.0
"""A bound on the difference of two sums is this many times the usual one: γₙ = n · 2⁻⁵³ of the summands' sizes."""


Sums = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def member_sums(
    x: torch.Tensor,
    place: torch.Tensor,
    targets: int,
    alone: Callable[[int, torch.Tensor], torch.Tensor],
    sums: Sums | None,
    summands: int,
    elements_per_row: int,
) -> torch.Tensor:
    """Return the sums of rows `[rows, features]`, float64 `[rows, targets]`.

    Args:
        x: the rows.
        place: the place of each row's member.
        targets: the sums of a row.
        alone: returns what the operation of the member at a place makes of rows.
        sums: returns sums of float64 rows in any order, and the sums of the summands' sizes, from rows and places; None
            if the answers are not rounded to float32.
        summands: how many numbers are added up, or multiplied, one after the other.
        elements_per_row: how many intermediate numbers a row of `sums` needs.
    """
    if len(x) == 1:
        return alone(int(place), x)
    answer = torch.empty(len(x), targets, dtype=torch.float64)
    doubtful = torch.ones(len(x), dtype=torch.bool)
    if sums is not None:
        tile = max(TILE_ELEMENTS // elements_per_row, 1)
        for start in range(0, len(x), tile):
            part = slice(start, start + tile)
            total, size = sums(x[part].double(), place[part])
            answer[part] = total
            error = size * (SAFETY * summands * 2.0**-53)
            doubtful[part] = ((total - error).float() != (total + error).float()).any(1)
    rows = doubtful.nonzero()[:, 0]
    order = rows[place[rows].argsort(stable=True)]
    members, counts = torch.unique_consecutive(place[order], return_counts=True)
    for member, (start, end) in zip(members.tolist(), pairwise([0, *counts.cumsum(0).tolist()]), strict=True):
        some = order[start:end]
        answer[some] = alone(member, x[some])
    return answer


class Stack(Protocol):
    """A stacked operation whose members' own operations compute their rows."""

    def own(self, place: int) -> tuple[Any, Mapping[str, torch.Tensor]]:
        """Return the operation of the member at a place, and the tensors that its plain torch reads."""

    def places(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the place of each row's member."""

    def output_width(self, *widths: int) -> int:
        """Return the width of the output."""


def by_members(
    stack: Stack,
    inputs: Sequence[torch.Tensor],
    sums: Sums | None = None,
    summands: int = 0,
    elements_per_row: int = 1,
    *,
    reference: bool = False,
) -> torch.Tensor:
    """Return what the operations of the members of a batch make of their rows: on a CPU, or by their references.

    See `member_sums` for `sums` and the numbers that go with it.
    """

    def alone(place: int, rows: torch.Tensor) -> torch.Tensor:
        member, tables = stack.own(place)
        found: torch.Tensor = (member.reference if reference else member.compute_on_cpu)(tables, rows)
        return found

    x, place = inputs[0], stack.places(inputs[1])
    return member_sums(x, place, stack.output_width(), alone, sums, summands, elements_per_row)
