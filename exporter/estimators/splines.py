"""B-spline bases."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.preprocessing import SplineTransformer

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import Pieces, add_pieces, note_range
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.wrap import Wrap


@lowers(SplineTransformer)
def lower_splines(transformer: SplineTransformer, x: Value, builder: Builder) -> Value:
    """The B-splines of each column, as piecewise polynomials about their knots.

    Beyond the knots they go on as `extrapolation` says. For "error" the answer is NaN there: scikit-learn refuses all
    rows together with the one beyond, and a server cannot refuse those of others.
    """
    splines, degree = transformer.bsplines_, transformer.degree
    low, high = np.array([s.t[degree] for s in splines]), np.array([s.t[-degree - 1] for s in splines])
    note_range(builder, x, low, high, within=transformer.extrapolation == "error")
    if transformer.extrapolation == "periodic":
        varies = high > low
        x = builder.add(Wrap(low, np.where(varies, high - low, 1.0)), x)
        functions = [_basis(s) if v else _constant(s, 0.0) for s, v in zip(splines, varies, strict=True)]
    elif transformer.extrapolation in ("constant", "linear"):
        functions = _bounded(transformer)
    else:
        functions = [_basis(spline) for spline in splines]
    kept = len(functions[0]) - (not transformer.include_bias)
    if not kept:
        raise builder.refuse(transformer, "include_bias=False leaves no column of its only spline")
    zeros = transformer.handle_missing == "zeros"
    flat = [function for basis in functions for function in basis[:kept]]
    inputs = np.repeat(np.arange(x.width), kept)
    z = add_pieces(builder, x, inputs, flat, zeros)
    if x.single or transformer.extrapolation not in ("constant", "linear"):
        return z
    turns = [number for spline in splines for number in _turns(spline, degree)[:kept]]
    return builder.computed(z, x, _of_matrix(transformer), transformer, inputs, turns, zeros)


def _of_matrix(transformer: SplineTransformer) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a transformer makes of a matrix without names."""

    def compute(X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that columns have no names
            made = transformer.transform(X)
        return np.asarray(made.toarray() if transformer.sparse_output else made)

    return compute


def _turns(spline: Any, degree: int) -> np.ndarray:
    """Return where each B-spline of one column is largest between the bounds, `[splines]`: it rises up to there.

    Between two numbers a B-spline has one largest value, which a search by thirds finds, begun beside the largest of
    many values.
    """
    low, high = spline.t[degree], spline.t[-degree - 1]
    numbers = np.linspace(low, high, 64 * len(spline.t))
    best = np.argmax(spline(numbers), axis=0)
    left, right = numbers[np.maximum(best - 1, 0)], numbers[np.minimum(best + 1, len(numbers) - 1)]
    each = np.arange(len(best))
    for _ in range(64):
        first, second = left + (right - left) / 3, right - (right - left) / 3
        rises = spline(first)[each, each] < spline(second)[each, each]
        left, right = np.where(rises, first, left), np.where(rises, right, second)
    found: np.ndarray = (left + right) / 2
    return found


def _basis(spline: Any) -> list[Pieces]:
    """Return each B-spline of one column, as scipy evaluates it beyond its knots too: by its end pieces, or as NaN."""
    base = np.unique(spline.t[spline.k : len(spline.t) - spline.k])
    starts = base if spline.extrapolate else np.append(base, np.nextafter(base[-1], np.inf))
    origins = np.append(np.nextafter(base[0], -np.inf), starts)
    return _columns(np.append(-np.inf, starts), origins[:, None], _taylor(spline, origins))


def _constant(spline: Any, x: float) -> list[Pieces]:
    """Return each B-spline of a column that does not vary: constant, with its value at `x`."""
    return _columns(np.array([-np.inf]), np.zeros((1, 1)), _taylor(spline, np.array([x]))[:, :1])


def _bounded(transformer: SplineTransformer) -> list[list[Pieces]]:
    """Return the B-splines of each column, constant or linear beyond the first and the last knot.

    As scikit-learn has it: with "linear" and splines of degree 0 or 1, the bounds of later columns lie one or two knots
    further in, as its `transform` raises the degree on the way; with "constant" and degree 0 it fails above the last
    knot, unless its output is sparse or there is one spline, and the answer here is NaN.
    """
    degree, linear = transformer.degree, transformer.extrapolation == "linear"
    found = []
    for spline in transformer.bsplines_:
        low, high = spline.t[degree], spline.t[-degree - 1]
        knots = spline.t[spline.k : len(spline.t) - spline.k]
        starts = np.append(-np.inf, np.unique([*knots, low, high, np.nextafter(high, np.inf)]))
        below, above = starts < low, starts > high
        coefficients = _taylor(spline, np.append(starts[1], starts[1:]))
        coefficients[below | above] = 0.0
        count = coefficients.shape[2]
        origins = np.repeat(np.append(starts[1], starts[1:])[:, None], count, axis=1)
        if linear and degree <= 1:
            degree += 1
        terms = 2 if linear and transformer.degree else 1
        at_low, at_high = _taylor(spline, np.array([low, high]))[:, :terms]
        for first, last in zip(range(degree), range(count - 1, -1, -1), strict=False):
            coefficients[below, :terms, first], origins[below, first] = at_low[:, first], low
            coefficients[above, :terms, last], origins[above, last] = at_high[:, last], high
        if degree == 0:
            coefficients[above, 0] = at_high[0] if transformer.sparse_output else np.nan if count > 1 else 0.0
        found.append(_columns(starts, origins, coefficients))
    return found


def _taylor(spline: Any, x: np.ndarray) -> np.ndarray:
    """Return the Taylor coefficients of every B-spline about each number, `[numbers, degree + 1, splines]`."""
    return np.stack([spline(x, nu=d) / math.factorial(d) for d in range(spline.k + 1)], axis=1)


def _columns(starts: np.ndarray, origins: np.ndarray, coefficients: np.ndarray) -> list[Pieces]:
    """Return one function for each column of `origins`, `[pieces, columns]`, and `[pieces, degree + 1, columns]`."""
    count = coefficients.shape[2]
    origins = np.broadcast_to(origins, (len(starts), count))
    return [Pieces(starts, origins[:, column], coefficients[:, :, column]) for column in range(count)]
