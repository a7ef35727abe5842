"""Members of a fleet in classes, and the one plan that answers rows of all of them.

Members are in one class if their plans have the same steps, and if each step's operations can be stacked or are equal.
A class is computed for all rows of a batch at once, and each row takes the answer of its member's class; a CPU computes
the class for its own rows alone, see `engine/fleet_executor.py`. A member is often a class of its own if its plan holds
an operation that cannot be stacked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.fleets.member import Member
from triton_regressors.kernels.format.fleet import MemberClass
from triton_regressors.kernels.ops.columns.member_choice import MemberChoice
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step
from triton_regressors.kernels.plan.stacked import stacked_class

ROWS, NUMBER = "rows", "member"
"""The values of the features and of the members' numbers."""


@dataclass(frozen=True)
class Alike:
    """Members of one class, numbered from `start` on."""

    start: int
    members: Sequence[Member]

    @property
    def stop(self) -> int:
        """The number after that of the last member."""
        return self.start + len(self.members)

    def value(self, place: int) -> str:
        """Return the name of the value of the members' step at a place; −1 is their input."""
        return ROWS if place < 0 else f"members {self.start}: {place}"

    def record(self, steps: Sequence[Step]) -> MemberClass:
        """Return the class as an entry describes it; `steps` are those of its members."""
        return MemberClass(
            ", ".join(sorted({member.origin.estimator for member in self.members})),
            len(self.members),
            sum(step.launches() for step in steps),
            len(self.members) > 1,
            sum(array.nbytes for step in steps for _, array in step.operation.arrays()),
        )


def classes_of(members: Sequence[Member]) -> list[Alike]:
    """Return members in classes, by the first member of each, numbered class by class."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(_key(member.plan), []).append(member)
    found, start = [], 0
    for group in groups.values():
        found.append(Alike(start, group))
        start += len(group)
    return found


def fleet_plan(classes: Sequence[Alike]) -> tuple[Plan, list[MemberClass]]:
    """Return the plan of members in classes, and the description of each class.

    The plan's last column is the number of a row's member, and the others are the members' own columns.
    """
    first = classes[0].members[0].plan
    features = first.n_features
    steps = [Step(Slice(0, features), (INPUT,), ROWS), Step(Slice(features, 1), (INPUT,), NUMBER)]
    answers, records = dict.fromkeys(first.outputs, ""), []
    for alike in classes:
        own = list(_steps(alike))
        steps += own
        records.append(alike.record(own))
        for name, place in _outputs(alike.members[0].plan).items():
            mine, before = alike.value(place), answers[name]
            if not before:
                answers[name] = mine
                continue
            answers[name] = f"{name} of members to {alike.stop - 1}"
            steps.append(Step(MemberChoice(alike.start, alike.stop), (before, mine, NUMBER), answers[name]))
    return Plan(features + 1, tuple(steps), answers, first.dtype), records


def _steps(alike: Alike) -> Iterator[Step]:
    """Yield the steps of a class."""
    first = alike.members[0].plan
    for place, from_places in enumerate(_inputs(first)):
        operations = [member.plan.steps[place].operation for member in alike.members]
        inputs, output = tuple(map(alike.value, from_places)), alike.value(place)
        kind = stacked_class(operations[0])
        if kind is None or (_same(operations) and not kind.RAGGED):  # equal ones may read other numbers of columns
            yield Step(operations[0], inputs, output)
            continue
        yield Step(kind.of(operations, alike.start), (*inputs, NUMBER), output)


def _places(plan: Plan) -> dict[str, int]:
    """Return the place of the step that makes each value, and −1 for the plan's input: members number values apart."""
    return {INPUT: -1, **{step.output: place for place, step in enumerate(plan.steps)}}


def _inputs(plan: Plan) -> list[tuple[int, ...]]:
    """Return the places of the steps whose values each step reads."""
    places = _places(plan)
    return [tuple(places[name] for name in step.inputs) for step in plan.steps]


def _outputs(plan: Plan) -> dict[str, int]:
    """Return the place of the step that makes each output."""
    places = _places(plan)
    return {name: places[value] for name, value in plan.outputs.items()}


def _key(plan: Plan) -> Hashable:
    """Return what plans of one class have in common: operations that cannot be stacked are the same in all of them."""
    steps, widths = [(step.operation.kind(), _key_of(step.operation)) for step in plan.steps], plan.widths()
    of_values = tuple(0 if _may_be_ragged(plan, step.output) else widths[step.output] for step in plan.steps)
    return plan.n_features, plan.dtype, tuple(_outputs(plan).items()), tuple(_inputs(plan)), tuple(steps), of_values


def _may_be_ragged(plan: Plan, value: str) -> bool:
    """Return whether steps that read a value let members have other numbers of columns of it."""
    readers = [step for step in plan.steps if value in step.inputs]
    kinds = [stacked_class(step.operation) for step in readers if value not in step.inputs[1:]]
    taken = len(kinds) == len(readers) > 0 and all(kind is not None and kind.RAGGED for kind in kinds)
    return taken and value not in plan.outputs.values()


def _key_of(operation: Operation) -> Hashable:
    """Return what operations have in common that one step of a class computes."""
    kind = stacked_class(operation)
    key = None if kind is None else kind.alike(operation)
    if key is not None:
        return key
    arrays = tuple((name, array.dtype.str, array.shape, _digest(array)) for name, array in operation.arrays())
    return repr(sorted(operation.attributes().items())), arrays


def _digest(array: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()


def _same(operations: Sequence[Operation]) -> bool:
    """Return whether operations of one kind have equal fields, to the sign of a zero."""
    first, arrays = operations[0], dict(operations[0].arrays())

    def equal(name: str, array: np.ndarray) -> bool:
        mine = arrays[name]
        return array.dtype == mine.dtype and array.shape == mine.shape and array.tobytes() == mine.tobytes()

    return all(
        other is first or (other.attributes() == first.attributes() and all(equal(*each) for each in other.arrays()))
        for other in operations[1:]
    )
