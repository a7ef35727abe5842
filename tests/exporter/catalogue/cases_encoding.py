"""Cases of encoders and imputers before a Ridge, with their options.

Half of the rows asked are training rows, and half are moved by noise: those hold categories unknown to the encoder, so
the encoders here have an answer for such. Known, unknown and missing categories are asked in test_encoding.py, NaN and
the other options of imputers in test_impute.py.
"""

import functools
from collections.abc import Callable

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.impute._iterative import IterativeImputer
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVR

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data


@functools.cache
def categories() -> Data:
    """160 × 4 columns of categories: of few and of many, some of them rare, one binary."""
    rng = np.random.default_rng(11)
    X = np.column_stack(
        [
            rng.choice([0.0, 1, 2, 5, -3], 160, p=[0.4, 0.3, 0.2, 0.06, 0.04]),
            rng.integers(-2, 3, 160) * 0.5,
            rng.integers(0, 25, 160) * 1e6,
            rng.integers(0, 2, 160),
        ]
    )
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2 + X[:, 2] % 7 + 3 * X[:, 3] + 0.1 * rng.standard_normal(160)


def categories_two_targets() -> Data:
    X, y = categories()
    return X, np.stack([y, np.cos(y)], axis=1)


def categories_counts() -> Data:
    X, y = categories()
    return X, np.round(np.abs(y))


def categories_binary_target() -> Data:
    X, y = categories()
    return X, (y > np.median(y)).astype(float)


def one_category() -> Data:
    X, y = categories()
    return X[:, :1], y


