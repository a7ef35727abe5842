"""Ensembles side by side become one operation, whose groups of trees keep the bits of each ensemble alone."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor, VotingRegressor

from tests.exporter.data import diabetes
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_plan, run_reference
from tests.kernels.operations_trees import ordered_ensemble, symmetric_trees, tree_ensemble
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes.merge_trees import merge_trees
from triton_regressors.exporter.passes.rewriting import of_steps
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.trees import launch
from triton_regressors.kernels.ops.trees.launch import FEW_PAIRS, tree_ensemble_shape
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step

merge = of_steps(merge_trees)
FEATURES = 5


def beside(operations: Sequence[Operation]) -> Plan:
    """Return a plan of operations that read the rows, side by side."""
    steps = [Step(operation, (INPUT,), f"v{number}") for number, operation in enumerate(operations)]
    together = Step(Concatenate(), tuple(step.output for step in steps), "y")
    return Plan(FEATURES, (*steps, together), {"y": "y"})


def nodes(seed: int, **options: Any) -> TreeEnsemble:
    return tree_ensemble(FEATURES, 3 + 5 * seed, 4, seed=seed, divisor=7.0, function="exp", **options)


KINDS: dict[str, Callable[[int], Operation]] = {
    "float32": nodes,
    "float64": lambda seed: nodes(seed, dtype=np.float64),
    "categories": lambda seed: nodes(seed, sets=4 * (seed != 1), words=seed + 1),
    "magnitudes": lambda seed: dataclasses.replace(nodes(seed), values=nodes(seed).values * 1000.0**-seed),
    "ordered": lambda seed: ordered_ensemble(FEATURES, 4 + seed, 4, seed=seed, groups=seed + 1),
    "ordered, several numbers": lambda seed: ordered_ensemble(FEATURES, 4, 3, seed=seed, outputs=3),
    "symmetric": lambda seed: symmetric_trees(FEATURES, [3, seed, 7][: seed + 1], seed=seed),
    "symmetric, float64": lambda seed: symmetric_trees(FEATURES, [2] * 9, seed=seed, dtype=np.float64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_ensemble_keeps_its_bits(device: torch.device, kind: str) -> None:
    operations = [KINDS[kind](seed) for seed in range(3)]
    (step,) = merge(beside(operations)).steps
    (x,) = inputs_for([FEATURES], 70)
    x[::9, 1] = np.nan
    assert step.operation.launches(1) == operations[0].launches(1)
    for run in (run_reference, run_on_cpu):
        assert np.array_equal(run(step.operation, [x]), np.concatenate([run(op, [x]) for op in operations], axis=1))
    alone = [run_kernel(op, [x], device, torch.float64) for op in operations]
    for few, shape in ((FEW_PAIRS, {}), (0, {"BLOCK_ROWS": 32, "ELEMENTS": 128, "PARTS": True})):
        with mock.patch.object(launch, "FEW_PAIRS", few), tree_ensemble_shape.trying(shape):
            found = run_kernel(step.operation, [x], device, torch.float64)
            assert np.array_equal(found, np.concatenate(alone, axis=1))


@pytest.mark.parametrize("rows", [1, 70, 1000, 20_000])
@pytest.mark.parametrize("trees", [1, 3, 16, 100])
def test_a_block_of_groups_fills_a_warp(rows: int, trees: int) -> None:
    """The compiler of the Triton language 3.6 does not end on some smaller blocks."""
    tile = launch.tree_tile(rows, trees, 1, FEATURES, 31 * trees, True, torch.device("cpu"))
    filling = launch.filling_a_warp(tile)
    assert filling.block_trees * filling.block_rows >= 32
    assert filling == tile or tile.block_trees * tile.block_rows < 32


def test_groups_join_other_groups_and_leave_other_values_where_they_are(device: torch.device) -> None:
    first, second, third = (nodes(seed) for seed in range(3))
    (merged,) = merge(beside([first, second])).steps
    other = dataclasses.replace(third, divisor=2.0)
    plan = merge(beside([merged.operation, third, other]))
    assert [step.operation.kind() for step in plan.steps] == ["tree_ensemble", "tree_ensemble", "concatenate"]
    (x,) = inputs_for([FEATURES], 20)
    assert np.array_equal(run_plan(plan, x)["y"], run_plan(beside([first, second, third, other]), x)["y"])


def test_ensembles_that_differ_stay_apart() -> None:
    kept = nodes(0)
    for other in (
        dataclasses.replace(kept, divisor=2.0),
        dataclasses.replace(kept, function="identity"),
        nodes(0, dtype=np.float64),
        nodes(0, outputs=2),
        KINDS["symmetric"](0),
    ):
        plan = beside([kept, other])
        assert merge(plan) is plan


def test_a_vote_of_two_forests_is_one_launch_of_trees() -> None:
    X, y = diabetes()
    forests = [(str(seed), RandomForestRegressor(5, max_depth=4, random_state=seed)) for seed in range(2)]
    vote = VotingRegressor([*forests, ("b", GradientBoostingRegressor(n_estimators=5))]).fit(X, y)
    kinds = [step.operation.describe() for step in compile_estimator(vote, sample=X).plan.steps]
    assert sum("summed in 2 groups" in kind for kind in kinds) == 1


SUM, SYMMETRIC = nodes(0), symmetric_trees(FEATURES, [2, 1])
WRONG = {
    "several numbers": (nodes(0, outputs=2), [0, 1, 3], "starts must be empty unless the output is 'ordered', or a"),
    "end": (SUM, [0, 2], "starts must be int32 [groups + 1], from 0 to 3."),
    "empty group": (SUM, [0, 2, 2, 3], "starts must ascend where the output is 'sum'."),
    "order": (
        dataclasses.replace(SUM, roots=SUM.roots[::-1].copy()),
        [0, 1, 3],
        "roots of a group must come after those of the group before.",
    ),
    "symmetric, several numbers": (
        symmetric_trees(FEATURES, [2, 1], 2),
        [0, 1, 2],
        "starts must be int32 [groups + 1], wh",
    ),
    "symmetric, end": (SYMMETRIC, [0, 1], "starts must ascend from 0 to 2."),
    "symmetric, empty group": (SYMMETRIC, [0, 0, 2], "starts must ascend from 0 to 2."),
}


@pytest.mark.parametrize("case", WRONG)
def test_groups_that_do_not_fit_are_named(case: str) -> None:
    operation, starts, message = WRONG[case]
    assert isinstance(operation, TreeEnsemble | SymmetricTrees)
    groups = np.array(starts, dtype=np.int32)
    wrong = dataclasses.replace(operation, starts=groups, baseline=np.zeros(len(groups) - 1))
    with pytest.raises(PlanError) as raised:
        wrong.check(FEATURES)
    assert message in str(raised.value)
