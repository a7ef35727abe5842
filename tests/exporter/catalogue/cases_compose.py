"""Cases of ensembles of any regressors, of columns and unions of transformers, and of wrappers around them."""

import functools
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.feature_selection import RFE, RFECV, SelectKBest, VarianceThreshold, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, Lasso, LinearRegression, PoissonRegressor, RANSACRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import RegressorChain
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data, as_frame, column_target, counts, far_from_zero, linnerud, several_targets, small

POLYNOMIAL = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())
MEMBERS: list[tuple[str, Any]] = [
    ("ridge", Ridge()),
    ("lasso", make_pipeline(StandardScaler(), Lasso(0.1))),
    ("linear", LinearRegression()),
]
WITH_DROP: list[tuple[str, Any]] = [MEMBERS[0], ("out", "drop"), MEMBERS[1]]
MIXED: list[tuple[str, Any]] = [MEMBERS[0], ("polynomial", POLYNOMIAL), MEMBERS[1]]


# Voting

add("voting", "affine", VotingRegressor(MEMBERS), small)
add("voting-weights", "affine", VotingRegressor(MEMBERS, weights=[1, 2.5, 0.5]), small)
add("voting-negative-weight", "affine", VotingRegressor(MEMBERS, weights=[2, -0.5, 0]), small)
add("voting-drop", "affine", VotingRegressor(WITH_DROP, weights=[1, 7, 3]), small)
add("voting-one", "affine", VotingRegressor(MEMBERS[:1], weights=[3]), small)
add("voting-mixed", "steps", VotingRegressor(MIXED, weights=[1, 2, 3]), small)
add(
    "voting-nested",
    "affine",
    VotingRegressor([("inner", VotingRegressor(MEMBERS)), *MEMBERS], weights=[1, 2, 3, 4]),
    small,
)
add("voting-frame", "affine", VotingRegressor(MEMBERS), as_frame)
add("voting-std-dropped", "affine", VotingRegressor([("bayesian", BayesianRidge()), *MEMBERS]), small)
add("voting-then-ridge", "affine", make_pipeline(VotingRegressor(WITH_DROP), Ridge()), small)


# Stacking


@functools.cache
def fitted_members() -> list[tuple[str, Any]]:
    """Members fitted on `several_targets` that a clone keeps fitted, one on all of its targets."""
    X, y = several_targets()
    ridge, pls = Ridge().fit(X, y), PLSRegression(3).fit(X, y[:, 0])
    return [("ridge", FrozenEstimator(ridge)), ("out", "drop"), ("pls", FrozenEstimator(pls))]


def first_target() -> Data:
    X, y = several_targets()
    return X, y[:, 0]


add("stacking", "affine", StackingRegressor(MEMBERS, cv=3), small)
add("stacking-passthrough", "affine", StackingRegressor(MEMBERS, Ridge(), cv=3, passthrough=True), small)
add("stacking-drop", "affine", StackingRegressor(WITH_DROP, Ridge(), cv=3), small)
add("stacking-prefit", "affine", StackingRegressor(fitted_members(), Ridge(), cv="prefit"), first_target)
add(
    "stacking-prefit-passthrough",
    "affine",
    StackingRegressor(fitted_members(), Ridge(), cv="prefit", passthrough=True),
    first_target,
)
add("stacking-mixed", "steps", StackingRegressor(MIXED, POLYNOMIAL, cv=2, passthrough=True), small)
add("stacking-nested", "affine", StackingRegressor(MEMBERS, StackingRegressor(MEMBERS, cv=2), cv=2), small)
add("stacking-frame", "affine", StackingRegressor(MEMBERS, cv=2, passthrough=True), as_frame)
add("stacking-link", "link", StackingRegressor(MEMBERS[:2], PoissonRegressor(max_iter=5), cv=2), counts)
add("stacking-std-dropped", "affine", StackingRegressor(MEMBERS, BayesianRidge(), cv=2), small)
add("stacking-then-ridge", "affine", make_pipeline(StackingRegressor(MEMBERS, cv=2, passthrough=True), Ridge()), small)


# Bagging

add("bagging", "affine", BaggingRegressor(Ridge(), 5, random_state=0), small)
add("bagging-features", "affine", BaggingRegressor(Ridge(), 5, max_features=0.6, random_state=0), small)
add("bagging-features-again", "affine", BaggingRegressor(Ridge(), 5, bootstrap_features=True, random_state=0), small)
add(
    "bagging-without-bootstrap",
    "affine",
    BaggingRegressor(LinearRegression(), 3, max_samples=0.5, bootstrap=False, max_features=2, random_state=0),
    far_from_zero,
)
add("bagging-targets", "affine", BaggingRegressor(Ridge(), 3, max_features=4, random_state=0), several_targets)
add("bagging-polynomial", "steps", BaggingRegressor(POLYNOMIAL, 3, max_features=3, random_state=0), small)
add("bagging-frame", "affine", BaggingRegressor(Ridge(), 3, max_features=4, random_state=0), as_frame)
add("bagging-of-bagging", "affine", BaggingRegressor(BaggingRegressor(Ridge(), 2), 2, random_state=0), small)


