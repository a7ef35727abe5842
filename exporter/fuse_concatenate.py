"""Fusion around Concatenate: what is put side by side is made in as few steps as can be.

Ensembles and unions of transformers end in it, and most of their parts are linear maps of one and the same value.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np

from triton_regressors.exporter.products import product
from triton_regressors.kernels.contraction import Contraction
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.ops.concatenate import Concatenate
from triton_regressors.kernels.ops.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.ops.polynomial import Polynomial
from triton_regressors.kernels.ops.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.quadratic import Quadratic
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.plan import Operation, Plan, Step
from triton_regressors.kernels.point_function import PointFunction

SMALL = 2**16
"""Matrices of so many numbers are multiplied in any case, to save a launch."""


def is_contraction(op: Operation | None) -> TypeGuard[Contraction]:
    """Whether the columns of `weight` are the operation's outputs."""
    return isinstance(op, Contraction) and not (isinstance(op, PairwiseAffine) and op.parts > 1)


class Scope:
    """The plan being rewritten: who makes a value, who reads it, how wide it is, and names for new values."""

    def __init__(self, plan: Plan) -> None:
        self.widths = plan.widths()
        self._makers = {step.output: step for step in plan.steps}
        self._readers: dict[str, list[Operation]] = {}
        for step in plan.steps:
            for name in step.inputs:
                self._readers.setdefault(name, []).append(step.operation)

    def operation(self, name: str) -> Operation | None:
        """Return the operation that makes a value; None for the plan's input."""
        return self._makers[name].operation if name in self._makers else None

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return what the maker of a value reads."""
        return self._makers[name].inputs

    def readers(self, name: str) -> list[Operation]:
        """Return the operations that read a value."""
        return self._readers.get(name, [])

    def step(self, operation: Operation, inputs: tuple[str, ...], near: str) -> Step:
        """Return a step that makes a value with a name of its own, like that of the value `near`."""
        name = next(f"{near}_{number}" for number in itertools.count() if f"{near}_{number}" not in self.widths)
        self.widths[name] = operation.output_width(*(self.widths[value] for value in inputs))
        step = self._makers[name] = Step(operation, inputs, name)
        return step


def launches(steps: Sequence[Step]) -> int:
    """Return how many kernels the steps launch."""
    return sum(step.launches() for step in steps)


def stepwise(
    rewrite: Callable[[Step, Scope], list[Step] | None], cost: Callable[[Sequence[Step]], int] = len
) -> Callable[[Plan], Plan]:
    """Make a pass of a rewriting of one step, which returns the steps in its place, or None to leave it.

    It is left too where the plan would cost more, by default have more steps, since something else reads what the step
    reads.
    """

    def run(plan: Plan) -> Plan:
        scope = Scope(plan)
        for step in plan.steps:
            new = rewrite(step, scope) if scope.operation(step.output) is step.operation else None
            if new is not None:
                steps = [part for old in plan.steps for part in (new if old.output == step.output else [old])]
                after = plan.with_steps(steps)
                kept = after.steps_for(tuple(plan.outputs))
                if cost(kept) <= cost(plan.steps):
                    plan = plan.with_steps(kept)
                scope = Scope(plan)
        return plan

    return run


def merge_neighbours(step: Step, scope: Scope) -> list[Step] | None:
    """Neighbours in a Concatenate that are alike maps of one value are one map; a Concatenate in it is its parts."""
    if not isinstance(step.operation, Concatenate):
        return None
    names = _flat(step.inputs, scope)
    parts: list[tuple[str, str, Operation]] = []  # name, what it is made of and how; as it is, it selects all columns
    merged: set[int] = set()
    for name in names:
        operation = scope.operation(name)
        if isinstance(operation, Columns) or is_contraction(operation):
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
    """Return the names with the parts of each Concatenate in its place."""
    nested = [_flat(scope.inputs(n), scope) if isinstance(scope.operation(n), Concatenate) else [n] for n in names]
    return list(itertools.chain.from_iterable(nested))


def _side_by_side(first: Operation, second: Operation) -> Operation | None:
    """Return the operation that makes what both make of one value, side by side."""
    if isinstance(first, Columns) and isinstance(second, Columns):
        return Columns(np.concatenate([first.indices, second.indices]))
    if is_contraction(first) and is_contraction(second) and type(first) is type(second):
        same = [field.name for field in dataclasses.fields(first) if field.name not in ("weight", "intercept")]
        if all(np.array_equal(getattr(first, name), getattr(second, name)) for name in same):
            weight = np.concatenate([first.weight, second.weight], axis=1)
            intercept = np.concatenate([first.intercept, second.intercept])
            return dataclasses.replace(first, weight=weight, intercept=intercept)
    return None


def scale_afterwards(step: Step, scope: Scope) -> list[Step] | None:
    """Parts of a Concatenate are scaled after it where all of them are, or where what reads it can scale by itself."""
    if not isinstance(step.operation, Concatenate):
        return None
    scales = [scope.operation(name) for name in step.inputs]
    scaled = [isinstance(scale, Scale) for scale in scales]
    readers = scope.readers(step.output)
    absorbed = readers and all(
        isinstance(op, Affine | Polynomial | PolynomialAffine | Quadratic | PointFunction) for op in readers
    )
    forms = {scale.form for scale in scales if isinstance(scale, Scale)}
    alike = all(scaled) and len(forms) == 1
    if not (alike or (any(scaled) and absorbed)):
        return None
    names = tuple(scope.inputs(n)[0] if yes else n for n, yes in zip(step.inputs, scaled, strict=True))
    none = [Scale(np.zeros(scope.widths[name]), np.ones(scope.widths[name])) for name in names]
    both = [scale if isinstance(scale, Scale) else one for scale, one in zip(scales, none, strict=True)]
    shift, factor, last = (np.concatenate([getattr(s, name) for s in both]) for name in ("shift", "factor", "last"))
    whole = Scale(shift, factor, forms.pop(), last) if alike else Scale(shift, factor)
    inner = scope.step(step.operation, names, step.output)
    return [inner, Step(whole, (inner.output,), step.output)]


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
