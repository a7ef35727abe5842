"""The metrics that an entry adds to the Triton server's own.

Each metric has the labels `model`, `version` and `process`, and those that its description names. No two processes may
share a number: the server deletes the number when the first process ends, and then crashes when the other process adds
to it (github.com/triton-inference-server/server/issues/8663). A model's number is therefore the sum over its processes.
"""

from __future__ import annotations

import functools
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
    from .member_counts import Busiest

PREFIX = "triton_regressors_"
ROWS, EXPLAINED, REFUSED, SEEN, SQUARES, ANSWERS, ANSWER_SQUARES, EXPECTED, PROFILED, OUTSIDE = (
    "rows_total",
    "explained_rows_total",
    "refused_rows_total",
    "seen_rows_total",
    "seen_squares_total",
    "answers_total",
    "answer_squares_total",
    "expected_share",
    "profile_answers",
    "expected_out_of_range_share",
)
OF_SEEN = ", in the rows that the sampled rows represent"
FAMILIES = {
    ROWS: "Rows that were answered",
    EXPLAINED: "Rows whose contributions were computed",
    REFUSED: "Rows of requests that were refused, by reason",
    SEEN: "Rows that the sampled rows represent; the counts by column are of these",
    SQUARES: "Sum of the squared number of rows that each sampled row represents",
    "nan_total": f"NaN by column{OF_SEEN}",
    "below_range_total": f"Numbers below the profile's smallest by column{OF_SEEN}",
    "above_range_total": f"Numbers above the profile's largest by column{OF_SEEN}",
    "unknown_category_total": f"Unknown categories by column{OF_SEEN}",
    ANSWERS: "Answers that the sampled answers represent, by output and bin of the profile",
    ANSWER_SQUARES: "Sum of the squared number of answers that each sampled answer represents, by output",
    EXPECTED: "Share of the profile's answers, by output and bin",
    PROFILED: "Answers that the profile was made of, by output",
    OUTSIDE: "Largest expected share of rows like the profile's that lie out of the range of a column",
}

MOST_COLUMNS = 128
"""Up to this many columns, each column's series begins with 0; in wider models it begins with the first count."""

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
    """The metrics of one instance of a model. Each method passes on the server's errors."""

    def __init__(self, subject: Subject, counts: Counts, utils: Utils) -> None:
        """Make the metrics, except those of many columns, and tell the server the expected shares of answers."""
        self._utils = utils
        self._families: dict[str, MetricFamily] = {}  # the server deletes the numbers of a family that is released
        self._own = {"model": subject.model, "version": subject.version, "process": str(os.getpid())}
        names = subject.feature_names or tuple(map(str, range(subject.inputs.n_given)))
        columns = counts.columns
        self._series: list[_Series | Busiest] = [
            self._counters(ROWS, [{}], lambda: np.array([counts.rows])),
            self._counters(
                REFUSED, [{"reason": each} for each in REASONS], lambda: np.array([*counts.refused.values()])
            ),
            self._counters(SEEN, [{}], lambda: np.array([columns.rows])),
            self._counters(SQUARES, [{}], lambda: np.array([columns.squares])),
        ]
        if "contributions" in subject.outputs:
            self._series += [self._counters(EXPLAINED, [{}], lambda: np.array([counts.explained]))]
        self._told: list[Metric] = []  # gauges
        for name, totals, places in columns.by_name():
            if places:
                begun = places if len(names) <= MOST_COLUMNS else ()
                self._series.append(self._counters(name, [{"column": each} for each in names], totals.view, begun))
        if counts.members is not None:
            self._series += counts.members.series(functools.partial(_new_family, self._utils), self._own)
        if subject.profile is None:
            return
        if columns.ranged:
            self._tell(self._family(OUTSIDE, gauge=True), self._own, subject.profile.expected_outside)
        if counts.answers:
            self._tell_answers(counts.answers, subject.profile)

    def hand_over(self) -> None:
        """Tell the server the counts since the last call."""
        for series in self._series:
            series.hand_over()

    def close(self) -> None:
        """Release all numbers, and then their families, as the server asks for."""
        self._told.clear()
        for series in self._series:
            series.close()
        self._series.clear()
        self._families.clear()

    def _tell_answers(self, answers: Mapping[str, AnswerCounts], profile: RowProfile) -> None:
        counted, expected = self._family(ANSWERS), self._family(EXPECTED, gauge=True)
        profiled = self._family(PROFILED, gauge=True)
        outputs, counts = [{"output": output} for output in answers], [*answers.values()]
        self._series += [self._counters(ANSWER_SQUARES, outputs, lambda: np.array([each.squares for each in counts]))]
        for output, found in answers.items():
            bins = [{**self._own, "output": output, "bin": str(number)} for number in range(len(found.bins))]
            self._series.append(_Series(counted, bins, found.bins.view, range(len(bins))))
            for labels, share in zip(bins, profile.answers[output].shares, strict=True):
                self._tell(expected, labels, float(share))
            self._tell(profiled, {**self._own, "output": output}, profile.answers[output].rows)

    def _tell(self, family: MetricFamily, labels: Labels, number: float) -> None:
        """Tell the server a number that never changes."""
        self._told.append(family.Metric(labels=labels))
        self._told[-1].set(float(number))

    def _counters(
        self, name: str, labels: list[Labels], totals: Callable[[], np.ndarray], begun: Iterable[int] | None = None
    ) -> _Series:
        labels = [{**self._own, **each} for each in labels]
        return _Series(self._family(name), labels, totals, range(len(labels)) if begun is None else begun)

    def _family(self, name: str, *, gauge: bool = False) -> MetricFamily:
        family = self._families[name] = _new_family(self._utils, name, FAMILIES[name], gauge=gauge)
        return family


def _new_family(utils: Utils, name: str, what: str, *, gauge: bool = False) -> MetricFamily:
    kinds = utils.MetricFamily
    return kinds(name=PREFIX + name, description=what, kind=kinds.GAUGE if gauge else kinds.COUNTER)


class _Series:
    """Counters of one family, one for each of `labels`, that follow the numbers that `totals` returns."""

    def __init__(
        self, family: MetricFamily, labels: Sequence[Labels], totals: Callable[[], np.ndarray], begun: Iterable[int]
    ) -> None:
        self._family, self._labels, self._totals = family, labels, totals
        self._told = np.zeros(len(labels), np.int64)
        self._metrics: dict[int, Metric] = {}
        for place in begun:
            self._metric(place)

    def hand_over(self) -> None:
        """Tell the server by how much the numbers grew."""
        added = self._totals() - self._told
        for place in np.flatnonzero(added).tolist():
            self._metric(place).increment(float(added[place]))
            self._told[place] += added[place]

    def close(self) -> None:
        """Release the counters, before their family."""
        self._metrics.clear()

    def _metric(self, place: int) -> Metric:
        if place not in self._metrics:
            self._metrics[place] = self._family.Metric(labels=self._labels[place])
        return self._metrics[place]
