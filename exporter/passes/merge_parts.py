"""Merges neighbours in a Concatenate that are maps of one value by the same operation.

Ensembles and unions of transformers end in a Concatenate. An example: the first two parts of `[x A, x B, g(x)]` are one
map `x [A B]`, so that one step computes both, and the Concatenate has two parts instead of three.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.linear.contraction import Contraction
from triton_regressors.kernels.plan.plan import Operation, Step


def merge_neighbours(step: Step, scope: Scope) -> list[Step] | None:
    """Merge neighbours in a Concatenate that are maps of one value by the same operation, and flatten nested ones."""
    if not isinstance(step.operation, Concatenate):
        return None
    names = _flat(step.inputs, scope)
    parts: list[tuple[str, str, Operation]] = []  # name, source, operation; any other value selects all its columns
    merged: set[int] = set()
    for name in names:
        operation = scope.operation(name)
        if isinstance(operation, Columns | Contraction):
            part = (name, scope.inputs(name)[0], operation)
        else:
            part = (name, name, Columns(np.arange(scope.widths[name], dtype=np.int32)))
        both = _side_by_side(parts[-1][2], part[2]) if parts and parts[-1][1] == part[1] else None
        if both is None:
            parts.append(part)
        else:
            parts[-1] = (step.output, part[1], both)
            merged.add(len(parts) - 1)
    if len(parts) == 1:
        return [Step(parts[0][2], (parts[0][1],), step.output)]
    if len(parts) == len(step.inputs):
        return None
    made = {i: scope.step(parts[i][2], (parts[i][1],), step.output) for i in sorted(merged)}
    inputs = tuple(made[i].output if i in made else name for i, (name, _, _) in enumerate(parts))
    return [*made.values(), Step(step.operation, inputs, step.output)]


def _flat(names: tuple[str, ...], scope: Scope) -> list[str]:
    """Return the names, with each Concatenate replaced by its parts."""
    nested = [_flat(scope.inputs(n), scope) if isinstance(scope.operation(n), Concatenate) else [n] for n in names]
    return list(itertools.chain.from_iterable(nested))


def _side_by_side(first: Operation, second: Operation) -> Operation | None:
    """Return the operation whose output is both operations' outputs side by side, or None."""
    if isinstance(first, Columns) and isinstance(second, Columns):
        return Columns(np.concatenate([first.indices, second.indices]))
    if isinstance(first, Contraction) and isinstance(second, Contraction) and type(first) is type(second):
        same = [field.name for field in dataclasses.fields(first) if field.name not in ("weight", "intercept")]
        if all(np.array_equal(getattr(first, name), getattr(second, name)) for name in same):
            weight = np.concatenate([first.weight, second.weight], axis=1)
            intercept = np.concatenate([first.intercept, second.intercept])
            return dataclasses.replace(first, weight=weight, intercept=intercept)
    return None
