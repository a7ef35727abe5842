"""Counts the rows and answers of a model, and hands the counts to the Triton server's metrics about once a second.

A metric of the Python backend goes to the server's process and back, which takes longer than a small request. A
request's thread therefore only adds its rows to a number and copies some rows and answers into rings. The observer's
own thread counts these and tells the server. Neither can fail a request: the first error is logged and serving goes on.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..engine.gather import Part, on_cpu
from .counting import REASONS, AnswerCounts, ColumnCounts, Counts, Ring, pieces
from .metrics import Metrics, Subject

if TYPE_CHECKING:
    from ..engine.kernel_executor import Answers
    from .backend_types import Request, Utils
    from .member_counts import MemberCounts

OFF, SAMPLED, ON = MODES = ("off", "sampled", "on")
DEFAULT_MODE = SAMPLED

PERIOD_S = 1.0
LOG_PERIOD_S = 60.0
MOST_CHARACTERS = 400
"""The most characters of a trace's context that are logged; the context comes from outside."""

STOP_S = 5.0
"""The longest wait for the thread when the model is unloaded."""

MOST_ROWS = 32
"""The most rows that are sampled from a batch; each counts for the rows that it stands for."""


class Unobserved:
    """An observer that counts nothing."""

    def look(self, parts: Sequence[Part], total: int) -> None:
        """Copy rows of a batch that is being computed, `total` in all, of the requests' `parts`."""

    def keep(self, total: int, answers: Answers) -> None:
        """Count the rows of the last batch given to `look`, which are all answered by now."""

    def refuse(self, reason: str, rows: int, request: Request | None = None) -> None:
        """Count the rows of a request that is refused for one of `REASONS`, and note its trace if it has one."""

    def close(self) -> None:
        """Tell the server the last counts, and end the thread."""


