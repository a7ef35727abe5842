"""The facts about each member of a fleet that an entry keeps beside its plan, in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from .errors import PlanError

FILE = "members.safetensors"
MASKS, NUMBERS = ("refused", "categorical", "boolean"), ("rows", "origins")
UNIT, PARITY = "units", ("errors", "ulps", "excess")
ROUNDED = "rounded"


@dataclass(frozen=True)
class MemberTable:
    """Facts about members, by their numbers.

    `refused`, bool `[members, n_features]`, says in which columns of the plan's matrix a member takes no NaN;
    `categorical` and `boolean` say which columns are categories and booleans for a member. `errors`, `ulps` and
    `excess` are the parity of each output, float64 `[members]`, on `rows` rows, int32 `[members]`. `rounded`, float64
    `[members, 3]`, are these three for the rows as the inputs' types hold them, NaN if they do not differ; it lacks the
    outputs for which no member has it. `units` are the standard deviations of the members' predictions, float64
    `[members, width]`; see `Parity`. `origins`, int32 `[members]`, are places in `Fleet.origins`.
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

    def write(self, version: Path) -> None:
        """Write the table into a version's directory."""
        arrays = {name: np.packbits(getattr(self, name), axis=1) for name in MASKS}
        arrays |= {name: getattr(self, name) for name in NUMBERS}
        for name in (*PARITY, UNIT, ROUNDED):
            arrays |= {f"{name}.{output}": array for output, array in getattr(self, name).items()}
        (version / FILE).write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def units_of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the unit of each row's error by output, `[rows, width]`, for the numbers of the rows' members."""
        return {name: unit[numbers.astype(np.int64)] for name, unit in self.units.items()}


def read_members(version: Path, n_features: int) -> MemberTable:
    """Return the table of a version's members; raise `PlanError` if it is not there or incomplete."""
    path = version / FILE
    try:
        arrays = load_file(path)
        outputs = [name.removeprefix(f"{UNIT}.") for name in arrays if name.startswith(f"{UNIT}.")]
        fields: dict[str, Any] = {name: arrays[name] for name in NUMBERS}
        for name in MASKS:
            fields[name] = np.unpackbits(arrays[name], axis=1, count=n_features).astype(bool)
        for name in (*PARITY, UNIT):
            fields[name] = {output: arrays[f"{name}.{output}"] for output in outputs}
        rounded = {name: arrays[f"{ROUNDED}.{name}"] for name in outputs if f"{ROUNDED}.{name}" in arrays}
        return MemberTable(**fields, rounded=rounded)
    except Exception as error:  # safetensors raises a type of its own
        raise PlanError(f"Cannot read the members {path}: {error}.") from error
