"""Chooses one of each operation's precisions.

An operation computes in float64 unless a cheaper precision was measured to lose next to nothing. At each of its
precisions its kernel's answer on the sample is emulated, and the steps after it follow in float64. The cheapest
precision is chosen with which no output of the plan moves further than allowed. Operations are tried in the plan's
order, each on top of the choices made before it, so the limit holds for the error of all choices together.

A variance computed from a squared norm is smallest at the points of the norm's functions, and loses most there.
Therefore some of these points are tried beside the sample; if their rows are not known, the norm stays in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from triton_regressors.defaults import DEFAULT_PRECISION
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.format.parity import units
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.squared_norm import SquaredNorm
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

PRECISIONS = (DEFAULT_PRECISION, "fast")
"""The precisions that a user may ask for."""

EXACT = 5e-7
"""The largest error that "exact" allows, in standard deviations: half a millionth, as a sample does not hold every row.

A wider limit would show: an answer's last float32 place is about 1e-7 of its magnitude."""

SHARE_OF_TOLERANCE = 0.25
"""The share of the tolerance that "fast" allows; the rest is for rounding the input (`input_type.py`)."""

ROWS_AT_POINTS = 256
"""The number of points tried beside the sample."""

Values = Mapping[str, torch.Tensor]


class Choice(NamedTuple):
    """A step's precision, and the error of the plan's outputs against float64 with it and all choices before it."""

    precision: str
    error: float


def allowed_error(precision: str, tolerance: float) -> float:
    """Return how far the outputs may move, in standard deviations of the predictions."""
    share = SHARE_OF_TOLERANCE * tolerance
    return share if precision == "fast" else min(share, EXACT)


def choose_precision(plan: Plan, X: np.ndarray, limit: float) -> tuple[Plan, dict[str, Choice]]:
    """Return the plan with each operation at the cheapest precision that suffices on the sample, and the choices.

    Args:
        plan: any plan.
        X: the sample, `[rows, n_features]`.
        limit: the largest error of an output by all choices together, in its standard deviations.

    Returns:
        The plan, which is the same object if nothing cheaper was chosen, and the choice for each step that has one, by
        its value.
    """
    choices = precision_choices(plan, X, limit)
    chosen = {
        step.output: step.operation.in_precision(choices[step.output].precision)
        for step in plan.steps
        if step.output in choices and choices[step.output].precision != step.operation.precisions()[0]
    }
    if not chosen:
        return plan, choices
    steps = (Step(chosen.get(step.output, step.operation), step.inputs, step.output) for step in plan.steps)
    return plan.with_steps(steps), choices


def precision_choices(plan: Plan, X: np.ndarray, limit: float) -> dict[str, Choice]:
    """Return the choice for each step that has one, by the step's value."""
    if all(len(step.operation.precisions()) == 1 for step in plan.steps):
        return {}
    run, near = _CpuSteps(plan), rows_at_points(plan)
    exact = run.all({INPUT: torch.from_numpy(np.concatenate([X, near.astype(X.dtype)]))}, plan.steps)
    expected = {value: exact[value].numpy() for value in plan.outputs.values()}
    scales = {value: units(y[: len(X)]) for value, y in expected.items()}
    found: dict[str, Choice] = {}
    values, spent = exact, 0.0
    for place, step in enumerate(plan.steps):
        precisions = step.operation.precisions()
        if len(precisions) == 1 or (isinstance(step.operation, Pairwise | SquaredNorm) and not len(near)):
            continue
        found[step.output] = Choice(precisions[0], spent)
        for precision in reversed(precisions[1:]):
            inputs = [values[name].numpy() for name in step.inputs]
            answer = step.operation.in_precision(precision).emulate(*inputs)
            tried = run.all({**values, step.output: torch.from_numpy(answer)}, plan.steps[place + 1 :], step.output)
            error = _largest_error({value: tried[value].numpy() for value in expected}, expected, scales)
            if error <= limit:
                values, spent = tried, error
                found[step.output] = Choice(precision, error)
                break
    return found


def rows_at_points(plan: Plan) -> np.ndarray:
    """Return rows `[*, n_features]` at points of the plan's squared norms; no rows if there is no such norm.

    Only the points of functions that read the plan's input are known to be rows.
    """
    if not any(isinstance(step.operation, SquaredNorm) for step in plan.steps):
        return np.zeros((0, plan.n_features))
    found = [np.zeros((0, plan.n_features))]
    for step in plan.steps:
        if isinstance(step.operation, Pairwise) and step.inputs == (INPUT,):
            points, factor = step.operation.points, step.operation.factor
            some = points[np.unique(np.linspace(0, len(points) - 1, ROWS_AT_POINTS).astype(int))]
            found.append(some / np.where(factor != 0, factor, 1.0) + step.operation.shift)
    return np.concatenate(found[:2])


def in_words(asked: str, limit: float, choices: Mapping[str, Choice]) -> str | None:
    """Return a sentence on the precision asked for and the choices; None if no operation has a choice."""
    found = Counter(choice.precision for choice in choices.values())
    if not found:
        return None
    counts = " and ".join(f"{count} operation{'s' * (count != 1)} in {precision}" for precision, count in found.items())
    error = max(choice.error for choice in choices.values())
    return (
        f"Precision {asked}: the entry computes {counts}. On these rows that moves answers by at most {error:.0e} "
        f"standard deviations; {limit:.0e} are allowed"
    )


class _CpuSteps:
    """Computes steps of a plan as a CPU does, in float64 from one to the next."""

    def __init__(self, plan: Plan) -> None:
        self._parameters = bind_parameters(plan, torch.device("cpu"), plain=True)

    @torch.inference_mode()
    def all(self, values: Values, steps: Sequence[Step], changed: str = INPUT) -> dict[str, torch.Tensor]:
        """Return the values after recomputing the steps that depend on a changed one."""
        values, stale = dict(values), {changed}
        with one_thread():
            for step in steps:
                if not stale.isdisjoint(step.inputs) or step.output not in values:
                    inputs = [values[name] for name in step.inputs]
                    values[step.output] = step.operation.compute_on_cpu(self._parameters[step.output], *inputs)
                    stale.add(step.output)
        return values


def _largest_error(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], scales: Mapping[str, np.ndarray]
) -> float:
    """Return the largest difference in the columns' units; infinity if only one of two values is NaN."""
    largest = 0.0
    for name, y in expected.items():
        error = np.where(np.isnan(y) & np.isnan(found[name]), 0.0, np.abs(found[name] - y)) / scales[name]
        largest = max(largest, float(np.nan_to_num(error.max(), nan=np.inf)))
    return largest
