"""The six puzzles as exercises in Numba CUDA, on sizes that its simulator runs in seconds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from gallery.exercises import elements, reductions
from gallery.exercises.arguments import ENDS, FORMULA, LARGE, Sample, case, nan_case
from gallery.exercises.exercise import Case, Exercise
from gallery.exhibit import Size
from gallery.kernels import broadcast, dot, map, map_2d, zip

OTHERS = {each.name: each for each in (*elements.EXERCISES, *reductions.EXERCISES)}
STRIDES = "Elements that lie apart are wrong: index the array that you are given, and not its memory."
UNROUNDED = {torch.float32: 4e-6}


def cases(sample: Sample, sizes: Sequence[Size], large: Size, apart: str) -> list[Case]:
    """Return the cases of some sizes, the first of them plain; `apart` is the layout of strides."""

    def named(size: Size) -> str:
        return " × ".join(counted(length) for length in size)

    return [
        case(named(sizes[0]), sample, sizes[0], FORMULA),
        *(case(named(size), sample, size, ENDS) for size in sizes[1:]),
        case(named(large), sample, large, LARGE, large=True),
        case(f"{named(sizes[1])}, {apart}", sample, sizes[1], STRIDES, layout=apart, special=True),
        nan_case(sample, sizes[1]),
    ]


def counted(length: int) -> str:
    """Return a length as it is read."""
    return f"{length:,}"


def puzzle(name: str) -> Callable[..., torch.Tensor]:
    """Return the puzzle's answer, whose module needs Numba only when it is called."""

    def solve(*arguments: Any) -> torch.Tensor:
        found: torch.Tensor = importlib.import_module(f"gallery.puzzles.{name}").solve(*arguments)
        return found

    return solve


def exercise(name: str, of: list[Case], hints: Sequence[str], functions: Sequence[str]) -> Exercise:
    """Return the Numba exercise of a puzzle, which has the formula and the mistakes of the one beside it."""
    return replace(
        OTHERS[name],
        name=f"{name}_numba",
        cases=of,
        tolerances=UNROUNDED,
        hints=hints,
        solution=[(f"gallery/puzzles/{name}.py", [*functions, "solve"])],
        solve=puzzle(name),
        language="numba",
        sweep=None,
    )


LENGTHS: list[Size] = [(256,), (300,), (1,)]
SIDES: list[Size] = [(8, 64), (9, 33), (1, 1)]

EXERCISES = [
    exercise(
        "map",
        cases(map.sample, LENGTHS, (1000,), "apart"),
        (
            "Which element is this thread's? Block 0 has the first THREADS of them, block 1 the next.",
            "`i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x`, or `cuda.grid(1)`, which is the same.",
            "The last block has threads from n on: `if i < x.shape[0]:` before `y[i] = x[i] + c`.",
        ),
        ["add"],
    ),
    exercise(
        "zip",
        cases(zip.sample, LENGTHS, (1000,), "apart"),
        (
            "It is the map with two arrays to read.",
            "`cuda.grid(1)` is this thread's element.",
            "`if i < z.shape[0]: z[i] = x[i] + y[i]`",
        ),
        ["add"],
    ),
    exercise(
        "map_2d",
        cases(map_2d.sample, SIDES, (30, 40), "transposed"),
        (
            "The grid has two dimensions: the first counts columns, the second rows.",
            "`column, row = cuda.grid(2)`",
            "A thread has an element if `row < x.shape[0] and column < x.shape[1]`: then it is "
            "`y[row, column] = x[row, column] + c`.",
        ),
        ["add"],
    ),
    exercise(
        "broadcast",
        cases(broadcast.sample, [(2, 256), (3, 300), (1, 1)], (5, 127), "apart"),
        (
            "`cuda.blockIdx.x` is the row. All threads of the block need a of this row.",
            "`for column in range(cuda.threadIdx.x, z.shape[1], THREADS):` strides along the row, and ends by itself.",
            "`z[row, column] = a[row, 0] + b[0, column]`",
        ),
        ["add_row"],
    ),
    exercise(
        "pooling",
        cases(reductions.windowed, [(130, 3), (300, 9), (1, 1)], (800, 200), "apart"),
        (
            "Thread t copies element `cuda.blockIdx.x * THREADS + t` to `shared[t]`; some threads copy a second one, "
            "or more, for the windows that hang over.",
            "`for k in range(t, THREADS + window - 1, THREADS):` are the places that thread t copies, if x goes so "
            "far.",
            "`cuda.syncthreads()` between copying and summing, where all threads come by, and not inside of an `if`.",
        ),
        ["add_window"],
    ),
    exercise(
        "dot",
        cases(dot.sample, LENGTHS, (1000,), "apart"),
        (
            "Each thread puts one product, or 0, into `shared`, and all wait. Then half of the threads add what the "
            "other half has.",
            "`half = THREADS // 2`, `while half > 0:`, `if t < half: shared[t] += shared[t + half]`, then "
            "`cuda.syncthreads()` outside of the `if`, and `half //= 2`.",
            "One thread of the block adds the block's sum: `if t == 0: cuda.atomic.add(total, 0, shared[0])`. "
            "`total[0] += shared[0]` would lose what other blocks add in between.",
        ),
        ["sum_of_block", "add_products", "add_up"],
    ),
]
