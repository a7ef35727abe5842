"""The models that are measured: fitted scikit-learn estimators on made-up data, and their compiled plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

from triton_regressors.exporter.compiler import compile_estimator
from triton_regressors.kernels.plan import Plan

FIT_ROWS = 4000

DTYPES = {"fp32": "float32", "fp64": "float64"}
"""What an entry's numbers come in, as `export` names it, and the dtype of rows."""


@dataclass(frozen=True)
class Model:
    """A model under measurement: `make` is an unfitted estimator, `targets` how many columns it predicts."""

    name: str
    title: str
    n_features: int
    make: Callable[[], Any]
    targets: int = 1
    counts: bool = False

    @cached_property
    def estimator(self) -> Any:
        """The estimator, fitted on made-up data."""
        X = self.rows(FIT_ROWS, seed=1).astype(np.float32).astype(np.float64)
        rng = np.random.default_rng(2)
        z = (X - X.mean(axis=0)) / X.std(axis=0)
        signal = z @ rng.standard_normal((self.n_features, self.targets)) / np.sqrt(self.n_features)
        signal += 0.3 * z[:, :1] * z[:, -1:] + 0.1 * rng.standard_normal(signal.shape)
        y: np.ndarray = rng.poisson(np.exp(0.5 * signal)).astype(np.float64) if self.counts else 5 + signal
        with threadpool_limits(1):  # on a busy machine, threads that wait for each other take minutes
            return self.make().fit(X, y if self.targets > 1 else y[:, 0])

    def sample(self, input: str = "fp32") -> np.ndarray:
        """Return rows to verify an entry on whose numbers come in that type, "fp32" or "fp64"."""
        return self.rows(1024, seed=3).astype(DTYPES[input])

    def plan(self, input: str = "fp32") -> Plan:
        """Compile for "fp32" or "fp64"; the parity with the estimator is measured, and demanded, on the way."""
        compilation = compile_estimator(self.estimator, sample=self.sample(input), input=input)
        parity = compilation.report.outputs["y"]
        if not parity.within(compilation.report.tolerance):
            raise ValueError(f"The plan of {self.name} is {parity.max_error:.1e} standard deviations off.")
        return compilation.plan

    def rows(self, count: int, seed: int) -> np.ndarray:
        """Return float64 rows `[count, n_features]` whose features lie at various places and scales."""
        rng = np.random.default_rng(0)
        location, scale = rng.uniform(-2, 2, self.n_features), rng.uniform(0.5, 2, self.n_features)
        X = np.random.default_rng(seed).standard_normal((count, self.n_features), dtype=np.float32)
        rows: np.ndarray = location + scale * X
        return rows


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


def model(name: str) -> Model:
    """Return the model of that name."""
    return next(found for found in MODELS if found.name == name)
