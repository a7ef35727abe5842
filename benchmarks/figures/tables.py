"""Makes the tables and plots from the committed JSON: docs/benchmarks.md, docs/worth.md, and a PNG per figure.

    python -m benchmarks.figures.tables [--check]

With --check nothing is written; the exit code is 1 if a page is not what the JSON gives. `served_tables.py` makes the
server's tables, `gpu_or_cpu_page.py` the page on when a GPU makes sense.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cpu.libraries import ENGINES, ONNXRUNTIME, SCIKIT_LEARN
from benchmarks.cpu.predict import COMPARISONS, cost_of_fp64, crossovers, fastest
from benchmarks.environment import RESULTS
from benchmarks.figures import gpu_or_cpu_page
from benchmarks.figures.architectures_table import architectures_section
from benchmarks.figures.contributions_table import contributions_section, counters_section, explained_section
from benchmarks.figures.markdown import Document, microseconds, note, optional, table
from benchmarks.figures.served_tables import (
    fleets_section,
    observer_section,
    requests_section,
    scoring_section,
    served_section,
    several_gpus_section,
    startup_section,
)
from benchmarks.gpu.kernels import OURS, best

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
LATER = (
    "[What a GPU is worth](worth.md) times more models on a GPU in this way, and later: of large batches its figures "
    "are the newer ones."
)
SHOWN_ROWS = (1, 64, 1024, 4096, 65536)

INTRODUCTION = """# Benchmarks

Made by `python -m benchmarks.figures.tables`; do not edit. [METHOD.md](../benchmarks/METHOD.md) says how this is
measured and what the figures do not say, [README.md](../benchmarks/README.md) how to repeat it.

