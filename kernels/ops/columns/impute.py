"""Impute: columns with numbers in place of missing ones, and columns that flag missing numbers.

`numerics/missing.py` says which numbers are missing.

    out[r, j]     = fill[j] where x[r, columns[j]] is missing, else x[r, columns[j]]        for each of `columns`
    out[r, J + k] = 1 where x[r, indicators[k]] is missing, else 0                          for each of `indicators`

`columns`: int32 `[J]`; `fill`: float64 `[J]`; `indicators`: int32 `[K]`; `out`: `[rows, J + K]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.members import member_places, one_member
from ...numerics.missing import check_missing, find_missing, is_missing, missing_number
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size", "first", "members"])
def impute_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    source,  # int32 [MADE], the columns followed by the indicators; [members, MADE] where STACKED
    fill,  # float64 [MADE]; [members, MADE] where STACKED
    missing,  # float64 [1]
    out,  # float32 or float64 [size]
    size,  # rows * MADE
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    MADE: tl.constexpr,
    MISSING_IS_NAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of the flat output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    column = at % MADE
    own = column
    if STACKED:
        own += member_places(numbers, at // MADE, inside, first, members) * MADE
    v = tl.load(x + at // MADE * WIDTH + tl.load(source + own, mask=inside, other=0), mask=inside, other=0.0)
    v = v.to(tl.float64)
    y = tl.where(
        is_missing(v, missing, MISSING_IS_NAN),
        tl.load(fill + own, mask=inside, other=0.0),
        tl.where(column < COLUMNS, v, 0.0),
    )
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Impute(Operation):
    """Replace missing numbers in `columns` by `fill`, then append one column for each of `indicators`."""

    columns: np.ndarray
    fill: np.ndarray
    indicators: np.ndarray
    missing: float | None = None

    def check(self, *widths: int) -> None:
        (width,) = widths
        source = np.concatenate([self.columns, self.indicators])
        check_missing("impute", self.missing)
        if not len(source) or source.min() < 0 or source.max() >= width:
            raise PlanError(f"impute: columns and indicators must be at least one and lie in [0, {width}).")
        if self.fill.shape != self.columns.shape:
            raise PlanError(f"impute: fill must be {list(self.columns.shape)}, not {list(self.fill.shape)}.")

    def output_width(self, *widths: int) -> int:
        return len(self.columns) + len(self.indicators)

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            "source": np.concatenate([self.columns, self.indicators]).astype(np.int32),
            "fill": np.concatenate([self.fill, np.ones(len(self.indicators))]),
            "missing": missing_number(self.missing),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        v = x.double().index_select(1, parameters["source"])
        found = find_missing(v, self.missing)
        v[:, len(self.columns) :] = 0
        return torch.where(found, parameters["fill"], v)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), columns = inputs, len(self.columns)
        launch_impute(x, parameters, output, rows, one_member(x), columns, missing_is_nan=self.missing is None)

    def reads_input_once(self) -> bool:
        return not len(self.indicators)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.columns)} columns, {len(self.indicators)} indicators"


def launch_impute(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    columns: int,
    *,
    missing_is_nan: bool,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's arrays."""
    _, made = output.shape
    impute_kernel[(triton.cdiv(rows * made, BLOCK),)](
        x=x,
        **parameters,
        **members,
        out=output,
        size=rows * made,
        WIDTH=x.shape[1],
        COLUMNS=columns,
        MADE=made,
        MISSING_IS_NAN=missing_is_nan,
        BLOCK=BLOCK,
    )
