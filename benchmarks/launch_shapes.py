"""Measure launch shapes on this GPU and write its part of the table that is shipped with the kernels.

    python -m benchmarks.launch_shapes [--only OPERATION ...] [--limit SECONDS] [--table FILE]     needs a CUDA GPU
    python -m benchmarks.launch_shapes --dry-run                  tries the script out on a CPU, on toy sizes, and with
                                                                  TRITON_INTERPRET=1 the kernels too

For every operation and shape class there is a model, and shapes to try beside the default. Shapes take turns on the
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
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from triton.runtime.jit import JITFunction

from benchmarks.environment import device_name
from benchmarks.timing import Contender, Timing, input_count, time_on_device
from triton_regressors.exporter.lower import lower
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.affine_map import affine_narrow_shape, affine_shape, affine_targets_shape
from triton_regressors.kernels.contraction import target_block
from triton_regressors.kernels.launch_shapes import TABLE, LaunchShapes, Shape, capability, key
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.dense_layers import DenseLayers, dense_layers_shape
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


@dataclass(frozen=True)
class Subject:
    """A model of one shape class: its operation, the numbers of rows to time and the shapes to try."""

    shapes: LaunchShapes
    shape_class: tuple[int | str, ...]
    operation: Operation
    width: int
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
    """Yield linear models of one target: rows of whole and masked tiles, and narrow ones."""
    for features in (1, 3, 7, 13, 8, 32, 64, 128, 256, 30, 100, 200):
        if features < 24 and features % 4:
            shapes, shape_class = affine_narrow_shape, (features,)
        else:
            block = 1 << (features - 1).bit_length()
            shapes, shape_class = affine_shape, (block, "whole" if block == features else "masked")
        default = shapes.default(*shape_class)
        rows = default["BLOCK_ROWS"]
        candidates = grid(default, BLOCK_ROWS=(rows // 2, rows, 2 * rows, 4 * rows), num_warps=(1, 2, 4, 8))
        most = min(INPUT_NUMBERS // features, 2**24)
        yield Subject(shapes, shape_class, affine(features, 1), features, (1, 4096, most), candidates)


def targets() -> Iterator[Subject]:
    """Yield linear models of several targets."""
    for features, count in ((64, 8), (64, 16), (256, 64)):
        shape_class = (features, target_block(count))
        default = affine_targets_shape.default(*shape_class)
        candidates = grid(default, BLOCK_ROWS=(32, 64, 128), num_warps=(2, 4, 8), num_stages=(2, 3, 4))
        rows = (1, 4096, 2**18)
        yield Subject(affine_targets_shape, shape_class, affine(features, count), features, rows, candidates)


def quadratics() -> Iterator[Subject]:
    """Yield polynomials of degree 2 in each precision."""
    for features, precision in itertools.product((16, 32, 64), Quadratic.PRECISIONS):
        rng = np.random.default_rng(features)
        form = np.triu(rng.standard_normal((1, features, features)))
        shift, scale, line = rng.standard_normal(features), np.ones(features), rng.standard_normal((1, features))
        operation = Quadratic(shift, scale, form, line, np.zeros(1), precision=precision)
        default = quadratic_shape.default(features, precision)
        stages: dict[str, Sequence[int]] = {"STAGES" if features <= 32 else "num_stages": (2, 3, 4)}
        candidates = grid(default, BLOCK_ROWS=(32, 64, 128), num_warps=(1, 2, 4, 8), **stages)
        yield Subject(quadratic_shape, (features, precision), operation, features, (1, 4096, 2**20), candidates)


def polynomials() -> Iterator[Subject]:
    """Yield polynomials of degree 3."""
    for features in (8, 32):
        rng = np.random.default_rng(features)
        indices = np.array(list(itertools.combinations_with_replacement(range(features + 1), 3)), dtype=np.int32)
        shift, weight = rng.standard_normal(features), rng.standard_normal((len(indices), 1))
        operation = PolynomialAffine(
            indices=indices, shift=shift, factor=np.ones(features), weight=weight, intercept=np.zeros(1)
        )
        default = polynomial_affine_shape.default(features, 3)
        candidates = grid(default, BLOCK_ROWS=(16, 32, 64, 128), num_warps=(1, 2, 4), num_stages=(2, 3))
        yield Subject(polynomial_affine_shape, (features, 3), operation, features, (1, 4096, 2**18), candidates)


def layers() -> Iterator[Subject]:
    """Yield neural networks whose layers are one launch."""
    for widths in ((32, 128, 128, 1), (64, 256, 256, 256, 4), (32, 64, 64, 1)):
        rng = np.random.default_rng(widths[0])
        pairs = list(itertools.pairwise(widths))
        weights = np.concatenate([rng.standard_normal(a * b) / math.sqrt(a) for a, b in pairs])
        intercepts, shift = rng.standard_normal(sum(widths[1:])), np.zeros(widths[0])
        operation = DenseLayers(weights, intercepts, shift, widths, "relu", precision="float16")
        block = min(widths[1], 128)
        shape_class = (block, widths[1] // block)
        default = dense_layers_shape.default(*shape_class)
        candidates = grid(default, BLOCK_ROWS=(16, 32, 64, 128), num_warps=(4, 8), STAGES=(2, 3, 4))
        yield Subject(dense_layers_shape, shape_class, operation, widths[0], (1, 64, 4096, 2**18), candidates)


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
            yield Subject(tree_ensemble_shape, shape_class, operation, 64, rows, candidates)


OPERATIONS: dict[str, Callable[[], Iterator[Subject]]] = {
    "affine": linear,
    "affine_targets": targets,
    "quadratic": quadratics,
    "polynomial_affine": polynomials,
    "dense_layers": layers,
    "tree_ensemble": trees,
}


def subjects(chosen: Iterable[str], toy: bool = False) -> Iterator[Subject]:
    """Yield the models of the chosen operations; toys are small where a model takes long to make."""
    for name in chosen:
        yield from trees(toy) if name == "tree_ensemble" else OPERATIONS[name]()


def affine(features: int, count: int) -> Affine:
    """Return a linear model."""
    rng = np.random.default_rng(features)
    return Affine(rng.standard_normal((features, count)), np.zeros(count))


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


class Bench:
    """A device and the models on it."""

    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device, self.rounds = device, rounds
        self._launches = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

    def measure(self, subject: Subject, failures: dict[int, str]) -> Shape | None:
        """Return the shape that is to come into the table, if there is one, and print how it compares.

        Args:
            subject: the model.
            failures: why candidates, by their number, do not compile; those that change bits are added.
        """
        parameters = self._parameters(subject.operation)
        self._check(subject, parameters, failures)
        left = {str(number): shape for number, shape in enumerate(subject.candidates) if number not in failures}
        means = self._compare(subject, parameters, {DEFAULT: {}, **left}, self.rounds)
        told = f"{len(left)} of {len(subject.candidates)} tried"
        for reason in sorted(set(failures.values())):
            told += f", {sum(found == reason for found in failures.values())} {reason}"
        for name in sorted(means, key=lambda name: means[name][0])[:MOST_CONFIRMED]:
            shape = left[name]
            if means[name][0] >= GAIN or self._failure(subject, parameters, shape, torch.float64):
                continue
            again = self._compare(subject, parameters, {DEFAULT: {}, name: shape}, 3 * self.rounds)
            if name in again and again[name][0] < GAIN:
                mean, times = again[name]
                shown = ", ".join(f"{rows:,} rows {old:,.1f} → {new:,.1f} µs" for rows, old, new in times)
                print(f"{subject.name}: {dict(shape)} takes {mean:.2f} of the time: {shown} ({told})", flush=True)
                return shape
        print(f"{subject.name}: the default stays ({told})", flush=True)
        return None

    def _compare(
        self, subject: Subject, parameters: dict[str, Tensor], shapes: dict[str, Shape], rounds: int
    ) -> dict[str, tuple[float, list[tuple[int, float, float]]]]:
        """Return what takes no batch longer than the default: its mean share of that's time, rows and both's µs."""
        found: dict[int, dict[str, Timing]] = {}
        for rows in subject.rows:
            count = input_count(4 * rows * subject.width, least=2, most=32) if self.device.type == "cuda" else 1
            inputs = [self._input(subject, rows, seed) for seed in range(count)]
            output = torch.empty(rows, subject.operation.output_width(subject.width), device=self.device)
            contenders = [
                Contender(name, self._call(subject, parameters, inputs, output, shape))
                for name, shape in shapes.items()
            ]
            found[rows] = time_on_device(contenders, count, self.device, rounds=rounds)
        means = {}
        for name in shapes:
            times = [(rows, at[DEFAULT].median_us, at[name].median_us) for rows, at in found.items()]
            ratios = [new / old for _, old, new in times]
            if name != DEFAULT and max(ratios) <= LOSS:
                means[name] = (math.prod(ratios) ** (1 / len(ratios)), times)
        return means

    def _check(self, subject: Subject, parameters: dict[str, Tensor], failures: dict[int, str]) -> None:
        """Note which candidates cannot be launched, or do not give the bits that the default gives."""
        for number, shape in enumerate(subject.candidates):
            reason = failures.get(number) or self._failure(subject, parameters, shape, torch.float32)
            if reason:
                failures[number] = reason

    def _failure(self, subject: Subject, parameters: dict[str, Tensor], shape: Shape, dtype: torch.dtype) -> str:
        """Return why a shape cannot be used for rows of a dtype; nothing if it gives the default's bits."""
        for rows in CHECKED_ROWS:
            x = self._input(subject, min(rows, max(subject.rows)), seed=rows).to(dtype)
            exact = self._answer(subject, parameters, x, {})
            try:
                if not torch.equal(bits(self._answer(subject, parameters, x, shape)), bits(exact)):
                    return "with other bits"
            except Exception as error:  # of the compiler or of the GPU's driver, which have types of their own
                return type(error).__name__
        return ""

    def _answer(self, subject: Subject, parameters: dict[str, Tensor], x: Tensor, shape: Shape) -> Tensor:
        out = torch.zeros(len(x), subject.operation.output_width(subject.width), dtype=x.dtype, device=x.device)
        return self._call(subject, parameters, [x], out, shape)(0)

    def _call(
        self, subject: Subject, parameters: dict[str, Tensor], inputs: Sequence[Tensor], output: Tensor, shape: Shape
    ) -> Callable[[int], Tensor]:
        """Return what launches in a shape; on a CPU that interprets no kernels the plain torch reference stands in."""

        def call(i: int) -> Tensor:
            if not self._launches:
                return output.copy_(subject.operation.reference(parameters, inputs[i]))
            with subject.shapes.trying({**subject.default, **shape}):
                subject.operation.launch(parameters, [inputs[i]], output, len(inputs[i]))
            return output

        return call

    def _input(self, subject: Subject, rows: int, seed: int) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(rows, subject.width, device=self.device, generator=generator)

    def _parameters(self, operation: Operation) -> dict[str, Tensor]:
        arrays = arrays_of(operation).items()
        return {name: torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for name, array in arrays}


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
        parameters, x = bench._parameters(each.operation), torch.zeros(min(each.rows), each.width, device=bench.device)
        bench._answer(each, parameters, x, each.candidates[candidate])
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
        arrays_of(subject.operation)  # once, for this process and those that it forks
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