Scikit-learn searches its rows for NaN and infinity unless it is told not to, and so does an entry on the server; both
are timed with that search and without.
"""


def read_results(directory: Path = RESULTS) -> dict[str, dict[str, Document]]:
    """Return every device's documents by the device's directory name and the benchmark's name, GPUs first."""
    found: dict[str, dict[str, Document]] = {}
    for path in sorted(directory.glob("*/*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(path.parent.name, {})[document["benchmark"]] = document
    return dict(sorted(found.items(), key=lambda item: ("kernels" not in item[1], item[0])))


def markdown(results: Mapping[str, Mapping[str, Document]]) -> str:
    """Return the whole section, one part per device."""
    makers = {
        "predict": predict_section,
        "one_thread": one_thread_section,
        "kernels": kernels_section,
        "families": families_section,
        "unlike_rows": unlike_rows_section,
        "contributions": contributions_section,
        "contribution_counters": counters_section,
        "host_to_host": host_to_host_section,
        "in_process": in_process_section,
        "own_code": own_code_section,
        "scoring": scoring_section,
        "served": served_section,
        "requests": requests_section,
        "served_fleets": fleets_section,
        "explained": explained_section,
        "several_gpus": several_gpus_section,
        "startup": startup_section,
        "observer": observer_section,
        "large": large_section,
    }
    parts = []
    for name, documents in results.items():
        any_document = next(iter(documents.values()))
        parts.append(f"## {any_document['environment']['device']}")
        for benchmark, make in makers.items():
            if benchmark in documents:
                parts.append(make(documents[benchmark], f"../benchmarks/results/{name}"))
    return "\n\n".join(parts)


def predict_section(document: Document, where: str) -> str:
    """Return the latency table and the crossovers."""
    rows = []
    for model in document["models"]:
        for point in model["points"]:
            if point["rows"] not in SHOWN_ROWS:
                continue
            cells = [model["title"], f"{point['rows']:,}"]
            for name in (*ENGINES, SCIKIT_LEARN):
                pair = [fastest(point, name, checked=checked) for checked in (True, False)]
                cells.append(" / ".join(microseconds(timing["median_us"]) for timing in pair if timing) or "–")
            timing = fastest(point, ONNXRUNTIME)
            cells.append(microseconds(timing["median_us"]) if timing else "–")
            rows.append(cells)
    header = ["model", "rows", *(f"engine `{engine}`" for engine in ENGINES), SCIKIT_LEARN, ONNXRUNTIME]
    latency = table(header, *without_empty_columns(header, rows))
    crossing = []
    for model in document["models"]:
        for peer, checked in COMPARISONS:
            found = crossovers(model["points"], peer, checked=checked)
            if found:
                against = f"{peer}, {'both' if checked else 'neither'} searching"
                crossing.append([model["title"], against, *(crossing_cell(found, engine) for engine in ENGINES)])
    header = ["model", "against", *(f"engine `{engine}`" for engine in ENGINES)]
    return "\n\n".join(
        [
            f"In-process `predict`, host to host, median µs with a search for NaN / without{note(document)}:",
            latency,
            *[LATER] * any("triton" in point["timings"] for model in document["models"] for point in model["points"]),
            "The batch size from which on an engine stays faster, among those measured:",
            table(header, *without_empty_columns(header, crossing)),
            *cost_of_fp64_in_process(document),
            f"![Latency by batch size]({where}/predict.png)",
        ]
    )


def cost_of_fp64_in_process(document: Document) -> list[str]:
    """Return the cost of FP64 in each model and engine by batch size; nothing if it was not measured."""
    rows = []
    for model in document["models"]:
        shown = [point for point in model["points"] if point["rows"] in SHOWN_ROWS]
        for engine in ENGINES:
            ratios = [cost_of_fp64(point, engine) for point in shown]
            if any(ratios):
                rows.append([model["title"], f"`{engine}`", *(optional(ratio, 1, ".2f") for ratio in ratios)])
    if not rows:
        return []
    header = ["model", "engine", *(f"{size:,} rows" if size > 1 else "1 row" for size in sizes_shown(document))]
    intro = "What numbers in FP64 cost: the time over that in FP32, in the same run, neither searching for NaN:"
    return [intro, table(header, "ll" + "r" * (len(header) - 2), rows)]


def sizes_shown(document: Document) -> list[int]:
    """Return the batch sizes that were measured and are shown."""
    return [point["rows"] for point in document["models"][0]["points"] if point["rows"] in SHOWN_ROWS]


def crossing_cell(found: Mapping[str, int | None], engine: str) -> str:
    """Return a crossover as a table shows it; a dash for an engine that was not measured."""
    if engine not in found:
        return "–"
    size = found[engine]
    return "never" if size is None else "always" if size == 1 else f"{size:,} rows"


def one_thread_section(document: Document, where: str) -> str:
    """Return what each model takes in one thread, and how many times longer scikit-learn does."""
    header, rows = ["model"], []
    for model in document["models"]:
        cells = [model["title"]]
        for point in model["points"]:
            peer, ours = (point["timings"][name]["median_us"] for name in ("scikit-learn", "torch, checked"))
            cells.append(f"{microseconds(ours)} / {microseconds(peer)}, {peer / ours:.2f} ×")
        rows.append(cells)
    for point in document["models"][0]["points"]:
        header.append("1 row" if point["rows"] == 1 else f"{point['rows']:,} rows")
    intro = (
        "The engine `torch` in one thread, with a search for NaN, median µs / scikit-learn's `predict` in one thread, "
    )
    intro += "and how many times faster ours is"
    return f"{intro}{note(document)}:\n\n{table(header, 'l' + 'r' * (len(header) - 1), rows)}"


def kernels_section(document: Document, where: str) -> str:
    """Return each case's best of ours and best of torch."""
    rows = []
    for case in document["cases"]:
        name, ours = best(case, ours=True)
        peer, theirs = best(case, ours=False)
        detail = name.removeprefix(OURS).strip(", ")
        rows.append(
            [
                case["title"] + (f" ({detail})" if detail else ""),
                f"{case['rows']:,}",
                microseconds(ours["median_us"]),
                f"{ours['share_of_copy']:.0%}",
                f"{ours['max_error']:.0e}",
                peer,
                microseconds(theirs["median_us"]),
                f"{theirs['max_error']:.0e}",
                f"{theirs['median_us'] / ours['median_us']:.1f} ×",
            ]
        )
    bandwidth = min(case["copy_tb_per_s"] for case in document["cases"])
    header = ["kernel", "rows", "µs", "of copy", "error", "fastest of torch", "µs", "error", "faster by"]
    return "\n\n".join(
        [
            f"Kernels alone, median device time beside a copy of memory at {bandwidth:.2f} TB/s or more; errors are "
            f"the largest, in standard deviations{note(document)}:",
            table(header, "lrrrrlrrr", rows),
            f"![Share of copy bandwidth]({where}/kernels.png)",
        ]
    )


def families_section(document: Document, where: str) -> str:
    """Return each work's time and its peer's, one column for each number of rows."""
    sizes = sorted({case["rows"] for case in document["cases"]})
    found: dict[str, dict[int, str]] = {}
    for case in document["cases"]:
        name, peer = f"{case['work']} ({case['peer'] or 'no peer'})", case["peer"]
        times = [case["contenders"][OURS], *([case["contenders"][peer]] if peer else [])]
        cell = " / ".join(microseconds(timing["median_us"]) for timing in times)
        found.setdefault(name, {})[case["rows"]] = cell + (f", {case['peer_over_ours']:.1f} ×" if peer else "")
    worst = max(case["max_error"] for case in document["cases"])
    intro = "The families' kernels alone, median device µs of ours / of the peer named behind the work, and how many "
    intro += "times faster ours are; trees beside nvForest, tuned by its own `optimize`: from a call until the answers "
    intro += f"are there. The largest error is {worst:.0e} standard deviations{note(document)}:"
    rows = [[name, *(cells.get(size, "–") for size in sizes)] for name, cells in found.items()]
    header = ["work", *(f"{size:,} rows" if size > 1 else "1 row" for size in sizes)]
    return f"{intro}\n\n{table(header, 'l' + 'r' * len(sizes), rows)}"


def unlike_rows_section(document: Document, where: str) -> str:
    """Return each work's time for rows like the data, and the share of it that other kinds of rows take."""
    settings = document["settings"]
    titles = {
        "drifted": f"drifted by {settings['drift']:g} std",
        "far": f"{settings['far']:.0e} std away",
        "lost in rounding": f"{settings['furthest']:.0e} std away",
        "random bits": "random bits",
        "equal": "one row",
        "beside": "beside thresholds",
    }
    rows = []
    for case in document["cases"]:
        times, ratios = case["contenders"], case["over_like"]
        torch = microseconds(times["torch"]["median_us"]) if "torch" in times else "–"
        cells = [optional(ratios.get(kind), 1, ".2f") for kind in titles]
        rows.append([case["work"], f"{case['rows']:,}", microseconds(times["like"]["median_us"]), torch, *cells])
    header = ["work", "rows", "like the data, µs", "torch, µs", *titles.values()]
    intro = "Rows unlike the data: median device µs for rows like it, torch's for these where a search has a peer, and "
    intro += "the time for other rows over ours for those like the data"
    return f"{intro}{note(document)}:\n\n{table(header, 'l' + 'r' * (len(header) - 1), rows)}"


def host_to_host_section(document: Document, where: str) -> str:
    """Return each work's time from host to host beside its kernels' and its rows' copy."""
    rows = [
        [
            case["work"],
            f"{case['rows']:,}",
            f"{case['launches']}",
            *(microseconds(case["contenders"][name]["median_us"]) for name in ("host to host", "kernels", "bus")),
            f"{case['over_bound']:.2f} ×" if case["rows"] == 65536 else "–",
        ]
        for case in document["cases"]
    ]
    intro = (
        "From rows in host memory to answers there, median µs, beside the kernels alone and the rows' copy over the "
    )
    intro += "bus, the larger of which bounds a large batch; 64 features"
    header = ["work", "rows", "launches", "host to host", "kernels", "bus", "over the larger"]
    return f"{intro}{note(document)}:\n\n{table(header, 'lrrrrrr', rows)}"


def in_process_section(document: Document, where: str) -> str:
    """Return each model's time from tensor to tensor on one device beside torch's, by the number of rows."""
    intro = (
        "`tr.load`'s model in the caller's process, from a float32 tensor to a tensor on the same device, the search "
        "for NaN included: median µs of a call until its answers are there, of ours / of torch's in float32 without "
        "that search, by itself or as a captured graph, whichever is faster, and how many times faster ours is"
    )
    return f"{intro}{note(document)}:\n\n{_ours_and_peer(document)}"


def own_code_section(document: Document, where: str) -> str:
    """Return the time of each model with code of the user's own beside its own `predict`, by the number of rows."""
    intro = (
        "Models with [code of the user's own](own_code.md) through `tr.load`, from the same array or DataFrame in host "
        "memory to answers there: median µs of a call of ours / of the model's own `predict`, and how many times "
        "faster ours is"
    )
    return f"{intro}{note(document)}:\n\n{_ours_and_peer(document)}"


def _ours_and_peer(document: Document) -> str:
    """Return a table of our time, the fastest other's and their ratio, by model and number of rows."""
    sizes = sorted({case["rows"] for case in document["cases"]})
    found: dict[str, dict[int, str]] = {}
    for case in document["cases"]:
        ours, *others = (timing["median_us"] for timing in case["contenders"].values())
        cell = f"{microseconds(ours)} / {microseconds(min(others))}, {case['peer_over_ours']:.2f} ×"
        found.setdefault(case["title"], {})[case["rows"]] = cell
    rows = [[title, *(cells.get(size, "–") for size in sizes)] for title, cells in found.items()]
    return table(
        ["model", *(f"{size:,} rows" if size > 1 else "1 row" for size in sizes)], "l" + "r" * len(sizes), rows
    )


def large_section(document: Document, where: str) -> str:
    """Return what each large model's export and load cost."""
    rows = [
        [
            model["title"],
            megabytes(model["model_bytes"]),
            megabytes(max(model["peak_bytes"] - model["peak_beyond_model_bytes"], 0)),
            f"{model['export_s']:.1f}",
            f"{megabytes(model['peak_bytes'])} ({model['peak_over_model']:.1f} ×)",
            megabytes(model["entry_bytes"]),
            f"{model['load_s']:.1f}",
            f"{model['floor_load_s']:.1f}",
            f"{model['max_error']:.0e}",
        ]
        for model in document["models"]
    ]
    header = [
        "model",
        "pickled or file, MB",
        "in memory, MB",
        "export, s",
        "memory, MB",
        "entry, MB",
        "load, s",
        "do-nothing, s",
        "error",
    ]
    intro = (
        "Large models: an export's time and memory, the model included, in brackets how many times the pickled model "
        "or file; and how long a Triton server takes to load the entry, beside a do-nothing model; errors are the "
        "largest, in standard deviations"
    )
    return f"{intro}{note(document)}:\n\n{table(header, 'lrrrrrrrr', rows)}"


def megabytes(count: float) -> str:
    """Return a number of bytes in MB, as a table shows it."""
    return f"{count / 1e6:,.0f}"


def without_empty_columns(header: list[str], rows: Sequence[list[str]]) -> tuple[str, list[list[str]]]:
    """Drop the columns that hold dashes alone, from the header too; return the alignment and the rows."""
    kept = [i for i in range(len(header)) if any(row[i] != "–" for row in rows)]
    header[:] = [header[i] for i in kept]
    return "".join("l" if header[i] in ("model", "against") else "r" for i in range(len(kept))), [
        [row[i] for i in kept] for row in rows
    ]


def page(results: Mapping[str, Mapping[str, Document]]) -> str:
    """Return docs/benchmarks.md."""
    sections = "\n\n".join(filter(None, [markdown(results), architectures_section()]))
    return f"{INTRODUCTION}\n{sections}\n"


def main() -> None:
    """Write docs/benchmarks.md and the plots, or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    arguments = parser.parse_args()
    results = read_results()
    wanted = {PAGE: page(results), **gpu_or_cpu_page.wanted(results)}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if arguments.check:
        if stale:
            raise SystemExit(
                f"{stale[0]} is not what benchmarks/results gives; run python -m benchmarks.figures.tables."
            )
        return
    from benchmarks.figures.plots import draw

    draw(results)
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
