"""The law by which the rows of a load name the models of a fleet."""

from __future__ import annotations

import numpy as np

LAWS = ("uniform", "zipf")
"""`uniform` names all models equally often, and `zipf` the model of rank k in proportion to 1/k."""

ROWS = 1 << 14
"""The rows that are drawn; requests take them in turn."""


def draw_rows(numbers: np.ndarray, law: str, seed: int = 0) -> np.ndarray:
    """Return the places of `ROWS` rows, int64: models are drawn by a law, their ranks and each one's rows at random.

    Args:
        numbers: the number of each row's model, `[rows]`.
        law: one of `LAWS`.
        seed: of the drawing.
    """
    rng = np.random.default_rng(seed)
    _, counts = np.unique(numbers, return_counts=True)
    weights = np.ones(len(counts)) if law == "uniform" else 1 / (1.0 + rng.permutation(len(counts)))
    drawn = rng.choice(len(counts), ROWS, p=weights / weights.sum())
    first = np.cumsum(counts) - counts
    places: np.ndarray = np.argsort(numbers, kind="stable")[first[drawn] + rng.integers(counts[drawn])]
    return places
