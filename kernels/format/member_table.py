"""The facts about each member of a fleet that an entry keeps beside its plan, in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from .errors import PlanError

FILE = "members.safetensors"
REFUSED, ERROR, EXCESS, UNIT = "refused", "error.", "excess.", "unit."


@dataclass(frozen=True)
class MemberTable:
    """Facts about members, by their numbers.

    `refused`, bool `[members, n_features]`, says in which columns of the plan's matrix a member takes no NaN. `errors`
    and `excess` are the parity of each output, float64 `[members]`, and `units` are the standard deviations of the
    members' predictions, float64 `[members, width]`; see `Parity`.
    """

    refused: np.ndarray
    errors: Mapping[str, np.ndarray]
    excess: Mapping[str, np.ndarray]
    units: Mapping[str, np.ndarray]

    def write(self, version: Path) -> None:
        """Write the table into a version's directory."""
        arrays = {REFUSED: np.packbits(self.refused, axis=1)}
        for name, unit in self.units.items():
            arrays |= {ERROR + name: self.errors[name], EXCESS + name: self.excess[name], UNIT + name: unit}
        (version / FILE).write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def units_of(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the unit of each row's error by output, `[rows, width]`, for the numbers of the rows' members."""
        return {name: unit[numbers.astype(np.int64)] for name, unit in self.units.items()}


def read_members(version: Path, n_features: int) -> MemberTable:
    """Return the table of a version's members; raise `PlanError` if it is not there or incomplete."""
    path = version / FILE
    try:
        arrays = load_file(path)
        refused = np.unpackbits(arrays[REFUSED], axis=1, count=n_features).astype(bool)
        outputs = [name.removeprefix(UNIT) for name in arrays if name.startswith(UNIT)]
        errors, excess, units = ({name: arrays[kind + name] for name in outputs} for kind in (ERROR, EXCESS, UNIT))
    except Exception as error:  # safetensors raises a type of its own
        raise PlanError(f"Cannot read the members {path}: {error}.") from error
    return MemberTable(refused, errors, excess, units)
