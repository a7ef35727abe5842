"""Linear functions of the leaves of each row's own member of a fleet; see `linear_leaves.py`, whose kernel it is.

The leaves of all members come one after the other: those of member m are `first_leaf[m]` to below `first_leaf[m + 1]`,
and `leaves[r, t]` counts those of row r's member, or is `NO_TREE` if that has fewer trees than others. `constant`,
`value`: `[leaves of all]` float64; `feature`, `coefficient`: `[leaves of all, terms]` int32 and float64. A leaf with
fewer terms than others has the feature −1 and the coefficient −0.0 in place of the rest, a term that changes no sum.
Leaves are added tree after tree, whatever other rows are, so that plain torch computes all rows at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked import Stacked
from .linear_leaves import LinearLeaves, fast_sums_of_leaves, launch_linear_leaves, sums_of_leaves, tile_of
from .traverse import NO_TREE


@dataclass(frozen=True, eq=False)
class StackedLinearLeaves(Stacked[LinearLeaves]):
    """The sum of the linear functions of the leaves that a row reaches in its member's trees."""

    RAGGED = True

    constant: np.ndarray
    value: np.ndarray
    feature: np.ndarray
    coefficient: np.ndarray
    first_leaf: np.ndarray  # int64 [members + 1]
    start: int = 0

    @classmethod
    def alike(cls, operation: LinearLeaves) -> Hashable | None:
        return ()

    @classmethod
    def of(cls, operations: Sequence[LinearLeaves], start: int = 0) -> StackedLinearLeaves:
        terms = max(each.feature.shape[1] for each in operations)
        more = [((0, 0), (0, terms - each.feature.shape[1])) for each in operations]
        return cls(
            np.concatenate([each.constant for each in operations]),
            np.concatenate([each.value for each in operations]),
            np.concatenate(
                [np.pad(each.feature, by, constant_values=-1) for each, by in zip(operations, more, strict=True)]
            ),
            np.concatenate(
                [np.pad(each.coefficient, by, constant_values=-0.0) for each, by in zip(operations, more, strict=True)]
            ),
            np.cumsum([0, *(len(each.constant) for each in operations)], dtype=np.int64),
            start,
        )

    @property
    def members(self) -> int:
        return len(self.first_leaf) - 1

    def check(self, *widths: int) -> None:
        self.check_stacked(widths, 2)
        first, leaves = self.first_leaf, len(self.constant)
        if first.dtype != np.int64 or first[0] != 0 or first[-1] != leaves or (np.diff(first) < 1).any():
            raise PlanError(f"stacked_linear_leaves: first_leaf must be int64 and ascend from 0 to {leaves}.")
        LinearLeaves(self.constant, self.value, self.feature, self.coefficient).check(*widths[:-1])

    def output_width(self, *widths: int) -> int:
        return 1

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the fields, with features numbered from 1 on, since 0 means no feature."""
        return dict(self.arrays()) | {"feature": self.feature + np.int32(1)}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the same, with features as int64 for plain torch."""
        return dict(self.arrays()) | {"feature": self.feature + np.int64(1)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        leaves, x, numbers = inputs
        return sums_of_leaves(parameters, self._of_all(parameters, leaves, numbers), x, leaves != NO_TREE.value)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        found, tile = [], tile_of(inputs[0], self.feature)
        for leaves, x, numbers in zip(*(each.split(tile) for each in inputs), strict=True):
            own = self._of_all(parameters, leaves, numbers)
            found.append(fast_sums_of_leaves(parameters, own, x, leaves != NO_TREE.value))
        return torch.cat(found)

    def _of_all(self, parameters: Parameters, leaves: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return the places of leaves among those of all members, int64 `[rows, trees]`."""
        first, place = parameters["first_leaf"], self.places(numbers)
        least, after = first.index_select(0, place)[:, None], first.index_select(0, place + 1)[:, None]
        return torch.minimum(leaves.long().clamp_(0), after - 1 - least).add_(least)

    def gains_by_order(self) -> bool:
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        leaves, x, numbers = inputs
        launch_linear_leaves(leaves, x, parameters, output, rows, self.members_of(numbers))

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{super().describe()}, {len(self.constant):,} leaves of up to {self.feature.shape[1]} features"
