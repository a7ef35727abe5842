"""LightGBM's models from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triton_regressors.exporter.boosters.lightgbm_model import checked_text


def load(path: str | Path) -> Any:
    """Return an LGBMRegressor with the model of a text file, as `Booster.save_model` writes it.

    Raises:
        ImportError: LightGBM is not installed.
        ValueError: the file's numbers do not fit together.
        LightGBMError: LightGBM cannot read it.
    """
    from lightgbm import Booster, LGBMRegressor

    booster = Booster(model_str=checked_text(Path(path).read_text(encoding="utf-8")))
    # An estimator has no method that takes a model, so this sets the attributes that its `fit` sets.
    estimator, features = LGBMRegressor(), booster.num_feature()
    estimator._Booster, estimator.fitted_ = booster, True
    estimator._n_features = estimator._n_features_in = features
    estimator._best_iteration, estimator._objective = booster.best_iteration, "regression"
    estimator._fitted_with_feature_names = booster.feature_name() != [f"Column_{number}" for number in range(features)]
    return estimator