@functools.cache
def holes() -> Data:
    """160 × 5 related columns where zero stands for what is missing; the third is complete, the last all missing."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((160, 1)) + 0.5 * rng.standard_normal((160, 5)) * [1, 2, 1, 5, 1] + [0, 3, 1, -20, 0]
    y = X @ [1.0, -2.0, 3.0, 0.1, 0.5] + X[:, 0] * X[:, 1]
    X[rng.random(X.shape) < [0.1, 0.3, 0, 0.2, 1]] = 0
    return X, y


def holes_in_few() -> Data:
    """The first two columns."""
    X, y = holes()
    return X[:, :2], y


KNOWN = [np.array([-3.0, 0, 1, 2, 4, 5]), np.arange(-3, 4) * 0.5, np.arange(30) * 1e6, np.array([0.0, 1, 2])]

one_hot = functools.partial(OneHotEncoder, handle_unknown="ignore")
for name, encoder in {
    "ignore": one_hot(),
    "dense": one_hot(sparse_output=False, dtype=np.int32),
    "drop-first": one_hot(drop="first"),
    "drop-if-binary": one_hot(drop="if_binary"),
    "drop-given": one_hot(drop=[1.0, 0.5, 3e6, 1.0]),
    "categories": one_hot(categories=KNOWN),
    "frequency": one_hot(min_frequency=9),
    "share": OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.05),
    "share-drop-first": OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.05, drop="first"),
    "at-most": OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=4),
    "at-most-drop-if-binary": OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=2, drop="if_binary"),
    "at-most-one-drop-first": OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=1),
    "at-most-and-frequency": OneHotEncoder(handle_unknown="warn", max_categories=5, min_frequency=10),
    "warn": OneHotEncoder(handle_unknown="warn"),
}.items():
    add(f"one-hot-{name}", "steps", make_pipeline(encoder, Ridge()), categories)
add("one-hot-one-feature", "steps", make_pipeline(one_hot(), Ridge()), one_category)
add("one-hot-targets", "steps", make_pipeline(one_hot(), Ridge()), categories_two_targets)
add("one-hot-poisson", "steps", make_pipeline(one_hot(), PoissonRegressor()), categories_counts)
add("one-hot-scaled", "steps", make_pipeline(one_hot(sparse_output=False), StandardScaler(), Ridge()), categories)
add("one-hot-pca", "steps", make_pipeline(one_hot(sparse_output=False), PCA(5), LinearRegression()), categories)
add("one-hot-selected", "steps", make_pipeline(one_hot(), SelectKBest(f_regression, k=7), Ridge()), categories)
add(
    "one-hot-polynomial",
    "steps",
    make_pipeline(one_hot(max_categories=3), PolynomialFeatures(2, interaction_only=True), Ridge()),
    categories,
)

mixed = ColumnTransformer([("numbers", StandardScaler(), [2, 3]), ("codes", one_hot(), [0, 1])])
for name, (regressor, data) in {
    "ridge": (Ridge(), categories),
    "targets": (Ridge(), categories_two_targets),
    "poisson": (PoissonRegressor(), categories_counts),
    "mlp": (MLPRegressor(hidden_layer_sizes=(8,), max_iter=200, random_state=0), categories),
    "svr": (SVR(), categories),
}.items():
    add(f"one-hot-beside-scaled-{name}", "steps", make_pipeline(mixed, regressor), data)
add("one-hot-beside-scaled-std", "std", make_pipeline(mixed, BayesianRidge()), categories)
add(
    "one-hot-beside-curves",
    "steps",
    make_pipeline(ColumnTransformer([("curves", SplineTransformer(), [2]), ("codes", one_hot(), [0, 1, 3])]), Ridge()),
    categories,
)

ordinal = functools.partial(OrdinalEncoder, handle_unknown="use_encoded_value", unknown_value=-1)
for name, encoder in {
    "unknown": ordinal(),
    "unknown-far": ordinal(unknown_value=1000, dtype=np.int16),
    "categories": ordinal(categories=KNOWN),
    "frequency": ordinal(min_frequency=9),
    "share": ordinal(min_frequency=0.05),
    "at-most": ordinal(max_categories=3),
}.items():
    add(f"ordinal-{name}", "steps", make_pipeline(encoder, Ridge()), categories)
add(
    "ordinal-unknown-imputed",
    "steps",
    make_pipeline(ordinal(unknown_value=np.nan), SimpleImputer(), Ridge()),
    categories,
)
add("ordinal-then-one-hot", "steps", make_pipeline(ordinal(), one_hot(), Ridge()), categories)

FOLDS = KFold(4, shuffle=True, random_state=0)
for name, encoder in {
    "auto": TargetEncoder(cv=FOLDS),
    "smooth": TargetEncoder(smooth=2.5, cv=FOLDS),
    "not-smooth": TargetEncoder(smooth=0, cv=FOLDS),
    "categories": TargetEncoder(categories=KNOWN, cv=FOLDS),
}.items():
    add(f"target-encoder-{name}", "steps", make_pipeline(encoder, Ridge()), categories)
add("target-encoder-scaled", "steps", make_pipeline(TargetEncoder(cv=FOLDS), StandardScaler(), Ridge()), categories)
add("target-encoder-classes", "steps", make_pipeline(TargetEncoder(cv=FOLDS), Ridge()), categories_counts)
add("target-encoder-two-classes", "steps", make_pipeline(TargetEncoder(cv=FOLDS), Ridge()), categories_binary_target)


def before_ridge(prefix: str, data: Callable[[], Data] = holes, **imputers: object) -> None:
    for name, imputer in imputers.items():
        add(f"{prefix}-{name.replace('_', '-')}", "steps", make_pipeline(imputer, Ridge()), data)


simple = functools.partial(SimpleImputer, missing_values=0)
before_ridge(
    "simple-imputer",
    mean=simple(),
    median=simple(strategy="median"),
    most_frequent=simple(strategy="most_frequent"),
    constant=simple(strategy="constant", fill_value=7.5),
    indicator=simple(add_indicator=True),
    empty=simple(keep_empty_features=True),
    empty_constant=simple(strategy="constant", fill_value=-3.0, keep_empty_features=True, add_indicator=True),
)
add("simple-imputer-scaled", "steps", make_pipeline(simple(), StandardScaler(), Ridge()), holes)
add("simple-imputer-nothing-missing", "steps", make_pipeline(SimpleImputer(add_indicator=True), Ridge()), categories)
add("simple-imputer-none-left", "steps", make_pipeline(simple(missing_values=-3), Ridge()), one_category)

before_ridge(
    "missing-indicator",
    all=MissingIndicator(missing_values=0, features="all"),
    seen=MissingIndicator(missing_values=0),
    seen_or_not=MissingIndicator(missing_values=0, error_on_new=False),
)

iterative = functools.partial(IterativeImputer, missing_values=0, max_iter=3, random_state=0)
before_ridge(
    "iterative-imputer",
    default=IterativeImputer(missing_values=0),
    curved=iterative(make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())),
    clipped=iterative(make_pipeline(MinMaxScaler(clip=True), Ridge())),
    arabic=iterative(imputation_order="arabic"),
    skip_complete=iterative(skip_complete=True),
    constant=iterative(initial_strategy="constant", fill_value=2.0, max_iter=2),
    never=iterative(max_iter=0, add_indicator=True),
    nearest=iterative(n_nearest_features=2),
    limits_each=iterative(min_value=[-1, 0, 0, -25, 0], max_value=[1, 4, 9, -18, np.inf]),
    indicator=iterative(add_indicator=True),
    empty_limits=iterative(keep_empty_features=True, min_value=-2, add_indicator=True, skip_complete=True),
)
before_ridge("iterative-imputer-of-two", holes_in_few, default=iterative())
add("iterative-imputer-scaled", "steps", make_pipeline(iterative(), StandardScaler(), Ridge()), holes)
