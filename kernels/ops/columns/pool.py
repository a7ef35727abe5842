"""Pool: `out[r, c] = (s[low] + s[high]) / 2`, for `s` the values `x[r, members[c]]` of one cluster of columns, sorted.

`x`: `[rows, features]`; `members`: `[clusters, size]` int32, the columns of each cluster, padded with −1; `out`:
`[rows, clusters]`. The statistic selects places in sorted order: the first ("min"), the last ("max"), or the two in
the middle ("median"; the two may coincide). Values are compared in float64, so the answer is exact.

The kernel sorts nothing: a value's place is the number of values before it, counted by comparing all pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import POOL_MEMBERS, POOL_ROWS


@triton.jit(do_not_specialize=["rows"])
def pool_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    members,  # int32 [clusters, SIZE]
    low,  # int32 [clusters]
    high,  # int32 [clusters]
    out,  # float32 or float64 [rows, clusters]
    rows,
    FEATURES: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_MEMBERS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one cluster's column."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    cluster = tl.program_id(1)
    here = row < rows
    x += row * FEATURES
    members += cluster * SIZE
    lowest, highest = tl.load(low + cluster), tl.load(high + cluster)
    first = tl.zeros([BLOCK_ROWS], tl.float64)
    second = tl.zeros([BLOCK_ROWS], tl.float64)
    for i in tl.range(0, SIZE):
        member = tl.load(members + i)
        value = tl.load(x + member, mask=here & (member >= 0), other=0.0).to(tl.float64)
        before = tl.zeros([BLOCK_ROWS, BLOCK_MEMBERS], tl.int32)
        for start in tl.range(0, SIZE, BLOCK_MEMBERS):
            j = start + tl.arange(0, BLOCK_MEMBERS)
            column = tl.load(members + j, mask=j < SIZE, other=-1)
            there = (column >= 0)[None, :]
            other = tl.load(x[:, None] + column[None, :], mask=here[:, None] & there, other=0.0).to(tl.float64)
            earlier = (other < value[:, None]) | ((other == value[:, None]) & (j < i)[None, :])
            before += (earlier & there).to(tl.int32)
        place = tl.sum(before, axis=1)
        first = tl.where((place == lowest) & (member >= 0), value, first)
        second = tl.where((place == highest) & (member >= 0), value, second)
    y = 0.5 * (first + second)
    tl.store(out + row * tl.num_programs(1) + cluster, y.to(out.dtype.element_ty), mask=here)


@dataclass(frozen=True, eq=False)
class Pool(Operation):
    """The minimum, maximum or median of each cluster of columns."""

    members: np.ndarray
    statistic: str

    STATISTICS: ClassVar[tuple[str, ...]] = ("max", "median", "min")

    def check(self, *widths: int) -> None:
        (features,) = widths
        if self.members.ndim != 2 or not self.members.size:
            raise PlanError(f"pool: members must be [clusters, size], not {list(self.members.shape)}.")
        if self.members.min() < -1 or self.members.max() >= features or (self.members < 0).all(axis=1).any():
            raise PlanError(f"pool: members must lie in [0, {features}), at least one in each row, or be -1.")
        if self.statistic not in self.STATISTICS:
            raise PlanError(f"pool: statistic must be one of {self.STATISTICS}, not '{self.statistic}'.")

    def output_width(self, *widths: int) -> int:
        return len(self.members)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the members and, for each cluster, the two places in sorted order that are averaged."""
        sizes = (self.members >= 0).sum(axis=1)
        low, high = {
            "min": (0 * sizes, 0 * sizes),
            "max": (sizes - 1, sizes - 1),
            "median": ((sizes - 1) // 2, sizes // 2),
        }[self.statistic]
        return {"members": self.members, "low": low.astype(np.int32), "high": high.astype(np.int32)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), (members, low, high) = inputs, (parameters[name].long() for name in ("members", "low", "high"))
        values = x.double()[:, members.clamp(min=0)].masked_fill(members < 0, torch.inf)
        ordered, clusters = values.sort(dim=2).values, torch.arange(len(members))
        return 0.5 * (ordered[:, clusters, low] + ordered[:, clusters, high])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        compute = functools.partial(self.reference, parameters)
        return in_tiles(inputs[0], compute, len(self.members), 2 * self.members.size)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (clusters, size) = inputs, self.members.shape
        block_members = min(triton.next_power_of_2(size), POOL_MEMBERS)
        pool_kernel[(triton.cdiv(rows, POOL_ROWS), clusters)](
            x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=x.shape[1],
            SIZE=size,
            BLOCK_ROWS=POOL_ROWS,
            BLOCK_MEMBERS=block_members,
        )

    def describe(self) -> str:
        return f"{self.statistic} of {len(self.members)} clusters of columns"
