"""Piecewise functions, power transforms, row norms and periods, for the tests of every operation."""

import numpy as np

from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.row_norm import RowNorm
from triton_regressors.kernels.ops.columns.wrap import Wrap
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine
from triton_regressors.kernels.plan.plan import Operation


def piecewise(width: int, outputs: int, knots: int, degree: int, seed: int = 0, nan_is_zero: bool = False) -> Piecewise:
    """Return functions with up to that many knots; some columns have fewer."""
    rng = np.random.default_rng(seed)
    places = np.sort(rng.standard_normal((outputs, knots)).astype(np.float32).astype(np.float64), axis=1)
    fewer = np.arange(knots) >= rng.integers(1, knots + 1, outputs)[:, None]
    places[fewer & (np.arange(outputs) % 2 == 1)[:, None]] = np.inf
    source = rng.integers(0, width, outputs).astype(np.int32)
    return Piecewise(source, places, rng.standard_normal((outputs, knots + 1, degree + 1)), nan_is_zero)


def piecewise_affine(
    width: int, outputs: int, knots: int, degree: int, targets: int = 1, seed: int = 0, function: str = "identity"
) -> PiecewiseAffine:
    op, rng = piecewise(width, outputs, knots, degree, seed, seed % 2 == 1), np.random.default_rng(seed)
    weight, intercept = rng.standard_normal((outputs, targets)), rng.standard_normal(targets)
    return PiecewiseAffine(op.source, op.knots, op.coefficients, weight, intercept, function, op.nan_is_zero)


def power(width: int, method: str, inverse: bool = False, seed: int = 0) -> Power:
    """Return transforms, some of them with a logarithm."""
    lambdas = np.random.default_rng(seed).uniform(-2, 3, width)
    lambdas[: min(width, 3)] = [0.0, 2.0, 1.0][: min(width, 3)]
    return Power(lambdas, 2 - lambdas, method, inverse)


def wrap(width: int, seed: int = 0) -> Wrap:
    rng = np.random.default_rng(seed)
    return Wrap(rng.standard_normal(width), rng.uniform(0.1, 1.0, width))


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "piecewise constant": (piecewise(4, 9, 7, 0), (4,)),
    "piecewise one knot": (piecewise(3, 3, 1, 1), (3,)),
    "piecewise linear": (piecewise(1, 1, 40, 1), (1,)),
    "piecewise cubic": (piecewise(3, 14, 6, 3, nan_is_zero=True), (3,)),
    "piecewise_affine": (piecewise_affine(4, 11, 5, 2), (4,)),
    "piecewise_affine constant to 3": (piecewise_affine(3, 7, 4, 0, 3, function="expit"), (3,)),
    "piecewise_affine of many columns": (piecewise_affine(70, 150, 2, 1, seed=1), (70,)),
    **{
        f"power {method}{' inverse' if inverse else ''}": (power(5, method, inverse), (5,))
        for method in Power.METHODS
        for inverse in (False, True)
    },
    **{f"row_norm {norm}": (RowNorm(norm, 1e-15), (13,)) for norm in RowNorm.NORMS},
    "row_norm wide": (RowNorm("l2", 1e-15), (600,)),
    "wrap": (wrap(5), (5,)),
    **{f"elementwise {name}": (Elementwise(name), (5,)) for name in ("arctan", "cos", "erfc", "ndtri", "rint", "tan")},
}
