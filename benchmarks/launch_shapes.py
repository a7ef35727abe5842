"""Measure launch shapes on this GPU and write its part of the table that is shipped with the kernels.

    python -m benchmarks.launch_shapes [--only OPERATION ...] [--limit SECONDS] [--table FILE]     needs a CUDA GPU
    python -m benchmarks.launch_shapes --dry-run                  tries the script out on a CPU, on toy sizes, and with
                                                                  TRITON_INTERPRET=1 the kernels too

For every operation and shape class there are models, and shapes to try beside the default. Shapes take turns on the
same rows, as captured graphs, in batches of several sizes. What does not compile, needs more than the GPU has, or
changes a bit of an answer is left out. A shape comes into the table if it is faster than the default in the mean over
the batches, slower in none of them, and both once more when the two are timed alone. Other GPUs' parts of the table,
and operations that were not measured, stay as they are.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from triton.runtime.jit import JITFunction

from benchmarks.environment import device_name
from benchmarks.timing import Contender, input_count, time_on_device
from triton_regressors.exporter.lower import lower
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.affine_map import affine_narrow_shape, affine_shape
from triton_regressors.kernels.launch_shapes import TABLE, LaunchShapes, Shape, capability, key
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.polynomial_affine import PolynomialAffine, polynomial_affine_shape
from triton_regressors.kernels.ops.quadratic import Quadratic, quadratic_shape
from triton_regressors.kernels.ops.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan import Operation
from triton_regressors.kernels.tree_tile import MOST_CACHED, MOST_PLAIN, tree_class, tree_ensemble_shape

GAIN = 0.97
"""How much of the default's time, in the geometric mean over the batches, a shape may take to come into the table."""

LOSS = 1.03
"""How much of the default's time it may take in any one batch."""

CHECKED_ROWS = (1, 1000, 65541)
INPUT_NUMBERS = 2**26
MOST_CONFIRMED = 3
DEFAULT = "default"

Tensor = torch.Tensor


class Model(NamedTuple):
    """An operation and the width of its rows."""

    operation: Operation
    width: int


@dataclass(frozen=True)
class Subject:
    """A shape class: the numbers of rows to time, the shapes to try, and models of this class.

    The first model is timed. A compiler lays a block out by what it knows of addresses, so that the others, whose rows
    are aligned otherwise or which compute something beside, could have other bits where the first has not.
    """

    shapes: LaunchShapes
    shape_class: tuple[int | str, ...]
    models: Sequence[Model]
    rows: Sequence[int]
    candidates: Sequence[Shape]

    @property
    def name(self) -> str:
        """The operation's name in the table, and the class."""
        return f"{self.shapes.operation} {key(*self.shape_class)}"

    @property
    def default(self) -> Shape:
        """The shape where the table has none."""
        return self.shapes.default(*self.shape_class)


def grid(default: Shape, **values: Sequence[Any]) -> list[Shape]:
    """Return every combination of values, each as what it changes of the default; the default is not among them."""
    found = []
    for combination in itertools.product(*values.values()):
        changed = {name: v for name, v in zip(values, combination, strict=True) if default[name] != v}
        if changed:
            found.append(changed)
    return found


def linear() -> Iterator[Subject]:
    """Yield linear models of one target: narrow ones, and rows of whole and masked tiles."""
    for slots, widths in ((1, (1,)), (1, (2,)), (1, (3,)), (2, (7, 5, 6)), (4, (13, 9, 10, 11, 14)), (8, (23, 17, 18))):
        shape_class = (slots, min(widths[0], 4))
        yield tiles(affine_narrow_shape, shape_class, widths)
    for block in (4, 8, 16, 32, 64, 128, 256, 512, 1024):
        yield tiles(affine_shape, (block, "whole"), (block, 2048) if block == 1024 else (block,))
        if block >= 16:  # of fewer features than 24 only multiples of 4 come in tiles
            middle = 3 * block // 4
            widths = (middle,) if block == 16 else (middle + 4, middle + 5, middle + 6)
            yield tiles(affine_shape, (block, "masked"), widths)