add("bagging-trees", "steps", BaggingRegressor(n_estimators=4, random_state=0), several_targets)
add(
    "bagging-trees-features",
    "steps",
    BaggingRegressor(ExtraTreeRegressor(max_depth=4), 5, max_features=0.8, bootstrap_features=True, random_state=0),
    small,
)
add(
    "bagging-stumps",
    "steps",
    BaggingRegressor(DecisionTreeRegressor(max_depth=1), 3, max_features=1, random_state=0),
    small,
)
add(
    "bagging-constant",
    "steps",
    BaggingRegressor(DecisionTreeRegressor(min_samples_leaf=100), 3, random_state=0),
    small,
)


# Chains

SCALED = make_pipeline(StandardScaler(), Ridge())
for name, more in {
    "": {},
    "-order": {"order": [2, 0, 3, 1]},
    "-order-tuple": {"order": (3, 2, 1, 0)},
    "-random": {"order": "random", "random_state": 0},
    "-cv": {"order": [1, 3, 0, 2], "cv": 3},
}.items():
    add(f"chain{name}", "affine", RegressorChain(SCALED, **more), several_targets)
add("chain-polynomial", "steps", RegressorChain(POLYNOMIAL, order=[2, 1, 0]), linnerud)
add("chain-column-target", "affine", RegressorChain(Ridge()), column_target)


# Columns

SCALERS: list[tuple[str, Any, Any]] = [("a", StandardScaler(), [3, 1]), ("b", MinMaxScaler(), [0])]
COLUMNS: dict[str, ColumnTransformer] = {
    "dropped": ColumnTransformer(SCALERS),
    "passthrough": ColumnTransformer(SCALERS, remainder="passthrough"),
    "estimator": ColumnTransformer(SCALERS, remainder=make_pipeline(RobustScaler(), PCA(2))),
    "drop": ColumnTransformer([*SCALERS, ("c", "drop", [4])], remainder="passthrough"),
    "pass-some": ColumnTransformer([("c", "passthrough", [4, 0]), *SCALERS]),
    "negative": ColumnTransformer([("a", StandardScaler(), [-1, -3]), ("b", "passthrough", [0])]),
    "slices": ColumnTransformer([("a", StandardScaler(), slice(1, 4)), ("b", PCA(2), slice(0, None, 2))]),
    "mask": ColumnTransformer(
        [("a", StandardScaler(), [True, False, True, False, False]), ("b", "drop", np.arange(5) == 1)],
        remainder=MinMaxScaler(),
    ),
    "empty": ColumnTransformer(
        [
            ("c", StandardScaler(), []),
            ("d", PCA(2), np.zeros(5, dtype=bool)),
            ("e", "passthrough", slice(0, 0)),
            *SCALERS,
        ],
        remainder="passthrough",
    ),
    "again": ColumnTransformer([("a", StandardScaler(), [1, 1, 2]), ("b", "passthrough", [2, 1])]),
    "callable": ColumnTransformer([("a", StandardScaler(), lambda X: [2, 0])], remainder="passthrough"),
    "weights": ColumnTransformer(
        SCALERS, remainder="passthrough", transformer_weights={"a": 0.5, "b": 0, "remainder": 3.0}
    ),
    "nested": ColumnTransformer(
        [
            ("a", ColumnTransformer([("x", StandardScaler(), [1])], remainder="passthrough"), [4, 2, 0]),
            ("b", make_union(StandardScaler(), "passthrough"), [1, 3]),
        ]
    ),
}
for name, transformer in COLUMNS.items():
    add(f"columns-{name}", "affine", make_pipeline(transformer, Ridge()), small)
add("columns-polynomial", "steps", make_pipeline(COLUMNS["passthrough"], PolynomialFeatures(2), Ridge()), small)
add("columns-clip", "steps", make_pipeline(ColumnTransformer([("a", MinMaxScaler(clip=True), [1, 0])]), Ridge()), small)


@functools.cache
def named_columns() -> Data:
    """`small` as a DataFrame, one column of it whole numbers."""
    X, y = small()
    frame = pd.DataFrame(X, columns=["age", "size", "weight", "price", "rate"])
    return frame.assign(price=frame["price"].round().astype(int)), y


