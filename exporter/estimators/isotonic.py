"""Isotonic regression: linear interpolation between the fitted thresholds."""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import add_pieces, constant_pieces, interpolation, note_range
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.float32 import Float32


@lowers(IsotonicRegression)
def lower_isotonic(regressor: IsotonicRegression, x: Value, builder: Builder) -> Value:
    """Between thresholds `y` is linear; beyond them it is constant for "clip" and NaN for "nan".

    For "raise" it is NaN too: scikit-learn refuses all rows together with the one out of bounds, and a server cannot
    refuse those of others. One threshold alone is a constant, whatever the number.
    """
    if x.width != 1:
        raise builder.refuse(regressor, f"it takes 1 feature and would get {x.width}")
    thresholds = np.asarray(regressor.X_thresholds_, dtype=np.float64)
    values = np.asarray(regressor.y_thresholds_, dtype=np.float64)
    clip = regressor.out_of_bounds == "clip" or len(values) == 1
    note_range(builder, x, thresholds[:1], thresholds[-1:], within=not clip)
    if regressor.X_thresholds_.dtype == np.float32:  # numbers are rounded before they are compared
        x = builder.add(Float32(), x)
    if len(values) == 1:
        return add_pieces(builder, x, [0], [constant_pieces([], values)])
    below, above = (values[0], values[-1]) if clip else (np.nan, np.nan)
    return add_pieces(builder, x, [0], [interpolation(thresholds, values, below, above)])
