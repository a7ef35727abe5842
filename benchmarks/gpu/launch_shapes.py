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
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from benchmarks.environment import device_name
from benchmarks.gpu.shape_classes import OPERATIONS, Model, ShapeClass, shape_classes
from benchmarks.timing import Contender, input_count, time_on_device
from triton_regressors.kernels.plan.launch_shapes import TABLE, Shape, capability
from triton_regressors.kernels.plan.plan import Operation

GAIN = 0.97
"""How much of the default's time, in the geometric mean over the batches, a shape may take to come into the table."""

LOSS = 1.03
"""The largest share of the default's time that it may take in any one batch."""

CHECKED_ROWS = (1, 1000, 65541)
MOST_CONFIRMED = 3
DEFAULT = "default"

Tensor = torch.Tensor


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

    def measure(self, each: ShapeClass, failures: dict[int, str]) -> Shape | None:
        """Return the shape that is to come into the table, if there is one, and print how it compares.

        Args:
            each: the shape class.
            failures: why candidates, by their number, do not compile; those that change bits are added.
        """
        first, *others = each.models
        for number, shape in enumerate(each.candidates):
            reason = failures.get(number) or self._failure(each, first, shape, torch.float32)
            if reason:
                failures[number] = reason
        left = {str(number): shape for number, shape in enumerate(each.candidates) if number not in failures}
        means = self._compare(each, {DEFAULT: {}, **left}, self.rounds)
        told = f"{len(left)} of {len(each.candidates)} tried"
        for reason in sorted(set(failures.values())):
            told += f", {sum(found == reason for found in failures.values())} {reason}"
        fast = [name for name in means if means[name][0] < GAIN]
        for name in sorted(fast, key=lambda name: means[name][0])[:MOST_CONFIRMED]:
            shape = left[name]
            again = self._compare(each, {DEFAULT: {}, name: shape}, 3 * self.rounds)
            if name not in again or again[name][0] >= GAIN:
                continue
            cases = [(first, torch.float64), *itertools.product(others, (torch.float32, torch.float64))]
            if any(self._failure(each, model, shape, dtype) for model, dtype in cases):
                told += f", {dict(shape)} not for every model of the class"
                continue
            mean, times = again[name]
            shown = ", ".join(f"{rows:,} rows {old:,.1f} → {new:,.1f} µs" for rows, old, new in times)
            print(
                f"{each.shapes.operation} {each.key}: {dict(shape)} takes {mean:.2f} of the time: {shown} ({told})",
                flush=True,
            )
            return shape
        print(f"{each.shapes.operation} {each.key}: the default stays ({told})", flush=True)
        return None

    def _compare(
        self, each: ShapeClass, shapes: dict[str, Shape], rounds: int
    ) -> dict[str, tuple[float, list[tuple[int, float, float]]]]:
        """Return what takes no batch longer than the default: its mean share of that's time, rows and both's µs."""
        model, found = each.models[0], {}
        for rows in each.rows:
            count = input_count(4 * rows * model.width, least=2, most=32) if self.device.type == "cuda" else 1
            inputs = [self._input(model, rows, seed) for seed in range(count)]
            output = torch.empty(rows, model.operation.output_width(model.width), device=self.device)
            contenders = [
                Contender(name, self._call(each, model, inputs, output, shape)) for name, shape in shapes.items()
            ]
            found[rows] = time_on_device(contenders, count, self.device, rounds=rounds)
        means = {}
        for name in shapes:
            times = [(rows, at[DEFAULT].median_us, at[name].median_us) for rows, at in found.items()]
            ratios = [new / old for _, old, new in times]
            if name != DEFAULT and max(ratios) <= LOSS:
                means[name] = (math.prod(ratios) ** (1 / len(ratios)), times)
        return means

    def _failure(self, each: ShapeClass, model: Model, shape: Shape, dtype: torch.dtype) -> str:
        """Return why a shape cannot be used for rows of a dtype; nothing if it gives the default's bits."""
        for rows in CHECKED_ROWS:
            x = self._input(model, min(rows, max(each.rows)), seed=rows).to(dtype)
            exact = self.answer(each, model, x, {})
            try:
                if not torch.equal(bits(self.answer(each, model, x, shape)), bits(exact)):
                    return "with other bits"
            except Exception as error:  # of the compiler or of the GPU's driver, which have types of their own
                return type(error).__name__
        return ""

    def answer(self, each: ShapeClass, model: Model, x: Tensor, shape: Shape) -> Tensor:
        """Return what a model answers, launched in a shape that says what it changes of the default."""
        out = torch.zeros(len(x), model.operation.output_width(model.width), dtype=x.dtype, device=x.device)
        return self._call(each, model, [x], out, shape)(0)

    def _call(
        self, each: ShapeClass, model: Model, inputs: Sequence[Tensor], output: Tensor, shape: Shape
    ) -> Callable[[int], Tensor]:
        """Return what launches in a shape; on a CPU that interprets no kernels the plain torch reference stands in."""
        parameters = on_device(model.operation, self.device)

        def call(i: int) -> Tensor:
            if not self._launches:
                return output.copy_(model.operation.reference(parameters, inputs[i]))
            with each.shapes.trying({**each.default, **shape}):
                model.operation.launch(parameters, [inputs[i]], output, len(inputs[i]))
            return output

        return call

    def _input(self, model: Model, rows: int, seed: int) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(rows, model.width, device=self.device, generator=generator)


def bits(values: Tensor) -> Tensor:
    """Return floats as integers."""
    return values.view(torch.int32 if values.dtype == torch.float32 else torch.int64)


PENDING: list[ShapeClass] = []
"""What is measured: processes that are forked to compile find it here."""


def compile_in_cache(number: int, candidate: int) -> str:
    """Compile one shape for this GPU without launching it; return why that fails, or nothing."""
    run = JITFunction.run
    JITFunction.run = lambda *args, **named: run(*args, **{**named, "warmup": True})  # type: ignore[method-assign]
    torch.set_num_threads(1)
    try:
        each, bench = PENDING[number], Bench(torch.device("cuda"), 0)
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
            each = next(shape_classes([name], toy=True))
            bench.measure(dataclasses.replace(each, rows=(1, 5), candidates=each.candidates[:1]), {})
        return
    PENDING[:] = shape_classes(chosen)
    for each in PENDING:
        arrays_of(each.models[0].operation)  # once, for this process and those that it forks
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("fork")) as processes:
        compiled = [  # begun before this process uses the GPU, as those that it forks could not any more
            [processes.submit(compile_in_cache, number, at) for at in range(len(each.candidates))]
            for number, each in enumerate(PENDING)
        ]
        bench = Bench(torch.device("cuda"), 5)
        print(f"launch shapes on {device_name()}", flush=True)
        for each, futures in zip(PENDING, compiled, strict=True):
            failures = {number: reason for number, future in enumerate(futures) if (reason := future.result())}
            if time.monotonic() - began > limit_s:
                print(f"{each.shapes.operation} {each.key}: not measured, the time is over")
                processes.shutdown(wait=False, cancel_futures=True)
                break
            write(table, each, bench.measure(each, failures), capability(bench.device))


def write(table: Path, each: ShapeClass, shape: Shape | None, gpu: str) -> None:
    """Put one shape into the table, or take out what is there."""
    content = json.loads(table.read_bytes()) if table.exists() else {}
    part = content.setdefault(gpu, {}).setdefault(each.shapes.operation, {})
    part.pop(each.key, None)
    if shape is not None:
        part[each.key] = dict(shape)
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
