"""Scoring of one part of the rows: the unit of work of a process, or of a Ray actor.

A part's answers are a .parquet file of their own in the run's work folder. The file is written under another name and
renamed when complete; a later run recognises a finished part by this name.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from triton_regressors.clients.client.parts import renumbered
from triton_regressors.clients.client.tensors import Tensors
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.files import Part, Source, as_numbers, batches, is_number
from triton_regressors.scoring.prefetch import prefetched
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.tables.errors import TableError, one_line

GROUP_ROWS = 2**20
"""Rows of a row group in the output."""


@dataclass(frozen=True)
class Job:
    """The common settings of all parts: the scorer, the work folder, and whether refused rows stay empty."""

    scorer: Scorer
    work: Path
    schema: pa.Schema
    by_row: bool


@dataclass(frozen=True)
class Outcome:
    """The result of a part: the number of scored rows and of refused ones among them; or the error and its place.

    `refused` says that the error is a row that the model does not take, `fatal` that the fault is not in the file.
    `computing_s` is the model's computing time in seconds, without reading, converting and writing.
    """

    part: int
    rows: int
    empty: int
    error: str = ""
    refused: bool = False
    fatal: bool = False
    computing_s: float = 0.0


class Stopwatch:
    """Adds up the `seconds` that pass in its context."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def part_file(work: Path, number: int) -> Path:
    """Return the file of a part's complete answers."""
    return work / f"{number:06}.parquet"


def refused_rows(work: Path, number: int) -> list[tuple[int, str]]:
    """Return the refused rows of a part, by their number in their file, with the reason of each."""
    path = part_file(work, number).with_suffix(".json")
    return [tuple(pair) for pair in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def score_part(job: Job, source: Source, part: Part, advance: Callable[[int], None] | None = None) -> Outcome:
    """Score a part and write its answers; `advance` receives the number of finished rows."""
    rows, wrong = part.first_row, list[tuple[int, str]]()
    path, clock = part_file(job.work, part.number), Stopwatch()
    try:
        if not source.unchanged():
            raise ScoringError("the file has changed since this run began.")
        with writing(path) as temporary, pq.ParquetWriter(temporary, job.schema) as writer:
            for tables in _gathered(_answered(job, source, part, wrong, clock, advance)):
                writer.write_table(pa.concat_tables(tables), row_group_size=GROUP_ROWS)
                rows += sum(map(len, tables))
            if wrong:
                with writing(path.with_suffix(".json")) as listed:
                    listed.write_text(json.dumps(wrong), encoding="utf-8")
    except InvalidRequest as error:
        return Outcome(part.number, 0, 0, f"{source.path}: {error}", refused=True)
    except TableError as error:
        return Outcome(part.number, 0, 0, str(error))
    except TritonRegressorsError as error:
        return Outcome(part.number, 0, 0, f"{source.path}: {error}", fatal=True)
    except OSError as error:
        return Outcome(part.number, 0, 0, f"Cannot write {path}: {one_line(error)}.", fatal=True)
    return Outcome(part.number, rows - part.first_row, len(wrong), computing_s=clock.seconds)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; once the file is complete on disk, rename it to `path`, replacing a file there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _answered(
    job: Job,
    source: Source,
    part: Part,
    wrong: list[tuple[int, str]],
    clock: Stopwatch,
    advance: Callable[[int], None] | None,
) -> Iterator[pa.Table]:
    """Yield the kept columns and answers of a part; refused rows have no answers, and are added to `wrong`.

    `clock` runs while the model computes.
    """
    scorer, first = job.scorer, part.first_row
    for table, tensors, no_numbers in prefetched(_converted(source, part, scorer, by_row=job.by_row)):
        empty: np.ndarray | None = None
        if job.by_row:
            with clock:
                answers, found = scorer.by_row(table, tensors)
            refused = {**dict(found), **no_numbers}
            if refused:
                empty = np.zeros(len(table), dtype=bool)
                empty[list(refused)] = True
                wrong += [(first + row, renumbered(reason, first)) for row, reason in sorted(refused.items())]
        else:
            try:
                with clock:
                    answers = scorer.answers(Columns(table), tensors)
            except InvalidRequest as error:
                raise InvalidRequest(renumbered(str(error), first)) from None
        columns: list[Any] = [_kept(table[name], job.schema.field(name).type) for name in scorer.keep]
        columns += [
            pa.array(array, mask=np.isnan(array) if scorer.may_lack(name) else empty)
            for name, array in scorer.as_columns(answers).items()
        ]
        yield pa.table(columns, schema=job.schema)
        first += len(table)
        if advance is not None:
            advance(len(table))
    if part.rows is not None and first - part.first_row != part.rows:
        raise ScoringError("the file has changed while it was read.")


def _kept(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in its type in the output; a number that this type cannot hold is null."""
    if column.type == kind or not (is_number(column.type) and is_number(kind)):
        return column.cast(kind)
    made, given = column.cast(kind, safe=False), column.cast(pa.float64(), safe=False)
    same = compute.equal(made.cast(pa.float64(), safe=False), given)
    return compute.if_else(same, made, pa.scalar(None, kind))


def _converted(
    source: Source, part: Part, scorer: Scorer, *, by_row: bool
) -> Iterator[tuple[pa.Table, Tensors | None, dict[int, str]]]:
    """Yield tables, their tensors, and the reason for each row with another value in place of a number.

    The tensors are None if a table does not fit; the error is raised when the table is scored.
    """
    for table in batches(source, part, scorer):
        numbers, refused = as_numbers(table, scorer) if by_row and source.csv else (table, {})
        try:
            tensors = scorer.tensors(Columns(numbers))
        except InvalidRequest:
            yield numbers, None, refused
        else:
            yield numbers, tensors, refused


def _gathered(tables: Iterator[pa.Table]) -> Iterator[list[pa.Table]]:
    """Yield lists of tables that each form a row group."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) >= GROUP_ROWS:
            yield held
            held = []
    if held:
        yield held
