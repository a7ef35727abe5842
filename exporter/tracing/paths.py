"""Paths: the decisions by the values of cells that code takes on one way through its branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from triton_regressors.exporter.tracing.expressions import Expression
from triton_regressors.exporter.tracing.refusal import Untraceable


class Decision(Untraceable):
    """A decision by the value of a cell, outside a function of single rows."""

    def __init__(
        self,
        reason: str = "it decides by the value of a cell (if, and, or, not, min, max …)",
        instead: str = "Use numpy.where, numpy.select or masks in place of the branch",
    ) -> None:
        super().__init__(reason, instead)


class Path:
    """One way through a function: the decisions that it takes, of which the first are given.

    `rows` are the rows that asked for each decision; `of_table` says that the function is one of a whole table.
    """

    def __init__(self, given: Sequence[bool], of_table: bool) -> None:
        self.given, self.of_table = tuple(given), of_table
        self.taken: list[tuple[Expression, bool]] = []
        self.rows: dict[Expression, set[int]] = {}

    def decide(self, condition: Expression, row: int) -> bool:
        """Return whether a condition of a row holds on this way."""
        if condition.constant:
            return bool(condition.arguments[0])
        self.rows.setdefault(condition, set()).add(row)
        known = next((answer for asked, answer in self.taken if asked is condition), None)
        if known is not None:
            return known
        place = len(self.taken)
        answer = self.given[place] if place < len(self.given) else True
        self.taken.append((condition, answer))
        return answer


class Mixed(Path):
    """A way for each row, whose decisions are known."""

    def __init__(self, answers: Sequence[Mapping[Expression, bool]]) -> None:
        super().__init__((), of_table=True)
        self._answers = answers

    def decide(self, condition: Expression, row: int) -> bool:
        """Return whether a condition of a row holds on its way."""
        if condition.constant:
            return bool(condition.arguments[0])
        if row < 0 or condition not in self._answers[row]:
            raise Decision
        return self._answers[row][condition]


current: ContextVar[Path | None] = ContextVar("path", default=None)
"""The path that code is on; None where it is on none, and must not decide."""
