"""The catalogue: every supported estimator with every option that changes a prediction, fitted on small data.

`CASES` maps a name, which is also a valid model name, to a `Case`; `case.fitted()` gives the fitted estimator and rows
to ask it, float32. A case belongs to a family:

- "affine": the prediction is affine in the features, so the plan is one affine step and its answer within one float32
  unit in the last place of scikit-learn's float64 answer;
- "link": affine, then one function of each element, with the same promise;
- "std": a Bayesian linear model, whose standard deviation is an output too;
- "polynomial": products of features;
- "steps": something that no pass can fold into one affine step, such as clipping.
"""

import functools
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import CCA, PLSCanonical, PLSRegression
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.dummy import DummyRegressor
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_regression,
    r_regression,
)
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
    PassiveAggressiveRegressor,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    RidgeCV,
    SGDRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVR

Data = tuple[Any, Any]


@dataclass(frozen=True)
class Case:
    """An estimator to fit, on which data, and what is promised for it."""

    name: str
    family: str
    estimator: Any
    data: Callable[[], Data]
    after_fit: Callable[[Any], Any] = lambda estimator: estimator
    gives_std: Callable[[Any], Any] = lambda estimator: estimator  # whom to ask for the standard deviation

    def fitted(self) -> tuple[Any, np.ndarray]:
        """Return the fitted estimator and float32 rows like those it was fitted on; the same ones at each call."""
        return _fitted(self.name)

    def expected(self) -> dict[str, np.ndarray]:
        """Return scikit-learn's own answers to those rows, float64 `[rows, width]` for each output."""
        return _expected(self.name)


@functools.cache
def _fitted(name: str) -> tuple[Any, np.ndarray]:
    case = CASES[name]
    X, y = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data: fits that do not converge predict all the same
        estimator = case.after_fit(clone(case.estimator).fit(X, y))
    return estimator, rows_like(np.asarray(X, dtype=np.float64))


@functools.cache
def _expected(name: str) -> dict[str, np.ndarray]:
    case = CASES[name]
    estimator, rows = case.fitted()
    X: Any = rows.astype(np.float64)
    fitted_on = case.data()[0]
    if isinstance(fitted_on, pd.DataFrame):
        X = pd.DataFrame(X, columns=fitted_on.columns)
    answers = {"y": estimator.predict(X)}
    if case.family == "std":
        _, answers["std"] = case.gives_std(estimator).predict(X, return_std=True)
    return {output: np.asarray(y, dtype=np.float64).reshape(len(rows), -1) for output, y in answers.items()}


def rows_like(X: np.ndarray, rows: int = 96) -> np.ndarray:
    """Return half of the rows as they are and half moved by a quarter of the spread, float32."""
    rng = np.random.default_rng(0)
    X = X.astype(np.float32).astype(np.float64)  # so that a case fitted on float32 is asked the same rows
    chosen = X[rng.integers(0, len(X), rows)]
    moved = chosen + 0.25 * X.std(axis=0) * rng.standard_normal(chosen.shape)
    return np.where(np.arange(rows)[:, None] % 2 == 0, chosen, moved).astype(np.float32)


CASES: dict[str, Case] = {}


def add(name: str, family: str, estimator: Any, data: Callable[[], Data], **more: Any) -> None:
    if name in CASES:
        raise ValueError(f"Case {name!r} is there twice.")
    CASES[name] = Case(name, family, estimator, data, **more)


# Data


@functools.cache
def diabetes() -> Data:
    """442 × 10, one target."""
    return load_diabetes(return_X_y=True)


@functools.cache
def linnerud() -> Data:
    """20 × 3, three targets."""
    return load_linnerud(return_X_y=True)


def column_target() -> Data:
    """Diabetes with y as a matrix of one column."""
    X, y = diabetes()
    return X, y[:, None]


@functools.cache
def several_targets() -> Data:
    """160 × 7, four targets, features of different scales."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((160, 7)) * [1, 10, 0.1, 5, 1, 100, 2] + [0, 3, 0, -20, 1, 50, 0]
    return X, X @ rng.standard_normal((7, 4)) + rng.standard_normal((160, 4))


@functools.cache
def small() -> Data:
    """160 × 5, one target with products of features in it."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((160, 5)) * [1, 3, 0.5, 10, 1] + [0, 2, 1, 30, -1]
    return X, X @ [1.0, -2.0, 3.0, 0.1, 0.5] + 0.3 * X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(160)


