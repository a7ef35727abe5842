"""The catalogue's cases compiled, each once for all tests."""

import functools

import numpy as np

from tests.exporter.catalogue.cases import CASES, Case
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.compile import compile_estimator


def compiled(case: Case) -> Compilation:
    """Return the case's estimator compiled with its own rows as the sample; the same object at each call."""
    return _compiled(case.name)


def matrix(case: Case) -> np.ndarray:
    """Return the case's rows as its plan reads them, `[rows, n_features]` in its dtype, with numbers for strings."""
    return compiled(case).sample.X


@functools.cache
def _compiled(name: str) -> Compilation:
    estimator, X = CASES[name].fitted()
    return compile_estimator(estimator, sample=X)
