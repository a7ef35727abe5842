"""Renders docs/coverage.md from docs/coverage.json; see docs/coverage.py."""

from __future__ import annotations

import re
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
from docs.coverage_contributions import BACKGROUND_ROWS, CONTRIBUTIONS, PERMUTATIONS
from tests.exporter.catalogue.case import ROWS as MADE_ROWS
from tests.exporter.catalogue.cases import CASES

PEERS = ("skl2onnx", "hummingbird-ml", "treelite")

NAMES = {"triton": "Triton language"}

INTRODUCTION = """# What is covered, measured

Made by `python -m docs.coverage write` from `docs/coverage.json`; do not edit.

Each row below is an answer of a case of the catalogue (`tests/exporter/catalogue/`): an estimator with its options,
fitted on small data, is compiled to a plan, and the plan's Triton-language kernels answer {rows} rows. The estimator
was fitted on half of these rows; the other half are moved away from them, and may hold categories that it never saw.
The rows are float64, as users hold them. "Input" is the exporter's choice for an entry's numbers: FP32 if rounding the
rows to it moves no answer, otherwise FP64. Both are measured, so the FP32 column shows the error even if FP32 is not
chosen.

The error is the largest difference from the estimator's own answer to the float64 rows as given, in standard
deviations of its answers. The promise, for the chosen type and always for FP64, is {tolerance} standard deviations
({trees} for trees), or one unit in the last place of the float32 answer ("ulp") if that is more: then the ulp are
shown. Errors of FP32 beyond the promise are **bold**. "48 unsent": 48 of a case's {made} rows hold a category's number
that FP32 would round, and that clients therefore refuse to send. "refused": the export is refused, since two categories
are one number in FP32. "Kernels" is the number of launches for a batch of any size.

"float32 table" is for the same case fitted on a float32 table, with answers to all its {made} float32 rows by plain
torch: the error from the estimator's own answers to these. "of float64": the estimator's float32 answers have no
reproducible bits, mostly because of sums of matrix products before a decision, so the entry gives the answers of
`predict` to the rows as float64. The share is the share of rows whose own answers differ between the two types.
"refused": the case cannot be fitted on float32, or the export is refused.

"Contributions" says how the output `contributions` of the case is computed: the Shapley values of the columns of the
user's own table, against a background of {background} of the case's rows, exact but for "permutations". "sum": a sum of
numbers, or of products of numbers, that depend on one column each. "trees": products over the columns that each leaf
asks for. "points": a product over the columns for each stored point. "definition": the model itself for all coalitions
of the columns. "permutations": the same for the coalitions that some orders of the columns go through, an estimate with
its standard error. "path": the path-dependent game of the trees can be had too. "–" with a number: the export is
refused for the reason of this number, listed below the summary. At each export the values in float64 are held to the
margin and exact ones to the definition, and the served values to those in float64; `docs/coverage.json` has the errors.

A setting without a row is not known to fail: every export is measured against the estimator itself before anything is
written. `tests/exporter/estimators/test_refusals_*.py` has the settings that are refused, and the reasons. Cases named
"strings-" read columns of strings; the kernels get the numbers that an entry looks up for these.

{engines}

The peers convert the same fitted estimators and answer the same rows rounded to float32, for which most of their graphs
are made. Their answers are rounded to float32 and compared with the estimator's answers to these rows. Within {wrong}
standard deviations an answer counts as right, and its error is shown. "–": the peer does not convert the estimator, or
raises when asked. "WRONG": without an error or a warning that stops it, it answers this many standard deviations off
("shape": in a matrix of another shape; "NaN": not a number). "\\*": the answer of a float64 graph, which is tried if
the float32 graph, the default, is not right. `docs/coverage.json` has the reasons for missing answers.
{peers}"""


