"""Renders docs/coverage.md from what docs/coverage.json holds; see docs/coverage.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sklearn.utils import all_estimators

from docs.coverage import (
    AUTO,
    ENGINES,
    FLOAT32,
    ROWS,
    TOLERANCE,
    TREE_TOLERANCE,
    TYPES,
    WRONG,
    Results,
    describe,
    family,
    missed_promise,
    missing,
    options,
    subject,
    walk,
)
from tests.exporter.cases import CASES
from tests.exporter.catalogue import ROWS as MADE_ROWS

PEERS = ("skl2onnx", "hummingbird-ml", "treelite")

NAMES = {"triton": "Triton language"}

INTRODUCTION = """# What is covered, measured

Made by `python -m docs.coverage write` from `docs/coverage.json`; do not edit.

Each row below is an answer of a case of the test catalogue (`tests/exporter/cases.py`): an estimator with its options,
fitted on small data, is compiled to a plan, and the plan's Triton-language kernels answer {rows} rows: half of them it
was fitted on, half are moved away from those, and may hold categories that it never saw. These rows are float64, as
users hold them. "Input" is what the exporter chooses for an entry's numbers: FP32 where rounding the rows to it moves
no answer, and else FP64. Both are measured, so that FP32 shows what it would cost where it is not chosen.

The error is the largest difference from the estimator's own answer to the float64 rows as given, in standard
deviations of its answers. Promised of the chosen type, and of FP64 always, are {tolerance} standard deviations ({trees}
where there are trees), or one unit in the last place of the float32 answer ("ulp") where that is more: then the ulp are
shown. Errors beyond it, which FP32 would make, are **bold**. "48 unsent": so many of a case's {made} rows hold what is
a category's number and FP32 would round, which the clients here refuse to send. "refused": so is the export, as two
categories are one number in FP32. "Kernels" is how many are launched for a batch of any size.

"float32 table" is of the same case fitted on a float32 table and asked all its {made} float32 rows, by plain torch: the
error from the estimator's own answers to these. "of float64": its float32 has no reproducible bits there, sums of
matrix products before a decision above all, and the entry answers what `predict` answers to the rows as float64; the
share is that of the rows whose own answers differ between the two types. "refused": the case cannot be fitted on
float32, or exported so.

A setting without a row is not known to fail: every export is measured against the estimator itself before anything is
written. Settings that are refused, and why, are in `tests/exporter/estimators/test_refusals_*.py`. Cases named
"strings-" read columns of strings; the kernels are given the numbers that an entry looks up for these.

{engines}

