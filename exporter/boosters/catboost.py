"""CatBoost's models from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triton_regressors.exporter.errors import ExportError


def load(path: str | Path) -> Any:
    """Return a CatBoostRegressor with the model of a .cbm or .json file, as `save_model` writes it.

    Raises:
        ExportError: the model is none of a regressor.
        ImportError: CatBoost is not installed.
        Exception: CatBoost cannot read the file.
    """
    from catboost import CatBoostError, CatBoostRegressor

    estimator = CatBoostRegressor()
    estimator.load_model(str(path), format=Path(path).suffix[1:])
    loss = estimator.get_params().get("loss_function")
    try:
        estimator._check_is_compatible_loss(loss)
    except CatBoostError:
        raise ExportError(
            f"{path} holds a model with the loss {loss}, and only regressors are exported. Load it as a "
            "catboost.CatBoost, whose predict answers raw scores, and export that."
        ) from None
    return estimator
