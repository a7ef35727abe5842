"""The command `bench`: it times exhibits over many sizes beside their peers, draws curves and writes figures."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.timing import Timing
from gallery.catalogue import PATH, kernel_device
from gallery.errors import GalleryError
from gallery.exhibit import Exhibit, Size
from gallery.limits import LIMIT, Limit, time_beside_limit
from gallery.show import backward_calls, calls, draw
from gallery.timing import QUICK_ROUNDS, ROUNDS

PICTURES = Path(__file__).parents[1] / "docs/images/gallery"
COLOURS = ("#009e73", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINE_OF_LIMIT = ("#999999", "--")
UNITS = {"bytes": ("GB/s", 1e9), "operations": ("TFLOP/s", 1e12)}


def bench(exhibits: Sequence[Exhibit], output: Path | None, *, quick: bool) -> None:
    """Time, draw and write one exhibit after the other.

    Raises:
        GalleryError: There is no GPU.
    """
    if kernel_device().type != "cuda":
        raise GalleryError("bench needs a CUDA GPU, and torch finds none; `run` works without.")
    busy()
    results, pictures = output or default_directory(), output or PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for exhibit in exhibits:
        print(f"\n{exhibit.name}")
        found: dict[str, Any] = {"exhibit": exhibit.name, "dtype": str(exhibit.dtypes[0]).removeprefix("torch.")}
        for backward in (False, True) if exhibit.backward_traffic or exhibit.backward_work else (False,):
            found["backward" if backward else "forward"] = curve(exhibit, quick=quick, backward=backward)
            draw_curve(found, device_name(), pictures, backward=backward)
        save_models(results, "gallery", {"quick": quick}, [found], PATH, among="exhibits", key="exhibit")


def curve(exhibit: Exhibit, *, quick: bool, backward: bool = False) -> dict[str, Any]:
    """Return the figures of every size of an exhibit."""
    sizes = list(exhibit.curve)
    if quick:
        sizes = sorted({sizes[place] for place in (0, len(sizes) // 2, -1)}, key=sizes.index)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    unit, _ = UNITS["operations" if (exhibit.backward_work if backward else exhibit.work) else "bytes"]
    points = [point(exhibit, size, rounds=rounds, backward=backward) for size in sizes]
    return {"axis": exhibit.axis[0], "unit": unit, "ours": list(exhibit.ways), "points": points}


def draw_curve(found: Mapping[str, Any], device: str, pictures: Path, *, backward: bool = False) -> None:
    """Print and draw an exhibit's rates over its sizes, from its figures."""
    from matplotlib import pyplot as plt
    from triton.testing import Benchmark, perf_report

    figures = found["backward" if backward else "forward"]
    points, label, unit = figures["points"], figures["axis"], figures["unit"]
    scale = dict(UNITS.values())[unit]
    lines = list(points[0]["times"])
    title = f"{found['exhibit']}_backward" if backward else found["exhibit"]
    benchmark = Benchmark(
        x_names=[label, "place"],
        x_vals=[(point["along"], place) for place, point in enumerate(points)],
        x_log=True,
        line_arg="provider",
        line_vals=[LIMIT, *lines],
        line_names=[LIMIT, *(f"ours, {name}" if name in figures["ours"] else name for name in lines)],
        styles=[LINE_OF_LIMIT, *((COLOURS[place % len(COLOURS)], "-") for place in range(len(lines)))],
        ylabel=unit,
        plot_name=title,
        args={},
    )

    def rate(place: int, provider: str, **_: Any) -> Any:
        """Return the median rate of a line at a size, and the rates that 90 % and 10 % of its calls reach."""
        point = points[place]
        if provider == LIMIT:
            return point["limit"]["rate"] / scale
        times = point["times"][provider]
        return tuple(point["amount"] / times[name] * 1e6 / scale for name in ("median_us", "p90_us", "p10_us"))

    with tempfile.TemporaryDirectory() as directory:  # so that no reader sees an unfinished plot
        perf_report(benchmark)(rate).run(print_data=True, save_path=directory)
    axis = plt.gca()
    axis.set_ylim(bottom=0)
    axis.set_title(f"{found['exhibit']}{', gradients' if backward else ''}: {device}")
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig(pictures / f"{title}.png", dpi=110, metadata={"Software": None})
    plt.close("all")


def point(exhibit: Exhibit, size: Size, *, rounds: int, backward: bool) -> dict[str, Any]:
    """Return the figures of one size: the limit, and the time and share of each way and peer."""
    arguments = draw(exhibit, size, exhibit.dtypes[0], torch.device("cuda"))
    timed = (backward_calls if backward else calls)(exhibit, arguments)
    bound, times = time_beside_limit(exhibit, arguments, timed, rounds, backward=backward)
    return {
        "size": list(size),
        "along": exhibit.axis[1](size),
        "amount": bound.amount,
        "limit": {"name": bound.name, "rate": float(f"{bound.rate:.4g}")},
        "times": {name: figures(timing, bound) for name, timing in times.items()},
        "chosen": dict(exhibit.chosen()) if exhibit.chosen else {},
    }


def figures(timing: Timing, bound: Limit) -> dict[str, Any]:
    """Return a time with its share of the limit."""
    return {**timing.to_json(), "share": float(f"{bound.share_of(timing.median_us):.4g}")}