@functools.cache
def far_from_zero() -> Data:
    """160 × 6, features around 10,000 with a spread of about 1."""
    rng = np.random.default_rng(3)
    X = 10_000 + rng.standard_normal((160, 6)) * [1, 2, 0.5, 1, 3, 1]
    return X, (X - 10_000) @ [1.0, -2.0, 3.0, 0.0, 0.5, 1.0] + 0.1 * rng.standard_normal(160)


def far_from_zero_targets() -> Data:
    """The same features with two targets."""
    X, y = far_from_zero()
    return X, np.stack([y, 3 - 2 * y + X[:, 0] - 10_000], axis=1)


@functools.cache
def constant_column() -> Data:
    """`small` with a column that does not vary and one that is zero throughout."""
    X, y = small()
    return np.column_stack([X, np.full(len(X), 7.25), np.zeros(len(X))]), y


def targets_between(low: float, high: float, data: Callable[[], Data] = small) -> Callable[[], Data]:
    """Return `data` with a nearly linear target that fills [low, high]."""

    def make() -> Data:
        X, y = data()
        y = X @ np.linspace(-1, 1, X.shape[1]) / X.std(axis=0).sum() + 1e-3 * np.cos(y)
        return X, low + (high - low) * (y - y.min()) / (y.max() - y.min())

    return make


@functools.cache
def unit_scale() -> Data:
    """160 × 5, independent features of unit variance, one target."""
    X = np.random.default_rng(5).standard_normal((160, 5))
    return X, X @ [1.0, -2.0, 3.0, 0.1, 0.5]


def counts() -> Data:
    X, y = targets_between(0, 2, unit_scale)()
    return X, np.random.default_rng(4).poisson(np.exp(y)).astype(float)


def positive_counts() -> Data:
    X, y = counts()
    return X, y + 0.5


def as_frame() -> Data:
    """Diabetes as a DataFrame with named columns."""
    X, y = diabetes()
    return pd.DataFrame(X, columns=load_diabetes().feature_names), y


def in_float32(data: Callable[[], Data]) -> Callable[[], Data]:
    def make() -> Data:
        X, y = data()
        return X.astype(np.float32), np.asarray(y).astype(np.float32)

    return make


def cube(y: np.ndarray) -> np.ndarray:
    return y**3


def exp10(y: np.ndarray) -> np.ndarray:
    return 10.0**y


# Linear models

LINEAR = {
    "linear-regression": LinearRegression,
    "ridge": Ridge,
    "ridge-cv": RidgeCV,
    "lasso": functools.partial(Lasso, alpha=0.1),
    "lasso-cv": functools.partial(LassoCV, alphas=5, cv=3),
    "lasso-lars": functools.partial(LassoLars, alpha=0.1),
    "lasso-lars-cv": functools.partial(LassoLarsCV, cv=3),
    "lars": functools.partial(Lars, n_nonzero_coefs=6),
    "lars-cv": functools.partial(LarsCV, cv=3),
    "elastic-net": functools.partial(ElasticNet, alpha=0.01, l1_ratio=0.3),
    "elastic-net-cv": functools.partial(ElasticNetCV, alphas=5, cv=3, l1_ratio=[0.2, 0.9]),
    "omp": functools.partial(OrthogonalMatchingPursuit, n_nonzero_coefs=4),
    "omp-cv": functools.partial(OrthogonalMatchingPursuitCV, cv=3),
    "huber": HuberRegressor,
    "passive-aggressive": functools.partial(PassiveAggressiveRegressor, random_state=0, max_iter=50),
    "theil-sen": functools.partial(TheilSenRegressor, random_state=0, max_subpopulation=50),
    "quantile": functools.partial(QuantileRegressor, alpha=0.01),
    "linear-svr": functools.partial(LinearSVR, random_state=0, max_iter=200),
    "sgd": functools.partial(SGDRegressor, random_state=0),
}
for name, make in LINEAR.items():
    add(name, "affine", make(), diabetes)
    add(f"{name}-no-intercept", "affine", make(fit_intercept=False), diabetes)
