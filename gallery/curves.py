"""What `bench` does: times exhibits over many sizes beside their peers, draws the curves and writes the figures."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
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
    """Time, draw and write, an exhibit after the other.

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
        found = {"exhibit": exhibit.name, "dtype": str(exhibit.dtypes[0]).removeprefix("torch.")}
        found["forward"] = curve(exhibit, pictures, quick=quick)
        if exhibit.backward_traffic or exhibit.backward_work:
            found["backward"] = curve(exhibit, pictures, quick=quick, backward=True)
        save_models(results, "gallery", {"quick": quick}, [found], PATH, among="exhibits", key="exhibit")


def curve(exhibit: Exhibit, pictures: Path, *, quick: bool, backward: bool = False) -> dict[str, Any]:
    """Draw an exhibit's rate over its sizes, and return the figures of every size."""
    from matplotlib import pyplot as plt
    from triton.testing import Benchmark, perf_report

    sizes = list(exhibit.curve)
    if quick:
        sizes = sorted({sizes[place] for place in (0, len(sizes) // 2, -1)}, key=sizes.index)
    points: dict[int, dict[str, Any]] = {}
    label, along = exhibit.axis
    lines = [*exhibit.ways, *exhibit.peers]
    title = f"{exhibit.name}_backward" if backward else exhibit.name
    unit, scale = UNITS["operations" if (exhibit.backward_work if backward else exhibit.work) else "bytes"]
    benchmark = Benchmark(
        x_names=[label, "place"],
        x_vals=[(along(size), place) for place, size in enumerate(sizes)],
        x_log=True,
        line_arg="provider",
        line_vals=[LIMIT, *lines],
        line_names=[LIMIT, *(f"ours, {name}" if name in exhibit.ways else name for name in lines)],
        styles=[LINE_OF_LIMIT, *((COLOURS[place % len(COLOURS)], "-") for place in range(len(lines)))],
        ylabel=unit,
        plot_name=title,
        args={},
    )

    def rate(place: int, provider: str, **_: Any) -> Any:
        """Return the rate of a line at a size: all lines of a size are timed in turns, when the first is asked for."""
        if place not in points:
            points[place] = point(exhibit, sizes[place], rounds=QUICK_ROUNDS if quick else ROUNDS, backward=backward)
        if provider == LIMIT:
            return points[place]["limit"]["rate"] / scale
        times = points[place]["times"][provider]
        return tuple(points[place]["amount"] / times[name] * 1e6 / scale for name in ("median_us", "p90_us", "p10_us"))

    with tempfile.TemporaryDirectory() as directory:  # where nobody looks at the plot before it is finished
        perf_report(benchmark)(rate).run(print_data=True, save_path=directory)
    axis = plt.gca()
    axis.set_ylim(bottom=0)
    axis.set_title(f"{exhibit.name}{', gradients' if backward else ''}: {device_name()}")
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig(pictures / f"{title}.png", dpi=110, metadata={"Software": None})
    plt.close("all")
    return {"axis": label, "unit": unit, "ours": list(exhibit.ways), "points": list(points.values())}


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
    """Return a time and what share of the limit it is."""
    return {**timing.to_json(), "share": float(f"{bound.share_of(timing.median_us):.4g}")}
