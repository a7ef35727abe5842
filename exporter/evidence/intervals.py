"""A prediction interval around an estimator's answers, and the steps that make its ends; `calibration.py` finds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.kernels.entry import ABSOLUTE, QUANTILES, SCALED, IntervalReport
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.interval_end import IntervalEnd
from triton_regressors.kernels.plan.plan import Plan, Step

ENDS = ("lower", "upper")
"""The outputs that an interval adds."""

FORMS = {ABSOLUTE: "absolute", SCALED: "scaled", QUANTILES: "quantiles"}
"""The form of the operation `interval_end` for each method."""

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
        """Return an estimator's answers, and around them the ends as they are served: float32, rounded outwards."""
        middle, half = self._middle_and_half(answers)
        return {**answers, "lower": rounded(middle - half, -np.inf), "upper": rounded(middle + half, np.inf)}

    def mean_width(self, answers: dict[str, np.ndarray]) -> np.ndarray:
        """Return how far the ends lie apart on average, before they are rounded, float64 `[targets]`."""
        middle, half = self._middle_and_half(answers)
        width: np.ndarray = 2 * np.broadcast_to(half, middle.shape).mean(axis=0)
        return width

    def _middle_and_half(self, answers: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the middle of the interval, `[rows, targets]`, and half of its width, of that shape or `[targets]`."""
        if self.report.method == QUANTILES:
            low, high = quantiles_of(answers, self.columns)
            return 0.5 * low + 0.5 * high, np.maximum(np.abs(0.5 * high - 0.5 * low) + self.quantile, 0.0)
        return answers["y"], self.quantile * answers["std"] if self.report.method == SCALED else self.quantile

    def after(self, plan: Plan) -> Plan:
        """Return the plan with the ends as outputs.

        They are made of what `y` and `std` are rounded from, which no pass may fold into them: so `y` and `std` keep
        their bits. In float64 `lower` is no larger, and `upper` no smaller, than the interval's middle. Rounding down
        and up keeps that, and leaves no number of the float64 interval outside. The middle is what `y` is rounded
        from, so that `lower <= y <= upper`, but for quantiles, whose middle has nothing to do with `y`.
        """
        y, steps = plan.outputs["y"], list(plan.steps)
        read: tuple[str, ...] = (y,)
        if self.columns is not None:
            read = tuple(f"{end}_quantile" for end in ENDS)
            for column, value in zip(self.columns, read, strict=True):
                steps.append(Step(Columns(np.array([column], dtype=np.int32)), (y,), value))
        elif self.report.method == QUANTILES:
            read = tuple(plan.outputs[end] for end in ENDS)
        elif self.report.method == SCALED:
            read = (y, plan.outputs["std"])
        form = FORMS[self.report.method]
        steps += [Step(IntervalEnd(end, form, self.quantile), read, end) for end in ENDS]
        return Plan(plan.n_features, tuple(steps), {**plan.outputs, **{end: end for end in ENDS}}, plan.dtype)


def rounded(values: np.ndarray, towards: float) -> np.ndarray:
    """Return each float64 as the nearest float32 that does not lie on its other side, `towards` −∞ or +∞; as float64.

    This is IEEE 754's rounding toward −∞ or +∞, which `kernels/ops/columns/interval_end.py` does to what is served.
    """
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    wrong = near < values if towards > 0 else near > values
    found: np.ndarray = np.where(wrong, np.nextafter(near, np.float32(towards)), near).astype(np.float64)
    return found


def quantiles_of(answers: dict[str, np.ndarray], columns: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what a model answers as its lower and its upper quantile, each `[rows, targets]`; see `Interval`."""
    if columns is None:
        return answers["lower"], answers["upper"]
    low, high = columns
    return answers["y"][:, [low]], answers["y"][:, [high]]
