"""Cases of NGBoost's regressors: distributions, scores, base learners, and columns and rows drawn for each stage."""

from typing import Any

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import (
    Exponential,
    Gamma,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    NormalFixedVar,
    Poisson,
    TFixedDf,
    TFixedDfFixedVar,
)
from ngboost.scores import CRPScore
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_lightgbm import with_missing
from tests.exporter.data import as_frame, counts, positive_counts, small


def boosted(distribution: Any = Normal, stages: int = 12, **options: Any) -> NGBRegressor:
    return NGBRegressor(
        Dist=distribution, n_estimators=stages, learning_rate=0.1, verbose=False, random_state=0, **options
    )


def moments(estimator: Any, rows: Any) -> dict[str, np.ndarray]:
    """Return the mean and the standard deviation of the predicted distribution."""
    distribution = estimator.pred_dist(rows)
    return {"y": distribution.predict(), "std": distribution.std()}


for name, (estimator, data) in {
    "normal": (boosted(), small),
    "normal-crps": (boosted(Score=CRPScore), small),
    "normal-fixed": (boosted(NormalFixedVar), small),
    "drawn": (boosted(col_sample=0.6, minibatch_frac=0.7), small),
    "frame": (boosted(), as_frame),
    "missing": (boosted(natural_gradient=False), with_missing),
    "deep": (boosted(Base=[DecisionTreeRegressor(max_depth=6), DecisionTreeRegressor(max_depth=1)]), small),
    "linear": (boosted(stages=4, Base=Ridge()), small),
    "laplace": (boosted(Laplace), small),
    "t": (boosted(TFixedDf), small),
    "t-fixed": (boosted(TFixedDfFixedVar), small),
    "exponential": (boosted(Exponential), positive_counts),
    "gamma": (boosted(Gamma), positive_counts),
    "half-normal": (boosted(HalfNormal), positive_counts),
    "log-normal": (boosted(LogNormal), positive_counts),
    "poisson": (boosted(Poisson), counts),
}.items():
    add(f"ngboost-{name}", "steps", estimator, data, ask=moments)


def moments_behind(pipeline: Any, rows: Any) -> dict[str, np.ndarray]:
    return moments(pipeline[-1], pipeline[:-1].transform(rows))


add("ngboost-pipeline", "steps", make_pipeline(StandardScaler(), boosted()), small, ask=moments_behind)
