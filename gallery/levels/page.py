"""Makes docs/levels.md from the committed results: `python -m gallery.levels.page [--check]`.

With --check nothing is written; the exit code is 1 if the page is not what the results give.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import RESULTS as ALL_RESULTS
from benchmarks.markdown import microseconds, note, table
from gallery.levels.parts import EAGER
from gallery.levels.show import RESULTS
from gallery.levels.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "levels.md"

Figures = Mapping[str, Any]


def ratio(subject: Figures, level: str, other: str, key: str = "median_us") -> str:
    """Return how many times as long another level takes."""
    return f"{subject['levels'][other][key] / subject['levels'][level][key]:.2g}"


def section(subject: Figures) -> str:
    """Return the table of one subject."""
    limit = {"bytes": "a copy of memory", "operations": "torch's matrix product"}[subject["bound"]]
    size = " × ".join(f"{length:,}" for length in subject["size"])
    fastest = min(figures["median_us"] for figures in subject["levels"].values())
    rows = []
    for level, figures in subject["levels"].items():
        time = microseconds(figures["median_us"])
        rows.append(
            [
                level,
                f"**{time}**" if figures["median_us"] == fastest else time,
                f"{figures['share']:.1%}",
                microseconds(figures["host_us"]),
                str(figures["launches"]),
                f"{figures['peak_mb']:,.1f}",
                f"{figures['compile_s']:.1f}" if level != EAGER else "–",
                f"{figures['error']:.0e}",
            ]
        )
    header = ["level", "µs", "of the limit", "µs from Python", "launches", "MB", "compiling, s", "error"]
    title = f"### `{subject['subject']}`: {SUBJECTS[subject['subject']].formula}"
    about = f"Size {size}, {subject['dtype']}; the limit is that of {limit}."
    return "\n\n".join([title, about, table(header, "lrrrrrrr", rows)])


def page(document: Figures, directory: str) -> str:
    """Return the page."""
    subjects = {subject["subject"]: subject for subject in document["subjects"]}
    device = document["environment"]["device"]
    rates = subjects["block"]["rates"]
    parts = [
        INTRODUCTION,
        f"## Measured on one {device}{note(document)}",
        f"Limits: a copy of memory {rates['bytes'] / 1e12:.2f} TB/s, torch's product of bfloat16 matrices "
        f"{rates['operations'] / 1e12:.0f} TFLOP/s, both measured in the same run. {COLUMNS}",
        *map(section, subjects.values()),
        "![Time at each level](images/gallery/levels.png)",
        "![Roofline](images/gallery/levels_roofline.png)",
        f"Figures: [gallery_levels.json](../benchmarks/results/{directory}/{RESULTS}.json).",
        bought(subjects),
    ]
    return "\n\n".join(parts) + "\n"


def bought(subjects: Mapping[str, Figures]) -> str:
    """Return what each step bought, and when it is worth it."""
    return ""


INTRODUCTION = """# Five levels, one semantics

Made by `python -m gallery.levels.page`; do not edit.

The same function can be written in torch and run as it is; be turned into TorchScript; be given to `torch.compile`; be
written as a kernel in the Triton language; or be written in CUDA C++. Here operations, a block of a transformer and
three small models are computed at all five levels, and have to give the same answer: each is compared with float64
before it is timed.

    python -m gallery levels                 # measures on a GPU; without one compares answers on small sizes
    python -m gallery levels block

One function in torch is the semantics: torch eager, TorchScript and `torch.compile` run this very text. The Triton
language is beside it in the same file, and the CUDA C++ in
[gallery/levels/cuda](https://github.com/), bound by `torch.utils.cpp_extension`."""

COLUMNS = """µs is the device time of one call, with nothing in the cache and all launches queued; *from Python* is what
a call takes when Python makes one after the other; *MB* is what a call holds beyond its arguments and weights;
*compiling* is how much longer the first calls took than later ones, tuning included, with empty caches (CUDA C++: nvcc
and g++ for all operations together); *error* is the largest one, in units of the answer's largest number."""


def main() -> int:
    """Write the page, or with --check say whether it is what the results give."""
    (path,) = ALL_RESULTS.glob(f"*/{RESULTS}.json")
    text = page(json.loads(path.read_text(encoding="utf-8")), path.parent.name)
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
