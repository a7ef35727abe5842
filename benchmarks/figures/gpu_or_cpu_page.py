"""Makes docs/worth.md, and the table that `describe --advise` reads, from worth.json of a GPU and the prices."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.cpu.gpu_or_cpu import LONGEST_S
from benchmarks.cpu.libraries import ONNXRUNTIME, SCIKIT_LEARN
from benchmarks.cpu.predict import fastest
from benchmarks.figures.markdown import Document, microseconds, note, table
from benchmarks.models import FAMILIES
from benchmarks.timing import compared
from triton_regressors.advise import prices
from triton_regressors.advise.measured_models import TABLE, small_table

PAGE = Path(__file__).parents[2] / "docs" / "worth.md"
TRITON = "triton"
PEERS = (SCIKIT_LEARN, ONNXRUNTIME)
CHEAP = prices.GPUS[1]
CLOSE = 2
"""Two batch sizes are close enough to name the larger alone if it is at most this many times the smaller."""


def documents(results: Mapping[str, Mapping[str, Document]]) -> Iterator[tuple[str, Document]]:
    """Yield the directory and worth.json of each device with a GPU."""
    for name, found in results.items():
        if "worth" in found and found["worth"]["settings"]["engine"] == TRITON:
            yield name, found["worth"]


def models(document: Document) -> list[Document]:
    """Return the models of all families."""
    return [model for family in document["families"] for model in family["models"]]


def rate(model: Document, library: str) -> float | None:
    """Return the most rows per second that a library answers at any batch size, None if it was not measured."""
    rates = [
        point["rows"] / found["median_us"] * 1e6 for point in model["points"] if (found := fastest(point, library))
    ]
    return max(rates, default=None)


def compared_with(point: Document, peer: str) -> int | None:
    """Return 1 if the GPU is faster than a peer at one size, −1 if slower, 0 within their spread, None if unknown."""
    ours, other = fastest(point, TRITON), fastest(point, peer)
    return compared(ours, other) if ours and other else None


def worth_from(model: Document, peer: str) -> tuple[int, int] | None:
    """Return where the GPU becomes faster than a peer, by more than their spread, and stays so: two batch sizes.

    At the first, 0 if there is none, it is not faster, and from the second on it is. None if it is not at the largest.
    """
    found = None
    for point in sorted(model["points"], key=lambda point: point["rows"], reverse=True):  # type: ignore[no-any-return]
        sign = compared_with(point, peer)
        if sign is None:
            continue
        if sign < 1:
            return None if found is None else (point["rows"], found)
        found = point["rows"]
    return None if found is None else (0, found)


def ratio(model: Document, rows: int, peer: str) -> tuple[float, bool]:
    """Return a peer's time over the GPU's at one batch size, and whether the peer's was measured there.

    If it was left out as too long, the time of the largest batch before is scaled up; NaN if nothing is known.
    """
    times = {
        library: {point["rows"]: found["median_us"] for point in model["points"] if (found := fastest(point, library))}
        for library in (TRITON, peer)
    }
    ours, theirs = times[TRITON], times[peer]
    if rows not in ours or not theirs:
        return math.nan, False
    last = min(rows, max(theirs))
    return (theirs[last] * rows / last / ours[rows] if last in theirs else math.nan), rows in theirs


def why_not(model: Document, peer: str) -> str | None:
    """Return briefly why a peer has no times of a model, or None if it has some."""
    if rate(model, peer) is not None:
        return None
    return "does not convert" if peer in model["without"] else "answers wrong"


def cost(model: Document, library: str, usd_per_hour: float) -> float | None:
    """Return US dollars for a million rows at the library's best rate."""
    found = rate(model, library)
    return None if found is None else prices.usd_per_million(usd_per_hour, found)


def cheapest_cpu(model: Document) -> float:
    """Return US dollars for a million rows of the cheapest peer on a host without a GPU."""
    return min(usd for peer in PEERS if (usd := cost(model, peer, prices.CPU.usd_per_hour)) is not None)


def needed_share(model: Document, host: prices.Host) -> float:
    """Return the share of the measured GPU's rate from which on another host is cheaper than one without a GPU."""
    ours = rate(model, TRITON) or 0.0
    return prices.usd_per_million(host.usd_per_hour, ours) / cheapest_cpu(model)


