"""Merges ensembles of trees side by side that read one value: a launch computes all, and each keeps its own bits.

Bags of AutoGluon, and votes and stacks of scikit-learn, put ensembles of the same kind side by side. In one operation
they are groups of trees. Each group has an output of its own, and the sum that it had alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation, Step

MOST_LEAVES = 2**30
"""Fewer leaves than these have numbers, like their nodes, that an int32 holds."""

Key = tuple[object, ...]


def merge_trees(step: Step, scope: Scope) -> list[Step] | None:
    """Merge neighbours in a Concatenate that are sums of trees of one kind and read the same value."""
    if not isinstance(step.operation, Concatenate) or step.operation.columns is not None:
        return None
    runs = [list(names) for _, names in itertools.groupby(step.inputs, lambda name: _key(name, scope) or name)]
    if len(runs) == len(step.inputs):
        return None
    steps, names = [], []
    for run in runs:
        merged = _merged(run, scope)
        if merged is None:
            names += run
        else:
            steps.append(scope.step(merged, scope.inputs(run[0]), step.output))
            names.append(steps[-1].output)
    if not steps:
        return None
    if len(names) == 1:
        return [Step(steps[0].operation, steps[0].inputs, step.output)]
    return [*steps, Step(step.operation, tuple(names), step.output)]


def _key(name: str, scope: Scope) -> Key | None:
    """Return what two sums of trees must have in common; None if the value is no sum that merges."""
    match operation := scope.operation(name):
        case SymmetricTrees() if operation.values.shape[1] == 1:
            return (*scope.inputs(name), "symmetric", operation.threshold.dtype, operation.function)
        case TreeEnsemble() if operation.output == "ordered" or (
            operation.output == "sum" and operation.values.shape[1] == 1
        ):
            alike = operation.output, operation.divisor, operation.function, operation.rounding
            return (*scope.inputs(name), operation.threshold.dtype, operation.values.shape[1], *alike)
    return None


def _merged(names: Sequence[str], scope: Scope) -> Operation | None:
    """Return the operation of all ensembles, which have the same key; None if they are not merged."""
    operations = [scope.operation(name) for name in names]
    symmetric = [operation for operation in operations if isinstance(operation, SymmetricTrees)]
    nodes = [operation for operation in operations if isinstance(operation, TreeEnsemble)]
    leaves = sum(len(each.values) for each in symmetric) + sum(len(each.values) for each in nodes)
    if len(names) == 1 or _key(names[0], scope) is None or leaves >= MOST_LEAVES:
        return None
    return _symmetric(symmetric) if symmetric else _nodes(nodes)


def _symmetric(ensembles: Sequence[SymmetricTrees]) -> SymmetricTrees:
    """Return symmetric trees in groups: those of each ensemble."""
    questions = np.cumsum([0, *(len(each.feature) for each in ensembles)], dtype=np.int32)
    asked = [each.asked + first for each, first in zip(ensembles, questions, strict=False)]
    return dataclasses.replace(
        ensembles[0],
        feature=_joined(ensembles, "feature"),
        threshold=_joined(ensembles, "threshold"),
        missing=_joined(ensembles, "missing"),
        asked=np.concatenate(asked),
        depth=_joined(ensembles, "depth"),
        values=_joined(ensembles, "values"),
        baseline=_joined(ensembles, "baseline"),
        starts=_starts([(each.starts, len(each.depth)) for each in ensembles]),
    )


def _nodes(ensembles: Sequence[TreeEnsemble]) -> TreeEnsemble:
    """Return trees in groups: those of each ensemble."""
    words = max(each.sets.shape[1] for each in ensembles)
    nodes, leaves, sets = (
        np.cumsum([0, *sizes], dtype=np.int32)
        for sizes in (
            [len(each.feature) for each in ensembles],
            [len(each.values) for each in ensembles],
            [len(each.sets) for each in ensembles],
        )
    )
    child, threshold = [], []
    for number, each in enumerate(ensembles):
        child.append(each.child + np.where(each.feature < 0, leaves[number], nodes[number]))
        asks = (each.feature >= 0) & (each.flags & CATEGORICAL > 0)
        threshold.append(each.threshold + np.where(asks, sets[number], 0).astype(each.threshold.dtype))
    return dataclasses.replace(
        ensembles[0],
        feature=_joined(ensembles, "feature"),
        threshold=np.concatenate(threshold),
        child=np.concatenate(child).astype(np.int32),
        flags=_joined(ensembles, "flags"),
        sets=np.concatenate([_widened(each.sets, words) for each in ensembles]),
        roots=np.concatenate([each.roots + first for each, first in zip(ensembles, nodes, strict=False)]),
        values=_joined(ensembles, "values"),
        baseline=_joined(ensembles, "baseline"),
        starts=_starts([(each.starts, len(each.roots)) for each in ensembles]),
    )


def _joined(ensembles: Sequence[Operation], name: str) -> np.ndarray:
    """Return the arrays of that field one after the other."""
    return np.concatenate([getattr(each, name) for each in ensembles])


def _starts(groups: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return the first tree of each group of all ensembles, and the number of trees.

    Each ensemble has the first trees of its own groups, none if it has no groups, and a number of trees.
    """
    first = np.cumsum([0, *(trees for _, trees in groups)])
    own = [start + (starts[:-1] if len(starts) else [0]) for start, (starts, _) in zip(first, groups, strict=False)]
    return np.concatenate([*own, first[-1:]]).astype(np.int32)


def _widened(sets: np.ndarray, words: int) -> np.ndarray:
    """Return sets of more words; the last bit, for every number that is no category, holds for the new categories."""
    added = np.where(sets[:, -1:] < 0, np.int32(-1), np.int32(0))
    return np.concatenate([sets, np.repeat(added, words - sets.shape[1], axis=1)], axis=1)
