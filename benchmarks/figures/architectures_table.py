"""The section of docs/benchmarks.md on what bounds each family on GPUs that are not at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.bounds.architectures import FILE, FLOAT64, limit, ratio
from benchmarks.bounds.gpu_rates import GPUS, Gpu
from benchmarks.figures.markdown import table

NAMES = {
    "float64": "float64", "float32": "float32", "integer": "integers", "special": "special functions",
    "issue": "issue", "load_store": "loads", "tensor_float16": "matrix units", "tensor_tf32": "matrix units",
    "memory": "memory", "bus": "bus",
}  # fmt: skip
"""The name of each pipe in a table."""

INTRODUCTION = """## GPUs with little float64

T4, A10, L4 and L40S have two float64 units a multiprocessor, a 32nd or a 64th of their float32 units. Made by
`python -m benchmarks.architectures`, which needs no GPU: it compiles every kernel for each of them, counts what the
machine code executes, and divides by the published rates. The figures are bounds, in nanoseconds a row of a large
batch: no run can be faster, and real ones are slower. Behind each stands what bounds it, and in brackets how many times
longer that is than the same kernel would take if its float64 instructions took no time."""


def architectures_section() -> str:
    """Return the section, the empty string where nothing was counted."""
    if not FILE.exists():
        return ""
    return section(json.loads(FILE.read_text(encoding="utf-8")))


def section(document: Mapping[str, Any]) -> str:
    """Return the section of a document of `architectures`."""
    cases = document["cases"]
    named = [gpu for gpu in GPUS if any(gpu.name in case["gpus"] for case in cases)]
    header = ["model", "rows", *(gpu.name for gpu in named)]
    alignment = "l" + "r" * (len(header) - 1)
    return "\n\n".join(
        [
            INTRODUCTION,
            "Rows that come over the bus, as those of requests do:",
            table(header, alignment, bounds_rows(cases, named, bus=True)),
            "Rows that are in GPU memory already:",
            table(header, alignment, bounds_rows(cases, named, bus=False)),
            "What was divided by (matrix products dense, with float32 sums; the bus in each direction):",
            rates_table(named),
        ]
    )


def bounds_rows(cases: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu], *, bus: bool) -> list[list[str]]:
    """Return a row for each work: its name, its rows, and a bound on each GPU."""
    return [
        [case["work"], f"{case['rows']:,}", *(bound(case["gpus"].get(gpu.name), bus=bus) for gpu in gpus)]
        for case in cases
    ]


def bound(found: Mapping[str, Any] | None, *, bus: bool) -> str:
    """Return a bound as a table shows it; a dash where there is none."""
    if found is None:
        return "–"
    times = found["ns_per_row"]
    longest, name = limit(times, bus=bus)
    text = f"{shown(longest)} {NAMES[name]}"
    return f"{text} ({ratio(times, bus=bus):.1f} ×)" if name == FLOAT64 else text


def shown(value: float) -> str:
    """Return a time in nanoseconds with two digits at least."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def rates_table(gpus: Sequence[Gpu]) -> str:
    """Return the published rates."""
    header = ["GPU", "capability", "float32, TFLOP/s", "float64", "float16 products", "TF32 products"]
    header += ["memory, GB/s", "bus, GB/s", "source"]
    rows = [
        [
            gpu.name,
            f"{gpu.capability / 10:.1f}",
            f"{gpu.float32_tflops:.1f}",
            f"{gpu.float64_tflops:.2f}",
            f"{gpu.float16_tflops:g}",
            f"{gpu.tf32_tflops:g}" if gpu.tf32_tflops else "–",
            f"{gpu.memory_gb_s:,}",
            f"{gpu.pcie_gb_s}",
            gpu.source,
        ]
        for gpu in gpus
    ]
    return table(header, "lrrrrrrrl", rows)
