"""The command `bench`: it times exhibits over many sizes beside their peers, draws curves and writes figures."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.timing import Timing
from gallery.catalogue import PATH, find, kernel_device
from gallery.check import error, gradient_error
from gallery.errors import GalleryError, made
from gallery.exhibit import Arguments, Exhibit, Size
from gallery.limits import LIMIT, Limit, time_beside_limit
from gallery.show import backward_calls, calls, draw
from gallery.sizes import written
from gallery.timing import QUICK_ROUNDS, ROUNDS

PICTURES = Path(__file__).parents[1] / "docs/images/gallery"
COLOURS = ("#009e73", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LINE_OF_LIMIT = ("#999999", "--")
PEERS_MAY = 8
"""A peer's error may be this many times ours, as it may round more often."""

UNITS = {"bytes": ("GB/s", 1e9), "operations": ("TFLOP/s", 1e12)}


def bench(exhibits: Sequence[Exhibit], output: Path | None, *, quick: bool) -> None:
    """Time, draw and write one exhibit after the other.

    An answer that is wrong is said, and its call is not timed at that size.

    Raises:
        GalleryError: There is no GPU, or answers were wrong; what was right is written before.
    """
    if kernel_device().type != "cuda":
        raise GalleryError("bench needs a CUDA GPU, and torch finds none; `run` works without.")
    busy()
    results, pictures = made(output or default_directory()), made(output or PICTURES)
    wrong: list[str] = []
    for exhibit in exhibits:
        print(f"\n{exhibit.name}")
        found: dict[str, Any] = {"exhibit": exhibit.name, "dtype": str(exhibit.dtypes[0]).removeprefix("torch.")}
        for backward in (False, True) if exhibit.backward_traffic or exhibit.backward_work else (False,):
            direction = "backward" if backward else "forward"
            found[direction] = curve(exhibit, quick=quick, backward=backward)
            wrong += [sentence for point in found[direction]["points"] for sentence in point["wrong"].values()]
            found[direction]["points"] = [point for point in found[direction]["points"] if point["times"]]
            draw_curve(found, device_name(), pictures, backward=backward)
        save_models(results, "gallery", {"quick": quick}, [found], PATH, among="exhibits", key="exhibit")
    if wrong:
        raise GalleryError(f"{len(wrong)} calls were not timed, because their answers are wrong: {'; '.join(wrong)}.")


