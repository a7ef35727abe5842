"""What an entry tells the Triton server's metrics, beside those that the server has itself.

Each metric has the labels `model` and `version`, `process`, and those that its description names. No two processes may
share a number: the server forgets one with the first of them that ends, and what the other adds to it then ends the
server (github.com/triton-inference-server/server/issues/8663). So a model's number is the sum over its processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .counting import REASONS, AnswerCounts, Counts

if TYPE_CHECKING:
    from ..format.inputs import Inputs
    from ..format.row_profile import RowProfile
    from .backend_types import Metric, MetricFamily, Utils

PREFIX = "triton_regressors_"
ROWS, REFUSED, SEEN, SQUARES, ANSWERS, ANSWER_SQUARES, EXPECTED, PROFILED, OUTSIDE = (
    "rows_total",
    "refused_rows_total",
    "seen_rows_total",
    "seen_squares_total",
    "answers_total",
    "answer_squares_total",
    "expected_share",
    "profile_answers",
    "expected_out_of_range_share",
)
FAMILIES = {
    ROWS: "Rows that were answered",
    REFUSED: "Rows of requests that were refused, by reason",
    SEEN: "Rows that the rows looked at stand for, on which the counts by column are",
    SQUARES: "Squares of how many rows each row looked at stands for",
    "nan_total": "NaN by column, in rows that the rows looked at stand for",
    "below_range_total": "Numbers below the profile's smallest by column, in rows that the rows looked at stand for",
    "above_range_total": "Numbers above the profile's largest by column, in rows that the rows looked at stand for",
    "unknown_category_total": "Unknown categories by column, in rows that the rows looked at stand for",
    ANSWERS: "Answers that those looked at stand for, by output and bin of the profile",
    ANSWER_SQUARES: "Squares of how many answers each answer looked at stands for, by output",
    EXPECTED: "Share of the profile's answers, by output and bin",
    PROFILED: "Answers that the profile was made of, by output",
    OUTSIDE: "Share of rows like the profile's that lie out of the range of a column, at most",
}

MOST_COLUMNS = 128
"""Of a model with so many columns each column's series begin with 0; of a wider one, with what is first counted."""

Labels = dict[str, str]


@dataclass(frozen=True)
class Subject:
    """The model that is observed: its name and version on the server, its columns, and its profile, if it has one.

    `outputs` are the widths of its outputs.
    """

    model: str
    version: str
    inputs: Inputs
    feature_names: tuple[str, ...]
    nan_columns: Sequence[int]
    outputs: Mapping[str, int]
    profile: RowProfile | None


class Metrics:
    """The metrics of one instance of a model. Each of the methods raises whatever the server says."""

    def __init__(self, subject: Subject, counts: Counts, utils: Utils) -> None:
        """Make the metrics, those of many columns aside, and tell the server which shares of answers are expected."""
        self._utils = utils
        self._families: dict[str, MetricFamily] = {}  # the server forgets the numbers of a family that is let go
        self._own = {"model": subject.model, "version": subject.version, "process": str(os.getpid())}
        names = subject.feature_names or tuple(map(str, range(subject.inputs.n_features)))
        columns = counts.columns
        self._series = [
            self._counters(ROWS, [{}], lambda: np.array([counts.rows])),
            self._counters(
                REFUSED, [{"reason": each} for each in REASONS], lambda: np.array([*counts.refused.values()])
            ),
            self._counters(SEEN, [{}], lambda: np.array([columns.rows])),
            self._counters(SQUARES, [{}], lambda: np.array([columns.squares])),
        ]
        self._told: list[Metric] = []  # gauges
        for name, totals, places in columns.by_name():
            if places:
                begun = places if len(names) <= MOST_COLUMNS else ()
                self._series.append(self._counters(name, [{"column": each} for each in names], totals.view, begun))
        if subject.profile is None:
            return
        if columns.ranged:
            self._tell(self._family(OUTSIDE, gauge=True), self._own, subject.profile.expected_outside)
        if counts.answers:
            self._tell_answers(counts.answers, subject.profile)

    def hand_over(self) -> None:
        """Tell the server what was counted since it was told last."""
        for series in self._series:
            series.hand_over()

    def _tell_answers(self, answers: Mapping[str, AnswerCounts], profile: RowProfile) -> None:
        counted, expected = self._family(ANSWERS), self._family(EXPECTED, gauge=True)
        profiled = self._family(PROFILED, gauge=True)
        outputs, counts = [{"output": output} for output in answers], [*answers.values()]
        squares = self._counters(ANSWER_SQUARES, outputs, lambda: np.array([each.squares for each in counts]))
        for output, found in answers.items():
            bins = [{**self._own, "output": output, "bin": str(number)} for number in range(len(found.bins))]
            self._series.append(_Series(counted, bins, found.bins.view, range(len(bins))))
            for labels, share in zip(bins, profile.answers[output].shares, strict=True):
                self._tell(expected, labels, float(share))
            self._tell(profiled, {**self._own, "output": output}, profile.answers[output].rows)
        self._series.append(squares)

    def _tell(self, family: MetricFamily, labels: Labels, number: float) -> None:
        """Tell the server a number that stays as it is."""
        self._told.append(family.Metric(labels=labels))
        self._told[-1].set(float(number))

    def _counters(
        self, name: str, labels: list[Labels], totals: Callable[[], np.ndarray], begun: Iterable[int] | None = None
    ) -> _Series:
        labels = [{**self._own, **each} for each in labels]
        return _Series(self._family(name), labels, totals, range(len(labels)) if begun is None else begun)

    def _family(self, name: str, *, gauge: bool = False) -> MetricFamily:
        kinds = self._utils.MetricFamily
        kind = kinds.GAUGE if gauge else kinds.COUNTER
        family = self._families[name] = kinds(name=PREFIX + name, description=FAMILIES[name], kind=kind)
        return family


class _Series:
    """Counters of one family, for each of `labels` one, that follow the numbers `totals` returns."""

    def __init__(
        self,
        family: MetricFamily,
        labels: Sequence[Labels],
        totals: Callable[[], np.ndarray],
        begun: Iterable[int],
    ) -> None:
        self._family, self._labels, self._totals = family, labels, totals
        self._told = np.zeros(len(labels), np.int64)
        self._metrics: dict[int, Metric] = {}
        for place in begun:
            self._metric(place)

    def hand_over(self) -> None:
        """Tell the server what was added to the numbers."""
        added = self._totals() - self._told
        for place in np.flatnonzero(added).tolist():
            self._metric(place).increment(float(added[place]))
            self._told[place] += added[place]

    def _metric(self, place: int) -> Metric:
        if place not in self._metrics:
            self._metrics[place] = self._family.Metric(labels=self._labels[place])
        return self._metrics[place]
