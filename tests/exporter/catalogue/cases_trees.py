"""Cases of the tree family: single trees, forests, boosting, embeddings."""

import functools

import numpy as np
import pandas as pd
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    Data,
    counts,
    far_from_zero,
    in_float32,
    linnerud,
    positive_counts,
    several_targets,
    small,
)


@functools.cache
def with_categories() -> Data:
    """160 × 4: a number, a category from −2 to 9, fractions as categories, a number."""
    rng = np.random.default_rng(6)
    kind, share = rng.integers(-2, 10, 160), rng.integers(0, 6, 160) / 4
    X = np.column_stack([rng.standard_normal(160), kind, share, 3 * rng.standard_normal(160)])
    return X, X[:, 0] + np.sin(3.0 * kind) + 2 * np.cos(9 * share) + 0.1 * X[:, 3] ** 2


def category_frame() -> Data:
    """The same as a DataFrame whose categorical columns say so."""
    X, y = with_categories()
    frame = pd.DataFrame(X, columns=["size", "kind", "share", "weight"])
    return frame.astype({"kind": "category", "share": "category"}), y


def one_feature() -> Data:
    X, y = small()
    return X[:, :1], y


def constant_target() -> Data:
    X, y = small()
    return X, np.full(len(y), 3.5)


def one_row() -> Data:
    X, y = small()
    return X[:1], y[:1]


def huge_and_tiny() -> Data:
    """Features of very different magnitudes and a target around 1e12."""
    X, y = small()
    return X * [1e-30, 1e30, 1, 1e-6, 1e6], 1e12 + 1e10 * y


TREES = {
    "default": {},
    "stump": {"max_depth": 1},
    "absolute": {"criterion": "absolute_error", "max_depth": 4},
    "random": {"splitter": "random", "max_features": 2},
    "leaf-nodes": {"max_leaf_nodes": 9},
    "pruned": {"ccp_alpha": 0.5},
    "monotonic": {"monotonic_cst": [1, 0, -1, 0, 0], "max_depth": 5},
}
for name, options in TREES.items():
    add(f"tree-{name}", "steps", DecisionTreeRegressor(random_state=0, **options), small)
add("tree-poisson", "steps", DecisionTreeRegressor(criterion="poisson", max_depth=4), positive_counts)
for name, data in {
    "targets": several_targets,
    "one-feature": one_feature,
    "constant": constant_target,
    "one-row": one_row,
    "far": far_from_zero,
    "magnitudes": huge_and_tiny,
    "float32": in_float32(small),
}.items():
    add(f"tree-on-{name}", "steps", DecisionTreeRegressor(random_state=0), data)
add("tree-scaled", "steps", make_pipeline(StandardScaler(), DecisionTreeRegressor(random_state=0)), small)
add("extra-tree", "steps", ExtraTreeRegressor(random_state=0), small)
add("extra-tree-best", "steps", ExtraTreeRegressor(splitter="best", random_state=0), linnerud)

FORESTS = {
    "default": {},
    "absolute": {"criterion": "absolute_error", "max_depth": 3},
    "features": {"max_features": 0.5, "max_samples": 0.7},
    "whole": {"bootstrap": False, "max_features": 2, "max_leaf_nodes": 12},
    "monotonic": {"monotonic_cst": [1, 0, -1, 0, 0], "max_depth": 4},
}
for name, options in FORESTS.items():
    add(f"forest-{name}", "steps", RandomForestRegressor(8, random_state=0, **options), small)
add("forest-poisson", "steps", RandomForestRegressor(8, criterion="poisson", random_state=0), counts)
add("forest-targets", "steps", RandomForestRegressor(8, random_state=0), several_targets)
add("forest-constant", "steps", RandomForestRegressor(3, random_state=0), constant_target)
add("forest-magnitudes", "steps", RandomForestRegressor(8, random_state=0), huge_and_tiny)
add("forest-scaled", "steps", make_pipeline(StandardScaler(), RandomForestRegressor(8, random_state=0)), far_from_zero)
add("extra-trees", "steps", ExtraTreesRegressor(8, random_state=0), small)
add("extra-trees-targets", "steps", ExtraTreesRegressor(5, bootstrap=True, random_state=0), linnerud)
add(
    "forest-polynomial",
    "steps",
    make_pipeline(PolynomialFeatures(2), RandomForestRegressor(5, max_depth=4, random_state=0)),
    small,
)

