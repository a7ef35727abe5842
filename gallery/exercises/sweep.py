"""Times a learner's file over the block sizes and warps that its SWEEP names, on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gallery.exercises.exercise import Exercise
from gallery.exercises.judge import SEED, judge
from gallery.timing import QUICK_ROUNDS, time_calls

BAR = 30
"""The characters of the longest bar."""

CHECKED = 3
"""The first cases of an exercise, by which every choice is judged before it is timed."""


def choices_of(swept: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Return all combinations of a SWEEP's numbers."""
    return [dict(zip(swept, numbers, strict=True)) for numbers in itertools.product(*swept.values())]


def sweep(exercise: Exercise, module: Any, device: torch.device, write: Callable[[str, Any], None]) -> None:
    """Write the time in microseconds of every choice, or why it has none."""
    torch.manual_seed(SEED)
    assert exercise.sweep
    dtype = exercise.cases[0].dtype
    arguments = exercise.sweep(dtype, device)
    calls: dict[int, Callable[[], Any]] = {}
    rows: list[list[Any]] = []
    for place, choice in enumerate(choices_of(module.SWEEP)):
        write("begin", text_of(choice))
        solve = partial(module.solve, **choice)
        found = [
            judge(solve, exercise.reference, replace(case, large=True), exercise.tolerances[case.dtype], device)
            for case in exercise.cases[:CHECKED]
        ]
        wrong = next((each for each in found if not each.is_right), None)
        rows.append([choice, None, (wrong.exception or f"wrong: {wrong.case}") if wrong else ""])
        if wrong is None:
            calls[place] = partial(solve, *arguments)
    write("begin", "timing")
    for name, timing in time_calls({str(place): call for place, call in calls.items()}, QUICK_ROUNDS).items():
        rows[int(name)][1] = timing.median_us
    write("sweep", {"rows": rows, "bytes": exercise.traffic(*arguments) if exercise.traffic else None})


def text_of(choice: Mapping[str, int]) -> str:
    """Return a choice as text."""
    return ", ".join(f"{name} {number:,}" for name, number in choice.items())


def print_sweep(console: Console, found: Mapping[str, Any]) -> None:
    """Print the times of all choices as a curve of bars, the fastest shortest, and the fastest once more."""
    rows, moved = found["rows"], found["bytes"]
    timed = [us for _, us, _ in rows if us is not None]
    table = Table("choice", "µs", *(["GB/s"] if moved else []), "")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for choice, us, why in rows:
        if us is None:
            table.add_row(text_of(choice), "", *([""] if moved else []), Text(why[:60]))
        else:
            rate = [f"{moved / us / 1e3:,.0f}"] if moved else []
            table.add_row(text_of(choice), f"{us:,.1f}", *rate, "█" * max(round(BAR * us / max(timed)), 1))
    console.print(table)
    if timed:
        best = min((row for row in rows if row[1] is not None), key=lambda row: row[1])
        console.print(f"The fastest is {text_of(best[0])}: {best[1]:,.1f} µs.")


def draw_sweep(found: Mapping[str, Any], title: str, path: Path) -> None:
    """Draw the times as curves over the block sizes, one for each number of warps, into a PNG file."""
    from matplotlib import pyplot as plt

    curves: dict[str, list[tuple[str, float]]] = {}
    for choice, us, _ in found["rows"]:
        blocks = {name: number for name, number in choice.items() if name != "num_warps"} or choice
        if us is not None:
            name = "time" if blocks is choice else f"{choice['num_warps']} warps"
            curves.setdefault(name, []).append((text_of(blocks), us))
    figure, axis = plt.subplots(figsize=(8, 4.5))
    for name, points in curves.items():
        axis.plot([label for label, _ in points], [us for _, us in points], marker="o", label=name)
    axis.set(ylabel="µs", title=title, ylim=(0, None))
    axis.tick_params(axis="x", rotation=30)
    axis.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
