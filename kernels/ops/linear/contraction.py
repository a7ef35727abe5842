"""The base of operations that end in a contraction: `out[r, t] = f(Σₘ term[r, m] · weight[m, t] + intercept[t])`.

`weight`: `[terms, targets]` float64; `intercept`: `[targets]` float64; `f`: a function of `numerics/functions.py`. Each
operation defines its terms: the input's columns, monomials, piecewise polynomials or functions of stored points. A
linear map that follows changes only weight and intercept, whatever the terms are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...format.errors import PlanError
from ...numerics.functions import check_function
from ...plan.plan import Operation


@dataclass(frozen=True, eq=False)
class Contraction(Operation):
    """The fields of an operation that contracts its terms with weights, then applies a function to each element."""

    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"

    def check_contraction(self, terms: int) -> None:
        """Raise `PlanError` unless weight, intercept and function fit this many terms."""
        kind = self.kind()
        if self.weight.ndim != 2 or len(self.weight) != terms:
            raise PlanError(f"{kind}: weight must be [{terms}, targets], not {list(self.weight.shape)}.")
        if self.intercept.shape != self.weight.shape[1:]:
            shapes = f"{list(self.weight.shape[1:])}, not {list(self.intercept.shape)}"
            raise PlanError(f"{kind}: intercept must be {shapes}.")
        check_function(self.function)

    def output_width(self, *widths: int) -> int:
        """Return the number of targets."""
        return self.weight.shape[1]
