"""The columns of users' tables: chosen by name, and refused where they are missing, doubled or too few."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from triton_regressors.tables.errors import TableError

SHOWN = 5
"""The number of column names in an error."""


def take_columns(table: Any, columns: Sequence[Any], called: str = "The table") -> Any:
    """Return columns of a DataFrame by name, in this order; see `check_columns` for the rest."""
    check_columns(table.columns, columns, called)
    return table[list(columns)]


def check_columns(present: Sequence[Any], columns: Sequence[Any], called: str = "The table") -> None:
    """Raise `TableError` unless a table, whose columns `present` names, has all of `columns`, and each of them once."""
    have = set(present)
    missing = [name for name in columns if name not in have]
    if missing:
        raise TableError(f"{called} lacks {in_words(missing)}; {beside(missing, present, columns)}.")
    names = list(present)
    twice = [name for name in columns if names.count(name) > 1] if len(have) < len(names) else []
    if twice:
        raise TableError(f"{called} has {in_words(twice)} more than once.")


def check_shape(shape: Sequence[int], called: str, width: int | None = None) -> None:
    """Raise `TableError` unless a shape is that of a matrix with at least one row, and of `width` columns if given."""
    shape = tuple(shape)
    if len(shape) == 2 and not shape[0]:
        raise TableError(f"{called} has no rows (shape {shape}); at least one is needed.")
    if len(shape) != 2 or (width is not None and shape[1] != width):
        hint = "; .reshape(1, -1) makes one row of it" if len(shape) == 1 else ""
        needed = "n_features" if width is None else width
        raise TableError(f"{called} has shape {shape}; it must be two-dimensional, [rows, {needed}]{hint}.")


def in_words(names: Sequence[Any]) -> str:
    """Return names of columns, or numbers of those that have none, for an error; only the first ones of many."""
    shown = ", ".join(map(quoted, names[:SHOWN]))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def quoted(name: object) -> str:
    """Return a column's name in quotation marks; the number of one that has none as it is."""
    return repr(str(name)) if isinstance(name, str) else str(name)


def beside(missing: Sequence[Any], columns: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Return words on the unused columns of a table that lacks some, and on the closest names among them.

    Args:
        missing: the missing columns.
        columns: the present columns.
        wanted: all requested columns.
    """
    others = [str(name) for name in columns if name not in set(wanted)]
    if not others:
        return "it has no other column in their place" if len(missing) > 1 else "it has no other column in its place"
    lower = {name.lower().replace(" ", "_"): name for name in reversed(others)}
    meant = []
    for name in map(str, missing[:SHOWN]):
        closest = difflib.get_close_matches(name.lower().replace(" ", "_"), lower, n=1)
        meant += [f"'{lower[closest[0]]}' may be '{name}'"] if closest else []
    return f"besides the model's columns it has {in_words(others)}{': ' * bool(meant)}{', '.join(meant)}"
