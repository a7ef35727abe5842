"""The progress display of a running comparison: one bar over all measurements, and the last window's figures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from triton_regressors.clients.compare.figures.statistics import Window


class Display:
    """Context manager that shows progress; it does nothing without a console."""

    def __init__(self, console: Console | None) -> None:
        self._progress = (
            None
            if console is None or not console.is_terminal  # rich would print an empty line there
            else Progress(
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.description}", markup=False),
                TextColumn("{task.fields[window]}", style="dim", markup=False),
                console=console,
                transient=True,
            )
        )

    def __enter__(self) -> Display:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("", total=None, window="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, what: str) -> None:
        """Show the current step."""
        if self._progress is not None:
            self._progress.update(self._task, description=what, window="")

    def total(self, measurements: int) -> None:
        """Set how many measurements there will be."""
        if self._progress is not None:
            self._progress.update(self._task, total=measurements)

    @contextlib.contextmanager
    def measuring(self, what: str) -> Iterator[Callable[[Window], None]]:
        """Show one measurement; yield the function that takes each completed window."""
        self.say(what)

        def report(window: Window) -> None:
            if self._progress is not None:
                text = f"{window.requests_per_s:,.0f}/s, p99 {window.latency_p99_ms:.3g} ms"
                self._progress.update(self._task, window=text)

        yield report
        if self._progress is not None:
            self._progress.advance(self._task)
