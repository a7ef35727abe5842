"""The models that are measured: fitted scikit-learn estimators on made-up data, their plans and their ONNX graphs."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import ElasticNet, LinearRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.plan.plan import Plan

FIT_ROWS = 4000

DTYPES = {"fp32": "float32", "fp64": "float64"}
"""The types of an entry's input numbers, as `export` names them, and the dtypes of rows."""


TEN_KINDS: tuple[Callable[[], Any], ...] = (
    Ridge,
    LinearRegression,
    lambda: ElasticNet(alpha=0.01),
    lambda: HistGradientBoostingRegressor(max_iter=50),
    lambda: RandomForestRegressor(n_estimators=20, max_depth=8),
    lambda: ExtraTreesRegressor(n_estimators=20, max_depth=8),
    lambda: DecisionTreeRegressor(max_depth=8),
    SVR,
    lambda: KNeighborsRegressor(5),
    lambda: MLPRegressor(hidden_layer_sizes=(16,), max_iter=50),
)
"""Estimators of ten kinds that predict one number, of which fleets hold many."""


@dataclass(frozen=True)
class Model:
    """A model under measurement: `make` returns an unfitted estimator, which predicts `targets` columns.

    The fitted estimator, its plans and its graph are kept once made, in a pickle too if `make` can be pickled.
    """

    name: str
    title: str
    n_features: int
    make: Callable[[], Any]
    targets: int = 1
    counts: bool = False
    fit_rows: int = FIT_ROWS

    @cached_property
    def estimator(self) -> Any:
        """The estimator, fitted on made-up data."""
        X = self.rows(self.fit_rows, seed=1).astype(np.float32).astype(np.float64)
        rng = np.random.default_rng(2)
        z = (X - X.mean(axis=0)) / X.std(axis=0)
        signal = z @ rng.standard_normal((self.n_features, self.targets)) / np.sqrt(self.n_features)
        signal += 0.3 * z[:, :1] * z[:, -1:] + 0.1 * rng.standard_normal(signal.shape)
        y: np.ndarray = rng.poisson(np.exp(0.5 * signal)).astype(np.float64) if self.counts else 5 + signal
        with threadpool_limits(1):  # on a busy machine, threads that wait for each other take minutes
            return self.make().fit(X, y if self.targets > 1 else y[:, 0])

    def sample(self, input: str = "fp32") -> np.ndarray:
        """Return rows to verify an entry on, for numbers in "fp32" or "fp64"."""
        return self.rows(1024, seed=3).astype(DTYPES[input])

    def plan(self, input: str = "fp32") -> Plan:
        """Compile for "fp32" or "fp64"; parity with the estimator is measured and required."""
        if input not in self._plans:
            compilation = compile_estimator(self.estimator, sample=self.sample(input), input=input)
            parity = compilation.report.outputs["y"]
            if not parity.within(compilation.report.tolerance):
                raise ValueError(f"The plan of {self.name} is {parity.max_error:.1e} standard deviations off.")
            self._plans[input] = compilation.plan
        return self._plans[input]

    @cached_property
    def _plans(self) -> dict[str, Plan]:
        return {}

    @cached_property
    def onnx(self) -> bytes | str:
        """The estimator as skl2onnx converts it, neighbours and Gaussian processes the fast way; or why it cannot."""
        options = {kind: {"optim": "cdist"} for kind in (KNeighborsRegressor, GaussianProcessRegressor)}
        own = {kind: option for kind, option in options.items() if isinstance(self.estimator, kind)}
        try:
            with warnings.catch_warnings(), _booleans_as_integers():
                warnings.simplefilter("ignore")
                convert = importlib.import_module("skl2onnx").to_onnx
                rows = self.rows(1, seed=0).astype(np.float32)
                graph: bytes = convert(self.estimator, rows, options=own or None).SerializeToString()
        except Exception as error:  # of the converter's own types
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return graph

    def rows(self, count: int, seed: int) -> np.ndarray:
        """Return float64 rows `[count, n_features]` whose features lie at various places and scales."""
        rng = np.random.default_rng(0)
        location, scale = rng.uniform(-2, 2, self.n_features), rng.uniform(0.5, 2, self.n_features)
        X = np.random.default_rng(seed).standard_normal((count, self.n_features), dtype=np.float32)
        rows: np.ndarray = location + scale * X
        return rows


@contextlib.contextmanager
def _booleans_as_integers() -> Iterator[None]:
    """Let skl2onnx write booleans among whole numbers, as it does for HistGradientBoosting: protobuf 7 refuses them."""
    helper = importlib.import_module("onnx.helper")
    make = helper.make_attribute

    def make_attribute(key: str, value: Any, *others: Any, **options: Any) -> Any:
        if isinstance(value, list) and any(isinstance(element, bool | np.bool_) for element in value):
            value = [int(element) for element in value]
        return make(key, value, *others, **options)

    with mock.patch.object(helper, "make_attribute", make_attribute):
        yield


def _polynomial(degree: int) -> Callable[[], Any]:
    return lambda: make_pipeline(StandardScaler(), PolynomialFeatures(degree), Ridge())


