"""The door of the contributions: the question of an export, the plan that answers it, and the evidence for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.contributions.coalitions import shapley_values
from triton_regressors.exporter.contributions.covers import covers_of
from triton_regressors.exporter.contributions.game import BACKGROUND, GAMES, OUTPUT, Game, add_contributions
from triton_regressors.exporter.contributions.margin import MARGIN
from triton_regressors.exporter.contributions.players import players_of_inputs
from triton_regressors.exporter.contributions.values import Values
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.evidence import Asked, Compared
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.entry import ContributionsReport
from triton_regressors.kernels.format.parity import units
from triton_regressors.kernels.ops.games.coalitions import Coalitions
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Plan

STAGE = "explain the answers"

THE_BACKGROUND = "The background"

ROWS_AT_ONCE = 1024
"""Rows whose exact contributions are computed together."""

CHECKED_ROWS = 8
"""The most rows whose contributions are compared with the definition."""

MOST_EVALUATIONS, FEWEST_ROWS = 2**18, 2
"""The most rows that the margin is computed for on the way, unless fewer rows than these would be explained."""

ADDITIVITY = 1e-9
"""The largest difference of the exact contributions from the margin and from the definition, in the margin's standard
deviations; a margin that is summed in float32 has its own rounding beside it."""


@dataclass(frozen=True)
class Question:
    """The contributions that an export asks for: the game, and rows of the background as `predict` takes them."""

    game: str
    background: Any | None

    @staticmethod
    def checked(contributions: Any, background: Any, sample: Any) -> Question | None:
        """Return the question of the arguments of an export, or None; raise `ExportError` for arguments that misfit."""
        if contributions is None:
            if background is not None:
                raise ExportError(f'background goes with contributions="{BACKGROUND}".')
            return None
        if contributions not in GAMES:
            raise ExportError(f"contributions must be one of {', '.join(GAMES)}, not {contributions!r}.")
        if contributions != BACKGROUND:
            if background is not None:
                raise ExportError(f'background goes with contributions="{BACKGROUND}", not {contributions!r}.')
            return Question(contributions, None)
        rows = sample if background is None else background
        if rows is None:
            raise ExportError(
                f'contributions="{BACKGROUND}" compares rows with a background: give background, rows as predict takes '
                "them, or a sample."
            )
        return Question(contributions, rows)


@dataclass(frozen=True)
class Contributions:
    """The plan of the contributions, fused, and as it was derived, from which the exact answers come."""

    plan: Plan
    derived: Plan
    report: ContributionsReport

    def add(self, plan: Plan) -> Plan:
        """Return the plan with the output `contributions`; its other outputs keep their steps."""
        return add_contributions(plan, self.plan)

    @property
    def rows(self) -> int:
        """The number of rows whose exact contributions are computed: few if each takes many evaluations of the plan."""
        operations = [step.operation for step in self.derived.steps]
        each = sum(operation.evaluations() for operation in operations if isinstance(operation, Coalitions))
        return max(MOST_EVALUATIONS // max(each, 1), FEWEST_ROWS)

    def of_rows(self, X: np.ndarray) -> np.ndarray:
        """Return exact contributions to rows of the matrix, float64 `[rows, targets · (columns + 1)]`."""
        return _in_parts(self.derived, self.derived.outputs[OUTPUT], X)

    def answer(self, compared: Compared) -> Compared:
        """Return rows with the exact contributions beside the estimator's answers."""
        sample, nan_sample = map(self._answer, (compared.sample, compared.nan_sample))
        return dataclasses.replace(compared, sample=sample, nan_sample=nan_sample)

    def _answer(self, sample: Sample) -> Sample:
        found = {OUTPUT: self.of_rows(sample.X[: self.rows])}
        return dataclasses.replace(sample, expected={**sample.expected, **found}, rounded={**sample.rounded, **found})


