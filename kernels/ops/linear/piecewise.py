"""Piecewise: `out[r, o] = Σ_d coefficients[o, i, d] · (x[r, source[o]] − origin)^d`, a polynomial in each piece.

`i` is the number of knots of `o` at or below the input number, `0 … K`. The origin of a piece is the knot where it
begins; that of the first piece is the knot where it ends. `x`: `[rows, width]`, float32 or float64; `source`:
`[outputs]` int32; `knots`: `[outputs, K]` float64, ascending, padded with infinity; `coefficients`:
`[outputs, K + 1, degree + 1]` float64; `out`: `[rows, outputs]`. Comparisons and arithmetic are float64, so a number
equal to a knot is in the piece that the knot begins. NaN gives NaN, or 0 if `nan_is_zero` is set.

Linear interpolation, steps, bins, indicators of bins and B-spline bases are all piecewise polynomials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...numerics.flat import below
from ...numerics.members import member_places, one_member
from ...plan.plan import Parameters
from .launch import PIECEWISE_BLOCK
from .piecewise_device import Pieces, knots_below, piecewise_values


@triton.jit(do_not_specialize=["size", "first", "members"])
def piecewise_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    source,  # int32 [OUTPUTS]
    starts,  # int64 [members + 1] where STACKED; see `piecewise_values`
    knots,  # float64 [OUTPUTS, KNOTS], or those of one member after the other
    coefficients,  # float64 [OUTPUTS, KNOTS + 1, DEGREE + 1], or those of one member after the other
    out,  # float32 or float64 [size]
    size,  # rows * OUTPUTS
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    KNOTS: tl.constexpr,
    DEGREE: tl.constexpr,
    HALVINGS: tl.constexpr,  # the number of knots is below 2 ** HALVINGS
    NAN_IS_ZERO: tl.constexpr,
    IN_ORDER: tl.constexpr,  # whether `source` is 0, 1, … OUTPUTS − 1, and WIDTH the same as OUTPUTS
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of the flat output; numbers in order are loaded several at once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, OUTPUTS)
    row, column = at // OUTPUTS, at % OUTPUTS
    place = at if IN_ORDER else row * WIDTH + tl.load(source + column, mask=inside, other=0)
    value = tl.load(x + place, mask=inside, other=0.0)
    member = member_places(numbers, row, inside, first, members) if STACKED else row
    y = piecewise_values(
        value.to(tl.float64), column, member, inside, starts, knots, coefficients, STACKED=STACKED,
        FUNCTIONS=OUTPUTS, KNOTS=KNOTS, DEGREE=DEGREE, HALVINGS=HALVINGS, NAN_IS_ZERO=NAN_IS_ZERO,
    )  # fmt: skip
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Piecewise(Pieces):
    """Apply a piecewise polynomial to a column, for each column of the output."""

    nan_is_zero: bool = False

    def check(self, *widths: int) -> None:
        (width,) = widths
        self.check_pieces(width)

    def output_width(self, *widths: int) -> int:
        return len(self.source)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return self.values(inputs[0].double(), self.nan_is_zero)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), knots, coefficients = inputs, parameters["knots"], parameters["coefficients"]
        outputs, pieces, terms = coefficients.shape
        first_piece = torch.arange(outputs)[:, None] * pieces
        first_knot = torch.arange(outputs)[:, None] * (pieces - 1)

        def compute(tile: torch.Tensor) -> torch.Tensor:
            values = tile.T.index_select(0, parameters["source"])  # [outputs, tile]
            nan = torch.isnan(values)
            piece = knots_below(knots, values)
            origin = knots.reshape(-1).index_select(0, (first_knot + (piece - 1).clip(0)).reshape(-1))
            u = values - origin.reshape(values.shape)
            own = coefficients.reshape(-1, terms).index_select(0, (first_piece + piece).reshape(-1))
            y = own[:, -1].reshape(u.shape)
            for term in range(terms - 2, -1, -1):
                y = y * u + own[:, term].reshape(u.shape)
            return torch.where(nan, 0.0 if self.nan_is_zero else values, y).T

        return in_tiles(x, compute, outputs, outputs)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), knots = inputs, self.knots.shape[1]
        what = {**one_member(x), "starts": parameters["source"], "KNOTS": knots, "NAN_IS_ZERO": self.nan_is_zero}
        launch_piecewise(x, parameters, output, rows, {**what, "IN_ORDER": self._in_order(x.shape[1])}, knots)

    def _in_order(self, width: int) -> bool:
        return len(self.source) == width and bool((self.source == np.arange(width)).all())

    def reads_input_once(self) -> bool:
        return len(np.unique(self.source)) == len(self.source)

    def hides_nan(self) -> bool:
        return self.nan_is_zero

    def describe(self) -> str:
        outputs, pieces, terms = self.coefficients.shape
        return f"{outputs} columns of at most {pieces} pieces of degree {terms - 1}"


def launch_piecewise(
    x: torch.Tensor, parameters: Parameters, output: torch.Tensor, rows: int, what: Mapping[str, Any], most: int
) -> None:
    """Launch the kernel on the first `rows` rows; `most` is the largest number of knots of a function.

    `what` holds the members and the arguments `starts`, KNOTS, NAN_IS_ZERO and IN_ORDER.
    """
    outputs, terms = output.shape[1], parameters["coefficients"].shape[-1]
    piecewise_kernel[(triton.cdiv(rows * outputs, PIECEWISE_BLOCK),)](
        x=x,
        **what,
        **parameters,
        out=output,
        size=rows * outputs,
        WIDTH=x.shape[1],
        OUTPUTS=outputs,
        DEGREE=terms - 1,
        HALVINGS=most.bit_length(),
        BLOCK=PIECEWISE_BLOCK,
    )
