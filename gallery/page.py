"""Makes the pages of committed results, docs/gallery_speed.md and docs/levels.md: `python -m gallery.page [--check]`.

With --check nothing is written; the exit code is 1 if a page differs from the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.environment import RESULTS as ALL_RESULTS
from benchmarks.figures.markdown import microseconds, note, table
from benchmarks.timing import compared
from gallery.curves import PICTURES, redraw
from gallery.kernels.softmax import LONGEST
from gallery.levels import page as levels
from gallery.levels.parts import COMPILE, TRITON

DOCS = Path(__file__).parents[1] / "docs"

Figures = Mapping[str, Any]

INTRODUCTION = """# How fast the gallery is

Made by `python -m gallery.page`; do not edit.

The table shows each kernel of the [gallery](gallery.md) on the largest size of its curve, beside other common
implementations. Softmax, whose kernel depends on the length of rows, is shown on more sizes. If a kernel is written in
several ways, the first is the one that a caller gets, and each has a line. All take turns, the cache is empty when a
call begins, and times are the GPU's own.

    python -m gallery bench                  # writes figures and curves, on a machine with a GPU
    python -m gallery bench softmax dot
    python -m gallery.page                   # makes this page from the figures"""

ABOUT = """*Share* is the kernel's rate as a share of that of a copy, `Tensor.copy_` of 1 GiB, or of a product, torch's
of two matrices of 8,192 × 8,192, which take turns with it. Neither is a limit of the GPU: a copy reads as much as it
writes, and memory is faster if nearly all bytes are read (dot) or written (broadcast), so such kernels exceed 100 %.
*Noise* is the larger of two: how far the blocks of calls of the copy or product lie apart, and how far the share of the
same operation, timed as a peer of `copy` or `matmul`, is from 100 %. Shares that differ by less are equal. A kernel is
as fast as a peer (≈) if they differ by less than the larger spread of their own blocks."""

AIMED = """*Met*: the aims are 95 % of the copy for kernels bound by bytes (80 % for layer normalisation's gradients),
and as fast as every peer; 90 % of the matrix product for products, and with bias and ReLU also 1.1 × torch's three
operations; 85 % of cuDNN's speed for attention and convolution, 75 % for attention's gradients."""


@dataclass(frozen=True)
class Aim:
    """The speed that a kernel should reach."""

    share: float = 0.0
    """The wanted share of the copy or the product."""

    peers: Mapping[str, float] | None = None
    """The wanted speed as a multiple of each named peer; None stands for as fast as every peer."""

    def missed(self, point: Figures, ours: str, peers: Sequence[str]) -> list[str]:
        """Return the parts of the aim that are not reached."""
        times = point["times"]
        found = [f"{self.share:.0%}"] if times[ours]["share"] < self.share else []
        if self.peers is None:
            return found + [f"as fast as {peer}" for peer in peers if compared(times[ours], times[peer]) < 0]
        return found + [
            f"{wanted:g} × {peer}"
            for peer, wanted in self.peers.items()
            if times[peer]["median_us"] / times[ours]["median_us"] < wanted
        ]


OF_PRODUCT = Aim(share=0.9, peers={})
AIMS = {
    ("layer_norm", "backward"): Aim(share=0.8),
    ("matmul", "forward"): OF_PRODUCT,
    ("matmul_relu", "forward"): replace(OF_PRODUCT, peers={"torch, three operations": 1.1}),
    ("attention", "forward"): Aim(peers={"cuDNN": 0.85}),
    ("attention", "backward"): Aim(peers={"cuDNN": 0.75}),
    ("convolution", "forward"): Aim(peers={"cuDNN": 0.85}),
}
"""The aims by kernel and direction."""

BY_BYTES = Aim(share=0.95)
"""The aim of all others."""

ALSO = {"softmax": ((16384, 16384), (8192, 32768))}
"""Sizes that are shown beside the largest."""

SAME_OPERATION = {"GB/s": ("copy", "torch"), "TFLOP/s": ("matmul", "cuBLAS")}
"""The exhibit and its peer that is the copy, or the product, itself, by the unit of the rate."""


def bound(name: str, direction: str, size: Sequence[int]) -> str:
    """Return what keeps a kernel below 95 % of a copy by the bytes that it moves, or nothing."""
    if name == "softmax" and size[-1] > LONGEST:
        return "rows are read twice, which bounds it at " + ("2/3" if direction == "forward" else "3/5")
    return ""


