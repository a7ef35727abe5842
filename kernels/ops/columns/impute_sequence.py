"""ImputeSequence: predict missing numbers column after column, each from the row as it is by then.

`x` is the matrix with missing numbers and `z` the same columns with first guesses in their place. Update `u` predicts
column `c = targets[u]` by a linear function of the row, to which a prediction `y[r, u]` made elsewhere may be added:

    p = Σ_j z[r, j] · weight[u, j] + intercept[u] (+ y[r, u])
    z[r, c] = min(max(p, low[u]), high[u])      where x[r, columns[c]] is missing

`out` is `z` after the last update. `x`: `[rows, width]`; `z`, `out`: `[rows, W]`; `y`: `[rows, U]`, if given;
`columns`: int32 `[W]`, the columns of `x` that `z` holds; `targets`: int32 `[U]`; `weight`: float64 `[U, W]`;
`intercept`, `low`, `high`: float64 `[U]`; `numerics/missing.py` says which numbers are missing.

This is the round robin of S. van Buuren and K. Groothuis-Oudshoorn, "mice: Multivariate Imputation by Chained Equations
in R" (2011), with fitted predictors. A program keeps its rows in registers throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...numerics.missing import check_missing, find_missing, is_missing, missing_number
from ...plan.plan import Operation, Parameters
from .launch import SEQUENCE_BLOCK


@triton.jit(do_not_specialize=["rows"])
def impute_sequence_kernel(
    x,  # float32 or float64 [rows, X_WIDTH]
    z,  # float32 or float64 [rows, WIDTH]
    y,  # float32 or float64 [rows, UPDATES], read if ADDED
    columns,  # int32 [WIDTH]
    targets,  # int32 [UPDATES]
    weight,  # float64 [UPDATES, WIDTH]
    intercept,  # float64 [UPDATES]
    low,  # float64 [UPDATES]
    high,  # float64 [UPDATES]
    missing,  # float64 [1]
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    X_WIDTH: tl.constexpr,
    WIDTH: tl.constexpr,
    UPDATES: tl.constexpr,
    ADDED: tl.constexpr,
    MISSING_IS_NAN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_WIDTH)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    source = tl.load(columns + column, mask=column < WIDTH, other=0)
    v = tl.load(x + row[:, None] * X_WIDTH + source[None, :], mask=inside, other=0.0).to(tl.float64)
    holes = is_missing(v, missing, MISSING_IS_NAN) & inside
    tile = tl.load(z + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0).to(tl.float64)
    for update in tl.range(0, UPDATES):
        w = tl.load(weight + update * WIDTH + column, mask=column < WIDTH, other=0.0)
        p = tl.sum(tile * w[None, :], axis=1) + tl.load(intercept + update)
        if ADDED:
            p += tl.load(y + row * UPDATES + update, mask=row < rows, other=0.0).to(tl.float64)
        least, most = tl.load(low + update), tl.load(high + update)
        p = tl.where(p < least, least, p)
        p = tl.where(p > most, most, p)
        target = (column == tl.load(targets + update))[None, :]
        tile = tl.where(target & holes, p[:, None], tile)
    at = row[:, None] * WIDTH + column[None, :]
    tl.store(out + at, tile.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class ImputeSequence(Operation):
    """Predict missing numbers, column after column."""

    columns: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    intercept: np.ndarray
    low: np.ndarray
    high: np.ndarray
    missing: float | None = None

    def check(self, *widths: int) -> None:
        if len(widths) not in (2, 3):
            raise PlanError(f"impute_sequence: 2 or 3 inputs are needed, not {len(widths)}.")
        width, updates = widths[1], len(self.targets)
        check_missing("impute_sequence", self.missing)
        if self.columns.shape != (width,) or self.columns.min() < 0 or self.columns.max() >= widths[0]:
            raise PlanError(f"impute_sequence: columns must be [{width}] and lie in [0, {widths[0]}).")
        if not updates or self.targets.min() < 0 or self.targets.max() >= width:
            raise PlanError(f"impute_sequence: targets must be at least one and lie in [0, {width}).")
        if self.weight.shape != (updates, width):
            raise PlanError(f"impute_sequence: weight must be [{updates}, {width}], not {list(self.weight.shape)}.")
        if any(array.shape != (updates,) for array in (self.intercept, self.low, self.high)):
            raise PlanError(f"impute_sequence: intercept, low and high must be [{updates}].")
        if widths[2:] not in ((), (updates,)):
            raise PlanError(f"impute_sequence: the third input must be [rows, {updates}], not [rows, {widths[2]}].")

    def output_width(self, *widths: int) -> int:
        return len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        arrays = dict(self.arrays())
        integers = {name: arrays[name].astype(np.int32) for name in ("columns", "targets")}
        return {**arrays, **integers, "missing": missing_number(self.missing)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, *others = (value.double() for value in inputs)
        return self._filled(parameters, x.index_select(1, parameters["columns"]), *others)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        values = [inputs[0].double().index_select(1, parameters["columns"]), *inputs[1:]]
        together, widths = torch.cat(values, dim=1), [value.shape[1] for value in values]

        def compute(tile: torch.Tensor) -> torch.Tensor:
            return self._filled(parameters, *tile.split(widths, dim=1))

        return in_tiles(together, compute, len(self.columns), together.shape[1])

    def _filled(self, parameters: Parameters, x: torch.Tensor, z: torch.Tensor, *added: torch.Tensor) -> torch.Tensor:
        """Return `z` with the missing numbers of `x` predicted one column after the other."""
        weight, intercept, low, high = (parameters[name] for name in ("weight", "intercept", "low", "high"))
        holes, z = find_missing(x, self.missing), z.clone()
        for u, target in enumerate(self.targets.tolist()):
            p = torch.mv(z, weight[u]) + intercept[u]
            for y in added:
                p += y[:, u]
            z[:, target] = torch.where(holes[:, target], p.clip(low[u], high[u]), z[:, target])
        return z

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (_, width), updates = output.shape, len(self.targets)
        x, z, y = inputs[0], inputs[1], inputs[-1]
        block_width = triton.next_power_of_2(width)
        block_rows = max(1, SEQUENCE_BLOCK // block_width)
        impute_sequence_kernel[(triton.cdiv(rows, block_rows),)](
            *(x, z, y),
            **parameters,
            out=output,
            rows=rows,
            X_WIDTH=x.shape[1],
            WIDTH=width,
            UPDATES=updates,
            ADDED=len(inputs) > 2,
            MISSING_IS_NAN=self.missing is None,
            BLOCK_ROWS=block_rows,
            BLOCK_WIDTH=block_width,
        )

    def reads_input_once(self) -> bool:
        return True

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.targets)} updates of {len(self.columns)} columns"