class Observer(Unobserved):
    """Counts the rows of one instance of a model; a single thread calls its methods."""

    def __init__(
        self,
        subject: Subject,
        mode: str,
        utils: Utils,
        staged: Callable[[int], np.ndarray | None],
        warm_ups: Sequence[int] = (),
        members: MemberCounts | None = None,
    ) -> None:
        """Begin to count.

        Args:
            subject: the model.
            mode: `SAMPLED` or `ON`.
            utils: the server's module.
            staged: takes the row count of the current batch and returns its matrix if it lies in CPU memory.
            warm_ups: the row counts of the batches of zeros that the server sends before all other requests.
            members: counts the rows of a fleet's models.

        Raises:
            Exception: the server's own error if it takes no metrics.
        """
        inputs, profiles = subject.inputs, subject.profile.answers if subject.profile else {}
        columns = ColumnCounts(inputs, subject.nan_columns, subject.profile)
        answers = {name: AnswerCounts(profile) for name, profile in profiles.items()}
        self.counts = Counts(columns, answers, rows=0, refused=dict.fromkeys(REASONS, 0), members=members)
        self._all = mode == ON
        self._staged = staged
        self._warm_ups = list(warm_ups)
        self._ring = Ring(inputs.n_features, np.dtype(inputs.matrix_dtype))
        self._rings = {name: Ring(subject.outputs[name], np.dtype(np.float32)) for name in answers}
        self._laid: int | None = 0  # None: the batch does not count
        self._start, self._step, self._turn = 0, 1, 0
        self._rest: list[Part] = []
        self._counting = threading.Lock()
        self._log: Callable[[str], None] = utils.Logger.log_warn
        self._called = f"{subject.model} version {subject.version}"
        self._failed = False
        self._logged, self._next_log = dict(self.counts.refused), 0.0
        self._trace: str | None = None
        self._metrics: Metrics | None = Metrics(subject, self.counts, utils)
        self._wake, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def look(self, parts: Sequence[Part], total: int) -> None:  # noqa: D102
        try:
            rows = parts[0] if len(parts) == 1 else self._staged(total)
            self._laid = self._lay(parts, total, rows)
            if self.counts.members is not None and isinstance(rows, np.ndarray):
                self.counts.members.look(rows)
        except Exception as error:
            self._laid, self._rest = 0, []
            self._give_up(error)

    def keep(self, total: int, answers: Answers) -> None:  # noqa: D102
        laid = self._laid
        if laid is None:
            return
        self.counts.rows += total
        self.counts.explained += total * ("contributions" in answers.arrays)
        try:
            if self.counts.members is not None:
                self.counts.members.keep()
            self._ring.keep(laid)
            for name, ring in self._rings.items():
                if name in answers.arrays:
                    found = answers.arrays[name][self._start :: self._step]
                    laid = ring.lay(found, self._step)
                    ring.keep(laid)
                    if self._all and laid < len(found):
                        self._count_answers(name, found[laid:], np.ones(len(found) - laid, np.int64))
            for part in self._rest:
                for piece in pieces(on_cpu(part)):
                    self._count_rows(piece, np.ones(len(piece), np.int64))
            self._rest = []  # they lie in the server's memory
        except Exception as error:
            self._give_up(error)

    def refuse(self, reason: str, rows: int, request: Request | None = None) -> None:  # noqa: D102
        self.counts.refused[reason] += max(rows, 1)
        self._trace, self._rest = None, []
        try:
            if request is not None and hasattr(request, "trace"):  # servers have it from 24.04 on
                self._trace = request.trace().get_context()
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:  # noqa: D102
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_S)
        if not self._thread.is_alive():
            try:
                self.hand_over()
            except Exception as error:
                self._give_up(error)
            if self._metrics is not None:
                self._metrics.close()
                self._metrics = None

    def hand_over(self) -> None:
        """Count the rings' rows, and tell the server the counts since the last call."""
        self._take()
        self._log_refusals()
        if self._metrics is not None:
            self._metrics.hand_over()

    def _take(self) -> None:
        """Count the rings' rows."""
        self._ring.take(self._count_rows)
        for name, ring in self._rings.items():
            ring.take(functools.partial(self._count_answers, name))

    def _log_refusals(self) -> None:
        """Log the refusals since the last log and the last one's trace, at most once in `LOG_PERIOD_S`."""
        refused, now = dict(self.counts.refused), time.monotonic()
        if refused == self._logged or now < self._next_log:
            return
        more = {reason: count - self._logged[reason] for reason, count in refused.items()}
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in more.items() if count)
        trace = "" if self._trace is None else f"; the last one's trace is {self._trace[:MOST_CHARACTERS]!r}"
        self._log(f"{self._called} refused {sum(more.values()):,} rows: {reasons}{trace}")
        self._logged, self._next_log = refused, now + LOG_PERIOD_S

    def _lay(self, parts: Sequence[Part], total: int, rows: Part | None) -> int | None:
        """Copy rows of a batch, which are one matrix or lie in `parts` alone, into the ring; return how many.

        From a large batch each `step`-th row is copied and counts for `step` rows. Since the first row changes from
        batch to batch, these weights add up to the rows of the batches.
        """
        if self._warm_ups and self._is_warm_up(parts, total):
            return None
        if self._all:
            return self._lay_all(parts, rows)
        self._start, self._step = 0, 1
        if total > MOST_ROWS:
            self._step = -(-total // MOST_ROWS)
            self._start = self._turn % self._step  # start at another row each time: rows may be periodic
            self._turn += 1
            rows = _every([rows] if rows is not None else parts, self._start, self._step)
        return self._ring.lay(rows, self._step) if isinstance(rows, np.ndarray) else 0

    def _lay_all(self, parts: Sequence[Part], rows: Part | None) -> int:
        """Copy a batch's rows while there is room; `keep` counts the others."""
        laid = self._ring.lay(rows) if isinstance(rows, np.ndarray) else 0
        self._rest = list(parts) if rows is None else [rows[laid:]] if laid < len(rows) else []
        if self._ring.filling():
            self._wake.set()
        return laid

    def _is_warm_up(self, parts: Sequence[Part], total: int) -> bool:
        """Return whether a batch is the next of those that the server sends before the model is ready."""
        if total == self._warm_ups.pop(0) and not any(bool(part.any()) for part in parts):
            return True
        self._warm_ups.clear()
        return False

    def _count_rows(self, rows: np.ndarray, weights: np.ndarray) -> None:
        with self._counting:
            self.counts.columns.count(rows, weights)

    def _count_answers(self, name: str, answers: np.ndarray, weights: np.ndarray) -> None:
        with self._counting:
            self.counts.answers[name].count(answers, weights)

    def _run(self) -> None:
        """Hand over once per `PERIOD_S` until the end, and count in between if a ring fills sooner."""
        due = time.monotonic() + PERIOD_S
        try:
            while not self._stopping:
                self._wake.wait(max(due - time.monotonic(), 0))
                self._wake.clear()
                if time.monotonic() < due:
                    self._take()
                else:
                    self.hand_over()
                    due = time.monotonic() + PERIOD_S
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Log the first error; the model goes on, but its rows are no longer all counted."""
        if not self._failed:
            self._failed = True
            self._log(f"{self._called} is no longer observed in full: {type(error).__name__}: {error}")


def _every(parts: Sequence[Part], start: int, step: int) -> np.ndarray | None:
    """Return each `step`-th row of stacked matrices, from row `start` on; None if a GPU holds one of them."""
    taken = []
    for part in parts:
        if not isinstance(part, np.ndarray):
            return None
        taken.append(part[start::step])
        start = (start - len(part)) % step
    return taken[0] if len(taken) == 1 else np.concatenate(taken)


def start(
    subject: Subject,
    mode: str,
    utils: Utils,
    staged: Callable[[int], np.ndarray | None],
    warm_ups: Sequence[int] = (),
    members: MemberCounts | None = None,
) -> Unobserved:
    """Return the observer of a model in this mode, or one that counts nothing if the server takes no metrics."""
    if mode == OFF or not hasattr(utils, "MetricFamily"):
        return Unobserved()
    try:
        return Observer(subject, mode, utils, staged, warm_ups, members)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        utils.Logger.log_warn(f"{subject.model} version {subject.version} is not observed: {reason}")
        return Unobserved()
