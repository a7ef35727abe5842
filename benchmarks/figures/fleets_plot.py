"""Draws fleets on a Triton server against their number of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

CLIENTS = 64
FLEET, JOINED, ONE, LOOP, ENTRIES = "fleet", "fleet_joined", "one_model", "loop", "entries"  # as in served/fleets.py
GIB = 2**30
LINES = {
    JOINED: ("a fleet, as Client asks it", "#0072b2", "^-"),
    FLEET: ("a fleet, ids in a second tensor", "#009e73", "o-"),
    LOOP: ("a loop over scikit-learn models", "#d55e00", "s-"),
    ONE: ("an entry of one model", "#999999", "--"),
}


def sizes(document: Mapping[str, Any]) -> list[int]:
    """Return the numbers of Ridge models that were measured; one alone is not drawn."""
    return [found["members"] for found in document["fleets"] if found["fleet"] == "ridge"]


def draw_fleets(document: Mapping[str, Any], path: Path, metadata: Mapping[str, Any]) -> None:
    """Draw models per GiB, requests per second and p99 for each number of Ridge models."""
    fleets = [found for found in document["fleets"] if found["fleet"] == "ridge"]
    figure, (memory, throughput, latency) = plt.subplots(1, 3, figsize=(12, 3.8))
    members = sizes(document)
    kind = "gpu_bytes" if fleets[0]["memory"][ONE]["gpu_bytes"] else "rss_bytes"
    for name, (label, colour, style) in LINES.items():
        there = [found for found in fleets if name in found["points"][0]]
        if not there:
            continue  # an empty line would stand in the legend
        counts = [found["members"] for found in there]
        points = [next(point for point in found["points"] if point["clients"] == CLIENTS) for found in there]
        if name == ONE:
            each = [found["memory"][ONE][kind] for found in there]
            memory.plot(counts, [GIB / used for used in each], style, color=colour, label="an entry for each model")
        elif name == FLEET or (name == LOOP and kind == "rss_bytes"):
            used = [found["memory"][name][kind] for found in there]
            memory.plot(
                counts, [size * GIB / each for size, each in zip(counts, used, strict=True)], style, color=colour
            )
        throughput.plot(counts, [point[name]["requests_per_s"] for point in points], style, color=colour, label=label)
        latency.plot(counts, [point[name]["p99_us"] / 1e3 for point in points], style, color=colour, label=label)
    for found in [each for each in fleets if ENTRIES in each]:
        count, asked = found[ENTRIES]["count"], next(p[ENTRIES] for p in found["points"] if p["clients"] == CLIENTS)
        for axis, value in ((throughput, asked["requests_per_s"]), (latency, asked["p99_us"] / 1e3)):
            axis.plot([count], [value], "D", color="#cc79a7", label="an entry for each model")
    where = "GPU memory" if kind == "gpu_bytes" else "memory"
    _finish(memory, members, f"models per GiB of {where}", "log")
    _finish(throughput, members, f"requests/s, {CLIENTS} clients", "linear")
    _finish(latency, members, f"p99 in ms, {CLIENTS} clients", "linear")
    handles, labels = throughput.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(handles), frameon=False)
    figure.suptitle(f"Scaler and Ridge on 32 columns, one row a request, {document['environment']['device']}")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=110, metadata=metadata)
    plt.close(figure)


def _finish(axis: Any, members: Sequence[int], title: str, scale: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale(scale)
    if scale == "linear":
        axis.set_ylim(0, 1.08 * axis.dataLim.ymax)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_xticks(members)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.tick_params(labelsize=7)
    axis.set_xlabel("models")
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.3)
