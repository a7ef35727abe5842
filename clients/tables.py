"""What of a pandas DataFrame goes into a request. pandas is not imported before a user has done so."""

import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from triton_regressors.clients.errors import InvalidRequest


def is_table(rows: object) -> TypeGuard[Any]:
    """Whether they are a DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def is_missing(value: object) -> bool:
    """Whether a value is pandas' own for one that is missing."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def take(table: Any, columns: Sequence[str], owner: str = "") -> Any:
    """Return columns of a table by name, in this order.

    Raises:
        InvalidRequest: columns are missing, with their names.
    """
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InvalidRequest(
            f"The table lacks {in_words(missing)}{owner}; it has {', '.join(map(str, table.columns))}."
        )
    twice = [name for name in columns if (table.columns == name).sum() > 1]
    if twice:
        raise InvalidRequest(f"The table has {in_words(twice)}{owner} more than once.")
    return table[list(columns)]


def numbers(table: Any, owner: str = "") -> np.ndarray:
    """Return a table of numbers as an array; a missing one is NaN, and categories that are numbers are these.

    Raises:
        InvalidRequest: columns hold something else, with their names.
    """
    import pandas as pd

    table = table.infer_objects()
    categories = [
        name
        for name, dtype in table.dtypes.items()
        if isinstance(dtype, pd.CategoricalDtype) and dtype.categories.dtype.kind in "fiub"
    ]
    table = table.astype(dict.fromkeys(categories, np.float64)) if categories else table
    words = [
        name
        for name, dtype, column in zip(table.columns, table.dtypes, range(table.shape[1]), strict=True)
        # A column without a single value may be of any dtype: it is NaN throughout.
        if dtype.kind not in "fiub" and not table.iloc[:, column].isna().all()
    ]
    if words:
        column = table.iloc[:, list(table.columns).index(words[0])]
        bad = np.flatnonzero(pd.to_numeric(column, errors="coerce").isna() & column.notna())
        example = f", for example {column.iloc[bad[0]]!r} in row {bad[0]}" if len(bad) else ""
        verb = "are" if len(words) > 1 else "is"
        raise InvalidRequest(f"The table's {in_words(words)}{owner} {verb} not numeric{example}.")
    return np.asarray(table.to_numpy(dtype=np.float64, na_value=np.nan))


def integers(table: Any) -> np.ndarray:
    """Return a table of whole numbers as an array that holds them exactly, int64 if their dtypes are integers."""
    table = table.infer_objects()
    if all(dtype.kind in "iub" for dtype in table.dtypes) and not table.isna().to_numpy().any():
        return np.asarray(table.to_numpy(dtype=np.int64 if table.max(axis=None) < 2**63 else np.uint64))
    return numbers(table)


def in_words(names: Sequence[Any]) -> str:
    """Return names of columns, the first of them at least, for an error."""
    shown = ", ".join(repr(str(name)) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"
