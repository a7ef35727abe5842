"""Reading rows to predict from .npy, .csv and .parquet files."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from triton_regressors.clients.calls import float32_rows
from triton_regressors.clients.errors import InvalidRequest, RowsError

SUFFIXES = (".npy", ".csv", ".parquet")


def read_rows(path: Path, feature_names: Sequence[str] | None = None) -> npt.NDArray[np.float32]:
    """The rows of a file, float32 [rows, n_features].

    Args:
        path: .npy (one 2-D array), .csv (commas; the first line is a header if any of its cells is not a number) or
            .parquet. Empty cells are NaN.
        feature_names: the columns to take, in this order, from a file whose columns have names; others are left out. A
            file without names must have as many columns.

    Raises:
        RowsError: the file cannot be read, is of another kind, has no rows, or holds what is not a number.
    """
    path = Path(path)
    reader = {".npy": _read_npy, ".csv": _read_csv, ".parquet": _read_parquet}.get(path.suffix.lower())
    if reader is None:
        raise RowsError(f"Cannot read rows from {path}: the suffix must be {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise RowsError(f"Cannot read rows from {path}: there is no such file.")
    values = reader(path)
    if isinstance(values, pd.DataFrame):
        values = _numbers(path, _chosen(path, values, feature_names))
    if values.ndim == 2 and not values.shape[0]:
        raise RowsError(f"{path} has no rows.")
    if feature_names is not None and (values.ndim != 2 or values.shape[1] != len(feature_names)):
        raise RowsError(f"{path} has shape {values.shape}; {len(feature_names)} features are expected.")
    try:
        return float32_rows(values)
    except InvalidRequest as error:
        raise RowsError(f"Cannot read rows from {path}: {error}") from None


def feature_names(entry: Path, version: str = "") -> list[str] | None:
    """The names of the columns that an entry was trained with, in order.

    Args:
        entry: its directory, which need not exist.
        version: which version; "": the newest there.

    Returns:
        None if the entry is not at hand, or was trained on columns without names.

    Raises:
        RowsError: its plan.json cannot be read.
    """
    if not version:
        versions = [int(path.parent.name) for path in entry.glob("*/plan.json") if path.parent.name.isdecimal()]
        version = str(max(versions, default=""))
    plan = entry / version / "plan.json"
    if not version or not plan.is_file():
        return None
    try:
        names = json.loads(plan.read_text(encoding="utf-8")).get("provenance", {}).get("feature_names", [])
    except (OSError, ValueError, AttributeError) as error:
        raise RowsError(f"{plan} cannot be read: {error}.") from None
    return [str(name) for name in names] or None


def _read_npy(path: Path) -> npt.NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RowsError(f"{path} is not a .npy file of numbers: {error}.") from None
    if not isinstance(array, np.ndarray):
        raise RowsError(f"{path} is an archive of arrays; one .npy array is expected.")
    return array


def _read_csv(path: Path) -> Any:
    options: dict[str, Any] = {"skipinitialspace": True, "encoding": "utf-8-sig", "index_col": False}
    try:
        first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        has_header = any(not _is_number(cell) for cell in first.iloc[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # cells that the header has no column for
            return pd.read_csv(path, header=0 if has_header else None, low_memory=False, **options)
    except pd.errors.ParserWarning:
        raise RowsError(f"{path} has lines with more cells than its first.") from None
    except pd.errors.EmptyDataError:
        raise RowsError(f"{path} has no rows.") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise RowsError(f"{path} is not a .csv file: {_one_line(error)}.") from None


def _read_parquet(path: Path) -> Any:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise RowsError(f"{path} is not a .parquet file: {_one_line(error)}.") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _chosen(path: Path, table: Any, feature_names: Sequence[str] | None) -> Any:
    """The columns named, in that order; all of them where either side has no names."""
    if feature_names is None or not all(isinstance(name, str) for name in table.columns):
        return table
    missing = [name for name in feature_names if name not in table.columns]
    if missing:
        raise RowsError(f"{path} lacks {_columns(missing)}; it has {', '.join(map(str, table.columns))}.")
    return table[list(feature_names)]


def _numbers(path: Path, table: Any) -> npt.NDArray[Any]:
    words = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    words += [name for name in table.columns if pd.api.types.is_complex_dtype(table[name])]
    # A column without a single value is read as objects: it is NaN throughout.
    words = [name for name in words if not table[name].isna().all()]
    if words:
        column = table[words[0]]
        bad = np.flatnonzero(pd.to_numeric(column, errors="coerce").isna() & column.notna())
        example = f", for example {column.iloc[bad[0]]!r} in row {bad[0]}" if len(bad) else ""
        raise RowsError(f"{path}: {_columns(words)} {'are' if len(words) > 1 else 'is'} not numeric{example}.")
    return np.asarray(table.to_numpy(dtype=np.float64, na_value=np.nan))


def _columns(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"
