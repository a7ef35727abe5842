"""The host's part of sums in pairs of float32 numbers: the tables of `pairs_kernel.py`, and its emulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from ...numerics.double_float import BIAS, FRACTION, LEAST, LN2, LOG2_E, NEGATIVE, Q0, Q1, Q2, Q3, Q4, Q5, Q6, SMALLEST
from ...numerics.fp16_digits import digits_of, product_of_digits
from ...numerics.powers import whole
from .cpu_function import differences
from .near_zero import LEAST_SQUARE, NEAR

MOST_REACH = 256.0  # the limit of the points' distance from their mean, in the argument of an exponential function
MOST_DEGREE = 8
MOST_WEIGHT = 1e25
NO_WEIGHT = 2.0**-1000  # stands for a weight of zero


class Function(NamedTuple):
    """The fields of a function of rows and points, as in `function.py`."""

    metric: str
    profile: str
    gamma: float
    coef0: float
    exponent: float


def fits(function: Function, squares: np.ndarray, weight: np.ndarray) -> bool:
    """Return whether a sum can be made in pairs: the numbers must be small enough, and the function supported.

    Args:
        function: the summed function.
        squares: the squared distances of the points from their mean; for manhattan and chi2 the sums of their numbers.
        weight: the weights of the points.
    """
    gamma, coef0, reach = function.gamma, function.coef0, float(squares.max()) * abs(function.gamma)
    if not (gamma and np.isfinite(reach) and np.abs(weight).max() < MOST_WEIGHT):
        return False
    match function.metric, function.profile:
        case "squared_euclidean", "exp":
            return gamma < 0 and coef0 == 0 and reach <= MOST_REACH
        case "manhattan", "exp":
            return gamma < 0 and coef0 == 0
        case "chi2", "exp":
            return gamma < 0 and coef0 == 0 and reach <= MOST_REACH / 4
        case "squared_euclidean", "power":
            return gamma > 0 and coef0 > 1e-3 and -MOST_DEGREE <= function.exponent < 0
        case "euclidean", "exp":
            return gamma < 0 and coef0 == 0 and -reach * gamma <= 16 * MOST_REACH
        case "euclidean", "matern_3_2" | "matern_5_2":
            return gamma > 0 and coef0 == 0 and reach * gamma <= 16 * MOST_REACH
        case "dot", "power":
            degree = whole(function.exponent)
            return degree is not None and 0 < degree <= MOST_DEGREE
        case "dot", "tanh":
            return True
    return False


def in_exponents(metric: str, profile: str) -> bool:
    """Return whether the summands of rows and points, and the weights, are part of the exponent of 2."""
    return profile == "exp" and metric != "euclidean"


def split_offsets(offsets: np.ndarray, metric: str, profile: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the points' summands as two numbers each, and the rounder that rounds rows' summands like the first ones.

    The sum of a first number and a row's is exact unless the row is far away. For products the first number is any
    float32 number, and the largest summand takes the place of the rounder.
    """
    if metric == "dot":
        first = offsets.astype(np.float32).astype(np.float64)
        return first, offsets - first, float(np.abs(offsets).max())
    places = FRACTION if in_exponents(metric, profile) else FRACTION - int(np.frexp(np.abs(offsets).max())[1])
    rounder = 1.5 * 2.0 ** (52 - places)
    first = (offsets + rounder) - rounder
    return first, offsets - first, rounder


