"""Steps that plain torch takes together: the same answers as one by one, and a row's bits in every batch."""

import dataclasses

import numpy as np
import pytest

from tests.kernels.operations import run_plan
from tests.kernels.operations_pairwise import pairwise, pairwise_affine, squared_norm
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.points.cpu_fusion import SharedPoints, with_shared_points, with_whole_sums
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import Plan, Step

FEATURES, POINTS, PARTS = 6, 300, 3
ADDED = Affine(np.ones((PARTS, 1)), np.array([0.7]), "exp")


def steps(name: str = "rbf", targets: int = 1) -> dict[str, Step]:
    """Return the steps of a process: the parts of its mean, the mean, the points' functions, and their norm."""
    total = ADDED if targets == 1 else Affine(np.tile(np.eye(targets), (PARTS, 1)), np.zeros(targets))
    made = (
        Step(pairwise_affine(name, FEATURES, POINTS, targets, PARTS), ("X",), "parts"),
        Step(total, ("parts",), "mean"),
        Step(pairwise(name, FEATURES, POINTS), ("X",), "functions"),
        Step(squared_norm(POINTS, 70, triangular=True), ("functions",), "norm"),
    )
    return {step.output: step for step in made}


def plan(made: dict[str, Step], **more: str) -> Plan:
    return Plan(FEATURES, tuple(made.values()), {"y": "mean", "std": "norm", **more})


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((count, FEATURES)).astype(np.float32)


def taken(given: Plan, outputs: tuple[str, ...] = ("y", "std")) -> tuple[Step | SharedPoints, ...]:
    whole = with_whole_sums(given)
    return with_shared_points(whole, whole.steps_for(outputs))


@pytest.mark.parametrize("name", ["rbf", "matern_1_2", "laplacian"])
def test_a_mean_and_a_norm_share_functions(name: str) -> None:
    given = plan(steps(name))
    (together,) = taken(given)
    assert isinstance(together, SharedPoints)
    assert together.sum is not None
    assert together.sum.output == "mean"
    runner, X = Runner(given, engine="torch"), rows(250)
    found = runner.predict(X, ("y", "std"))
    for output, expected in run_plan(given, X).items():
        np.testing.assert_allclose(found[output], expected, rtol=1e-6)
    for outputs in (("y",), ("std",), ("std", "y")):
        for output, answer in runner.predict(X, outputs).items():
            assert answer.tobytes() == found[output].tobytes()
    for count in (1, 3, 64, 200):
        for start in (0, 250 - count):
            for output, answer in runner.predict(X[start : start + count], ("y", "std")).items():
                assert answer.tobytes() == found[output][start : start + count].tobytes()
    assert runner.predict(X[:0], ("y", "std"))["std"].shape == (0, 3)


def test_several_targets_share_functions_where_they_are_one_part() -> None:
    made = steps(targets=2)
    assert len(taken(plan(made))) == 3, "parts of several targets stay parts"
    operation = made["parts"].operation
    assert isinstance(operation, PairwiseAffine)
    made["parts"] = Step(dataclasses.replace(operation, parts=1), ("X",), "mean")
    del made["mean"]
    given, X = plan(made), rows(70)
    (together,) = taken(given)
    assert isinstance(together, SharedPoints)
    found = Runner(given, engine="torch").predict(X, ("y", "std"))
    for output, expected in run_plan(given, X).items():
        np.testing.assert_allclose(found[output], expected, rtol=1e-6, atol=1e-6)


def test_functions_that_something_else_reads_are_made_as_they_are() -> None:
    made = steps()
    outputs = plan(made, functions="functions")
    made["more"] = Step(Affine(np.ones((POINTS, 1)), np.zeros(1)), ("functions",), "more")
    for given in (outputs, plan(made, more="more")):
        assert all(isinstance(step, Step) for step in taken(given))


def test_a_sum_over_other_functions_is_made_apart() -> None:
    made = steps()
    other = made["parts"].operation
    assert isinstance(other, PairwiseAffine)
    made["parts"] = Step(dataclasses.replace(other, gamma=-0.3), ("X",), "parts")
    mean, together = taken(plan(made))
    assert isinstance(mean, Step)
    assert mean.output == "mean"
    assert isinstance(together, SharedPoints)
    assert together.sum is None


def test_which_parts_become_whole_sums() -> None:
    made = steps()
    (whole,) = with_whole_sums(plan(made)).steps_for(("y",))
    assert isinstance(whole.operation, PairwiseAffine)
    assert whole.operation.parts == 1
    assert whole.operation.function == "exp"
    weighed = {**made, "mean": Step(Affine(np.full((PARTS, 1), 2.0), np.zeros(1)), ("parts",), "mean")}
    for given in (plan(made, parts="parts"), plan(weighed), plan(steps(targets=2))):
        assert with_whole_sums(given).steps == given.steps
