"""The command `levels`: it checks subjects at every level and, on a GPU, measures, draws and writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.environment import busy, default_directory, save_models
from gallery.catalogue import kernel_device
from gallery.errors import GalleryError, made
from gallery.timing import QUICK_ROUNDS, ROUNDS

PICTURES = Path(__file__).parents[2] / "docs/images/gallery"
RESULTS = "gallery_levels"
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""The compilers' caches; they are replaced by an empty folder to make compile times visible."""


def levels(names: Sequence[str] | None, output: Path | None, *, quick: bool) -> None:
    """Compare the levels of subjects by name, of all by default.

    Raises:
        GalleryError: There is no such subject, or an answer's error is larger than allowed.
    """
    device = kernel_device()
    with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, dict.fromkeys(CACHES, empty)):
        from gallery.levels.subjects import SUBJECTS

        if unknown := [name for name in names or () if name not in SUBJECTS]:
            raise GalleryError(f"There is no {unknown[0]}; subjects are {', '.join(SUBJECTS)}.")
        console = Console(markup=False, highlight=False)
        if device.type == "cpu":
            compare([*(names or SUBJECTS)], console)
            return
        from gallery.levels.measure import measure
        from gallery.levels.plots import draw

        busy()
        results, pictures = made(output or default_directory()), made(output or PICTURES)
        for name in names or SUBJECTS:
            found = measure(SUBJECTS[name], QUICK_ROUNDS if quick else ROUNDS)
            print_figures(found, console)
            path = save_models(
                results, RESULTS, {"quick": quick}, [found], list(SUBJECTS), among="subjects", key="subject"
            )
        draw(path, pictures)


def compare(names: Sequence[str], console: Console) -> None:
    """Check small sizes on the CPU, and print the error of each level's answers against float64."""
    from gallery.levels.parts import COMPILE, LEVELS, missing
    from gallery.levels.subjects import OPERATIONS, SUBJECTS, error

    device = torch.device("cpu")
    console.print("There is no GPU: small sizes on the CPU, the Triton language by its interpreter; nothing is timed.")
    for level in LEVELS:
        if reason := missing(level):
            console.print(f"{level} is left out: {reason}.")
    console.print(f"{COMPILE} is left out of models: to compile them for a CPU takes longer than all else.")
    here = [level for level in LEVELS if not missing(level)]
    title = "Largest error, in units of the largest number of the answer"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in here:
        table.add_column(heading, justify="right", overflow="fold")
    worst = 0.0
    with torch.inference_mode():
        for name in names:
            subject = SUBJECTS[name]
            arguments = subject.arguments(subject.small, device)
            truth = subject.truth(subject.small, arguments)
            cells = [name]
            for level in here:
                if level == COMPILE and name not in OPERATIONS:
                    cells.append("–")
                    continue
                found = error(subject.at(level, subject.small, device)(*arguments), truth)
                worst = max(worst, found / subject.tolerance_on(device))
                cells.append(f"{found:.1e}")
            table.add_row(*cells)
    console.print(table)
    if worst > 1:
        raise GalleryError(f"An error is {worst:.1f} times as large as it may be.")


def print_figures(found: dict[str, Any], console: Console) -> None:
    """Print a subject's figures, a level in each line."""
    limit = {"bytes": "a copy", "operations": "torch's product"}[found["bound"]]
    title = f"{found['subject']} {found['size']} {found['dtype']}; shares of the limit, which is that of {limit}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", min_width=15)
    for heading in ("error", "µs", "limit", "Python", "launches", "MB", "compiled"):
        table.add_column(heading, justify="right", no_wrap=True)
    for level, figures in found["levels"].items():
        table.add_row(
            *(level, f"{figures['error']:.0e}", digits(figures["median_us"]), f"{figures['share']:.1%}"),
            *(f"{digits(figures['host_us'])} µs", str(figures["launches"]), digits(figures["peak_mb"])),
            f"{figures['compile_s']:.1f} s",
        )
    console.print(table)
    for level, figures in found["levels"].items():
        if "generated" in figures:
            console.print(f"{level}, {figures['token_us']:,.0f} µs a token: {figures['generated']}")


def digits(number: float) -> str:
    """Return a number with one digit after the point, or with none if it has four digits before it."""
    return f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"
