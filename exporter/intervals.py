"""A prediction interval around an estimator's answers, and the steps that make its ends; `calibration.py` finds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.kernels.entry import IntervalReport
from triton_regressors.kernels.ops.combine import Combine
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.plan import Operation, Plan, Step

ENDS = ("lower", "upper")
"""The outputs that an interval adds."""

STAGE = "add the interval"


@dataclass(frozen=True)
class Interval:
    """What the ends of an interval are made with: `quantile` is float64 `[targets]`, in units of `std` if `scaled`."""

    quantile: np.ndarray
    scaled: bool
    report: IntervalReport

    def added(self, answers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an estimator's answers and the ends of the interval around them."""
        half = self.quantile * answers["std"] if self.scaled else self.quantile
        return {**answers, "lower": answers["y"] - half, "upper": answers["y"] + half}

    def after(self, plan: Plan) -> Plan:
        """Return the plan with the ends as outputs.

        They are made of what `y` and `std` are rounded from, which no pass may fold into them: so `y` and `std` keep
        their bits. In float64 `lower` is no larger, and `upper` no smaller, than what `y` is rounded from, and rounding
        keeps the order: `lower <= y <= upper` in float32 for every row.
        """
        y, steps = plan.outputs["y"], list(plan.steps)
        ends: list[tuple[Operation, tuple[str, ...]]]
        if self.scaled:
            steps.append(Step(Scale(np.zeros_like(self.quantile), self.quantile), (plan.outputs["std"],), "half_width"))
            ends = [(Combine("sum", (1.0, sign)), (y, "half_width")) for sign in (-1.0, 1.0)]
        else:
            one = np.ones_like(self.quantile)
            ends = [(Scale(-last, one, "offset", last), (y,)) for last in (-self.quantile, self.quantile)]
        steps += [Step(operation, read, end) for (operation, read), end in zip(ends, ENDS, strict=True)]
        return Plan(plan.n_features, tuple(steps), {**plan.outputs, **{end: end for end in ENDS}}, plan.dtype)
