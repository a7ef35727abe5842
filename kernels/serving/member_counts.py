"""Counts the rows that each model of a fleet answers, and tells the server those of classes and of the busiest models.

A request's thread adds each row to the number of its model. The observer's thread hands over the numbers of at most
`SHOWN` models: memory and series do not grow with requests, and hardly with the models of a fleet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.id_columns import id_text

if TYPE_CHECKING:
    from .backend_types import Metric, MetricFamily

SHOWN = 100
"""The most classes, and the most models, that have series."""

AHEAD = 1.5
"""A model takes the place of one with a series once it has answered more than this many times its rows.

Models that are about as busy as each other would otherwise change places for ever, and each change is a new series.
"""

FEW = 8
"""Up to this many rows are counted one by one, which takes less time than one call of NumPy's."""

OF_CLASSES = "class_rows_total", "Rows that were answered, by the class of their models"
OF_IDS = "id_rows_total", "Rows that were answered, by the id of their model, for the busiest models"

NONE = np.empty(0, np.int64)

Labels = dict[str, str]


class MemberCounts:
    """The rows answered so far by each model of a fleet, `rows`, int64 `[models]`.

    A single thread calls `look` and `keep`.
    """

    def __init__(self, ids: Sequence[str | int | tuple[Any, ...]], classes: Sequence[tuple[str, int]]) -> None:
        """Begin to count for models with these ids, in classes of an estimator and a number of models each."""
        self.rows = np.zeros(len(ids), np.int64)
        self._ids, self._classes = ids, classes
        self._starts = np.cumsum([0, *(members for _, members in classes)])[:-1]
        self._cells = self.rows.data  # changes a number faster than the array does
        self._few: list[float] = []
        self._many = NONE

    def look(self, rows: np.ndarray) -> None:
        """Take the models' numbers, the last column of a batch's rows."""
        few = len(rows) <= FEW
        self._few = rows[:, -1].tolist() if few else []
        self._many = NONE if few else rows[:, -1].astype(np.int64)

    def keep(self) -> None:
        """Count the rows of the last batch given to `look`, which are all answered by now."""
        for number in self._few:
            self._cells[int(number)] += 1
        if len(self._many):
            np.add.at(self.rows, self._many, 1)

    def series(self, family: Callable[[str, str], MetricFamily], own: Labels) -> list[Busiest]:
        """Return the counters of classes and of models with the labels `own`.

        `family` makes a family of counters of a name and a description.
        """

        def of_class(place: int) -> Labels:
            return {**own, "class": str(place), "estimator": self._classes[place][0]}

        def of_id(place: int) -> Labels:
            return {**own, "id": id_text(self._ids[place]).replace("\0", "␀")}  # the server ends a label at a zero byte

        return [
            Busiest(functools.partial(family, *OF_CLASSES), of_class, lambda: np.add.reduceat(self.rows, self._starts)),
            Busiest(functools.partial(family, *OF_IDS), of_id, lambda: self.rows.copy()),
        ]


class Busiest:
    """Counters for the largest of the numbers that `totals` returns, at most `SHOWN`.

    Each has a family object of its own, and all of them are one family to the server, which ends a counter when its
    family object is released, and not before. Nothing here may refer back to what holds these objects: the server's
    process crashes if they are released only when Python ends.
    """

    def __init__(
        self, family: Callable[[], MetricFamily], labels: Callable[[int], Labels], totals: Callable[[], np.ndarray]
    ) -> None:
        self._family, self._labels, self._totals = family, labels, totals
        self._sum = 0
        self._told: dict[int, int] = {}
        self._shown: dict[int, Metric] = {}
        self._families: dict[int, MetricFamily] = {}
        count = len(totals())
        for place in range(count) if count <= SHOWN else ():
            self._show(place)

    def hand_over(self) -> None:
        """Choose the largest numbers, and tell the server by how much they grew."""
        totals = self._totals()
        everything = int(totals.sum())
        if everything == self._sum:
            return
        self._sum = everything
        if len(totals) > SHOWN:
            self._choose(totals)
        for place, metric in self._shown.items():
            added = int(totals[place]) - self._told[place]
            if added:
                metric.increment(float(added))
                self._told[place] += added

    def close(self) -> None:
        """Release the counters, and then their families."""
        self._shown.clear()
        self._families.clear()

    def _choose(self, totals: np.ndarray) -> None:
        """Give series to the largest numbers in place of those that are much smaller by now."""
        largest = np.argpartition(totals, -SHOWN)[-SHOWN:]
        for place in largest[np.argsort(-totals[largest], kind="stable")].tolist():
            if not totals[place]:
                return
            if place in self._shown:
                continue
            if len(self._shown) == SHOWN:
                least = min(self._shown, key=totals.__getitem__)
                if totals[place] <= AHEAD * totals[least]:
                    return
                del self._shown[least], self._families[least], self._told[least]  # a counter before its family
            self._show(place)

    def _show(self, place: int) -> None:
        self._families[place] = self._family()
        self._shown[place] = self._families[place].Metric(labels=self._labels(place))
        self._told[place] = 0