for name in ("linear-regression", "lasso", "elastic-net", "lasso-lars", "lasso-cv", "elastic-net-cv", "lasso-lars-cv"):
    add(f"{name}-positive", "affine", LINEAR[name](positive=True), diabetes)
add("ridge-positive", "affine", Ridge(positive=True), diabetes)
for name in ("linear-regression", "ridge", "ridge-cv", "lasso", "elastic-net", "lars", "lasso-lars", "omp"):
    add(f"{name}-targets", "affine", LINEAR[name](), several_targets)
    add(f"{name}-column-target", "affine", LINEAR[name](), column_target)
add("ridge-targets-no-intercept", "affine", Ridge(fit_intercept=False), linnerud)
add("ridge-alpha-per-target", "affine", Ridge(alpha=[0.1, 1.0, 10.0]), linnerud)
add("ridge-cv-alpha-per-target", "affine", RidgeCV(alpha_per_target=True), linnerud)
for name, make in {
    "multi-task-lasso": functools.partial(MultiTaskLasso, alpha=0.1),
    "multi-task-lasso-cv": functools.partial(MultiTaskLassoCV, alphas=5, cv=3),
    "multi-task-elastic-net": functools.partial(MultiTaskElasticNet, alpha=0.1),
    "multi-task-elastic-net-cv": functools.partial(MultiTaskElasticNetCV, alphas=5, cv=3),
}.items():
    add(name, "affine", make(), several_targets)
    add(f"{name}-no-intercept", "affine", make(fit_intercept=False), linnerud)
for criterion in ("aic", "bic"):
    add(f"lasso-lars-{criterion}", "affine", LassoLarsIC(criterion=criterion), diabetes)
add("lasso-lars-ic-positive-no-intercept", "affine", LassoLarsIC(positive=True, fit_intercept=False), diabetes)
add("huber-epsilon", "affine", HuberRegressor(epsilon=2.0, alpha=0.1), small)
for quantile in (0.1, 0.9):
    add(f"quantile-{quantile}", "affine", QuantileRegressor(quantile=quantile, alpha=0), small)
add("linear-svr-squared", "affine", LinearSVR(loss="squared_epsilon_insensitive", dual=True, random_state=0), diabetes)
add("linear-svr-epsilon", "affine", LinearSVR(epsilon=0.5, intercept_scaling=3.0, random_state=0), small)
add("passive-aggressive-squared", "affine", PassiveAggressiveRegressor(C=0.1, average=True, random_state=0), small)
for penalty in ("l1", "l2", "elasticnet", None):
    add(f"sgd-{penalty or 'none'}", "affine", SGDRegressor(penalty=penalty, alpha=0.01, random_state=0), diabetes)
for loss in ("huber", "epsilon_insensitive", "squared_epsilon_insensitive"):
    add(f"sgd-{loss.replace('_', '-')}", "affine", SGDRegressor(loss=loss, average=True, random_state=0), diabetes)
add(
    "sgd-sparse",
    "affine",
    SGDRegressor(penalty="l1", alpha=0.5, random_state=0),
    diabetes,
    after_fit=lambda sgd: sgd.sparsify(),
)
add("theil-sen-few-rows", "affine", TheilSenRegressor(n_subsamples=12, max_subpopulation=30, random_state=0), small)
for name, base in {
    "default": None,
    "ridge": Ridge(alpha=0.1),
    "quantile": QuantileRegressor(alpha=0),
    "pipeline": make_pipeline(StandardScaler(), PCA(4), Ridge()),
}.items():
    add(f"ransac-{name}", "affine", RANSACRegressor(base, min_samples=20, random_state=0), diabetes)
add("ransac-targets", "affine", RANSACRegressor(min_samples=20, random_state=0), several_targets)
add(
    "ransac-polynomial",
    "polynomial",
    RANSACRegressor(make_pipeline(PolynomialFeatures(2), Ridge()), min_samples=60, random_state=0),
    small,
)

# Generalised linear models

