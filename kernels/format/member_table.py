"""The facts about each member of a fleet that an entry keeps beside its plan, in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from .errors import PlanError
from .inputs import Inputs
from .member_categories import OwnCategories, OwnPlaces

FILE = "members.safetensors"
MASKS, NUMBERS = ("refused", "categorical", "boolean"), ("rows", "origins")
UNIT, PARITY = "units", ("errors", "ulps", "excess")
ROUNDED = "rounded"
CLOSED, CATEGORIES = "closed", "categories."
INTERVAL = ("calibration_rows", "coverage")


@dataclass(frozen=True)
class MemberTable:
    """Facts about members, by their numbers.

    `refused`, bool `[members, n_features]`, says in which columns of the plan's matrix a member takes no NaN;
    `categorical` and `boolean` say which columns are categories and booleans for a member. `errors`, `ulps` and
    `excess` are the parity of each output, float64 `[members]`, on `rows` rows, int32 `[members]`. `rounded`, float64
    `[members, 3]`, are these three for the rows as the inputs' types hold them, NaN if they do not differ; it lacks the
    outputs for which no member has it. `units` are the standard deviations of the members' predictions, float64
    `[members, width]`; see `Parity`. `origins`, int32 `[members]`, are places in `Fleet.origins`. `closed`, of the
    same shape as `refused`, says in which columns a member takes no unknown category; None if members agree.
    `categories` is None too if they agree. `calibration_rows`, int32 `[members]`, are the rows that made each member's
    interval, and `coverage`, float64 `[members, targets]`, its share of targets among the held-out ones of these rows,
    NaN if they are too few; both are None without intervals. See `IntervalReport`.
    """

    refused: np.ndarray
    errors: Mapping[str, np.ndarray]
    excess: Mapping[str, np.ndarray]
    units: Mapping[str, np.ndarray]
    ulps: Mapping[str, np.ndarray]
    rounded: Mapping[str, np.ndarray]
    rows: np.ndarray
    origins: np.ndarray
    categorical: np.ndarray
    boolean: np.ndarray
    closed: np.ndarray | None = None
    categories: OwnCategories | None = None
    calibration_rows: np.ndarray | None = None
    coverage: np.ndarray | None = None

    def write(self, version: Path) -> None:
        """Write the table into a version's directory."""
        arrays = {name: np.packbits(getattr(self, name), axis=1) for name in MASKS}
        arrays |= {name: getattr(self, name) for name in NUMBERS}
        for name in (*PARITY, UNIT, ROUNDED):
            arrays |= {f"{name}.{output}": array for output, array in getattr(self, name).items()}
        arrays |= {name: getattr(self, name) for name in INTERVAL if getattr(self, name) is not None}
        if self.closed is not None:
            arrays[CLOSED] = np.packbits(self.closed, axis=1)
        if self.categories is not None:
            arrays |= {CATEGORIES + name: array for name, array in vars(self.categories).items()}
        (version / FILE).write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def own_places(self, inputs: Inputs) -> OwnPlaces | None:
        """Return what turns places of categories into members' own; None if all members have those of `inputs`."""
        return None if self.categories is None else OwnPlaces(self.categories, inputs)

    def units_of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the unit of each row's error by output, `[rows, width]`, for the numbers of the rows' members."""
        return {name: unit[numbers.astype(np.int64)] for name, unit in self.units.items()}


def read_members(version: Path, n_features: int) -> MemberTable:
    """Return the table of a version's members; raise `PlanError` if it is not there or incomplete."""
    path = version / FILE

    def bits(packed: np.ndarray) -> np.ndarray:
        return np.unpackbits(packed, axis=1, count=n_features).astype(bool)

    try:
        arrays = load_file(path)
        outputs = [name.removeprefix(f"{UNIT}.") for name in arrays if name.startswith(f"{UNIT}.")]
        fields: dict[str, Any] = {name: arrays[name] for name in NUMBERS}
        fields |= {name: arrays[name] for name in INTERVAL if name in arrays}
        for name in MASKS:
            fields[name] = bits(arrays[name])
        for name in (*PARITY, UNIT):
            fields[name] = {output: arrays[f"{name}.{output}"] for output in outputs}
        rounded = {name: arrays[f"{ROUNDED}.{name}"] for name in outputs if f"{ROUNDED}.{name}" in arrays}
        own = {name.removeprefix(CATEGORIES): array for name, array in arrays.items() if name.startswith(CATEGORIES)}
        closed = bits(arrays[CLOSED]) if CLOSED in arrays else None
        return MemberTable(**fields, rounded=rounded, closed=closed, categories=OwnCategories(**own) if own else None)
    except Exception as error:  # safetensors raises a type of its own
        raise PlanError(f"Cannot read the members {path}: {error}.") from error
