"""Small fleets for tests: rows of shops, and models of several kinds fitted on each shop's own rows."""

from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import Lasso, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, PowerTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

COLUMNS = [f"x{column}" for column in range(6)]


def rows(shop: int, count: int = 60) -> pd.DataFrame:
    """Return rows of a shop, whose scale and place are its own."""
    rng = np.random.default_rng(shop)
    return pd.DataFrame(rng.standard_normal((count, len(COLUMNS))) * (1 + shop) + shop, columns=COLUMNS)


def target(X: pd.DataFrame, shop: int) -> np.ndarray:
    """Return a target, which depends on the shop."""
    found: np.ndarray = np.asarray(X @ np.random.default_rng(1000 + shop).standard_normal(X.shape[1]))
    return found + np.sin(3 * X.iloc[:, 0].to_numpy())


def ridges(count: int) -> dict[str, Any]:
    """Return pipelines of a scaler and a Ridge by the names of shops."""
    return {
        f"shop-{shop}": make_pipeline(StandardScaler(), Ridge()).fit(rows(shop), target(rows(shop), shop))
        for shop in range(count)
    }


def mixed() -> dict[str, Any]:
    """Return models of several kinds by the names of shops; two take NaN."""
    models = [
        make_pipeline(StandardScaler(), Ridge()),
        RandomForestRegressor(4, max_depth=4, random_state=0),
        make_pipeline(StandardScaler(), Ridge(2.0)),
        HistGradientBoostingRegressor(max_iter=5),
        make_pipeline(StandardScaler(), SVR()),
        HistGradientBoostingRegressor(max_iter=7, max_leaf_nodes=5),
        KNeighborsRegressor(3),
        Lasso(5.0),
    ]
    return {f"shop-{shop}": model.fit(rows(shop), target(rows(shop), shop)) for shop, model in enumerate(models)}


def sums_over_points(count: int) -> dict[str, Any]:
    """Return pipelines of a scaler and an SVR, with other numbers of support vectors, by the names of shops."""
    models = {}
    for shop in range(count):
        X = rows(shop, 60 + 40 * shop)
        models[f"shop-{shop}"] = make_pipeline(StandardScaler(), SVR(C=3.0 + shop)).fit(X, target(X, shop))
    return models


def polynomials(count: int, degree: int) -> dict[str, Any]:
    """Return pipelines of a scaler, polynomials and a Ridge by the names of shops."""
    return {
        f"shop-{shop}": make_pipeline(StandardScaler(), PolynomialFeatures(degree), Ridge()).fit(
            rows(shop), target(rows(shop), shop)
        )
        for shop in range(count)
    }


def single_trees(count: int) -> dict[str, Any]:
    """Return decision trees of other depths by the names of shops."""
    return {
        f"shop-{shop}": DecisionTreeRegressor(max_depth=2 + shop).fit(rows(shop), target(rows(shop), shop))
        for shop in range(count)
    }


def linear_leaves(count: int) -> dict[str, Any]:
    """Return boosted trees with linear leaves, in other numbers, by the names of shops."""
    options = {"min_child_samples": 5, "verbose": -1, "n_jobs": 1, "linear_tree": True}
    return {
        f"shop-{shop}": LGBMRegressor(n_estimators=3 + 2 * shop, **options).fit(rows(shop), target(rows(shop), shop))
        for shop in range(count)
    }


def networks(count: int) -> dict[str, Any]:
    """Return pipelines of a scaler and a network by the names of shops; exports compute them in several precisions."""
    return {
        f"shop-{shop}": make_pipeline(
            StandardScaler(), MLPRegressor(hidden_layer_sizes=(9, 5), solver="lbfgs", tol=0.5, random_state=shop)
        ).fit(rows(shop), target(rows(shop), shop))
        for shop in range(count)
    }


def powers(count: int) -> dict[str, Any]:
    """Return SVRs of polynomials, whose targets are raised to powers, by the names of shops."""
    own = make_pipeline(StandardScaler(), PolynomialFeatures(2), SVR())
    model = TransformedTargetRegressor(own, transformer=PowerTransformer())
    return {f"shop-{shop}": clone(model).fit(rows(shop), target(rows(shop), shop)) for shop in range(count)}


def gaussian_processes(count: int) -> dict[str, Any]:
    """Return Gaussian processes of other numbers of rows, which answer a standard deviation, by the names of shops."""
    models = {}
    for shop in range(count):
        X, kernel = rows(shop, 40 + 9 * shop), ConstantKernel(2.0) * RBF(4.0 + shop / 9) + WhiteKernel(0.1)
        models[f"shop-{shop}"] = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True).fit(
            X, target(X, shop)
        )
    return models


def nearest(count: int) -> dict[str, Any]:
    """Return regressors by the nearest of other numbers of points by the names of shops."""
    models = {}
    for shop in range(count):
        X = rows(shop, 40 + 30 * shop)
        models[f"shop-{shop}"] = KNeighborsRegressor(3, weights="distance").fit(X, target(X, shop))
    return models


def samples(models: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the rows of each model."""
    return {name: rows(int(name.removeprefix("shop-"))) for name in models}


def table(models: dict[str, Any], count: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return rows of drawn models, in any order, with their ids in the column `shop`."""
    drawn = np.random.default_rng(seed).choice(list(models), count)
    of_shops = {name: rows(int(name.removeprefix("shop-")), count) for name in models}
    found = pd.concat([of_shops[name].iloc[[row]] for row, name in enumerate(drawn)])
    return found.assign(shop=drawn).reset_index(drop=True)
