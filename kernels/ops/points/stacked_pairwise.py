"""Functions of rows and points of the members of a fleet: `out[r, i] = k(z_r, sᵢ)` for the points of row r's member.

`m` is the place of that member, whose points are `first_point[m]` to below `first_point[m + 1]`. `points`: `[points of
all, features]`; `shift`, `factor`: `[members, features]`; `gamma`, `coef0`, `exponent`: `[members]`; all float64;
`out`: `[rows, most points of a member]`, zero past the last point of a row's member. The rest is as in `pairwise.py`,
and the same for all members. A kernel computes a block of rows with the points of one member after the other, as those
of `stacked_kernels.py` do. A CPU computes the rows of each member of a batch as its own operation does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import Scratch
from ...format.errors import PlanError
from ...numerics.powers import whole
from ...plan.plan import Parameters
from ..linear.by_members import ByMembers
from .cpu_function import PointMatrix
from .function import digit_features
from .launch import BLOCK_OF_DIGITS, matrix_shape
from .pairwise import Pairwise, store_functions, store_functions_of_digits
from .row_digits import rows_as_digits
from .stacked_kernels import next_member, places_of_block, stacked_rows_as_digits_kernel

IN_COMMON = ("table", "metric", "profile", "precision")
LINES, NUMBERS = ("shift", "factor"), ("gamma", "coef0", "exponent")
"""The fields that members have in common, and those with a line or a number for each."""


@triton.jit
def points_of(spans, member):
    """Return the first point of a member, int64, and the number of its points."""
    return tl.load(spans + member), (tl.load(spans + member + 1) - tl.load(spans + member)).to(tl.int32)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_pairwise_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members + 1], the first point of each member, then the number of points
    shift,  # like the next four as in `pairwise_kernel`, those of all members
    factor,
    points,
    norms,
    numbers,  # float64 [members, NUMBERS]
    table,  # one table for all members
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    WIDTH: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    EXPANDED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_POINTS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    point = tl.program_id(1) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
    place = places_of_block(numbers_of_rows, row, rows, first, members)
    member = tl.min(place)
    while member < members:
        begin, count = points_of(spans, member)
        store_functions(
            x, shift + member * FEATURES, factor + member * FEATURES, points + begin * FEATURES, norms + begin,
            numbers + member * NUMBERS, table, out, row, (row < rows) & (place == member), point, rows, count,
            FEATURES=FEATURES, WIDTH=WIDTH, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS,
            EXPANDED=EXPANDED, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        member = next_member(place, member, members)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_pairwise_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members + 1], the first point of each member, then the number of points
    shift,  # like the next two as in `pairwise_digits_kernel`, those of all members
    factor,
    points,
    numbers,  # float64 [members, NUMBERS]
    digits,  # like the next as in `pairwise_digits_kernel`, those of all members
    offsets,
    row_digits,
    row_terms,
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    WIDTH: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_POINTS]` of the output to ten digits."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    point = tl.program_id(1) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
    place = places_of_block(numbers_of_rows, row, rows, first, members)
    member = tl.min(place)
    while member < members:
        begin, count = points_of(spans, member)
        store_functions_of_digits(
            x, shift + member * FEATURES, factor + member * FEATURES, points + begin * FEATURES,
            numbers + member * NUMBERS, digits + begin * (3 * BLOCK_FEATURES), offsets + begin, row_digits, row_terms,
            out, row, (row < rows) & (place == member), point, rows, count,
            FEATURES=FEATURES, WIDTH=WIDTH, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE,
            BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        member = next_member(place, member, members)


@dataclass(frozen=True, eq=False, kw_only=True)
class StackedPairwise(ByMembers[Pairwise]):
    """Write the function of each row and each point of its member."""

    points: np.ndarray
    first_point: np.ndarray  # int64 [members + 1]
    shift: np.ndarray
    factor: np.ndarray
    gamma: np.ndarray
    coef0: np.ndarray
    exponent: np.ndarray
    table: np.ndarray
    metric: str
    profile: str
    precision: str = "float64"
    start: int = 0

    @classmethod
    def alike(cls, operation: Pairwise) -> Hashable | None:
        return (
            operation.metric,
            operation.profile,
            operation.precision,
            operation.way(),
            whole(operation.exponent),
            operation.points.shape[1],
            operation.table.shape,
            operation.table.tobytes(),
        )

    @classmethod
    def of(cls, operations: Sequence[Pairwise], start: int = 0) -> StackedPairwise:
        counts = [len(each.points) for each in operations]
        fields: dict[str, Any] = {name: getattr(operations[0], name) for name in IN_COMMON}
        fields |= {name: np.stack([getattr(each, name) for each in operations]) for name in LINES}
        fields |= {name: np.array([getattr(each, name) for each in operations], np.float64) for name in NUMBERS}
        return cls(
            points=np.concatenate([each.points for each in operations]),
            first_point=np.cumsum([0, *counts], dtype=np.int64),
            start=start,
            **fields,
        )

    @property
    def members(self) -> int:
        return len(self.first_point) - 1

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        members, first = self.members, self.first_point
        if first.dtype != np.int64 or first[0] != 0 or first[-1] != len(self.points) or (np.diff(first) < 1).any():
            raise PlanError(f"stacked_pairwise: first_point must be int64 and ascend from 0 to {len(self.points)}.")
        for name in (*LINES, *NUMBERS):
            if len(getattr(self, name)) != members:
                raise PlanError(f"stacked_pairwise: {name} must be that of each of {members} members.")
        self.member(0).check(widths[0])

    def output_width(self, *widths: int) -> int:
        return self._most

    @functools.cached_property
    def _most(self) -> int:
        """The most points of a member."""
        return int(np.diff(self.first_point).max())

    def member(self, place: int) -> Pairwise:
        fields: dict[str, Any] = {name: getattr(self, name) for name in IN_COMMON}
        fields |= {name: getattr(self, name)[place] for name in LINES}
        fields |= {name: float(getattr(self, name)[place]) for name in NUMBERS}
        return Pairwise(points=self.points[self.first_point[place] : self.first_point[place + 1]], **fields)

    def precisions(self) -> tuple[str, ...]:
        """Return the precision: those of members were chosen one by one."""
        return (self.precision,)

    def on_device(self, device: torch.device) -> StackedPairwise:
        precision = self._one.on_device(device).precision
        return self if precision == self.precision else dataclasses.replace(self, precision=precision)

    @functools.cached_property
    def _one(self) -> Pairwise:
        """The first member's operation: whatever the members have in common is its own."""
        return self.member(0)

    def parameters(self) -> dict[str, np.ndarray]:
        tables = [self.member(place).parameters() for place in range(self.members)]
        lines = (*LINES, "numbers")
        found = {
            name: table
            if name == "table"
            else (np.stack if name in lines else np.concatenate)(
                [each[name] if name in lines else each[name].ravel() for each in tables]
            )
            for name, table in tables[0].items()
        }
        return {**found, "spans": self.first_point}

    def of_members(self, x: torch.Tensor, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        answer = torch.zeros(len(x), self.output_width(), dtype=torch.float64)
        members, tables = zip(*map(self.own, places), strict=True)
        matrices = [member.matrix for member in members]
        if len(places) > 1 and PointMatrix.agree(matrices):
            for place, start, k in PointMatrix.tiles_of(matrices, counts, x, self._scratch):
                own = len(members[place].points)
                answer[start : start + len(k), :own] = k[:, :own]
            return answer
        parts = zip(members, tables, x.split(list(counts)), answer.split(list(counts)), strict=True)
        for member, parameters, rows, out in parts:
            out[:, : len(member.points)] = member.compute_on_cpu(parameters, rows)
        return answer

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        answer = torch.zeros(len(x), self.output_width(), dtype=torch.float64)
        for each in place.unique().tolist():
            values = self.member(each).values(x[place == each])
            answer[(place == each).nonzero(), torch.arange(values.shape[1])] = values
        return answer

    @functools.cached_property
    def _scratch(self) -> Scratch:
        """The memory for tiles of several members."""
        return Scratch()

    def gains_by_order(self) -> bool:
        """A program takes as long as its rows have members."""
        return True

    def launches(self, inputs: int) -> int:
        return self._one.launches(1)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), features, width = inputs, self.points.shape[1], self.output_width()
        of_rows = {
            "numbers_of_rows": numbers,
            "first": self.start,
            "members": self.members,
            "NUMBERS": parameters["numbers"].shape[1],
        }
        what = {"METRIC": self.metric, "PROFILE": self.profile, "WHOLE": whole(self._one.exponent)}
        given = {"x": x, "out": output, "rows": rows, "FEATURES": features, "WIDTH": width, **of_rows, **what}
        if self._one.way() == "digits":
            digits, block = self._one.digits_shape(), BLOCK_OF_DIGITS
            kernel = stacked_rows_as_digits_kernel
            row_digits, row_terms = rows_as_digits(parameters, x, rows, self.metric, digits, kernel, of_rows)
            grid = (triton.cdiv(rows, block["BLOCK_ROWS"]), triton.cdiv(width, block["BLOCK_POINTS"]))
            stacked_pairwise_digits_kernel[grid](
                **{"points": parameters["numbers"], **parameters},
                **given,
                row_digits=row_digits,
                row_terms=row_terms,
                BLOCK_FEATURES=digit_features(features),
                **block,
            )
            return
        expanded = self._one.expanded()
        shape = matrix_shape(expanded, features)
        stacked_pairwise_kernel[(triton.cdiv(rows, shape.rows), triton.cdiv(width, shape.points))](
            **parameters,
            **given,
            PIECES=self.table.shape[0],
            TERMS=self.table.shape[1],
            EXPANDED=expanded,
            BLOCK_FEATURES=shape.features,
            BLOCK_ROWS=shape.rows,
            BLOCK_POINTS=shape.points,
            num_warps=shape.warps,
        )

    def describe(self) -> str:
        return f"{super().describe()}, {self._one.what(len(self.points))}"
