"""A prediction interval around an estimator's answers, and the steps that make its ends; `calibration.py` finds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.kernels.entry import ABSOLUTE, QUANTILES, SCALED, IntervalReport
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.ops.combine import Combine
from triton_regressors.kernels.ops.elementwise import Elementwise
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.plan import Operation, Plan, Step

ENDS = ("lower", "upper")
"""The outputs that an interval adds."""

HALF, MIDDLE = "half_width", "middle"
"""The values that ends are made of."""

STAGE = "add the interval"


@dataclass(frozen=True)
class Interval:
    """What the ends of an interval are made with: `quantile` is float64 `[targets]`, and the report names the method.

    Of conformalised quantiles `columns` are those of `y` that are the two; None where the outputs `lower` and `upper`
    of the estimator are.
    """

    quantile: np.ndarray
    report: IntervalReport
    columns: tuple[int, int] | None = None

    def added(self, answers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an estimator's answers and the ends of the interval around them."""
        if self.report.method == QUANTILES:
            low, high = quantiles_of(answers, self.columns)
            middle, half = 0.5 * low + 0.5 * high, np.maximum(np.abs(0.5 * high - 0.5 * low) + self.quantile, 0.0)
        else:
            middle = answers["y"]
            half = self.quantile * answers["std"] if self.report.method == SCALED else self.quantile
        return {**answers, "lower": middle - half, "upper": middle + half}

    def after(self, plan: Plan) -> Plan:
        """Return the plan with the ends as outputs.

        They are made of what `y` and `std` are rounded from, which no pass may fold into them: so `y` and `std` keep
        their bits. In float64 `lower` is no larger, and `upper` no smaller, than the interval's middle, and rounding
        keeps the order: `lower <= upper` in float32 for every row. The middle is what `y` is rounded from, so that
        `lower <= y <= upper`, but for quantiles, whose middle has nothing to do with `y`.
        """
        y, steps = plan.outputs["y"], list(plan.steps)
        ends: list[tuple[Operation, tuple[str, ...]]]
        if self.report.method == ABSOLUTE:
            one = np.ones_like(self.quantile)
            ends = [(Scale(-last, one, "offset", last), (y,)) for last in (-self.quantile, self.quantile)]
        else:
            if self.report.method == SCALED:
                half = Scale(np.zeros_like(self.quantile), self.quantile)
                middle, more = y, [Step(half, (plan.outputs["std"],), HALF)]
            else:
                middle, more = MIDDLE, self._of_quantiles(plan)
            steps += more
            ends = [(Combine("sum", (1.0, sign)), (middle, HALF)) for sign in (-1.0, 1.0)]
        steps += [Step(operation, read, end) for (operation, read), end in zip(ends, ENDS, strict=True)]
        return Plan(plan.n_features, tuple(steps), {**plan.outputs, **{end: end for end in ENDS}}, plan.dtype)

    def _of_quantiles(self, plan: Plan) -> list[Step]:
        """Return the steps that make the middle of two quantiles, and max(|difference| / 2 + quantile, 0)."""
        steps = []
        if self.columns is None:
            both = tuple(plan.outputs[end] for end in ENDS)
        else:
            both = tuple(f"{end}_quantile" for end in ENDS)
            for column, value in zip(self.columns, both, strict=True):
                steps.append(Step(Columns(np.array([column], dtype=np.int32)), (plan.outputs["y"],), value))
        one = np.ones_like(self.quantile)
        return [
            *steps,
            Step(Combine("sum", (0.5, 0.5)), both, MIDDLE),
            Step(Combine("sum", (-0.5, 0.5)), both, "half_difference"),
            Step(Elementwise("absolute"), ("half_difference",), "half_distance"),
            Step(Scale(-self.quantile, one, "offset", self.quantile), ("half_distance",), "moved"),
            Step(Elementwise("relu"), ("moved",), HALF),
        ]


def quantiles_of(answers: dict[str, np.ndarray], columns: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what a model answers as its lower and its upper quantile, each `[rows, targets]`; see `Interval`."""
    if columns is None:
        return answers["lower"], answers["upper"]
    low, high = columns
    return answers["y"][:, [low]], answers["y"][:, [high]]
