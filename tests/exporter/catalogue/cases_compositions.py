"""Cases of models made of models, and of what else an estimator may be fitted on."""

from typing import Any

import numpy as np
from scipy import special
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import (
    VarianceThreshold,
)
from sklearn.linear_model import (
    BayesianRidge,
    Lasso,
    LinearRegression,
    PoissonRegressor,
    Ridge,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
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

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_regressors import LINEAR
from tests.exporter.catalogue.cases_transformers import SCALERS
from tests.exporter.data import (
    as_frame,
    counts,
    cube,
    diabetes,
    exp10,
    far_from_zero,
    far_from_zero_targets,
    in_float32,
    linnerud,
    several_targets,
    small,
    targets_between,
)

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

# The kinds of training data

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
