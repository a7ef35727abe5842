"""Fusion of lookups: what follows a lookup is done to its table, so that one-hot columns are never made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from triton_regressors.exporter.fuse_concatenate import Scope
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.ops.combine import MAX_INPUTS, Combine
from triton_regressors.kernels.ops.concatenate import Concatenate
from triton_regressors.kernels.ops.elementwise import Elementwise
from triton_regressors.kernels.ops.lookup import Lookup
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.plan import Operation, Step


@dataclass(frozen=True)
class Part:
    """One lookup: the rows of the table for its keys `[K, T]`, for NaN and for any other number `[T]`."""

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
    """Return what follows a lookup, done to its table; or a lookup of selected columns."""
    if isinstance(second, Lookup) and isinstance(first, Columns):
        moved = [replace(part, column=int(first.indices[part.column])) for part in _parts(second)]
        return _lookup(moved, second.summed, second.function)
    if not isinstance(first, Lookup) or first.summed or first.function != "identity":
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
            composed = []
            for part in _parts(second):
                inner = parts[part.column]
                rows = [part.at(table[:, 0]) for table in (inner.found, inner.missing[None], inner.unknown[None])]
                composed.append(Part(inner.column, inner.keys, rows[0], rows[1][0], rows[2][0]))
            return _lookup(composed, second.summed, second.function)
    return None


def add_up_lookups(step: Step, scope: Scope) -> list[Step] | None:
    """An Affine of a Concatenate with lookups in it is an Affine of the rest and what the tables hold for it, added up.

    So one-hot columns beside others are not made either.
    """
    affine = step.operation
    if not isinstance(affine, Affine) or not isinstance(scope.operation(step.inputs[0]), Concatenate):
        return None
    names, intercept = scope.inputs(step.inputs[0]), affine.intercept
    blocks = np.split(affine.weight, np.cumsum([scope.widths[name] for name in names])[:-1])
    rest = [(n, b) for n, b in zip(names, blocks, strict=True) if not isinstance(scope.operation(n), Lookup)]
    terms: list[tuple[Operation, tuple[str, ...]]] = []
    if rest:
        weight = np.concatenate([block for _, block in rest])
        terms.append((Affine(weight, intercept), tuple(name for name, _ in rest)))
        intercept = np.zeros_like(intercept)
    for name, block in zip(names, blocks, strict=True):
        operation = scope.operation(name)
        if isinstance(operation, Lookup):
            summed = fold_lookup(operation, Affine(block, intercept), scope.widths[name])
            if summed is None:
                return None
            terms.append((summed, scope.inputs(name)))
            intercept = np.zeros_like(intercept)
    if len(rest) == len(names) or len(terms) > MAX_INPUTS:
        return None
    steps: list[Step] = []
    for operation, inputs in terms:
        if len(inputs) > 1:
            steps.append(scope.step(Concatenate(), inputs, step.output))
            inputs = (steps[-1].output,)
        steps.append(scope.step(operation, inputs, step.output))
    added = tuple(made.output for made in steps if not isinstance(made.operation, Concatenate))
    if affine.function == "identity":
        return [*steps, Step(Combine("sum"), added, step.output)]
    steps.append(scope.step(Combine("sum"), added, step.output))
    return [*steps, Step(Elementwise(affine.function), (steps[-1].output,), step.output)]


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
    """Return a part after a function of its one output column."""
    if isinstance(op, Scale):
        return part.through(lambda t: (t - op.shift[index]) * op.factor[index])
    return part.through(lambda t: op.reference({}, torch.from_numpy(np.atleast_2d(t))).numpy().reshape(t.shape))


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