def find_contributions(question: Question, plan: Plan, lowered: Lowered, asked: Asked) -> Contributions:
    """Return the contributions to a model's answers.

    Args:
        question: the game and its background.
        plan: the plan as lowered, for the dtype of its input.
        lowered: the model, which knows the training covers of its trees.
        asked: the entry's inputs, and the rows on which the contributions are checked.

    Raises:
        ExportError: the background does not fit the model, a part of the model has no exact contributions, or they do
            not add up.
    """
    oracle, inputs, background = asked.oracle, asked.choice.inputs, None
    name = type(oracle.estimator).__name__
    if question.background is not None:
        table = oracle.table(question.background, THE_BACKGROUND)
        background = inputs.rounded(oracle.matrix(table, lowered.inputs.numeric, THE_BACKGROUND)).astype(plan.dtype)
        if not len(background):
            raise ExportError(f"{THE_BACKGROUND} has no rows.")

    players, columns = players_of_inputs(inputs), inputs.n_given
    game = Game(plan, players, columns, background, lambda step: covers_of(step, lowered))
    try:
        derived = game.contributions()
    except ExportError as error:
        raise ExportError(f"Cannot export {name} with contributions: {error}.") from error
    found = Contributions(fuse(derived), derived, ContributionsReport(question.game, 0, game.links, 0.0))
    additivity, definition = _check(found, game, players, columns, background, asked.sample.X, name)
    rows = 0 if background is None else len(background)
    report = ContributionsReport(question.game, rows, game.links, additivity, definition)
    return dataclasses.replace(found, report=report)


def _check(
    found: Contributions,
    game: Game,
    players: np.ndarray,
    columns: int,
    background: np.ndarray | None,
    sample: np.ndarray,
    name: str,
) -> tuple[float, float | None]:
    """Compare exact contributions with the margin, and with the definition if that takes few evaluations.

    Return both largest differences in standard deviations of the margin; None for a comparison that was left out.
    """
    value, targets = game.margin.outputs[MARGIN], game.targets
    X = sample[: min(ROWS_AT_ONCE, found.rows)]
    exact = found.of_rows(X).reshape(len(X), targets, columns + 1)
    unit, own = units(_in_parts(game.margin, value, sample[:ROWS_AT_ONCE])), _in_parts(game.margin, value, X)
    missed = np.abs(exact.sum(axis=2) - own)
    additivity = float((missed / unit).max())
    if not (missed <= ADDITIVITY * unit + _rounding(game.margin) * np.abs(own).max()).all():
        raise ExportError(f"Cannot export {name} with contributions: they miss its answers by {additivity:.1e} std.")
    rows = 0
    if background is not None and columns < MOST_EVALUATIONS.bit_length():
        rows = min(MOST_EVALUATIONS // (2**columns * len(background)), CHECKED_ROWS, len(X))
    if background is None or not rows:
        return additivity, None
    defined = shapley_values(lambda each: _in_parts(game.margin, value, each), X[:rows], background, players, columns)
    missed = np.abs(exact[:rows] - defined.reshape(rows, targets, -1))
    error = float((missed / unit[:, None]).max())
    if not (missed <= ADDITIVITY * unit[:, None] + _rounding(game.margin) * np.abs(own).max()).all():
        raise ExportError(f"Cannot export {name} with contributions: they miss Shapley's values by {error:.1e} std.")
    return additivity, error


def _rounding(margin: Plan) -> float:
    """Return the largest relative error of the margin, which sums in float32 where the library does; others are 0."""
    terms = 0
    for step in margin.steps:
        match step.operation:
            case TreeEnsemble(output="ordered"):
                terms += len(step.operation.roots)
            case OrderedAffine():
                terms += len(step.operation.weight)
    return terms * 2.0**-24


def _in_parts(plan: Plan, value: str, X: np.ndarray) -> np.ndarray:
    """Return a value of a plan for rows, float64, some rows at a time."""
    parts = [X[first : first + ROWS_AT_ONCE] for first in range(0, max(len(X), 1), ROWS_AT_ONCE)]
    return np.concatenate([Values(plan.steps, part.astype(plan.dtype))[value] for part in parts])