def curve(exhibit: Exhibit, *, quick: bool, backward: bool = False) -> dict[str, Any]:
    """Return the figures of every size of an exhibit."""
    sizes = list(exhibit.curve)
    if quick:
        sizes = sorted({sizes[place] for place in (0, len(sizes) // 2, -1)}, key=sizes.index)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    unit, _ = UNITS["operations" if (exhibit.backward_work if backward else exhibit.work) else "bytes"]
    points = [point(exhibit, size, rounds=rounds, backward=backward) for size in sizes]
    return {"unit": unit, "ours": list(exhibit.ways), "points": points}


def redraw(results: Path, pictures: Path) -> None:
    """Draw all curves of a file of results."""
    document = json.loads(results.read_text(encoding="utf-8"))
    for found in document["exhibits"]:
        for direction in ("forward", "backward"):
            if direction in found:
                draw_curve(found, document["environment"]["device"], pictures, backward=direction == "backward")


def draw_curve(found: Mapping[str, Any], device: str, pictures: Path, *, backward: bool = False) -> None:
    """Print and draw an exhibit's rates over its sizes, from its figures."""
    from matplotlib import pyplot as plt
    from triton.testing import Benchmark, perf_report

    figures = found["backward" if backward else "forward"]
    points, unit = figures["points"], figures["unit"]
    label, along = find(found["exhibit"]).axis
    scale = dict(UNITS.values())[unit]
    lines = list(dict.fromkeys(name for point in points for name in point["times"]))
    title = f"{found['exhibit']}_backward" if backward else found["exhibit"]
    benchmark = Benchmark(
        x_names=[label, "place"],
        x_vals=[(along(tuple(point["size"])), place) for place, point in enumerate(points)],
        x_log=True,
        line_arg="provider",
        line_vals=[LIMIT, *lines],
        line_names=[
            points[0]["limit"]["name"],
            *(f"ours, {name}" if name in figures["ours"] else name for name in lines),
        ],
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
        if provider not in point["times"]:
            return math.nan, math.nan, math.nan
        times = point["times"][provider]
        return tuple(point["amount"] / times[name] * 1e6 / scale for name in ("median_us", "p90_us", "p10_us"))

    with tempfile.TemporaryDirectory() as directory:  # so that no reader sees an unfinished plot
        perf_report(benchmark)(rate).run(print_data=True, save_path=directory)
    axis = plt.gca()
    axis.set_ylim(bottom=0)
    places = [along(tuple(point["size"])) for point in points]
    axis.minorticks_off()
    axis.set_xticks(places, [f"{place:,}" for place in places], rotation=30, ha="right", fontsize=8)
    axis.set_title(f"{found['exhibit']}{', gradients' if backward else ''}: {device}")
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig(pictures / f"{title}.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close("all")


def point(exhibit: Exhibit, size: Size, *, rounds: int, backward: bool) -> dict[str, Any]:
    """Return the figures of one size: the copy's or product's, and the time and share of each way and peer."""
    arguments = draw(exhibit, size, exhibit.dtypes[0], torch.device("cuda"))
    errors, wrong = checked(exhibit, size, arguments, backward=backward)
    right = replace(
        exhibit,
        ways={name: call for name, call in exhibit.ways.items() if name in errors},
        peers={name: call for name, call in exhibit.peers.items() if name in errors},
    )
    if not right.ways:
        return {"size": list(size), "times": {}, "wrong": wrong}
    timed = (backward_calls if backward else calls)(right, arguments)
    bound, times = time_beside_limit(exhibit, arguments, timed, rounds, backward=backward)
    return {
        "size": list(size),
        "amount": bound.amount,
        "limit": {"name": bound.name, "rate": float(f"{bound.rate:.4g}"), "spread": float(f"{bound.spread:.2g}")},
        "times": {name: figures(timing, bound) | {"error": errors[name]} for name, timing in times.items()},
        "wrong": wrong,
        "chosen": dict(exhibit.chosen()) if exhibit.chosen else {},
    }


def checked(
    exhibit: Exhibit, size: Size, arguments: Arguments, *, backward: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the errors of the answers, or gradients, of ways and peers against float64, and a sentence on each wrong.

    A way is tuned by its first call, so the answer is that of the choice that is timed.
    """
    errors: dict[str, float] = {}
    wrong: dict[str, str] = {}
    calls, dtype = replace(exhibit, ways={**exhibit.ways, **exhibit.peers}), exhibit.dtypes[0]
    for name in calls.ways:
        tolerance = exhibit.tolerances[dtype] if backward else exhibit.allowed(name, size, dtype)
        allowed = tolerance * (PEERS_MAY if name in exhibit.peers else 1)
        what = f"{exhibit.name}, {name}, {written(size)}{', gradients' if backward else ''}"
        try:
            found = (gradient_error if backward else error)(calls, name, arguments)
        except AssertionError as reason:
            wrong[name] = f"{what}: {reason}"
        except torch.OutOfMemoryError:
            wrong[name] = f"{what}: the memory does not suffice for a check in float64"
        else:
            if found <= allowed:
                errors[name] = float(f"{found:.2g}")
            else:
                wrong[name] = f"{what}: the error is {found:.1e} of the largest number, {allowed:.0e} is allowed"
        if name in wrong:
            print(wrong[name])
    return errors, wrong


def figures(timing: Timing, bound: Limit) -> dict[str, Any]:
    """Return a time with its share of the copy's or product's rate."""
    return {**timing.to_json(), "share": float(f"{bound.share_of(timing.median_us):.4g}")}
