"""The report as one HTML page: styles and plots inside, nothing fetched, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.report.charts import batch_sizes, inline_svg, latency_throughput

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --panel: #f5f6f8; --ink: #1d2129; --faint: #5d6573; --grid: #d8dce3;
  --good: #00664d; --good-panel: #e3f3ee; --warn: #8a4b00; --warn-panel: #fdf1e0; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --panel: #1d2128; --ink: #e7eaf0; --faint: #a2abba;
  --grid: #363c47; --good: #66d2b1; --good-panel: #13302a; --warn: #f2b661; --warn-panel: #33260f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  overflow-wrap: break-word;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p { margin: .4rem 0; max-width: 75ch; }
.faint, figcaption { color: var(--faint); }
.verdict, .warning { border-left: 4px solid; border-radius: 4px; padding: .7rem 1rem; margin: 1rem 0; max-width: none; }
.verdict { border-color: var(--good); background: var(--good-panel); font-size: 1.05rem; }
.warning { border-color: var(--warn); background: var(--warn-panel); margin: .5rem 0; }
figure { margin: .5rem 0 0; padding: 1rem; background: var(--panel); border-radius: 8px; }
figure svg { width: 100%; height: auto; }
figure .narrow { display: none; }
figcaption { font-size: .9rem; margin-top: .6rem; max-width: 90ch; }
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
  body { padding: 1.25rem .75rem 3rem; }
  figure { padding: .5rem; }
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
TEXT_COLUMNS = ("configuration", "via", "")


def html_report(comparison: Comparison, columns: Sequence[tuple[str, Sequence[str]]], best: int | None) -> str:
    """Return the whole page. `columns`: headings and cells of the table; `best`: the recommended point's number."""
    points = comparison.points
    loads = len({point.load for point in points})
    title = "Latency against throughput"
    sections = [
        f"<h1>Dynamic batching of {escape(comparison.model)}</h1>",
        f'<p class="faint">{counted(len(comparison.configurations), "configuration")} × {counted(loads, "load")}, '
        f"measured {escape(str(comparison.environment.get('measured_at', '')).replace('T', ' '))}, "
        f"server {escape(str(comparison.environment.get('server', '')))}</p>",
        f'<p class="faint">{escape(comparison.measured_on())}</p>',
        f'<p class="verdict">{escape(comparison.verdict())}</p>',
        *(f'<p class="warning">{escape(warning)}</p>' for warning in comparison.warnings()),
        f"<h2>{title}</h2>",
        _figure(
            [inline_svg(latency_throughput(points, comparison.p99_ms, narrow), title) for narrow in (False, True)],
            "Down and to the right is better. Each line joins one configuration's loads, from the lightest to the "
            "heaviest. The dashed line is the do-nothing model, which answers zeros without computing, in the same "
            "run under the same configuration. The latency below that line is the cost of the server and the "
            "network, not of the model.",
        ),
        "<h2>What the batches held</h2>",
        _figure(
            [inline_svg(batch_sizes(points, narrow), "Executions per batch size") for narrow in (False, True)],
            "The server's statistics count the rows of each execution. If every execution has the rows of one "
            "request, nothing was batched.",
        ),
        "<h2>All points</h2>",
        _points(columns, [point.configuration.label for point in points], best),
        '<p class="faint">queue and compute are the server\'s own means per request. of floor: share of the do-nothing '
        "model's requests per second. client CPU: of the busiest load process, 100 % being one core. "
        "* recommended, ~ not stable, ! errors.</p>",
        "<h2>Configurations</h2>",
        _facts({configuration.label: configuration.describe() for configuration in comparison.configurations}),
        "<h2>How it was measured</h2>",
        _facts(_method(comparison)),
        "<h2>What it ran on</h2>",
        _facts({ENVIRONMENT.get(name, name): value for name, value in comparison.environment.items()}),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Dynamic batching of {escape(comparison.model)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def counted(number: int, what: str) -> str:
    """Return a number with its noun: "1 load", "2 loads"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _figure(svgs: Sequence[str], caption: str) -> str:
    """Return a figure with a plot for wide screens and one for narrow screens; the page shows one of them."""
    wide, narrow = svgs
    return (
        f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _points(columns: Sequence[tuple[str, Sequence[str]]], labels: Sequence[str], best: int | None) -> str:
    kinds = [' class="text"' if heading in TEXT_COLUMNS else "" for heading, _ in columns]
    head = "".join(f"<th{kind}>{escape(heading)}</th>" for kind, (heading, _) in zip(kinds, columns, strict=True))
    body = []
    for index in range(len(labels)):
        names = ["first"] if index and labels[index - 1] != labels[index] else []
        names += ["best"] if index == best else []
        texts = [cells[index] for _, cells in columns]
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
