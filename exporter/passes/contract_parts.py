"""Sums up the parts of a Concatenate that an Affine reads.

Most parts of ensembles and unions are linear maps of one and the same value. An example: `[x A, x B, g(x)] @ W` is
`x (A W₁ + B W₂) + g(x) W₃`, where `W₁`, `W₂` and `W₃` are the rows of `W` for each part. One Affine makes the first
term, and one of `[first, g(x)]` adds them up; without `g`, the first is all.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.passes.rewriting import SMALL, Scope
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Step


def contract_parts(step: Step, scope: Scope) -> list[Step] | None:
    """An Affine of a Concatenate is a sum over its parts, and the parts that are linear in one value are one map of it.

    A selection of columns counts among them only where another part reads the whole value: NaN in a column that is not
    selected has no effect.
    """
    affine = step.operation
    if not isinstance(affine, Affine) or not isinstance(scope.operation(step.inputs[0]), Concatenate):
        return None
    names, targets = scope.inputs(step.inputs[0]), affine.weight.shape[1]
    blocks = np.split(affine.weight, np.cumsum([scope.widths[name] for name in names])[:-1])
    whole = {_source(name, scope) for name in names if not isinstance(scope.operation(name), Columns)}
    keys = [_source(name, scope) if _source(name, scope) in whole else name for name in names]
    steps: list[Step] = []
    parts: list[tuple[str, np.ndarray]] = []
    intercept = affine.intercept
    for key in dict.fromkeys(keys):
        members = [(name, block) for name, block, other in zip(names, blocks, keys, strict=True) if other == key]
        alone = len(members) == len(names)
        if not alone and (len(members) == 1 or targets > sum(len(block) for _, block in members)):
            parts += members
            continue
        maps = [_linear(name, key, scope) for name, _ in members]
        if scope.widths[key] * targets > max(SMALL, sum(m.weight.size for m in maps) + affine.weight.size):
            parts += members
            continue
        weight = sum((product(m.weight, block) for m, (_, block) in zip(maps, members, strict=True)), np.zeros((1, 1)))
        intercept = sum((product(m.intercept, block) for m, (_, block) in zip(maps, members, strict=True)), intercept)
        if alone:
            return [Step(Affine(weight, intercept, affine.function), (key,), step.output)]
        steps.append(scope.step(Affine(weight, np.zeros(targets)), (key,), step.output))
        parts.append((steps[-1].output, np.eye(targets)))
    if not steps:
        return None
    inner = scope.step(Concatenate(), tuple(name for name, _ in parts), step.output)
    last = Affine(np.concatenate([block for _, block in parts]), intercept, affine.function)
    return [*steps, inner, Step(last, (inner.output,), step.output)]


def _source(name: str, scope: Scope) -> str:
    """Return the value that a value is linear in: what its Affine or Columns reads, or itself."""
    match scope.operation(name):
        case Columns() | Affine(function="identity"):
            return scope.inputs(name)[0]
    return name


def _linear(name: str, source: str, scope: Scope) -> Affine:
    """Return the affine map that makes a value of its source."""
    width = scope.widths[source]
    operation = scope.operation(name) if name != source else None
    if isinstance(operation, Affine):
        return operation
    kept = operation.indices if isinstance(operation, Columns) else np.arange(width)
    return Affine(np.eye(width)[:, kept], np.zeros(len(kept)))
