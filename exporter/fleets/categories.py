"""Categories that models of a fleet know of the same columns: an entry's inputs have those of all models together.

A column's categories are in the order in which models have them first, model after model, so that those of further
models are appended. A string that a model does not know is to it what any unknown string is to the model alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from triton_regressors.kernels.format.inputs import Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.member_categories import OwnCategories
from triton_regressors.kernels.format.member_table import MemberTable

Group = TypeVar("Group", TextInput, IntegerInput)


@dataclass(frozen=True)
class SharedCategories:
    """The inputs of a fleet, without the models' ids, and what each model takes if models differ; see `MemberTable`."""

    inputs: Inputs
    closed: np.ndarray | None
    categories: OwnCategories | None


def columns_with_categories(inputs: Inputs) -> dict[int, tuple[tuple[Any, ...], bool]]:
    """Return each column's categories, if they are strings or large whole numbers, and whether others are refused."""
    return {
        column: (known, closed)
        for group in inputs.groups
        for column, known, closed in zip(group.columns, group.categories, group.closed, strict=True)
        if known or group is not inputs.integers
    }


def share_categories(members: Sequence[Inputs], order: Sequence[int]) -> SharedCategories:
    """Return what models with the same columns share.

    Args:
        members: the inputs of each model, in the order in which the models were given.
        order: the places among `members` of the models, by their numbers in the fleet.
    """
    of_members = [columns_with_categories(each) for each in members]
    columns = sorted(of_members[0])
    shared, own, closed = dict[int, tuple[Any, ...]](), dict[int, list[Any]](), dict[int, np.ndarray]()
    for column in columns:
        lists = [each[column][0] for each in of_members]
        shared[column] = _together(lists)
        closed[column] = np.array([each[column][1] for each in of_members])[list(order)]
        if any(each != shared[column] for each in set(lists)):
            own[column] = [lists[place] for place in order]
    mixed = [column for column in columns if len(set(closed[column].tolist())) > 1]
    refused = np.zeros((len(order), members[0].n_features + 1), dtype=bool)
    for column in mixed:
        refused[:, column] = closed[column]
    return SharedCategories(
        _with_categories(members[0], shared, {column: bool(each.all()) for column, each in closed.items()}),
        refused if mixed else None,
        _own_categories(shared, own) if own else None,
    )


def inputs_of_member(inputs: Inputs, table: MemberTable, number: int) -> Inputs:
    """Return the inputs of a model of a fleet, given those that all models share, without their ids."""
    shared = columns_with_categories(inputs)
    own = {} if table.categories is None else table.categories.of_member(number)
    known = {column: tuple(shared[column][0][place] for place in places.tolist()) for column, places in own.items()}
    closed = {} if table.closed is None else {column: bool(table.closed[number, column]) for column in shared}
    return _with_categories(inputs, known, {column: each or shared[column][1] for column, each in closed.items()})


def _together(lists: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return what is in any of some lists, in the order in which it comes first."""
    return tuple(dict.fromkeys(category for each in dict.fromkeys(lists) for category in each))


def _own_categories(
    shared: Mapping[int, tuple[Any, ...]], own: Mapping[int, Sequence[tuple[Any, ...]]]
) -> OwnCategories:
    """Return the categories of each member in some columns; equal lists of a column are kept once."""
    lists, numbers = [], list[np.ndarray]()
    for column, each in own.items():
        places = {category: place for place, category in enumerate(shared[column])}
        first = {categories: len(numbers) + place for place, categories in enumerate(dict.fromkeys(each))}
        numbers += [np.array([places[category] for category in known], dtype=np.int32) for known in first]
        lists.append([first[categories] for categories in each])
    return OwnCategories(
        np.array(list(own), dtype=np.int32),
        np.array(lists, dtype=np.int32).T,
        np.cumsum([0, *map(len, numbers)], dtype=np.int64),
        np.concatenate(numbers),
    )


def _with_categories(inputs: Inputs, shared: Mapping[int, tuple[Any, ...]], closed: Mapping[int, bool]) -> Inputs:
    """Return inputs with other categories in some columns, and other answers to unknown ones."""

    def changed(group: Group) -> Group:
        return dataclasses.replace(
            group,
            categories=tuple(shared.get(*each) for each in zip(group.columns, group.categories, strict=True)),
            closed=tuple(closed.get(*each) for each in zip(group.columns, group.closed, strict=True)),
        )

    return dataclasses.replace(inputs, text=tuple(map(changed, inputs.text)), integers=changed(inputs.integers))