def tiles(shapes: LaunchShapes, shape_class: tuple[int | str, ...], widths: Sequence[int]) -> Subject:
    """Return linear models of these numbers of features, one of them sparse and with a function."""
    default = shapes.default(*shape_class)
    rows, models = default["BLOCK_ROWS"], []
    for features in widths:
        weight = np.random.default_rng(features).standard_normal((features, 1))
        models.append(Model(Affine(weight, np.zeros(1)), features))
    weight = np.append(weight[:-1], [[0.0]], axis=0)
    models.append(Model(Affine(weight, np.ones(1), "expit"), features))
    candidates = grid(default, BLOCK_ROWS=(max(rows // 2, 1), rows, 2 * rows), num_warps=(1, 2, 4, 8))
    most = min(INPUT_NUMBERS // widths[0], 2**24)
    return Subject(shapes, shape_class, models, (1, 4096, most), candidates)


def quadratics() -> Iterator[Subject]:
    """Yield polynomials of degree 2 in each precision."""
    for features, precision in itertools.product((16, 32, 64), Quadratic.PRECISIONS):
        default = quadratic_shape.default(features, precision)
        models = []
        for width, targets, shifted in ((0, 1, 1), (0, 1, 0), (-1, 2, 1), (-2, 1, 1), (-4, 1, 1)):
            count = features + width
            rng = np.random.default_rng(count)
            form = np.triu(rng.standard_normal((targets, count, count)))
            shift, line = shifted * rng.standard_normal(count), rng.standard_normal((targets, count))
            operation = Quadratic(shift, np.ones(count), form, line, np.zeros(targets), precision=precision)
            models.append(Model(operation, count))
        stages: dict[str, Sequence[int]] = {"STAGES" if features <= 32 else "num_stages": (2, 3, 4)}
        candidates = grid(default, BLOCK_ROWS=(32, 64, 128), num_warps=(1, 2, 4), **stages)
        yield Subject(quadratic_shape, (features, precision), models, (1, 4096, 2**20), candidates)


def polynomials() -> Iterator[Subject]:
    """Yield polynomials of degree 3."""
    for features in (8, 16, 32):
        default = polynomial_affine_shape.default(features, 3)
        models = []
        for width, targets in ((0, 1), (-1, 2), (-2, 1)):
            count = features + width
            rng = np.random.default_rng(count)
            indices = np.array(list(itertools.combinations_with_replacement(range(count + 1), 3)), dtype=np.int32)
            weight = rng.standard_normal((len(indices), targets))
            shift, factor = rng.standard_normal(count), np.ones(count)
            operation = PolynomialAffine(
                indices=indices, shift=shift, factor=factor, weight=weight, intercept=np.zeros(targets)
            )
            models.append(Model(operation, count))
        candidates = grid(default, BLOCK_ROWS=(8, 16, 32, 64), num_warps=(1, 2, 4), num_stages=(2, 3))
        yield Subject(polynomial_affine_shape, (features, 3), models, (1, 4096, 2**18), candidates)


def trees(toy: bool = False) -> Iterator[Subject]:
    """Yield ensembles of trees: small ones, ones whose nodes fit a cache, and larger ones."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300 if toy else 20_000, 64)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.standard_normal(len(X))
    count, jobs = (5, None) if toy else (100, -1)
    boosting = HistGradientBoostingRegressor(max_iter=3 * count, early_stopping=False, random_state=0)
    shallow = RandomForestRegressor(count, max_depth=10, max_features=16, n_jobs=jobs, random_state=0)
    grown = RandomForestRegressor(count, max_features=16, n_jobs=jobs, random_state=0)
    for estimator, nodes, packed in (
        (boosting, MOST_CACHED, True),
        (boosting, MOST_CACHED, False),
        (shallow, MOST_PLAIN, True),
        (grown, 2**22, True),
    ):
        operation = ensemble(estimator.fit(X, y), packed)
        for rows in ((1, 128), (1024, 4096), (65536, 2**20)):
            shape_class = (*tree_class(rows[0], nodes, 64, packed), "one")
            default = tree_ensemble_shape.default(*shape_class)
            many, block_rows, elements = rows[0] == 65536, default["BLOCK_ROWS"], default["ELEMENTS"]
            plain = packed and nodes <= MOST_PLAIN
            candidates = grid(
                default,
                BLOCK_ROWS=(1, 2) if rows[0] == 1 else (block_rows // 2, block_rows, 2 * block_rows),
                ELEMENTS=(elements // 2, elements) if rows[0] == 1 else (elements, 2 * elements),
                FORM=("quads", "plain") if plain else (default["FORM"],),
                num_warps=(4, 8, 16) if rows[0] == 1 else (4, 8),
                maxnreg=(64, None) if many and packed else (default["maxnreg"],),
            )
            yield Subject(tree_ensemble_shape, shape_class, [Model(operation, 64)], rows, candidates)


OPERATIONS: dict[str, Callable[[], Iterator[Subject]]] = {
    "affine": linear,
    "quadratic": quadratics,
    "polynomial_affine": polynomials,
    "tree_ensemble": trees,
}


def subjects(chosen: Iterable[str], toy: bool = False) -> Iterator[Subject]:
    """Yield the models of the chosen operations; toys are small where a model takes long to make."""
    for name in chosen:
        yield from trees(toy) if name == "tree_ensemble" else OPERATIONS[name]()


def ensemble(estimator: BaseEstimator, packed: bool) -> TreeEnsemble:
    """Return the trees of a fitted estimator, for float32 rows where they are to be packed, else for float64 rows."""
    plan = lower(estimator).plan
    if packed:
        plan = specialise(plan, "float32")
    (operation,) = [step.operation for step in plan.steps if isinstance(step.operation, TreeEnsemble)]
    return operation


@functools.cache
def arrays_of(operation: Operation) -> dict[str, np.ndarray]:
    """Return what an operation's arithmetic reads, which takes long to make for large ones."""
    return operation.parameters()


@functools.lru_cache(maxsize=8)
def on_device(operation: Operation, device: torch.device) -> dict[str, Tensor]:
    """Return what an operation's arithmetic reads as tensors."""
    arrays = arrays_of(operation).items()
    return {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in arrays}


class Bench:
    """A device, and how many rounds shapes take turns there."""

    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device, self.rounds = device, rounds
        self._launches = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

    def measure(self, subject: Subject, failures: dict[int, str]) -> Shape | None:
        """Return the shape that is to come into the table, if there is one, and print how it compares.

        Args:
            subject: the shape class.
            failures: why candidates, by their number, do not compile; those that change bits are added.
        """
        first, *others = subject.models
        for number, shape in enumerate(subject.candidates):
            reason = failures.get(number) or self._failure(subject, first, shape, torch.float32)
            if reason:
                failures[number] = reason
        left = {str(number): shape for number, shape in enumerate(subject.candidates) if number not in failures}
        means = self._compare(subject, {DEFAULT: {}, **left}, self.rounds)
        told = f"{len(left)} of {len(subject.candidates)} tried"
        for reason in sorted(set(failures.values())):
            told += f", {sum(found == reason for found in failures.values())} {reason}"
        fast = [name for name in means if means[name][0] < GAIN]
        for name in sorted(fast, key=lambda name: means[name][0])[:MOST_CONFIRMED]:
            shape = left[name]
            again = self._compare(subject, {DEFAULT: {}, name: shape}, 3 * self.rounds)
            if name not in again or again[name][0] >= GAIN:
                continue
            cases = [(first, torch.float64), *itertools.product(others, (torch.float32, torch.float64))]
            if any(self._failure(subject, model, shape, dtype) for model, dtype in cases):
                told += f", {dict(shape)} not for every model of the class"
                continue
            mean, times = again[name]
            shown = ", ".join(f"{rows:,} rows {old:,.1f} → {new:,.1f} µs" for rows, old, new in times)
            print(f"{subject.name}: {dict(shape)} takes {mean:.2f} of the time: {shown} ({told})", flush=True)
            return shape
        print(f"{subject.name}: the default stays ({told})", flush=True)
        return None

    def _compare(
        self, subject: Subject, shapes: dict[str, Shape], rounds: int
    ) -> dict[str, tuple[float, list[tuple[int, float, float]]]]:
        """Return what takes no batch longer than the default: its mean share of that's time, rows and both's µs."""
        model, found = subject.models[0], {}
        for rows in subject.rows:
            count = input_count(4 * rows * model.width, least=2, most=32) if self.device.type == "cuda" else 1
            inputs = [self._input(model, rows, seed) for seed in range(count)]
            output = torch.empty(rows, model.operation.output_width(model.width), device=self.device)
            contenders = [
                Contender(name, self._call(subject, model, inputs, output, shape)) for name, shape in shapes.items()
            ]
            found[rows] = time_on_device(contenders, count, self.device, rounds=rounds)
        means = {}
        for name in shapes:
            times = [(rows, at[DEFAULT].median_us, at[name].median_us) for rows, at in found.items()]
            ratios = [new / old for _, old, new in times]
            if name != DEFAULT and max(ratios) <= LOSS:
                means[name] = (math.prod(ratios) ** (1 / len(ratios)), times)
        return means

    def _failure(self, subject: Subject, model: Model, shape: Shape, dtype: torch.dtype) -> str:
        """Return why a shape cannot be used for rows of a dtype; nothing if it gives the default's bits."""
        for rows in CHECKED_ROWS:
            x = self._input(model, min(rows, max(subject.rows)), seed=rows).to(dtype)
            exact = self.answer(subject, model, x, {})
            try:
                if not torch.equal(bits(self.answer(subject, model, x, shape)), bits(exact)):
                    return "with other bits"
            except Exception as error:  # of the compiler or of the GPU's driver, which have types of their own
                return type(error).__name__
        return ""

    def answer(self, subject: Subject, model: Model, x: Tensor, shape: Shape) -> Tensor:
        """Return what a model answers, launched in a shape that says what it changes of the default."""
        out = torch.zeros(len(x), model.operation.output_width(model.width), dtype=x.dtype, device=x.device)
        return self._call(subject, model, [x], out, shape)(0)

    def _call(
        self, subject: Subject, model: Model, inputs: Sequence[Tensor], output: Tensor, shape: Shape
    ) -> Callable[[int], Tensor]:
        """Return what launches in a shape; on a CPU that interprets no kernels the plain torch reference stands in."""
        parameters = on_device(model.operation, self.device)

        def call(i: int) -> Tensor:
            if not self._launches:
                return output.copy_(model.operation.reference(parameters, inputs[i]))
            with subject.shapes.trying({**subject.default, **shape}):
                model.operation.launch(parameters, [inputs[i]], output, len(inputs[i]))
            return output

        return call

    def _input(self, model: Model, rows: int, seed: int) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(rows, model.width, device=self.device, generator=generator)


def bits(values: Tensor) -> Tensor:
    """Return floats as integers."""
    return values.view(torch.int32 if values.dtype == torch.float32 else torch.int64)


PENDING: list[Subject] = []
"""What is measured: processes that are forked to compile find it here."""


def compile_in_cache(subject: int, candidate: int) -> str:
    """Compile one shape for this GPU without launching it; return why that fails, or nothing."""
    run = JITFunction.run
    JITFunction.run = lambda *args, **named: run(*args, **{**named, "warmup": True})  # type: ignore[method-assign]
    torch.set_num_threads(1)
    try:
        each, bench = PENDING[subject], Bench(torch.device("cuda"), 0)
        model = each.models[0]
        bench.answer(each, model, torch.zeros(1, model.width, device=bench.device), each.candidates[candidate])
    except Exception as error:  # of the compiler, which has types of its own
        return type(error).__name__
    finally:
        JITFunction.run = run  # type: ignore[method-assign]
    return ""


def run(table: Path, chosen: Sequence[str], *, limit_s: float = math.inf, dry_run: bool = False) -> None:
    """Measure operations and write what was found; a dry run tries one shape of one model and writes nothing."""
    if not dry_run and not torch.cuda.device_count():
        raise SystemExit(
            "benchmarks.launch_shapes needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU."
        )
    began = time.monotonic()
    if dry_run:
        bench = Bench(torch.device("cpu"), 2)
        print("launch shapes on the CPU (a dry run: these are no figures)")
        for name in chosen:
            subject = next(subjects([name], toy=True))
            bench.measure(dataclasses.replace(subject, rows=(1, 5), candidates=subject.candidates[:1]), {})
        return
    PENDING[:] = subjects(chosen)
    for subject in PENDING:
        arrays_of(subject.models[0].operation)  # once, for this process and those that it forks
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("fork")) as processes:
        compiled = [  # begun before this process uses the GPU, as those that it forks could not any more
            [processes.submit(compile_in_cache, number, at) for at in range(len(subject.candidates))]
            for number, subject in enumerate(PENDING)
        ]
        bench = Bench(torch.device("cuda"), 5)
        print(f"launch shapes on {device_name()}", flush=True)
        for subject, futures in zip(PENDING, compiled, strict=True):
            failures = {number: reason for number, future in enumerate(futures) if (reason := future.result())}
            if time.monotonic() - began > limit_s:
                print(f"{subject.name}: not measured, the time is over")
                processes.shutdown(wait=False, cancel_futures=True)
                break
            write(table, subject, bench.measure(subject, failures), capability(bench.device))


def write(table: Path, subject: Subject, shape: Shape | None, gpu: str) -> None:
    """Put one shape into the table, or take out what is there."""
    content = json.loads(table.read_bytes()) if table.exists() else {}
    part = content.setdefault(gpu, {}).setdefault(subject.shapes.operation, {})
    part.pop(key(*subject.shape_class), None)
    if shape is not None:
        part[key(*subject.shape_class)] = dict(shape)
    content = {g: {name: of for name, of in operations.items() if of} for g, operations in content.items()}
    kept = {g: operations for g, operations in content.items() if operations}
    table.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS), help="which operations"
    )
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="begin with no further model after so many seconds"
    )
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on a CPU, to try the script out")
    parser.add_argument("--table", type=Path, default=TABLE, help="the file to change")
    arguments = parser.parse_args()
    run(arguments.table, arguments.only, limit_s=arguments.limit, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