The peers convert the same fitted estimators and answer the same rows rounded to float32, for which most of their graphs
are made, and are compared with the estimator's answers to these; what they answer is compared as float32. Within
{wrong} standard deviations an answer counts as right, and its error is shown. "–": the peer does not convert the
estimator, or raises when asked. "WRONG": it answers, without an error or a warning that stops it, so many standard
deviations off ("shape": in a matrix of another shape; "NaN": not a number). "\\*": with a float64 graph, which is tried
where the float32 graph, the default, is not right. Why an answer is missing is in `docs/coverage.json`.
{peers}"""


def render(results: Results) -> str:
    """Return docs/coverage.md for these results."""
    parts = [_introduction(results), "## Summary", *_summary(results)]
    for before, heading in ((False, "Regressors"), (True, "Transformers before a linear model")):
        families: dict[str, list[str]] = {}
        for name in sorted(CASES):
            about, stands_before = subject(CASES[name].estimator)
            if stands_before is before:
                families.setdefault(family(about, before), []).append(name)
        for title, names in sorted(families.items()):
            parts += [f"## {heading}: {title.replace('_', ' ')}", _cases_table(results, names)]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Results) -> str:
    versions = {
        source: ", ".join(
            f"{NAMES.get(package, package)} {version}" for package, version in sorted(found.items()) if package != "GPU"
        )
        for source, found in results["versions"].items()
    }
    engines = [f"Measured {_by(results, engine)} ({versions[engine]})." for engine in ENGINES if engine in versions]
    return INTRODUCTION.format(
        rows=ROWS,
        made=MADE_ROWS,
        tolerance=_short(TOLERANCE),
        trees=_short(TREE_TOLERANCE),
        wrong=_short(WRONG),
        engines=" ".join(engines),
        peers=f"({versions['peers']}.)" if "peers" in versions else "(None was run.)",
    )


def _by(results: Results, engine: str) -> str:
    """Return on what an engine measured, in words."""
    if engine == "interpret":
        return "on a CPU by the Triton language's interpreter"
    return f"on an {results['versions'][engine]['GPU']}"


def _short(number: float) -> str:
    return f"{number:.0e}".replace("e-0", "e-")


def _summary(results: Results) -> Iterator[str]:
    """Yield the counts, and what is not covered."""
    tools = ("ours", *PEERS)
    states = {tool: {key: state(figures, tool) for key, figures in _answers(results)} for tool in tools}
    rows = []
    for kind in ("regressor", "transformer"):
        names = {name for name, _ in all_estimators(type_filter=kind)}
        counts = [len(names & _classes_right(states[tool])) for tool in tools]
        rows.append([f"{kind}s, of scikit-learn's {len(names)}, in a case answered right", *map(str, counts)])
    counters = [Counter(states[tool].values()) for tool in tools]
    for name, text in STATES.items():
        if any(counter[name] for counter in counters):
            rows.append([f"{text}, of {len(states['ours'])} answers", *(str(counter[name]) for counter in counters)])
    yield table(["", "this project", *PEERS], rows, numbers=range(1, len(tools) + 1))
    yield _of_types(results)
    yield _of_float32(results)
    parts = [part for case in CASES.values() for part in walk(case.estimator)]
    settings = options(parts)
    yield (
        f"{len(CASES)} cases with {len({type(part) for part in parts})} classes, whose options are away from their "
        f"defaults in {len({setting[:2] for setting in settings})} places, with {len(settings)} values."
    )
    for kind in ("regressor", "transformer"):
        if absent := missing(kind):
            yield f"The {kind}s that no case has{' before a regressor' if kind == 'transformer' else ''}:"
            yield "\n".join(f"- {name}: {reason or 'not supported'}" for name, reason in absent.items())


def _of_types(results: Results) -> str:
    """Return how often each type is chosen, and how many of the answers FP32 would miss where it is not."""
    found = [next(figures[engine] for engine in ENGINES if engine in figures) for _, figures in _answers(results)]
    counts = Counter(each[AUTO] for each in found)
    chosen = ", ".join(f"{kind} for {number:,}" for kind, number in counts.most_common())
    rounded = [each["FP32"] for each in found if each[AUTO] != "FP32"]
    missed = sum(isinstance(figures, str) or bool(missed_promise(figures)) for figures in rounded)
    unsent = sum("unsent" in figures for figures in rounded)
    return (
        f"The exporter chooses {chosen} (BYTES: strings and no numbers). If the answers that are not in FP32 were, "
        f"{missed} of them would miss their promise on the measured rows. {unsent} have rows with categories that FP32 "
        "cannot hold. The others would miss it on other rows of the case, or beside the model's own thresholds."
    )


def _of_float32(results: Results) -> str:
    """Return how many answers to float32 tables are the estimator's own."""
    found = [figures[FLOAT32] for _, figures in _answers(results) if isinstance(figures.get(FLOAT32), Mapping)]
    own = [figures for figures in found if figures["own"]]
    kept = sum(not missed_promise(figures) for figures in own)
    return (
        f"{len(found):,} answers are to float32 tables. {len(own):,} of them are compared with the estimator's own "
        f"float32 answers, and {kept:,} are within the promise. The other {len(found) - len(own):,} are compared with "
        "its answers to the same rows as float64."
    )


