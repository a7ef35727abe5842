"""Equal steps are computed once, and a plan without equal steps stays as it is."""

import numpy as np

from tests.kernels import operations
from tests.kernels.operations import run_plan
from triton_regressors.exporter.passes.share_equal import share_equal_steps
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.plan.plan import Plan, Step


def test_chains_of_equal_steps_are_computed_once() -> None:
    steps = (
        Step(operations.scale(3), ("X",), "a"),
        Step(operations.affine(3, 2), ("a",), "b"),
        Step(operations.scale(3), ("X",), "c"),
        Step(operations.affine(3, 2), ("c",), "d"),
        Step(operations.affine(3, 2, seed=1), ("c",), "e"),
        Step(Combine("sum"), ("b", "d"), "y"),
    )
    plan = Plan(3, steps, {"y": "y", "std": "d", "other": "e"})
    shared = share_equal_steps(plan)
    assert [step.output for step in shared.steps] == ["a", "b", "e", "y"]
    assert shared.outputs == {"y": "y", "std": "b", "other": "e"}
    X = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    found, expected = run_plan(shared, X), run_plan(plan, X)
    assert all(np.array_equal(found[name], expected[name]) for name in plan.outputs)
    assert share_equal_steps(shared) is shared


def test_steps_that_differ_by_a_bit_stay() -> None:
    one, other = operations.scale(3), operations.scale(3)
    other.shift[1] = np.nextafter(other.shift[1], np.inf)
    steps = (Step(one, ("X",), "a"), Step(other, ("X",), "b"), Step(Combine("sum"), ("a", "b"), "y"))
    plan = Plan(3, steps, {"y": "y"})
    assert share_equal_steps(plan) is plan