def render(results: Results) -> str:
    """Return docs/coverage.md for these results."""
    parts = [_introduction(results), "## Summary", *_summary(results)]
    for before, heading in ((False, "Regressors"), (True, "Transformers before a linear model")):
        families: dict[str, list[str]] = {}
        for name in sorted(CASES):
            given = CASES[name].estimator
            known = hasattr(given, "predict") or hasattr(given, "transform")  # others stand for what their fit makes
            about, stands_before = subject(given if known else CASES[name].fitted()[0])
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
        background=BACKGROUND_ROWS,
        wrong=_short(WRONG),
        engines=" ".join(engines),
        peers=f"({versions['peers']}.)" if "peers" in versions else "(None was run.)",
    )


def _by(results: Results, engine: str) -> str:
    """Return the device and the way of an engine's measurement, in words."""
    if engine == "interpret":
        return "on a CPU by the Triton language's interpreter"
    return f"on an {results['versions'][engine]['GPU']}"


def _short(number: float) -> str:
    return f"{number:.0e}".replace("e-0", "e-")


def _summary(results: Results) -> Iterator[str]:
    """Yield the counts, and the estimators that are not covered."""
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
    yield _of_contributions(results)
    if reasons := refused_contributions(results):
        yield "Contributions are refused for these reasons:"
        yield "\n".join(f"{number}. {reason}" for reason, number in reasons.items())
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
    """Return how often each type is chosen, and how many answers would miss their promise in FP32 if it is not."""
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
    """Return how many answers to float32 tables are compared with the estimator's own float32 answers."""
    found = [figures[FLOAT32] for _, figures in _answers(results) if isinstance(figures.get(FLOAT32), Mapping)]
    own = [figures for figures in found if figures["own"]]
    kept = sum(not missed_promise(figures) for figures in own)
    return (
        f"{len(found):,} answers are to float32 tables. {len(own):,} of them are compared with the estimator's own "
        f"float32 answers, and {kept:,} are within the promise. The other {len(found) - len(own):,} are compared with "
        "its answers to the same rows as float64."
    )


def _of_contributions(results: Results) -> str:
    """Return how many cases have contributions, in which ways, and their largest error."""
    found = [case[CONTRIBUTIONS] for case in results["cases"].values() if CONTRIBUTIONS in case]
    served = [games["background"] for games in found if not isinstance(games["background"], str)]
    estimated = [figures["estimated"] for figures in served if "estimated" in figures]
    ways = Counter(_ways(figures["how"]) for figures in served if "estimated" not in figures).most_common()
    paths = [games["path"] for games in found if not isinstance(games.get("path", ""), str)]
    error = max((contributions_error(figures) for figures in served + paths), default=0.0)
    return (
        f"{len(served) - len(estimated):,} of {len(found):,} cases have exact contributions against a background "
        f"({', '.join(f'{way} {count:,}' for way, count in ways)}), and {len(paths):,} by the paths of their trees. "
        f"{len(estimated):,} cases have estimates by permutations, whose standard errors are at most "
        f"{_error(max(estimated, default=0.0))} standard deviations of the answers. The largest error of a served "
        f"contribution, from its value in float64, is {_error(error)} standard deviations, or one unit in its last "
        "place if that is more."
    )


def contributions_error(figures: Mapping[str, Any]) -> float:
    """Return the error of contributions that counts: beyond one unit in the last place if that is more."""
    return float("nan") if figures["error"] is None else float(figures.get("excess", figures["error"]))


def refused_contributions(results: Results) -> dict[str, int]:
    """Return the reasons why contributions against a background are refused, and their numbers in the page."""
    found = (case.get(CONTRIBUTIONS, {}).get("background") for case in results["cases"].values())
    reasons = sorted({refusal(figures) for figures in found if isinstance(figures, str)})
    return {reason: number for number, reason in enumerate(reasons, 1)}


def refusal(message: str) -> str:
    """Return the reason that an exporter's message gives, without the name of the model."""
    return re.sub(r"^Cannot export \w+ with contributions: ", "", message).rstrip(".")


