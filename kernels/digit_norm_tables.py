"""The tables that `digit_norm.py` reads, and what NumPy computes the same with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

DIGITS = 5
PART_TARGETS = 32
BLOCK_FEATURES, BLOCK_TARGETS = 128, 128
"""Features and targets are filled up to a multiple of so many."""

MOST_ROWS = 128
"""Rows are filled up to a multiple of so many, which a program takes, where there are many."""

MOST_FEATURES = 2**14
"""Sums of five products of so many digits stay whole numbers of 32 bits."""

MIDDLES = 0x80808080

LEAST_UNIT = 2.0**-500
UNIT_OF_LARGEST = 1.0101 / 2.0**39  # as the largest digit is 127 and not 128


def weight_digits(weight: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tables of an upper triangular weight `[features, targets]` for the kernels."""
    features, targets = weight.shape
    padded, columns = filled_up(features, BLOCK_FEATURES), filled_up(targets, BLOCK_TARGETS)
    own = np.zeros(targets)
    own[: min(features, targets)] = weight.diagonal()
    above = np.triu(weight, 1).T
    units = _units(np.abs(above).max(axis=1))
    digits = np.zeros((DIGITS, columns, padded), dtype=np.int8)
    digits[:, :targets, :features] = _digits(above, units)
    terms = np.zeros((4, columns))
    terms[:, :targets] = units * 2.0**40, above.sum(axis=1), own, offset
    return {"digits": digits, "terms": terms}


def _units(largest: np.ndarray) -> np.ndarray:
    """Return the units in which numbers up to the largest ones have digits."""
    found: np.ndarray = np.maximum(largest * UNIT_OF_LARGEST, LEAST_UNIT)
    return found


def _digits(vectors: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the digits of float64 vectors as int8 `[5, vectors, features]`, the highest first."""
    signed = (np.rint(vectors / units[:, None]).astype(np.int64) + MIDDLES) ^ MIDDLES
    return np.stack([(signed >> 8 * place).astype(np.int8) for place in reversed(range(DIGITS))])


def emulated_norms(x: np.ndarray, tables: Mapping[str, np.ndarray], parts: int) -> np.ndarray:
    """Return what the kernels answer for rows `[rows, features]`, float64 `[rows, parts]`."""
    (rows, features), (unit, total, own, offset), digits = x.shape, tables["terms"], tables["digits"]
    middle = 0.5 * x.min(axis=1, keepdims=True) + 0.5 * x.max(axis=1, keepdims=True)
    row_unit = _units((middle - x.min(axis=1, keepdims=True))[:, 0])
    z = _digits(x - middle, row_unit).astype(np.float64)
    v = np.zeros((rows, len(unit)))
    for start in range(0, features, BLOCK_FEATURES):
        block, above = slice(start, start + BLOCK_FEATURES), slice(start, None)
        s = digits[:, above, block].astype(np.float64).transpose(0, 2, 1)[:, : features - start]
        sums = np.zeros_like(s[0])
        for place, each in enumerate(reversed(z)):
            sums += s[place] * 2.0 ** (-8 * place)
            v[:, above] += each[:, block] @ sums * 2.0 ** (8 * place)
    v *= 2.0**-8
    v = v * (row_unit[:, None] * unit) + middle * total + offset
    count = min(features, len(unit))
    v[:, :count] += x[:, :count] * own[:count]
    return np.add.reduceat(v * v, np.arange(0, len(unit), PART_TARGETS), axis=1)[:, :parts]


def filled_up(size: int, block: int) -> int:
    """Return the size rounded up to a multiple of the block."""
    return -(-size // block) * block
