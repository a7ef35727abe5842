"""Indicator columns in front of trees, such as those of a OneHotEncoder, with the same places in all models of a fleet.

Models that know different numbers of categories make different numbers of indicators, which would keep them from being
one class. Trees read single columns by their numbers and no sum over columns, so that further columns change no answer:
each model gets as many indicators of a column as the model with most of them, and its trees the new numbers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from triton_regressors.exporter.fleets.member import Member
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Plan


def align_indicators(members: Sequence[Member]) -> list[Member]:
    """Return models of which those with steps of the same kinds make the same indicators, in the same places."""
    groups: dict[tuple[tuple[int, ...], tuple[str, ...]], list[int]] = {}
    for number, member in enumerate(members):
        places = _places(member.plan)
        if places:
            kinds = tuple(step.operation.kind() for step in member.plan.steps)
            groups.setdefault((places, kinds), []).append(number)
    found = list(members)
    for (places, _), numbers in groups.items():
        if len({_columns(members[number].plan) for number in numbers}) > 1:
            most = {place: _most([_lookup(members[number].plan, place) for number in numbers]) for place in places}
            for number in numbers:
                found[number] = dataclasses.replace(members[number], plan=_aligned(members[number].plan, most))
    return found


def _places(plan: Plan) -> tuple[int, ...]:
    """Return the places of the look-ups whose columns only trees read."""
    return tuple(
        place
        for place, step in enumerate(plan.steps)
        if isinstance(step.operation, Lookup) and not step.operation.summed and _for_trees(plan, step.output)
    )


def _for_trees(plan: Plan, value: str) -> bool:
    """Return whether trees alone read a value, at once or beside others."""
    readers = [step for step in plan.steps if value in step.inputs]
    return value not in plan.outputs.values() and all(
        isinstance(step.operation, TreeEnsemble | SymmetricTrees)
        or (isinstance(step.operation, Concatenate) and _for_trees(plan, step.output))
        for step in readers
    )


def _columns(plan: Plan) -> tuple[tuple[int, ...] | None, ...]:
    """Return the columns that the look-ups of a plan read, and those that it selects of others side by side."""
    operations = [step.operation for step in plan.steps if isinstance(step.operation, Lookup | Concatenate)]
    return tuple(None if each.columns is None else tuple(each.columns.tolist()) for each in operations)


def _lookup(plan: Plan, place: int) -> Lookup:
    operation = plan.steps[place].operation
    assert isinstance(operation, Lookup)
    return operation


def _most(lookups: Sequence[Lookup]) -> dict[int, int]:
    """Return the largest number of look-ups of each column, in order."""
    most = Counter[int]()
    for columns in {tuple(lookup.columns.tolist()) for lookup in lookups}:
        most |= Counter(columns)
    return dict(sorted(most.items()))


def _aligned(plan: Plan, most: Mapping[int, Mapping[int, int]]) -> Plan:
    """Return a plan with as many look-ups of each column as `most` says for the step at each place.

    What lies side by side is not selected from: trees find their columns among all of them.
    """
    before, widths = plan.widths(), plan.widths()
    moved: dict[str, np.ndarray] = {}  # the new numbers of a value's columns
    steps = []
    for place, step in enumerate(plan.steps):
        operation = step.operation
        numbers = [moved.get(name, np.arange(before[name])) for name in step.inputs]
        if place in most:
            operation, moved[step.output] = _with_more(_lookup(plan, place), most[place])
        elif moved.keys() & set(step.inputs):
            if isinstance(operation, TreeEnsemble | SymmetricTrees):
                feature = np.where(operation.feature < 0, operation.feature, numbers[0][operation.feature])
                operation = dataclasses.replace(operation, feature=feature.astype(operation.feature.dtype))
            elif isinstance(operation, Concatenate):
                starts = np.cumsum([0, *(widths[name] for name in step.inputs)])
                together = np.concatenate([each + start for each, start in zip(numbers, starts[:-1], strict=True)])
                moved[step.output] = together if operation.columns is None else together[operation.columns]
                operation = Concatenate()
        widths[step.output] = operation.output_width(*(widths[name] for name in step.inputs))
        steps.append(dataclasses.replace(step, operation=operation))
    return plan.with_steps(steps)


def _with_more(lookup: Lookup, most: Mapping[int, int]) -> tuple[Lookup, np.ndarray]:
    """Return a look-up with further ones, without keys, and the new places of its own."""
    columns = np.repeat(list(most), list(most.values())).astype(np.int32)
    count, own = len(lookup.keys), len(lookup.columns)
    taken, places = Counter[int](), np.zeros(own, dtype=np.int64)
    for place, column in enumerate(lookup.columns.tolist()):
        places[place] = np.searchsorted(columns, column) + taken[column]
        taken[column] += 1
    order, lengths = np.argsort(places), np.zeros(len(columns), dtype=np.int64)
    lengths[places] = np.diff(lookup.starts)
    keys, found = (np.split(each[:count], lookup.starts[1:-1]) for each in (lookup.keys, lookup.table))
    absent = np.zeros((2, len(columns), lookup.table.shape[1]))
    absent[:, places] = lookup.table[count:].reshape(2, own, -1)
    more = dataclasses.replace(
        lookup,
        columns=columns,
        starts=np.cumsum([0, *lengths], dtype=lookup.starts.dtype),
        keys=np.concatenate([keys[each] for each in order]),
        table=np.concatenate([*(found[each] for each in order), *absent]),
    )
    return more, places
