"""Chooses how each operation computes, of the precisions that it has.

An operation computes in float64 unless something cheaper was measured to lose next to nothing. What its kernel would
answer on the sample is computed at each of its precisions, the steps after it follow in float64, and the cheapest
precision is chosen with which no output of the plan moves further than is allowed. Operations are tried in the plan's
order, each beside the choices made before it: so it is the error of all choices together that is held to the limit.

A variance that a squared norm leaves is least at the points that the norm's functions are of, and loses most there.
Therefore some of them are tried beside the sample; if it is not known which rows they are, the norm stays in float64.
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

In wider units it would be seen: an answer's last float32 place is about 1e-7 of its magnitude."""

SHARE_OF_TOLERANCE = 0.25
"""The share of the tolerance that "fast" allows; the rest is for rounding the input (`input_type.py`)."""

ROWS_AT_POINTS = 256
"""The number of points tried beside the sample."""

Values = Mapping[str, torch.Tensor]


class Choice(NamedTuple):
    """A step's precision, and how far the plan's outputs lie from float64's with it and all choices before it."""

    precision: str
    error: float


def allowed_error(precision: str, tolerance: float) -> float:
    """Return how far the outputs may move, in standard deviations of the predictions."""
    share = SHARE_OF_TOLERANCE * tolerance
    return share if precision == "fast" else min(share, EXACT)


def choose_precision(plan: Plan, X: np.ndarray, limit: float) -> tuple[Plan, dict[str, Choice]]:
    """Return the plan with each operation at the cheapest precision that the sample shows to be good enough, and why.

    Args:
        plan: any plan.
        X: the sample, `[rows, n_features]`.
        limit: how far an output may move by all choices together, in its standard deviations.

    Returns:
        The very plan where nothing cheaper was chosen, and the choice for each step that has one, by its value.
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
    """Return the choice for each step that has one, by the value that it makes."""
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
    """Return rows `[*, n_features]` at points that a squared norm of the plan is of; none where there is no such norm.

    Of each function only those that read the plan's input are known to be rows.
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
    """Return what was asked for and chosen in a sentence; None where no operation has a choice."""
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
        """Return the values, and those of the steps that follow from a changed one, computed anew."""
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
    """Return the largest difference in the columns' units; infinity where one is no number and the other is."""
    largest = 0.0
    for name, y in expected.items():
        error = np.where(np.isnan(y) & np.isnan(found[name]), 0.0, np.abs(found[name] - y)) / scales[name]
        largest = max(largest, float(np.nan_to_num(error.max(), nan=np.inf)))
    return largest
