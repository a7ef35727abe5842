"""The report as one HTML page: styles and charts inside, nothing fetched, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Point
from triton_regressors.clients.compare.report.charts import CHARTS, Chart
from triton_regressors.clients.compare.report.drawing import inline_svg
from triton_regressors.clients.compare.report.table import Column, best_or_none, columns, legend
from triton_regressors.clients.page import page

STYLE = """
.verdict, .warning { border-left: 4px solid; border-radius: 4px; padding: .7rem 1rem; margin: 1rem 0; max-width: none; }
.verdict { border-color: var(--good); background: var(--good-panel); font-size: 1.05rem; }
.warning { border-color: var(--warn); background: var(--warn-panel); margin: .5rem 0; }
figure .narrow { display: none; }
.scroll { overflow-x: auto; border: 1px solid var(--grid); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .38rem .65rem; text-align: right; white-space: nowrap; }
th { background: var(--panel); font-weight: 600; border-bottom: 1px solid var(--grid); }
th.text, td.text { text-align: left; }
tr.first td { border-top: 1px solid var(--grid); }
tr.best td { background: var(--good-panel); font-weight: 600; }
.facts th, .facts td { text-align: left; white-space: normal; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
.facts th { width: 16rem; font-weight: 500; }
.points :is(th, td):nth-child(2) { position: sticky; left: 0; background: var(--page); }
.points th:nth-child(2) { background: var(--panel); }
.points tr.best td:nth-child(2) { background: var(--good-panel); }
@media (max-width: 640px) {
  figure .wide { display: none; }
  figure .narrow { display: block; }
  .facts :is(th, td) { display: block; width: auto; }
  .facts th { border-bottom: 0; padding-bottom: 0; }
  .points :is(th, td) { padding: .38rem .4rem; }
  .points :is(th, td):nth-child(2) { white-space: normal; min-width: 6.5rem; }
}
"""
ENVIRONMENT = {
    "measured_at": "Measured at",
    "model": "Model",
    "model_version": "Its version",
    "engine": "Its engine",
    "runs_on": "Its instances run on",
    "processor": "Processor",
    "server": "Server",
    "triton_server": "Triton server",
    "torch": "torch on the server",
    "triton_language": "Triton language on the server",
    "client_cores": "Cores of the client's machine",
    "client_machine": "Client's machine",
    "python": "Client's Python",
    "triton_regressors": "Client's triton_regressors",
    "grpcio": "Client's grpcio",
    "tritonclient": "Client's tritonclient",
}
"""Headings of the environment's entries in the report."""
UNKNOWN = "unknown: the server does not report it"


def html_report(comparison: Comparison) -> str:
    """Return the whole page."""
    points, best = comparison.points, best_or_none(comparison)
    loads = len({point.load for point in points})
    table = columns(points, best)
    sections = [
        f"<h1>Dynamic batching of {escape(comparison.model)}</h1>",
        f'<p class="faint">{counted(len(comparison.configurations), "configuration")} × {counted(loads, "load")}, '
        f"measured {escape(str(comparison.environment.get('measured_at', '')).replace('T', ' '))}, "
        f"server {escape(str(comparison.environment.get('server', '')))}</p>",
        f'<p class="faint">{escape(comparison.measured_on())}</p>',
        f'<p class="verdict">{escape(comparison.verdict())}</p>',
        *(f'<p class="warning">{escape(warning)}</p>' for warning in comparison.warnings()),
        *(part for chart in CHARTS for part in (f"<h2>{escape(chart.title)}</h2>", _figure(chart, comparison))),
        "<h2>All points</h2>",
        _points(table, points, best),
        f'<p class="faint">{escape(legend(table))}</p>',
        "<h2>Configurations</h2>",
        _facts({configuration.label: configuration.describe() for configuration in comparison.configurations}),
        "<h2>How it was measured</h2>",
        _facts(_method(comparison)),
        "<h2>What it ran on</h2>",
        _facts({ENVIRONMENT.get(name, name): value for name, value in comparison.environment.items()}),
    ]
    return page(f"Dynamic batching of {comparison.model}", sections, STYLE)


def counted(number: int, what: str) -> str:
    """Return a number with its noun: "1 load", "2 loads"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _figure(chart: Chart, comparison: Comparison) -> str:
    """Return a chart twice, for wide and for narrow screens; the page shows one of them."""
    wide, narrow = (inline_svg(chart.draw(comparison, narrow), chart.title) for narrow in (False, True))
    return (
        f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _points(table: Sequence[Column], points: Sequence[Point], best: Point | None) -> str:
    kinds = [' class="text"' if column.text else "" for column in table]
    head = "".join(f"<th{kind}>{escape(column.heading)}</th>" for kind, column in zip(kinds, table, strict=True))
    body = []
    for index, point in enumerate(points):
        names = ["first"] if index and points[index - 1].configuration != point.configuration else []
        names += ["best"] if point is best else []
        texts = [column.cells[index] for column in table]
        row = "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds, texts, strict=True))
        body.append(f'<tr class="{" ".join(names)}">{row}</tr>' if names else f"<tr>{row}</tr>")
    rows = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll"><table class="points">{rows}</table></div>'


def _facts(facts: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(UNKNOWN if value is None else str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'


def _method(comparison: Comparison) -> dict[str, object]:
    settings: Mapping[str, Any] = comparison.settings
    measured = [figures for point in comparison.points for figures in (point.model, point.floor) if figures]
    shares = [figures.client_cpu_share for figures in measured if math.isfinite(figures.client_cpu_share)]
    open_loop = any(point.load.rate is not None for point in comparison.points)
    return {
        "Load": (
            "open loop: Poisson arrivals; latency counts from the intended send time, so that waiting to be sent is "
            "part of it"
            if open_loop
            else "closed loop: each client sends its next request when the last one is answered"
        ),
        "Generator": settings.get("generator", ""),
        "Windows": (
            f"{settings.get('warmup_s', 0):g} s warm-up, then windows of {settings.get('window_s', 0):g} s until the "
            f"last 3 lie within ±{settings.get('stability', 0):.0%} in throughput and p50 (p99: three times that), at "
            f"most {settings.get('max_windows', 0)}; percentiles are over all raw latencies of the last 3"
        ),
        "Requests measured": f"{sum(figures.requests for figures in measured):,}",
        "Answers compared with expected values": f"{sum(figures.answers_checked for figures in measured):,}",
        "Busiest load process": f"{max(shares, default=0):.0%} of one core",
        "Load processes": ", ".join(str(n) for n in sorted({figures.client_processes for figures in measured})),
    }
