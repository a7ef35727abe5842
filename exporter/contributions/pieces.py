"""Sums of piecewise polynomials: what a column contributes is one function of it, whatever basis it is expanded in."""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine, worth_contracting


def add_up_pieces(pieces: Piecewise, weight: np.ndarray) -> tuple[Piecewise, np.ndarray] | None:
    """Return one function for each output and column that it takes, and weights of them that give the same outputs.

    Args:
        pieces: the functions.
        weight: `[functions, outputs]`.

    Returns:
        Fewer functions and their weights `[them, outputs]`. None if there are as many, or if a fusion makes one step of
        the given functions and weights.
    """
    if worth_contracting(pieces, weight.shape[1]):
        return None
    source, knots, tables, outputs = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), list[int]()
    for output in np.flatnonzero(weight.any(axis=0)).tolist():
        own = np.flatnonzero(weight[:, output])
        tables_of = pieces.source[own], pieces.knots[own], pieces.coefficients[own]
        added = PiecewiseAffine(*tables_of, weight[own, output][:, None], np.zeros(1)).parameters()
        source += list(added["source"])
        knots += list(added["knots"])
        tables += list(added["table"][0])
        outputs += [output] * len(added["source"])
    if len(source) >= len(pieces.source):
        return None
    most = max(map(len, knots))
    found = Piecewise(
        np.array(source, dtype=np.int32),
        np.stack([np.pad(each, (0, most - len(each)), constant_values=np.inf) for each in knots]),
        np.stack([np.pad(each, ((0, most + 1 - len(each)), (0, 0)), mode="edge") for each in tables]),
        pieces.nan_is_zero,
    )
    return found, np.eye(weight.shape[1])[outputs]
