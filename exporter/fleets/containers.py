"""Fitted containers of other libraries that hold a model for each group: scikit-lego's, without importing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fleets.member import Member
from triton_regressors.exporter.fleets.samples import table_and_targets
from triton_regressors.exporter.lowering.containers import is_container
from triton_regressors.tables.frames import as_frame, has_names

BY = "id"
"""The default name of the column of ids, if no container names one."""

GLOBAL_TEXT, GLOBAL_NUMBER = "global", -1
"""The id of a container's global model. It answers all rows of unknown groups, this id among them."""


@dataclass(frozen=True)
class Models:
    """The models of a fleet with what a container of them says, or the user's own mapping.

    `models` are the fitted estimators by their ids, `by` is the name of the column of ids, `default` the id of the
    model that answers rows of other ids, `samples` are the rows of each model, and `calibrate` those for its interval
    with their targets. `complete` says that the container refuses NaN, whatever its models do.
    """

    models: Mapping[Any, Any]
    by: str
    default: str | int | None
    samples: Any = None
    calibrate: Any = None
    complete: bool = False

    def member(self, member: Member) -> Member:
        """Return a compiled model that takes the rows that its container takes."""
        if not self.complete:
            return member
        kept = ~np.isnan(member.X).any(axis=1)
        outputs = {name: answers[kept] for name, answers in member.outputs.items()}
        return dataclasses.replace(member, nan_columns=(), X=member.X[kept], outputs=outputs)


def models_of(
    given: Any, by: str | None, default: str | int | None = None, samples: Any = None, calibrate: Any = None
) -> Models:
    """Return the models that the user gives, in a mapping or in a fitted container.

    Raises:
        ExportError: the container cannot be a fleet, or says otherwise than `by` or `default`.
    """
    if not is_container(given):
        return Models(given, BY if by is None else by, default, samples, calibrate)
    name = type(given).__name__
    groups = _groups(given)
    if len(groups) != 1:
        named = ", ".join(map(repr, groups)) or "none"
        raise ExportError(
            f"Cannot make a fleet of {name}: a fleet has one column of ids, and its columns of groups are {named}. "
            "Join them in one column, and fit it with groups=[that column]."
        )
    if given.shrinkage is not None:
        raise ExportError(
            f"Cannot make a fleet of {name}: shrinkage={given.shrinkage!r} mixes the answers of several models in a "
            "row's. Fit it with shrinkage=None."
        )
    if not hasattr(given, "estimators_"):
        raise ExportError(f"Cannot make a fleet of {name}: it is not fitted.")
    if default is not None:
        raise ExportError(f"A {name} says itself which model answers rows of unknown groups; leave out default=.")
    (group,) = groups
    if isinstance(group, str) and by not in (None, group):
        raise ExportError(f"by must be {group!r}, the {name}'s column of groups, not {by!r}.")
    models, fallback = _own_models(given)
    default = None if fallback is None else _free_id(models)
    if fallback is not None:
        models[default] = fallback
    column = group if isinstance(group, str) else BY if by is None else by
    rows = None if samples is None else _rows(samples, group, default)
    if calibrate is not None and not isinstance(calibrate, Mapping):
        calibrate = _pairs(calibrate, group, default)
    return Models(models, column, default, rows, calibrate, bool(given.check_X))


def _groups(container: Any) -> list[str | int]:
    """Return a container's columns of groups."""
    groups = container.groups
    if groups is None:
        return []
    return [groups] if isinstance(groups, str | int) else list(groups)


def _own_models(container: Any) -> tuple[dict[Any, Any], Any]:
    """Return a container's models by their groups, and the one that answers rows of other groups, or None."""
    models: dict[Any, Any] = {}
    fallback = getattr(container, "fallback_", None)
    for group, model in container.estimators_.items():
        if not isinstance(group, tuple):
            models[_id(group)] = model
        elif len(group) == 2:  # a level of a hierarchy: a number that is the same everywhere, and the group
            models[_id(group[1])] = model
        elif container.fallback_method == "parent":
            fallback = model
    return models, fallback


def _id(group: Any) -> Any:
    """Return a group as an id: a whole number in a float, as in an array of floats, is an int."""
    group = group.item() if isinstance(group, np.generic) else group
    return int(group) if isinstance(group, float) and group.is_integer() else group


def _free_id(models: Mapping[Any, Any]) -> str | int:
    """Return an id that no group has."""
    if all(isinstance(each, int) for each in models):
        return min(GLOBAL_NUMBER, min(models, default=0) - 1)
    name = GLOBAL_TEXT
    while name in models:
        name += "_"
    return name


def _rows(samples: Any, group: str | int, default: str | int | None) -> dict[Any, Any]:
    """Return a table's rows by their groups; the default model, which was fitted on all rows, has all of them."""
    own, parts = _by_group(samples, group, "samples")
    found = {key: _plain(own.iloc[places]) for key, places in parts.items()}
    return found if default is None else {**found, default: _plain(own)}


def _pairs(calibrate: Any, group: str | int, default: str | int | None) -> dict[Any, tuple[Any, np.ndarray]]:
    """Return a table's rows and their targets by their groups; the default model has all of them."""
    table, targets = table_and_targets(calibrate, group)
    own, parts = _by_group(table, group, "The rows of calibrate")
    found = {key: (_plain(own.iloc[places]), targets[places]) for key, places in parts.items()}
    return found if default is None else {**found, default: (_plain(own), targets)}


def _by_group(given: Any, group: str | int, what: str) -> tuple[pd.DataFrame, dict[Any, np.ndarray]]:
    """Return a table without its column of groups, and the places of each group's rows."""
    table = as_frame(given)
    table = table if isinstance(table, pd.DataFrame) or isinstance(given, Mapping) else pd.DataFrame(given)
    if not isinstance(table, pd.DataFrame) or group not in table.columns:
        raise ExportError(f"{what} must be a table with the column {group!r} of the rows' groups.")
    own = table.drop(columns=group).infer_objects()
    if not has_names(table):
        own = own.set_axis(range(own.shape[1]), axis="columns")
    parts = table.groupby(group, sort=False, observed=True).indices
    return own, {_id(key): places for key, places in parts.items()}


def _plain(table: pd.DataFrame) -> Any:
    return table if has_names(table) else table.to_numpy()
