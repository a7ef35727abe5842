"""numpy's functions in a traced function: bit for bit where the instructions have numpy's bits, otherwise nearly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.exporter.tracing.plans import Traced

WEIGHTS = np.random.default_rng(1).normal(size=(4, 3))
MEANS = np.array([0.5, -1.0, 2.0, 0.25])


def rows() -> np.ndarray:
    """Return rows with halves, zeros of both signs, large and small numbers, and whole numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) * [1, 3, 100, 1e-3]
    X[::5] = np.round(X[::5] * 2) / 2
    X[::7, 1] = -0.0
    X[::11, 2] = 0.0
    return X


def holes() -> np.ndarray:
    X = rows()
    X[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    return X


def assigned(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X[X < -1] = -1
    X[:, 0] = X[:, 1] + 1
    X[X[:, 2] > 50, 3] = 7
    X[:, 1] += 2
    X *= 3
    return X


def new_array(X: np.ndarray) -> np.ndarray:
    out = np.empty((len(X), 2))
    out[:, 0] = X[:, 0] * 2
    out[:, 1] = np.ones(len(X))
    more = np.zeros_like(X)
    more[:, 1:3] = X[:, :2]
    return np.concatenate([out, more, np.full((X.shape[0], 1), 5.0)], axis=1)


def loops(X: np.ndarray) -> np.ndarray:
    return np.array([[X[i, 0] + 1, X[i, 1] * 2] for i in range(X.shape[0])])


EXACT: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda X: (X + 1) * X - X / 3 - 2 / (X + 0.5),
    "reflected": lambda X: np.stack([1 - X[:, 0], 2 * X[:, 1], 3 / X[:, 2], 7 // X[:, 2], 7 % X[:, 2]], axis=1),
    "floor_divide": lambda X: np.column_stack([X // 0.3, X % 0.3, np.fmod(X, 0.3), np.divmod(X, 2)[0]]),
    "rounding": lambda X: np.hstack([np.floor(X), np.ceil(X), np.trunc(X), np.rint(X), np.fix(X)]),
    "round": lambda X: np.hstack([np.round(X), X.round(2), np.around(X, -1)]),
    "signs": lambda X: np.hstack([-X, +X, abs(X), np.sign(X), np.abs(X), np.copysign(1.0, X), np.signbit(X)]),
    "comparisons": lambda X: np.hstack([X > 0, X >= 0.5, X < 0, X <= -0.5, X == 0, X != 0.5]).astype(float),
    "logic": lambda X: ((X > 0) & (X < 1) | ~(X >= -1)) * 1.0,
    "logical": lambda X: np.logical_or(np.logical_and(X > 0, X < 1), np.logical_not(X >= -1)) * 1,
    "where": lambda X: np.where(X[:, [0]] < X, X, -1.0),
    "select": lambda X: np.select([X < -1, X < 0, X < 1], [X, 2 * X, 0.5], default=9.0),
    "choose": lambda X: np.choose((X[:, [0]] > 0).astype(int), [X[:, 1:], X[:, :3]]),
    "clip": lambda X: np.hstack([np.clip(X, -1, 1), X.clip(0), np.clip(X, None, 2), np.clip(X, MEANS, None)]),
    "extremes": lambda X: np.hstack([np.maximum(X, 0.1), np.minimum(X, X[:, ::-1]), np.fmax(X, 0), np.fmin(X, 0)]),
    "square root": lambda X: np.hstack([np.sqrt(np.abs(X)), np.square(X), np.reciprocal(X + 0.123)]),
    "broadcast": lambda X: (X - MEANS) / np.array([1.0, 2.0, 4.0, 3.0]),
    "columns": lambda X: np.c_[X[:, 0], X[:, [2, 1]], X[:, -1:], X[:, 1:3], np.take(X, 3, axis=1)],
    "moves": lambda X: np.hstack([np.flip(X, axis=1), np.roll(X, 1, axis=1), X[:, ::2], np.delete(X, 1, axis=1)]),
    "shapes": lambda X: X.reshape(len(X), 2, 2).transpose(0, 2, 1).reshape(len(X), -1)[:, :, None].squeeze(-1),
    "repeats": lambda X: np.hstack([np.repeat(X, 2, axis=1), np.tile(X, (1, 2)), np.insert(X, 0, 1.5, axis=1)]),
    "splits": lambda X: np.concatenate([part + 1 for part in np.split(X, 2, axis=1)], axis=1),
    "sums": lambda X: np.column_stack([X.sum(axis=1), np.sum(X[:, :2], axis=1), X.prod(axis=1), X[:, 0] + X[:, 1]]),
    "means": lambda X: np.column_stack([X.mean(axis=1), np.mean(X, axis=-1, keepdims=True), np.average(X, axis=1)]),
    "row extremes": lambda X: np.column_stack([X.max(axis=1), np.amin(X, axis=1), np.ptp(X, axis=1)]),
    "counts": lambda X: np.column_stack(
        [(X > 0).sum(axis=1), np.count_nonzero(X > 1, axis=1), (X > 0).any(axis=1), (X > -1).all(axis=1)]
    ),
    "running": lambda X: np.hstack([np.cumsum(X, axis=1), np.diff(X, axis=1), np.add.accumulate(X, axis=1)]),
    "bins": lambda X: np.column_stack(
        [
            np.digitize(X, [-1.0, 0.0, 0.5, 2.0]),
            np.digitize(X, [-1.0, 0.0, 0.5, 2.0], right=True),
            np.searchsorted([-1.0, 0.0, 0.5], X),
            np.searchsorted([-1.0, 0.0, 0.5], X, side="right"),
            np.digitize(X, [2.0, 0.5, 0.0]),
        ]
    ),
    "membership": lambda X: np.isin(X, [0.0, 0.5, -1.0]) * 1.0,
    "piecewise": lambda X: np.piecewise(X, [X < 0, X >= 1], [lambda v: v * 2, 5.0, 1.0]),
    "heaviside by hand": lambda X: (X >= 0).astype(int) + (X > 0).astype("float64"),
    "casts": lambda X: np.hstack([X.astype(int), X.astype(np.float32), X.astype(bool), (X * 10).astype("int32")]),
    "integers": lambda X: np.column_stack([(X.astype(int) % 3), (X.astype(int) // 2), -X.astype(int), ~(X > 0)]),
    "booleans": lambda X: ((X > 0) + (X > 1)) * 1 + (X > 0) * (X > 2) + np.maximum(X > 0, X > 1),
    "in place": assigned,
    "new arrays": new_array,
    "loops": loops,
    "asarray": lambda X: np.asarray(X, dtype=np.float64) + np.array(X)[:, [0]],
    "apply along axis": lambda X: np.apply_along_axis(lambda row: row[::-1] + row[0], 1, X),
    "vectorize": lambda X: np.vectorize(lambda v, w: v if v > w else (0 if v < -1 else w))(X, X[:, [0]]),
    "constant column": lambda X: np.column_stack([np.ones(len(X)), X]),
    "out": lambda X: np.add(X, 1, out=X.copy()),
    "places": lambda X: np.stack([X.argmax(axis=1), np.argmin(X, axis=1), np.argmax(X[:, ::-1], axis=1)], axis=1),
    "sorted": lambda X: np.hstack([np.sort(X, axis=1), np.sort(np.hstack([X, X[:, :1] * 2]), axis=1)]),
    "medians": lambda X: np.column_stack([np.median(X, axis=1), np.median(X[:, :3], axis=1)]),
    "quantiles": lambda X: np.column_stack([np.quantile(X, 0.3, axis=1), np.percentile(X, 75, axis=1)]),
    "heaviside": lambda X: np.heaviside(np.round(X), 0.25),
    "einsum": lambda X: np.einsum("ij,ik->ijk", X[:, :2], X[:, 2:]).reshape(len(X), -1),
}
"""Functions that have numpy's bits."""

NEAR: dict[str, Callable[[Any], Any]] = {
    "logarithms": lambda X: np.log(np.abs(X) + 1) + np.log1p(np.abs(X)) + np.log2(X**2 + 1) + np.log10(X**2 + 1),
    "exponentials": lambda X: np.exp(-np.abs(X)) + np.expm1(-np.abs(X)) + np.exp2(-np.abs(X)),
    "trigonometry": lambda X: np.hstack(
        [np.sin(X), np.cos(X), np.tan(X / 100), np.arctan(X), np.arctan2(X, X[:, [0]])]
    ),
    "hyperbolic": lambda X: np.hstack([np.tanh(X), np.arcsinh(X), np.sinh(X / 100), np.cosh(X / 100)]),
    "powers": lambda X: np.hstack([np.abs(X) ** 0.3, X**3, X**-2 + 1, np.power(np.abs(X), 1.7), 2.0 ** (X / 100)]),
    "hypotenuse": lambda X: np.hypot(X, X[:, ::-1]),
    "matrix product": lambda X: np.hstack([X @ WEIGHTS, np.dot(X, WEIGHTS[:, 0])[:, None], X.dot(WEIGHTS)]),
    "wide sums": lambda X: np.column_stack([np.hstack([X, X, X]).sum(axis=1), np.hstack([X, X, X]).mean(axis=1)]),
    "deviations": lambda X: np.column_stack([X.std(axis=1), np.var(X, axis=1, ddof=1), np.linalg.norm(X, axis=1)]),
    "interpolation": lambda X: np.interp(X, [-1.0, 0.0, 2.0], [5.0, 1.0, 3.0]),
    "special": lambda X: np.hstack([special.expit(X), special.erf(X), special.ndtr(X)]),
    "Box and Cox": lambda X: np.hstack(
        [special.boxcox1p(np.abs(X), 0.15), special.boxcox(np.abs(X) + 1, 0), special.inv_boxcox(np.abs(X), 0.5)]
    ),
    "products with logarithms": lambda X: np.hstack(
        [special.xlogy(np.maximum(X, 0), np.abs(X)), np.logaddexp(X, X[:, [0]])]
    ),
    "degrees": lambda X: np.hstack([np.radians(X), np.degrees(X), np.cbrt(X)]),
    "polynomial": lambda X: np.polyval([1.0, -2.0, 0.5], X),
    "weighted average": lambda X: np.average(X, axis=1, weights=[1, 2, 3, 4])[:, None],
}
"""Functions that have numpy's answers to the last digits."""

MISSING: dict[str, Callable[[Any], Any]] = {
    "known extremes": lambda X: np.column_stack(
        [np.nanmax(X[:, 1:], axis=1), np.nanmin(np.c_[X, -X[:, 0] * 0 + 1], axis=1)]
    ),
    "order": lambda X: np.column_stack(
        [np.argmax(X, axis=1), X.argmin(axis=1), np.sort(X, axis=1), np.median(X, axis=1), np.quantile(X, 0.6, axis=1)]
    ),
    "isnan": lambda X: np.hstack([np.isnan(X), ~np.isnan(X), np.isfinite(X)]) * 1.0,
    "filled": lambda X: np.hstack([np.where(np.isnan(X), MEANS, X), np.nan_to_num(X), np.nan_to_num(X, nan=-9.0)]),
    "comparisons": lambda X: np.hstack([X > 0, X != 0, X == X]) * 1.0,
    "extremes": lambda X: np.hstack(
        [np.maximum(X, 0), np.fmax(X, 0), np.minimum(X, X[:, ::-1]), np.fmin(X, X[:, ::-1])]
    ),
    "sums without missing ones": lambda X: np.column_stack([np.nansum(X, axis=1), np.nanmean(X, axis=1)]),
    "sums": lambda X: np.column_stack([X.sum(axis=1), X.max(axis=1), np.isnan(X).sum(axis=1)]),
    "bins": lambda X: np.digitize(X, [0.0, 1.0]),
}


def compare(function: Callable[[Any], Any], X: np.ndarray, rtol: float) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(function(X.copy()), dtype=np.float64)
        found = Traced(function, X).transform(X)
    if rtol:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", EXACT)
def test_numpy_bits(name: str) -> None:
    compare(EXACT[name], rows(), 0.0)


@pytest.mark.parametrize("name", NEAR)
def test_numpy_answers(name: str) -> None:
    compare(NEAR[name], rows(), 1e-11)


@pytest.mark.parametrize("name", MISSING)
def test_missing_numbers(name: str) -> None:
    compare(MISSING[name], holes(), 0.0)