add("poisson", "link", PoissonRegressor(alpha=0.01), counts)
add("poisson-no-intercept", "link", PoissonRegressor(fit_intercept=False), counts)
add("poisson-scaled", "link", make_pipeline(StandardScaler(), PoissonRegressor()), counts)
add("gamma", "link", GammaRegressor(), positive_counts)
add("gamma-no-intercept", "link", GammaRegressor(fit_intercept=False), positive_counts)
for power, link in itertools.product((-1, 0, 1, 1.5, 2, 3), ("auto", "identity", "log")):
    identity = link == "identity" or (link == "auto" and power <= 0)
    data = targets_between(1, 3) if identity else counts if power < 2 else positive_counts
    add(
        f"tweedie-{power}-{link}".replace("--", "-minus-"),
        "affine" if identity else "link",
        make_pipeline(StandardScaler(), TweedieRegressor(power=power, link=link, max_iter=20)),
        targets_between(1, 3) if power < 0 else data,
    )
add("tweedie-no-intercept", "link", TweedieRegressor(power=1.5, fit_intercept=False, link="log"), counts)

# Bayesian linear models

for name, make in {"bayesian-ridge": BayesianRidge, "ard": ARDRegression}.items():
    add(name, "std", make(), diabetes)
    add(f"{name}-no-intercept", "std", make(fit_intercept=False), diabetes)
    add(f"{name}-far", "std", make(), far_from_zero)
    add(f"{name}-scaled", "std", make_pipeline(StandardScaler(), make()), small)
    add(f"{name}-scaled-far", "std", make_pipeline(StandardScaler(), make()), far_from_zero)
    add(f"{name}-robust", "std", make_pipeline(RobustScaler(), MinMaxScaler(), make()), far_from_zero)
    add(f"{name}-k-best", "std", make_pipeline(StandardScaler(), SelectKBest(f_regression, k=3), make()), diabetes)
    add(
        f"{name}-select-then-scale",
        "std",
        make_pipeline(SelectKBest(f_regression, k=3), StandardScaler(), make()),
        small,
    )
    add(f"{name}-pca", "std", make_pipeline(StandardScaler(), PCA(4), make()), diabetes)
    add(f"{name}-polynomial", "std", make_pipeline(StandardScaler(), PolynomialFeatures(2), make()), small)
    add(f"{name}-small-targets", "std", make(), targets_between(1e-6, 3e-6, diabetes))
    add(f"{name}-float32", "std", make(), in_float32(diabetes))
add("ard-pruned", "std", ARDRegression(threshold_lambda=1e-2), diabetes)
add("ard-all-pruned", "std", ARDRegression(threshold_lambda=1e-12), diabetes)
add(
    "bayesian-ridge-search",
    "std",
    GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1e-3]}, cv=3),
    diabetes,
    gives_std=lambda search: search.best_estimator_,
)

# Constants

for strategy, more in {"mean": {}, "median": {}, "quantile": {"quantile": 0.2}, "constant": {"constant": 3.3}}.items():
    add(f"dummy-{strategy}", "affine", DummyRegressor(strategy=strategy, **more), diabetes)
add("dummy-targets", "affine", DummyRegressor(strategy="median"), several_targets)
add(
    "dummy-constants",
    "affine",
    DummyRegressor(strategy="constant", constant=[1.0, -2.0, 0.0]),
    linnerud,
)
add("dummy-scaled", "affine", make_pipeline(StandardScaler(), DummyRegressor()), diabetes)

# Partial least squares

for scale in (True, False):
    suffix = "" if scale else "-unscaled"
    add(f"pls{suffix}", "affine", PLSRegression(3, scale=scale), diabetes)
    add(f"pls-column-target{suffix}", "affine", PLSRegression(3, scale=scale), column_target)
    add(f"pls-targets{suffix}", "affine", PLSRegression(3, scale=scale), several_targets)
    add(f"pls-canonical{suffix}", "affine", PLSCanonical(2, scale=scale), linnerud)
    add(f"pls-canonical-column-target{suffix}", "affine", PLSCanonical(1, scale=scale), column_target)
    add(f"cca{suffix}", "affine", CCA(2, scale=scale), linnerud)
add("pls-canonical-svd", "affine", PLSCanonical(2, algorithm="svd"), linnerud)
add("pls-far", "affine", PLSRegression(4), far_from_zero_targets)

# Several targets

