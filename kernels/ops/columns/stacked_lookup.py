"""Lookups in the tables of each row's own member of a fleet.

Each of `members` members has `L` lookups of the same columns, whose keys may be as many as they like. The lookups of
all members follow each other: the lookup `l` of the member at place `m` is the lookup `m L + l` of an operation as in
`lookup.py` with `members · L` lookups. A row reads the `L` of its member.

`columns`: int32 `[L]`; `starts`: `[members · L + 1]`; `keys`: float64 `[N]`; `table`: float64
`[N + 2 · members · L, T]`.

The kernels are those of `lookup.py`. Plain torch finds the keys of all rows at once, and adds up a row's entries in the
order of the lookups as one member's operation does.
"""

from __future__ import annotations

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
        first, counts = operations[0], [np.diff(each.starts) for each in operations]
        # A member's table has the entries of its keys, those of NaN and those of other numbers.
        ends = [(len(each.keys), len(each.keys) + len(each.columns)) for each in operations]
        parts = [np.split(each.table, each_ends) for each, each_ends in zip(operations, ends, strict=True)]
        return cls(
            first.columns,
            np.concatenate([[0], np.concatenate(counts).cumsum()]),
            np.concatenate([each.keys for each in operations]),
            np.concatenate([part for kind in zip(*parts, strict=True) for part in kind]),
            start=start,
            **first.attributes(),
        )

    @property
    def members(self) -> int:
        return (len(self.starts) - 1) // max(len(self.columns), 1)

    @property
    def first(self) -> int:
        return self.start

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        width, lookups, count = widths[0], self.members * len(self.columns), len(self.keys)
        check_function(self.function)
        if not lookups or self.columns.min() < 0 or self.columns.max() >= width:
            raise PlanError(f"stacked_lookup: columns must be at least one and lie in [0, {width}).")
        starts = self.starts
        if len(starts) != lookups + 1 or starts[0] != 0 or starts[-1] != count or np.any(np.diff(starts) < 0):
            raise PlanError(f"stacked_lookup: starts must be [{lookups + 1}] and ascend from 0 to {count}.")
        own = np.repeat(np.arange(lookups), np.diff(starts))
        if np.isnan(self.keys).any() or np.any(np.diff(self.keys)[np.diff(own) == 0] <= 0):
            raise PlanError("stacked_lookup: the keys of each lookup must be numbers that ascend.")
        targets = self.table.shape[-1] if self.summed else 1
        if self.table.shape != (count + 2 * lookups, targets) or not targets:
            shape = f"[{count + 2 * lookups}, {'targets' if self.summed else 1}]"
            raise PlanError(f"stacked_lookup: table must be {shape}, not {list(self.table.shape)}.")
        if len(self.table) > np.iinfo(np.int32).max:
            raise PlanError(f"stacked_lookup: the table may have at most 2³¹ − 1 rows, not {len(self.table):,}.")

    def output_width(self, *widths: int) -> int:
        return self.table.shape[1] if self.summed else len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            "columns": self.columns.astype(np.int32),
            "starts": self.starts.astype(np.int32),
            "keys": np.append(self.keys, np.inf),  # never empty
            "table": self.table,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place, (keys, table) = inputs[0], self.places(inputs[1]), (parameters["keys"], parameters["table"])
        count, lookups, longest = len(self.keys), self.members * len(self.columns), int(np.diff(self.starts).max())
        entries = []
        for number, column in enumerate(self.columns.tolist()):
            v, lookup = x[:, column].double(), place * len(self.columns) + number
            first, end = (parameters["starts"].long()[lookup + side] for side in (0, 1))
            at = first[:, None] + torch.arange(longest)  # [rows, keys], some of which are the next lookup's
            hit = (keys[at.clip(max=count)] == v[:, None]) & (at < end[:, None])
            absent = torch.where(v.isnan(), count + lookup, count + lookups + lookup)
            entries.append(table[torch.where(hit.any(1), (at * hit).sum(1), absent)])
        answer = torch.stack(entries).sum(0) if self.summed else torch.cat(entries, dim=1)
        return FUNCTIONS[self.function](answer)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        rows = max(1, ELEMENTS_AT_ONCE // len(self.columns))
        parts = zip(x.split(rows), place.split(rows), strict=True)
        answer = torch.cat([self._compute(parameters, *part) for part in parts])
        width = answer.shape[1]
        return answer if self.function == "identity" else in_tiles(answer, FUNCTIONS[self.function], width, width)

    def _compute(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Return the table entries of some rows, before the function."""
        table, keys, starts = parameters["table"], parameters["keys"], parameters["starts"].long()
        columns = len(self.columns)
        v = x.double().index_select(1, parameters["columns"])  # [rows, L]
        lookup = place[:, None] * columns + torch.arange(columns)
        first, end = starts[lookup], starts[lookup + 1]
        found = first  # the first key that may be v: those below are passed, by halves of the longest list
        for level in reversed(range(longest_search(self.starts))):
            further = found + (1 << level)
            below = (further <= end) & (keys[(further - 1).clip(max=len(self.keys))] < v)
            found = torch.where(below, further, found)
        hit = (found < end) & (keys[found] == v)
        absent = len(self.keys) + lookup + self.members * columns * ~v.isnan()
        row = torch.where(hit, found, absent)
        if not self.summed:
            return table[:, 0][row]
        total = table[row[:, 0]]
        for number in range(1, columns):
            total += table[row[:, number]]
        return total

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        what = {**self.members_of(numbers), "KEYS": 0, "FUNCTION": self.function}
        launch_lookup(x, parameters, output, rows, what, longest_search(self.starts), summed=self.summed)

    def describe(self) -> str:
        shown = f"{super().describe()}, {len(self.columns)} lookups of {len(self.keys):,} keys in all"
        return shown + (f", summed to {self.table.shape[1]}" if self.summed else "") + function_suffix(self.function)
