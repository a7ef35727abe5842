"""Makes the pages of committed results, docs/gallery_speed.md and docs/levels.md: `python -m gallery.page [--check]`.

With --check nothing is written; the exit code is 1 if a page differs from the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environment import RESULTS as ALL_RESULTS
from benchmarks.figures.markdown import microseconds, note, table
from gallery.levels import page as levels

DOCS = Path(__file__).parents[1] / "docs"

Figures = Mapping[str, Any]

INTRODUCTION = """# How fast the gallery is

Made by `python -m gallery.page`; do not edit.

The table shows each kernel of the [gallery](gallery.md) on the largest size of its curve, in its fastest way, beside
other common implementations and beside the limit: the rate of a copy of memory, or of torch's matrix product, in the
same run. All take turns, the cache is empty when a call begins, and times are the GPU's own.

    python -m gallery bench                  # writes figures and curves, on a machine with a GPU
    python -m gallery bench softmax dot"""


BLOCK = """A transformer's block at the Triton-language level ([five levels](levels.md)) is level with torch.compile:
their times overlap."""


@dataclass(frozen=True)
class Aim:
    """The speed that a kernel should reach."""

    share: float = 0.0
    """The wanted share of the limit."""

    peers: Mapping[str, float] = field(default_factory=dict)
    """The wanted speed as a multiple of each named peer; with none named, as fast as each."""

    size: tuple[int, ...] | None = None
    """The size of the curve at which it is judged; by default the largest."""

    def missed(self, point: Figures, ours: str, peers: list[str]) -> list[str]:
        """Return the parts of the aim that are not reached."""
        times = point["times"]
        found = [f"{self.share:.0%} of the limit"] if times[ours]["share"] < self.share else []
        for peer in peers:
            asked = self.peers.get(peer, 0.0 if self.peers else 1.0)
            if times[peer]["median_us"] / times[ours]["median_us"] < asked:
                found.append(f"{asked:g} × {peer}")
        return found


BY_BYTES = Aim(share=0.95)
AIMS = {
    **{(name, "forward"): BY_BYTES for name in ("map", "zip", "broadcast", "pooling", "dot", "layer_norm")},
    ("softmax", "forward"): Aim(share=0.95, size=(16384, 16384)),
    ("layer_norm", "backward"): Aim(share=0.8),
    ("matmul_relu", "forward"): Aim(share=0.9, peers={"torch, three operations": 1.1}),
    ("attention", "forward"): Aim(peers={"cuDNN": 0.85}, size=(1, 16, 8192, 8192, 128, 0)),
    ("attention", "backward"): Aim(peers={"cuDNN": 0.75}, size=(1, 16, 8192, 8192, 128, 0)),
    ("convolution", "forward"): Aim(peers={"cuDNN": 0.85}),
}
"""The aims by kernel and direction; other kernels are measured without an aim."""


def row(found: Figures, direction: str) -> list[str]:
    """Return a line of the table."""
    name, curve = found["exhibit"], found[direction]
    aim = AIMS.get((name, direction))
    point = curve["points"][-1]
    if aim and aim.size:
        point = next(point for point in curve["points"] if tuple(point["size"]) == aim.size)
    times = point["times"]
    ours = min(curve["ours"], key=lambda each: times[each]["median_us"])
    peers = [each for each in times if each not in curve["ours"]]
    best = min(peers, key=lambda each: times[each]["median_us"])
    missed = aim.missed(point, ours, peers) if aim else []
    return [
        f"[{name}](../gallery/kernels/{name}.py)"
        + (f", {ours}" if ours != name and len(curve["ours"]) > 1 else "")
        + (", gradients" if direction == "backward" else ""),
        " × ".join(f"{length:,}" for length in point["size"]),
        found["dtype"],
        microseconds(times[ours]["median_us"]),
        f"{times[ours]['share']:.1%}",
        best,
        f"{times[best]['median_us'] / times[ours]['median_us']:.2f} ×",
        "" if aim is None else f"no: {', '.join(missed)}" if missed else "yes",
    ]


def page(document: Figures, directory: str) -> str:
    """Return the page."""
    rows = [row(found, way) for found in document["exhibits"] for way in ("forward", "backward") if way in found]
    header = ["kernel", "size", "type", "µs", "of the limit", "fastest peer", "faster than it", "aim reached"]
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
        table(header, "lllrrlrl", rows),
        "The aims: 95 % of the copy's bandwidth for kernels bound by bytes (80 % for the gradients of layer "
        "normalisation), and no slower than any peer; 90 % of the matrix product alone and 1.1 × torch's three "
        "operations for product, bias and ReLU; 85 % of cuDNN for attention and convolution, 75 % for attention's "
        "gradients.",
        BLOCK,
        "## Curves",
        *curves,
        f"Figures: `benchmarks/results/{directory}/gallery.json`.",
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Return the pages that the committed results give."""
    found = min(ALL_RESULTS.glob("*/gallery.json"))
    own = page(json.loads(found.read_text(encoding="utf-8")), found.parent.name)
    return {DOCS / "gallery_speed.md": own, levels.PAGE: levels.committed()}


def main() -> int:
    """Write the pages, or with --check report whether they match the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page differs")
    check, made = parser.parse_args().check, pages()
    if check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
