"""Measures every case of the test catalogue and renders the table of all that is covered.

    python -m docs.coverage measure                  run every case's kernels and write docs/coverage.json
    python -m docs.coverage measure --only 'ridge*'  only these cases
    python -m docs.coverage measure --missing        only cases that this engine has not measured yet
    python -m docs.coverage float32                  fit and ask every case with float32 tables; --only, --missing too
    python -m docs.coverage contributions            export every case with contributions; --only, --missing too
    python -m docs.coverage write                    render docs/coverage.md from docs/coverage.json
    python -m docs.peers                             measure other tools on the same cases (see there)

Each case is compiled for the types of numbers that the exporter chooses by itself, for FP32 and for FP64. Its kernels
run the plan, on a GPU if there is one, otherwise through the Triton language's interpreter. The answers to rows rounded
to that type are compared with the estimator's own to the float64 rows as given. Figures that a run does not measure are
kept. Measuring only needs torch, triton, numpy, safetensors, scikit-learn and pandas.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import inspect
import itertools
import json
import math
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import all_estimators, get_tags

from tests.exporter.catalogue.case import ROWS as MADE_ROWS
from tests.exporter.catalogue.cases import CASES, Case

if TYPE_CHECKING:
    from triton_regressors.exporter.compile import Compilation
    from triton_regressors.kernels.format.inputs import Inputs

RESULTS = Path(__file__).parent / "coverage.json"
PAGE = Path(__file__).parent / "coverage.md"

ROWS = 24
"""The number of a case's rows that are measured."""

TYPES = ("FP32", "FP64")
"""The types of an entry's numbers; `AUTO` holds the exporter's choice."""

AUTO = "auto"

FLOAT32 = "float32"
"""The source of the figures for float32 tables."""

TOLERANCE = 1e-5
TREE_TOLERANCE = 1e-6
"""The promised error in standard deviations, or one unit in the last place of the float32 answer if it is more."""

TREES = {"symmetric_trees", "tree_ensemble"}
"""The operations to which the tolerance of trees applies."""

WRONG = 1e-3
"""A peer's answer with a larger error, in standard deviations, is called wrong."""

ENGINES = ("interpret", "triton")
UNFITTED = ("drop", "passthrough")
SMALL_ARRAY = 8
RECORDED_AT_ONCE = 100
PACKAGES = ("numpy", "scikit-learn", "torch", "triton")

Results = dict[str, Any]


# The results


