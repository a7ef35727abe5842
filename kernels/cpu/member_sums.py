"""Sums of rows of several members of a fleet, each with the bits that its member's own sum has.

A matrix library adds up a single map, and may do so in another order than code that computes all rows at once. Where
an answer is rounded to float32 and nothing else reads it, that matters only to answers next to the middle of two
float32 numbers. These rows, and all rows whose answers something else reads, are computed member by member. So are
batches of many rows of few members, for which it takes less time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from .tiles import ALIGNED, TILE_ELEMENTS, multiply, product, way

SAFETY = 4.0
"""A bound on the difference of two sums is this many times the usual one: γₙ = n · 2⁻⁵³ of the terms' sizes."""

FACTORS = 8
"""The most roundings that a term has, beside those of the sum."""

FUNCTION_ERROR = 2.0**-48
"""A bound on the relative difference of a function of one number that is computed in two ways."""

TERMS_OF_A_MEMBER = 2**14
"""A member's own operation takes as long as so many terms of sums of all rows, or longer."""

MOST_TILES = 8
"""The most of the smallest tiles of a member; with more, its product is made in larger ones."""

MOST_NUMBERS = 2**20
"""The most numbers of tiles and their weights that are brought together at a time."""

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


def products(x: torch.Tensor, weights: np.ndarray, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
    """Return rows times the weights of their members, `[rows, columns]`, with the bits of `product` for one member.

    Args:
        x: `[rows, features]`, of any dtype; the rows of one member come after those of another.
        weights: float64 `[all members, features, columns]`.
        places: the places of the members of the rows.
        counts: how many rows each of these members has.
    """
    _, features, columns = weights.shape
    direct, sizes = way(features, columns)
    size, number = sizes[-1], np.array(counts)
    tiles = -(-number // size)  # of each member; the last one may be filled in part
    if len(counts) == 1 and tiles[0] > MOST_TILES:
        return product(x, torch.from_numpy(weights[[*places]])[0])
    if len(counts) > 1 and (tiles.max() > MOST_TILES or tiles.sum() * (size + columns) * features > MOST_NUMBERS):
        half = len(counts) // 2
        halves = (places[:half], counts[:half]), (places[half:], counts[half:])
        rows = torch.split(x, [sum(each) for _, each in halves])
        return torch.cat([products(some, weights, *each) for some, each in zip(rows, halves, strict=True)])
    first = (tiles.cumsum() - tiles) * size - (number.cumsum() - number)
    at = torch.from_numpy(np.arange(len(x)) + first.repeat(number))  # the place of each row in all tiles
    tile, row = at // size, at % size
    own = torch.from_numpy(weights[np.array(places).repeat(tiles)])
    blocks, answers = (_blocks(len(own), size, width) for width in (features, columns))
    blocks[tile, row] = x.double()
    if columns == 1:
        for block, weight, answer in zip(blocks, own[:, :, 0], answers[:, :, 0], strict=True):
            torch.mv(block, weight, out=answer)
    else:
        for block, weight, answer in zip(blocks, own, answers, strict=True):
            multiply(block, weight, answer, direct)
    return answers[tile, row]


def _blocks(count: int, rows: int, columns: int) -> torch.Tensor:
    """Return zeros, float64 `[count, rows, columns]`; each block begins at a vector boundary."""
    whole = ALIGNED // 8
    numbers = torch.zeros(count, -(-rows * columns // whole) * whole, dtype=torch.float64)
    return numbers[:, : rows * columns].view(count, rows, columns)
