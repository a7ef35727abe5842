"""Sums over points of the members of a fleet: `out[r, t] = g(Σᵢ k(z_r, sᵢ) · weight[i, t] + intercept[m, t])`.

`m` is the place of row r's member, whose points are `first_point[m]` to below `first_point[m + 1]`, and whose numbers
are those of the function `k`. `points`: `[points of all, features]`; `weight`: `[points of all, targets]`; `shift` and
`factor`: `[members, features]`; `intercept`: `[members, targets]`; `gamma`, `coef0` and `exponent`: `[members]`; all
float64. The rest is as in `pairwise_affine.py`, and the same for all members.

Members have other numbers of points, and thus of parts of their sums in kernels. If these differ, `counts` holds them,
and a row of `out` has as many numbers as the most parts need, and at its end the number of its own parts, which
`stacked_parts.py` adds up. A kernel (`stacked_kernels.py`) computes a block of rows with the code of a single model for
one member after the other. A CPU computes the rows of each member of a batch as its own operation does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...cpu.tiles import Scratch
from ...format.errors import PlanError
from ...numerics.functions import function_suffix
from ...numerics.powers import whole
from ...plan.plan import Operation, Parameters
from ..linear.by_members import ByMembers
from .cpu_function import PointMatrix
from .launch import MOST_BLOCK_POINTS
from .pairwise_affine import Kernels, PairwiseAffine
from .stacked_kernels import (
    stacked_column_pairs_kernel,
    stacked_pairwise_affine_kernel,
    stacked_rows_as_columns_kernel,
    stacked_rows_as_digits_kernel,
    stacked_sums_of_pairs_kernel,
)
from .stacked_parts import SumOfOwnParts, parts_key, ragged_width

KERNELS = Kernels(
    stacked_pairwise_affine_kernel,
    stacked_sums_of_pairs_kernel,
    stacked_column_pairs_kernel,
    stacked_rows_as_digits_kernel,
    stacked_rows_as_columns_kernel,
)

IN_COMMON = ("table", "metric", "profile", "precision", "function")
LINES, NUMBERS = ("shift", "factor", "intercept"), ("gamma", "coef0", "exponent")
"""The fields that members have in common, and those with a line or a number for each."""

OF_MEMBERS = ("shift", "factor", "numbers")
"""The tables of kernels that have a line for each member; those of points and parts come one after the other."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StackedPairwiseAffine(ByMembers[PairwiseAffine]):
    """A sum over points for each member."""

    points: np.ndarray
    first_point: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    weight: np.ndarray
    intercept: np.ndarray
    gamma: np.ndarray
    coef0: np.ndarray
    exponent: np.ndarray
    table: np.ndarray
    metric: str
    profile: str
    precision: str = "float64"
    function: str = "identity"
    parts: int = 1
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    start: int = 0

    @classmethod
    def alike(cls, operation: PairwiseAffine) -> Hashable | None:
        ways = []
        for precision in dict.fromkeys((operation.precision, _other_precision(operation))):
            each = dataclasses.replace(operation, precision=precision)
            one_block = precision == "float64" and _first(each).part_points() <= MOST_BLOCK_POINTS
            if one_block and operation.weight.shape[1] > 1:
                return None  # a single product of matrices begins with the intercept, and the first of several does not
            ways.append((precision, each.way(), each.weighed, operation.parts, parts_key(_parts(each))))
        return (
            operation.metric,
            operation.profile,
            operation.function,
            whole(operation.exponent),
            operation.points.shape[1],
            operation.weight.shape[1],
            operation.table.shape,
            operation.table.tobytes(),
            *ways,
        )

    @classmethod
    def of(cls, operations: Sequence[PairwiseAffine], start: int = 0) -> StackedPairwiseAffine:
        first, counts = operations[0], [len(each.points) for each in operations]
        fields: dict[str, Any] = {name: getattr(first, name) for name in IN_COMMON}
        fields |= {name: np.stack([getattr(each, name) for each in operations]) for name in LINES}
        fields |= {name: np.array([getattr(each, name) for each in operations], np.float64) for name in NUMBERS}
        return cls(
            points=np.concatenate([each.points for each in operations]),
            first_point=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            weight=np.concatenate([each.weight for each in operations]),
            parts=first.parts,
            start=start,
            **fields,
        )

    @property
    def members(self) -> int:
        return len(self.first_point) - 1

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        members, first = self.members, self.first_point
        if first[0] != 0 or (np.diff(first) < 1).any() or not first[-1] == len(self.points) == len(self.weight):
            raise PlanError(
                "stacked_pairwise_affine: first_point must count the points and the weights of each member."
            )
        if any(len(each) != members for each in (self.shift, self.factor, self.intercept)):
            raise PlanError("stacked_pairwise_affine: each member must have a shift, a factor and an intercept.")
        if any(each.shape != (members,) for each in (self.gamma, self.coef0, self.exponent)):
            raise PlanError("stacked_pairwise_affine: each member must have gamma, coef0 and an exponent.")
        self.member(0).check(widths[0])

    def output_width(self, *widths: int) -> int:
        targets = self.weight.shape[1]
        return self.parts * targets if not len(self.counts) else ragged_width(self.counts, targets)

    def member(self, place: int) -> PairwiseAffine:
        """Return the operation of the member at a place."""
        mine = slice(self.first_point[place], self.first_point[place + 1])
        fields: dict[str, Any] = {name: getattr(self, name) for name in IN_COMMON}
        fields |= {name: getattr(self, name)[place] for name in LINES}
        fields |= {name: float(getattr(self, name)[place]) for name in NUMBERS}
        parts = int(self.counts[place]) if len(self.counts) else self.parts
        return PairwiseAffine(points=self.points[mine], weight=self.weight[mine], parts=parts, **fields)

    def precisions(self) -> tuple[str, ...]:
        """Return the precision: those of members were chosen one by one."""
        return (self.precision,)

    def on_device(self, device: torch.device) -> StackedPairwiseAffine:
        precision = self._one.on_device(device).precision
        return self if precision == self.precision else dataclasses.replace(self, precision=precision)

    def in_steps(self) -> tuple[Operation, ...]:
        first, *others = self._one.in_steps()
        parts = [_parts(self.member(place)) for place in range(self.members)]
        if len(set(parts)) > 1:
            added = SumOfOwnParts(tuple(sorted(set(parts))), self.weight.shape[1], self.function)
            return dataclasses.replace(self, counts=np.array(parts), function="identity"), added
        if not others:
            return (self,)
        assert isinstance(first, PairwiseAffine)
        return dataclasses.replace(self, parts=first.parts, function=first.function), *others

    @functools.cached_property
    def _one(self) -> PairwiseAffine:
        """The first member's operation: whatever the members have in common is its own."""
        return self.member(0)

    def parameters(self) -> dict[str, np.ndarray]:
        members = [self.member(place) for place in range(self.members)]
        tables = [member.parameters() for member in members]
        found = {
            name: table
            if name == "table"
            else np.stack([each[name] for each in tables])
            if name in OF_MEMBERS
            else np.concatenate([each[name].ravel() for each in tables])
            for name, table in tables[0].items()
        }
        columns = np.cumsum([0, *(member.columns() for member in members)])[:-1] // MOST_BLOCK_POINTS
        part_points = [member.part_points() // MOST_BLOCK_POINTS for member in members]
        parts = [member.parts for member in members]
        first_part = np.cumsum([0, *parts])[:-1]
        spans = (self.first_point[:-1], np.diff(self.first_point), columns, part_points, first_part, parts)
        return {**found, "spans": np.stack(spans, axis=1).astype(np.int64)}

    def of_members(self, x: torch.Tensor, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        members, tables = zip(*map(self.own, places), strict=True)
        matrices = [member.plain_weights[0] for member in members]
        if len(places) == 1:
            matrices[0].share(self._tiles)
            return members[0].compute_on_cpu(tables[0], x)
        if not PointMatrix.agree(matrices):
            return super().of_members(x, places, counts)
        answer = members[0].no_sums(len(x))
        for place, start, k in PointMatrix.tiles_of(matrices, counts, x, self._scratch):
            members[place].sum_tile(k, answer[start : start + len(k)])
        intercepts = torch.stack([of_member["intercept"] for of_member in tables])
        own = intercepts.index_select(0, torch.from_numpy(np.arange(len(places)).repeat(counts)))
        return members[0].finish_sums({"intercept": own}, answer)

    @functools.cached_property
    def _scratch(self) -> Scratch:
        """The memory for tiles of several members."""
        return Scratch()

    @functools.cached_property
    def _tiles(self) -> dict[tuple[int, int], tuple[Scratch, Scratch]]:
        """The memory for tiles that members' operations share."""
        return {}

    def gains_by_order(self) -> bool:
        """A program takes as long as its rows have members."""
        return True

    def launches(self, inputs: int) -> int:
        return self._one.launches(1)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        tables = {name: table for name, table in parameters.items() if name != "spans"}
        of_rows = {
            "numbers_of_rows": numbers,
            "first": self.start,
            "members": self.members,
            "NUMBERS": parameters["numbers"].shape[1],
        }
        parts, ragged = (int(self.counts.max()), True) if len(self.counts) else (self.parts, False)
        of_points = {**of_rows, "spans": parameters["spans"], "WIDTH": self.output_width(), "RAGGED": ragged}
        self._one.launch_kernels(KERNELS, tables, x, output, rows, parts, of_rows, of_points)

    def describe(self) -> str:
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        shape = f"{self.points.shape[1]} → {self.weight.shape[1]}"
        what = self._one.what(len(self.points))
        return f"{super().describe()}, {shape} by {what}{parts}" + function_suffix(self.function)


def _parts(operation: PairwiseAffine) -> int:
    """Return the number of parts in which kernels make a sum."""
    return _first(operation).parts


def _first(operation: PairwiseAffine) -> PairwiseAffine:
    """Return the operation by which kernels make the parts of a sum."""
    first, *_ = operation.in_steps()
    assert isinstance(first, PairwiseAffine)
    return first


def _other_precision(operation: PairwiseAffine) -> str:
    """Return the precision in which some GPUs compute the operation instead of its own."""
    return "ten digits" if operation.precision == "float32 pairs" else operation.precision
