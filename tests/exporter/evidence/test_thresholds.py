"""Rows on thresholds behind sums, where the estimator's own answer depends on last bits."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.thresholds import beside, on_thresholds
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.kernels.format.parity import units

BOOSTER = HistGradientBoostingRegressor(max_iter=30, random_state=0)


def fitted(transformer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 8))
    y = X @ rng.normal(size=8) + np.sin(3 * X[:, 0]) + rng.normal(size=900)
    return make_pipeline(transformer, clone(BOOSTER)).fit(X, y), X


@pytest.mark.parametrize("transformer", [PCA(5), Normalizer()], ids=["components", "norms"])
def test_rows_on_thresholds_behind_sums_can_be_accepted(transformer):
    """The number of training rows that differ depends on the processor: it may be zero."""
    model, X = fitted(transformer)
    report = compile_estimator(model, sample=X, ties="accept").report
    assert report.within
    left_out = report.ties is not None
    assert report.rows < len(X) if left_out else report.rows == len(X)
    assert not left_out or "lie on thresholds of the model" in report.ties


def test_rows_away_from_thresholds_are_not_excused():
    model, X = fitted(PCA(5))
    wrong = make_pipeline(PCA(5), clone(BOOSTER)).fit(X, np.random.default_rng(1).normal(size=len(X)))
    found = wrong.predict(X)[:, None]

    lowered = lower(model)
    oracle = Oracle(model, lowered.profile, ("y",))
    own = {"y": model.predict(X)[:, None]}
    excused = on_thresholds(oracle, lowered.inputs, X[:50], {"y": found[:50]}, {"y": units(own["y"])}, 1e-5)
    assert not excused.any()


def test_beside_are_the_nearest_numbers():
    near = beside(1.0)
    assert 1.0 not in near
    assert {np.nextafter(1.0, 2.0), 1.0 - np.spacing(1.0)} <= set(near.tolist())
