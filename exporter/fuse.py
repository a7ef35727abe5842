"""Fusion: named, pure passes that make a plan shorter and keep what it computes.

A pass looks at one step and the step that made its input, and may replace the second by one that reads what the first
read; everything is folded in float64. The first step stays in the plan for whoever else reads it, and the last pass
drops what nobody reads. The passes run in order, again and again until none changes the plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.fuse_concatenate import (
    contract_parts,
    is_contraction,
    launches,
    merge_neighbours,
    scale_afterwards,
    stepwise,
)
from triton_regressors.exporter.fuse_lookup import add_up_lookups, fold_lookup
from triton_regressors.exporter.products import product
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.ops.elementwise import Elementwise
from triton_regressors.kernels.ops.pairwise import Pairwise
from triton_regressors.kernels.ops.pairwise_affine import contract
from triton_regressors.kernels.ops.piecewise import Piecewise
from triton_regressors.kernels.ops.piecewise_affine import PiecewiseAffine, worth_contracting
from triton_regressors.kernels.ops.polynomial import Polynomial
from triton_regressors.kernels.ops.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.quadratic import Quadratic
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.ops.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan import Operation, Plan, Step
from triton_regressors.kernels.point_function import PointFunction

Pair = Callable[[Operation, Operation, int], "Operation | None"]
"""`rule(first, second, width)`: one operation that does both on a matrix of that width, or None."""


@dataclass(frozen=True)
class Pass:
    """A named Plan → Plan function."""

    name: str
    run: Callable[[Plan], Plan]


def fuse(plan: Plan) -> Plan:
    """Return the plan after every pass."""
    for _, fused in fusion_steps(plan):
        plan = fused
    return plan


def fusion_steps(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield the name of each pass that changes the plan, and the plan after it."""
    changed = True
    while changed:
        changed = False
        for fusion in PASSES:
            after = fusion.run(plan)
            if after is not plan:
                changed = True
                plan = after
                yield fusion.name, plan


def pairwise(rule: Pair) -> Callable[[Plan], Plan]:
    """Make a pass of a rule for two operations in a row."""

    def run(plan: Plan) -> Plan:
        widths = plan.widths()
        makers: dict[str, Step] = {}
        changed = False
        for step in plan.steps:
            while len(step.inputs) == 1 and step.inputs[0] in makers:
                maker = makers[step.inputs[0]]
                if len(maker.inputs) != 1:
                    break
                both = rule(maker.operation, step.operation, widths[maker.inputs[0]])
                if both is None:
                    break
                step = Step(both, maker.inputs, step.output)
                changed = True
            makers[step.output] = step
        return _without_dead_steps(plan.with_steps(makers.values())) if changed else plan

    return run


def _drop_steps_without_effect(plan: Plan) -> Plan:
    """Let readers of a step that changes nothing read its input."""
    renamed: dict[str, str] = {}
    steps = []
    for step in plan.steps:
        inputs = tuple(renamed.get(name, name) for name in step.inputs)
        if _has_no_effect(step.operation, plan.widths()[step.inputs[0]]) and step.output not in plan.outputs.values():
            renamed[step.output] = inputs[0]
        else:
            steps.append(Step(step.operation, inputs, step.output))
    return plan.with_steps(steps) if renamed else plan


def _has_no_effect(op: Operation, width: int) -> bool:
    match op:
        case Scale():
            return not op.shift.any() and bool(np.all(op.factor == 1))
        case Columns():
            return np.array_equal(op.indices, np.arange(width))
        case Elementwise():
            return op.function == "identity" and op.low is None and op.high is None
    return False


def _select_early(first: Operation, columns: Operation, width: int) -> Operation | None:
    """Make only the columns that are selected afterwards."""
    if not isinstance(columns, Columns):
        return None
    kept = columns.indices
    match first:
        case Columns():
            return Columns(first.indices[kept])
        case Polynomial():
            return dataclasses.replace(first, indices=first.indices[kept])
        case Piecewise():
            tables = first.source[kept], first.knots[kept], first.coefficients[kept]
            return Piecewise(*tables, first.nan_is_zero)
        case Pairwise():
            return dataclasses.replace(first, points=first.points[kept])
    if is_contraction(first):
        return dataclasses.replace(first, weight=first.weight[:, kept], intercept=first.intercept[kept])
    return None


