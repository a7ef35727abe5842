"""Each operation sums at the cheapest of its precisions that loses next to nothing on the sample."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.kernels import operations
from triton_regressors.exporter.passes.precision import choose_precision
from triton_regressors.kernels.ops.quadratic import Quadratic
from triton_regressors.kernels.plan import Operation, Plan, Step
from triton_regressors.kernels.run import Runner

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def two_forms(tolerance: float) -> list[str]:
    """Return the precisions of a form that float32 sums do well, and of one in which they cancel, 10⁵ from zero."""
    near = operations.quadratic(4, seed=1)
    far = dataclasses.replace(near, shift=np.full(4, -1e5))
    steps = (Step(near, ("X",), "near"), Step(far, ("near_4",), "far"))
    plan = Plan(4, (Step(operations.affine(4, 4), ("X",), "near_4"), *steps), {"y": "near", "std": "far"})
    chosen = choose_precision(plan, X, tolerance)
    return [step.operation.precision for step in chosen.steps if isinstance(step.operation, Quadratic)]


def test_precision_is_chosen_by_what_it_costs() -> None:
    assert two_forms(1e-3) == ["float32", "float64"]
    assert two_forms(1e-8) == ["float64", "float64"]


def test_all_steps_with_a_choice_are_measured_by_one_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Plan] = []
    bind = Runner.__init__

    def count(runner: Runner, plan: Plan, **options: Any) -> None:
        made.append(plan)
        bind(runner, plan, **options)

    monkeypatch.setattr(Runner, "__init__", count)
    two_forms(1e-5)
    assert len(made) == 1
    plan = Plan(4, (Step(operations.affine(4, 1), ("X",), "y"),), {"y": "y"})
    assert choose_precision(plan, X, 1e-5) is plan
    assert len(made) == 1


def test_an_operation_has_float64_sums_unless_it_says_more() -> None:
    assert Operation.PRECISIONS == ("float64",)
    form = operations.quadratic(4).in_precision("float32")
    assert isinstance(form, Quadratic)
    assert form.precision == "float32"
