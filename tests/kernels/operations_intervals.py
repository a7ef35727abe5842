"""Ends of prediction intervals, for the tests that every operation must pass."""

import numpy as np

from triton_regressors.kernels.ops.columns.interval_end import IntervalEnd
from triton_regressors.kernels.plan.plan import Operation


def interval_end(end: str, form: str, width: int, seed: int = 0) -> IntervalEnd:
    quantile = np.random.default_rng(seed).standard_normal(width)
    return IntervalEnd(end, form, quantile if form == "quantiles" else np.abs(quantile))


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"interval_end {end} {form} of {width}": (interval_end(end, form, width), (width,) * inputs)
    for end in ("lower", "upper")
    for form, inputs in IntervalEnd.FORMS.items()
    for width in (1, 3)
}
