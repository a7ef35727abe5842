"""Piecewise, then affine: `out[r, t] = f(Σₒ weight[o, t] · p[r, o] + intercept[t])`.

`piecewise_device.py` defines `p`.
`weight`: `[outputs, targets]` float64; `intercept`: `[targets]` float64; `out`: `[rows, targets]`; everything float64.

All the functions of one column add up to one piecewise polynomial of it for each target, on the union of their knots.
The kernel computes these sums, which are far fewer, and adds them up over the columns in an order that follows from the
model alone. The result is a generalised additive model, however many splines it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import apply, in_tiles, matmul
from ...numerics.functions import FUNCTIONS, apply_function, function_suffix
from ...numerics.members import member_places, one_member
from ...plan.plan import Parameters
from .contraction import Contraction
from .launch import PIECEWISE_BLOCK, PIECEWISE_COLUMNS
from .piecewise_device import Pieces, knots_below, piecewise_values


@triton.jit(do_not_specialize=["rows", "first", "members"])
def piecewise_affine_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    source,  # int32 [COLUMNS]
    starts,  # int64 [members + 1] where STACKED; see `piecewise_values`
    knots,  # float64 [COLUMNS, KNOTS], or those of one member after the other
    table,  # float64 [TARGETS, COLUMNS, KNOTS + 1, DEGREE + 1], or for each target one member after the other
    intercept,  # float64 [TARGETS]; [members, TARGETS] where STACKED
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    KNOTS: tl.constexpr,
    DEGREE: tl.constexpr,
    TARGETS: tl.constexpr,
    HALVINGS: tl.constexpr,  # the number of knots is below 2 ** HALVINGS
    NAN_IS_ZERO: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one target from tiles of `[BLOCK_ROWS, BLOCK_COLUMNS]`."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1).to(tl.int64)
    if STACKED:
        table += target * COLUMNS * (tl.load(starts + members) + members) * (DEGREE + 1)
        place = member_places(numbers, row, row < rows, first, members)
    else:
        table += target * COLUMNS * (KNOTS + 1) * (DEGREE + 1)
        place = row
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float64)
    for start in tl.range(0, COLUMNS, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        inside = (row < rows)[:, None] & (column < COLUMNS)[None, :]
        read = tl.load(source + column, mask=column < COLUMNS, other=0)
        value = tl.load(x + row[:, None] * WIDTH + read[None, :], mask=inside, other=0.0).to(tl.float64)
        total += piecewise_values(
            value, column.to(tl.int64)[None, :], place[:, None], inside, starts, knots, table, STACKED=STACKED,
            FUNCTIONS=COLUMNS, KNOTS=KNOTS, DEGREE=DEGREE, HALVINGS=HALVINGS, NAN_IS_ZERO=NAN_IS_ZERO,
        )  # fmt: skip
    y = tl.sum(total, axis=1)
    y += tl.load(intercept + place * TARGETS + target) if STACKED else tl.load(intercept + target)
    y = apply_function(y, FUNCTION)
    tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class PiecewiseAffine(Contraction, Pieces):
    """Apply piecewise polynomials to columns and contract them with weights, then apply a function to each element."""

    nan_is_zero: bool = False

    def check(self, *widths: int) -> None:
        (width,) = widths
        self.check_pieces(width)
        self.check_contraction(len(self.source))

    def parameters(self) -> dict[str, np.ndarray]:
        """Return one function for each column read and each target, on the union of its parts' knots."""
        source = np.unique(self.source)
        parts = [np.flatnonzero(self.source == column) for column in source]
        unions = [np.unique(held[np.isfinite(held)]) for held in (self.knots[outputs] for outputs in parts)]
        count, (_, _, terms) = max(map(len, unions)), self.coefficients.shape
        knots = np.full((len(source), count), np.inf)
        table = np.zeros((self.weight.shape[1], len(source), count + 1, terms))
        for column, (outputs, union) in enumerate(zip(parts, unions, strict=True)):
            knots[column, : len(union)] = union
            for output in outputs:
                numbers = np.zeros((count + 1, terms))
                numbers[: len(union) + 1] = self._about(int(output), union)
                numbers[len(union) + 1 :] = numbers[len(union)]
                table[:, column] += self.weight[output][:, None, None] * numbers
        return {"source": source.astype(np.int32), "knots": knots, "table": table, "intercept": self.intercept}

    def _about(self, output: int, union: np.ndarray) -> np.ndarray:
        """Return one function's coefficients about the knots of a union, `[knots + 1, degree + 1]`."""
        knots, origins = self.knots[output], np.append(union[0], union)
        piece = np.append(0, np.searchsorted(knots, union, side="right"))
        given, moved = self.coefficients[output, piece], origins - knots[np.maximum(piece - 1, 0)]
        about = np.zeros_like(given)
        for power in range(given.shape[1]):
            for term in range(power + 1):
                about[:, term] += given[:, power] * math.comb(power, term) * moved ** (power - term)
        return about

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        values = self.values(inputs[0].double(), self.nan_is_zero)
        return FUNCTIONS[self.function](values @ torch.tensor(self.weight) + parameters["intercept"])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), knots, table = inputs, parameters["knots"], parameters["table"]
        targets, columns, pieces, terms = table.shape
        flat = table.permute(1, 2, 3, 0).reshape(columns * pieces, terms, targets)
        first = torch.arange(columns)[:, None]
        ones = torch.ones(columns, 1, dtype=torch.float64)

        def compute(tile: torch.Tensor) -> torch.Tensor:
            values = tile.T.index_select(0, parameters["source"])  # [columns, tile]
            nan = torch.isnan(values)
            piece = knots_below(knots, values)
            origin = knots.reshape(-1).index_select(0, (first * (pieces - 1) + (piece - 1).clip(0)).reshape(-1))
            u = (values - origin.reshape(values.shape))[:, :, None]
            own = flat.index_select(0, (first * pieces + piece).reshape(-1)).reshape(*piece.shape, terms, targets)
            y = own[:, :, -1]
            for term in range(terms - 2, -1, -1):
                y = y * u + own[:, :, term]
            y = torch.where(nan[:, :, None], 0.0 if self.nan_is_zero else torch.nan, y)
            return matmul(y.permute(1, 2, 0).reshape(-1, columns), ones).reshape(-1, targets)

        y = in_tiles(x, compute, targets, columns * targets)
        return apply(FUNCTIONS[self.function], y + parameters["intercept"])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), knots = inputs, parameters["knots"].shape[1]
        what = {"KNOTS": knots, "NAN_IS_ZERO": self.nan_is_zero, "FUNCTION": self.function}
        members = {**one_member(x), "starts": parameters["source"]}
        launch_piecewise_affine(x, parameters, output, rows, {**members, **what}, knots)

    def hides_nan(self) -> bool:
        return self.nan_is_zero

    def describe(self) -> str:
        columns, outputs, targets = len(np.unique(self.source)), *self.weight.shape
        shape = f"{columns} → {targets} by {outputs} piecewise polynomials of degree {self.coefficients.shape[2] - 1}"
        return shape + function_suffix(self.function)


def launch_piecewise_affine(
    x: torch.Tensor, parameters: Parameters, output: torch.Tensor, rows: int, what: Mapping[str, Any], most: int
) -> None:
    """Launch the kernel on the first `rows` rows; `most` is the largest number of knots of a column.

    `what` holds the members and the arguments `starts`, KNOTS, NAN_IS_ZERO and FUNCTION.
    """
    (targets, *_, terms), columns = parameters["table"].shape, len(parameters["source"])
    block_columns = min(triton.next_power_of_2(columns), PIECEWISE_COLUMNS)
    block_rows = PIECEWISE_BLOCK // block_columns
    piecewise_affine_kernel[(triton.cdiv(rows, block_rows), targets)](
        x=x,
        **what,
        **parameters,
        out=output,
        rows=rows,
        WIDTH=x.shape[1],
        COLUMNS=columns,
        DEGREE=terms - 1,
        TARGETS=targets,
        HALVINGS=most.bit_length(),
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
    )


def worth_contracting(first: Pieces, targets: int) -> bool:
    """Return whether one function for each column and target makes fewer functions than there are to contract."""
    return len(np.unique(first.source)) * targets <= len(first.source)
