"""The columns of a pandas DataFrame that go into a request, with messages that name the columns that do not fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.tables import NotNumber, beside, column_numbers, in_words, not_numbers


def take(table: Any, columns: Sequence[str], owner: str = "") -> Any:
    """Return columns of a table by name, in this order.

    Raises:
        InvalidRequest: columns are missing, with their names.
    """
    check_columns(table, [(columns, owner)])
    return table[list(columns)]


def check_columns(table: Any, groups: Sequence[tuple[Sequence[str], str]]) -> None:
    """Raise InvalidRequest if a table lacks columns of some groups, naming all of them, or has one twice.

    Args:
        table: a DataFrame.
        groups: the names of each group, and the words that follow them in a message: " of input 'X'".
    """
    have, wanted = set(table.columns), [name for columns, _ in groups for name in columns]
    lacking = [([name for name in columns if name not in have], owner) for columns, owner in groups]
    missing = [name for names, _ in lacking for name in names]
    if missing:
        which = " and ".join(f"{in_words(names)}{owner}" for names, owner in lacking if names)
        raise InvalidRequest(f"The table lacks {which}; {beside(missing, table.columns, wanted)}.")
    if table.columns.is_unique:
        return
    for columns, owner in groups:
        twice = [name for name in columns if (table.columns == name).sum() > 1]
        if twice:
            raise InvalidRequest(f"The table has {in_words(twice)}{owner} more than once.")


def numbers(table: Any, owner: str = "", *, whole: bool = False) -> np.ndarray:
    """Return a table of numbers as an array of float64; see `column_numbers` for what a number is.

    With `whole` the array holds whole numbers exactly, int64 or uint64, if all columns are of integers.

    Raises:
        InvalidRequest: columns hold something else, with their names.
    """
    found, wrong = [], dict[Any, NotNumber]()
    dtypes = set(table.dtypes)
    if len(dtypes) == 1 and not whole and isinstance(dtype := next(iter(dtypes)), np.dtype) and dtype.kind in "fiub":
        return np.asarray(table.to_numpy(dtype=np.float64))
    for place, name in enumerate(table.columns):
        try:
            found.append(column_numbers(table.iloc[:, place]))
        except NotNumber as error:
            wrong.setdefault(name, error)
    if wrong:
        raise InvalidRequest(not_numbers(wrong, owner))
    exact = whole and bool(found) and all(column.dtype.kind in "iub" for column in found)
    large = exact and any(column.dtype.kind == "u" and (column >= 2**63).any() for column in found)
    matrix = np.empty(table.shape, dtype=np.uint64 if large else np.int64 if exact else np.float64)
    for place, column in enumerate(found):
        matrix[:, place] = column
    return matrix
