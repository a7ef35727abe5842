"""Fitted containers of other libraries that hold a model for each group: scikit-lego's, without importing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fleets.member import Member
from triton_regressors.exporter.fleets.samples import columns_of_ids, parts_of, table_and_targets
from triton_regressors.exporter.lowering.containers import is_container
from triton_regressors.tables.columns import in_words
from triton_regressors.tables.frames import as_frame, has_names

BY = "id"
"""The default name of the column of ids, if no container names one."""

GLOBAL_TEXT, GLOBAL_NUMBER = "global", -1
"""The id of a container's global model, if there is one column of groups. It answers all rows of unknown groups."""


@dataclass(frozen=True)
class Models:
    """The models of a fleet with what a container of them says, or the user's own mapping.

    `models` are the fitted estimators by their ids, `by` are the names of the columns of ids, `default` is the id of
    the model that answers rows of other ids, `samples` are the rows of each model, and `calibrate` those for its
    interval with their targets. `complete` says that the container refuses NaN, whatever its models do.
    """

    models: Mapping[Any, Any]
    by: tuple[str, ...]
    default: Any
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


def models_of(given: Any, by: Any, default: Any = None, samples: Any = None, calibrate: Any = None) -> Models:
    """Return the models that the user gives, in a mapping or in a fitted container.

    Raises:
        ExportError: the container cannot be a fleet, or says otherwise than `by` or `default`.
    """
    if not is_container(given):
        return Models(given, columns_of_ids(BY if by is None else by), default, samples, calibrate)
    name = type(given).__name__
    groups = _groups(given)
    if not groups:
        raise ExportError(f"Cannot make a fleet of {name}: it has no columns of groups.")
    if given.shrinkage is not None:
        raise ExportError(
            f"Cannot make a fleet of {name}: shrinkage={given.shrinkage!r} mixes the answers of several models in a "
            "row's. Fit it with shrinkage=None."
        )
    if not hasattr(given, "estimators_"):
        raise ExportError(f"Cannot make a fleet of {name}: it is not fitted.")
    if default is not None:
        raise ExportError(f"A {name} says itself which model answers rows of unknown groups; leave out default=.")
    columns = _columns_of_ids(groups, by, name)
    models, fallback = _own_models(given, len(groups))
    default = None if fallback is None else _free_id(models) if len(groups) == 1 else ()
    if fallback is not None:
        models[default] = fallback
    rows = None if samples is None else _rows(samples, groups, models, default)
    if calibrate is not None and not isinstance(calibrate, Mapping):
        calibrate = _pairs(calibrate, groups, models, default)
    return Models(models, columns, default, rows, calibrate, bool(given.check_X))


def _columns_of_ids(groups: Sequence[str | int], by: Any, name: str) -> tuple[str, ...]:
    """Return the names of the columns of ids: those of groups, or as many others if these are numbers."""
    given = None if by is None else columns_of_ids(by)
    if all(isinstance(group, str) for group in groups):
        if given is not None and given != tuple(groups):
            columns = "column" if len(groups) == 1 else "columns"
            raise ExportError(f"by must be {_named(groups)}, the {name}'s {columns} of groups, not {_named(given)}.")
        return tuple(map(str, groups))
    if given is None and len(groups) == 1:
        return (BY,)
    if given is None or len(given) != len(groups):
        raise ExportError(f"by must name the {in_words(groups)} of the {name}'s groups, not {by!r}.")
    return given


def _groups(container: Any) -> list[str | int]:
    """Return a container's columns of groups."""
    groups = container.groups
    if groups is None:
        return []
    return [groups] if isinstance(groups, str | int) else list(groups)


def _named(groups: Sequence[Any]) -> str:
    return repr(groups[0] if len(groups) == 1 else list(groups))


def _own_models(container: Any, columns: int) -> tuple[dict[Any, Any], Any]:
    """Return a container's models by their groups, and the one that answers rows of other groups, or None.

    The key of a level of a hierarchy is a number that is the same everywhere, and groups of the first columns. Levels
    above the last answer rows only if the container falls back to them.
    """
    models: dict[Any, Any] = {}
    fallback = getattr(container, "fallback_", None)
    for key, model in container.estimators_.items():
        groups = key if isinstance(key, tuple) else (key,)
        if hasattr(container, "fallback_method"):
            groups = groups[1:]
            if len(groups) < columns and container.fallback_method != "parent":
                continue
        if not groups:
            fallback = model
        else:
            models[_id(groups[0] if columns == 1 else groups)] = model
    return models, fallback


def _id(group: Any) -> Any:
    """Return a group, or groups of several columns, as an id: a whole number in a float is an int."""
    if isinstance(group, tuple):
        return tuple(map(_id, group))
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


def _rows(samples: Any, groups: Sequence[str | int], models: Mapping[Any, Any], default: Any) -> dict[Any, Any]:
    """Return a table's rows by their groups; the default model, which was fitted on all rows, has all of them."""
    own, parts = _by_groups(samples, groups, models, "samples")
    found = {key: _plain(own.iloc[places]) for key, places in parts.items()}
    return found if default is None else {**found, default: _plain(own)}


def _pairs(
    calibrate: Any, groups: Sequence[str | int], models: Mapping[Any, Any], default: Any
) -> dict[Any, tuple[Any, np.ndarray]]:
    """Return a table's rows and their targets by their groups; the default model has all of them."""
    table, targets = table_and_targets(calibrate, groups)
    own, parts = _by_groups(table, groups, models, "The rows of calibrate")
    found = {key: (_plain(own.iloc[places]), targets[places]) for key, places in parts.items()}
    return found if default is None else {**found, default: (_plain(own), targets)}


def _by_groups(
    given: Any, groups: Sequence[str | int], models: Mapping[Any, Any], what: str
) -> tuple[pd.DataFrame, dict[Any, np.ndarray]]:
    """Return a table without its columns of groups, and the places of each model's rows."""
    table = as_frame(given)
    table = table if isinstance(table, pd.DataFrame) or isinstance(given, Mapping) else pd.DataFrame(given)
    if not isinstance(table, pd.DataFrame) or not set(groups) <= set(table.columns):
        raise ExportError(f"{what} must be a table with the {in_words(groups)} of the rows' groups.")
    own = table.drop(columns=[*groups]).infer_objects()
    if not has_names(table):
        own = own.set_axis(range(own.shape[1]), axis="columns")
    parts = parts_of(table, groups, models, f"{what} lack")
    return own, {_id(key): places for key, places in parts.items()}


def _plain(table: pd.DataFrame) -> Any:
    return table if has_names(table) else table.to_numpy()
