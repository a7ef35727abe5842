"""Piecewise polynomials of columns: `p[r, o] = Σ_d coefficients[o, i, d] · (x[r, source[o]] − origin)^d`.

`i` is the number of knots of `o` at or below the input number, `0 … K`. The origin of a piece is the knot where it
begins; that of the first piece is the knot where it ends. `source`: `[outputs]` int32; `knots`: `[outputs, K]` float64,
ascending, padded with infinity; `coefficients`: `[outputs, K + 1, degree + 1]` float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation

FEW_KNOTS = 8


@triton.jit
def piecewise_values(
    value,  # float64 block
    function,  # int64, the row of `knots` for each number; its shape broadcasts to the block
    place,  # int64, the place of each number's member where STACKED; its shape broadcasts to the block
    inside,  # bool block
    starts,  # int64 [members + 1] where STACKED: member m's functions have starts[m + 1] − starts[m] knots each
    knots,  # float64 [functions, KNOTS], or those of one member after the other
    coefficients,  # float64 [functions, KNOTS + 1, DEGREE + 1], or those of one member after the other
    STACKED: tl.constexpr,
    FUNCTIONS: tl.constexpr,
    KNOTS: tl.constexpr,
    DEGREE: tl.constexpr,
    HALVINGS: tl.constexpr,  # the number of knots is below 2 ** HALVINGS
    NAN_IS_ZERO: tl.constexpr,
):
    """Return the piecewise polynomials of a block; each number finds its piece by the same number of halvings."""
    if STACKED:
        start = tl.load(starts + place)
        count = tl.load(starts + place + 1) - start
        first = start * FUNCTIONS + function * count
        function += place * FUNCTIONS
    else:
        first = function * KNOTS
    piece = tl.zeros(value.shape, tl.int64)
    for halving in tl.static_range(HALVINGS):
        further = piece + (1 << (HALVINGS - 1 - halving))
        real = inside & (further <= (count if STACKED else KNOTS))
        knot = tl.load(knots + first + further - 1, mask=real, other=float("inf"))
        piece = tl.where(real & (value >= knot), further, piece)
    origin = tl.load(knots + first + tl.where(piece > 0, piece - 1, 0), mask=inside, other=0.0)
    u = value - origin
    own = coefficients + (first + function + piece) * (DEGREE + 1)
    y = tl.load(own + DEGREE, mask=inside, other=0.0)
    for step in tl.static_range(DEGREE):
        y = y * u + tl.load(own + (DEGREE - 1 - step), mask=inside, other=0.0)
    return tl.where(value == value, y, 0.0 if NAN_IS_ZERO else value)


@dataclass(frozen=True, eq=False)
class Pieces(Operation):
    """The fields of an operation that makes piecewise polynomials."""

    source: np.ndarray
    knots: np.ndarray
    coefficients: np.ndarray

    def check_pieces(self, width: int) -> None:
        """Raise `PlanError` unless the tables fit together and a matrix of `width` columns."""
        if self.source.ndim != 1 or not len(self.source):
            raise PlanError(f"piecewise: source must be [outputs], not {list(self.source.shape)}.")
        if self.source.min() < 0 or self.source.max() >= width:
            raise PlanError(f"piecewise: source must lie in [0, {width}).")
        outputs = len(self.source)
        if self.knots.ndim != 2 or len(self.knots) != outputs or not self.knots.shape[1]:
            raise PlanError(f"piecewise: knots must be [{outputs}, knots], not {list(self.knots.shape)}.")
        if np.isnan(self.knots).any() or (self.knots[:, 1:] < self.knots[:, :-1]).any():
            raise PlanError("piecewise: knots must ascend.")
        if not np.isfinite(self.knots[:, 0]).all():
            raise PlanError("piecewise: the first of the knots must be finite.")
        pieces = self.knots.shape[1] + 1
        if self.coefficients.shape[:-1] != (outputs, pieces) or not self.coefficients.shape[-1]:
            shape = list(self.coefficients.shape)
            raise PlanError(f"piecewise: coefficients must be [{outputs}, {pieces}, degree + 1], not {shape}.")

    def values(self, x: torch.Tensor, nan_is_zero: bool) -> torch.Tensor:
        """Return the piecewise polynomials of float64 rows by their definition, `[rows, outputs]`."""
        outputs = []
        tables = zip(self.source.tolist(), torch.tensor(self.knots), torch.tensor(self.coefficients), strict=True)
        for source, knots, coefficients in tables:
            v = x[:, source]
            piece = (v[:, None] >= knots).sum(1)
            u, own = v - knots[(piece - 1).clip(0)], coefficients[piece]
            y = own[:, -1]
            for term in range(own.shape[1] - 2, -1, -1):
                y = y * u + own[:, term]
            outputs.append(torch.where(v.isnan(), 0.0 if nan_is_zero else v, y))
        return torch.stack(outputs, dim=1)


def knots_below(knots: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return how many knots of each function, `[functions, knots]`, are at or below `values`, `[functions, rows]`.

    The count for NaN is arbitrary.
    """
    if knots.shape[1] > FEW_KNOTS:
        return torch.searchsorted(knots, values, right=True)
    below = torch.zeros(values.shape, dtype=torch.int64)
    for column in knots.T:
        below += values >= column[:, None]
    return below
