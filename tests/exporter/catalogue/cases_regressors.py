"""Cases of regressors by themselves, with their options."""

import functools
import itertools
import warnings

from sklearn import linear_model
from sklearn.base import clone
from sklearn.cross_decomposition import CCA, PLSCanonical, PLSRegression
from sklearn.decomposition import PCA
from sklearn.dummy import DummyRegressor
from sklearn.feature_selection import (
    SelectKBest,
    f_regression,
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
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    RidgeCV,
    SGDRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVR

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    column_target,
    counts,
    diabetes,
    far_from_zero,
    far_from_zero_targets,
    in_float32,
    linnerud,
    positive_counts,
    several_targets,
    small,
    targets_between,
)

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
if hasattr(linear_model, "PassiveAggressiveRegressor"):  # scikit-learn 1.10 is to drop it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        passive_aggressive = linear_model.PassiveAggressiveRegressor(random_state=0, max_iter=50)
    add("passive-aggressive", "affine", passive_aggressive, diabetes)
    for name, options in {"no-intercept": {"fit_intercept": False}, "squared": {"C": 0.1, "average": True}}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            add(f"passive-aggressive-{name}", "affine", clone(passive_aggressive).set_params(**options), small)
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
