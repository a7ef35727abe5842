"""Applies the operations after a lookup to its table, so that one-hot columns are never made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Operation

MANY_KEYS = 2**12
"""The most keys of two lookups in a row that become one, to save a launch."""


@dataclass(frozen=True)
class Part:
    """One lookup: the table's rows for its keys `[K, T]`, its row for NaN `[T]` and for any other number `[T]`."""

    column: int
    keys: np.ndarray
    found: np.ndarray
    missing: np.ndarray
    unknown: np.ndarray

    def through(self, change: Callable[[np.ndarray], np.ndarray]) -> Part:
        """Return the part with its table changed."""
        return Part(self.column, self.keys, change(self.found), change(self.missing), change(self.unknown))

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows for some numbers, `[n, T]`."""
        place = np.searchsorted(self.keys, numbers)
        hit = np.isin(numbers, self.keys)
        table = np.vstack([self.found, self.missing, self.unknown])
        return table[np.where(hit, place, len(self.keys) + ~np.isnan(numbers))]


def fold_lookup(first: Operation, second: Operation, width: int) -> Operation | None:
    """Fold the operation after a lookup into its table, or a selection of columns into the lookup that reads it."""
    if isinstance(second, Lookup) and isinstance(first, Columns):
        moved = [replace(part, column=int(first.indices[part.column])) for part in _parts(second)]
        return _lookup(moved, second.summed, second.function)
    if not isinstance(first, Lookup) or first.summed or first.function != "identity":
        return None
    if isinstance(second, Scale) and second.single:
        return None
    parts = _parts(first)
    match second:
        case Columns():
            return _lookup([parts[index] for index in second.indices])
        case Scale() | Elementwise():
            return _lookup([_changed(part, second, index) for index, part in enumerate(parts)])
        case Affine() if len(first.table) * second.weight.shape[1] <= max(4 * second.weight.size, 2**16):
            merged = _merged(
                [part.through(partial(np.multiply, row)) for part, row in zip(parts, second.weight, strict=True)]
            )
            merged[0] = merged[0].through(lambda t: t + second.intercept)
            return _lookup(merged, True, second.function)
        case Lookup() if len(np.unique(second.columns)) == len(second.columns):
            return _composed(parts, second)
    return None


def look_up_at_once(first: Operation, second: Operation, width: int) -> Operation | None:
    """Merge two lookups in a row if the result has few keys: each lookup gets all keys of the one that it reads.

    This pass runs after every fusion, because a linear map of one-hot columns first merges the lookups of a feature.
    """
    if not isinstance(first, Lookup) or not isinstance(second, Lookup):
        return None
    if first.summed or first.function != "identity":
        return None
    parts = _parts(first)
    if sum(len(parts[column].keys) for column in second.columns) > MANY_KEYS:
        return None
    return _composed(parts, second)


def _composed(parts: list[Part], second: Lookup) -> Lookup:
    """Return one lookup that composes `second` with the lookups `parts` that it reads."""
    composed = []
    for part in _parts(second):
        inner = parts[part.column]
        rows = [part.at(table[:, 0]) for table in (inner.found, inner.missing[None], inner.unknown[None])]
        composed.append(Part(inner.column, inner.keys, rows[0], rows[1][0], rows[2][0]))
    return _lookup(composed, second.summed, second.function)


def _parts(op: Lookup) -> list[Part]:
    count, lookups = len(op.keys), len(op.columns)
    found = np.split(op.table[:count], op.starts[1:-1])
    absent = op.table[count:]
    return [
        Part(int(op.columns[i]), keys, found[i], absent[i], absent[lookups + i])
        for i, keys in enumerate(np.split(op.keys, op.starts[1:-1]))
    ]


def _lookup(parts: list[Part], summed: bool = False, function: str = "identity") -> Lookup:
    rows = [part.found for part in parts]
    absent = [part.missing for part in parts] + [part.unknown for part in parts]
    return Lookup(
        np.array([part.column for part in parts], dtype=np.int32),
        np.cumsum([0, *(len(part.keys) for part in parts)], dtype=np.int32),
        np.concatenate([part.keys for part in parts]),
        np.vstack([*rows, *absent]),
        summed,
        function,
    )


def _changed(part: Part, op: Scale | Elementwise, index: int) -> Part:
    """Return a part with a function applied to its only output column."""
    if isinstance(op, Scale):
        return part.through(lambda t: (t - op.shift[index]) * op.factor[index])
    return part.through(lambda t: op.compute_on_cpu({}, torch.from_numpy(np.atleast_2d(t))).numpy().reshape(t.shape))


def _merged(parts: list[Part]) -> list[Part]:
    """Add up the parts that read the same column and are zero for unknown numbers, as one-hot columns are."""
    merged: list[Part] = []
    groups: dict[int, list[Part]] = {}
    for part in parts:
        if part.unknown.any():  # NaN too
            merged.append(part)
        else:
            groups.setdefault(part.column, []).append(part)
    for column, group in groups.items():
        numbers = np.concatenate([part.keys for part in group])
        keys, place = np.unique(numbers, return_inverse=True)
        found = np.zeros((len(keys), len(group[0].unknown)))
        np.add.at(found, place.ravel(), np.vstack([part.found for part in group]))
        missing = np.sum([part.missing for part in group], axis=0)
        merged.append(Part(column, keys, found, missing, group[0].unknown))
    return merged
