"""Neural networks in integers: the tables that `int8_fused.py` reads, and the same computation in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...numerics.fp16_digits import SMALLEST
from ...numerics.functions import FUNCTIONS

LARGEST_WIDTH = 256
"""The largest width for which sums of products of digits fit 32 bits."""

UNITS = 64
"""The units of hidden layers are padded to a multiple of this, or of fewer if all layers are narrow."""

RESIDENT_LAYERS, RESIDENT_WIDTH = 2, 128
"""The most hidden layers, and units of each, whose weights a program can hold; all are padded to the widest then."""

ROUNDS = 3
"""Rounds of balancing features and units."""

SLACK = 1.0101
"""A margin on a row's largest number in its unit, so that the largest digit is 127 and not 128."""

LAST_BITS = 2
"""Bits dropped from the last hidden layer so that the int64 sums cannot overflow."""

Layers = Sequence[tuple[np.ndarray, np.ndarray]]
"""The weight `[inputs, units]` and intercept `[units]` of each layer, float64."""


def digit_tables(layers: Layers, shift: np.ndarray, activation: str) -> dict[str, np.ndarray]:
    """Return the kernels' tables of a network whose features have `shift` subtracted.

    `limits`, float64 `[hidden layers, 3]`: 2³² units of a layer's weights, and the bound on its outputs: a factor of
    its inputs' norm, and a summand.
    """
    scale, layers = _balanced(layers, shift, activation)
    *hidden, (last, last_intercept) = layers
    width = whole_width(max(weight.shape[1] for weight, _ in hidden))
    shapes, packed, limits, first = [], [], [], 0
    intercepts = np.zeros((len(hidden), width))
    for index, (weight, intercept) in enumerate(hidden):
        inputs, units = weight.shape
        padded = np.zeros((width if index else whole_width(inputs), filled_units(units, len(hidden), width)))
        padded[:inputs, :units] = weight
        digits, unit = _weight_digits(padded)
        intercepts[index, :units] = intercept
        growth, largest = np.sqrt((weight * weight).sum(axis=0)).max(), np.abs(intercept).max()
        bounds = np.array((0.0, 1.0) if activation in ("tanh", "expit") else (growth, largest))
        limits.append((unit * 2.0**32, *(bounds * 2.0 ** (LAST_BITS * (index == len(hidden) - 1)))))
        shapes.append((padded.shape[1], first))
        packed.append(digits.transpose(0, 2, 1).ravel())
        first += digits.size
    last_numbers, last_unit = _last_numbers(last)
    last_weight = np.zeros((last.shape[1], width), dtype=np.int32)
    last_weight[:, : len(last)] = last_numbers.T
    return {
        "shift": shift,
        "scale": scale,
        "shapes": np.array(shapes, dtype=np.int32),
        "weight": np.concatenate(packed),
        "limits": np.array(limits),
        "intercept": intercepts,
        "last_weight": last_weight,
        "last_unit": last_unit,
        "last_intercept": last_intercept,
    }


def whole_width(width: int) -> int:
    """Return the padded number of a layer's inputs, all of which a program processes at once."""
    return max(32, 1 << (width - 1).bit_length())