for name, base in {
    "ridge": Ridge(),
    "huber": HuberRegressor(),
    "svr": LinearSVR(random_state=0),
    "pipeline": make_pipeline(StandardScaler(), PCA(4), Ridge()),
    "selection": make_pipeline(SelectKBest(f_regression, k=3), StandardScaler(), Ridge()),
    "bayesian": BayesianRidge(),
}.items():
    add(f"multi-output-{name}", "affine", MultiOutputRegressor(base), several_targets)
add(
    "multi-output-polynomial",
    "polynomial",
    MultiOutputRegressor(make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())),
    linnerud,
)
add(
    "scaled-multi-output", "affine", make_pipeline(StandardScaler(), MultiOutputRegressor(Lasso(0.01))), several_targets
)

# Scalers, alone and with columns that do not vary

SCALERS = {
    "standard": StandardScaler(),
    "standard-no-mean": StandardScaler(with_mean=False),
    "standard-no-std": StandardScaler(with_std=False),
    "standard-neither": StandardScaler(with_mean=False, with_std=False),
    "min-max": MinMaxScaler(),
    "min-max-range": MinMaxScaler(feature_range=(-1, 2)),
    "max-abs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "robust-no-centering": RobustScaler(with_centering=False),
    "robust-no-scaling": RobustScaler(with_scaling=False),
    "robust-quantiles": RobustScaler(quantile_range=(10, 60)),
    "robust-unit-variance": RobustScaler(unit_variance=True),
}
for name, scaler in SCALERS.items():
    add(f"scaler-{name}", "affine", make_pipeline(scaler, Ridge()), constant_column)
    add(f"scaler-{name}-far", "affine", make_pipeline(scaler, Ridge()), far_from_zero)
    add(
        f"scaler-{name}-polynomial",
        "polynomial",
        make_pipeline(scaler, PolynomialFeatures(2), Ridge()),
        constant_column,
    )
for name, scaler in {
    "min-max-clip": MinMaxScaler(clip=True),
    "min-max-clip-range": MinMaxScaler(feature_range=(-1, 2), clip=True),
    "max-abs-clip": MaxAbsScaler(clip=True),
}.items():
    add(f"scaler-{name}", "steps", make_pipeline(scaler, Ridge()), constant_column)
    add(f"scaler-{name}-far", "steps", make_pipeline(scaler, Ridge()), far_from_zero)
add("two-scalers", "affine", make_pipeline(RobustScaler(), StandardScaler(), MinMaxScaler(), Ridge()), small)
add("scaled-sgd", "affine", make_pipeline(StandardScaler(), SGDRegressor(random_state=0)), far_from_zero)

# Projections

for name, pca in {
    "all": PCA(),
    "three": PCA(3),
    "share": PCA(0.9),
    "mle": PCA("mle"),
    "whiten": PCA(3, whiten=True),
    "share-whiten": PCA(0.8, whiten=True),
    "randomized": PCA(3, svd_solver="randomized", random_state=0),
    "arpack": PCA(3, svd_solver="arpack", random_state=0),
    "covariance": PCA(3, svd_solver="covariance_eigh", whiten=True),
}.items():
    add(f"pca-{name}", "affine", make_pipeline(StandardScaler(), pca, Ridge()), diabetes)
add("pca-unscaled", "affine", make_pipeline(PCA(3), Ridge()), several_targets)
add("pca-far", "affine", make_pipeline(PCA(4), Ridge()), far_from_zero)
add("pca-whiten-far", "affine", make_pipeline(PCA(4, whiten=True), LinearRegression()), far_from_zero)
add("svd", "affine", make_pipeline(TruncatedSVD(3, random_state=0), Ridge()), diabetes)
add("svd-arpack", "affine", make_pipeline(TruncatedSVD(3, algorithm="arpack", random_state=0), Ridge()), small)
add("svd-scaled", "affine", make_pipeline(TruncatedSVD(4, random_state=0), StandardScaler(), Ridge()), several_targets)

# Polynomials

for degree in (1, 2, 3, 4):
    for name, more in {
        "": {},
        "-interactions": {"interaction_only": True},
        "-no-bias": {"include_bias": False},
    }.items():
        add(
            f"polynomial-{degree}{name}",
            "polynomial",
            make_pipeline(StandardScaler(), PolynomialFeatures(degree, **more), Ridge()),
            small,
        )
