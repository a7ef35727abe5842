"""Draws the levels' results: their times beside each other, and their distance from the roofs of the GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from gallery.levels.parts import LEVELS

COLOURS = dict(zip(LEVELS, ("#999999", "#e69f00", "#0072b2", "#009e73", "#d55e00"), strict=True))
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Neither a version nor a date in the file, so that the same figures give the same bytes.
METADATA = {"Software": None}


def draw(results: Path, pictures: Path) -> None:
    """Draw both figures from a file of results."""
    document = json.loads(results.read_text(encoding="utf-8"))
    device = document["environment"]["device"]
    draw_times(document["subjects"], device, pictures / "levels.png")
    draw_roofline(document["subjects"], device, pictures / "levels_roofline.png")


def draw_times(subjects: list[dict[str, Any]], device: str, path: Path) -> None:
    """Draw each level's time as a share of torch eager's, on the GPU and as Python sees it."""
    figure, axes = plt.subplots(2, 1, figsize=(9.6, 6.4), sharex=True)
    for axis, key, title in zip(
        axes, ("median_us", "host_us"), ("time on the GPU", "time of calls from Python"), strict=True
    ):
        for place, level in enumerate(LEVELS):
            for number, subject in enumerate(subjects):
                if level in subject["levels"]:
                    eager = subject["levels"][LEVELS[0]][key]
                    share = subject["levels"][level][key] / eager
                    label = level if number == 0 else None
                    axis.bar(number + (place - 2) * 0.16, share, 0.15, color=COLOURS[level], label=label)
        axis.axhline(1, color="black", linewidth=0.6)
        axis.set_ylabel(f"{title},\ntorch eager is 1")
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_xticks(range(len(subjects)), [subject["subject"].replace("_", "\n") for subject in subjects])
    axes[0].legend(ncols=len(LEVELS), frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.suptitle(f"Five levels on {device}")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=METADATA)
    plt.close(figure)


def draw_roofline(subjects: list[dict[str, Any]], device: str, path: Path) -> None:
    """Draw operations a second over operations a byte, under the measured copy and matrix products."""
    figure, axis = plt.subplots(figsize=(9.6, 5.6))
    intensities = [subject["operations"] / subject["bytes"] for subject in subjects]
    reach = [min(intensities) / 2, max(intensities) * 2]
    for dtype in sorted({subject["dtype"] for subject in subjects}):
        rates = next(subject["rates"] for subject in subjects if subject["dtype"] == dtype)
        corner = rates["operations"] / rates["bytes"]
        xs = [reach[0], corner, reach[1]]
        axis.plot(xs, [min(x * rates["bytes"], rates["operations"]) / 1e12 for x in xs], color="black", linewidth=1)
        axis.annotate(f"torch's product, {dtype}", (reach[1], rates["operations"] / 1e12), ha="right", va="bottom")
    along = (6.0, 6.0 * rates["bytes"] / 1e12)
    axis.annotate("copy of memory", along, (-4, 4), textcoords="offset points", ha="right", va="bottom")
    for mark, subject, intensity in zip(MARKS, subjects, intensities, strict=False):
        for level, colour in COLOURS.items():
            if level in subject["levels"]:
                rate = subject["operations"] / subject["levels"][level]["median_us"] / 1e6
                axis.plot(intensity, rate, mark, color=colour, ms=7, alpha=0.85)
        axis.plot([], [], mark, color="black", label=subject["subject"].replace("_", " "))
    for level, colour in COLOURS.items():
        axis.plot([], [], "o", color=colour, label=level)
    axis.set(xscale="log", yscale="log", xlim=reach)
    axis.set_xlabel("operations for each byte that must be moved")
    axis.set_ylabel("TFLOP/s")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Roofline: what the levels reach on {device}")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=METADATA)
    plt.close(figure)