def _fold_linear(first: Operation, second: Operation, width: int) -> Operation | None:
    """Two linear maps in a row are one."""
    if is_contraction(first) and first.function == "identity":
        match second:
            case Scale():
                weight, intercept = first.weight * second.factor, (first.intercept - second.shift) * second.factor
                return dataclasses.replace(first, weight=weight, intercept=intercept)
            case Affine() if _product_is_no_larger(first.weight.shape, second.weight.shape):
                weight = product(first.weight, second.weight)
                intercept = product(first.intercept, second.weight) + second.intercept
                return dataclasses.replace(first, weight=weight, intercept=intercept, function=second.function)
    match first, second:
        case Scale(), Scale():
            # ((x − s₁) f₁ − s₂) f₂ = (x − s₁ − s₂ / f₁) f₁ f₂
            if np.all(first.factor != 0) and first.form == second.form == "factor":
                return Scale(first.shift + second.shift / first.factor, first.factor * second.factor)
        case Scale(), Affine():
            weight = first.factor[:, None] * second.weight
            return dataclasses.replace(second, weight=weight, intercept=second.intercept - product(first.shift, weight))
        case Columns(), Affine():
            if width <= max(8 * len(first.indices), 1024):
                weight = np.zeros((width, second.weight.shape[1]))
                np.add.at(weight, first.indices, second.weight)
                return dataclasses.replace(second, weight=weight)
    return None


