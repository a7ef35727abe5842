"""The text of docs/levels.md from the committed results; `python -m gallery.page` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import RESULTS as ALL_RESULTS
from benchmarks.figures.markdown import microseconds, note, table
from gallery.levels.parts import COMPILE, CUDA, EAGER, SCRIPT, TRITON
from gallery.levels.show import RESULTS
from gallery.levels.subjects import SUBJECTS

PAGE = Path(__file__).parents[2] / "docs" / "levels.md"

Figures = Mapping[str, Any]

INTRODUCTION = """# Five levels, one semantics

Made by `python -m gallery.page`; do not edit.

The same function can be written in torch and run as it is; be turned into TorchScript; be given to `torch.compile`; be
written as a kernel in the Triton language; or be written in CUDA C++. Four operations, a block of a transformer and
three small models are computed at all five levels and have to give the same answer: every one is compared with float64
before it is timed.

    python -m gallery levels                 # measures on a GPU; without one compares answers on small sizes
    python -m gallery levels block messages

| step | code to write | file |
| --- | --- | --- |
| torch eager | the formula, as operations of torch | `reference` in `gallery/levels/NAME.py` |
| TorchScript | nothing more: `torch.jit.script` of this text | `raised` in `gallery/levels/parts.py` |
| torch.compile | nothing more: `torch.compile` of this text | `raised` in `gallery/levels/parts.py` |
| Triton language | a kernel that computes one block of the answer | the kernel in `gallery/levels/NAME.py` |
| CUDA C++ | a kernel that programs every thread | `gallery/levels/cuda/NAME.cu`, bound by `cpp_extension` |

On a Hopper GPU the Triton-language level uses the gallery's `gallery/kernels/attention_hopper.py` for attention in 16
bits.

Models are assembled once, in `gallery/levels/models.py`, from five parts: layer normalisation with or without GELU, a
linear layer with the operations after it, attention, messages on a graph, and a polynomial of degree 2. A level is a
set of parts. The language model is trained for seconds on one sentence in `gallery/levels/text.py`, and continues its
beginning letter by letter, the likeliest each time; the others have weights drawn from a fixed seed. At every level
torch computes embeddings and means, and cuts images into patches.

An answer may differ from float64 by 10⁻⁵ of its largest number in float32, by 10⁻² in bfloat16, whose own steps are
4 · 10⁻³, and by 4 · 10⁻² for a block or a model in bfloat16, which rounds many times. Every level sums
messages in an order that is always the same, without atomics, so that a level gives the same bits each time.

Without a GPU the Triton language runs through its interpreter, and CUDA C++ is left out; tests run the same CUDA
sources on the CPU, where a block's threads take turns (`tests/gallery/cuda_on_cpu/`)."""

COLUMNS = """µs is the device time of one call, with an empty cache and all launches queued; *from Python* is the time
of a call when Python makes one after the other; *MB* is the memory of a call beyond its arguments and weights;
*compiling* is the additional time of the first calls, tuning included, with empty caches (CUDA C++: nvcc and g++ for
all operations together), and *repaid* is the number of calls from Python after which the time gained on torch eager
exceeds it; *error* is the largest error, in units of the answer's largest number."""


GRAPHS = """*As a graph* is the time of a call when Python replays it as one CUDA graph after the other, in which no
Python is left; a dash stands where the host waits for the GPU within the call, which no graph can hold."""


def has_graphs(subject: Figures) -> bool:
    """Return whether a subject was also measured as CUDA graphs."""
    return all("graph_us" in figures for figures in subject["levels"].values())


def section(subject: Figures) -> str:
    """Return the table of one subject."""
    limit = {"bytes": "a copy of memory", "operations": "torch's matrix product"}[subject["bound"]]
    size = " × ".join(f"{length:,}" for length in subject["size"])
    fastest = min(figures["median_us"] for figures in subject["levels"].values())
    graphs = has_graphs(subject)
    rows = []
    for level, figures in subject["levels"].items():
        time = microseconds(figures["median_us"])
        rows.append(
            [
                level,
                f"**{time}**" if figures["median_us"] == fastest else time,
                f"{figures['share']:.1%}",
                microseconds(figures["host_us"]),
                *([microseconds(graph) if (graph := figures["graph_us"]) else "–"] if graphs else []),
                str(figures["launches"]),
                f"{figures['peak_mb']:,.1f}",
                f"{figures['compile_s']:.1f}" if level != EAGER else "–",
                repaid(subject, level),
                f"{figures['error']:.0e}",
            ]
        )
    header = ["level", "µs", "of the limit", "µs from Python", *(["µs as a graph"] if graphs else []), "launches", "MB"]
    header += ["compiling, s", "repaid", "error"]
    about = f"Size {size}, {subject['dtype']}; the limit is that of {limit}."
    title = f"### `{subject['subject']}`: {SUBJECTS[subject['subject']].formula}"
    return "\n\n".join([title, about, table(header, "l" + "r" * (len(header) - 1), rows)])