def tables(function: Function, found: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tables that differ from `found`, the tables of ten digits.

    The weights of an exponential function are part of the exponents.
    """
    size, negative = np.abs(weight), NEGATIVE * (weight < 0)
    offsets, least = found["offsets"], LEAST.value + negative
    _, _, rounder = split_offsets(offsets, function.metric, function.profile)
    if in_exponents(function.metric, function.profile):
        offsets = offsets + np.log2(np.where(size > 0, size, NO_WEIGHT)) + BIAS.value + negative
    first, rest, _ = split_offsets(offsets, function.metric, function.profile)
    above = 1.1 * max(float(np.abs(weight).max()), 1.0 / MOST_WEIGHT)
    if function.metric == "squared_euclidean" and function.profile == "power":
        above *= function.coef0**function.exponent  # the function's maximum; for others it is 1 or follows the row
    return {
        "offsets": np.array([first, rest], dtype=np.float32),
        "least": least.astype(np.float32),
        "weight": np.array([weight, weight - weight.astype(np.float32)], dtype=np.float32),
        "numbers": np.array([*found["numbers"], rounder, above]),
    }


def emulated(
    function: Function, parameters: Mapping[str, np.ndarray], x: np.ndarray, points: slice = slice(None)
) -> np.ndarray:
    """Return the function of each row and each point as `pairs_kernel.py` computes it, float64 `[rows, points]`.

    Args:
        function: the function.
        parameters: the tables of `function.py` in float32 pairs.
        x: rows.
        points: the points to compute.
    """
    numbers, z = parameters["numbers"], (x - parameters["shift"]) * parameters["factor"]
    norm = np.einsum("rf,rf->r", z, z)[:, None]
    digits, unit = digits_of(z, numbers[3])
    whole_part, small = product_of_digits(digits, parameters["digits"][:, points, : x.shape[1]].astype(np.float64))
    place = (unit * numbers[4])[:, None]
    product, small = whole_part * place, small * place
    first, rest, rounder = split_offsets(parameters["offsets"], function.metric, function.profile)
    first, rest = first[points], rest[points]
    if function.metric == "dot":
        u = _single(product + first)
        low = _single(_single(small + rest) + ((first - u) + product))
    else:
        of_row = norm * numbers[5]
        row = _single((of_row + rounder) - rounder)
        base = _single(row + first)
        if in_exponents(function.metric, function.profile):
            base = _single(base + BIAS.value)
            low = _single(small + rest)
            fixed = np.fmax(_single(_single(product + base) + low), LEAST.value)
            return np.asarray(_power(fixed, _single(_single(product + (base - fixed)) + low)) * np.exp2(of_row - row))
        u = _single(product + base)
        low = _single(_single(_single(small + rest) + (of_row - row)) + (base - u + product))
    match function.profile:
        case "tanh":
            k = _exp2(-np.abs(u), -np.sign(u) * low)
            return np.asarray(np.sign(u) * (1 - k) / (1 + k))
        case "power":
            power = whole(function.exponent)
            if power is not None:
                return np.asarray((u + low) ** power)
            logarithm = _single(np.log2(_single(u + low)))
            wrong = _single(u + low - _exp2(logarithm, 0.0))
            exponent = logarithm * function.exponent
            t = _single(exponent)
            return _exp2(t, _single(exponent - t + function.exponent * _single(wrong / u) * LOG2_E))
    root = np.sqrt(np.fmax(u + low, SMALLEST.value))
    if function.profile == "exp":
        near = u + low < np.maximum(row * NEAR.value, LEAST_SQUARE.value)
        exact = torch.from_numpy(np.empty(u.shape))
        differences(torch.from_numpy(z), torch.from_numpy(parameters["points"][:, points]), function.metric, out=exact)
        return emulated_power(-np.where(near, -numbers[0] * exact.sqrt().numpy(), root))
    t = _single(root)
    v = root * LN2
    return np.asarray(_exp2(-t, t - root) * (1 + v if function.profile == "matern_3_2" else 1 + v + v * v / 3))


def emulated_power(u: np.ndarray) -> np.ndarray:
    """Return `2ᵘ` as kernels compute it from a pair."""
    t = _single(u)
    return _exp2(t, u - t)


def _exp2(t: np.ndarray, rest: np.ndarray | float) -> np.ndarray:
    """Return the result of `pair_exp2`."""
    fixed = np.fmax(_single(t + BIAS.value), LEAST.value)
    return _power(fixed, _single(BIAS.value - fixed + t + rest))


def _power(fixed: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the result of `power_of_fixed`."""
    whole_part = np.floor(fixed)
    v = fixed - whole_part
    x = _single(v - 0.5 + rest)
    q = np.full_like(x, Q6.value)
    for coefficient in (Q5, Q4, Q3, Q2, Q1, Q0):
        q = _single(q * x + coefficient.value)
    with np.errstate(over="ignore", invalid="ignore"):
        answer = np.ldexp(1.0 + v + _single(q + rest), whole_part.astype(np.int64) - 639)
    return np.where(whole_part > LEAST.value, answer, 0.0)


def _single(x: np.ndarray) -> np.ndarray:
    """Return float64 numbers rounded to float32."""
    return x.astype(np.float32).astype(np.float64)
