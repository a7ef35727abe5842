"""The tables of docs/benchmarks.md on what exact contributions cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.bounds.contribution_counters import SHARES
from benchmarks.figures.markdown import Document, microseconds, note, table
from benchmarks.gpu.contributions import ANSWERS, CONTRIBUTIONS, HOST, KERNELS

EXPLAINED = ("contributions", "y", "y_without_the_option")
OURS = (f"{ANSWERS}, {HOST}", f"{CONTRIBUTIONS}, {HOST}", f"{ANSWERS}, {KERNELS}", f"{CONTRIBUTIONS}, {KERNELS}")


def contributions_section(document: Document, where: str) -> str:
    """Return the time of contributions beside that of answers and of the libraries' own contributions."""
    rows, title = [], ""
    for case in document["cases"]:
        times = {name: timing["median_us"] for name, timing in case["contenders"].items()}
        ours = [microseconds(times[name]) if name in times else "–" for name in OURS]
        host = times[OURS[1]]
        peers = [
            f"{name} {microseconds(time)}, {microseconds(time / host)} ×"
            for name, time in times.items()
            if name not in OURS
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


def explained_section(document: Document, where: str) -> str:
    """Return what contributions, and their option alone, add to a request."""
    rows = []
    for model in document["models"]:
        p50 = [microseconds(model["p50_us"][who]) for who in EXPLAINED]
        over = [_over(model, key) for key in ("contributions_over_y_us", "y_over_without_us")]
        rows.append([model["title"], *p50, *over])
    header = ["model", "contributions", "y", "y of the entry without", "contributions over y", "y over y without"]
    intro = (
        "One client asks for one row over gRPC: for its contributions, for its answer alone, and an entry that was "
        "exported without contributions for its answer. Medians, and median differences with the least and the most of "
        "a round, µs"
    )
    return "\n\n".join([f"{intro}{note(document)}:", table(header, "l" + "r" * 5, rows)])


def counters_section(document: Document, where: str) -> str:
    """Return which of a GPU's units are busy while it computes contributions."""
    rows = []
    for case in document["cases"]:
        busiest = max(case["shares"].values())
        shares = [f"{case['shares'][unit]:.0%}" for unit in SHARES]
        at_most = f"{1e6 * case['rows'] / case['time_us'] / busiest:,.0f}"
        rows.append(
            [
                case["title"],
                f"{case['rows']:,}",
                microseconds(case["time_us"]),
                f"{case['instructions_per_row']:,.0f}",
                *shares,
                at_most,
            ]
        )
    header = ["model", "rows", "kernels, µs", "warps' instructions a row", *SHARES, "rows/s at 100 %"]
    intro = (
        "What bounds exact contributions, by the GPU's own counters: the share of its peak at which each unit works "
        "while the kernels run, and the rows a second at which the busiest one would reach its peak, more than which "
        "these instructions cannot give"
    )
    return "\n\n".join([f"{intro}{note(document)}:", table(header, "l" + "r" * (4 + len(SHARES)), rows)])


def _over(model: Mapping[str, Any], key: str) -> str:
    least, most = (f"{each:+.0f}" for each in model[f"{key}_range"])
    return f"{model[key]:+.0f} ({least} to {most})"
