"""Gaussian process regression: the mean and the standard deviation under any algebra of scikit-learn's kernels.

A kernel becomes a constant and a sum of scaled terms. A leaf of the algebra (RBF, Matern, ...) that stands alone in a
term is contracted with the dual coefficients as it is computed; only products and powers of sums are written out, as
matrices `[rows, points]`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from scipy.linalg.lapack import dpstrf, dtrtri
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from triton_regressors.exporter.estimators.kernel_approximation import (
    KERNELS,
    combine,
    dense,
    function_of_points,
    kernel_function,
    kernel_matrix,
    kernel_sum,
    note_points,
)
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.squared_norm import SquaredNorm

TABLE_TERMS = 13
NEGLIGIBLE = 1e-30


@dataclass(frozen=True)
class Terms:
    """`constant + Σ scale · part`; a part is a function of rows and points, or a value already made."""

    constant: float
    parts: tuple[tuple[float, Pairwise | Value], ...] = ()

    def __add__(self, other: Terms) -> Terms:
        return Terms(self.constant + other.constant, self.parts + other.parts)

    def times(self, number: float) -> Terms:
        """Return the terms, each multiplied by a number."""
        return Terms(self.constant * number, tuple((scale * number, part) for scale, part in self.parts))


@lowers(GaussianProcessRegressor)
def lower_gaussian_process(estimator: GaussianProcessRegressor, x: Value, builder: Builder) -> dict[str, Value]:
    """`y = K alpha s + m` and `std = s √(k(x, x) − ‖K W‖²)` for `K = k(x, X_train)`, `W Wᵀ = (L Lᵀ)⁻¹`.

    `m` and `s` undo `normalize_y`. A variance that rounding made negative is 0, as in scikit-learn. (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, algorithm 2.1.)
    """
    if not hasattr(estimator, "X_train_"):  # scikit-learn answers from the prior
        raise builder.refuse(estimator, "it is not fitted; call fit first")
    points = estimator.X_train_
    if not isinstance(points, np.ndarray) or points.ndim != 2 or not np.issubdtype(points.dtype, np.number):
        raise builder.refuse(estimator, "it was fitted on something other than a matrix of numbers")
    whitening, order = whiten(estimator.L_)
    points = dense(points)[order]
    algebra = _Algebra(estimator, x, points, builder)
    covariance = algebra.terms(estimator.kernel_, algebra.between)
    variance = algebra.terms(estimator.kernel_, algebra.diagonal)
    if points.shape[1] == x.width:  # a kernel of constants alone takes any width, and scikit-learn notes none
        note_points(x, points, builder)

    alpha = estimator.alpha_.reshape(len(points), -1)[order]
    spread = np.broadcast_to(np.asarray(estimator._y_train_std, dtype=np.float64), alpha.shape[1:])
    weight, intercept = alpha * spread, estimator._y_train_mean + covariance.constant * (alpha * spread).sum(axis=0)
    means = []
    for scale, part in covariance.parts:
        if isinstance(part, Pairwise):
            means.append(kernel_sum(x, part, scale * weight, intercept, builder))
        else:
            means.append(builder.affine(part, scale * weight, intercept))
        intercept = np.zeros_like(spread)
    if not means:
        means.append(builder.affine(x, np.zeros((x.width, len(spread))), intercept))

    matrix, scale, offset = algebra.value(covariance)
    explained = builder.add(SquaredNorm(scale * whitening, offset * whitening.sum(axis=0)), matrix)
    if variance.parts:
        scales, parts = zip(*variance.parts, strict=True)
        left = builder.affine(explained, -np.ones(explained.width), variance.constant)
        left = combine("sum", [left, *map(algebra.made, parts)], builder, [1.0, *scales])
        left = builder.affine(left, spread[None, :] ** 2, 0.0, "relu")
    else:
        weight = np.broadcast_to(-(spread**2), (explained.width, *spread.shape))
        left = builder.affine(explained, weight, variance.constant * spread**2, "relu")
    return {"y": combine("sum", means, builder), "std": builder.elementwise(left, "sqrt")}


class _Algebra:
    """Reads a fitted kernel as terms, between `x` and the points or on the diagonal `k(x, x)`."""

    def __init__(self, estimator: Any, x: Value, points: np.ndarray, builder: Builder) -> None:
        self.estimator = estimator
        self.x = x
        self.points = points
        self.builder = builder

    def terms(self, kernel: Any, leaf: Callable[[Any], Terms]) -> Terms:
        """Return a kernel as terms; `leaf` reads the kernels that are not made of others."""
        if type(kernel) is Sum:
            return self.terms(kernel.k1, leaf) + self.terms(kernel.k2, leaf)
        if type(kernel) is Product:
            first, second = self.terms(kernel.k1, leaf), self.terms(kernel.k2, leaf)
            if not first.parts:
                return second.times(first.constant)
            if not second.parts:
                return first.times(second.constant)
            (one, f1, o1), (other, f2, o2) = self.value(first), self.value(second)
            return Terms(0.0, ((1.0, combine("product", [one, other], self.builder, [f1, f2], [o1, o2])),))
        if type(kernel) is Exponentiation:
            return self._power(self.terms(kernel.kernel, leaf), float(kernel.exponent))
        if type(kernel) is ConstantKernel:
            return Terms(float(kernel.constant_value))
        return leaf(kernel)

    def between(self, kernel: Any) -> Terms:
        """Return a leaf between `x` and the points; white noise is only on the diagonal."""
        if type(kernel) is WhiteKernel:
            return Terms(0.0)
        return Terms(0.0, ((1.0, self._function(kernel)),))

    def diagonal(self, kernel: Any) -> Terms:
        """Return a leaf `k(x, x)`."""
        if type(kernel) is WhiteKernel:
            return Terms(float(kernel.noise_level))
        if type(kernel) is DotProduct:
            return Terms(float(kernel.sigma_0) ** 2, ((1.0, self._squares()),))
        if type(kernel) is PairwiseKernel:
            return self._pairwise_diagonal(self._function(kernel))
        return Terms(1.0)

    def value(self, terms: Terms) -> tuple[Value, float, float]:
        """Return a value with the number that multiplies it and the number to add."""
        if not terms.parts:
            return self.builder.affine(self.x, np.zeros((self.x.width, len(self.points))), 1.0), terms.constant, 0.0
        scales, parts = zip(*terms.parts, strict=True)
        if len(parts) == 1:
            return self.made(parts[0]), scales[0], terms.constant
        return combine("sum", [self.made(part) for part in parts], self.builder, list(scales)), 1.0, terms.constant

    def made(self, part: Pairwise | Value) -> Value:
        """Return a part as a value."""
        return kernel_matrix(self.x, part, self.builder) if isinstance(part, Pairwise) else part

    def _power(self, base: Terms, exponent: float) -> Terms:
        if not base.parts:
            return Terms(base.constant**exponent)
        (scale, part), *more = base.parts
        if isinstance(part, Pairwise) and part.profile == "identity" and not more:
            gamma, coef0 = scale * part.gamma, scale * part.coef0 + base.constant
            function = dataclasses.replace(part, profile="power", gamma=gamma, coef0=coef0, exponent=exponent)
            return Terms(0.0, ((1.0, function),))
        value, scale, offset = self.value(base)
        return Terms(0.0, ((1.0, self.builder.add(Combine("sum", (scale,), (offset,), exponent), value)),))

    def _function(self, kernel: Any) -> Pairwise:
        """Return the function of rows and points that a leaf is."""
        kind = type(kernel)
        if kind is DotProduct:
            return function_of_points(self.points, "dot", "identity", coef0=float(kernel.sigma_0) ** 2)
        if kind is RationalQuadratic:
            length, alpha = float(np.squeeze(kernel.length_scale)), float(kernel.alpha)
            numbers = {"gamma": 1.0 / (2 * alpha * length**2), "coef0": 1.0, "exponent": -alpha}
            return function_of_points(self.points, "squared_euclidean", "power", **numbers)
        if kind is ExpSineSquared:
            numbers = {"gamma": math.pi / float(kernel.periodicity), "exponent": 2.0 / float(kernel.length_scale) ** 2}
            return function_of_points(self.points, "euclidean", "sine", **numbers)
        if kind is PairwiseKernel:
            if kernel.metric not in KERNELS:
                shown = f"'{kernel.metric}'" if isinstance(kernel.metric, str) else "a callable"
                raise self._refuse(f"PairwiseKernel has metric {shown}; supported: {', '.join(map(repr, KERNELS))}")
            numbers = {"gamma": kernel.gamma, **(kernel.pairwise_kernels_kwargs or {})}
            return kernel_function(self.estimator, self.x, kernel.metric, self.points, numbers, self.builder)
        if kind not in (RBF, Matern):
            raise self._refuse(
                f"there is no lowering for its kernel {kind.__name__}. Take scikit-learn's own kernels, such as RBF "
                "and Matern, and sums and products of them"
            )
        length = np.squeeze(kernel.length_scale).astype(np.float64)
        factor = 1.0 / np.broadcast_to(length, (self.x.width,))
        fields: dict[str, Any] = {"metric": "euclidean", "profile": "exp"}
        if kind is RBF or kernel.nu == np.inf:
            fields.update(metric="squared_euclidean", gamma=-0.5)
        elif kernel.nu == 0.5:
            fields.update(gamma=-1.0)
        elif kernel.nu == 1.5:
            fields.update(profile="matern_3_2", gamma=math.sqrt(3))
        elif kernel.nu == 2.5:
            fields.update(profile="matern_5_2", gamma=math.sqrt(5))
        else:
            if not np.isfinite(_matern(np.array(2.0**-52), kernel.nu)):
                raise self._refuse(f"Matern has nu={kernel.nu:g}, for which scikit-learn's own formula overflows")
            fields.update(profile="table", table=matern_table(kernel.nu))
        return Pairwise(points=self.points * factor, shift=np.zeros(self.x.width), factor=factor, **fields)

    def _pairwise_diagonal(self, function: Pairwise) -> Terms:
        """Return what a function of `z · z`, the cosine of nothing or a distance of zero is."""
        if function.metric == "cosine":
            # 1, and 0 for a row of zeros.
            length = self.builder.scale(self._squares(), 0.0, 1e30)
            return Terms(0.0, ((1.0, self.builder.elementwise(length, "identity", high=1.0)),))
        if function.metric != "dot":
            return Terms(1.0 if function.profile == "exp" else 0.0)
        if function.profile == "identity":
            return Terms(0.0, ((1.0, self._squares()),))
        if function.profile == "power":
            numbers = (function.gamma,), (function.coef0,), function.exponent
            return Terms(0.0, ((1.0, self.builder.add(Combine("sum", *numbers), self._squares())),))
        scaled = self.builder.affine(self._squares(), [function.gamma], function.coef0, function.profile)
        return Terms(0.0, ((1.0, scaled),))

    def _squares(self) -> Value:
        """Return `x · x`, in float64 because a variance cancels."""
        return self.builder.affine(self.builder.elementwise(self.x, "square"), np.ones(self.x.width), 0.0)

    def _refuse(self, reason: str) -> Exception:
        return self.builder.refuse(self.estimator, reason)


def whiten(cholesky: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `W` with `W Wᵀ = (L Lᵀ)⁻¹` such that `‖k W‖²` is accurate, and the order of the points in its rows.

    `W` is `[points, rank]`, and zero below its diagonal.

    An inverse of `L` itself would enlarge the rounding errors of `k` by its largest element. With the points in the
    order of pivots, the most independent first, the components that are divided by small pivots are small themselves.
    (Higham, Analysis of the Cholesky decomposition of a semi-definite matrix, 1990.)
    """
    factor, pivots, rank, _ = dpstrf(cholesky @ cholesky.T, lower=1, tol=0.0)
    inverse, _ = dtrtri(np.tril(factor)[:rank, :rank], lower=1)
    whitening = np.zeros((len(cholesky), rank))
    whitening[:rank] = np.triu(inverse.T)
    return whitening, pivots - 1


