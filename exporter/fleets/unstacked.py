"""The members' own plans behind the plan of a fleet, for a version that keeps some of them.

An operation that is stacked again gives the same arrays. Most are equal to those that were stacked. These are not, and
compute the same bits:

- The leaves of summed trees are the integers that are summed, times their unit.
- Sets of categories have the width of the widest member's.
- Piecewise functions that are added up are one function for each column and target.
- Linear leaves have as many terms as the largest one of all members.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.fleets.classes import NUMBER, ROWS, Alike
from triton_regressors.kernels.format.fleet import Fleet
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.member_choice import MemberChoice
from triton_regressors.kernels.ops.columns.stacked_combine import StackedCombine
from triton_regressors.kernels.ops.columns.stacked_lookup import StackedLookup
from triton_regressors.kernels.ops.columns.stacked_weighted_median import StackedWeightedMedian
from triton_regressors.kernels.ops.linear.by_members import ByMembers
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine
from triton_regressors.kernels.ops.linear.stacked_pieces import StackedPieces
from triton_regressors.kernels.ops.linear.stacked_piecewise import StackedPiecewise
from triton_regressors.kernels.ops.linear.stacked_piecewise_affine import StackedPiecewiseAffine
from triton_regressors.kernels.ops.trees.linear_leaves import LinearLeaves
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, leaf_starts
from triton_regressors.kernels.ops.trees.stacked_linear_leaves import StackedLinearLeaves
from triton_regressors.kernels.ops.trees.stacked_symmetric_trees import StackedSymmetricTrees
from triton_regressors.kernels.ops.trees.stacked_tree_ensemble import StackedTreeEnsemble
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step, operation_class
from triton_regressors.kernels.plan.stacked import PREFIX, Stacked
from triton_regressors.kernels.plan.stacked_fields import StackedFields


def member_plans(plan: Plan, fleet: Fleet, outputs: Sequence[str]) -> Iterator[Plan]:
    """Yield the plan of each member of a fleet, in the order of their numbers, with these of the fleet's outputs."""
    steps, start = {step.output: step for step in plan.steps}, 0
    for each in fleet.classes:
        alike, place = Alike(start, ()), 0
        while alike.value(place) in steps:
            place += 1
        own = [steps[alike.value(at)] for at in range(place)]
        answers = {name: _own(_answer(plan.outputs[name], start, steps)) for name in outputs}
        operations = [_operations(step.operation, each.members) for step in own]
        for of_member in zip(*operations, strict=True):
            renamed = zip(of_member, own, strict=True)
            made = tuple(Step(op, _inputs(step), step.output) for op, step in renamed)
            yield Plan(plan.n_features - 1, made, answers, plan.dtype)
        start += each.members


def _answer(value: str, start: int, steps: dict[str, Step]) -> str:
    """Return the value of an output that the class from this number on makes; others are chosen after it."""
    step = steps.get(value)
    while step is not None and isinstance(step.operation, MemberChoice):
        before, mine, _ = step.inputs
        if step.operation.start == start:
            return mine
        value, step = before, steps.get(before)
    return value


def _inputs(step: Step) -> tuple[str, ...]:
    """Return the values that a member's own step reads."""
    read = step.inputs[:-1] if isinstance(step.operation, Stacked) else step.inputs
    return tuple(map(_own, read))


def _own(value: str) -> str:
    assert value != NUMBER
    return INPUT if value == ROWS else value


def _operations(operation: Operation, members: int) -> list[Operation]:
    return unstacked(operation) if isinstance(operation, Stacked) else [operation] * members


@functools.singledispatch
def unstacked(stack: Stacked[Any]) -> list[Operation]:
    """Return the members' own operations; by default each array and each attribute is a field of theirs."""
    kind = operation_class(stack.kind().removeprefix(PREFIX))
    attributes, arrays = _attributes(stack), dict(stack.arrays())
    return [kind(**attributes, **{name: a[m] for name, a in arrays.items()}) for m in range(stack.members)]


def _attributes(stack: Stacked[Any]) -> dict[str, Any]:
    """Return the fields of the members' own operations that are not arrays."""
    return {name: value for name, value in stack.attributes().items() if name != "start"}


@unstacked.register(ByMembers)
@unstacked.register(StackedCombine)
@unstacked.register(StackedFields)
@unstacked.register(StackedWeightedMedian)
def _by_members(stack: ByMembers[Any] | StackedCombine | StackedFields[Any] | StackedWeightedMedian) -> list[Operation]:
    return [stack.member(m) for m in range(stack.members)]


@unstacked.register
def _lookups(stack: StackedLookup) -> list[Operation]:
    found: list[Operation] = []
    for m, starts in enumerate(stack.starts):
        rows = slice(starts[0] + 2 * len(stack.columns) * m, starts[-1] + 2 * len(stack.columns) * (m + 1))
        own = starts - starts[0], stack.keys[starts[0] : starts[-1]], stack.table[rows]
        found.append(Lookup(stack.columns, *own, stack.summed, stack.function))
    return found