def _answers(results: Results) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each case and output that was measured, with the figures of each engine and peer by its name."""
    for name, case in results["cases"].items():
        measured = [engine for engine in ENGINES if engine in case]
        for output in case[measured[0]]["FP64"]:
            engines = {engine: _of_output(case[engine], output) for engine in measured}
            peers = {peer: found[output] for peer, found in case.get("peers", {}).items()}
            single = case.get(FLOAT32, {})
            ours = {FLOAT32: single if isinstance(single, str) else single.get(output)} if single else {}
            yield (name, output), {**engines, **ours, **peers}


def _of_output(found: Mapping[str, Any], output: str) -> dict[str, Any]:
    """Return what an engine found for one output: the choice under AUTO, and the figures, or a refusal, by type."""
    return {name: value if isinstance(value, str) else value[output] for name, value in found.items()}


def _classes_right(states: Mapping[tuple[str, str], str]) -> set[str]:
    """Return the names of the classes in a case whose `y` is right."""
    right = [name for (name, output), state in states.items() if output == "y" and state == "right"]
    return {type(part).__name__ for name in right for part in walk(CASES[name].estimator)}


STATES = {
    "right": "right",
    "wrong": "silently wrong",
    "wrong32": "silently wrong, though right with a float64 graph",
    "none": "does not convert, or raises",
    "absent": "not run",
}


def state(figures: Mapping[str, Any], tool: str) -> str:
    """Return what became of an answer, one of STATES."""
    if tool == "ours":
        return "wrong" if any(map(_misses, (figures[engine] for engine in ENGINES if engine in figures))) else "right"
    if tool not in figures:
        return "absent"
    default, double = (figures[tool].get(graph, "") for graph in ("float32", "float64"))
    if is_wrong(default):
        return "wrong32" if is_right(double) else "wrong"
    return "right" if is_right(default) or is_right(double) else "wrong" if is_wrong(double) else "none"


def _misses(found: Mapping[str, Any]) -> bool:
    """Whether an answer is beyond its promise in the chosen type or in FP64."""
    return any(missed_promise(found[name]) for name in (found[AUTO], "FP64"))


def is_right(found: float | str | None) -> bool:
    """Whether an answer came and was within WRONG."""
    return isinstance(found, float) and found <= WRONG


def is_wrong(found: float | str | None) -> bool:
    """Whether an answer came and was not right: too far away, not finite, or of another shape than the expectation."""
    return found is None or (isinstance(found, float) and found > WRONG) or str(found).startswith("shape")


def cell(figures: Mapping[str, Any], peer: str) -> str:
    """Return what a peer's column says of an answer."""
    found = state(figures, peer)
    if found in ("none", "absent"):
        return {"none": "–", "absent": "not run"}[found]
    graphs = [figures[peer].get("float32", ""), figures[peer].get("float64", "")]
    texts = []
    for graph, mark in zip(graphs, ("", "*"), strict=True):
        if is_right(graph):
            texts.append(f"{_error(graph)}{mark}")
        elif is_wrong(graph):
            off = "NaN" if graph is None else f"{graph:.0e}" if isinstance(graph, float) else "shape"
            texts.append(f"WRONG {off}{mark}")
    return ", ".join(texts)


def _cases_table(results: Results, names: Sequence[str]) -> str:
    """Return the table of these cases, a row for each output."""
    engines = [engine for engine in ENGINES if engine in results["versions"]]
    measured = [name if engine == "interpret" else f"{name}, GPU" for engine in engines for name in TYPES]
    rows = []
    for (name, output), figures in _answers({"cases": {name: results["cases"][name] for name in names}}):
        ours = [figures.get(engine, {}) for engine in engines]
        errors = [error_cell(found.get(kind)) for found in ours for kind in TYPES]
        choice = next(found[AUTO] for found in ours if found)
        launches = next(str(found[choice]["launches"]) for found in ours if found)
        what = shortened(describe(CASES[name].estimator)).replace("|", "\\|")
        title = name if output == "y" else f"{name}, {output}"
        errors.append(float32_cell(figures.get(FLOAT32)))
        rows.append([title, f"`{what}`", choice, *errors, launches, *(cell(figures, peer) for peer in PEERS)])
    head = ["case", "estimator", "input", *measured, "float32 table", "kernels", *PEERS]
    return table(head, rows, numbers=range(3, 5 + len(measured)))


def _error(number: float) -> str:
    return f"{number:.0e}" if number else "0"


def error_cell(figures: Mapping[str, Any] | str | None) -> str:
    """Return what a type's column says: the error, bold where it misses the promise, and why it passed."""
    if figures is None:
        return ""
    if isinstance(figures, str):
        return "refused"
    text = "NaN" if figures["error"] is None else _error(figures["error"])
    if missed_promise(figures):
        text = f"**{text}**"
    elif figures["error"] > TOLERANCE:
        text += f" ({figures['ulp']:g} ulp)"
    return f"{text}, {figures['unsent']} unsent" if "unsent" in figures else text


def float32_cell(figures: Mapping[str, Any] | str | None) -> str:
    """Return what the column of float32 tables says: the error, and whose rows' answers it is measured from."""
    text = error_cell(figures)
    if figures is None or isinstance(figures, str) or figures["own"]:
        return text
    return f"{text} of float64, {100 * figures['moved']:.2g} % move"


def shortened(text: str, width: int = 100) -> str:
    """Return the text, cut to so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int]) -> str:
    """Return an aligned table, the columns of numbers to the right."""
    right = set(numbers)
    widths = [max(3, *(len(row[column]) for row in [head, *rows])) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + (":" if i in right else "-") for i, width in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)])
