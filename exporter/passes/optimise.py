"""From a lowered plan to the one that is served: every pass, in order.

A pass is a named, pure function from plan to plan that keeps the answers, with a file in `passes/`. First the plan is
specialised for the dtype of its input. Then it is fused: the fusions look at a step and the maker of its input, fold in
float64, and run in order, again and again until none changes the plan. This ends, since each fusion lowers the plan's
cost, which cannot fall for ever (`passes/cost.py`). Last, the schedule of the remaining steps is chosen once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from triton_regressors.exporter.passes.add_up_lookups import add_up_lookups
from triton_regressors.exporter.passes.contract_parts import contract_parts
from triton_regressors.exporter.passes.cost import cost
from triton_regressors.exporter.passes.drop import drop_steps_without_effect, without_dead_steps
from triton_regressors.exporter.passes.fold_expansions import fold_into_expansion
from triton_regressors.exporter.passes.fold_functions import fold_function
from triton_regressors.exporter.passes.fold_linear import fold_linear
from triton_regressors.exporter.passes.fold_lookups import fold_lookup, look_up_at_once
from triton_regressors.exporter.passes.fold_trees import fold_into_trees
from triton_regressors.exporter.passes.fuse_dense_layers import fuse_dense_layers
from triton_regressors.exporter.passes.merge_parts import merge_neighbours
from triton_regressors.exporter.passes.merge_trees import merge_trees
from triton_regressors.exporter.passes.precision import Choice, choose_precision
from triton_regressors.exporter.passes.quadratic_form import use_quadratic_form
from triton_regressors.exporter.passes.rewriting import of_pairs, of_steps
from triton_regressors.exporter.passes.scale_parts import scale_afterwards
from triton_regressors.exporter.passes.select_early import select_early
from triton_regressors.exporter.passes.select_in_place import select_in_place
from triton_regressors.exporter.passes.share_equal import share_equal_steps
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.plan.plan import Plan


@dataclass(frozen=True)
class Pass:
    """A named Plan → Plan function, which returns the same object if it changes nothing."""

    name: str
    run: Callable[[Plan], Plan]


FUSIONS: tuple[Pass, ...] = (
    Pass("drop steps without effect", drop_steps_without_effect),
    Pass("select columns early", of_pairs(select_early)),
    Pass("fold linear maps", of_pairs(fold_linear)),
    Pass("fold into expansions", of_pairs(fold_into_expansion)),
    Pass("fold into trees", of_pairs(fold_into_trees)),
    Pass("fold lookups", of_pairs(fold_lookup)),
    Pass("merge side by side", of_steps(merge_neighbours)),
    Pass("scale side by side", of_steps(scale_afterwards)),
    Pass("contract side by side", of_steps(contract_parts)),
    Pass("add up lookups", of_steps(add_up_lookups, may_add_steps=True)),
    Pass("fold functions", of_pairs(fold_function)),
    Pass("use the quadratic form", use_quadratic_form),
    Pass("drop dead steps", without_dead_steps),
)


class Optimised(NamedTuple):
    """A lowered plan and the plan after each pass that changed it, by name, with the precision chosen for each step."""

    stages: list[tuple[str, Plan]]
    choices: dict[str, Choice]


def optimise(plan: Plan, X: np.ndarray, limit: float) -> Optimised:
    """Return a lowered plan for rows of the dtype of `X`, and the plan after each pass that changed it, by its name.

    Args:
        plan: the lowered plan.
        X: a sample, `[rows, n_features]`, on which precision is measured.
        limit: the largest error of an output by reduced precision, in its standard deviations.
    """
    plan = specialise(plan, X.dtype.name)
    stages = [("lowered", plan), *fusion_stages(plan)]
    choices: dict[str, Choice] = {}

    def precise(plan: Plan) -> Plan:
        plan, found = choose_precision(plan, X, limit)
        choices.update(found)
        return plan

    for scheduled in (
        Pass("look up at once", of_pairs(look_up_at_once)),
        Pass("select columns in place", select_in_place),
        Pass("fuse dense layers", functools.partial(fuse_dense_layers, X=X)),
        Pass("share equal steps", share_equal_steps),
        Pass("merge trees", of_steps(merge_trees)),
        Pass("choose precision", precise),
    ):
        after = scheduled.run(stages[-1][1])
        if after is not stages[-1][1]:
            stages.append((scheduled.name, after))
    return Optimised(stages, choices)


def fuse(plan: Plan) -> Plan:
    """Return the plan after every fusion."""
    for _, fused in fusion_stages(plan):
        plan = fused
    return plan


def fusion_stages(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield the name of each fusion that changes the plan, and the plan after it."""
    changed = True
    while changed:
        changed = False
        for fusion in FUSIONS:
            after = fusion.run(plan)
            if after is not plan:
                assert cost(after) < cost(plan), f"'{fusion.name}' makes a plan of {cost(plan)} one of {cost(after)}"
                changed = True
                plan = after
                yield fusion.name, plan
