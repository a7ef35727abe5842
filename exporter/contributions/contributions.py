"""The door of the contributions: the question of an export, the plan that answers it, and the evidence for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.contribution_game import BACKGROUND, OUTPUT, PATH
from triton_regressors.exporter.contributions.coalitions import shapley_values
from triton_regressors.exporter.contributions.covers import covers_of
from triton_regressors.exporter.contributions.game import GAMES, Game, add_contributions
from triton_regressors.exporter.contributions.margin import MARGIN
from triton_regressors.exporter.contributions.permutations import check_permutations
from triton_regressors.exporter.contributions.players import players_of_inputs
from triton_regressors.exporter.contributions.values import Values
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.evidence import Asked, Compared
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.entry import ContributionsReport
from triton_regressors.kernels.format.parity import units
from triton_regressors.kernels.ops.games.coalitions import evaluations
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Plan

STAGE = "explain the answers"

THE_BACKGROUND = "The background"

ROWS_AT_ONCE, ROWS_OF_UNIT = 4096, 1024
"""Rows that are computed together, and rows whose margins give the unit of error."""

EXPLAINED_ROWS, DEFINED_ROWS = 64, 8
"""The most rows whose exact contributions are computed, and those that are compared with the definition."""

MOST_EVALUATIONS, FEWEST_ROWS = 2**18, 2
"""The most rows that the margin is computed for on the way, unless fewer rows than these would be explained."""

ADDITIVITY = 1e-9
"""The largest difference of the exact contributions from the margin and from the definition, in the margin's standard
deviations; a margin that is summed in float32, or of rounded sums, has its own rounding beside it."""


@dataclass(frozen=True)
class Question:
    """The contributions that an export asks for.

    They are those of a game, with rows of the background as `predict` takes them, and the number of orders for values
    that are estimated.
    """

    game: str
    background: Any | None = None
    permutations: int | None = None

    @staticmethod
    def checked(contributions: Any, background: Any, permutations: Any, sample: Any) -> Question | None:
        """Return the question of the arguments of an export, or None; raise `ExportError` for arguments that misfit."""
        if contributions is not None and contributions not in GAMES:
            raise ExportError(f"contributions must be one of {', '.join(GAMES)}, not {contributions!r}.")
        if contributions != BACKGROUND:
            instead = "" if contributions is None else f", not {contributions!r}"
            for name, given in (("background", background), ("permutations", permutations)):
                if given is not None:
                    raise ExportError(f'{name} goes with contributions="{BACKGROUND}"{instead}.')
            return None if contributions is None else Question(contributions)
        check_permutations(permutations)
        rows = sample if background is None else background
        if rows is None:
            raise ExportError(
                f'contributions="{BACKGROUND}" compares rows with a background: give background, rows as predict takes '
                "them, or a sample."
            )
        return Question(contributions, rows, permutations)


@dataclass(frozen=True)
class Contributions:
    """The contributions to a model's answers: the plan that serves them, and the game that it came from.

    `derived` is the plan before the passes, from which the exact answers come. `background` are rows of the matrix,
    None for the path-dependent game. `players` are those of the matrix's columns.
    """

    game: Game
    plan: Plan
    derived: Plan
    background: np.ndarray | None
    players: np.ndarray
    columns: int

    def add(self, plan: Plan) -> Plan:
        """Return the plan with the outputs of the contributions; its other outputs keep their steps."""
        return add_contributions(plan, self.plan)

    def answer(self, compared: Compared) -> tuple[Compared, ContributionsReport]:
        """Return the first rows' exact contributions beside the estimator's answers, and the evidence for them.

        Raises:
            ExportError: they do not add up to the margin, or differ from the definition.
        """
        unit = units(self._margin(compared.sample.X[:ROWS_OF_UNIT]))
        sample, nan_sample = (self._answer(rows, unit) for rows in (compared.sample, compared.nan_sample))
        report = self._report(sample.X, sample.expected[OUTPUT], unit)
        return dataclasses.replace(compared, sample=sample, nan_sample=nan_sample), report

    @property
    def _rows(self) -> int:
        """The number of rows whose exact contributions are computed: fewer if each takes many evaluations."""
        return min(max(MOST_EVALUATIONS // max(evaluations(self.derived), 1), FEWEST_ROWS), EXPLAINED_ROWS)

    def _answer(self, sample: Sample, unit: np.ndarray) -> Sample:
        """Return rows with their exact contributions, whose errors are measured as those of their sum are.

        A column that adds nothing has contributions of rounding errors alone, whose spread is no unit.
        """
        X, outputs = sample.X[: self._rows], self.derived.outputs
        scales = {**sample.scales, **dict.fromkeys(outputs, np.repeat(unit, self.columns + 1))}
        found = dict(zip(outputs, _values(self.derived, tuple(outputs.values()), X), strict=True))
        return dataclasses.replace(
            sample, expected={**sample.expected, **found}, rounded={**sample.rounded, **found}, scales=scales
        )

    def _margin(self, X: np.ndarray) -> np.ndarray:
        """Return the margin of rows, float64 `[rows, targets]`."""
        (found,) = _values(self.game.margin, (self.game.margin.outputs[MARGIN],), X, served=True)
        return found

    def _report(self, X: np.ndarray, found: np.ndarray, unit: np.ndarray) -> ContributionsReport:
        """Compare exact contributions of the first rows with the margin, and some with the definition."""
        rows, columns, background, targets = len(found), self.columns, self.background, self.game.targets
        exact, own = found.reshape(rows, targets, columns + 1), self._margin(X[:rows])
        allowed = ADDITIVITY * unit + _rounding(self.game.margin) * np.abs(own).max() + self.game.rounding(X[:rows])

        def error(missed: np.ndarray, what: str) -> float:
            largest = float((missed / unit).max())
            if not (missed <= allowed).all():
                raise ExportError(f"Contributions miss {what} by {largest:.1e} standard deviations.")
            return largest

        additivity, definition = error(np.abs(exact.sum(axis=2) - own), "the answers"), None
        count = 0 if background is None else len(background)
        few = 0 if background is None else MOST_EVALUATIONS // (2 ** min(columns, 64) * count)
        few = min(few, DEFINED_ROWS, rows)
        if background is not None and few and not self.game.permutations:
            defined = shapley_values(self._margin, X[:few], background, self.players, columns)
            missed = np.abs(exact[:few] - defined.reshape(few, targets, -1))
            definition = error(missed.max(axis=2), "Shapley's definition")
        name = PATH if background is None else BACKGROUND
        cost = self.game.players, self.game.permutations, evaluations(self.derived)
        return ContributionsReport(name, count, self.game.links, rows, additivity, definition, *cost)


def find_contributions(question: Question, plan: Plan, lowered: Lowered, asked: Asked) -> Contributions:
    """Return the contributions to a model's answers.

    Args:
        question: the game and its background.
        plan: the plan as lowered, for the dtype of its input.
        lowered: the model, which knows the training covers of its trees.
        asked: the estimator, which reads tables, and the entry's inputs.

    Raises:
        ExportError: the background does not fit the model, or a part of the model has no exact contributions.
    """
    oracle, inputs, background = asked.oracle, asked.choice.inputs, None
    if question.background is not None:
        table = oracle.table(question.background, THE_BACKGROUND)
        background = inputs.rounded(oracle.matrix(table, lowered.inputs.numeric, THE_BACKGROUND)).astype(plan.dtype)
        if not len(background):
            raise ExportError(f"{THE_BACKGROUND} has no rows.")
        _check_answered(oracle, table)
    players, columns = players_of_inputs(inputs), inputs.n_given
    game = Game(plan, players, columns, background, lambda step: covers_of(step, lowered), question.permutations)
    try:
        derived = game.contributions()
    except ExportError as error:
        name = type(oracle.estimator).__name__
        raise ExportError(f"Cannot export {name} with contributions: {error}.") from error
    return Contributions(game, fuse(derived), derived, background, players, columns)


def _check_answered(oracle: Oracle, table: Any) -> None:
    """Raise `ExportError` if the estimator does not answer the rows of the background, as where it takes no NaN."""
    try:
        answers, why = oracle.of_table(table), "it predicts no finite number for a row of the background"
    except Exception as error:  # an estimator refuses rows in many ways
        answers, why = {}, f"it refuses the background ({str(error).splitlines()[0].rstrip('.')})"
    if not answers or not all(np.isfinite(values).all() for values in answers.values()):
        raise ExportError(f"Cannot export {type(oracle.estimator).__name__} with contributions: {why}.")


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


def _values(plan: Plan, names: Sequence[str], X: np.ndarray, *, served: bool = False) -> list[np.ndarray]:
    """Return values of a plan for rows, float64, some rows at a time."""
    parts = []
    for first in range(0, max(len(X), 1), ROWS_AT_ONCE):
        values = Values(plan.steps, X[first : first + ROWS_AT_ONCE].astype(plan.dtype), served=served)
        parts.append([values[name] for name in names])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]