for name, transformer in {
    "names": ColumnTransformer([("a", StandardScaler(), ["price", "age"])], remainder="passthrough"),
    "name-slice": ColumnTransformer([("a", StandardScaler(), slice("size", "price"))], remainder=MinMaxScaler()),
    "name-selector": ColumnTransformer(
        [
            ("a", StandardScaler(), make_column_selector("e$")),
            ("b", "passthrough", make_column_selector(dtype_include=int)),
        ]
    ),
    "indices": ColumnTransformer([("a", StandardScaler(), [-1, 0])], remainder="passthrough"),
    "pandas": ColumnTransformer(
        [("a", StandardScaler(), ["price"])], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas"),
}.items():
    add(f"columns-frame-{name}", "affine", make_pipeline(transformer, Ridge()), named_columns)


# Unions

UNIONS: dict[str, FeatureUnion] = {
    "two": make_union(StandardScaler(), PCA(2)),
    "passthrough": FeatureUnion([("x", "passthrough"), ("out", "drop"), ("best", SelectKBest(f_regression, k=2))]),
    "drop": FeatureUnion([("out", "drop"), ("scaled", StandardScaler())]),
    "weights": FeatureUnion(
        [("scaled", StandardScaler()), ("pca", PCA(2)), ("x", "passthrough")],
        transformer_weights={"scaled": 10, "x": 0.1},
    ),
    "nested": make_union(
        make_union(StandardScaler(), PCA(3)), make_pipeline(MinMaxScaler(), "passthrough"), COLUMNS["mask"]
    ),
    "voting": FeatureUnion([("voting", VotingRegressor(MEMBERS)), ("scaled", StandardScaler())]),
    "stacking": FeatureUnion([("stacking", StackingRegressor(MEMBERS, cv=2)), ("rfe", RFE(Ridge()))]),
}
for name, union in UNIONS.items():
    add(f"union-{name}", "affine", make_pipeline(union, Ridge()), small)
add(
    "union-polynomial",
    "steps",
    make_pipeline(StandardScaler(), make_union(PCA(2), PolynomialFeatures(2)), Ridge()),
    small,
)
add("union-pandas", "affine", make_pipeline(UNIONS["two"], Ridge()).set_output(transform="pandas"), as_frame)


# Wrappers of one estimator

X, y = small()
FROZEN_SCALER = FrozenEstimator(StandardScaler().fit(X))
FROZEN_PLS = FrozenEstimator(PLSRegression(2).fit(X, y))
add("frozen", "affine", FrozenEstimator(Ridge().fit(X, y)), small)
add("frozen-step", "affine", make_pipeline(FROZEN_SCALER, Ridge()), small)
add(
    "frozen-scores",
    "affine",
    make_pipeline(FROZEN_PLS, FrozenEstimator(Ridge().fit(FROZEN_PLS.transform(X), y))),
    small,
)
add("frozen-std", "std", FrozenEstimator(BayesianRidge().fit(X, y)), small)
add(
    "frozen-target",
    "affine",
    TransformedTargetRegressor(Ridge(), transformer=make_pipeline(FrozenEstimator(StandardScaler().fit(y[:, None])))),
    small,
)
add("rfe", "affine", RFE(Ridge(), n_features_to_select=2), small)
add(
    "rfecv",
    "affine",
    RFECV(make_pipeline(StandardScaler(), Ridge()), cv=2, importance_getter="named_steps.ridge.coef_"),
    small,
)
add("rfe-last", "affine", make_pipeline(StandardScaler(), RFE(Lasso(0.1), n_features_to_select=3)), small)
add("search-transformer", "affine", make_pipeline(GridSearchCV(PCA(), {"n_components": [2, 3]}, cv=2), Ridge()), small)
add(
    "search-voting",
    "affine",
    GridSearchCV(VotingRegressor(MEMBERS), {"ridge__alpha": [0.1, 1.0], "linear": ["drop", LinearRegression()]}, cv=2),
    small,
)
add("ransac-of-pipeline", "affine", RANSACRegressor(SCALED, min_samples=20, random_state=0), small)
add("ransac-of-voting", "affine", RANSACRegressor(VotingRegressor(MEMBERS), min_samples=20, random_state=0), small)
add("ransac-of-targets", "affine", RANSACRegressor(SCALED, min_samples=20, random_state=0), several_targets)
add(
    "target-voting", "affine", TransformedTargetRegressor(VotingRegressor(MEMBERS), transformer=StandardScaler()), small
)
add(
    "targets-chain",
    "affine",
    TransformedTargetRegressor(RegressorChain(SCALED), transformer=MinMaxScaler()),
    several_targets,
)
add(
    "targets-column",
    "affine",
    TransformedTargetRegressor(SCALED, transformer=make_pipeline(StandardScaler(), FunctionTransformer())),
    column_target,
)


def constant_target() -> Data:
    X, y = several_targets()
    return X, np.column_stack([y[:, :2], np.zeros(len(y)), y[:, 2:]])


add(
    "targets-selection",
    "affine",
    TransformedTargetRegressor(SCALED, transformer=VarianceThreshold(), check_inverse=False),
    constant_target,
)
add(
    "pandas",
    "affine",
    Pipeline([("scale", StandardScaler()), ("pca", PCA(3)), ("ridge", Ridge())]).set_output(transform="pandas"),
    small,
)
for name, limits in {
    "both": {"a_min": -1, "a_max": 1.5},
    "low": {"min": 0.0, "max": None},
    "high": {"a_min": None, "a_max": 2},
}.items():
    add(
        f"function-clip-{name}",
        "steps",
        make_pipeline(StandardScaler(), FunctionTransformer(np.clip, kw_args=limits), Ridge()),
        small,
    )
add(
    "target-clip",
    "steps",
    TransformedTargetRegressor(
        SCALED,
        transformer=FunctionTransformer(None, np.clip, inv_kw_args={"a_min": 0, "a_max": 9}),
        check_inverse=False,
    ),
    small,
)
