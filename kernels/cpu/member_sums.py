"""Sums of rows of several members of a fleet, each with the bits that its member's own sum has.

A matrix library adds up a single map, and may do so in another order than code that computes all rows at once. Where
an answer is rounded to float32 and nothing else reads it, that matters only to answers next to the middle of two
float32 numbers. These rows, and all rows whose answers something else reads, are computed member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .tiles import TILE_ELEMENTS

SAFETY = 4.0
"""A bound on the difference of two sums is this many times the usual one: γₙ = n · 2⁻⁵³ of the summands' sizes."""

OfMembers = Callable[[torch.Tensor, Sequence[int], Sequence[int]], torch.Tensor]
"""Returns the answers `[rows, width]` of rows that stand member by member, from the places of the members and their
numbers of rows."""

Sums = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Returns the sums of float64 rows in any order, and the sums of the summands' sizes, from rows and their places."""


def in_order_of_members(x: torch.Tensor, place: torch.Tensor, of_members: OfMembers) -> torch.Tensor:
    """Return the answers of rows `[rows, features]`, which `of_members` computes member by member.

    Args:
        x: the rows.
        place: the place of each row's member.
        of_members: computes rows in the order of their members.
    """
    rows = x.shape[0]
    if rows <= 1:
        return of_members(x, [int(place)] if rows else [0], [rows])
    order = place.argsort(stable=True)
    places, counts = torch.unique_consecutive(place[order], return_counts=True)
    found = of_members(x.index_select(0, order), places.tolist(), counts.tolist())
    return torch.empty_like(found).index_copy_(0, order, found)


def rounded_sums(
    x: torch.Tensor,
    place: torch.Tensor,
    of_members: OfMembers,
    sums: Sums,
    summands: int,
    elements_per_row: int,
) -> torch.Tensor:
    """Return the sums of rows `[rows, features]`, float64 `[rows, targets]`, whose float32 roundings are the members'.

    Args:
        x: the rows.
        place: the place of each row's member.
        of_members: computes rows whose rounding is in doubt, see `in_order_of_members`.
        sums: computes all rows.
        summands: how many numbers are added up, or multiplied, one after the other.
        elements_per_row: how many intermediate numbers a row of `sums` needs.
    """
    if len(x) <= 1:
        return in_order_of_members(x, place, of_members)
    parts = []
    tile = max(TILE_ELEMENTS // elements_per_row, 1)
    for some, places in zip(torch.split(x, tile), torch.split(place, tile), strict=True):
        answer, size = sums(some.double(), places)
        error = size * (SAFETY * summands * 2.0**-53)
        doubtful = ((answer - error).float() != (answer + error).float()).any(1)
        if doubtful.any():
            answer[doubtful] = in_order_of_members(some[doubtful], places[doubtful], of_members)
        parts.append(answer)
    return torch.cat(parts)
