"""The models that the tests of this folder serve: small fitted estimators, their rows, and scikit-learn's answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from tests.documents import document_of
from triton_regressors import export
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.publish.config import ServingOptions
from triton_regressors.exporter.publish.repository import publish
from triton_regressors.kernels.entry import Golden
from triton_regressors.kernels.format.parity import units
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

FEATURES = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4"]
MAX_ROWS = 1000

ROUNDING = 1e-10
"""The allowed error of an affine answer beyond one float32 ulp, in standard deviations: float64's own."""

TOLERANCE = 1e-5
"""The allowed error of every other answer, in the same units."""

KERNELS = "triton" if torch.cuda.is_available() else "interpret"
"""The engine that runs kernels here. The Triton language's interpreter does not run beside every NumPy that its
compiler runs beside (3.6 does not beside NumPy 2.5), so a machine with a GPU compiles them."""


@dataclass(frozen=True)
class Model:
    """A fitted estimator and its entry. `excess` is the most that `parity.measure` may find for each output."""

    name: str
    estimator: Any
    excess: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)

    def export(self, repository: Path) -> Path:
        """Write the next version and return the entry's directory."""
        options = {"max_batch_size": MAX_ROWS, **self.options}
        return export(self.estimator, repository, name=self.name, **options).entry.directory

    def expected(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Return scikit-learn's float64 answers `[rows, width]` for each output."""
        X = X.astype(np.float64)
        if hasattr(self.estimator, "feature_names_in_"):
            X = pd.DataFrame(X, columns=self.estimator.feature_names_in_)
        if "std" in self.excess:
            y, std = self.estimator.predict(X, return_std=True)
            return {"y": y.reshape(len(X), -1), "std": np.asarray(std).reshape(len(X), -1)}
        return {"y": self.estimator.predict(X).reshape(len(X), -1)}

    @cached_property
    def units(self) -> dict[str, np.ndarray]:
        """The standard deviation of each output's columns over many rows."""
        return {name: units(values) for name, values in self.expected(rows(300)).items()}


def rows(count: int, seed: int = 0) -> np.ndarray:
    """Return float32 rows `[count, 8]`, each column on its own scale and some distance from zero."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, len(FEATURES))) * np.geomspace(0.1, 10, len(FEATURES)) + np.arange(len(FEATURES))
    return X.astype(np.float32)


def ridge(seed: int = 0) -> Ridge:
    """Return a Ridge whose coefficients depend on the seed."""
    X = rows(200, seed)
    return Ridge().fit(X, X @ np.random.default_rng(seed).normal(size=X.shape[1]) + 10 * seed)


@cache
def models() -> dict[str, Model]:
    """Return the models that one server serves for all tests of the folder, by name."""
    X = rows(300)
    named = pd.DataFrame(X, columns=FEATURES)
    random = np.random.default_rng(1)
    y = X @ random.normal(size=X.shape[1]) + random.normal(size=len(X)) + 50
    many = X @ random.normal(size=(X.shape[1], 3)) + random.normal(size=(len(X), 3))
    affine, uncertain = {"y": ROUNDING}, {"y": ROUNDING, "std": TOLERANCE}
    together = {"preferred_batch_sizes": (8,), "max_queue_delay_us": 3_000_000, "max_batch_size": 16}
    found = [
        Model("ridge", Ridge().fit(X, y), affine),
        Model("bayes", BayesianRidge().fit(X, y), uncertain),
        Model("poly", make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()).fit(X, y), {"y": TOLERANCE}),
        Model("poisson", make_pipeline(StandardScaler(), PoissonRegressor()).fit(X, np.abs(y)), {"y": TOLERANCE}),
        Model("multi", LinearRegression().fit(X, many), affine),
        Model("gathered", BayesianRidge().fit(named, y), uncertain, together),
        Model("gathered_kernels", BayesianRidge().fit(named, y), uncertain, {**together, "engine": KERNELS}),
    ]
    return {model.name: model for model in found}


def export_families(repository: Path, name: str, families: tuple[str, ...], engine: str) -> None:
    """Write the plans of several models side by side into one entry, an output for each, to load them all at once."""
    steps: list[Step] = []
    outputs: dict[str, str] = {}
    X = rows(16)
    answers: dict[str, np.ndarray] = {}
    for family in families:
        model = models()[family]
        plan = compile_estimator(model.estimator).plan
        prefix = {INPUT: INPUT, **{step.output: f"{family}.{step.output}" for step in plan.steps}}
        steps += [Step(s.operation, tuple(prefix[name] for name in s.inputs), prefix[s.output]) for s in plan.steps]
        outputs[family] = prefix[plan.outputs["y"]]
        answers[family] = model.expected(X)["y"]
    options = ServingOptions(max_batch_size=MAX_ROWS, engine=engine)
    plan = Plan(len(FEATURES), tuple(steps), outputs)
    publish(repository, name, plan, Golden(X, answers), document_of(plan), options)
