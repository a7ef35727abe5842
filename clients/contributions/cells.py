"""The cells of a user's rows, beside their contributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from triton_regressors.contribution_game import Game
from triton_regressors.tables import frames

_DECODED = np.frompyfunc(lambda cell: cell.decode() if isinstance(cell, bytes) else cell, 1, 1)
_GIVEN = np.frompyfunc(lambda cell: np.nan if cell is None else cell, 1, 1)


def cells_of(
    X: Any, game: Game, names: Mapping[str, tuple[str, ...]], dates: Mapping[str, tuple[int, ...]]
) -> np.ndarray:
    """Return the cells of the table's columns, an object array `[rows, columns]`.

    A missing one of a column of strings or dates is "" or NaN. A cell that the rows do not have, because the model does
    not read its column, is None.

    Args:
        X: rows in a form that `Client.infer` takes, tables as DataFrames.
        game: what says which columns there are.
        names: each input's names of its columns, () without.
        dates: the places of each input's columns of dates.
    """
    if not isinstance(X, Mapping):
        if frames.has_names(X) and any(names.values()):
            return _of_table(X, game.columns)
        X = dict.fromkeys(game.places, X)  # an array is for a model's only input
    rows = len(next(iter(X.values())))
    cells = np.full((rows, len(game.columns)), None, dtype=object)
    for tensor, places in game.places.items():
        if tensor not in X:
            continue
        part = X[tensor]
        if frames.has_names(part) and names.get(tensor):
            part = _of_table(part, names[tensor])
        given = np.asarray(part)
        found = np.array(part, dtype=object)
        for place in dates.get(tensor, ()) if given.dtype.kind == "i" else ():
            found[:, place] = _datetimes(given[:, place])
        if given.dtype.kind in "OS":
            found = np.asarray(_DECODED(found))
        cells[:, list(places)] = _GIVEN(found)
    return cells


def _datetimes(nanoseconds: np.ndarray) -> np.ndarray:
    """Return Python's datetimes, which hold microseconds; None for a missing one."""
    return nanoseconds.astype("datetime64[ns]").astype("datetime64[us]").astype(object)


def _of_table(table: Any, columns: tuple[str, ...]) -> np.ndarray:
    """Return the named columns of a DataFrame; None for each cell of a column that it lacks."""
    there = [place for place, name in enumerate(columns) if name in table.columns]
    found = table[[columns[place] for place in there]].to_numpy(dtype=object)
    cells = np.full((len(table), len(columns)), None, dtype=object)
    cells[:, there] = _GIVEN(found)
    return cells
