"""The progress of the commands that read and compile many models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def fleet_progress(models: int) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Yield what shows the number of models read, and of those compiled, while there is a terminal to show it on."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading models", total=models)

        def reading(done: int) -> None:
            bar.update(task, completed=done)

        def compiling(done: int) -> None:
            if bar.tasks[0].description != "compiling models":
                bar.reset(task, description="compiling models")
            bar.update(task, completed=done)

        yield reading, compiling
