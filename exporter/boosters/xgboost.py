"""Loads XGBoost's model files, by XGBoost itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load(path: Path, missing: float) -> Any:
    """Return the model in a `.json` or `.ubj` file as an XGBRegressor.

    Args:
        path: the file, as `save_model` wrote it.
        missing: the number that stands for a missing value, which the file does not hold; NaN is XGBoost's default.
    """
    from xgboost import XGBRegressor

    estimator = XGBRegressor(missing=missing)
    estimator.load_model(path)
    return estimator