def page(results: Mapping[str, Mapping[str, Document]]) -> str:
    """Return docs/worth.md."""
    found = [document for _, document in documents(results)]
    sections = [section(name, document) for name, document in documents(results)] or [NOTHING]
    longest = max((document["settings"]["longest_s"] for document in found), default=LONGEST_S)
    title, introduction = INTRODUCTION.replace("LONGEST", f"{longest}").split("\n\nIt depends", 1)
    answers = [linear(document) for document in found[:1]]
    return "\n\n".join([title, *filter(None, answers), f"It depends{introduction}", *sections, PRICES]) + "\n"


def linear(document: Document) -> str:
    """Return the answer to the question that this project began with, as far as the figures give it."""
    ridges = [model for family in document["families"] if family["family"] == "linear" for model in family["models"]]
    host = prices.price_of(document["environment"]["device"])
    if not ridges or host is None:
        return ""
    dearer = [(cost(model, TRITON, host.usd_per_hour) or math.nan) / cheapest_cpu(model) for model in ridges]
    if not min(dearer) > 1 or any(worth_from(model, ONNXRUNTIME) for model in ridges):
        return ""
    least, most = (f"{value:.0f}" for value in (min(dearer), max(dearer)))
    return (
        f"**Linear models do not pay on a GPU.** On an {document['environment']['device']} no Ridge that was measured "
        f"is faster than onnxruntime on {document['environment']['cores']} cores at the largest batches, and a million "
        f"rows cost {least} to {most} times as much. Serve them on a CPU."
    )


def section(name: str, document: Document) -> str:
    """Return what was measured on one device."""
    where = f"../benchmarks/results/{name}"
    device = document["environment"]["device"]
    host = prices.price_of(device)
    usd = host.usd_per_hour if host else prices.GPUS[-1].usd_per_hour
    rows = [
        [
            model["title"],
            *(latency(model, rows) for rows in (1, 1024, 65536)),
            *(since(model, peer) for peer in PEERS),
        ]
        for model in models(document)
    ]
    header = ["model", "1 row", "1,024 rows", "65,536 rows", *(f"faster than {peer}" for peer in PEERS)]
    money = [
        [
            model["title"],
            *(millions(rate(model, library)) for library in (TRITON, *PEERS)),
            prices.shown(prices.usd_per_million(usd, rate(model, TRITON) or math.nan)),
            prices.shown(cheapest_cpu(model)),
            f"{needed_share(model, CHEAP):.1%}" if needed_share(model, CHEAP) < 1 else "never",
        ]
        for model in models(document)
    ]
    costs = ["model", "GPU", *PEERS, f"$, {device.split()[-1]}", "$, CPU", f"{CHEAP.what} needs"]
    cores = document["environment"]["cores"]
    return "\n\n".join(
        [
            f"## Time: {device} against {cores} cores",
            "How many times faster the GPU answers; below 1 the CPU is ahead, ≈ differs by less than the spread of the "
            f"times, and ~ is by the peer's rate at the largest batch that was timed{note(document)}.",
            f"![Ratios of times by model and batch size]({where}/worth.png)",
            "The GPU's µs, and the number of rows in a call from which on it stays faster by more than the times' "
            "spread, which is how far the medians of the blocks of calls lie apart: one block that the machine held up "
            "makes it large. Where no size between two was measured, both are named:",
            table(header, "lrrrrr", rows),
            *missing(document),
            *wrong(document),
            f"## Money: {device} against {cores} cores",
            f"Millions of rows a second at the best batch size, what a million of them cost in dollars "
            f"(${usd:,.2f} an hour with the GPU, ${prices.CPU.usd_per_hour:,.3f} without), and which share of this "
            f"GPU's rate {'an' if CHEAP.what[0] in 'AL' else 'a'} {CHEAP.what} at ${CHEAP.usd_per_hour:,.2f} has to "
            "reach to be cheaper than the CPU:",
            table(costs, "lrrrrrr", money),
            f"![Dollars for a million rows by model]({where}/money.png)",
        ]
    )


def latency(model: Document, rows: int) -> str:
    """Return the GPU's time at one number of rows, or at the largest measured below it with that number."""
    at = {point["rows"]: found["median_us"] for point in model["points"] if (found := fastest(point, TRITON))}
    if rows in at:
        return microseconds(at[rows])
    return f"{microseconds(at[max(at)])} ({max(at):,} rows)"


