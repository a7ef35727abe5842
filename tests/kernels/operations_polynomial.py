"""Polynomials of every kind for the kernels' tests."""

import itertools

import numpy as np

from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.plan.plan import Operation


def monomials(features: int, degree: int) -> np.ndarray:
    """Return every monomial up to a degree; the index `features` stands for the constant one."""
    rows = [
        (*chosen, *[features] * (degree - size))
        for size in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(features), size)
    ]
    return np.array(rows, dtype=np.int32)


def polynomial(features: int, degree: int, seed: int = 0) -> Polynomial:
    rng = np.random.default_rng(seed)
    return Polynomial(monomials(features, degree), rng.standard_normal(features), rng.uniform(0.5, 2, features))


def polynomial_affine(features: int, degree: int, targets: int = 1, seed: int = 0) -> PolynomialAffine:
    first = polynomial(features, degree, seed)
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((len(first.indices), targets))
    return PolynomialAffine(first.indices, first.shift, first.factor, weight, rng.standard_normal(targets))


def quadratic(
    features: int, targets: int = 1, seed: int = 0, precision: str = "float64", scaled: bool = True
) -> Quadratic:
    rng = np.random.default_rng(seed)
    shift, factor = rng.standard_normal(features), rng.uniform(0.5, 2, features)
    if not scaled:
        shift, factor = np.zeros(features), np.ones(features)
    form = np.triu(rng.standard_normal((targets, features, features)))
    linear, intercept = rng.standard_normal((targets, features)), rng.standard_normal(targets)
    return Quadratic(shift, factor, form, linear, intercept, precision=precision)


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "polynomial 2": (polynomial(6, 2), (6,)),
    "polynomial 4": (polynomial(5, 4), (5,)),
    **{f"polynomial_affine {degree}": (polynomial_affine(5, degree), (5,)) for degree in (1, 3, 4)},
    "polynomial_affine to 3": (polynomial_affine(6, 3, 3), (6,)),
    "polynomial_affine of many features": (polynomial_affine(14, 3, 2), (14,)),
    **{
        f"quadratic {features} to {targets} in {precision}": (
            quadratic(features, targets, precision=precision),
            (features,),
        )
        for features, targets in ((1, 1), (5, 2), (32, 1), (33, 1), (70, 1))
        for precision in Quadratic.PRECISIONS
    },
    "quadratic unscaled": (quadratic(9, scaled=False), (9,)),
}
