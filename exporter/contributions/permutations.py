"""Shapley values from some orders of the players, where there are too many coalitions.

In an order, a player adds what the worth of the players before it rises by when it joins them. The Shapley value is the
mean of this over all n! orders (Shapley, A value for n-person games, 1953), and the mean over orders drawn at random
estimates it (Castro, Gómez and Tejada, Polynomial calculation of the Shapley value based on sampling, 2009). Each order
comes with its reverse, since the errors of the two often cancel (Mitchell, Cooper, Frank and Holmes, Sampling
permutations for Shapley value estimation, 2022). Whatever the order, what all players add is the worth of all of them
less that of nobody, so that estimates add up to the margin as exactly as Shapley values do.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.errors import ExportError

COALITIONS = 2**12
"""The coalitions whose worth is computed by default: all of up to 12 players, or those of as many orders."""

FEWEST = 4
"""The fewest orders: with two pairs there is a standard error."""

LEAST = 10
"""The fewest orders by default, however many players there are."""


def check_permutations(number: int | None) -> None:
    """Raise `ExportError` unless a user may ask for this number of orders."""
    if number is not None and (type(number) is not int or number < FEWEST or number % 2):
        raise ExportError(f"permutations must be an even whole number of at least {FEWEST}, not {number!r}.")


def number_of_orders(players: int, asked: int | None) -> int:
    """Return how many orders of the players are drawn; 0 if all coalitions are no more than those of the orders.

    `asked` is the number that the user wants; None: as many as have `COALITIONS` coalitions.
    """
    each = max(players - 1, 1)  # coalitions of an order, besides nobody and everybody
    number = max((COALITIONS - 2) // each // 2 * 2, LEAST) if asked is None else asked
    most = COALITIONS if asked is None else 2 + number * each
    return 0 if 2**players <= most else number


def draw_orders(players: int, number: int) -> np.ndarray:
    """Return orders of the players, int64 `[number, players]`: each even one is drawn, and the next is its reverse.

    They are always the same, so that two exports of a model have the same bits.
    """
    drawn = np.random.default_rng(0).permuted(np.tile(np.arange(players), (number // 2, 1)), axis=1)
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(number, players)


def joins(orders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the coalitions that orders go through, and where each player joins.

    The coalitions are uint8 `[coalitions, players]`, 1 for a player that takes part, each of them once and nobody
    first. The numbers of the coalitions before and after each player joins are int32 `[orders, players]`.
    """
    number, players = orders.shape
    place = np.argsort(orders, axis=1)  # of each player in each order
    through = place[:, None] < np.arange(players + 1)[:, None]  # [orders, players + 1, players]
    coalitions, at = np.unique(through.reshape(-1, players).astype(np.uint8), axis=0, return_inverse=True)
    at = at.reshape(number, players + 1).astype(np.int32)
    before, after = (np.take_along_axis(at, place + joined, axis=1) for joined in (0, 1))
    return coalitions, before, after
