"""Makes the tables of the Triton server, of its starts, of observing and of scoring.

They show served.json, requests.json, served_fleets.json, several_gpus.json, startup.json, observer.json and
scoring.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, median_low

from benchmarks.figures.fleets_plot import sizes
from benchmarks.figures.markdown import Document, microseconds, note, optional, table


def served_section(document: Document, where: str) -> str:
    """Return every point beside the do-nothing model."""
    rows = [
        [
            model["title"],
            point["configuration"],
            f"{point['concurrency']}",
            optional(point["latency_p50_ms"], 1e3, ",.0f"),
            optional(point["p50_over_floor_ms"], 1e3, "+,.0f"),
            optional(point["requests_per_s"], 1, ",.0f"),
            share(point),
            optional(point["mean_batch_size"], 1, ".1f"),
            "yes" if point["stable"] and point["floor_stable"] else "no",
        ]
        for model in document["models"]
        for point in model["points"]
    ]
    header = ["model", "configuration", "clients", "p50 µs", "over do-nothing, µs", "requests/s", "of do-nothing"]
    header += ["rows an execution", "stable"]
    generator = document["settings"].get("generator", "builtin")
    sender = "perf_analyzer" if generator == "perf_analyzer" else "compare's own generator"
    intro = f"Served over gRPC, one row a request, closed loop by {sender}, beside a do-nothing model in the same run"
    rounds = document["settings"].get("rounds", 1)
    if rounds > 1:
        intro += f", the median of {rounds} rounds and their range"
    return "\n\n".join([f"{intro}{note(document)}:", table(header, "llrrrrrrl", rows), *cost_of_fp64_served(document)])


def requests_section(document: Document, where: str) -> str:
    """Return a server's throughput with each model, beside the do-nothing model and scikit-learn's own predict."""
    rows = [
        [
            model["title"],
            f"{point['clients']} × {point['rows']:,}",
            f"{point['triton_regressors']['requests_per_s']:,.0f}",
            f"{point['of_nothing']:.0%}" + spread(point["of_nothing_rounds"], ".0%"),
            f"{point['of_scikit_learn']:.2f}",
            f"{point['triton_regressors']['p50_ms'] * 1e3:,.0f}",
            f"{point['p50_over_nothing_us']:+,.0f}",
            f"{point['scikit-learn']['p50_ms'] * 1e3:,.0f}",
        ]
        for model in document["models"]
        for point in model["points"]
    ]
    header = ["model", "clients × rows", "requests/s", "of do-nothing", "÷ scikit-learn"]
    header += ["p50 µs", "over do-nothing, µs", "scikit-learn, p50 µs"]
    intro = "From request to answer on one Triton server, over gRPC, closed loop, 32 features, dynamic batching, one "
    intro += "instance each: ours, a model that does nothing, and scikit-learn's own predict in a Python backend"
    reading = [
        f"{point['clients']} × {point['rows']:,} {median_low(shares):.0%}" + spread(shares, ".0%")
        for model in document["models"]
        for point in model["points"]
        if (shares := point.get("reading_of_nothing_rounds"))
    ]
    least = (
        "A model that reads its rows, computes nothing and answers zeros reaches this share of the do-nothing model's "
    )
    least += f"requests: {', '.join(reading)}."
    found = f"{intro}{note(document)}:\n\n{table(header, 'llrrrrrr', rows)}"
    return f"{found}\n\n{least}" if reading else found


def fleets_section(document: Document, where: str) -> str:
    """Return what fleets take and answer beside one model's entry and a loop over scikit-learn's models."""
    rows = []
    for found in document["fleets"]:
        memory = found["memory"]
        over = [(memory["fleet"][kind] - memory["one_model"][kind]) / 1e6 for kind in ("gpu_bytes", "rss_bytes")]
        cells = [found["fleet"], f"{found['members']:,}", f"{found['export_s']:,.1f} ({found['export_cores']})"]
        cells += [f"{found['entry_bytes'] / 1e6:,.1f}", f"{memory['fleet']['load_s']:,.1f}"]
        cells += [f"{megabytes:+,.0f}" for megabytes in over]
        for number, point in enumerate(found["points"]):
            loop = point.get("loop")
            of_loop = "–" if loop is None else f"{point['fleet']['requests_per_s'] / loop['requests_per_s']:.1f}"
            rounds = point.get("rounds", "" if number else found["rounds"])  # those of all points in older results
            clients = [f"{rounds}", f"{point['clients']}", f"{point['fleet']['requests_per_s']:,.0f}"]
            clients += [f"{point['of_one_model']:.0%}", f"{point['p50_over_one_model_us']:+,.0f}"]
            for way in (point.get("fleet_joined"), point.get("fleet_by_number")):
                over = way and f"{way['p50_over_one_model_us']:+,.0f}"
                clients += [f"{way['of_one_model']:.0%}", over] if way else ["–", "–"]
            of_nothing = point.get("nothing_by_ids", {}).get("of_nothing")
            rows.append([*cells, *clients, "–" if of_nothing is None else f"{of_nothing:.0%}", of_loop])
            cells = [cells[0], *[""] * 6]
    header = ["fleet", "models", "export s (cores)", "entry MB", "load s", "GPU MB over one", "RSS MB over one"]
    header += ["rounds", "clients", "requests/s", "of one model's", "p50 over one model's, µs"]
    header += ["joined, of one model's", "joined, p50 over, µs"]
    header += ["by number, of one model's", "by number, p50 over, µs", "do-nothing, by ids", "÷ loop"]
    intro = "Fleets on one Triton server, one row a request that names a drawn model, over gRPC, closed loop, dynamic "
    intro += "batching, one instance each, beside an entry of one of the models and a Python-backend model with a dict "
    intro += "of the same scikit-learn estimators. Joined: the row and its id in one tensor, as Client sends them. By "
    intro += "number: the row and its model's number in one tensor. "
    intro += "Do-nothing, by ids: the throughput of a model that does nothing if its requests have ids as a second "
    intro += "tensor, as a share of that without them"
    intro += note(document)
    parts = [f"{intro}:", table(header, "l" + "r" * 17, rows)]
    busy = [f"{found['members']:,} {found['fleet']}" for found in document["fleets"] if found["busy_at_start"]]
    parts += [f"The machine was busy when these began: {', '.join(busy)}."] * bool(busy)
    parts += [_entries(found) for found in document["fleets"] if "entries" in found]
    if len(sizes(document)) > 1:
        parts.append(f"![Fleets by their number of models]({where}/fleets.png)")
    return "\n\n".join(parts)


def _entries(found: Document) -> str:
    """Return what as many entries of one model as fit take and answer beside the fleet, as a sentence."""
    entries, fleet = found["entries"], found["memory"]["fleet"]
    takes = [
        f"{entries['count']:,} entries",
        f"load in {entries['load_s']:,.0f} s",
        f"take {entries['gpu_bytes'] / 1e9:,.1f} GB of the GPU and {entries['rss_bytes'] / 1e9:,.1f} GB of memory",
    ]
    answers = []
    for point in found["points"]:
        clients, rate = point["clients"], point["entries"]["requests_per_s"]
        share = rate / point["fleet"]["requests_per_s"]
        answers.append(f"{rate:,.0f} a second from {clients} client{'s' * (clients > 1)}, {share:.0%} of the fleet's")
    return (
        f"Entries of one model each ({found['fleet']}) beside these{', as many as fit' if entries['full'] else ''}: "
        f"{', '.join(takes)}, "
        f"where the fleet of {found['members']:,} takes {fleet['gpu_bytes'] / 1e9:,.2f} GB and "
        f"{fleet['rss_bytes'] / 1e9:,.2f} GB. Requests to them in turn are answered at {'; '.join(answers)}."
    )


def scoring_section(document: Document, where: str) -> str:
    """Return how many rows a second are scored from files and from memory, beside scikit-learn's predict."""
    ways = ("files", "read", "tables", "predict", "matrix", "frame", "float64")
    rows = []
    for case in document["models"]:
        rates = case["rows_per_s"]
        cells = [f"{rates[way] / 1e3:,.0f}" for way in ways]
        cells += [f"{rates['read'] / rates[peer]:.2f}" for peer in ("predict", "matrix", "frame", "float64")]
        rows.append([case["title"], case["where"], *cells])
    header = ["model", "computed by", "files", "files, once read", "tables", "float64", "float32"]
    header += ["scikit-learn, tables", "scikit-learn, float64", "once read ÷ float64", "÷ float32"]
    header += ["÷ scikit-learn, tables", "÷ scikit-learn, float64"]
    intro = (
        "Rows scored without a server, thousands a second: from a .parquet of float64 to one of answers; the same once "
        "its rows are read; tables as pyarrow has read them, one by one; the same rows as a matrix of float64, and as "
        "the matrix of float32 that the entry takes. The estimator's own `predict` is timed on the same tables as "
        "DataFrames, and on the matrix of float64. On a CPU both compute in one thread, and the conversion of tables "
        "uses several; beside a GPU scikit-learn has all cores"
    )
    return f"{intro}{note(document)}:\n\n{table(header, 'll' + 'r' * 11, rows)}"