add("polynomial-unscaled", "polynomial", make_pipeline(PolynomialFeatures(2), Ridge()), diabetes)
add("polynomial-2-3", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures((2, 3)), Ridge()), small)
add("polynomial-0-2", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures((0, 2)), Ridge()), small)
add(
    "polynomial-2-2-no-bias",
    "polynomial",
    make_pipeline(StandardScaler(), PolynomialFeatures((2, 2), include_bias=False), Ridge()),
    small,
)
add(
    "polynomial-fortran",
    "polynomial",
    make_pipeline(StandardScaler(), PolynomialFeatures(2, order="F"), LinearRegression()),
    small,
)
for degree in (2, 3):
    for name, after in {
        "scaler": StandardScaler(),
        "k-best": SelectKBest(f_regression, k=6),
        "pca": PCA(5),
        "variance": VarianceThreshold(0.5),
    }.items():
        add(
            f"polynomial-{degree}-{name}",
            "polynomial",
            make_pipeline(StandardScaler(), PolynomialFeatures(degree), after, Ridge()),
            small,
        )
add(
    "polynomial-twice",
    "polynomial",
    make_pipeline(StandardScaler(), PolynomialFeatures(2), PolynomialFeatures(2), Ridge()),
    linnerud,
)
add("polynomial-targets", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), linnerud)
add("polynomial-3-targets", "polynomial", make_pipeline(MinMaxScaler(), PolynomialFeatures(3), Ridge()), linnerud)
add("polynomial-far", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), far_from_zero)
add("polynomial-3-far", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures(3), Ridge()), far_from_zero)
add(
    "polynomial-after-pca",
    "polynomial",
    make_pipeline(StandardScaler(), PCA(4), PolynomialFeatures(2), Ridge()),
    diabetes,
)
add(
    "polynomial-after-selection",
    "polynomial",
    make_pipeline(SelectKBest(f_regression, k=3), StandardScaler(), PolynomialFeatures(3), Ridge()),
    diabetes,
)
add(
    "polynomial-2-after-selection",
    "polynomial",
    make_pipeline(StandardScaler(), SelectKBest(f_regression, k=3), PolynomialFeatures(2), Ridge()),
    diabetes,
)
add("polynomial-clip", "polynomial", make_pipeline(MinMaxScaler(clip=True), PolynomialFeatures(2), Ridge()), small)
add(
    "polynomial-poisson",
    "polynomial",
    make_pipeline(StandardScaler(), PolynomialFeatures(2), PoissonRegressor()),
    counts,
)

# Selection

for name, selector in {
    "variance": VarianceThreshold(),
    "variance-threshold": VarianceThreshold(0.5),
    "k-best": SelectKBest(f_regression, k=3),
    "k-best-all": SelectKBest(f_regression, k="all"),
    "k-best-r": SelectKBest(r_regression, k=2),
    "percentile": SelectPercentile(f_regression, percentile=50),
    "fpr": SelectFpr(f_regression),
    "fdr": SelectFdr(f_regression),
    "fwe": SelectFwe(f_regression),
    "from-model": SelectFromModel(Lasso(0.1)),
    "from-model-most": SelectFromModel(Ridge(), max_features=2, threshold=-np.inf),
    "rfe": RFE(Ridge(), n_features_to_select=3),
    "rfecv": RFECV(Ridge(), cv=3),
    "sequential": SequentialFeatureSelector(Ridge(), n_features_to_select=2, cv=3),
}.items():
    add(f"select-{name}", "affine", make_pipeline(selector, Ridge()), constant_column)
for mode, param in {"percentile": 40, "k_best": 2, "fpr": 0.1, "fdr": 0.1, "fwe": 0.1}.items():
    selector = GenericUnivariateSelect(f_regression, mode=mode, param=param)
    add(f"select-generic-{mode.replace('_', '-')}", "affine", make_pipeline(selector, Ridge()), small)

# Pipelines and searches

