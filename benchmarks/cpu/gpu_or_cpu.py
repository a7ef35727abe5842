"""When does a GPU make sense? Host rows to host answers by batch size and model size, beside a whole CPU's libraries.

    python -m benchmarks.cpu.gpu_or_cpu [--quick] [--families svr forest ...] [--output DIR]

For each family of models, small to large, three libraries are timed: the engine `triton` (on a CPU: `torch`) as an
entry answers, with the search for NaN; scikit-learn as its users call it, on float64 and on float32 rows, and with the
rows cut into one part for each core, which models that use one core alone need, each also with `assume_finite`, without
its search for NaN; and onnxruntime with its own threads.
The fastest way of a library counts. Answers are compared with scikit-learn's own on float64 rows before they are timed.

Models are fitted, compiled and converted side by side, before anything is timed. A batch that would take
a library more than `LONGEST_S`, judged by the batch before, is left out: its rows per second are known by then.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import config_context
from threadpoolctl import threadpool_limits

from benchmarks.checking import WrongAnswerError, demand, error_of_arrays
from benchmarks.cpu.libraries import (
    ONNXRUNTIME,
    SCIKIT_LEARN,
    Library,
    OnnxRuntime,
    Ours,
    ScikitLearn,
    UnavailableError,
    Worker,
    answers_of,
)
from benchmarks.environment import busy, default_directory, device_name, environment, save
from benchmarks.models import FAMILIES, SIZES, Model, model
from benchmarks.timing import Contender, Effort, take_turns
from triton_regressors.advise.measured_models import shape_of
from triton_regressors.kernels.engine.runner import Runner

BATCH_SIZES = tuple(2**k for k in range(17))
"""Each is twice the one before, so that the one from which on a library is faster is known within a factor of two."""

QUICK_BATCH_SIZES = (1, 64, 1024, 16384, 65536)
EFFORT = Effort(rounds=5, block_s=0.01, pause_s=0.001, contender_s=0.25, least_rounds=3, warm_up_s=0.01)
QUICK = Effort(rounds=4, block_s=0.005, pause_s=0.001, contender_s=0.08, least_rounds=2, warm_up_s=0.002)
LONGEST_S = 0.05
"""The time limit of a call."""

MOST_NUMBERS = 2**23
"""The most numbers that a batch may hold: wide rows come in smaller batches."""

INPUTS = 2
CHECKED = 64
"""Checked rows at the start of each input; as many more are spread evenly over the input."""

HOPELESS, SOON_S = 3.0, 0.01
"""A way this many times slower than the library's fastest is not timed, unless it takes less than `SOON_S`."""

FINITE = "assume_finite"
"""The end of the names of scikit-learn's ways without its search for NaN."""

PARTS_FROM = 512
"""Batches of this many rows and more are also cut into a part for each core."""