GRADIENT = {
    "default": {},
    "absolute": {"loss": "absolute_error"},
    "huber": {"loss": "huber", "alpha": 0.8},
    "quantile": {"loss": "quantile", "alpha": 0.3},
    "zero": {"init": "zero", "learning_rate": 0.5},
    "dummy": {"init": DummyRegressor(strategy="median")},
    "linear": {"init": HuberRegressor()},
    "tree": {"init": DecisionTreeRegressor(max_depth=2)},
    "early": {"n_iter_no_change": 2, "validation_fraction": 0.3, "subsample": 0.5, "max_features": 2},
}
for name, options in GRADIENT.items():
    add(f"gradient-{name}", "steps", GradientBoostingRegressor(n_estimators=12, random_state=0, **options), small)
for name, init in {"linear": HuberRegressor(), "tree": DecisionTreeRegressor(max_depth=3)}.items():
    boosting = GradientBoostingRegressor(n_estimators=9, init=init, random_state=0)
    add(f"gradient-{name}-scaled", "steps", make_pipeline(StandardScaler(), boosting), far_from_zero)

HIST = {
    "default": {},
    "absolute": {"loss": "absolute_error"},
    "quantile": {"loss": "quantile", "quantile": 0.2, "max_leaf_nodes": 5},
    "options": {"max_bins": 12, "l2_regularization": 1.0, "max_depth": 3, "interaction_cst": "pairwise"},
    "early": {"early_stopping": True, "n_iter_no_change": 2, "learning_rate": 0.8},
    "monotonic": {"monotonic_cst": [1, 0, -1, 0, 0]},
}
for name, options in HIST.items():
    add(f"hist-{name}", "steps", HistGradientBoostingRegressor(max_iter=9, random_state=0, **options), small)
for loss, data in {"poisson": counts, "gamma": positive_counts}.items():
    add(f"hist-{loss}", "steps", HistGradientBoostingRegressor(max_iter=9, loss=loss), data)
categorical = HistGradientBoostingRegressor(max_iter=9, categorical_features=[2, 1], min_samples_leaf=5)
add("hist-categories", "steps", categorical, with_categories)
masked = HistGradientBoostingRegressor(max_iter=9, categorical_features=[False, True, True, False])
add("hist-categories-mask", "steps", masked, with_categories)
add(
    "hist-category-frame",
    "steps",
    HistGradientBoostingRegressor(max_iter=9, min_samples_leaf=5, loss="absolute_error"),
    category_frame,
)
add("hist-scaled", "steps", make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=9)), far_from_zero)
add("hist-one-feature", "steps", HistGradientBoostingRegressor(max_iter=9), one_feature)

ADA = {
    "default": AdaBoostRegressor(n_estimators=9, random_state=0),
    "square": AdaBoostRegressor(n_estimators=6, loss="square", learning_rate=0.5, random_state=0),
    "exponential": AdaBoostRegressor(
        ExtraTreeRegressor(max_depth=4), n_estimators=6, loss="exponential", random_state=0
    ),
    "linear": AdaBoostRegressor(LinearRegression(), n_estimators=5, random_state=0),
    "pipeline": AdaBoostRegressor(make_pipeline(StandardScaler(), Ridge(0.1)), n_estimators=4, random_state=0),
    "forest": AdaBoostRegressor(RandomForestRegressor(3, max_depth=3), n_estimators=4, random_state=0),
}
for name, estimator in ADA.items():
    add(f"ada-{name}", "steps", estimator, small)
add("ada-one", "steps", AdaBoostRegressor(DecisionTreeRegressor(), random_state=0), constant_target)

for name, embedding in {
    "default": RandomTreesEmbedding(5, random_state=0),
    "dense": RandomTreesEmbedding(5, max_depth=3, sparse_output=False, random_state=0),
    "leaf-nodes": RandomTreesEmbedding(3, max_leaf_nodes=6, min_samples_leaf=4, random_state=0),
}.items():
    add(f"embedding-{name}", "steps", make_pipeline(embedding, Ridge()), small)
