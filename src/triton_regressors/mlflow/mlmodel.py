"""The description of a model saved by MLflow: its file `MLmodel`, its signature and its input example.

All of it is as untrusted as the model itself: nothing is run, no path leads out of the model's folder, and the types
that it lists as trusted (`skops_trusted_types`) are not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from triton_regressors.errors import RegistryError
from triton_regressors.tables.columns import take_columns
from triton_regressors.tables.errors import TableError

FLAVORS = {"sklearn": "pickled_model", "xgboost": "data", "lightgbm": "data", "catboost": "data"}
"""Flavor → the key under which it names its file; `pickled_model` is the key of .skops files too."""
SUFFIXES = {".lgb": ".txt", ".cb": ".cbm", ".xgb": ".ubj"}
"""MLflow's suffixes of boosting libraries' files → the libraries' own suffixes."""
DTYPES = {"integer": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "bool"}
"""MLflow's types of columns of numbers → pandas'. Of the other types only `DATE` is converted."""

DATE = "datetime"
"""MLflow's type of columns of dates, which have no time zone."""


@dataclass(frozen=True)
class Column:
    """A column of a signature: its name, MLflow's name of its type, and whether every table must have it."""

    name: str
    type: str
    required: bool = True


@dataclass(frozen=True)
class MLmodel:
    """A saved model: its folder, flavor and file, the run it came from, its columns, the name of its example's file.

    `columns` is None if the signature has no names or is missing, and `example` is None if there is no example.
    """

    folder: Path
    flavor: str
    file: Path
    run: str | None
    columns: tuple[Column, ...] | None
    example: str | None

    @property
    def names(self) -> list[str] | None:
        """The names of the columns in the signature's order, None if it has none."""
        return None if self.columns is None else [column.name for column in self.columns]

    @property
    def optional(self) -> list[str]:
        """The names of the columns that the signature lets a table leave out."""
        return [column.name for column in self.columns or () if not column.required]

    def table(self) -> pd.DataFrame | None:
        """Return the rows of the input example with the signature's names, order and types, or None.

        A column of whole numbers or of booleans with a missing value is float64, as in pandas. An optional column that
        the example lacks is missing in every row: NaN, or None if it holds no numbers. A sparse matrix, several arrays,
        or an object that is a single row or something else have no rows.

        Raises:
            RegistryError: the example cannot be read, does not have the signature's columns, or not their types.
        """
        if self.example is None:
            return None
        written = _json(_inside(self.folder, self.example))
        if isinstance(written, Mapping) and "inputs" in written:  # beside parameters; MLflow 2 wrote arrays so
            written = written["inputs"]
        rows = (
            written.get("data") if isinstance(written, Mapping) and written.keys() <= {"columns", "data"} else written
        )
        if not isinstance(rows, list) or not rows or not all(isinstance(row, list | dict) for row in rows):
            return None
        try:
            table = pd.DataFrame(rows, columns=written.get("columns") if isinstance(written, Mapping) else None)
            return table if self.columns is None else _as_signed(table, self.columns)
        except TableError as error:
            raise RegistryError(str(error)) from None
        except (TypeError, ValueError, ArithmeticError) as error:
            raise RegistryError(f"The input example is not what the signature says: {_words(error)}.") from None


def _as_signed(table: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return a table's columns in the order and types of a signature; those without names get its names."""
    names = [column.name for column in columns]
    if not any(isinstance(name, str) for name in table.columns) and table.shape[1] == len(names):
        table = table.set_axis(names, axis=1)
    for column in columns:
        if not column.required and column.name not in table.columns:
            table[column.name] = math.nan if column.type in DTYPES else None
    table = take_columns(table, names, "The input example")
    for name, kind in ((column.name, column.type) for column in columns):
        if kind == DATE:
            table[name] = pd.to_datetime(table[name], format="ISO8601")
        dtype = DTYPES.get(kind)
        if dtype is None:
            continue
        values, whole = table[name], not dtype.startswith("float")
        if whole and values.isna().any():
            dtype = "float64"
        table[name] = values.astype(dtype)
        if whole and not (values.isna() | (table[name] == values)).all():
            raise ValueError(f"column {name} holds a value that is not of type {kind}")
    return table


def read_mlmodel(folder: Path) -> MLmodel:
    """Return the content of the file `MLmodel` in a folder.

    The file of the model is renamed if MLflow's suffix differs from the library's.

    Raises:
        RegistryError: there is no such file, it is damaged, or it has none of the `FLAVORS`.
    """
    import yaml  # the extra brings it

    path = folder / "MLmodel"
    try:
        whole = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RegistryError("It is not a model that MLflow saved: it has no file MLmodel.") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RegistryError(f"Its file MLmodel cannot be read: {_words(error)}.") from None
    flavors = whole.get("flavors") if isinstance(whole, dict) else None
    if not isinstance(flavors, dict):
        raise RegistryError("Its file MLmodel names no flavors.")
    flavor = next((name for name in FLAVORS if isinstance(flavors.get(name), dict)), None)
    if flavor is None:
        raise RegistryError(
            f"It has the flavors {', '.join(map(str, flavors)) or 'of none'}; supported: {', '.join(FLAVORS)}."
        )
    options = flavors[flavor]
    file = _inside(folder, options.get(FLAVORS[flavor]))
    suffix = ".json" if options.get("save_format") == "json" else SUFFIXES.get(file.suffix, file.suffix)
    if suffix != file.suffix:
        file = file.rename(file.with_suffix(suffix))
    run, told = whole.get("run_id"), whole.get("saved_input_example_info")
    example = told.get("artifact_path") if isinstance(told, dict) else None
    return MLmodel(
        folder,
        flavor,
        file,
        run if isinstance(run, str) else None,
        _columns(whole.get("signature")),
        example if isinstance(example, str) else None,
    )


def _inside(folder: Path, name: Any) -> Path:
    """Return the file of this name in a folder; links may not leave the folder either."""
    if not isinstance(name, str) or not name:
        raise RegistryError("Its file MLmodel does not name the model's file.")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RegistryError(f"Its file MLmodel names {name}, which is not in its folder.")
    if not path.is_file():
        raise RegistryError(f"Its file MLmodel names {name}, which is not there.")
    return path


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RegistryError(f"Its file {path.name} cannot be read: {_words(error)}.") from None


def _columns(signature: Any) -> tuple[Column, ...] | None:
    """Return the columns of a signature's inputs, which it holds as a string of JSON; None if they have no names."""
    written = signature.get("inputs") if isinstance(signature, dict) else None
    if not isinstance(written, str):
        return None
    try:
        inputs = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"Its signature cannot be read: {_words(error)}.") from None
    if not isinstance(inputs, Sequence) or not all(
        isinstance(column, dict) and isinstance(column.get("name"), str) and column.get("type") != "tensor"
        for column in inputs
    ):
        return None
    return tuple(Column(column["name"], str(column.get("type")), _is_required(column)) for column in inputs) or None


def _is_required(column: Mapping[str, Any]) -> bool:
    """Return whether a column must be present: MLflow writes "required", and older releases "optional" if not."""
    return bool(column.get("required", True)) and not column.get("optional", False)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
