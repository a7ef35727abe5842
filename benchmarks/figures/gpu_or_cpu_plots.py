"""Draws the figures of worth.json: where a GPU is faster, and where it is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, LogNorm

from benchmarks.figures.gpu_or_cpu_page import CHEAP, PEERS, TRITON, compared_with, cost, models, rate, ratio, why_not
from benchmarks.figures.markdown import Document
from triton_regressors.advise import prices

COLOURS = {"triton": "#009e73", "scikit-learn": "#d55e00", "onnxruntime": "#999999"}
SLOWER_FASTER = LinearSegmentedColormap.from_list("slower, faster", ["#d55e00", "#ffffff", "#009e73"]).with_extremes(
    bad="#eeeeee"
)
MOST = 100.0
METADATA = {"Software": None}  # neither a version nor a date: the same figures give the same bytes


def draw_ratios(document: Document, path: Path) -> None:
    """Draw how many times faster the GPU is by model and batch size, a panel for each peer."""
    rows = models(document)
    sizes = sorted({point["rows"] for model in rows for point in model["points"]})
    figure, axes = plt.subplots(
        1,
        len(PEERS),
        figsize=(max(4.6, 0.5 * len(sizes)) * len(PEERS) + 3, 0.3 * len(rows) + 1.6),
        sharey=True,
        layout="constrained",
    )
    for axis, peer in zip(axes, PEERS, strict=True):
        ratios = np.array([[ratio(model, size, peer)[0] for size in sizes] for model in rows])
        coloured = np.array(
            [[1.0 if level(model, size, peer) else ratio(model, size, peer)[0] for size in sizes] for model in rows]
        )
        shown = axis.imshow(
            np.clip(coloured, 1 / MOST, MOST), cmap=SLOWER_FASTER, norm=LogNorm(1 / MOST, MOST), aspect="auto"
        )
        for (line, column), value in np.ndenumerate(ratios):
            if np.isnan(value):
                continue
            about = (
                "≈" if level(rows[line], sizes[column], peer) else "~" * (not ratio(rows[line], sizes[column], peer)[1])
            )
            text = f"{about}{value:,.0f}" if value >= 9.95 else f"{about}{value:.1f}"
            axis.text(column, line, text, ha="center", va="center", fontsize=7.5)
        for line, model in enumerate(rows):
            reason = why_not(model, peer)
            if reason:
                axis.text((len(sizes) - 1) / 2, line, reason, ha="center", va="center", fontsize=7, style="italic")
        axis.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], fontsize=8, rotation=30, ha="right")
        axis.set_xlabel("rows in a call")
        axis.set_title(f"against {peer}", fontsize=10)
        _separate_families(axis, document)
    axes[0].set_yticks(range(len(rows)), [model["title"] for model in rows], fontsize=8)
    bar = figure.colorbar(shown, ax=axes, fraction=0.03, pad=0.015)
    bar.set_ticks([0.01, 0.1, 1, 10, 100], labels=["0.01", "0.1", "1", "10", "100"])
    bar.set_label("times faster on the GPU")
    environment = document["environment"]
    figure.suptitle(f"{environment['device']} against {environment['cores']} cores, host to host", fontsize=11)
    figure.savefig(path, dpi=110, metadata=METADATA)
    plt.close(figure)


def level(model: Document, rows: int, peer: str) -> bool:
    """Return whether the GPU's time and a peer's differ by less than their spread at one batch size."""
    return any(compared_with(point, peer) == 0 for point in model["points"] if point["rows"] == rows)


def draw_money(document: Document, path: Path) -> None:
    """Draw what a million rows cost by model, on the GPU's host and on one without a GPU."""
    rows, device = models(document), document["environment"]["device"]
    host = prices.price_of(device) or prices.GPUS[-1]
    figure, axis = plt.subplots(figsize=(9.5, 0.3 * len(rows) + 1.8))
    places = range(len(rows))
    hosts = {TRITON: (host.usd_per_hour, f"{device}, ${host.usd_per_hour:,.2f} an hour")}
    hosts |= {peer: (prices.CPU.usd_per_hour, f"{peer}, 16 vCPUs, ${prices.CPU.usd_per_hour:,.2f}") for peer in PEERS}
    every: dict[str, Sequence[float | None]] = {}
    for library, (usd, label) in hosts.items():
        every[library] = [cost(model, library, usd) for model in rows]
        drawn = [(place, value) for place, value in zip(places, every[library], strict=True) if value is not None]
        axis.plot([value for _, value in drawn], [place for place, _ in drawn], "o", ms=6, color=COLOURS[library],
                  label=label, zorder=3)  # fmt: skip
    for place, model in enumerate(rows):
        values = [found[place] for found in every.values()]
        known = [value for value in values if value is not None]
        axis.plot([min(known), max(known)], [place, place], color="black", alpha=0.15, linewidth=1, zorder=1)
        if rate(model, TRITON):
            axis.plot(
                [prices.usd_per_million(CHEAP.usd_per_hour, rate(model, TRITON) or 1.0)],
                [place],
                "|",
                ms=9,
                color=COLOURS[TRITON],
                label=f"a GPU as fast at an {CHEAP.what}'s ${CHEAP.usd_per_hour:,.2f}" if place == 0 else None,
                zorder=2,
            )
    axis.set_yticks(places, [model["title"] for model in rows], fontsize=8)
    axis.set_xscale("log")
    axis.set_xlabel("US dollars for a million rows, at the best rate of each")
    axis.grid(alpha=0.3)
    axis.invert_yaxis()
    _separate_families(axis, document)
    axis.legend(loc="upper center", bbox_to_anchor=(0.4, -0.09), ncols=2, frameon=False, fontsize=8)
    axis.set_title("A host that is never idle: the further left, the cheaper", fontsize=10)
    figure.savefig(path, dpi=110, metadata=METADATA, bbox_inches="tight")
    plt.close(figure)


def _separate_families(axis: Any, document: Document) -> None:
    place = -0.5
    for family in document["families"][:-1]:
        place += len(family["models"])
        axis.axhline(place, color="black", linewidth=0.6, alpha=0.4)