MODELS = (
    Model("ridge", "Ridge, 64 features", 64, Ridge),
    Model(
        "scaled_pca_ridge",
        "StandardScaler + PCA(16) + Ridge, 64 features",
        64,
        lambda: make_pipeline(StandardScaler(), PCA(16), Ridge()),
    ),
    Model("polynomial_2", "StandardScaler + PolynomialFeatures(2) + Ridge, 32 features", 32, _polynomial(2)),
    Model("polynomial_3", "StandardScaler + PolynomialFeatures(3) + Ridge, 10 features", 10, _polynomial(3)),
    Model("poisson", "PoissonRegressor, 64 features", 64, lambda: PoissonRegressor(alpha=1e-3), counts=True),
    Model("boosting", "HistGradientBoostingRegressor, 64 features", 64, HistGradientBoostingRegressor),
    Model(
        "scaled_forest",
        "StandardScaler + RandomForestRegressor, depth 10, 64 features",
        64,
        lambda: make_pipeline(
            StandardScaler(), RandomForestRegressor(max_depth=10, max_features=1 / 3, random_state=0)
        ),
    ),
)


def _sized(family: str, title: str, *sizes: tuple[str, int, Callable[[], Any], int]) -> tuple[Model, ...]:
    """Return models of one family; a size is words for the title, features, the estimator's maker, rows to fit on."""
    return tuple(
        Model(f"{family}_{size}", f"{title}, {words}", n_features, make, fit_rows=fit_rows)
        for size, (words, n_features, make, fit_rows) in zip(SIZES, sizes, strict=True)
    )


def _quadratic() -> Any:
    return make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())


def _svr(features: int) -> Callable[[], Any]:
    return partial(SVR, gamma=0.5 / features, epsilon=0.01)


def _process(features: int) -> Callable[[], Any]:
    return partial(_gaussian_process, features)


def _gaussian_process(features: int) -> Any:
    return GaussianProcessRegressor(RBF(features**0.5) + WhiteKernel(0.1), optimizer=None, normalize_y=True)


def _forest(trees: int, depth: int) -> Callable[[], Any]:
    return partial(RandomForestRegressor, trees, max_depth=depth, max_features=1 / 3, random_state=0)


def _boosting(iterations: int, leaves: int) -> Callable[[], Any]:
    return partial(
        HistGradientBoostingRegressor, max_iter=iterations, max_leaf_nodes=leaves, early_stopping=False, random_state=0
    )


def _network(*widths: int) -> Callable[[], Any]:
    return partial(MLPRegressor, hidden_layer_sizes=widths, max_iter=8, random_state=0)


SIZES = ("small", "medium", "large")

FAMILIES: dict[str, tuple[str, tuple[Model, ...]]] = {
    family: (title, _sized(family, title, *sizes))
    for family, title, *sizes in (
        (
            "linear",
            "Ridge",
            ("8 features", 8, Ridge, FIT_ROWS),
            ("64 features", 64, Ridge, FIT_ROWS),
            ("512 features", 512, Ridge, FIT_ROWS),
        ),
        (
            "degree_2",
            "Degree 2 + Ridge",
            ("8 features", 8, _quadratic, FIT_ROWS),
            ("32 features", 32, _quadratic, FIT_ROWS),
            ("64 features", 64, _quadratic, FIT_ROWS),
        ),
        (
            "svr",
            "SVR",
            ("400 points × 8", 8, _svr(8), 400),
            ("2,000 points × 32", 32, _svr(32), 2000),
            ("5,000 points × 64", 64, _svr(64), 5000),
        ),
        (
            "gaussian_process",
            "Gaussian process",
            ("400 points × 8", 8, _process(8), 400),
            ("1,500 points × 16", 16, _process(16), 1500),
            ("4,000 points × 32", 32, _process(32), 4000),
        ),
        (
            "neighbors",
            "5 nearest neighbours",
            ("1,000 points × 8", 8, KNeighborsRegressor, 1000),
            ("10,000 points × 32", 32, KNeighborsRegressor, 10_000),
            ("100,000 points × 32", 32, KNeighborsRegressor, 100_000),
        ),
        (
            "forest",
            "Random forest",
            ("20 trees, depth 6", 16, _forest(20, 6), FIT_ROWS),
            ("100 trees, depth 10", 64, _forest(100, 10), FIT_ROWS),
            ("200 trees, depth 12", 64, _forest(200, 12), FIT_ROWS),
        ),
        (
            "boosting",
            "HistGradientBoosting",
            ("50 × 15 leaves", 16, _boosting(50, 15), FIT_ROWS),
            ("200 × 31 leaves", 64, _boosting(200, 31), FIT_ROWS),
            ("500 × 63 leaves", 64, _boosting(500, 63), 8000),
        ),
        (
            "network",
            "Neural network",
            ("16-32-1", 16, _network(32), FIT_ROWS),
            ("32-128-128-1", 32, _network(128, 128), FIT_ROWS),
            ("64-256-256-256-1", 64, _network(256, 256, 256), FIT_ROWS),
        ),
    )
}
"""Each family's title, and its models in the order of `SIZES`."""


def model(name: str) -> Model:
    """Return the model of that name."""
    sized = [found for _, models in FAMILIES.values() for found in models]
    return next(found for found in (*MODELS, *sized) if found.name == name)
