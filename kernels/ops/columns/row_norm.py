"""Row norm: `out[r, c] = x[r, c] / ‖x[r]‖`, for the norms l1 (`Σ|x|`), l2 (`√Σx²`) and max (`max |x|`).

`x`: `[rows, width]`, float32 or float64; `out`: `[rows, width]`. A row whose norm is below `least` stays as it is. All
arithmetic is float64, and the order of a row's sum follows from its width alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles, matmul
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import NORM_BLOCK, NORM_FEATURES, NORM_ROWS


@triton.jit
def maximum(a, b):
    """Return the larger number, or NaN if either is NaN."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit(do_not_specialize=["rows"])
def row_norm_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows: it reads them once for their norms and once to divide."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    total = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        inside = (row < rows)[:, None] & (feature < WIDTH)[None, :]
        value = tl.load(x + row[:, None] * WIDTH + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        if NORM == "l1":
            total += tl.abs(value)
        elif NORM == "l2":
            total += value * value
        else:
            total = maximum(total, tl.abs(value))
    norm = tl.reduce(total, 1, maximum) if NORM == "max" else tl.sum(total, axis=1)
    if NORM == "l2":
        norm = tl.sqrt(norm)
    norm = tl.where(norm < tl.full([1], LEAST, tl.float64), 1.0, norm)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        inside = (row < rows)[:, None] & (feature < WIDTH)[None, :]
        value = tl.load(x + row[:, None] * WIDTH + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        value = value / norm[:, None]
        tl.store(out + row[:, None] * WIDTH + feature[None, :], value.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class RowNorm(Operation):
    """Divide each row by its norm, unless that is below `least`."""

    NORMS: ClassVar[tuple[str, ...]] = ("l1", "l2", "max")

    norm: str
    least: float

    def check(self, *widths: int) -> None:
        (_,) = widths
        if self.norm not in self.NORMS:
            raise PlanError(f"row_norm: norm must be one of {self.NORMS}, not {self.norm!r}.")
        if not 0.0 < self.least < 1.0:
            raise PlanError(f"row_norm: least must lie between 0 and 1, not {self.least!r}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, order = inputs[0].double(), {"l1": 1, "l2": 2, "max": torch.inf}[self.norm]
        norm = torch.linalg.vector_norm(x, order, dim=1, keepdim=True)
        return x / torch.where(norm < self.least, 1.0, norm)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        ones = torch.ones(x.shape[1], 1, dtype=torch.float64)

        def compute(tile: torch.Tensor) -> torch.Tensor:
            if self.norm == "max":
                norm = tile.abs().amax(1, keepdim=True)
            else:
                norm = matmul(tile.abs(), ones) if self.norm == "l1" else matmul(tile.square(), ones).sqrt()
            return tile / torch.where(norm < self.least, 1.0, norm)

        return in_tiles(x, compute, x.shape[1], 2 * x.shape[1])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width = output.shape[1]
        block_features = min(triton.next_power_of_2(width), NORM_FEATURES)
        block_rows = min(NORM_BLOCK // block_features, NORM_ROWS)
        row_norm_kernel[(triton.cdiv(rows, block_rows),)](
            inputs[0],
            output,
            rows,
            WIDTH=width,
            NORM=self.norm,
            LEAST=self.least,
            BLOCK_ROWS=block_rows,
            BLOCK_FEATURES=block_features,
            num_warps=4,
        )

    def describe(self) -> str:
        return self.norm