def several_gpus_section(document: Document, where: str) -> str:
    """Return the throughput of one GPU and of all with each model, and with the one that does nothing."""
    rows = [
        [
            model["title"],
            f"{point['clients']} × {point['rows']:,}",
            *(f"{rate:,.0f}" for rate in point["requests_per_s"].values()),
            f"{point['requests_per_s_of_best']:.2f} ×",
            f"{point['nothing_of_best']:.2f} ×",
        ]
        for model in document["models"]
        for point in model["points"]
    ]
    names = list(document["models"][0]["points"][0]["requests_per_s"])
    header = ["model", "clients × rows", *(f"requests/s, {name}" for name in names), "all ÷ best one", "do-nothing"]
    intro = (
        "One instance on each GPU, on one Triton server over gRPC, closed loop, 32 features. Every GPU answers with "
        "the same bits. The table shows the requests, and the same quotient for a model that does nothing, with one "
        "instance on the CPU for each GPU"
    )
    return f"{intro}{note(document)}:\n\n{table(header, 'll' + 'r' * (len(header) - 2), rows)}"


def startup_section(document: Document, where: str) -> str:
    """Return how long a server starts with each repository, without and with kernels compiled ahead."""
    rows = [
        [
            model["title"],
            *(
                f"{median(seconds):.1f}{spread(seconds, '.1f')}" if (seconds := model.get(key)) else "–"
                for key in ("empty_s", "ahead_s")
            ),
        ]
        for model in document["models"]
    ]
    header = ["repository", "kernels compiled at the start", "compiled ahead by docker/warm.py"]
    intro = "Seconds until a Triton server has loaded a repository and its entries have answered their golden rows"
    return f"{intro}{note(document)}:\n\n{table(header, 'lrr', rows)}"