def _product_is_no_larger(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether one matrix costs no more than two; small ones are folded in any case, to save a launch."""
    product = first[0] * second[1]
    return product <= max(first[0] * first[1] + second[0] * second[1], 2**16)


def _fold_into_expansion(first: Operation, second: Operation, width: int) -> Operation | None:
    """Polynomials and point functions scale their input as they read it, and are contracted as they are made."""
    match first, second:
        case Scale(), (Polynomial() | PolynomialAffine() | Quadratic() | PointFunction()):
            # ((x − s₁) f₁ − s₂) f₂, as two scales in a row
            if np.all(first.factor != 0):
                shift, factor = first.shift + second.shift / first.factor, first.factor * second.factor
                return dataclasses.replace(second, shift=shift, factor=factor)
        case Columns(), (Polynomial() | PolynomialAffine()):
            if len(np.unique(first.indices)) == len(first.indices):
                indices = np.append(first.indices, width)[second.indices].astype(np.int32)
                shift, factor = _spread_scale(first, second, width)
                return dataclasses.replace(second, indices=indices, shift=shift, factor=factor)
        case Columns(), Quadratic():
            if len(np.unique(first.indices)) == len(first.indices) and width <= max(2 * len(first.indices), 64):
                return _spread_quadratic(first, second, width)
        case Polynomial(), Affine():
            return PolynomialAffine(
                first.indices, first.shift, first.factor, second.weight, second.intercept, second.function
            )
        case Columns(), (Piecewise() | PiecewiseAffine()):
            return dataclasses.replace(second, source=first.indices[second.source])
        case Piecewise(), Affine() if worth_contracting(first, second.weight.shape[1]):
            tables = first.source, first.knots, first.coefficients, second.weight, second.intercept
            return PiecewiseAffine(*tables, second.function, first.nan_is_zero)
        case Pairwise(), Affine():
            return contract(first, second.weight, second.intercept, second.function)
    return None


def _spread_scale(
    columns: Columns, op: Polynomial | PolynomialAffine | Quadratic, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scaling of all the columns, given that of the selected ones."""
    shift, factor = np.zeros(width), np.ones(width)
    shift[columns.indices], factor[columns.indices] = op.shift, op.factor
    return shift, factor


def _spread_quadratic(columns: Columns, op: Quadratic, width: int) -> Quadratic:
    """Return the quadratic form in all the columns, given that in the selected ones."""
    targets, kept = len(op.intercept), columns.indices
    form, linear = np.zeros((targets, width, width)), np.zeros((targets, width))
    row, column = np.meshgrid(kept, kept, indexing="ij")
    for target in range(targets):
        np.add.at(form[target], (np.minimum(row, column), np.maximum(row, column)), op.quadratic[target])
    linear[:, kept] = op.linear
    shift, factor = _spread_scale(columns, op, width)
    return dataclasses.replace(op, quadratic=form, linear=linear, shift=shift, factor=factor)


def _fold_into_trees(first: Operation, second: Operation, width: int) -> Operation | None:
    """Trees read selected columns where they lie, and a linear map of leaf indicators sums the leaves' weights."""
    match first, second:
        case Columns(), TreeEnsemble():
            feature = np.append(first.indices, -1)[second.feature].astype(np.int32)
            return dataclasses.replace(second, feature=feature)
        case TreeEnsemble(output="leaves"), Affine():
            return dataclasses.replace(
                first, values=second.weight, baseline=second.intercept, function=second.function, output="sum"
            )
    return None


def _fold_function(first: Operation, second: Operation, width: int) -> Operation | None:
    """A function of each element is applied before the element is written."""
    if isinstance(first, TreeEnsemble) and first.output != "sum":
        return None
    plain = isinstance(second, Elementwise) and second.low is None and second.high is None
    if plain and not isinstance(first, Elementwise) and getattr(first, "function", "") == "identity":
        return dataclasses.replace(first, function=second.function)  # type: ignore[type-var, attr-defined]
    return None


def _use_quadratic_form(plan: Plan) -> Plan:
    """A polynomial of degree 2 is a quadratic form, which the matrix units compute, and one of degree 1 is affine."""
    steps = tuple(
        Step(_form(step.operation), step.inputs, step.output)
        if isinstance(step.operation, PolynomialAffine) and step.operation.indices.shape[1] <= 2
        else step
        for step in plan.steps
    )
    return plan if steps == plan.steps else plan.with_steps(steps)


def _form(op: PolynomialAffine) -> Affine | Quadratic:
    features, targets = len(op.shift), op.weight.shape[1]
    indices = np.full((len(op.indices), 2), features)
    indices[:, : op.indices.shape[1]] = op.indices
    indices.sort(axis=1)
    first, second = indices.T
    form = np.zeros((targets, features + 1, features + 1))
    for target in range(targets):
        np.add.at(form[target], (first, second), op.weight[:, target])
    if op.indices.shape[1] == 1:
        weight = (form[:, :features, features] * op.factor).T
        intercept = op.intercept + form[:, features, features] - product(op.shift, weight)
        return Affine(np.ascontiguousarray(weight), intercept, op.function)
    return Quadratic(
        op.shift,
        op.factor,
        np.ascontiguousarray(form[:, :features, :features]),
        np.ascontiguousarray(form[:, :features, features]),
        op.intercept + form[:, features, features],
        op.function,
    )


def _without_dead_steps(plan: Plan) -> Plan:
    steps = plan.steps_for(tuple(plan.outputs))
    return plan if len(steps) == len(plan.steps) else plan.with_steps(steps)


PASSES: tuple[Pass, ...] = (
    Pass("drop steps without effect", _drop_steps_without_effect),
    Pass("select columns early", pairwise(_select_early)),
    Pass("fold linear maps", pairwise(_fold_linear)),
    Pass("fold into expansions", pairwise(_fold_into_expansion)),
    Pass("fold into trees", pairwise(_fold_into_trees)),
    Pass("fold lookups", pairwise(fold_lookup)),
    Pass("merge side by side", stepwise(merge_neighbours)),
    Pass("scale side by side", stepwise(scale_afterwards)),
    Pass("contract side by side", stepwise(contract_parts)),
    Pass("add up lookups", stepwise(add_up_lookups, cost=launches)),
    Pass("fold functions", pairwise(_fold_function)),
    Pass("use the quadratic form", _use_quadratic_form),
    Pass("drop dead steps", _without_dead_steps),
)
