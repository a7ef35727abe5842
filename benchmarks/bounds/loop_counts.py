"""Counts how often the `while` loops of kernels run, which rows decide, by running the kernels in the interpreter.

    TRITON_INTERPRET=1 python -m benchmarks.loop_passes [--toy]

Prints JSON: for each work of the neighbours' family, the mean number of times that a loop's body runs when the loop is
come to, by the function that the loop is in.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from benchmarks.gpu.neighbor_workloads import neighbors
from benchmarks.gpu.workloads import Work
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.ops.neighbors import launch
from triton_regressors.kernels.plan import plan as plan_module
from triton_regressors.kernels.plan.plan import INPUT

ROWS = 8
FEW_FEATURES = 32
KERNELS = str(Path(plan_module.__file__).parents[1])


class Loop(NamedTuple):
    """A `while` loop: the function that it is in, the line of its test and the first of its body."""

    function: str
    test: int
    body: int


@functools.cache
def loops(file: str) -> list[Loop]:
    """Return the `while` loops of a Python file."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [
        Loop(function.name, node.lineno, node.body[0].lineno)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.While)
    ]


def count(work: Work) -> dict[str, float]:
    """Return the mean passes of each loop, by its function, over rows drawn as the benchmark's are.

    The rows stand for many, and so are not searched as few would be.
    """
    lines: Counter[tuple[str, int]] = Counter()

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename, frame.f_lineno] += 1
        return follow

    def begin(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        return follow if file.startswith(KERNELS) and loops(file) else None

    rng = np.random.default_rng(0)
    plan, parameters = work.plan, bind_parameters(work.plan, torch.device("cpu"))
    rows = torch.from_numpy(rng.standard_normal((ROWS, plan.n_features)).astype(plan.dtype))
    values = {INPUT: rows}
    for step in plan.steps:
        values[step.output] = torch.empty(ROWS, plan.widths()[step.output], dtype=torch.float64)
        before = sys.gettrace()
        sys.settrace(begin)
        try:
            inputs = [values[name] for name in step.inputs]
            with mock.patch.object(launch, "FEW_NEIGHBORS", 0):
                step.operation.launch(parameters[step.output], inputs, values[step.output], ROWS)
        finally:
            sys.settrace(before)
    found: dict[str, float] = {}
    for file in {file for file, _ in lines}:
        for loop in loops(file):
            tests, passes = lines[file, loop.test], lines[file, loop.body]
            if tests:
                found[loop.function] = passes / (tests - passes)
    return found


def chosen(toy: bool) -> Iterator[Work]:
    """Yield searches for neighbours; by metrics that are no matrix product one, as it takes the interpreter long."""
    for work in neighbors(torch.device("cpu"), toy):
        if toy or "euclidean" in work.title or (work.plan.n_features <= FEW_FEATURES and "100,000" in work.title):
            yield work


def counted(toy: bool = False) -> dict[str, dict[str, float]]:
    """Return what this module prints, from a process of its own, in which the interpreter runs kernels."""
    command = [sys.executable, "-m", "benchmarks.loop_passes", *(["--toy"] if toy else [])]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Count and print."""
    found = {work.title: count(work) for work in chosen("--toy" in sys.argv)}
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
