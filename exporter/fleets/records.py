"""The facts about each member that an entry keeps, as a table, and the members that a later version makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from triton_regressors.exporter.fleets.categories import SharedCategories, inputs_of_member
from triton_regressors.exporter.fleets.member import Member
from triton_regressors.exporter.fleets.unstacked import member_plans
from triton_regressors.kernels.entry import Document, OutputParity, read_golden
from triton_regressors.kernels.format.fleet import MemberOrigin
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.member_table import MemberTable, read_members
from triton_regressors.kernels.format.parity import Parity
from triton_regressors.kernels.plan.plan import Plan, load_plan

USED = "model_used"
"""The output with the numbers of the models that answered, for a fleet with a default."""


def table_of(
    members: Sequence[Member], plan: Plan, origins: Sequence[MemberOrigin], shared: SharedCategories
) -> MemberTable:
    """Return the facts about each member."""
    calibrated = members[0].calibration_rows > 0
    outputs, place = list(plan.outputs), {origin: place for place, origin in enumerate(origins)}

    def mask(chosen: Callable[[Member], Sequence[int]]) -> np.ndarray:
        found = np.zeros((len(members), plan.n_features), dtype=bool)
        for number, member in enumerate(members):
            found[number, list(chosen(member))] = True
        return found

    def of_parity(number: Callable[[OutputParity], float]) -> dict[str, np.ndarray]:
        return {name: np.array([number(each.parity.outputs[name]) for each in members]) for name in outputs}

    rounded = {name: [each.parity.outputs[name].rounded for each in members] for name in outputs}
    return MemberTable(
        refused=~mask(lambda member: member.nan_columns),
        errors=of_parity(lambda parity: parity.max_error),
        excess=of_parity(lambda parity: parity.excess),
        units=units_of(members, plan.outputs, np.arange(len(members))),
        ulps=of_parity(lambda parity: parity.max_ulp),
        rounded={
            name: np.array([[np.nan] * 3 if each is None else dataclasses.astuple(each) for each in found])
            for name, found in rounded.items()
            if any(each is not None for each in found)
        },
        rows=np.array([member.parity.rows for member in members], dtype=np.int32),
        origins=np.array([place[member.origin] for member in members], dtype=np.int32),
        categorical=mask(lambda member: member.inputs.categorical),
        boolean=mask(lambda member: member.boolean_columns),
        closed=shared.closed,
        categories=shared.categories,
        calibration_rows=np.array([each.calibration_rows for each in members], dtype=np.int32) if calibrated else None,
        coverage=np.array([each.coverage for each in members]) if calibrated else None,
    )


def units_of(members: Sequence[Member], outputs: Mapping[str, str], numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the unit of each output's errors for members of these numbers."""
    return {name: np.array([member.parity.outputs[name].unit for member in members])[numbers] for name in outputs}


def read_fleet(version: Path, document: Document) -> Iterator[Member]:
    """Yield the members of a fleet's version as they were when it was written, in the order of their numbers.

    The parts of their parity that a fleet has once, such as the reason for the types, are the fleet's.

    Raises:
        PlanError: a file cannot be read.
    """
    fleet, whole = document.fleet, document.inputs
    assert fleet is not None
    outputs = [name for name in document.parity.outputs if name != USED]
    table, golden = read_members(version, whole.n_features), read_golden(version, document)
    own_places = table.own_places(whole)
    X = golden.X if own_places is None else own_places(golden.X)
    plans = member_plans(load_plan(version, document), fleet, outputs)
    inputs, names = _own_inputs(whole), columns_of(document)
    ids = whole.models
    shared: dict[tuple[int, ...], Inputs] = {}
    first = np.searchsorted(golden.X[:, -1], np.arange(fleet.members + 1))
    for number, (name, plan) in enumerate(zip(ids, plans, strict=True)):
        rows, origin = slice(first[number], first[number + 1]), fleet.origins[table.origins[number]]
        categorical = _columns(table.categorical[number])
        yield Member(
            name,
            origin,
            plan,
            inputs_of_member(
                shared.setdefault(categorical, dataclasses.replace(inputs, categorical=categorical)), table, number
            ),
            names,
            _columns(~table.refused[number, :-1]),
            bool(document.answers_column),
            _columns(table.boolean[number]),
            dataclasses.replace(
                document.parity,
                rows=int(table.rows[number]),
                rows_from=origin.rows_from,
                outputs={output: _parity(table, output, number) for output in outputs},
                types=inputs.datatypes(),
            ),
            X[rows, :-1],
            {output: golden.outputs[output][rows] for output in outputs},
            0 if table.calibration_rows is None else int(table.calibration_rows[number]),
            () if table.coverage is None else tuple(table.coverage[number].tolist()),
        )


def columns_of(document: Document) -> tuple[str, ...]:
    """Return the names of a fleet's columns without that of the ids; none if models have none and are given some."""
    names = document.provenance.feature_names[:-1]
    return () if names == numbered_columns(len(names)) else names


def numbered_columns(count: int) -> tuple[str, ...]:
    """Return the names that a fleet gives to columns without names."""
    return tuple(f"x{column}" for column in range(count))


def _own_inputs(whole: Inputs) -> Inputs:
    """Return the inputs of a fleet without the ids of its members."""
    return dataclasses.replace(
        whole,
        n_features=whole.n_features - 1,
        text=tuple(group for group in whole.text if group.name not in whole.ids),
        whole_ids=None,
        id_columns=None,
        numbered=None,
        default=None,
        categorical=(),
    )


def _columns(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask).tolist())


def _parity(table: MemberTable, output: str, number: int) -> OutputParity:
    """Return a member's parity of an output."""
    rounded = table.rounded[output][number].tolist() if output in table.rounded else [np.nan]
    return OutputParity(
        tuple(table.units[output][number].tolist()),
        float(table.errors[output][number]),
        float(table.ulps[output][number]),
        float(table.excess[output][number]),
        None if np.isnan(rounded).any() else Parity(*rounded),
    )
