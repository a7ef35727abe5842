"""Small data to fit on, real and drawn."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_linnerud

Data = tuple[Any, Any]


@functools.cache
def diabetes() -> Data:
    """442 × 10, one target."""
    return load_diabetes(return_X_y=True)


@functools.cache
def linnerud() -> Data:
    """20 × 3, three targets."""
    return load_linnerud(return_X_y=True)


def column_target() -> Data:
    """Diabetes with y as a matrix of one column."""
    X, y = diabetes()
    return X, y[:, None]


@functools.cache
def several_targets() -> Data:
    """160 × 7, four targets, features of different scales."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((160, 7)) * [1, 10, 0.1, 5, 1, 100, 2] + [0, 3, 0, -20, 1, 50, 0]
    return X, X @ rng.standard_normal((7, 4)) + rng.standard_normal((160, 4))


@functools.cache
def small() -> Data:
    """160 × 5, one target with products of features in it."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((160, 5)) * [1, 3, 0.5, 10, 1] + [0, 2, 1, 30, -1]
    return X, X @ [1.0, -2.0, 3.0, 0.1, 0.5] + 0.3 * X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(160)


@functools.cache
def far_from_zero() -> Data:
    """160 × 6, features around 10,000 with a spread of about 1."""
    rng = np.random.default_rng(3)
    X = 10_000 + rng.standard_normal((160, 6)) * [1, 2, 0.5, 1, 3, 1]
    return X, (X - 10_000) @ [1.0, -2.0, 3.0, 0.0, 0.5, 1.0] + 0.1 * rng.standard_normal(160)


def far_from_zero_targets() -> Data:
    """The same features with two targets."""
    X, y = far_from_zero()
    return X, np.stack([y, 3 - 2 * y + X[:, 0] - 10_000], axis=1)


@functools.cache
def constant_column() -> Data:
    """`small` with a column that does not vary and one that is zero throughout."""
    X, y = small()
    return np.column_stack([X, np.full(len(X), 7.25), np.zeros(len(X))]), y


def targets_between(low: float, high: float, data: Callable[[], Data] = small) -> Callable[[], Data]:
    """Return `data` with a nearly linear target that fills [low, high]."""

    def make() -> Data:
        X, y = data()
        y = X @ np.linspace(-1, 1, X.shape[1]) / X.std(axis=0).sum() + 1e-3 * np.cos(y)
        return X, low + (high - low) * (y - y.min()) / (y.max() - y.min())

    return make


@functools.cache
def unit_scale() -> Data:
    """160 × 5, independent features of unit variance, one target."""
    X = np.random.default_rng(5).standard_normal((160, 5))
    return X, X @ [1.0, -2.0, 3.0, 0.1, 0.5]


def counts() -> Data:
    X, y = targets_between(0, 2, unit_scale)()
    return X, np.random.default_rng(4).poisson(np.exp(y)).astype(float)


def positive_counts() -> Data:
    X, y = counts()
    return X, y + 0.5


def as_frame() -> Data:
    """Diabetes as a DataFrame with named columns."""
    X, y = diabetes()
    return pd.DataFrame(X, columns=load_diabetes().feature_names), y


def in_float32(data: Callable[[], Data]) -> Callable[[], Data]:
    def make() -> Data:
        X, y = data()
        return X.astype(np.float32), np.asarray(y).astype(np.float32)

    return make


def cube(y: np.ndarray) -> np.ndarray:
    return y**3


def exp10(y: np.ndarray) -> np.ndarray:
    return 10.0**y


def noisy(random: np.random.Generator, rows: int, targets: int | None = None) -> Data:
    """Rows × 4, some targets or a single one, with noise that grows along the first column."""
    X = random.normal(size=(rows, 4))
    noise = random.normal(size=(rows, targets or 1)) * np.exp(0.5 * X[:, :1])
    y = 100 + X @ np.arange(1.0, 4 * (targets or 1) + 1).reshape(4, -1) + noise
    return X, y if targets else y[:, 0]