def _pieces(stack: StackedPieces[Any], m: int) -> tuple[slice, slice]:
    """Return the knots of a member's functions, and their pieces."""
    functions, (first, end) = len(stack.source), stack.starts[m : m + 2]
    return slice(first * functions, end * functions), slice((first + m) * functions, (end + m + 1) * functions)


@unstacked.register
def _piecewise(stack: StackedPiecewise) -> list[Operation]:
    functions, terms, found = len(stack.source), stack.coefficients.shape[1], list[Operation]()
    for m in range(stack.members):
        knots, pieces = _pieces(stack, m)
        own = stack.knots[knots].reshape(functions, -1), stack.coefficients[pieces].reshape(functions, -1, terms)
        found.append(Piecewise(stack.source, *own, stack.nan_is_zero))
    return found


@unstacked.register
def _piecewise_affine(stack: StackedPiecewiseAffine) -> list[Operation]:
    """Return one function for each target and column, and weights that add those of a target."""
    functions, (targets, _, terms), found = len(stack.source), stack.table.shape, list[Operation]()
    source, weight = np.tile(stack.source, targets), np.repeat(np.eye(targets), functions, axis=0)
    for m in range(stack.members):
        of_knots, pieces = _pieces(stack, m)
        knots = np.tile(stack.knots[of_knots].reshape(functions, -1), (targets, 1))
        coefficients = stack.table[:, pieces].reshape(targets * functions, -1, terms)
        found.append(
            PiecewiseAffine(
                weight=weight,
                intercept=stack.intercept[m],
                source=source,
                knots=knots,
                coefficients=coefficients,
                **_attributes(stack),
            )
        )
    return found


@unstacked.register
def _trees(stack: StackedTreeEnsemble) -> list[Operation]:
    inner, first_tree = stack.feature >= 0, stack.first_tree[:: stack.groups]
    first_node = [*np.minimum.reduceat(stack.roots, first_tree[:-1]), len(stack.feature)]
    first_leaf = np.append(0, np.cumsum(~inner))[first_node]
    nodes = [slice(*each) for each in itertools.pairwise(first_node)]
    asks = inner & (stack.flags & CATEGORICAL > 0)
    first_set = _starts([stack.threshold[own][asks[own]] for own in nodes], len(stack.sets))
    found: list[Operation] = []
    for m, own in enumerate(nodes):
        trees, leaves = (slice(first[m], first[m + 1]) for first in (first_tree, first_leaf))
        threshold = stack.threshold[own].copy()
        threshold[asks[own]] -= first_set[m]
        values, groups = stack.leaves[leaves], np.zeros(0, dtype=np.int32)
        if stack.output == "ordered" or stack.groups > 1:
            starts = stack.first_tree[m * stack.groups : (m + 1) * stack.groups + 1]
            groups = starts - starts[0]
        roots = stack.roots[trees] - np.int32(own.start)
        if stack.output == "sum":
            unit = stack.unit[m]
            if stack.groups > 1:
                unit = np.repeat(unit, np.diff(leaf_starts(stack.feature[own], roots)[groups]))[:, None]
            values = values * unit
        found.append(
            TreeEnsemble(
                stack.feature[own],
                threshold,
                stack.child[own] - np.where(inner[own], own.start, leaves.start).astype(np.int32),
                stack.flags[own],
                stack.sets[first_set[m] : first_set[m + 1]],
                roots,
                values,
                stack.baseline[m],
                float(stack.divisor[m]),
                stack.function,
                stack.output,
                stack.rounding,
                groups,
            )
        )
    return found


@unstacked.register
def _linear_leaves(stack: StackedLinearLeaves) -> list[Operation]:
    own = [slice(*each) for each in itertools.pairwise(stack.first_leaf)]
    arrays = stack.constant, stack.value, stack.feature, stack.coefficient
    return [LinearLeaves(*(array[leaves] for array in arrays)) for leaves in own]


@unstacked.register
def _symmetric_trees(stack: StackedSymmetricTrees) -> list[Operation]:
    tree_levels = np.append(0, np.cumsum(stack.depth))[stack.first_tree]
    first_leaf = np.append(0, np.cumsum(1 << stack.depth.astype(np.int64)))[stack.first_tree]
    asked = [stack.asked[first:end] for first, end in itertools.pairwise(tree_levels)]
    first_question = _starts(asked, len(stack.feature))
    found: list[Operation] = []
    for m in range(stack.members):
        questions, leaves = (slice(first[m], first[m + 1]) for first in (first_question, first_leaf))
        found.append(
            SymmetricTrees(
                stack.feature[questions],
                stack.threshold[questions],
                stack.missing[questions],
                asked[m] - np.int32(questions.start),
                stack.depth[stack.first_tree[m] : stack.first_tree[m + 1]],
                stack.leaves[:, leaves].T * stack.unit[m],
                stack.baseline[m],
                stack.function,
            )
        )
    return found


def _starts(named: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return the first of each member's things, and their number, from the numbers that each member names.

    Members' things follow each other. Those that nobody names are the next member's, or the last one's.
    """
    ends = np.maximum.accumulate([int(each.max(initial=-1)) + 1 for each in named])
    ends[-1] = count
    return np.append(0, ends)
