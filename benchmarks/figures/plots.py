"""Draws the figures beside the JSON that they show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from benchmarks.cpu.libraries import ENGINES, ONNXRUNTIME, SCIKIT_LEARN
from benchmarks.cpu.predict import crossovers, fastest
from benchmarks.environment import RESULTS
from benchmarks.figures.fleets_plot import draw_fleets, sizes
from benchmarks.figures.gpu_or_cpu_page import documents
from benchmarks.figures.gpu_or_cpu_plots import draw_money, draw_ratios
from benchmarks.gpu.kernels import OURS, best

COLOURS = {"torch": "#0072b2", "triton": "#009e73", SCIKIT_LEARN: "#d55e00", ONNXRUNTIME: "#999999"}
# Neither a version nor a date in the file, so that the same figures give the same bytes.
METADATA = {"Software": None}


def draw(results: Mapping[str, Mapping[str, Any]], directory: Path = RESULTS) -> None:
    """Draw every device's figures."""
    for name, found in results.items():
        if "predict" in found:
            draw_predict(found["predict"], directory / name / "predict.png")
        if "kernels" in found:
            draw_kernels(found["kernels"], directory / name / "kernels.png")
        if "served_fleets" in found and len(sizes(found["served_fleets"])) > 1:
            draw_fleets(found["served_fleets"], directory / name / "fleets.png", METADATA)
    for name, document in documents(results):
        draw_ratios(document, directory / name / "worth.png")
        draw_money(document, directory / name / "money.png")


def draw_predict(document: Mapping[str, Any], path: Path) -> None:
    """Draw latency against batch size, a panel per model, with the crossovers marked."""
    models = document["models"]
    columns = min(len(models), 3)
    rows = -(-len(models) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.4 * rows), squeeze=False, sharex=True)
    for axis, model in zip(axes.flat, models, strict=False):
        draw_model(axis, model)
    for axis in axes.flat[len(models) :]:
        axis.set_visible(False)
    for column in range(columns):
        lowest = max(row for row in range(rows) if row * columns + column < len(models))
        axes[lowest][column].set_xlabel("rows in a call")
        axes[lowest][column].tick_params(labelbottom=True)
    for row in axes:
        row[0].set_ylabel("median latency, µs")
    handles: dict[str, Any] = {}
    for axis in axes.flat[: len(models)]:
        handles.update(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), frameon=False)
    figure.suptitle(f"In-process predict on {document['environment']['device']}")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110, metadata=METADATA)
    plt.close(figure)


def draw_model(axis: Any, model: Mapping[str, Any]) -> None:
    """Draw one model's lines, and a vertical line where an engine's crossover with scikit-learn lies."""
    points = model["points"]
    for name, colour in COLOURS.items():
        line = [(point["rows"], timing) for point in points if (timing := fastest(point, name))]
        if not line:
            continue
        sizes = [rows for rows, _ in line]
        label = f"engine {name}" if name in ENGINES else name
        axis.plot(sizes, [timing["median_us"] for _, timing in line], "o-", ms=3.5, color=colour, label=label)
        low, high = ([timing[key] for _, timing in line] for key in ("p10_us", "p90_us"))
        if name == SCIKIT_LEARN:
            checked = [timing["median_us"] for point in points if (timing := fastest(point, name, checked=True))]
            axis.plot(sizes[: len(checked)], checked, "--", color=colour, linewidth=1, label=f"{name}, with NaN search")
        axis.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    for engine, size in crossovers(points, SCIKIT_LEARN).items():
        if size is not None:
            axis.axvline(size, color=COLOURS[engine], linestyle=":", linewidth=1.2)
            word = "faster than scikit-learn at every size" if size == points[0]["rows"] else f"from {size:,} rows"
            at = 0.97 - 0.08 * ENGINES.index(engine)
            paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
            words = f"{engine}: {word}"
            axis.text(0.06, at, words, transform=axis.transAxes, va="top", fontsize=7, bbox=paper)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * 3)  # room for the words
    axis.set_xticks([point["rows"] for point in points][:: 2 if len(points) > 5 else 1])
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_title(model["title"], fontsize=8)
    axis.grid(alpha=0.3)


def draw_kernels(document: Mapping[str, Any], path: Path) -> None:
    """Draw the share of copy bandwidth that each case reached, ours and the fastest of torch."""
    cases = document["cases"]
    figure, axis = plt.subplots(figsize=(8, 0.5 * len(cases) + 1.4))
    axis.axvline(1, color="black", linewidth=0.8, zorder=0)
    largest, paper = 1.0, {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for offset, ours, colour, label in (
        (-0.2, True, COLOURS["triton"], OURS),
        (0.2, False, COLOURS[SCIKIT_LEARN], "fastest of torch"),
    ):
        shares = [best(case, ours=ours)[1]["share_of_copy"] for case in cases]
        places = [number + offset for number in range(len(cases))]
        axis.barh(places, shares, height=0.38, color=colour, label=label)
        for place, share in zip(places, shares, strict=True):
            axis.text(share + 0.008, place, f"{share:.0%}", va="center", fontsize=7, bbox=paper)
        largest = max(largest, *shares)
    axis.set_xlim(0, largest + 0.12)  # room for the words behind the longest bar
    axis.set_yticks(range(len(cases)), [case["title"] for case in cases], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("share of the bandwidth of a copy of memory in the same run")
    axis.set_title(f"Kernels alone on {document['environment']['device']}")
    figure.legend(loc="lower center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=110, metadata=METADATA)
    plt.close(figure)