def read_results() -> Results:
    """Return the contents of docs/coverage.json: `versions` by source, and `cases` by name."""
    if not RESULTS.exists():
        return {"versions": {}, "cases": {}}
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def record(source: str, versions: Mapping[str, str], found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a source's figures (an engine's, or the peers') for some cases into docs/coverage.json, a line for each.

    Cases that the catalogue no longer has are dropped, as are the other figures of a case whose estimator has changed.
    """
    results = read_results()
    results["versions"].setdefault(source, {}).update(versions)
    cases = {name: case for name, case in results["cases"].items() if name in CASES}
    for name, value in found.items():
        what = describe(CASES[name].estimator)
        if cases.get(name, {}).get("what") != what:
            cases[name] = {"what": what}
        cases[name][source] = {**cases[name].get(source, {}), **value} if source == "peers" else value
    entries = ((name, json.dumps(cases[name], sort_keys=True, ensure_ascii=False)) for name in sorted(cases))
    body = ",\n".join(f'  "{name}": {case}' for name, case in entries)
    head = json.dumps(results["versions"], indent=1, sort_keys=True).replace("\n", "\n ")
    RESULTS.write_text(f'{{\n "cases": {{\n{body}\n }},\n "versions": {head}\n}}\n', encoding="utf-8")


def outdated(results: Results) -> list[str]:
    """Return the cases without figures of an engine for their present form, or that the catalogue no longer has."""
    current = set[str]().union(*(measured_as_they_are(results, engine) for engine in ENGINES))
    return sorted((results["cases"].keys() | CASES.keys()) - current)


def measured_as_they_are(results: Results, engine: str) -> set[str]:
    """Return the cases of the catalogue whose present estimator this engine has measured."""
    cases = results["cases"]
    return {
        name
        for name, case in CASES.items()
        if engine in cases.get(name, {}) and cases[name]["what"] == describe(case.estimator)
    }


def rounded(value: float) -> float | None:
    """Return the number with two digits, or None if it is not finite."""
    return float(f"{value:.1e}") if math.isfinite(value) else None


def show_progress(number: int, total: int, start: float) -> None:
    """Print now and then the progress of a run that began at `start`."""
    if number % 50 == 0 or number == total:
        print(f"{number} of {total} cases, {time.monotonic() - start:.0f} s", file=sys.stderr)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed versions, without the build."""
    return {package: importlib.metadata.version(package).partition("+")[0] for package in packages}


# Measuring


def measure_case(case: Case, engine: str) -> dict[str, Any]:
    """Return the type of a case's numbers under AUTO, and its figures by type: for this choice, and for TYPES.

    The figures are by output, see `_figures`. If the exporter refuses a type, its reason stands in their place.
    """
    from triton_regressors.exporter.compile import compile_estimator
    from triton_regressors.exporter.errors import ExportError

    estimator, X = case.fitted()
    chosen = compile_estimator(estimator, sample=X)
    choice = type_of(chosen.inputs)
    found = {AUTO: choice, choice: _figures(chosen, engine)}
    for name in TYPES:
        if name != choice:
            try:
                found[name] = _figures(compile_estimator(estimator, sample=X, input=name.lower()), engine)
            except ExportError as refusal:
                found[name] = str(refusal)
    return found


def type_of(inputs: Inputs) -> str:
    """Return the type of numbers: "FP32", "FP64", "FP32 and INT64", or "BYTES" if there are none."""
    kinds = dict.fromkeys(inputs.datatypes().values())
    return " and ".join(kind for kind in kinds if kind != "BYTES") or "BYTES"


def _figures(compilation: Compilation, engine: str) -> dict[str, dict[str, Any]]:
    """Return for each output its largest error, also in ulp, the kernels launched and the operations.

    `unsent` is the number of rows that a client refuses to send because the type cannot hold a category; it is left out
    if there are none.
    """
    from triton_regressors.kernels.engine.runner import Runner
    from triton_regressors.kernels.format.parity import measure

    plan, sample = compilation.plan, compilation.sample
    unsent = MADE_ROWS - len(sample.X)
    found = Runner(plan, engine=engine, max_rows=ROWS).predict(sample.X[:ROWS], tuple(plan.outputs))
    figures = {}
    for output, expected in sample.expected.items():
        parity = measure(found[output], expected[:ROWS], sample.units[output])
        steps = plan.steps_for((output,))
        figures[output] = {
            "error": rounded(parity.max_error),
            "ulp": rounded(parity.max_ulp),
            "launches": sum(step.launches() for step in steps),
            "ops": [step.operation.kind() for step in steps],
            **({"unsent": unsent} if unsent else {}),
        }
    return figures


def float32_case(case: Case) -> dict[str, Any] | str:
    """Return a case's figures by output for a float32 table, on which it is fitted and asked, or why there are none.

    The error is that of the plan, computed by plain torch. With `own` it is the error from the estimator's own answers
    to the float32 rows. Otherwise it is the error from its answers to these rows as float64, and `moved` is the share
    of rows whose answers differ between the two.
    """
    from sklearn.base import clone

    from triton_regressors.exporter.compile import compile_estimator
    from triton_regressors.exporter.errors import ExportError

    X, y = case.data()
    try:
        estimator = case.after_fit(clone(case.estimator).fit(_single(X), y))
    except (TypeError, ValueError) as error:
        return f"it cannot be fitted on float32: {str(error).splitlines()[0]}"
    try:
        compilation = compile_estimator(estimator, sample=_single(case.fitted()[1]))
    except ExportError as refusal:
        return str(refusal)
    report = compilation.report
    own = report.float32 is None or report.float32.answered
    moved = 0.0 if own or report.float32 is None else report.float32.moved / report.float32.rows
    ops = [step.operation.kind() for step in compilation.plan.steps]
    return {
        output: {
            "error": rounded(found.max_error),
            "ulp": rounded(found.max_ulp),
            "ops": ops,
            "own": own,
            **({} if own else {"moved": rounded(moved)}),
        }
        for output, found in report.outputs.items()
    }


def _single(X: Any) -> Any:
    """Return a table with its floats as float32."""
    if not hasattr(X, "columns"):
        return X.astype(np.float32) if np.asarray(X).dtype.kind == "f" else X
    floats = [name for name, dtype in X.dtypes.items() if dtype == np.float64]
    return X.astype(dict.fromkeys(floats, np.float32))


def measure_float32(pattern: str, *, missing: bool = False) -> int:
    """Measure the cases whose names match with float32 tables; return how many ended in an error."""
    return measure_beside(FLOAT32, _float32_named, pattern, missing)


def _float32_named(name: str) -> tuple[str, dict[str, Any] | str | None]:
    """Return a case's name and its figures for a float32 table, None if it ended in another error."""
    return name, quietly(float32_case, name)


def measure_beside(
    source: str, measure: Callable[[str], tuple[str, dict[str, Any] | str | None]], pattern: str, missing: bool
) -> int:
    """Record a source's figures of the cases whose names match; return how many ended in an error."""
    cases = read_results()["cases"]
    done = {name for name, case in cases.items() if source in case} if missing else set()
    names = [name for name in sorted(CASES) if fnmatch.fnmatch(name, pattern) and name not in done]
    found: dict[str, Any] = {}
    failed, start = 0, time.monotonic()
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for number, (name, figures) in enumerate(processes.map(measure, names), 1):
            if figures is None:
                failed += 1
                print(f"{name}: an error", file=sys.stderr)
            else:
                found[name] = figures
            if number % RECORDED_AT_ONCE == 0 or number == len(names):
                record(source, versions_of(PACKAGES[:-1]), found)
                found = {}
            show_progress(number, len(names), start)
    print(f"{len(names) - failed} cases measured, {failed} failed.")
    return failed


def quietly(measure: Callable[[Case], dict[str, Any] | str], name: str) -> dict[str, Any] | str | None:
    """Return a case's figures, None if it ended in an error, which is printed."""
    import torch

    torch.set_num_threads(1)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return measure(CASES[name])
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            return None


def measure_cases(pattern: str, *, missing: bool = False) -> int:
    """Measure the cases whose names match, record the figures, and return how many could not be measured.

    `missing`: leave out cases that this machine's engine has measured in their present form.
    """
    import torch

    engine = "triton" if torch.cuda.is_available() else "interpret"
    if engine == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before the exporter is imported
    done = measured_as_they_are(read_results(), engine) if missing else set()
    names = [name for name in sorted(CASES) if fnmatch.fnmatch(name, pattern) and name not in done]
    versions = versions_of(PACKAGES)
    if engine == "triton":
        versions["GPU"] = torch.cuda.get_device_name()
    found: dict[str, Any] = {}
    failed = 0
    start = time.monotonic()
    # Nearly all of the time goes into compiling kernels, or into interpreting them.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        measured = processes.map(_measure_named, names, itertools.repeat(engine))
        for number, (name, figures) in enumerate(zip(names, measured, strict=True), 1):
            if isinstance(figures, str):
                failed += 1
                print(f"{name}: {figures}", file=sys.stderr)
            else:
                found[name] = figures
                for miss in missed_promises(figures):
                    print(f"{name}, {miss}")
            if number % RECORDED_AT_ONCE == 0 or number == len(names):
                record(engine, versions, found)
                found = {}
            show_progress(number, len(names), start)
    print(f"{len(names) - failed} cases measured, {failed} failed.")
    return failed


def _measure_named(name: str, engine: str) -> dict[str, Any] | str:
    """Return a case's figures, or why there are none."""
    import torch

    torch.set_num_threads(1)
    with np.errstate(all="ignore"), warnings.catch_warnings():  # the interpreter computes masked elements too
        warnings.simplefilter("ignore")
        try:
            return measure_case(CASES[name], engine)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def missed_promise(figures: Mapping[str, Any]) -> str:
    """Return the promise that an output's figures miss, or an empty string."""
    tolerance = TREE_TOLERANCE if TREES.intersection(figures["ops"]) else TOLERANCE
    if None in (figures["error"], figures["ulp"]):
        return "the answer is not finite"
    if figures["error"] <= tolerance or figures["ulp"] <= 1:
        return ""
    return f"{figures['error']:.1e} std and {figures['ulp']:.1f} ulp, more than {tolerance:.0e} std"


def missed_promises(found: Mapping[str, Any]) -> list[str]:
    """Return the outputs in the results of `measure_case` that miss their promise, in the chosen type and in FP64."""
    return [
        f"{output}, {name}: {miss}"
        for name in dict.fromkeys((found[AUTO], "FP64"))
        for output, figures in found[name].items()
        if (miss := missed_promise(figures))
    ]


# The subject of a case


def describe(thing: Any) -> str:
    """Return an estimator, or an option's value, in one line: options away from defaults, a Pipeline with arrows."""
    if isinstance(thing, Pipeline):
        return " → ".join(describe(step) for _, step in thing.steps)
    if isinstance(thing, BaseEstimator):
        changed = (f"{name}={describe(value)}" for name, value in changed_options(thing))
        return f"{type(thing).__name__}({', '.join(changed)})"
    if isinstance(thing, np.ndarray):
        return describe(thing.tolist()) if thing.size <= SMALL_ARRAY else f"array {list(thing.shape)}"
    if (
        isinstance(thing, tuple)
        and len(thing) in (2, 3)
        and (isinstance(thing[1], BaseEstimator) or str(thing[1]) in UNFITTED)
    ):
        return " of ".join(map(describe, thing[1:]))  # (name, estimator) or (name, estimator, columns)
    if isinstance(thing, list | tuple):
        return f"[{', '.join(map(describe, thing))}]"
    if isinstance(thing, dict):
        return f"{{{', '.join(f'{key}: {describe(value)}' for key, value in thing.items())}}}"
    if hasattr(thing, "__name__"):
        return str(thing.__name__)
    return re.sub(r"<(?:function )?([\w.<>]+)(?: object)? at \w+>", r"\1", " ".join(repr(thing).split()))


def changed_options(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the options that are not at their defaults, except for the seed."""
    defaults = inspect.signature(type(estimator)).parameters
    for name, value in estimator.get_params(deep=False).items():
        default = defaults[name].default if name in defaults else inspect.Parameter.empty
        if name != "random_state" and repr(value) != repr(default):
            yield name, value


def walk(thing: Any) -> Iterator[Any]:
    """Yield an estimator, then every estimator within it, without transformers of targets."""
    if isinstance(thing, BaseEstimator):
        yield thing
        parts = thing.get_params(deep=False)
        if isinstance(thing, TransformedTargetRegressor):
            del parts["transformer"]
        thing = list(parts.values())
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list | tuple):
        for value in thing:
            yield from walk(value)


def subject(estimator: Any) -> tuple[Any, bool]:
    """Return the subject of a case, and whether it stands before a regressor.

    The subject of a Pipeline is its regressor, or the step before it if that is a linear model after another step.
    """
    if not isinstance(estimator, Pipeline):
        return estimator, False
    *before, last = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
    if before and family(last, False) == "linear":
        return subject(before[-1])[0], True
    return subject(last)


def family(estimator: Any, transforms: bool) -> str:
    """Return the file of estimators/ that lowers an estimator's `transform` or `predict`."""
    from triton_regressors.exporter.lowering import registry

    find = registry.find_transform if transforms else registry.find_lowering
    return str(find(estimator, type(estimator).__name__).__module__.rpartition(".")[2])


def options(estimators: Iterable[Any]) -> set[tuple[str, str, str]]:
    """Return the class, name and value of every option away from its default, without options that are estimators."""
    return {
        (type(estimator).__name__, name, describe(value))
        for estimator in estimators
        for name, value in changed_options(estimator)
        if next(walk(value), None) is None
    }


# Estimators without a case


REGRESSORS_WITHOUT_A_CASE: dict[str, str] = {}
"""The regressors of scikit-learn without a case, and the reasons."""


def missing(kind: str) -> dict[str, str]:
    """Return scikit-learn's estimators of a kind ("regressor", "transformer") without a case, and the reasons."""
    seen = {type(part).__name__ for case in CASES.values() for part in walk(case.estimator)}
    reason = REGRESSORS_WITHOUT_A_CASE.get if kind == "regressor" else _reason_of
    return {name: reason(name, "") for name, _ in all_estimators(type_filter=kind) if name not in seen}


def _reason_of(name: str, otherwise: str) -> str:
    """Return why a transformer cannot stand before a regressor that is given a matrix of numbers."""
    from triton_regressors.exporter.lowering import registry

    cls = dict(all_estimators(type_filter="transformer"))[name]
    refused = registry.refusals().get(registry.qualified_name(cls))
    if refused is not None:
        return refused
    if not hasattr(cls, "transform"):
        return "it has no `transform` for rows that it was not fitted on"
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is inspect.Parameter.empty]
    tags = get_tags(cls(**{parameter.name: None for parameter in required}))
    if tags.estimator_type == "classifier":
        return "it is a classifier: its target is classes"
    if tags.input_tags.pairwise:
        return "its input is a kernel between the rows and those it was fitted on, not features"
    if tags.input_tags.two_d_array:
        return otherwise
    if tags.target_tags.one_d_labels or tags.target_tags.two_d_labels:
        return "it transforms labels, which are targets and not features"
    if tags.input_tags.string:
        return "its input is text"
    if tags.input_tags.dict:
        return "its input is dictionaries"
    return "its input is images" if tags.input_tags.three_d_array else otherwise


def main() -> int:
    """Measure, or render the figures."""
    parser = argparse.ArgumentParser(prog="python -m docs.coverage", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="run every case's kernels and write docs/coverage.json")
    measure.add_argument("--missing", action="store_true", help="leave out what this machine's engine has measured")
    measure.add_argument("--only", default="*", metavar="PATTERN", help="the cases to measure, as in 'ridge*'")
    from docs.coverage_contributions import CONTRIBUTIONS, measure_contributions

    beside = {
        FLOAT32: (measure_float32, "fit and ask every case with float32 tables"),
        CONTRIBUTIONS: (measure_contributions, "export every case with contributions"),
    }
    for source, (_, what) in beside.items():
        command = commands.add_parser(source, help=what)
        command.add_argument("--missing", action="store_true", help="leave out what is there")
        command.add_argument("--only", default="*", metavar="PATTERN", help="the cases, as in 'ridge*'")
    commands.add_parser("write", help="render docs/coverage.md from docs/coverage.json")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        return int(measure_cases(arguments.only, missing=arguments.missing) > 0)
    if arguments.command in beside:
        return int(beside[arguments.command][0](arguments.only, missing=arguments.missing) > 0)
    from docs import coverage_page

    if names := outdated(read_results()):
        raise SystemExit(f"Run `python -m docs.coverage measure` first, for {', '.join(names)}.")
    PAGE.write_text(coverage_page.render(read_results()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