SCALE_AND_RIDGE = Pipeline([("scale", StandardScaler()), ("model", Ridge())])
add("passthrough", "affine", Pipeline([("nothing", "passthrough"), ("model", Ridge())]), diabetes)
add("none-step", "affine", Pipeline([("scale", StandardScaler()), ("nothing", None), ("model", Ridge())]), diabetes)
add(
    "nested",
    "affine",
    make_pipeline(make_pipeline(RobustScaler(), PCA(4)), make_pipeline(MinMaxScaler(), Ridge())),
    small,
)
add(
    "nested-polynomial",
    "polynomial",
    make_pipeline(
        make_pipeline(StandardScaler(), PolynomialFeatures(2)), make_pipeline(VarianceThreshold(), Lasso(0.01))
    ),
    small,
)
add("only-a-model", "affine", make_pipeline(Ridge()), diabetes)
GRID = {"model__alpha": [0.1, 1.0]}
add("grid-search", "affine", GridSearchCV(SCALE_AND_RIDGE, GRID, cv=3), diabetes)
add("randomized-search", "affine", RandomizedSearchCV(SCALE_AND_RIDGE, GRID, n_iter=2, cv=3, random_state=0), diabetes)
add("halving-grid-search", "affine", HalvingGridSearchCV(SCALE_AND_RIDGE, GRID, cv=3, random_state=0), diabetes)
add("halving-random-search", "affine", HalvingRandomSearchCV(SCALE_AND_RIDGE, GRID, cv=3, random_state=0), diabetes)
add("search-targets", "affine", GridSearchCV(SCALE_AND_RIDGE, GRID, cv=3), linnerud)
add(
    "search-polynomial",
    "polynomial",
    GridSearchCV(
        make_pipeline(StandardScaler(), PolynomialFeatures(), Ridge()), {"polynomialfeatures__degree": [1, 2]}
    ),
    small,
)
add(
    "search-as-step",
    "affine",
    make_pipeline(StandardScaler(), GridSearchCV(Ridge(), {"alpha": [0.1, 1]}, cv=3)),
    diabetes,
)
add(
    "search-as-step-std",
    "std",
    make_pipeline(StandardScaler(), GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1e-3]}, cv=3)),
    diabetes,
    gives_std=lambda pipeline: make_pipeline(pipeline[0], pipeline[1].best_estimator_),
)

# Transformed targets

REGRESSOR = make_pipeline(StandardScaler(), Ridge(0.1))
for name, scaler in {
    **{key: value for key, value in SCALERS.items() if key != "standard-neither"},
    "pipeline": make_pipeline(MaxAbsScaler(), "passthrough", StandardScaler()),
}.items():
    add(f"target-{name}", "affine", TransformedTargetRegressor(REGRESSOR, transformer=scaler), diabetes)
for name, transformer in {
    "standard": StandardScaler(),
    "pca": PCA(3),
    "pca-whiten": PCA(whiten=True),
    "min-max": MinMaxScaler((-1, 1)),
}.items():
    add(f"targets-{name}", "affine", TransformedTargetRegressor(REGRESSOR, transformer=transformer), several_targets)
add("target-far", "affine", TransformedTargetRegressor(REGRESSOR, transformer=StandardScaler()), far_from_zero)
add("target-identity", "affine", TransformedTargetRegressor(REGRESSOR), diabetes)
add(
    "target-scaler-then-log",
    "steps",
    TransformedTargetRegressor(
        REGRESSOR,
        transformer=make_pipeline(FunctionTransformer(np.log, np.exp), StandardScaler()),
    ),
    targets_between(1, 5),
)
FUNCTION_PAIRS: dict[str, tuple[Any, Any, float, float]] = {
    "absolute": (np.abs, np.abs, 1, 3),
    "arcsinh": (np.sinh, np.arcsinh, -2, 2),
    "arctanh": (np.tanh, np.arctanh, -0.7, 0.7),
    "cbrt": (cube, np.cbrt, 1, 3),
    "exp": (np.log, np.exp, 1, 100),
    "exp2": (np.log2, np.exp2, 1, 100),
    "expit": (special.logit, special.expit, 0.1, 0.9),
    "expm1": (np.log1p, np.expm1, 0, 30),
    "log": (np.exp, np.log, 0, 1),
    "log10": (exp10, np.log10, 0, 0.5),
    "log1p": (np.expm1, np.log1p, 0, 1),
    "log2": (np.exp2, np.log2, 0, 1),
    "logit": (special.expit, special.logit, -1, 1),
    "negative": (np.negative, np.negative, -5, 5),
    "reciprocal": (np.reciprocal, np.reciprocal, 1, 2),
    "sinh": (np.arcsinh, np.sinh, -5, 5),
    "sqrt": (np.square, np.sqrt, 3, 5),
    "square": (np.sqrt, np.square, 1, 20),
    "tanh": (np.arctanh, np.tanh, -0.8, 0.8),
}
for name, (function, inverse, low, high) in FUNCTION_PAIRS.items():
    add(
        f"target-{name}",
        "link",
        TransformedTargetRegressor(REGRESSOR, func=function, inverse_func=inverse, check_inverse=False),
        targets_between(low, high),
    )
