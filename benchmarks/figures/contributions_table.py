"""The table of docs/benchmarks.md on what exact contributions cost."""

from __future__ import annotations

from benchmarks.figures.markdown import Document, microseconds, note, table
from benchmarks.gpu.contributions import ANSWERS, CONTRIBUTIONS, HOST, KERNELS

OURS = (f"{ANSWERS}, {HOST}", f"{CONTRIBUTIONS}, {HOST}", f"{ANSWERS}, {KERNELS}", f"{CONTRIBUTIONS}, {KERNELS}")


def contributions_section(document: Document, where: str) -> str:
    """Return the time of contributions beside that of answers and of the libraries' own contributions."""
    rows, title = [], ""
    for case in document["cases"]:
        times = {name: timing["median_us"] for name, timing in case["contenders"].items()}
        ours = [microseconds(times[name]) if name in times else "–" for name in OURS]
        host = times[OURS[1]]
        peers = [
            f"{name} {microseconds(time)}, {time / host:,.0f} ×" for name, time in times.items() if name not in OURS
        ]
        rate = f"{1e6 * case['rows'] / host:,.0f}"
        rows.append(
            ["" if case["title"] == title else case["title"], f"{case['rows']:,}", *ours, rate, "; ".join(peers) or "–"]
        )
        title = case["title"]
    header = [
        "model",
        "rows",
        "y",
        "contributions",
        "y, kernels",
        "contributions, kernels",
        "rows/s",
        "libraries' own",
    ]
    intro = (
        "Exact contributions, host memory to answers there and the kernels alone, median µs, beside the answers that "
        "they explain and what the libraries take for the same game on all cores, which is so many times longer. Trees "
        "by path, or against 10,000 background rows; Ridge (64 columns), degree 2 and splines against 100; the SVR "
        "against 10"
    )
    if document["settings"]["one_thread"]:
        intro = intro.replace("on all cores", "in one thread, as ours")
    busy = any(case["busy_at_start"] for case in document["cases"])
    said = [f"{intro}{note(document)}:", table(header, "lr" + "r" * 5 + "l", rows)]
    return "\n\n".join(said + ["The machine was busy when some of these began."] * busy)
