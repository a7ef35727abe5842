"""Finds missing values: a number that equals `missing`, or NaN if `missing` is None."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from ..format.errors import PlanError


@triton.jit
def is_missing(v, missing, MISSING_IS_NAN: tl.constexpr):
    """Return where a float64 block is NaN, or the number at `missing`."""
    return v != v if MISSING_IS_NAN else v == tl.load(missing)


def find_missing(v: torch.Tensor, missing: float | None) -> torch.Tensor:
    """Return where a float64 matrix is missing."""
    return v.isnan() if missing is None else v == missing


def missing_number(missing: float | None) -> np.ndarray:
    """Return `missing` as the array that kernels read: a constant in a kernel may be rounded to float32."""
    return np.array([np.nan if missing is None else missing])


def check_missing(kind: str, missing: float | None) -> None:
    """Raise `PlanError` unless `missing` is None or a finite number."""
    if missing is not None and not np.isfinite(missing):
        raise PlanError(f"{kind}: missing must be a finite number, or None for NaN, not {missing}.")
