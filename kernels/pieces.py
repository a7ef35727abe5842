"""Piecewise polynomials of columns: `p[r, o] = Σ_d coefficients[o, i, d] · (x[r, source[o]] − origin)^d`.

`i` is how many of the knots of `o` lie at or below the number, `0 … K`, and the origin of a piece is the knot where it
begins; that of the first piece is where it ends. `source`: `[outputs]` int32; `knots`: `[outputs, K]` float64,
ascending, filled up with infinity; `coefficients`: `[outputs, K + 1, degree + 1]` float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .errors import PlanError
from .plan import Operation

FEW_KNOTS = 8


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


def knots_below(knots: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return how many knots of each function, `[functions, knots]`, are at or below `values`, `[functions, rows]`.

    For NaN it is any number of them.
    """
    if knots.shape[1] > FEW_KNOTS:
        return torch.searchsorted(knots, values, right=True)
    below = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    for column in knots.T:
        below += values >= column[:, None]
    return below