def observer_section(document: Document, where: str) -> str:
    """Return the time that observing adds to a request."""
    rows = [
        [model["title"], f"{point['rows']:,}", microseconds(point["off_us"])]
        + [added(point[f"{mode}_adds_us"], point["off_us"]) for mode in ("sampled", "on")]
        for model in document["models"]
        for point in model["points"]
    ]
    header = ["model", "rows", "`observe` off, µs", "`sampled` adds", "`on` adds"]
    intro = "The time that `observe` adds to a request in one process, the median of rounds in turn and quartiles, µs"
    return f"{intro}{note(document)}:\n\n{table(header, 'lrrrr', rows)}"


def added(quartiles: Sequence[float], off: float) -> str:
    """Return the median of three quartiles with its share of a request's time, and the others in brackets."""
    low, middle, high = quartiles
    return f"{middle:+,.1f}, {middle / off:+.1%} ({low:+,.1f} to {high:+,.1f})"


def cost_of_fp64_served(document: Document) -> list[str]:
    """Return the cost of FP64 in a served model; nothing if it was not measured."""
    rows = [
        [
            model["title"],
            point["configuration"],
            f"{point['concurrency']}",
            optional(point["p50_of_fp32"], 1, ".2f") + spread(point["p50_of_fp32_rounds"], ".2f"),
            optional(point["requests_per_s_of_fp32"], 1, ".2f") + spread(point["requests_per_s_of_fp32_rounds"], ".2f"),
        ]
        for model in document["models"]
        for point in model.get("fp64_points", [])
    ]
    header = ["model", "configuration", "clients", "p50", "requests/s"]
    intro = "The same models with numbers in FP64, over FP32 in the same rounds:"
    return [intro, table(header, "llrrr", rows)] if rows else []


def share(point: Document) -> str:
    """Return a point's share of the do-nothing model's throughput, and the range of its rounds if there are more."""
    found = optional(point["throughput_of_floor"], 1, ".0%")
    return found + spread(point.get("throughput_of_floor_rounds", []), ".0%")


def spread(rounds: Sequence[float], form: str) -> str:
    """Return the range of ordered rounds in brackets, or nothing if there is one at most."""
    return f" ({rounds[0]:{form}}–{rounds[-1]:{form}})" if len(rounds) > 1 else ""
