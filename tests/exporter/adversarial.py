"""Rows that lie where a tree model may decide wrongly, made from the model's own thresholds and categories.

The numbers of a feature are each threshold as float32, what lies one and two units in the last place beside it, and the
numbers that decisions treat apart: both zeros, denormal numbers, the 1e-35 of LightGBM's zero, the largest numbers,
infinity and NaN. A categorical feature gets each of its codes and codes that are none: negative ones, fractions, those
past the last one and past what integers hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

_UNITS_BESIDE = 2
_ZERO_OF_LIGHTGBM = np.float32(1e-35)
_SMALLEST = np.finfo(np.float32).smallest_subnormal

_SPECIAL = np.array(
    [0.0, -0.0, *(s * n for s in (1, -1) for n in (_SMALLEST, 1e-40, 1.17549435e-38, 1e-35))], np.float32
)
_LARGEST = np.array([1e30, -1e30, np.finfo(np.float32).max, np.finfo(np.float32).min], np.float32)
_ODD_CODES = np.array(
    [-0.0, -0.25, -0.999, -1, -1.5, -7, -(2.0**31), 2.0**24, 2.0**31, 2.0**33, 1e30, -1e30], np.float32
)


def adversarial_rows(
    X: np.ndarray,
    thresholds: Mapping[int, np.ndarray],
    codes: Mapping[int, Sequence[int] | np.ndarray] | None = None,
    *,
    rows: int,
    missing: bool = True,
    infinite: bool = True,
    odd_codes: bool = True,
    seed: int = 0,
) -> np.ndarray:
    """Return float32 rows `[rows, features]` at a model's edges; the same ones at each call.

    They are rows of `X`, so that they come as deep into the trees as data do, and in each some features are moved: in a
    third of the rows one feature, in a third about half of them, and in a third all. A numeric feature goes to a number
    at or beside one of its thresholds, and in one of eight cases to a special number.

    Args:
        X: rows that the model was fitted on, `[any, features]`, numbers.
        thresholds: what each numeric feature is compared with, in any order and type; features without any get special
            numbers alone.
        codes: the codes of each categorical feature, those that its column holds.
        rows: how many are returned.
        missing: whether NaN is among the numbers.
        infinite: whether infinity and the largest numbers are.
        odd_codes: whether there are codes that no category has.
        seed: other rows for another seed.
    """
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        found: np.ndarray = np.asarray(X)[rng.integers(0, len(X), rows)].astype(np.float32)
    features, share = found.shape[1], np.arange(rows) % 3
    moved = rng.random(found.shape) < np.array([0.0, 0.5, 1.0])[share, None]
    moved[np.arange(rows), rng.integers(0, features, rows)] = True
    for feature in range(features):
        at = np.flatnonzero(moved[:, feature])
        if codes is not None and feature in codes:
            numbers = code_numbers(codes[feature], missing=missing, odd=odd_codes)
            found[at, feature] = rng.choice(numbers, len(at))
            continue
        special = special_numbers(missing=missing, infinite=infinite)
        beside = beside_thresholds(thresholds.get(feature, special[:0]), infinite=infinite)
        chosen = rng.choice(special, len(at))
        if len(beside):
            chosen = np.where(rng.random(len(at)) < 1 / 8, chosen, rng.choice(beside, len(at)))
        found[at, feature] = chosen
    return found


def in_float64(X: np.ndarray, thresholds: Mapping[int, np.ndarray], *, seed: int = 0) -> np.ndarray:
    """Return float32 rows as float64, half of their numbers at exact thresholds and one unit of float64 beside these.

    The numbers beside LightGBM's zero, and float64's own denormal and large ones, are among them.
    """
    rng, found = np.random.default_rng(seed), X.astype(np.float64)
    zero = float(_ZERO_OF_LIGHTGBM)
    special = [zero, -zero, 1e-35, -1e-35, 5e-324, -5e-324, 0.0, 1e300, -1e300]
    for feature in sorted(thresholds.keys() & range(X.shape[1])):
        exact = np.concatenate([thresholds[feature].astype(np.float64), special])
        near = np.concatenate([exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)])
        at = np.flatnonzero(rng.random(len(found)) < 0.5)
        found[at, feature] = rng.choice(near, len(at))
    return found


def special_numbers(*, missing: bool = True, infinite: bool = True) -> np.ndarray:
    """Return the float32 numbers that decisions treat apart, those beside LightGBM's zero among them."""
    zero = np.concatenate([_units_beside(np.array([sign * _ZERO_OF_LIGHTGBM], np.float32)) for sign in (1, -1)])
    parts = [_SPECIAL, zero]
    if infinite:
        parts += [_LARGEST, np.array([np.inf, -np.inf], np.float32)]
    if missing:
        parts.append(np.array([np.nan, np.nan], np.float32))
    return np.concatenate(parts)


def beside_thresholds(thresholds: np.ndarray, *, infinite: bool = True) -> np.ndarray:
    """Return the float32 nearest to each threshold and what lies one and two units beside it, each once, ascending."""
    with np.errstate(over="ignore"):
        nearest = np.unique(np.asarray(thresholds, dtype=np.float64).astype(np.float32))
        numbers = np.unique(_units_beside(nearest[~np.isnan(nearest)]))
    return numbers if infinite else numbers[np.isfinite(numbers)]


def code_numbers(codes: Sequence[int] | np.ndarray, *, missing: bool = True, odd: bool = True) -> np.ndarray:
    """Return the float32 numbers of a categorical feature: its codes, and as many others as there are."""
    known = np.unique(np.asarray(codes, dtype=np.float32))
    parts = [known]
    if odd:
        last = known[-1] if len(known) else np.float32(0)
        past = last + np.array([1, 2, 31, 32, 33, 255, 256, 1000], np.float32)
        fractions = np.concatenate([known + np.float32(0.5), np.nextafter(known, np.float32(np.inf))])
        none = np.concatenate([_ODD_CODES, past, fractions])
        parts.append(none)
    if missing:
        parts.append(np.full(max(len(known) // 8, 1), np.nan, np.float32))
    return np.concatenate(parts)


def edges_of(ensemble: TreeEnsemble | SymmetricTrees) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Return what an ensemble's trees compare each column with, and the codes of the sets that they look into."""
    if isinstance(ensemble, SymmetricTrees):
        asked = np.unique(ensemble.feature).tolist()
        return {feature: ensemble.threshold[ensemble.feature == feature] for feature in asked}, {}
    inner, categorical = ensemble.feature >= 0, ensemble.flags & CATEGORICAL > 0
    thresholds, codes = {}, {}
    for feature in np.unique(ensemble.feature[inner & ~categorical]).tolist():
        thresholds[feature] = ensemble.threshold[inner & ~categorical & (ensemble.feature == feature)]
    for feature in np.unique(ensemble.feature[inner & categorical]).tolist():
        codes[feature] = np.arange(32 * ensemble.sets.shape[1] - 1)
    return thresholds, codes


def _units_beside(numbers: np.ndarray) -> np.ndarray:
    """Return float32 numbers and those up to `_UNITS_BESIDE` units in the last place below and above each."""
    found, low, high = [numbers], numbers, numbers
    for _ in range(_UNITS_BESIDE):
        low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
        found += [low, high]
    beside: np.ndarray = np.concatenate(found)
    return beside
