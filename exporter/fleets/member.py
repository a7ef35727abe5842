"""The members of a fleet: each model is compiled and measured as for an entry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import sklearn

from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.export import check_parity
from triton_regressors.exporter.fleets.intervals import stackable_interval
from triton_regressors.exporter.lowering.registry import Registrations, own_registrations, register_own
from triton_regressors.kernels.entry import ParityReport
from triton_regressors.kernels.format.fleet import MemberOrigin
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.plan.plan import Plan

AT_ONCE = 32
"""The members that a process compiles at a time."""

FEW = 64
"""Up to this many members are compiled in this process: it takes longer to start others."""


Task = tuple[Any, Any, Mapping[str, Any]]
"""An id, its fitted estimator, and arguments of its own."""


@dataclass(frozen=True)
class Member:
    """A compiled model of a fleet; `X` and `outputs` are its golden rows, see `Golden`.

    `id` is a string, a whole number, or a tuple of such parts in several columns.

    `calibration_rows` and `coverage` are those of its interval, see `IntervalReport`: 0 and () without an interval, and
    NaN for each target if too few rows are held out.
    """

    id: Any
    origin: MemberOrigin
    plan: Plan
    inputs: Inputs
    columns: tuple[str, ...]
    nan_columns: tuple[int, ...]
    answers_column: bool
    boolean_columns: tuple[int, ...]
    parity: ParityReport
    X: np.ndarray
    outputs: Mapping[str, np.ndarray]
    calibration_rows: int = 0
    coverage: tuple[float, ...] = ()


def compile_members(
    models: Mapping[Any, Any],
    own: Mapping[Any, Mapping[str, Any]],
    rows: int,
    options: Mapping[str, Any],
    progress: Callable[[int], object] | None = None,
) -> list[Member]:
    """Compile models in as many processes as there are cores, and return the members in the order of the models.

    Args:
        models: the fitted estimators by their ids.
        own: the arguments of `compile_estimator` that each of them has of its own, such as its rows.
        rows: the most golden rows of a member.
        options: the arguments that all of them have in common.
        progress: is called with the number of members compiled so far.

    Raises:
        ExportError: a member cannot be exported, or its answers are not its estimator's; the message begins with its
            id.
    """
    found: list[Member] = []
    tasks = [(name, model, own[name]) for name, model in models.items()]
    groups = [tasks[first : first + AT_ONCE] for first in range(0, len(tasks), AT_ONCE)]
    for group in _compiled(groups, rows, options, len(tasks)):
        if isinstance(group, str):
            raise ExportError(group)
        found += group
        if progress is not None:
            progress(len(found))
    return found


def _compiled(
    groups: Sequence[Sequence[Task]], rows: int, options: Mapping[str, Any], count: int
) -> Iterator[list[Member] | str]:
    """Yield the members of each group, or the reason why one cannot be exported."""
    jobs = min(joblib.cpu_count(), len(groups))
    if jobs == 1 or count <= FEW:
        yield from (_compile(group, rows, options) for group in groups)
        return
    mine = own_registrations()
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
        yield from parallel(joblib.delayed(_compile)(group, rows, options, mine) for group in groups)


def _compile(
    group: Sequence[Task],
    rows: int,
    options: Mapping[str, Any],
    registrations: Registrations = (),
) -> list[Member] | str:
    """Return compiled members, or why one cannot be exported: an exception may lose its message between processes."""
    if registrations:
        register_own(registrations)
    found = []
    for name, model, own in group:
        try:
            found.append(_member(name, model, rows, {**options, **own}))
        except ExportError as error:
            return f"Model {name!r}: {error}"
    return found


def _member(name: Any, model: Any, rows: int, options: Mapping[str, Any]) -> Member:
    compilation = compile_estimator(model, profile=False, **options)
    check_parity(compilation.report, type(model).__name__)
    golden, report, interval = compilation.golden(), compilation.report.record(), compilation.interval
    estimator = type(model.steps[-1][1] if hasattr(model, "steps") else model).__name__
    return Member(
        name,
        MemberOrigin(estimator, sklearn.__version__, report.rows_from),
        stackable_interval(compilation.plan),
        compilation.inputs,
        compilation.columns,
        tuple(compilation.nan_columns),
        compilation.answers_column,
        compilation.boolean_columns,
        report,
        golden.X[:rows],
        {output: answers[:rows] for output, answers in golden.outputs.items()},
        0 if interval is None else interval.rows,
        () if interval is None else interval.coverage or (np.nan,) * len(interval.quantile),
    )
