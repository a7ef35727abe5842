"""Sums of rows of several members of a fleet, each with the bits that its member's own sum has.

A matrix library adds up a single map, and may do so in another order than code that computes all rows at once. Where
an answer is rounded to float32 and nothing else reads it, that matters only to answers next to the middle of two
float32 numbers. These rows, and all rows whose answers something else reads, are computed member by member. So are
batches of many rows of few members, for which it takes less time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from .tiles import TILE_ELEMENTS

SAFETY = 4.0
"""A bound on the difference of two sums is this many times the usual one: γₙ = n · 2⁻⁵³ of the terms' sizes."""

FACTORS = 8
"""The most roundings that a term has, beside those of the sum."""

FUNCTION_ERROR = 2.0**-48
"""A bound on the relative difference of a function of one number that is computed in two ways."""

TERMS_OF_A_MEMBER = 2**14
"""A member's own operation takes as long as so many terms of sums of all rows, or longer."""

OfMembers = Callable[[torch.Tensor, Sequence[int], Sequence[int]], torch.Tensor]
"""Returns the answers `[rows, width]` of rows that stand member by member, from the places of the members and their
numbers of rows."""

Terms = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Returns new tensors of terms, float64 `[rows, targets, terms]`, from float64 rows and the places of their members."""


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
    terms: Terms,
    function: Callable[[torch.Tensor], torch.Tensor],
    terms_per_row: int,
) -> torch.Tensor:
    """Return functions of sums of rows, float64 `[rows, targets]`, whose float32 roundings are the members'.

    Args:
        x: the rows, `[rows, features]`.
        place: the place of each row's member.
        of_members: computes rows whose rounding is in doubt, see `in_order_of_members`.
        terms: computes what is added up, for all rows.
        function: the function of each sum, which never falls.
        terms_per_row: how many terms a row has, for all targets.
    """
    members = len(x) * terms_per_row // TERMS_OF_A_MEMBER
    if len(x) <= 1 or (members and int(place.bincount().count_nonzero()) <= members):
        return in_order_of_members(x, place, of_members)
    parts = []
    tile = max(TILE_ELEMENTS // terms_per_row, 1)
    for some, places in zip(torch.split(x, tile), torch.split(place, tile), strict=True):
        found = terms(some.double(), places)
        total = functools.reduce(torch.add, [each.sum(2) for each in found])
        size = functools.reduce(torch.add, [each.abs_().sum(2) for each in found])
        error = size * (SAFETY * (sum(each.shape[2] for each in found) + FACTORS) * 2.0**-53)
        answer, least, most = function(total), function(total - error), function(total + error)
        least = (least - FUNCTION_ERROR * least.abs()).float()
        most = (most + FUNCTION_ERROR * most.abs()).float()
        doubtful = ((least != most) | ((most == 0) & (size > 0))).any(1)  # zeros of both signs are equal
        if doubtful.any():
            answer[doubtful] = in_order_of_members(some[doubtful], places[doubtful], of_members)
        parts.append(answer)
    return torch.cat(parts)