def contributions_cell(figures: Mapping[str, Any] | None, reasons: Mapping[str, int]) -> str:
    """Return the text of the column of contributions: how they are computed, or the number of the reason."""
    if figures is None:
        return ""
    background = figures["background"]
    if isinstance(background, str):
        return f"– ({reasons[refusal(background)]})"
    path = "path" in figures and not isinstance(figures["path"], str)
    exact = "" if PERMUTATIONS in background["how"] else "exact, "
    return f"{exact}{_ways(background['how'])}{', path' if path else ''}"


def _ways(how: Sequence[str]) -> str:
    return " + ".join(how)


def _answers(results: Results) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each measured case and output, with the figures of each engine and peer by name."""
    for name, case in results["cases"].items():
        measured = [engine for engine in ENGINES if engine in case]
        for output in case[measured[0]]["FP64"]:
            engines = {engine: _of_output(case[engine], output) for engine in measured}
            peers = {peer: found[output] for peer, found in case.get("peers", {}).items()}
            single = case.get(FLOAT32, {})
            ours = {FLOAT32: single if isinstance(single, str) else single.get(output)} if single else {}
            yield (name, output), {**engines, **ours, **peers}


def _of_output(found: Mapping[str, Any], output: str) -> dict[str, Any]:
    """Return an engine's results for one output: the choice under AUTO, and the figures, or a refusal, by type."""
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
    """Return the state of an answer, one of STATES."""
    if tool == "ours":
        return "wrong" if any(map(_misses, (figures[engine] for engine in ENGINES if engine in figures))) else "right"
    if tool not in figures:
        return "absent"
    default, double = (figures[tool].get(graph, "") for graph in ("float32", "float64"))
    if is_wrong(default):
        return "wrong32" if is_right(double) else "wrong"
    return "right" if is_right(default) or is_right(double) else "wrong" if is_wrong(double) else "none"


def _misses(found: Mapping[str, Any]) -> bool:
    """Return whether an answer is beyond its promise in the chosen type or in FP64."""
    return any(missed_promise(found[name]) for name in (found[AUTO], "FP64"))


def is_right(found: float | str | None) -> bool:
    """Return whether there is an answer with an error of at most WRONG."""
    return isinstance(found, float) and found <= WRONG


def is_wrong(found: float | str | None) -> bool:
    """Return whether there is an answer that is not right: too far off, not finite, or of another shape."""
    return found is None or (isinstance(found, float) and found > WRONG) or str(found).startswith("shape")


def cell(figures: Mapping[str, Any], peer: str) -> str:
    """Return the text of a peer's column for an answer."""
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
    engines, reasons = [engine for engine in ENGINES if engine in results["versions"]], refused_contributions(results)
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
        explained = contributions_cell(results["cases"][name].get(CONTRIBUTIONS) if output == "y" else None, reasons)
        rows.append(
            [title, f"`{what}`", choice, *errors, launches, explained, *(cell(figures, peer) for peer in PEERS)]
        )
    head = ["case", "estimator", "input", *measured, "float32 table", "kernels", "contributions", *PEERS]
    return table(head, rows, numbers=range(3, 5 + len(measured)))


def _error(number: float) -> str:
    return f"{number:.0e}" if number else "0"


def error_cell(figures: Mapping[str, Any] | str | None) -> str:
    """Return the text of a type's column: the error, bold if it misses the promise, and the reason if it passed."""
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
    """Return the text of the column of float32 tables: the error, and the answers from which it is measured."""
    text = error_cell(figures)
    if figures is None or isinstance(figures, str) or figures["own"]:
        return text
    return f"{text} of float64, {100 * figures['moved']:.2g} % move"


def shortened(text: str, width: int = 100) -> str:
    """Return the text, cut to a number of characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int]) -> str:
    """Return an aligned table, with columns of numbers aligned to the right."""
    right = set(numbers)
    widths = [max(3, *(len(row[column]) for row in [head, *rows])) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + (":" if i in right else "-") for i, width in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)])
