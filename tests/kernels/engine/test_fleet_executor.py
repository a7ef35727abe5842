"""Classes of a fleet on a CPU, each of which computes its own rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from tests.kernels.engine.test_runner import step_by_step
from tests.kernels.operations_stacked import affine, stacked
from triton_regressors.kernels.engine.fleet_executor import FleetExecutor
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.member_choice import MemberChoice
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import INPUT, Parameters, Plan, Step


@dataclass(frozen=True, eq=False)
class Counted(Affine):
    """A map that keeps the numbers of rows that it computed."""

    seen: list[int] = field(default_factory=list)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(inputs[0]))
        return super().compute_on_cpu(parameters, *inputs)


def counted(seed: int) -> Counted:
    own = affine(4, seed)
    return Counted(own.weight, own.intercept)


def fleet(alone: Sequence[Affine]) -> Plan:
    """Return the plan of the members 0 and 1, stacked, and of further ones; `std` differs in the last one's alone."""
    stack, slices = stacked([affine(4, 1), affine(4, 2)]), ((Slice(0, 4), "rows"), (Slice(4, 1), "number"))
    steps = [Step(operation, (INPUT,), value) for operation, value in slices]
    steps += [Step(stack, ("rows", "number"), "0"), *(Step(op, ("rows",), f"{m}") for m, op in enumerate(alone, 2))]
    last, before = len(alone) + 1, "0"
    for m in range(2, last + 1):
        steps.append(Step(MemberChoice(m, m + 1), (before, f"{m}", "number"), f"to {m}"))
        before = f"to {m}"
    steps.append(Step(MemberChoice(last, last + 1), ("0", f"{last}", "number"), "other"))
    return Plan(5, tuple(steps), {"y": before, "std": "other", "m": "number"})


def drawn(numbers: Sequence[float] | np.ndarray) -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((len(numbers), 5))
    X[:, -1] = numbers
    return X.astype(np.float32)


@pytest.mark.parametrize(
    "numbers", [[3.0], [0.0, 1.0], [4, 0, 2, 2, 3, 1, 0] * 40, [2.0, np.nan, -1.0, 3.0, np.inf, 1e30, -np.inf, 5.0]]
)
def test_answers_are_those_of_the_steps(numbers: list[float]) -> None:
    plan, X = fleet([affine(4, seed) for seed in (3, 4, 5)]), drawn(numbers)
    runner, expected = Runner(plan, engine="torch", max_rows=300), step_by_step(plan, X)
    assert isinstance(runner.executor, FleetExecutor)
    for outputs in (("y",), ("std", "m", "y")):
        found = runner.predict(X, outputs)
        launched = runner.executor.launch((X,), len(X), outputs).arrays
        assert tuple(found) == outputs
        for name in outputs:
            assert found[name].tobytes() == launched[name].tobytes() == expected[name].astype(np.float32).tobytes()


def test_a_class_computes_its_own_rows_alone() -> None:
    alone = [counted(seed) for seed in (3, 4, 5)]
    runner = Runner(fleet(alone), engine="torch")
    for numbers in ([0, 1, 0], [4, 2, 4], [3, 3], [2]):
        runner.predict(drawn(numbers))
    assert [each.seen for each in alone] == [[1, 1], [2], [2]]
    runner.warm_up([("y",)])
    assert [each.seen[-1] for each in alone] == [1, 1, 1]


@pytest.mark.parametrize("rows", [0, 3])
def test_outputs_that_are_not_there_and_no_rows(rows: int) -> None:
    runner, X = Runner(fleet([affine(4, 3)]), engine="torch"), drawn(np.arange(rows))
    with pytest.raises(PlanError, match=r"^There is no output 'z'; the outputs are y, std, m\.$"):
        runner.predict(X, ("z",))
    assert runner.predict(X)["y"].shape == (rows, 1)