add(
    "targets-exp",
    "link",
    TransformedTargetRegressor(REGRESSOR, func=np.log, inverse_func=np.exp),
    lambda: (several_targets()[0], np.exp(0.01 * several_targets()[1])),
)
add(
    "target-exp-polynomial",
    "polynomial",
    TransformedTargetRegressor(
        make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), func=np.log, inverse_func=np.exp
    ),
    targets_between(1, 9),
)
add("target-of-poisson", "steps", TransformedTargetRegressor(PoissonRegressor(), transformer=MaxAbsScaler()), counts)
add(
    "target-search",
    "link",
    GridSearchCV(
        TransformedTargetRegressor(REGRESSOR, func=np.log1p, inverse_func=np.expm1),
        {"regressor__ridge__alpha": [0.1, 1]},
    ),
    targets_between(1, 5),
)

# Functions of features

for name, function in {"nothing": None, "negative": np.negative}.items():
    add(
        f"function-{name}",
        "steps" if function else "affine",
        make_pipeline(FunctionTransformer(function), Ridge()),
        small,
    )
for name, function in {"log1p": np.log1p, "sqrt": np.sqrt}.items():
    add(
        f"function-{name}",
        "steps",
        make_pipeline(MinMaxScaler(clip=True), FunctionTransformer(function), Ridge()),
        small,
    )

# What the estimator was fitted on

add("frame", "affine", Ridge(), as_frame)
add("frame-pipeline", "affine", make_pipeline(StandardScaler(), PCA(4), Ridge()), as_frame)
add("frame-polynomial", "polynomial", make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), as_frame)
add("frame-search", "affine", GridSearchCV(SCALE_AND_RIDGE, GRID, cv=3), as_frame)
add("frame-target", "affine", TransformedTargetRegressor(REGRESSOR, transformer=StandardScaler()), as_frame)
for name, estimator in {
    "ridge": Ridge(),
    "lasso": Lasso(0.1),
    "linear-regression": LinearRegression(),
    "sgd": SGDRegressor(random_state=0),
    "linear-svr": LinearSVR(random_state=0),
    "pls": PLSRegression(3),
}.items():
    add(f"float32-{name}", "affine", estimator, in_float32(diabetes))
    add(f"float32-{name}-far", "affine", make_pipeline(StandardScaler(), estimator), in_float32(far_from_zero))
for name, transformer in {
    **{f"scaler-{key}": value for key, value in SCALERS.items() if key != "standard"},
    "pca": PCA(3),
    "pca-whiten": PCA(3, whiten=True),
    "svd": TruncatedSVD(3, random_state=0),
}.items():
    add(f"float32-{name}", "affine", make_pipeline(transformer, Ridge()), in_float32(far_from_zero))
for name, scaler in SCALERS.items():
    add(
        f"float32-target-{name}",
        "affine",
        TransformedTargetRegressor(REGRESSOR, transformer=scaler),
        in_float32(diabetes),
    )
add("float32-poisson", "link", PoissonRegressor(), in_float32(counts))
add(
    "float32-polynomial",
    "polynomial",
    make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()),
    in_float32(small),
)

# Features around 10,000 without a scaler

for name in ("linear-regression", "ridge", "lasso", "elastic-net", "lars", "omp", "huber", "linear-svr"):
    add(f"{name}-far", "affine", LINEAR[name](), far_from_zero)
add("linear-regression-targets-far", "affine", LinearRegression(), far_from_zero_targets)
add("one-feature", "affine", LinearRegression(), lambda: (small()[0][:, :1], small()[1]))
