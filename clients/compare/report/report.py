"""The files of a report."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Point
from triton_regressors.clients.compare.report.charts import CHARTS
from triton_regressors.clients.compare.report.drawing import save_png
from triton_regressors.clients.compare.report.html import html_report
from triton_regressors.clients.compare.report.table import best_or_none


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

    They are report.html, points.csv, comparison.json and a PNG file for each of `CHARTS`. Without any point only
    comparison.json is written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        data = directory / "comparison.json"
        data.write_text(as_json(comparison), encoding="utf-8")
        if not comparison.points:
            return (data,)
        report, table = directory / "report.html", directory / "points.csv"
        table.write_text(as_csv(comparison.points), encoding="utf-8")
        drawings = []
        for chart in CHARTS:
            drawings.append(directory / f"{chart.name}.png")
            save_png(chart.draw(comparison, False), drawings[-1])
        report.write_text(html_report(comparison), encoding="utf-8")
    except OSError as error:
        raise ComparisonError(f"Cannot write the report into {directory}: {error}.") from error
    return report, table, data, *drawings


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _plain(value: Any) -> Any:
    """Return the value with null for NaN and infinity, text keys and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if _absent(value) else value
