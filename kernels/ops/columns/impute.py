"""Impute: columns with numbers in place of missing ones, and columns that flag missing numbers.

`numerics/missing.py` says which numbers are missing.

    out[r, j]     = fill[j] where x[r, columns[j]] is missing, else x[r, columns[j]]        for each of `columns`
    out[r, J + k] = 1 where x[r, indicators[k]] is missing, else 0                          for each of `indicators`

`columns`: int32 `[J]`; `fill`: float64 `[J]`; `indicators`: int32 `[K]`; `out`: `[rows, J + K]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.missing import check_missing, find_missing, is_missing, missing_number
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def impute_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    source,  # int32 [MADE], the columns followed by the indicators
    fill,  # float64 [MADE]
    missing,  # float64 [1]
    out,  # float32 or float64 [size]
    size,  # rows * MADE
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
    v = tl.load(x + at // MADE * WIDTH + tl.load(source + column, mask=inside, other=0), mask=inside, other=0.0)
    v = v.to(tl.float64)
    y = tl.where(
        is_missing(v, missing, MISSING_IS_NAN),
        tl.load(fill + column, mask=inside, other=0.0),
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
        (x,), (_, made) = inputs, output.shape
        impute_kernel[(triton.cdiv(rows * made, BLOCK),)](
            x,
            **parameters,
            out=output,
            size=rows * made,
            WIDTH=x.shape[1],
            COLUMNS=len(self.columns),
            MADE=made,
            MISSING_IS_NAN=self.missing is None,
            BLOCK=BLOCK,
        )

    def reads_input_once(self) -> bool:
        return not len(self.indicators)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.columns)} columns, {len(self.indicators)} indicators"
