"""A prediction interval from the real Triton server: its ends in their order, and the same bits in every batch."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.server.conftest import Unload
from tests.server.models import models, rows
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.verify import verify

pytestmark = pytest.mark.server

CALIBRATION = rows(100, seed=5)
LEVEL = 0.8


def targets() -> np.ndarray:
    """Return targets some distance from the model's answers to the calibration rows."""
    answers = models()["bayes"].expected(CALIBRATION)
    noise = np.random.default_rng(6).standard_normal((len(CALIBRATION), 1))
    found: np.ndarray = answers["y"] + 2 * answers["std"] * noise
    return found


@pytest.fixture(scope="module")
def calibrated(repository: Path, client: Client, unload: Unload) -> Iterator[str]:
    """The name of a served model whose interval is scaled by its standard deviation."""
    name = "bayes_calibrated"
    export(models()["bayes"].estimator, repository, name=name, calibrate=(CALIBRATION, targets()), level=LEVEL)
    client.load(name)
    yield name
    unload(name)


@pytest.fixture(scope="module")
def quantiles(
    repository: Path, client: Client, unload: Unload
) -> Iterator[tuple[str, QuantileRegressor, QuantileRegressor]]:
    """The name of a served model whose interval comes from two quantile models, and these models."""
    name, (X, y) = "bayes_quantiles", (rows(200, seed=8), rows(200, seed=9)[:, 0])
    low, high = (QuantileRegressor(quantile=quantile, alpha=1e-3).fit(X, y) for quantile in (0.1, 0.9))
    options = {"quantiles": (low, high), "calibrate": (CALIBRATION, targets()), "level": LEVEL}
    export(models()["bayes"].estimator, repository, name=name, **options)
    client.load(name)
    yield name, low, high
    unload(name)


def test_the_ends_are_asked_for_like_any_output(either: Client, calibrated: str) -> None:
    X = rows(300, seed=7)
    own = models()["bayes"].expected(CALIBRATION)
    scores = np.sort(np.abs(targets() - own["y"]) / own["std"], axis=0)
    answers = models()["bayes"].expected(X)
    half = scores[80] * answers["std"]  # ⌈101 · 0.8⌉ = 81
    found = either.infer(calibrated, X, outputs=("y", "lower", "upper"))
    np.testing.assert_allclose(found["lower"], answers["y"] - half, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found["upper"], answers["y"] + half, rtol=1e-6, atol=1e-5)
    assert (found["lower"] <= found["y"]).all()
    assert (found["y"] <= found["upper"]).all()
    assert either.predict(calibrated, X).tobytes() == found["y"].tobytes()

    parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 60)
    with ThreadPoolExecutor(16) as threads:
        alone = list(threads.map(lambda part: either.infer(calibrated, X[part], outputs=("lower",)), parts))
    for part, answer in zip(parts, alone, strict=True):
        assert answer["lower"].tobytes() == found["lower"][part].tobytes()


def test_quantile_models_answer_beside_the_model_in_one_request(
    either: Client, quantiles: tuple[str, QuantileRegressor, QuantileRegressor]
) -> None:
    name, low, high = quantiles
    X, own = rows(300, seed=7), [model.predict(CALIBRATION) for model in (low, high)]
    assert all((low.predict(table) <= high.predict(table)).all() for table in (X, CALIBRATION))
    q = np.sort(np.maximum(own[0] - targets()[:, 0], targets()[:, 0] - own[1]))[80]
    found = either.infer(name, X, outputs=("y", "lower", "upper"))
    np.testing.assert_allclose(found["y"], models()["bayes"].expected(X)["y"], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found["lower"][:, 0], low.predict(X) - q, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found["upper"][:, 0], high.predict(X) + q, rtol=1e-6, atol=1e-5)
    for first, last in ((0, 1), (1, 40), (40, 300)):
        part = either.infer(name, X[first:last], outputs=("lower",))
        assert part["lower"].tobytes() == found["lower"][first:last].tobytes()


def test_verify_compares_the_ends_too(repository: Path, client: Client, calibrated: str) -> None:
    verification = verify(client, calibrated, repository=repository)
    assert verification.passed
    assert [output.name for output in verification.outputs] == ["y", "std", "lower", "upper"]


@pytest.fixture(scope="module")
def tied(repository: Path, client: Client, unload: Unload) -> Iterator[tuple[str, float]]:
    """The name of a served tree whose residuals are all 0.1, and the coverage that its export reports."""
    X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0.1, 0.3, 1.1, 1.3])
    done = export(DecisionTreeRegressor().fit(X, y), repository, name="tied", calibrate=equal_residuals(300, 1))
    client.load("tied")
    assert done.compilation.interval is not None
    assert done.compilation.interval.coverage is not None
    yield "tied", done.compilation.interval.coverage[0]
    unload("tied")


def equal_residuals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and targets that lie 0.1 from a tree's answers, except one in sixteen, which lies farther off."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (count, 1)).astype(float)
    return X, X[:, 0] + rng.choice([0.1, 0.3], count) + (rng.random(count) < 1 / 16)


def test_equal_residuals_are_covered_as_the_export_says(either: Client, tied: tuple[str, float]) -> None:
    """A target on an end is inside, as float64 and as float32; ends rounded to nearest cover half or none of them."""
    name, told = tied
    X, y = equal_residuals(2000, 2)
    found = either.infer(name, X, outputs=("y", "lower", "upper"))
    near = np.abs(y - X[:, 0] - 0.2) < 0.2
    assert 0.9 < told < 0.97
    for targets in (y, y.astype(np.float32)):
        inside = (found["lower"][:, 0] <= targets) & (targets <= found["upper"][:, 0])
        assert inside[near].all()
        assert abs(inside.mean() - told) < 0.05
    assert (found["lower"] <= found["y"]).all()
    assert (found["y"] <= found["upper"]).all()
