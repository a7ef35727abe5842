"""The tables of docs/benchmarks.md on what exact contributions cost."""

from __future__ import annotations

from benchmarks.bounds.contribution_counters import SHARES
from benchmarks.figures.markdown import Document, microseconds, note, table
from benchmarks.gpu.contributions import ANSWERS, BATCH, CONTRIBUTIONS, HOST, KERNELS

NAMES = {"contributions": "contributions", "y": "y", "y_without_the_option": "y of the entry without"}
OURS = tuple(f"{what}, {how}" for how in (HOST, BATCH, KERNELS) for what in (ANSWERS, CONTRIBUTIONS))


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
        "y, batch",
        "contributions, batch",
        "y, kernels",
        "contributions, kernels",
        "rows/s",
        "libraries' own",
    ]
    intro = (
        "Exact contributions, median µs: host memory to answers there, what an entry's model does with a batch, whose "
        "answers the server takes where kernels write them, and the kernels alone; beside the answers that they "
        "explain and what the libraries take for the same game on all cores, which is so many times longer. Trees by "
        "path, or against 10,000 background rows; Ridge (64 columns), degree 2 and splines against 100; the SVR "
        "against 10"
    )
    if document["settings"]["one_thread"]:
        intro = intro.replace("on all cores", "in one thread, as ours")
    busy = any(case["busy_at_start"] for case in document["cases"])
    said = [f"{intro}{note(document)}:", table(header, "lr" + "r" * 7 + "l", rows)]
    return "\n\n".join(said + ["The machine was busy when some of these began."] * busy)


def explained_section(document: Document, where: str) -> str:
    """Return what contributions, and their option alone, add to a request."""
    rows = [
        [
            model["title"],
            NAMES[pair["asked"]],
            NAMES[pair["beside"]],
            *(microseconds(pair[key]) for key in ("p50_us", "beside_p50_us")),
            "{:+.0f} ({:+.0f} to {:+.0f})".format(pair["over_us"], *pair["over_us_range"]),
        ]
        for model in document["models"]
        for pair in model["pairs"]
    ]
    header = ["model", "asked for", "beside", "median", "beside", "difference"]
    intro = (
        "One client asks for one row over gRPC, for one thing and for another in turn: for its contributions, for its "
        "answer alone, and an entry that was exported without contributions for its answer. Medians, and the median "
        "difference with the least and the most of a round, µs"
    )
    return "\n\n".join([f"{intro}{note(document)}:", table(header, "lllrrr", rows)])


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
