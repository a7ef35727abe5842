"""Measures the contributions of every case of the test catalogue: `python -m docs.coverage contributions`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.coverage import TOLERANCE, measure_beside, quietly, rounded
from tests.exporter.catalogue.cases import Case
from triton_regressors.contribution_game import ERROR

if TYPE_CHECKING:
    from triton_regressors.exporter.evidence.sample import Sample
    from triton_regressors.kernels.plan.plan import Plan

CONTRIBUTIONS = "contributions"
"""The source of the figures for contributions."""

BACKGROUND_ROWS = 8
"""The number of a case's rows that contributions are against, and that the kernels explain."""

PERMUTATIONS = "permutations"
"""The way of contributions that are estimated."""

WAYS = {
    "tree_contributions": "trees",
    "path_contributions": "trees",
    "background_contributions": "trees",
    "pairwise_contributions": "points",
    "coalitions": "definition",
    "orders": PERMUTATIONS,
}
"""The ways in which contributions are computed, by operation; "sum" is all else."""


def contributions_case(case: Case) -> dict[str, dict[str, Any] | str]:
    """Return a case's figures for contributions by game, or the reason why the exporter refuses them.

    The game "path" is there if trees alone make the contributions of the game "background".
    """
    found = {"background": _explained(case, contributions="background", background=case.fitted()[1][:BACKGROUND_ROWS])}
    background = found["background"]
    if not isinstance(background, str) and background["how"] == ["trees"]:
        found["path"] = _explained(case, contributions="path")
    return found


def _explained(case: Case, **question: Any) -> dict[str, Any] | str:
    """Return how contributions are computed, their errors and the kernels launched, or why they are refused.

    All are in standard deviations of the margin, which the contributions add up to. `error` is the largest difference
    of the kernels' contributions of some rows from those in float64. Sums over coalitions take too long in the
    interpreter, so that plain torch computes them. If it is beyond the tolerance, `excess` is what is beyond one unit
    in the last place. `additivity` is the largest difference of the sum in float64 from the margin, and `estimated` the
    largest standard error of contributions that are estimated.
    """
    from triton_regressors.exporter.compile import compile_estimator
    from triton_regressors.exporter.errors import ExportError
    from triton_regressors.kernels.engine.runner import Runner
    from triton_regressors.kernels.format.parity import measure

    estimator, X = case.fitted()
    try:
        compilation = compile_estimator(estimator, sample=X, **question)
    except ExportError as refusal:
        return str(refusal)
    if not compilation.report.within:
        raise AssertionError(f"the export is beyond its tolerance: {compilation.report!r}")
    plan, sample, evidence = compilation.plan, compilation.sample, compilation.contributions
    assert evidence is not None
    how, steps = ways_of(plan), plan.steps_for((CONTRIBUTIONS,))
    exact = sample.expected[CONTRIBUTIONS][:BACKGROUND_ROWS]
    costly = {"definition", PERMUTATIONS} & set(how)
    engine = "auto" if costly else "triton" if _on_gpu() else "interpret"
    runner = Runner(plan, engine=engine, max_rows=BACKGROUND_ROWS)
    served = runner.predict(sample.X[: len(exact)], (CONTRIBUTIONS,))[CONTRIBUTIONS]
    parity = measure(served, exact, sample.units[CONTRIBUTIONS])
    return {
        "how": how,
        "error": rounded(parity.max_error),
        **({} if parity.max_error <= TOLERANCE else {"excess": rounded(parity.excess)}),
        "additivity": rounded(evidence.additivity),
        **({"estimated": rounded(_standard_error(sample))} if evidence.permutations else {}),
        "launches": sum(step.launches() for step in steps),
    }


def _standard_error(sample: Sample) -> float:
    """Return the largest standard error of estimated contributions in standard deviations of the margin."""
    return float((sample.expected[ERROR] / sample.units[ERROR]).max())


def ways_of(plan: Plan) -> list[str]:
    """Return the ways, of `WAYS` and "sum", in which a plan computes contributions, in that order."""
    makers = {step.output: step for step in plan.steps}
    found, left = set[str](), [plan.outputs[CONTRIBUTIONS]]
    while left:
        step = makers.get(left.pop())
        if step is None:
            found.add("sum")
        elif (kind := step.operation.kind()) in WAYS:
            found.add(WAYS[kind])
        else:
            weight = getattr(step.operation, "weight", None)
            constant = weight is not None and not np.any(weight)
            left += () if constant else step.inputs
    return [way for way in dict.fromkeys(("sum", *WAYS.values())) if way in found] or ["sum"]  # a constant


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def measure_contributions(pattern: str, *, missing: bool = False) -> int:
    """Measure the contributions of the cases whose names match; return how many ended in an error."""
    if not _on_gpu():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before the exporter is imported
    return measure_beside(CONTRIBUTIONS, _contributions_named, pattern, missing)


def _contributions_named(name: str) -> tuple[str, dict[str, Any] | str | None]:
    """Return a case's name and its figures for contributions, None if it ended in another error."""
    return name, quietly(contributions_case, name)
