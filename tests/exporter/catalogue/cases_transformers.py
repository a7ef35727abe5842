"""Cases of transformers before a Ridge, with their options."""

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
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
    Lasso,
    LinearRegression,
    PoissonRegressor,
    Ridge,
    SGDRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from tests.exporter.catalogue.case import add
from tests.exporter.data import constant_column, counts, diabetes, far_from_zero, linnerud, several_targets, small

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