def noise(document: Figures, unit: str, point: Figures) -> float:
    """Return the noise of what a point's shares are of."""
    name, peer = SAME_OPERATION[unit]
    (same,) = [found for found in document["exhibits"] if found["exhibit"] == name]
    apart = abs(float(same["forward"]["points"][-1]["times"][peer]["share"]) - 1)
    return max(apart, float(point["limit"].get("spread", 0.0)))


def rows(document: Figures, found: Figures, direction: str) -> list[list[str]]:
    """Return an exhibit's lines of the table: its ways on each size that is shown."""
    name, curve = found["exhibit"], found[direction]
    aim = AIMS.get((name, direction), BY_BYTES)
    lines = []
    for point in curve["points"]:
        size = tuple(point["size"])
        if point is not curve["points"][-1] and size not in ALSO.get(name, ()):
            continue
        times = point["times"]
        peers = [each for each in times if each not in curve["ours"]]
        best = min(peers, key=lambda each, times=times: times[each]["median_us"])  # type: ignore[misc]
        for ours in (each for each in curve["ours"] if each in times):
            missed = aim.missed(point, ours, peers)
            why = [*missed, *filter(None, [bound(name, direction, size)])]
            about = "≈ " if compared(times[ours], times[best]) == 0 else ""
            lines.append(
                [
                    f"[{name}](../gallery/kernels/{name}.py)"
                    + (f", {ours}" if ours != name and len(curve["ours"]) > 1 else "")
                    + (", gradients" if direction == "backward" else ""),
                    " × ".join(f"{length:,}" for length in size),
                    found["dtype"],
                    microseconds(times[ours]["median_us"]),
                    f"{times[ours]['share']:.1%} of a {'product' if curve['unit'] == 'TFLOP/s' else 'copy'}",
                    f"{noise(document, curve['unit'], point):.1%}",
                    f"no: {', '.join(why)}" if missed else "yes",
                    best,
                    f"{about}{times[best]['median_us'] / times[ours]['median_us']:.2f} ×",
                ]
            )
    return lines


def block(document: Figures) -> str:
    """Return the sentences on a transformer's block, from the figures of the five levels."""
    (found,) = [subject for subject in document["subjects"] if subject["subject"] == "block"]
    ours, theirs = (found["levels"][level] for level in (TRITON, COMPILE))
    text = (
        f"A transformer's block at the Triton-language level ([five levels](levels.md)) takes "
        f"{microseconds(ours['median_us'])} µs on the GPU, and {microseconds(theirs['median_us'])} with torch.compile. "
        f"Called from Python one after the other they take {microseconds(ours['host_us'])} and "
        f"{microseconds(theirs['host_us'])}."
    )
    if "graph_us" in ours:
        text += (
            f" As one CUDA graph, which has no Python in it, they take {microseconds(ours['graph_us'])} and "
            f"{microseconds(theirs['graph_us'])}."
        )
    return text


def page(document: Figures, levels_document: Figures, directory: str) -> str:
    """Return the page."""
    lines = [
        line
        for found in document["exhibits"]
        for way in ("forward", "backward")
        if way in found
        for line in rows(document, found, way)
    ]
    header = ["kernel", "size", "type", "µs", "share", "noise", "met", "fastest peer", "times as fast"]
    curves = [
        f"### {found['exhibit']}\n\n"
        + "\n".join(
            f"![{name}](images/gallery/{name}.png)"
            for way, name in (("forward", found["exhibit"]), ("backward", f"{found['exhibit']}_backward"))
            if way in found
        )
        for found in document["exhibits"]
    ]
    parts = [
        INTRODUCTION,
        f"## Measured on one {document['environment']['device']}",
        f"Versions and machine:{note(document)}.",
        table(header, "lllrrrllr", lines),
        ABOUT,
        AIMED,
        block(levels_document),
        "## Curves",
        *curves,
        f"Figures: `benchmarks/results/{directory}/gallery.json`.",
    ]
    return "\n\n".join(parts) + "\n"


def _committed() -> Path:
    return min(ALL_RESULTS.glob("*/gallery.json"))


def pages() -> dict[Path, str]:
    """Return the pages that the committed results give."""
    found = _committed()
    of_levels = levels.document()
    own = page(json.loads(found.read_text(encoding="utf-8")), of_levels, found.parent.name)
    return {DOCS / "gallery_speed.md": own, levels.PAGE: levels.committed()}


def main() -> int:
    """Write the pages, or with --check report whether they match the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page differs")
    parser.add_argument("--curves", action="store_true", help="draw the curves of the results, too")
    given, made = parser.parse_args(), pages()
    if given.curves:
        redraw(_committed(), PICTURES)
    if given.check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