@dataclass(frozen=True)
class Case:
    """A fitted model, and scikit-learn's float64 predictions of the rows at `places` among all rows."""

    model: Model
    max_rows: int
    places: np.ndarray
    truth: np.ndarray

    @staticmethod
    def of(model: Model, most: int) -> Case:
        """Return a model's case for batches of up to `most` rows."""
        max_rows = min(most, MOST_NUMBERS // model.n_features)
        starts = [start + np.arange(min(CHECKED, max_rows)) for start in range(0, INPUTS * max_rows, max_rows)]
        spread = np.linspace(0, INPUTS * max_rows - 1, 8 * CHECKED).astype(int)
        places = np.unique(np.concatenate([*starts, spread]))
        rows = model.rows(INPUTS * max_rows, seed=100)[places].astype(np.float32).astype(np.float64)
        return Case(model, max_rows, places, np.asarray(model.estimator.predict(rows), dtype=np.float64))

    def rows(self) -> np.ndarray:
        """Return all rows, float32 `[INPUTS × max_rows, n_features]`."""
        return self.model.rows(INPUTS * self.max_rows, seed=100).astype(np.float32)

    def error(self, number: int, answers: np.ndarray) -> float:
        """Return the largest error of input `number`'s answers, in standard deviations of the model's predictions."""
        start = number * self.max_rows
        here = (self.places >= start) & (self.places < start + len(answers))
        found = self.truth.copy()
        found[here] = answers.reshape(len(answers), *self.truth.shape[1:])[self.places[here] - start]
        return error_of_arrays(found, self.truth) if np.isfinite(answers).all() else float("nan")


class CaseLibrary(Library):
    """A library for a `Case`: it checks some of the answers, and times the ways that are asked for."""

    def load_case(self, path: Path) -> dict[str, Any]:
        """Make the predictor of the case in a file; return its facts, or raise `UnavailableError`."""
        self.case = pickle.loads(path.read_bytes())
        self.model = self.case.model
        self.set_up(self.model, self.case.max_rows)
        self.all_rows = self.case.rows()
        return self.about()

    def about(self) -> dict[str, Any]:
        """Return facts about the model for the results."""
        return {}

    def prepare_batch(self, rows: int, left_out: Collection[str]) -> tuple[dict[str, float], dict[str, str]]:
        """Make a batch size's contenders except those left out; return each one's error, and a message for wrong ones.

        A way that is far slower than another of the library is not timed: the fastest counts.
        """
        starts = range(0, INPUTS * self.case.max_rows, self.case.max_rows)
        self.inputs = [self.all_rows[start : start + rows] for start in starts]
        made = {found.name: found for found in self.contend(self.inputs) if found.name not in left_out}
        self.contenders, errors, wrong, seconds = made, {}, {}, {}
        for name, contender in made.items():
            try:
                worst, seconds[name] = 0.0, math.inf
                for i in range(INPUTS):
                    with contender.context():
                        began = time.perf_counter()
                        answers = answers_of(contender.call(i))
                        seconds[name] = min(seconds[name], time.perf_counter() - began)
                    worst = max(worst, demand(name, self.case.error(i, answers), self.limit))
                errors[name] = float(f"{worst:.2g}")
            except WrongAnswerError as error:
                if self.ours:
                    raise
                wrong[name] = str(error)
        enough = max(HOPELESS * min((seconds[name] for name in errors), default=0.0), SOON_S)
        return {name: error for name, error in errors.items() if seconds[name] <= enough}, wrong


class OurEngine(CaseLibrary, Ours):
    """An engine as an entry runs it: the search for NaN, then the rows' answers."""

    def about(self) -> dict[str, Any]:
        """Return facts about the model for the results."""
        shape = shape_of(self.runner.plan)
        return {"operation": shape.operation, "parameters": shape.parameters}

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """See `Library`."""
        return [Contender(self.name, lambda i: self._checked(inputs[i]))]


class WholeScikitLearn(CaseLibrary, ScikitLearn):
    """`predict` as users call it, and in as many threads as there are cores, each with a part of the rows."""

    def set_up(self, model: Model, max_rows: int) -> None:
        """See `Library`."""
        self.cores = len(os.sched_getaffinity(0))
        # A thread has its own number of OpenMP threads; that of a BLAS is the process's, which contexts limit below.
        self.threads = ThreadPoolExecutor(
            self.cores, initializer=functools.partial(threadpool_limits, 1, user_api="openmp")
        )

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """See `Library`."""
        predict = self.model.estimator.predict
        finite = functools.partial(config_context, assume_finite=True)

        def unchecked(x: np.ndarray) -> Any:  # in a thread, which has settings of its own
            with finite():
                return predict(x)

        double = [x.astype(np.float64) for x in inputs]
        found = []
        for name, rows in (("float64", double), ("float32", inputs)):
            found.append(Contender(f"{SCIKIT_LEARN}, {name}", lambda i, rows=rows: predict(rows[i])))
            found.append(Contender(f"{SCIKIT_LEARN}, {name}, {FINITE}", lambda i, rows=rows: predict(rows[i]), finite))
        if len(inputs[0]) >= PARTS_FROM:
            parts = [np.array_split(x, self.cores) for x in double]
            one_each = functools.partial(threadpool_limits, 1, user_api="blas")
            name = f"{SCIKIT_LEARN}, {self.cores} threads"
            for way, call in ((name, predict), (f"{name}, {FINITE}", unchecked)):
                work = lambda i, call=call: np.concatenate(list(self.threads.map(call, parts[i])))  # noqa: E731
                found.append(Contender(way, work, one_each))
        return found


class WholeOnnxRuntime(CaseLibrary, OnnxRuntime):
    """onnxruntime with its own threads."""


def make_case(name: str, most: int, path: Path, engine: str) -> float:
    """Fit, compile and convert a model, compile its kernels, and write its `Case`; return how many seconds it took."""
    began = time.perf_counter()
    torch.set_num_threads(2)
    with threadpool_limits(2):
        found = model(name)
        if hasattr(found.estimator, "n_jobs"):
            found.estimator.n_jobs = None  # the default of its users
        plan, _ = found.plan(), found.onnx
        case = Case.of(found, most)
        if engine == "triton":
            Runner(plan, engine=engine, max_rows=case.max_rows).warm_up([("y",)])  # into the cache of compiled kernels
    path.write_bytes(pickle.dumps(case))
    return time.perf_counter() - began


def make_cases(names: Sequence[str], most: int, directory: Path, engine: str) -> dict[str, Path]:
    """Make all cases, as many at a time as there are cores; return where they lie."""
    paths = {name: directory / name for name in names}
    workers = min(len(names), len(os.sched_getaffinity(0)))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    before = {variable: os.environ.get(variable) for variable in threads}
    os.environ.update(threads)  # for the processes that start now
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            slowest_first = sorted(names, key=lambda name: SIZES.index(name.rpartition("_")[2]), reverse=True)
            jobs = {name: pool.submit(make_case, name, most, paths[name], engine) for name in slowest_first}
            print("fitted: " + ", ".join(f"{name} {job.result():.1f} s" for name, job in jobs.items()), flush=True)
    finally:
        for variable, value in before.items():
            os.environ.pop(variable) if value is None else os.environ.update({variable: value})
    return paths


def libraries(engine: str) -> dict[str, Callable[[], Library]]:
    """Return each library's maker, which its process calls."""
    return {
        engine: functools.partial(OurEngine, engine),
        SCIKIT_LEARN: WholeScikitLearn,
        ONNXRUNTIME: WholeOnnxRuntime,
    }


def measure_model(
    workers: Sequence[Worker], name: str, path: Path, sizes: Sequence[int], effort: Effort
) -> dict[str, Any]:
    """Measure one model at all batch sizes and print as it goes; return the model's JSON."""
    found = model(name)
    print(found.title)
    result: dict[str, Any] = {"size": name.rpartition("_")[2], "title": found.title, "n_features": found.n_features}
    result["without"], able = {}, []
    for worker in workers:
        worker.begin("load_case", path)
    for worker in workers:
        try:
            result |= worker.end()
            able.append(worker)
        except UnavailableError as reason:
            result["without"][worker.library] = str(reason)
            print(f"  without {worker.library}: {reason}")
    points: list[dict[str, Any]] = []
    for rows in [size for size in sizes if size <= MOST_NUMBERS // found.n_features]:
        point = measure_point(able, rows, left_out(points, rows), effort)
        if not point["timings"]:
            break
        print(f"  {rows:6,} rows: " + ", ".join(words(point)), flush=True)
        points.append(point)
    return {**result, "points": points}


def left_out(points: Sequence[Mapping[str, Any]], rows: int) -> set[str]:
    """Return the ways that were wrong, or that need too long for `rows`, judged by the times of the last two batches.

    One batch alone decides if it was large.
    """
    found = {way for point in points for way in point["wrong"]}
    for way in {way for point in points for way in point["timings"]}:
        known = [(point["rows"], point["timings"][way]["median_us"]) for point in points if way in point["timings"]]
        (fewer, short), (more, long) = ((0, 0.0), *known)[-2:]
        needed = long + (long - short) / (more - fewer) * (rows - more)
        if needed > LONGEST_S * 1e6 and (len(known) > 1 or more >= PARTS_FROM):
            found.add(way)
    return found


def measure_point(workers: Sequence[Worker], rows: int, left_out: Collection[str], effort: Effort) -> dict[str, Any]:
    """Have every library check its answers, then time them in turn; return the point as JSON."""
    errors: dict[str, float] = {}
    wrong: dict[str, str] = {}
    home: dict[str, Worker] = {}
    for worker in workers:
        right, not_right = worker.ask("prepare_batch", rows, left_out)
        errors |= right
        wrong |= not_right
        home |= dict.fromkeys(right, worker)
    if not home:
        return {"rows": rows, "timings": {}, "wrong": wrong}
    found = take_turns(list(home), lambda name, duration_s: home[name].ask("block", name, duration_s), effort)
    timings = {name: timing.to_json() | {"max_error": errors[name]} for name, timing in found.items()}
    return {"rows": rows, "timings": timings, "wrong": wrong}


def words(point: Mapping[str, Any]) -> Iterator[str]:
    """Yield each way's median at one batch size in µs, and the messages about wrong ones."""
    for name, timing in point["timings"].items():
        yield f"{name} {timing['median_us']:,.1f} µs"
    for reason in point["wrong"].values():
        yield f"without {reason}"


def run(directory: Path, families: Sequence[str], chosen: Sequence[str] = SIZES, *, quick: bool = False) -> Path:
    """Measure the families' models of the chosen sizes and write worth.json."""
    sizes, effort = (QUICK_BATCH_SIZES, QUICK) if quick else (BATCH_SIZES, EFFORT)
    engine = "triton" if torch.cuda.is_available() else "torch"
    names = {family: [f"{family}_{size}" for size in chosen] for family in families}
    print(f"Host to host on {device_name()}, engine {engine}", flush=True)
    settings = {"quick": quick, "engine": engine, "longest_s": LONGEST_S, "busy_at_start": busy()}
    with tempfile.TemporaryDirectory() as kept, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(name, make)) for name, make in libraries(engine).items()]
        paths = make_cases([name for group in names.values() for name in group], max(sizes), Path(kept), engine)
        path = directory / "worth.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        same = before.get("environment") == environment() and before.get("settings") == settings
        results = {result["family"]: result for result in (before["families"] if same else [])}
        for family, group in names.items():
            measured = [measure_model(workers, name, paths[name], sizes, effort) for name in group]
            results[family] = {"family": family, "title": FAMILIES[family][0], "models": measured}
            # Saved after each, so that an interrupted run keeps its results.
            save(directory, "worth", settings, {"families": [results[name] for name in FAMILIES if name in results]})
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five batch sizes, short measurements")
    parser.add_argument(
        "--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="these alone; others' figures stay"
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="models of these sizes alone")
    parser.add_argument("--output", type=Path, default=None, help="directory of worth.json")
    arguments = parser.parse_args()
    run(arguments.output or default_directory(), arguments.families, arguments.sizes, quick=arguments.quick)


if __name__ == "__main__":
    main()
