"""Linear models: `y = f(X w + b)`, and the standard deviation that Bayesian linear models give."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.cross_decomposition import CCA, PLSCanonical, PLSRegression
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lars,
    LarsCV,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsCV,
    LassoLarsIC,
    LinearRegression,
    MultiTaskElasticNet,
    MultiTaskElasticNetCV,
    MultiTaskLasso,
    MultiTaskLassoCV,
    OrthogonalMatchingPursuit,
    OrthogonalMatchingPursuitCV,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeCV,
    SGDRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.svm import LinearSVR

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers

# scikit-learn 1.10 is to drop it.
PASSIVE_AGGRESSIVE = [getattr(linear_model, name) for name in dir(linear_model) if name == "PassiveAggressiveRegressor"]


@lowers(
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lars,
    LarsCV,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsCV,
    LassoLarsIC,
    LinearRegression,
    LinearSVR,
    MultiTaskElasticNet,
    MultiTaskElasticNetCV,
    MultiTaskLasso,
    MultiTaskLassoCV,
    OrthogonalMatchingPursuit,
    OrthogonalMatchingPursuitCV,
    QuantileRegressor,
    Ridge,
    RidgeCV,
    SGDRegressor,
    TheilSenRegressor,
    *PASSIVE_AGGRESSIVE,
)
def lower_linear(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = X coefᵀ + intercept`; `coef_` is `[features]` or `[targets, features]`."""
    return builder.affine(x, _transposed(estimator.coef_), estimator.intercept_)


@lowers(PoissonRegressor, GammaRegressor, TweedieRegressor)
def lower_generalised_linear(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(X coef + intercept)`; the inverse link is exp or the identity."""
    log_link = not (isinstance(estimator, TweedieRegressor) and _tweedie_link(estimator) == "identity")
    return builder.affine(x, estimator.coef_, estimator.intercept_, "exp" if log_link else "identity")


@lowers(BayesianRidge, ARDRegression)
def lower_bayesian(estimator: Any, x: Value, builder: Builder) -> dict[str, Value]:
    """`y = X coef + intercept`; `std = √(zᵀ Σ z + 1/α)` for `z` the features with a finite weight variance.

    Newer releases of scikit-learn take `z` about the training means, older ones about zero; the estimator is asked.
    """
    y = builder.affine(x, estimator.coef_, estimator.intercept_)
    offset = np.broadcast_to(np.asarray(getattr(estimator, "X_offset_", 0.0), dtype=np.float64), (x.width,))
    if np.any(offset):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that this row has no column names
            _, std = estimator.predict(offset[None, :], return_std=True)
        centred = np.isclose(std[0] ** 2, 1.0 / estimator.alpha_, rtol=1e-12, atol=0.0)
        offset = offset if centred else np.zeros_like(offset)
    sigma = np.asarray(estimator.sigma_, dtype=np.float64)
    kept = np.arange(x.width)
    if isinstance(estimator, ARDRegression):
        kept = np.flatnonzero(estimator.lambda_ < estimator.threshold_lambda)
    if not len(kept):
        return {"y": y, "std": builder.affine(x, np.zeros(x.width), np.sqrt(1.0 / estimator.alpha_))}
    form = np.zeros((x.width, x.width))
    form[np.ix_(kept, kept)] = sigma
    return {"y": y, "std": builder.quadratic(x, offset, form, 1.0 / estimator.alpha_, "sqrt")}


@lowers(PLSRegression, PLSCanonical, CCA)
def lower_partial_least_squares(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = (X − x_mean) coefᵀ + intercept`."""
    builder.profile.note_scale(x.features, estimator._x_mean, estimator._x_std)
    centred = builder.scale(x, estimator._x_mean, 1.0)
    return builder.affine(centred, _transposed(estimator.coef_), estimator.intercept_)


@lowers(DummyRegressor)
def lower_dummy(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y` is the same constant for every row."""
    constant = np.ravel(estimator.constant_)
    return builder.affine(x, np.zeros((x.width, len(constant))), constant)


def _transposed(coef: Any) -> Any:
    """Return `coef_` as `[features]` or `[features, targets]`."""
    return coef.T if coef.ndim == 2 else coef


def _tweedie_link(estimator: TweedieRegressor) -> str:
    """Return the link in use: "auto" is the identity for power ≤ 0, else the logarithm."""
    if estimator.link == "auto":
        return "identity" if estimator.power <= 0 else "log"
    return str(estimator.link)