def filled_units(units: int, hidden: int, width: int) -> int:
    """Return the padded number of units of a layer.

    Args:
        units: the layer's units.
        hidden: the network's number of hidden layers.
        width: the padded width of its widest hidden layer.
    """
    block = width if hidden <= RESIDENT_LAYERS and width <= RESIDENT_WIDTH else min(width, UNITS)
    return -(-units // block) * block


def emulated_digit_layers(z: np.ndarray, layers: Layers, shift: np.ndarray, activation: str) -> np.ndarray:
    """Return the kernel's answers before the last function, equal in all bits except the activation's last places.

    Args:
        z: float64 rows with `shift` subtracted.
        layers: the network.
        shift: the numbers that were subtracted.
        activation: the function of hidden layers.

    Returns:
        float64 `[rows, targets]`.
    """
    tables = digit_tables(layers, shift, activation)
    scale, layers = _balanced(layers, shift, activation)
    *hidden, (last, last_intercept) = layers
    z = z * scale
    unit = _units(np.abs(z.astype(np.float32)).max(axis=1))
    q = np.rint(z / unit[:, None]).astype(np.int64)
    for (weight, intercept), (factor, growth, largest) in zip(hidden, tables["limits"], strict=True):
        d, e = (digits.astype(np.float64) for digits in (_digits(q), _weight_digits(weight)[0]))
        s0, s1, s2, s3 = (sum(d[i] @ e[level - i] for i in range(level + 1)) for level in range(4))
        v = 256 * (256 * s0 + s1) + s2 + np.floor((s3 + 128) / 256)
        h = FUNCTIONS[activation](torch.from_numpy(v * (unit * factor)[:, None] + intercept)).numpy()
        highest = np.sqrt(((q >> 20) ** 2).sum(axis=1).astype(np.float32)) + np.float32(16)
        bound = highest * 2.0**20 * unit * growth + largest
        unit = _units(bound)
        q = np.rint(h / unit[:, None]).astype(np.int64)
    sums = q @ _last_numbers(last)[0].astype(np.int64)
    answer: np.ndarray = sums * unit[:, None] * tables["last_unit"] + last_intercept
    return answer


def _balanced(layers: Layers, shift: np.ndarray, activation: str) -> tuple[np.ndarray, Layers]:
    """Return the factors of the shifted features, and layers that compute the same from the products.

    All factors are powers of two. A feature is multiplied by that of its largest weight. If the activation allows it, a
    unit's output is multiplied by a factor that brings its weights and intercept to a norm of about one. Both steps are
    repeated, as each changes the other.
    """
    weights, intercepts = [weight for weight, _ in layers], [intercept for _, intercept in layers]
    intercepts[0] = intercepts[0] + np.einsum("i,ij->j", shift, weights[0])
    scale = np.ones(len(weights[0]))
    for _ in range(ROUNDS):
        factor = _towards_one(np.abs(weights[0]).max(axis=1))
        weights[0], scale = weights[0] * factor[:, None], scale / factor
        for index in range(len(weights) - 1 if activation in ("identity", "relu") else 0):
            factor = _towards_one(np.sqrt((weights[index] ** 2).sum(axis=0) + intercepts[index] ** 2))
            weights[index], intercepts[index] = weights[index] * factor, intercepts[index] * factor
            weights[index + 1] = weights[index + 1] / factor[:, None]
    return scale, list(zip(weights, intercepts, strict=True))


def _units(largest: np.ndarray) -> np.ndarray:
    """Return the units as `unit_of` computes them."""
    exponent = np.frexp(np.asarray(largest, dtype=np.float64) * SLACK)[1]
    found: np.ndarray = np.maximum(np.ldexp(1.0, exponent - 31), SMALLEST)
    return found


def _towards_one(magnitude: np.ndarray) -> np.ndarray:
    """Return the power of two that brings each magnitude closest to one; one for zero."""
    known = np.where(magnitude > 0, magnitude, 1.0)
    found: np.ndarray = np.ldexp(1.0, -np.rint(np.log2(known)).clip(-500, 500).astype(int))
    return found


def _digits(q: np.ndarray) -> np.ndarray:
    """Return the digits of 32-bit integers as int8 `[4, …]`, the highest first."""
    signed = (q.astype(np.int64) + 0x808080) ^ 0x808080
    return np.stack([(signed >> places).astype(np.int8) for places in (24, 16, 8, 0)])


def _weight_digits(weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the digits of a layer's weights `[4, inputs, units]` and their unit."""
    unit = float(_units(np.abs(weight).max()))
    return _digits(np.rint(weight / unit)), unit


def _last_numbers(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last weights as int32, with magnitudes that add up to at most 2³³, and each target's unit."""
    magnitude = np.abs(weight)
    exponent = np.maximum(np.frexp(magnitude.sum(axis=0))[1] - 33, np.frexp(magnitude.max(axis=0))[1] - 30)
    unit: np.ndarray = np.maximum(np.ldexp(1.0, exponent), SMALLEST)
    return np.rint(weight / unit).astype(np.int32), unit
