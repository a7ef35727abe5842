"""Steps that plain torch takes together: the same answers as one by one, and a row's bits in every batch."""

import dataclasses

import numpy as np
import pytest

from tests.kernels.operations import run_plan
from tests.kernels.operations_pairwise import pairwise, pairwise_affine, squared_norm
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.engine.torch_executor import with_joined
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.points.cpu_fusion import SharedPoints
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import Joined, Plan, Step

FEATURES, POINTS = 6, 300


def steps(name: str = "rbf", targets: int = 1) -> dict[str, Step]:
    """Return the steps of a process: its mean, the points' functions, and their norm."""
    function = "exp" if targets == 1 else "identity"
    made = (
        Step(pairwise_affine(name, FEATURES, POINTS, targets, function=function), ("X",), "mean"),
        Step(pairwise(name, FEATURES, POINTS), ("X",), "functions"),
        Step(squared_norm(POINTS, 70, triangular=True), ("functions",), "norm"),
    )
    return {step.output: step for step in made}


def plan(made: dict[str, Step], **more: str) -> Plan:
    return Plan(FEATURES, tuple(made.values()), {"y": "mean", "std": "norm", **more})


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((count, FEATURES)).astype(np.float32)


def taken(given: Plan, outputs: tuple[str, ...] = ("y", "std")) -> tuple[Step | Joined, ...]:
    return with_joined(given, given.steps_for(outputs))


def outputs_of(together: Step | Joined) -> list[str]:
    assert isinstance(together, SharedPoints)
    return [step.output for step in together.steps]


@pytest.mark.parametrize("name", ["rbf", "matern_1_2", "laplacian"])
@pytest.mark.parametrize("targets", [1, 2])
def test_a_mean_and_a_norm_share_functions(name: str, targets: int) -> None:
    given = plan(steps(name, targets))
    (together,) = taken(given)
    assert outputs_of(together) == ["functions", "norm", "mean"]
    runner, X = Runner(given, engine="torch"), rows(250)
    found = runner.predict(X, ("y", "std"))
    for output, expected in run_plan(given, X).items():
        np.testing.assert_allclose(found[output], expected, rtol=1e-6, atol=1e-6)
    for outputs in (("y",), ("std",), ("std", "y")):
        for output, answer in runner.predict(X, outputs).items():
            assert answer.tobytes() == found[output].tobytes()
    for count in (1, 3, 64, 200):
        for start in (0, 250 - count):
            for output, answer in runner.predict(X[start : start + count], ("y", "std")).items():
                assert answer.tobytes() == found[output][start : start + count].tobytes()
    assert runner.predict(X[:0], ("y", "std"))["std"].shape == (0, 3)


def test_parts_of_a_sum_are_made_apart() -> None:
    made = steps()
    operation = made["mean"].operation
    assert isinstance(operation, PairwiseAffine)
    in_parts = dataclasses.replace(operation, parts=3, function="identity")
    made["mean"] = Step(in_parts, ("X",), "mean")
    mean, together = taken(plan(made))
    assert mean == made["mean"]
    assert outputs_of(together) == ["functions", "norm"]


def test_functions_that_something_else_reads_are_made_as_they_are() -> None:
    made = steps()
    outputs = plan(made, functions="functions")
    made["more"] = Step(Affine(np.ones((POINTS, 1)), np.zeros(1)), ("functions",), "more")
    for given in (outputs, plan(made, more="more")):
        assert all(isinstance(step, Step) for step in taken(given))


def test_a_sum_over_other_functions_is_made_apart() -> None:
    made = steps()
    other = made["mean"].operation
    assert isinstance(other, PairwiseAffine)
    made["mean"] = Step(dataclasses.replace(other, gamma=-0.3), ("X",), "mean")
    mean, together = taken(plan(made))
    assert isinstance(mean, Step)
    assert mean.output == "mean"
    assert outputs_of(together) == ["functions", "norm"]
