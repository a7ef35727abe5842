"""The contributions to one target, as text and charts show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.contribution_game import called

CELL = 20
"""The number of characters of a cell that are shown."""
_WHOLE = 999.5, 1e9
"""The sizes from which and below which numbers are whole: digits after the point add nothing, an exponent hides all."""


@dataclass(frozen=True, eq=False)
class Target:
    """The contributions to one target.

    name: "y", or "y_0" of several. columns: their names. values: `[rows, columns]`. base, predictions: `[rows]`. cells:
    `[rows, columns]`. rows: the place of each row in the user's table. links: see `Game`. errors: the standard errors
    of the values, None if they are exact.
    """

    name: str
    columns: tuple[str, ...]
    values: np.ndarray
    base: np.ndarray
    predictions: np.ndarray
    cells: np.ndarray
    rows: np.ndarray
    links: tuple[str, ...]
    errors: np.ndarray | None = None

    @property
    def explained(self) -> str:
        """What the contributions add up to: "y", or "y before exp"."""
        return f"{self.name} before {self.links[0]}" if self.links else self.name

    def parts(self, row: int, most: int) -> Iterator[tuple[str, str, float, str]]:
        """Yield name, cell, contribution and its error in words of a row's columns, by size.

        Those beyond `most` lines are one sum, without an error. The error of an exact value is "".
        """
        order = np.argsort(-np.abs(self.values[row]), kind="stable")
        shown = order if len(order) <= most else order[: most - 1]
        for column in shown:
            error = "" if self.errors is None else f"±{self.errors[row, column]:.2g}"
            yield self.columns[column], shown_cell(self.cells[row, column]), float(self.values[row, column]), error
        if len(shown) < len(order):
            rest = order[len(shown) :]
            yield f"{len(rest):,} other columns", "", float(self.values[row, rest].sum(dtype=np.float64)), ""

    def means(self, most: int) -> Iterator[tuple[str, float, bool]]:
        """Yield each column's name and the mean size of its contributions, by size, and whether it is one column's.

        The means of the columns beyond `most` lines are one sum, which must not be compared with those of one column.
        """
        means = np.abs(self.values).mean(axis=0, dtype=np.float64)
        order = np.argsort(-means, kind="stable")
        shown = order if len(order) <= most else order[: most - 1]
        for column in shown:
            yield self.columns[column], float(means[column]), True
        if len(shown) < len(order):
            yield f"sum of {len(order) - len(shown):,} others", float(means[order[len(shown) :]].sum()), False

    def total(self, row: int) -> float:
        """Return a row's base and contributions added up in float64."""
        return float(self.base[row] + self.values[row].sum(dtype=np.float64))

    def answer(self, row: int) -> str:
        """Return a row's answer in words: "y = 12.3", or "y = exp(2.51) = 12.3"."""
        of_sum = f" = {called(shown_number(self.total(row)), self.links)}" if self.links else ""
        return f"{self.name}{of_sum} = {shown_number(float(self.predictions[row]))}"


def shown_number(value: float) -> str:
    """Return a number in few digits, with a minus sign that is as wide as a plus."""
    return (f"{value:,.0f}" if _WHOLE[0] <= abs(value) < _WHOLE[1] else f"{value:.4g}").replace("-", "−")


def signed(value: float) -> str:
    """Return a number in three digits, or whole, and with its sign."""
    if not value:
        return "0"
    text = f"{value:+,.0f}" if _WHOLE[0] <= abs(value) < _WHOLE[1] else f"{value:+#.3g}".removesuffix(".")
    return text.replace("-", "−")


def plain(text: str) -> str:
    """Return a text in one line, without characters that a terminal or a page takes for something else."""
    return text if text.isprintable() else repr(text)[1:-1]


def cut(text: str, most: int) -> str:
    """Return a text of up to `most` characters: beginning and end of a longer one, as names differ in either."""
    end = (most - 1) // 3
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"


def shown_cell(cell: Any) -> str:
    """Return a cell in few characters, "" for one that the rows do not have.

    A large number is whole and has no commas, as it may be a year or an id.
    """
    if cell is None:
        return ""
    if missing(cell):
        return "missing"
    if isinstance(cell, (float, np.floating)):
        return (f"{cell:.0f}" if _WHOLE[0] <= abs(cell) < _WHOLE[1] else f"{cell:.4g}").replace("-", "−")
    return cut(plain(str(cell).removesuffix(" 00:00:00")), CELL)


def cell_numbers(cells: np.ndarray) -> np.ndarray:
    """Return numbers for cells `[rows, columns]`, float64: other values of a column are numbered in their order."""
    found = np.full(cells.shape, np.nan)
    for column in range(cells.shape[1]):
        try:
            found[:, column] = cells[:, column]  # None becomes NaN
        except (TypeError, ValueError):
            texts = ["" if missing(cell) else str(cell) for cell in cells[:, column]]
            number = {text: place for place, text in enumerate(sorted(set(texts) - {""}))}
            found[:, column] = [number.get(text, np.nan) for text in texts]
    return found


def missing(cell: Any) -> bool:
    """Return whether a cell is missing: None, an empty string, NaN, or another that is written so."""
    return cell is None or (isinstance(cell, str) and not cell) or str(cell) in ("nan", "NaT", "<NA>")
