"""Loads XGBoost's model files, by XGBoost itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from triton_regressors.exporter.boosters.ubjson import parse_ubjson
from triton_regressors.exporter.boosters.xgboost_check import check_document


def load(path: Path, missing: float) -> Any:
    """Return the model in a `.json` or `.ubj` file as an XGBRegressor.

    Args:
        path: the file, as `save_model` wrote it.
        missing: the number that stands for a missing value, which the file does not hold; NaN is XGBoost's default.

    Raises:
        ImportError: XGBoost is not installed.
        ValueError: the file's numbers do not fit together.
        XGBoostError: XGBoost cannot read it.
    """
    from xgboost import XGBRegressor

    data = path.read_bytes()
    check_document(parse_ubjson(data) if path.suffix == ".ubj" else json.loads(data))
    del data
    estimator = XGBRegressor(missing=missing)
    estimator.load_model(path)
    return estimator