def matern_table(nu: float) -> np.ndarray:
    """Return the Matern kernel of the distance in length scales as a table for `table_profile`, `[pieces, terms]`.

    `f(d) = 2^(1 − ν) / Γ(ν) · tᵛ K_ν(t)` with `t = √(2 ν) d`, `K_ν` the modified Bessel function of the second kind. On
    each quarter of an octave it is interpolated at Chebyshev nodes, which is exact to about 1e-15 as it is analytic but
    for zero. The first piece begins at 2⁻⁵², which scikit-learn puts in place of a distance of zero, and the last ends
    where the function is negligible.
    """
    terms = np.arange(TABLE_TERMS)
    angles = np.pi * (terms + 0.5) / TABLE_TERMS
    to_chebyshev = np.cos(terms * angles[:, None]) * np.where(terms == 0, 1, 2) / TABLE_TERMS
    to_powers = np.zeros((TABLE_TERMS, TABLE_TERMS))  # a row holds the coefficients of a Chebyshev polynomial
    to_powers[0, 0] = to_powers[1, 1] = 1
    for term in terms[2:]:
        to_powers[term] = 2 * np.roll(to_powers[term - 1], 1) - to_powers[term - 2]
    octaves = np.arange(-52, 64)
    start = (2.0 ** octaves[:, None] * (1 + np.arange(4) / 4)).reshape(-1, 1)
    width = np.repeat(2.0**octaves / 4, 4)[:, None]
    values = _matern(start + width * (np.cos(angles) + 1) / 2, nu)
    kept = values[: np.flatnonzero(values[:, 0] > NEGLIGIBLE)[-1] + 1]
    return product(product(kept, to_chebyshev), to_powers)


def _matern(distance: np.ndarray, nu: float) -> np.ndarray:
    """Return the kernel as scikit-learn computes it."""
    t = math.sqrt(2 * nu) * distance
    with np.errstate(all="ignore"):
        answer: np.ndarray = 2 ** (1.0 - nu) / special.gamma(nu) * t**nu * special.kv(nu, t)
    return answer
