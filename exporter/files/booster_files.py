"""Reads models from the files of XGBoost, LightGBM and CatBoost, which run no code."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from triton_regressors.exporter.errors import ExportError
from triton_regressors.extras import require

XGBOOST = "xgboost"

BEGINNING = 2**16
"""Bytes at a file's beginning that say which library wrote it."""


def read_model_file(path: Path, missing: float | None = None) -> Any:
    """Return the model in a file as an estimator of the library that wrote it.

    Args:
        path: the file; its suffix is one of `BOOSTER_FILES`.
        missing: the number that stands for a missing value, NaN included, which XGBoost's files alone do not hold.

    Raises:
        ExportError: the file is of none of these libraries, or `missing` is lacking, or given where the file holds it.
        MissingExtra: the library that wrote the file is not installed.
    """
    library = _library(path)
    if library is None:
        raise ExportError(
            f"{path} was not written by XGBoost, LightGBM or CatBoost. Save the model with save_model of its "
            "library, or an estimator of scikit-learn's with skops.io.dump."
        )
    if library == XGBOOST and missing is None:
        raise ExportError(
            f"{path} does not record which number means a missing value. Give it, as in --missing nan, which is "
            "XGBoost's default, or missing=float('nan')."
        )
    if library != XGBOOST and missing is not None:
        raise ExportError(f"{path} itself records what a missing value is. Leave out --missing.")
    require("boosters", f"Reading {path}", library)
    module = importlib.import_module(f"triton_regressors.exporter.boosters.{library}")
    return module.load(path) if missing is None else module.load(path, missing)


def _library(path: Path) -> str | None:
    """Return the library that wrote a file, as it is imported, by the file's suffix and beginning."""
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    if path.suffix == ".cbm":
        return "catboost" if beginning.startswith(b"CBM1") else None
    if path.suffix == ".txt":
        return "lightgbm" if beginning.startswith(b"tree") else None
    if path.suffix == ".ubj":
        return XGBOOST if beginning.startswith(b"{") and b"learner" in beginning else None
    if not beginning.lstrip().startswith(b"{"):
        return None
    if b'"learner"' in beginning:
        return XGBOOST
    return "catboost" if b'"ctr_data"' in beginning or b'"features_info"' in beginning else None