def repaid(subject: Figures, level: str) -> str:
    """Return the number of calls after which the time gained on torch eager exceeds a level's compile time."""
    levels = subject["levels"]
    gained = levels[EAGER]["host_us"] - levels[level]["host_us"]
    return f"{levels[level]['compile_s'] * 1e6 / gained:,.0f}" if gained > 0 and level != EAGER else "–"


def times(subjects: Mapping[str, Figures], level: str, other: str, key: str = "median_us") -> str:
    """Return the range of a level's time in multiples of another level's, over all subjects."""
    ratios = [subject["levels"][level][key] / subject["levels"][other][key] for subject in subjects.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times"


def bought(subjects: Mapping[str, Figures]) -> str:
    """Return the section on each step's gain, and when it is worth it."""
    block, messages = subjects["block"]["levels"], subjects["messages"]["levels"]
    held = {level: f"{messages[level]['peak_mb']:,.0f} MB" for level in messages}
    return f"""## What each step bought, and when it is worth it

- **TorchScript** takes {times(subjects, SCRIPT, EAGER)} the device time of torch eager, and
  {times(subjects, SCRIPT, EAGER, "host_us")} the time of calls from Python. It removes Python between operations and
  fuses some elementwise ones. It is worth it if a model has to run without Python; torch itself now recommends
  torch.compile.
- **torch.compile** takes {times(subjects, COMPILE, SCRIPT)} the device time of TorchScript. It writes kernels in the
  Triton language for all operations between products: a block is {block[COMPILE]["launches"]} launches instead of
  {block[EAGER]["launches"]}. It is one line, so try it first if the number of calls will exceed the column *repaid*.
- **The Triton language** takes {times(subjects, TRITON, COMPILE)} the device time of torch.compile. It is worth it
  if writes to memory between operations can be avoided and a compiler does not find this: a block is
  {block[TRITON]["launches"]} launches, and messages on a graph hold {held[TRITON]} instead of {held[COMPILE]}. Called
  from Python it takes {times(subjects, TRITON, COMPILE, "host_us")} the time of torch.compile: Python
  launches the kernel of each operation by itself, and small models wait for this. The product therefore captures all
  launches of a batch as one CUDA graph (`kernels/engine/graphs.py`).
- **CUDA C++** takes {times(subjects, CUDA, TRITON)} the device time of the Triton language. The programmer places every
  thread, copy and barrier, and can get each wrong. Products here use the instructions of all GPUs since capability 8.0,
  not Hopper's own, which the compiler of the Triton language does use. It is worth it if a kernel needs a feature that
  the Triton language cannot express, or if no Python may be involved at all."""


def page(document: Figures, directory: str) -> str:
    """Return the page."""
    subjects = {subject["subject"]: subject for subject in document["subjects"]}
    rates = subjects["block"]["rates"]
    limits = (
        f"Limits, measured in the same run: a copy of memory {rates['bytes'] / 1e12:.2f} TB/s, torch's product of "
        f"bfloat16 matrices {rates['operations'] / 1e12:.0f} TFLOP/s."
    )
    parts = [
        INTRODUCTION,
        f"## Measured on one {document['environment']['device']}",
        f"Versions and machine:{note(document)}.",
        limits,
        COLUMNS,
        *([GRAPHS] if all(map(has_graphs, subjects.values())) else []),
        *map(section, subjects.values()),
        "![Time at each level](images/gallery/levels.png)",
        "![Roofline](images/gallery/levels_roofline.png)",
        f"Figures: `benchmarks/results/{directory}/{RESULTS}.json`.",
        bought(subjects),
    ]
    return "\n\n".join(parts) + "\n"


def document() -> Figures:
    """Return the committed results."""
    return json.loads(_committed().read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def committed() -> str:
    """Return the page for the committed results."""
    return page(document(), _committed().parent.name)


def _committed() -> Path:
    return min(ALL_RESULTS.glob(f"*/{RESULTS}.json"))
