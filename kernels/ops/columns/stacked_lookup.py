"""Lookups in the tables of each row's own member of a fleet.

Each of `members` members has `L` lookups of the same columns, whose keys may be as many as they like. The keys and the
tables of the members, as in `lookup.py`, follow each other.

`columns`: int32 `[L]`; `starts`: `[members, L + 1]`, the places among all keys of the first key of each lookup, and of
the end of the last one's; `keys`: float64 `[N]`; `table`: float64 `[N + 2 · members · L, T]`.

The kernels are those of `lookup.py`. Plain torch finds the keys of all rows at once, and adds up a row's entries in the
order of the lookups as one member's operation does.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...plan.plan import Parameters
from ...plan.stacked import Stacked, attributes_key
from .lookup import ELEMENTS_AT_ONCE, Lookup, launch_lookup, longest_search


@dataclass(frozen=True, eq=False)
class StackedLookup(Stacked[Lookup]):
    """Look numbers up in a member's table; `summed` sums the entries of a row before `function` is applied."""

    columns: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
    table: np.ndarray
    summed: bool = False
    function: str = "identity"
    start: int = 0

    @classmethod
    def alike(cls, operation: Lookup) -> Hashable | None:
        return attributes_key(operation), tuple(operation.columns.tolist()), operation.table.shape[1]

    @classmethod
    def of(cls, operations: Sequence[Lookup], start: int = 0) -> StackedLookup:
        ends = np.cumsum([len(each.keys) for each in operations])
        return cls(
            operations[0].columns,
            np.stack([each.starts for each in operations]) + np.append(0, ends)[:-1, None],
            np.concatenate([each.keys for each in operations]),
            np.concatenate([each.table for each in operations]),
            start=start,
            **operations[0].attributes(),
        )

    @property
    def members(self) -> int:
        return len(self.starts)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        width, lookups, count = widths[0], self.members * len(self.columns), len(self.keys)
        check_function(self.function)
        if not lookups or self.columns.min() < 0 or self.columns.max() >= width:
            raise PlanError(f"stacked_lookup: columns must be at least one and lie in [0, {width}).")
        shape = (self.members, len(self.columns) + 1)
        if self.starts.shape != shape or not np.array_equal(self.starts[1:, 0], self.starts[:-1, -1]):
            raise PlanError(f"stacked_lookup: starts must be {list(shape)}, from the end of the member before.")
        starts = np.append(self.starts[:, :-1], self.starts[-1, -1])
        if starts[0] != 0 or starts[-1] != count or np.any(np.diff(starts) < 0):
            raise PlanError(f"stacked_lookup: starts must ascend from 0 to {count}, the number of keys.")
        own = np.repeat(np.arange(lookups), np.diff(starts))
        if np.isnan(self.keys).any() or np.any(np.diff(self.keys)[np.diff(own) == 0] <= 0):
            raise PlanError("stacked_lookup: the keys of each lookup must be numbers that ascend.")
        targets = self.table.shape[-1] if self.summed else 1
        if self.table.shape != (count + 2 * lookups, targets) or not targets:
            expected = f"[{count + 2 * lookups}, {'targets' if self.summed else 1}]"
            raise PlanError(f"stacked_lookup: table must be {expected}, not {list(self.table.shape)}.")
        if len(self.table) > np.iinfo(np.int32).max:
            raise PlanError(f"stacked_lookup: the table may have at most 2³¹ − 1 rows, not {len(self.table):,}.")

    def output_width(self, *widths: int) -> int:
        return self.table.shape[1] if self.summed else len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        filled = -self.starts.shape[1] % 4  # up to whole vectors, see `find_row`
        return {
            "columns": self.columns.astype(np.int32),
            "starts": np.pad(self.starts, ((0, 0), (0, filled))).astype(np.int32),
            "keys": np.append(self.keys, np.inf),  # never empty
            "table": self.table,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place, (keys, table) = inputs[0], self.places(inputs[1]), (parameters["keys"], parameters["table"])
        lookups, longest = len(self.columns), int(np.diff(self.starts).max())
        starts, entries = parameters["starts"][place].long(), []
        for lookup, column in enumerate(self.columns.tolist()):
            v, first, end = x[:, column].double(), starts[:, lookup], starts[:, lookup + 1]
            at = first[:, None] + torch.arange(longest)  # [rows, keys], some of which are the next lookup's
            hit = (keys[at.clip(max=len(self.keys))] == v[:, None]) & (at < end[:, None])
            absent = starts[:, lookups] + torch.where(v.isnan(), lookup, lookups + lookup)
            entries.append(table[torch.where(hit.any(1), (at * hit).sum(1), absent) + 2 * lookups * place])
        answer = torch.stack(entries).sum(0) if self.summed else torch.cat(entries, dim=1)
        return FUNCTIONS[self.function](answer)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        rows = max(1, ELEMENTS_AT_ONCE // len(self.columns))
        parts = zip(torch.split(x, rows), torch.split(place, rows), strict=True)
        answer = torch.cat([self._compute(parameters, *part) for part in parts])
        width = answer.shape[1]
        return answer if self.function == "identity" else in_tiles(answer, FUNCTIONS[self.function], width, width)

    def _compute(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Return the table entries of some rows, before the function."""
        table, keys, lookups = parameters["table"], parameters["keys"], len(self.columns)
        v = x.double().index_select(1, parameters["columns"])  # [rows, L]
        starts = parameters["starts"].index_select(0, place).long()
        end = starts[:, 1 : lookups + 1]
        found = starts[:, :lookups]  # the first key that may be v: halves of the longest list pass those below
        for level in reversed(range(self._longest_search)):
            further = found + (1 << level)
            below = (further <= end) & (keys.take((further - 1).clip(max=len(self.keys))) < v)
            found = torch.where(below, further, found)
        hit = (found < end) & (keys.take(found) == v)
        absent = end[:, -1:] + torch.arange(lookups) + lookups * ~v.isnan()
        row = torch.where(hit, found, absent) + 2 * lookups * place[:, None]
        if not self.summed:
            return table.take(row)
        total = table.index_select(0, row[:, 0])
        for lookup in range(1, lookups):
            total += table.index_select(0, row[:, lookup])
        return total

    @functools.cached_property
    def _longest_search(self) -> int:
        return longest_search(self.starts)  # of all members' lists

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        what = {**self.members_of(numbers), "KEYS": 0, "FUNCTION": self.function}
        launch_lookup(x, parameters, output, rows, what, self._longest_search, summed=self.summed)

    def describe(self) -> str:
        shown = f"{super().describe()}, {len(self.columns)} lookups of {len(self.keys):,} keys in all"
        return shown + (f", summed to {self.table.shape[1]}" if self.summed else "") + function_suffix(self.function)
