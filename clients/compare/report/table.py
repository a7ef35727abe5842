"""The table of a comparison for people: its columns, its legend, and its form for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import METRICS, Point, number, share

TABLE_WIDTH = 120
LABEL_WIDTH = 25
MARKS = "* recommended, ~ not stable, ! errors."


@dataclass(frozen=True)
class Column:
    """A column: its heading, a cell per point, what the legend says about it, and whether it is text or numbers."""

    heading: str
    cells: Sequence[str]
    meaning: str = ""
    text: bool = False


def columns(points: Sequence[Point], best: Point | None) -> list[Column]:
    """Return the columns of these points. The first one marks a point: * for the best one, and `marks`.

    Columns with the same value for all points (protocol, one row a request) are left out.
    """
    several_rows = any(point.load.rows != 1 for point in points)
    found = [
        Column("", [("*" if point is best else "") + marks(point) for point in points], text=True),
        Column("configuration", [point.configuration.label for point in points], text=True),
    ]
    if len({point.load.protocol for point in points}) > 1:
        found.append(Column("via", [point.load.protocol for point in points], text=True))
    if any(point.load.rate is not None for point in points):
        found.append(Column("rate/s", [number(point.load.rate or 0) for point in points]))
    else:
        found.append(Column("clients", [str(point.load.concurrency) for point in points]))
    if several_rows:
        found.append(Column("rows", [str(point.load.rows) for point in points]))
    for metric in METRICS:
        if metric.heading and (several_rows or metric.name != "rows_per_s"):
            cells = [metric.text(metric.value(point.model)) for point in points]
            found.append(Column(metric.heading, cells, metric.meaning))
    if any(point.floor for point in points):
        cells = [share(point.throughput_of_floor) for point in points]
        found.append(Column("of floor", cells, "share of the do-nothing model's requests/s"))
    return found


def legend(table: Sequence[Column]) -> str:
    """Return the meaning of the marks and of the columns whose headings do not say it."""
    return " ".join([MARKS, *(f"{column.heading}: {column.meaning}." for column in table if column.meaning)])


def marks(point: Point) -> str:
    """Return ~ for not stable and ! for errors, of the model or of the do-nothing model."""
    both = [figures for figures in (point.model, point.floor) if figures]
    return ("" if all(figures.stable for figures in both) else "~") + ("!" if any(f.failed for f in both) else "")


def best_or_none(comparison: Comparison) -> Point | None:
    """Return the recommended point, if one qualifies."""
    try:
        return comparison.best()
    except ComparisonError:
        return None


def rich_table(comparison: Comparison) -> Table:
    """Return all points, at most 120 columns wide; the recommended one is starred, configurations are set apart."""
    best = best_or_none(comparison)
    points = comparison.points
    found = columns(points, best)
    table = Table(
        title=Text(f"Dynamic batching configurations of {comparison.model}"),
        caption=Text(legend(found)),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for column in found:
        if column.heading == "configuration":
            table.add_column(column.heading, max_width=LABEL_WIDTH, overflow="fold", vertical="bottom")
        else:  # headings of two words stand over one another
            heading = column.heading.replace(" ", "\n").replace("requests/s", "requests\n/s")
            table.add_column(heading, justify="left" if column.text else "right", no_wrap=True, vertical="bottom")
    for index, point in enumerate(points):
        again = index > 0 and points[index - 1].configuration == point.configuration
        last = index + 1 == len(points) or points[index + 1].configuration != point.configuration
        cells = ["" if again and column.heading == "configuration" else column.cells[index] for column in found]
        table.add_row(*map(Text, cells), style="bold green" if point is best else None, end_section=last)
    return table
