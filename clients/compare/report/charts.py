"""The two plots of a comparison: latency against throughput, and executions per batch size.

People with any colour vision can tell the colours apart, and every configuration also has its own marker.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.load.generator import Load

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#9467BD")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, FAINT, GRID = "#2A2A2A", "#6B6B6B", "#D9D9D9"
"""Colours of text, of secondary text and of grid lines; in the HTML report they become the page's own."""
FONTS = ("DejaVu Sans", "Helvetica", "Arial", "sans-serif")
WIDE, NARROW = 10.0, 4.4
"""Widths of figures in inches; a narrow one can be read on a screen of 400 pixels."""
MAX_LOADS, MAX_LOADS_NARROW = 4, 2
MAX_BARS = 64
SHARE_TICKS = (1, 2, 5, 10, 20, 50, 100)
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": list(FONTS),
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def latency_throughput(points: Sequence[Point], p99_ms: float | None = None, narrow: bool = False) -> Figure:
    """Median and p99 latency in ms (logarithmic) against rows per second, one line per configuration over its loads.

    One row of panels for each protocol and number of rows per request; dashed lines are the do-nothing model. `narrow`
    puts the panels under one another, for a telephone.
    """
    facets = list(dict.fromkeys((point.load.protocol, point.load.rows) for point in points))
    labels = list(dict.fromkeys(point.configuration.label for point in points))
    with rc_context(STYLE):
        across, legend_columns = (1, 2) if narrow else (2, 4)
        legend_rows = -(-(len(labels) + 1) // legend_columns)
        height = (6.0 if narrow else 3.5) * len(facets) + 0.5 + 0.24 * legend_rows
        figure = Figure(figsize=(NARROW if narrow else WIDE, height), layout="constrained")
        panels = figure.subplots(
            len(facets) * 2 // across, across, squeeze=False, sharey="none" if narrow else "row"
        ).reshape(-1, 2)
        for (protocol, rows), (left, right) in zip(facets, panels, strict=True):
            chosen = [point for point in points if (point.load.protocol, point.load.rows) == (protocol, rows)]
            for axes, name in ((left, "p50"), (right, "p99")):
                for index, label in enumerate(labels):
                    own = [point for point in chosen if point.configuration.label == label]
                    _curve(axes, [point.model for point in own], name, index, floor=False)
                    _curve(axes, [point.floor for point in own if point.floor], name, index, floor=True)
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_formatter(FuncFormatter(_minor_label))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
                axes.xaxis.set_major_locator(MaxNLocator(6))
                axes.set_xlim(left=0)
                axes.grid(True, which="major")
                axes.grid(True, which="minor", axis="y", alpha=0.5)
                axes.tick_params(axis="y", which="both", labelleft=True)
                axes.set_xlabel("throughput, rows/s")
                axes.set_ylabel(f"latency {name}, ms")
                axes.set_title(
                    f"{'Median' if name == 'p50' else '99th percentile'} · {protocol}, {rows} row"
                    f"{'s' if rows != 1 else ''} a request",
                    loc="left",
                )
                if name == "p99" and p99_ms is not None:
                    axes.axhline(p99_ms, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
                    axes.annotate(
                        f"limit {p99_ms:g} ms",
                        (1, p99_ms),
                        xycoords=("axes fraction", "data"),
                        xytext=(0, 3),
                        textcoords="offset points",
                        ha="right",
                        fontsize=8,
                    )
            for shared in ((left,), (right,)) if narrow else ((left, right),):
                _label_both_ends(shared)
        handles = [_handle(index, label) for index, label in enumerate(labels)]
        if any(point.floor for point in points):
            handles.append(Line2D([], [], color=FAINT, linewidth=1, linestyle="--", label="dashed: do-nothing model"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(legend_columns, len(handles)))
    return figure


def batch_sizes(points: Sequence[Point], narrow: bool = False) -> Figure:
    """Share of executions per batch size in rows: a row of panels per configuration, a column per load.

    Each panel has its own vertical scale, so that a wide spread can be seen too. With more than four loads, or two in a
    `narrow` figure for a telephone, only the last ones are shown, which are the heaviest of the last kind.
    """
    every_load = list(dict.fromkeys(point.load for point in points))
    loads = every_load[-(MAX_LOADS_NARROW if narrow else MAX_LOADS) :]
    labels = list(dict.fromkeys(point.configuration.label for point in points))
    found = {(point.configuration.label, point.load): point.model.server for point in points}
    largest = max((size for server in found.values() for size in server.executions_per_batch_size), default=1)
    width = -(-largest // MAX_BARS)
    with rc_context(STYLE):
        figure = Figure(figsize=(NARROW if narrow else WIDE, 1.0 + 1.05 * len(labels)), layout="constrained")
        panels = figure.subplots(len(labels), len(loads), squeeze=False, sharex=True)
        for row, label in enumerate(labels):
            for column, load in enumerate(loads):
                axes = panels[row][column]
                server = found.get((label, load))
                if server is not None and server.executions_per_batch_size:
                    _bars(axes, server.executions_per_batch_size, width, COLOURS[row % len(COLOURS)])
                    axes.text(
                        0.98, 0.92, f"mean {server.mean_batch_size:.1f}", transform=axes.transAxes,
                        ha="right", va="top", fontsize=8, color=FAINT,
                    )  # fmt: skip
                highest = float(axes.dataLim.ymax) if axes.containers else 100.0
                axes.set_ylim(0, 1.25 * highest)
                axes.set_yticks([0, max((tick for tick in SHARE_TICKS if tick <= highest), default=SHARE_TICKS[0])])
                axes.tick_params(labelsize=8)
                axes.set_xlim(0.3, largest + 0.7)
                axes.set_xticks(_batch_ticks(largest))
                axes.grid(True, axis="y")
                if row == 0:
                    axes.set_title(_load_title(load, every_load), fontsize=9)
            panels[row][0].set_ylabel(_folded(label), rotation=0, ha="right", va="center", fontsize=8.5)
        figure.supxlabel("batch size, rows per execution", fontsize=9)
        left_out = f" (last {len(loads)} loads)" if len(loads) < len(every_load) else ""
        figure.suptitle(f"Share of executions per batch size, %{left_out}", x=0.01, ha="left", fontsize=10)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure as PNG on white, at 150 dots per inch."""
    with rc_context(STYLE):
        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=150, facecolor="white", metadata={"Software": ""})


def inline_svg(figure: Figure, title: str) -> str:
    """Return the figure as an `<svg>` element for an HTML page: no background, text and grid in the page's colours."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    for colour, variable in ((INK, "--ink"), (FAINT, "--faint"), (GRID, "--grid")):
        text = re.sub(colour, f"var({variable})", text, flags=re.IGNORECASE)
    return text


def _curve(axes: Axes, figures: Sequence[Figures], name: str, index: int, floor: bool) -> None:
    found = [one for one in figures if one.requests]
    if not found:
        return
    colour = COLOURS[index % len(COLOURS)]
    axes.plot(
        [one.rows_per_s for one in found],
        [one.latency.p50_ms if name == "p50" else one.latency.p99_ms for one in found],
        color=colour,
        marker="." if floor else MARKERS[index % len(MARKERS)],
        markersize=3 if floor else 6,
        linewidth=0.8 if floor else 1.8,
        linestyle="--" if floor else "-",
        alpha=0.55 if floor else 1.0,
        zorder=2 if floor else 3,
        clip_on=False,
    )


def _label_both_ends(shared: Sequence[Axes]) -> None:
    """Widen the common vertical axis to labels of `_minor_label`, so that a short range has labels."""
    low, high = min(axes.dataLim.y0 for axes in shared), max(axes.dataLim.y1 for axes in shared)
    if 0 < low <= high < math.inf:
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        labels = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
        shared[0].set_ylim(max(at for at in labels if at < low), min(at for at in labels if at > high))


def _handle(index: int, label: str) -> Line2D:
    return Line2D(
        [], [], color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)], linewidth=1.8, label=label
    )


def _minor_label(value: float, _: int | None) -> str:
    """Label 2 and 5 between the powers of ten, so that a range of less than a decade can be read."""
    mantissa = value / 10 ** np.floor(np.log10(value))
    return f"{value:g}" if min(abs(mantissa - 2), abs(mantissa - 5)) < 1e-6 else ""


def _bars(axes: Axes, executions: Mapping[int, int], width: int, colour: str) -> None:
    total = sum(executions.values())
    shares: dict[int, float] = {}
    for size, count in executions.items():
        first = (size - 1) // width * width + 1
        shares[first] = shares.get(first, 0.0) + 100 * count / total
    axes.bar([first + (width - 1) / 2 for first in shares], list(shares.values()), width=0.85 * width, color=colour)


def _batch_ticks(largest: int) -> list[int]:
    """Return 1 and at most 6 multiples of a power of two."""
    step = 1
    while largest / step > 6:
        step *= 2
    return sorted({1, *range(step, largest + 1, step)})


def _load_title(load: Load, loads: Sequence[Load]) -> str:
    parts = [str(load)]
    if len({each.protocol for each in loads}) > 1:
        parts.append(load.protocol)
    if len({each.rows for each in loads}) > 1:
        parts.append(f"{load.rows} row{'s' if load.rows != 1 else ''}")
    return ", ".join(parts)


def _folded(label: str, width: int = 16) -> str:
    """Return the label over several lines of about `width` characters."""
    lines = [""]
    for word in label.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
