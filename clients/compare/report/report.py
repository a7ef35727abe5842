"""The comparison as a terminal table and as files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Point
from triton_regressors.clients.compare.report.charts import batch_sizes, latency_throughput, save_png
from triton_regressors.clients.compare.report.html import html_report

TABLE_WIDTH = 120
LABEL_WIDTH = 25


def number(value: float, digits: int = 3) -> str:
    """Return a figure for people: thousands separated, `digits` significant digits below 1,000, – for no figure."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def share(value: float) -> str:
    """Return a share in whole percent."""
    return f"{value:.0%}" if math.isfinite(value) else "–"


def columns(points: Sequence[Point], best: Point | None) -> list[tuple[str, list[str]]]:
    """Return headings and cells for people. The first column marks a point: * for the best one, and `marks`.

    Columns with the same value for all points (protocol, one row a request) are left out.
    """
    several_protocols = len({point.load.protocol for point in points}) > 1
    several_rows = any(point.load.rows != 1 for point in points)
    open_loop = any(point.load.rate is not None for point in points)
    found: list[tuple[str, list[str]]] = [
        ("", [("*" if point is best else "") + marks(point) for point in points]),
        ("configuration", [point.configuration.label for point in points]),
    ]
    if several_protocols:
        found.append(("via", [point.load.protocol for point in points]))
    if open_loop:
        found.append(("rate/s", [number(point.load.rate or 0) for point in points]))
    else:
        found.append(("clients", [str(point.load.concurrency) for point in points]))
    if several_rows:
        found.append(("rows", [str(point.load.rows) for point in points]))
    found.append(("requests/s", [number(point.model.requests_per_s) for point in points]))
    if several_rows:
        found.append(("rows/s", [number(point.model.rows_per_s) for point in points]))
    found += [
        ("p50 ms", [number(point.model.latency.p50_ms) for point in points]),
        ("p99 ms", [number(point.model.latency.p99_ms) for point in points]),
        ("queue ms", [number(point.model.server.queue_ms, 2) for point in points]),
        ("compute ms", [number(point.model.server.compute_ms, 2) for point in points]),
        ("mean batch", [number(point.model.server.mean_batch_size) for point in points]),
    ]
    if any(point.floor for point in points):
        found.append(("of floor", [share(point.throughput_of_floor) for point in points]))
    return [*found, ("client CPU", [share(point.model.client_cpu_share) for point in points])]


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
    table = Table(
        title=Text(f"Dynamic batching configurations of {comparison.model}"),
        caption="* recommended   ~ not stable   ! errors   of floor: share of the do-nothing model's requests/s",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    found = columns(points, best)
    for heading, _ in found:
        if heading == "configuration":
            table.add_column(heading, max_width=LABEL_WIDTH, overflow="fold", vertical="bottom")
        else:  # headings of two words stand over one another
            text = heading.replace(" ", "\n").replace("requests/s", "requests\n/s")
            left = heading in ("via", "")
            table.add_column(text, justify="left" if left else "right", no_wrap=True, vertical="bottom")
    for index, point in enumerate(points):
        again = index > 0 and points[index - 1].configuration == point.configuration
        last = index + 1 == len(points) or points[index + 1].configuration != point.configuration
        cells = ["" if again and heading == "configuration" else column[index] for heading, column in found]
        table.add_row(*map(Text, cells), style="bold green" if point is best else None, end_section=last)
    return table


def as_csv(points: Sequence[Point]) -> str:
    """Return one line per point with all figures; an absent figure is empty."""
    rows = [point.flat() for point in points]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if _absent(value) else value for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def as_json(comparison: Comparison) -> str:
    """Return everything: settings, environment, and every point with its windows and executions per batch size."""
    best = best_or_none(comparison)
    document = {
        "model": comparison.model,
        "interrupted": comparison.interrupted,
        "planned": comparison.planned,
        "p99_limit_ms": comparison.p99_ms,
        "verdict": comparison.verdict(),
        "best": None if best is None else comparison.points.index(best),
        "warnings": comparison.warnings(),
        "environment": comparison.environment,
        "settings": comparison.settings,
        "points": [
            {
                **dataclasses.asdict(point),
                "throughput_of_floor": point.throughput_of_floor,
                "p50_over_floor_ms": point.p50_over_floor_ms,
            }
            for point in comparison.points
        ],
    }
    return json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(comparison: Comparison, directory: str | Path) -> tuple[Path, ...]:
    """Write the report into `directory`, which is made if needed; return the paths, first that of the page to open.

    They are report.html, points.csv, comparison.json, latency_throughput.png and batch_sizes.png. Without any point
    only comparison.json is written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        data = directory / "comparison.json"
        data.write_text(as_json(comparison), encoding="utf-8")
        if not comparison.points:
            return (data,)
        report, table = directory / "report.html", directory / "points.csv"
        curves, histogram = directory / "latency_throughput.png", directory / "batch_sizes.png"
        table.write_text(as_csv(comparison.points), encoding="utf-8")
        save_png(latency_throughput(comparison.points, comparison.p99_ms), curves)
        save_png(batch_sizes(comparison.points), histogram)
        best = best_or_none(comparison)
        found = columns(comparison.points, best)
        report.write_text(
            html_report(comparison, found, None if best is None else comparison.points.index(best)), encoding="utf-8"
        )
    except OSError as error:
        raise ComparisonError(f"Cannot write the report into {directory}: {error}.") from error
    return report, table, data, curves, histogram


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _plain(value: Any) -> Any:
    """Return the value with null for NaN and infinity, text keys and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if _absent(value) else value