def since(model: Document, peer: str) -> str:
    """Return the number of rows from which on the GPU is faster than a peer, in words."""
    reason = why_not(model, peer)
    if reason:
        return reason
    found = worth_from(model, peer)
    if found is None:
        last = [sign for point in model["points"] if (sign := compared_with(point, peer)) is not None][-1]
        return "never" if last < 0 else "not by more than the spread"
    slower, faster = found
    if not slower:
        return "always"
    return f"from {faster:,} rows" if faster <= CLOSE * slower else f"from between {slower:,} and {faster:,} rows"


def missing(document: Document) -> list[str]:
    """Return the sentence on families that were not measured, if any."""
    measured = {family["family"] for family in document["families"]}
    titles = [title for family, (title, _) in FAMILIES.items() if family not in measured]
    return [f"Not measured yet: {', '.join(titles)}."] if titles else []


def wrong(document: Document) -> list[str]:
    """Return the sentence on peers that answer wrong, if any."""
    said = [
        f"{model['title']}, {point['rows']:,} row{'s' * (point['rows'] != 1)}: {reason}"
        for model in models(document)
        for point in model["points"]
        for reason in point["wrong"].values()
    ]
    return ["Not timed, because the answers are wrong:", "\n".join(f"- {line}" for line in said)] if said else []


def millions(value: float | None) -> str:
    """Return rows per second in millions, two digits at least."""
    if value is None:
        return "–"
    found = value / 1e6
    return f"{found:,.0f}" if found >= 10 else f"{found:.1f}" if found >= 1 else f"{found:.2g}"


def wanted(results: Mapping[str, Mapping[str, Document]]) -> dict[Path, str]:
    """Return the contents of the files made from worth.json; the table only if a GPU was measured."""
    found = list(documents(results))
    table = {TABLE: json.dumps(small_table(found[0][1]), indent=1, ensure_ascii=False) + "\n"} if found else {}
    return {PAGE: page(results), **table}


def _prices() -> str:
    rows = [[host.instance, host.what, f"{host.usd_per_hour:,.3f}"] for host in (prices.CPU, *prices.GPUS)]
    return table(["instance", "with", "$ an hour"], "llr", rows)


INTRODUCTION = """# When does a GPU make sense?

Made by `python -m benchmarks.figures.tables`; do not edit.

It depends on the family, on the model's size and, above all, on how many rows come at a time. For one model, on your
machine, ask the model itself:

```python
import skops.io
from sklearn.datasets import load_diabetes
from sklearn.svm import SVR

table, target = load_diabetes(return_X_y=True, as_frame=True)
skops.io.dump(SVR().fit(table, target), "diabetes.skops")
```

```shell
triton-regressors describe diabetes.skops --advise
```

It times both engines and the estimator's own `predict` at 1 to 65,536 rows, and suggests engine, instances and batch
limit. Without a GPU it shows, beside this CPU's times, those of the measured model that is most like yours, and says
which that is. `--gpu-price` and `--cpu-price` take your own prices.

The figures below are host to host in one process: float32 rows in the caller's memory, answers in the caller's memory,
medians of warm calls. The GPU's include the search for NaN that an entry makes. scikit-learn is called on float64 and
on float32 rows, with the rows cut into a part for each core, each way also without its search for NaN
(`assume_finite`), and the fastest counts; onnxruntime has all cores, and the fastest graph that skl2onnx makes. A
library whose answers differ from scikit-learn's float64 `predict` by more than 0.01 standard deviations is not timed;
where a call would take more than LONGEST s, larger batches are left out.

What they do not say: a served request takes some 150 µs in the Triton server whatever the model, so that a millisecond
saved is felt there and ten microseconds are not. And a GPU host that waits for requests costs what a busy one costs:
the dollars below are for hosts that are never idle."""

NOTHING = """No figures are committed yet: `python -m benchmarks.cpu.gpu_or_cpu` measures them, on a host with a GPU."""

PRICES = f"""## Prices

{prices.AS_OF}, Linux, as published tables of others had them (those of p5 and p5en without a date). They
stand in `src/triton_regressors/advise/prices.py` alone. The H200's is an eighth of a host with eight. Rates of a T4,
an L4 or an A10G were not measured, which is why the table says what they need.

{_prices()}"""
