"""Squared norms of affine maps of the members of a fleet, in parts; see `squared_norm.py`.

`m` is the place of row r's member, whose map has `shapes[m]` features and targets, int64 `[members, 2]`. `weight` and
`offset`: those of one member after the other, float64, flat. `x`: `[rows, features or more]`, of which a row's member
reads its own; `out`: `[rows, parts]`, as many for all members. A kernel computes a block of rows with the map of one
member after the other, as those of `stacked_kernels.py` do. A CPU computes the rows of each member of a batch as its
own operation does.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ..linear.by_members import ByMembers
from .launch import NORM_BLOCK
from .norm_int8 import PART_TARGETS
from .squared_norm import SquaredNorm, store_part
from .stacked_kernels import next_member, places_of_block


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_squared_norm_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members, 4]: where the weight and the offset of a member begin, its features, its targets
    weight,  # float64, those of one member after the other
    offset,  # float64, likewise
    out,  # float32 or float64 [rows, PARTS]
    rows,
    first,  # the number of the first member
    members,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    TRIANGULAR: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    PART_TARGETS: tl.constexpr,
):
    """A program makes one part of `BLOCK_ROWS` rows; the last part, the slowest, comes first."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = places_of_block(numbers, row, rows, first, members)
    member = tl.min(place)
    while member < members:
        at = spans + member * 4
        store_part(
            x, weight + tl.load(at), offset + tl.load(at + 1), out, row, (row < rows) & (place == member), rows,
            tl.load(at + 2).to(tl.int32), tl.load(at + 3).to(tl.int32),
            WIDTH=WIDTH, PARTS=PARTS, TRIANGULAR=TRIANGULAR, BLOCK_FEATURES=BLOCK_FEATURES, PART_TARGETS=PART_TARGETS,
        )  # fmt: skip
        member = next_member(place, member, members)


@dataclass(frozen=True, eq=False)
class StackedSquaredNorm(ByMembers[SquaredNorm]):
    """The squared norm of an affine map for each member, in parts."""

    RAGGED = True

    weight: np.ndarray
    offset: np.ndarray
    shapes: np.ndarray
    start: int = 0

    @classmethod
    def alike(cls, operation: SquaredNorm) -> Hashable | None:
        if operation.precision != "float64":
            return None
        return operation.output_width(), operation.triangular

    @classmethod
    def of(cls, operations: Sequence[SquaredNorm], start: int = 0) -> StackedSquaredNorm:
        weight = np.concatenate([each.weight.ravel() for each in operations])
        offset = np.concatenate([each.offset for each in operations])
        return cls(weight, offset, np.array([each.weight.shape for each in operations], dtype=np.int64), start)

    @property
    def members(self) -> int:
        return len(self.shapes)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        shapes = self.shapes
        if shapes.dtype != np.int64 or shapes.ndim != 2 or shapes.shape[1] != 2 or shapes.min() < 1:
            raise PlanError("stacked_squared_norm: shapes must be int64 [members, 2], at least 1 each.")
        if self.weight.shape != (shapes.prod(axis=1).sum(),) or self.offset.shape != (shapes[:, 1].sum(),):
            raise PlanError("stacked_squared_norm: weight and offset must hold those of all members, by their shapes.")
        if shapes[:, 0].max() > widths[0] or len(set(-(-shapes[:, 1] // PART_TARGETS))) > 1:
            raise PlanError(
                f"stacked_squared_norm: members must have at most {widths[0]} features, and equal numbers of parts."
            )

    def output_width(self, *widths: int) -> int:
        return int(-(-self.shapes[0, 1] // PART_TARGETS))

    def member(self, place: int) -> SquaredNorm:
        weight, offset, features, targets = self._spans[place]
        own = self.weight[weight : weight + features * targets].reshape(features, targets)
        return SquaredNorm(own, self.offset[offset : offset + targets])

    @functools.cached_property
    def _spans(self) -> np.ndarray:
        """Where the weight and the offset of each member begin, its features and its targets, int64 `[members, 4]`."""
        sizes = np.stack([self.shapes.prod(axis=1), self.shapes[:, 1]], axis=1)
        return np.concatenate([np.cumsum(sizes, axis=0) - sizes, self.shapes], axis=1)

    def parameters(self) -> dict[str, np.ndarray]:
        return {"spans": self._spans, "weight": self.weight, "offset": self.offset}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        for each in place.unique().tolist():
            member, tables = self.own(each)
            answer[place == each] = member.reference(tables, x[place == each][:, : len(member.weight)])
        return answer

    def of_members(self, x: torch.Tensor, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        own = map(self.own, places)
        parts = zip(own, x.split(list(counts)), strict=True)
        return torch.cat(
            [member.compute_on_cpu(tables, rows[:, : len(member.weight)]) for (member, tables), rows in parts]
        )

    def gains_by_order(self) -> bool:
        """A program takes as long as its rows have members."""
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), parts = inputs, self.output_width()
        stacked_squared_norm_kernel[(parts, triton.cdiv(rows, NORM_BLOCK["BLOCK_ROWS"]))](
            x=x,
            numbers=numbers,
            **parameters,
            out=output,
            rows=rows,
            first=self.start,
            members=self.members,
            WIDTH=x.shape[1],
            PARTS=parts,
            TRIANGULAR=self.member(0).triangular,
            PART_TARGETS=PART_TARGETS,
            **NORM_BLOCK,
        )

    def describe(self) -> str:
        return f"{super().describe()}, up to {self.shapes[:, 0].max()} features in {self.output_width()} parts"
