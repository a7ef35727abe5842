"""Cases of pyGAM's regressors: splines, factors, lines, products and links."""

import functools

import numpy as np
from pygam import ExpectileGAM, GammaGAM, InvGaussGAM, LinearGAM, PoissonGAM, f, l, s, te
from pygam.pygam import GAM

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data, counts, positive_counts, small


@functools.cache
def with_factor() -> Data:
    """240 × 4: a number, codes from 0 to 4, two numbers."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.standard_normal(240), rng.integers(0, 5, 240), rng.standard_normal((240, 2))])
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2] * X[:, 3] + 0.1 * rng.standard_normal(240)


MODELS = {
    "default": (LinearGAM(), small),
    "splines": (LinearGAM(s(0, n_splines=8) + s(1, spline_order=2) + s(3, n_splines=6, spline_order=1)), small),
    "lines": (LinearGAM(l(0) + s(1) + l(3)), small),
    "by": (LinearGAM(s(0, by=1) + s(2)), small),
    "product": (LinearGAM(te(0, 1, n_splines=5) + s(2)), small),
    "poisson": (PoissonGAM(s(0, n_splines=6) + s(1, n_splines=6)), counts),
    "gamma": (GammaGAM(s(0, n_splines=6)), positive_counts),
    "inverse-gauss": (InvGaussGAM(l(0)), positive_counts),
    "log-link": (GAM(s(0, n_splines=6), distribution="normal", link="log"), positive_counts),
    "expectile": (ExpectileGAM(s(0) + s(1), expectile=0.7), small),
}
for name, (estimator, data) in MODELS.items():
    add(f"pygam-{name}", "steps", estimator, data)
for name, coding in {"factor": "one-hot", "factor-dummy": "dummy"}.items():
    model = LinearGAM(s(0) + f(1, coding=coding) + te(2, 3, n_splines=6))
    add(f"pygam-{name}", "steps", model, with_factor)
