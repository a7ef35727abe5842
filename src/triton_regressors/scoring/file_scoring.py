"""`score`: scoring of files of rows, which may be larger than memory, into files of answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from triton_regressors.contribution_game import OUTPUT
from triton_regressors.extras import require
from triton_regressors.scoring.devices import only_on_cpus, visible_gpus
from triton_regressors.scoring.entry_choice import read_config
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.journal import JOURNAL, begin, only_run, work_folder
from triton_regressors.scoring.output import check_output, join, list_refused, targets
from triton_regressors.scoring.part_scoring import Job, Outcome, part_file, refused_rows
from triton_regressors.scoring.workers import in_processes, in_this_process, on_ray, ray_has_gpus
from triton_regressors.scoring.worklist import Worklist, make_worklist

ERRORS = ("stop", "row", "file")
Progress = Callable[[int, int | None], None]
"""A function that receives the finished rows and all rows; None instead of all if there is a .csv."""


@dataclass(frozen=True)
class Score:
    """The result of scoring files.

    rows: in the output. empty: the refused ones among them, whose outputs are null. left_out: file → the reason why
    none of its rows is in the output. listed: the file that names both, or None. before: rows finished by an earlier
    run. seconds: from the call to the complete output, with loading, reading, writing and joining. computing_s: the
    model's computing time, over all processes. where: the engine and device in words.
    """

    output: Path
    model: str
    version: int
    where: str
    files: int
    rows: int
    empty: int
    left_out: dict[str, str]
    listed: Path | None
    before: int
    seconds: float
    computing_s: float

    @property
    def rows_per_s(self) -> float:
        """Rows that this run scored in a second from start to end, with loading, reading, writing and joining."""
        return self._rate(self.seconds)

    @property
    def computed_rows_per_s(self) -> float:
        """Rows that a process answered in a second of computing alone."""
        return self._rate(self.computing_s)

    def _rate(self, seconds: float) -> float:
        return max(self.rows - self.before, 0) / seconds if seconds else 0.0


def score(
    entry: Path | str,
    inputs: Path | str | Sequence[Path | str],
    output: Path | str,
    *,
    version: int | str | None = None,
    outputs: Sequence[str] = ("y",),
    contributions: bool = False,
    where: str | None = None,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    errors: str = "stop",
    device: str = "auto",
    workers: int | None = None,
    ray: str | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
) -> Score:
    """Write an entry's answers to the rows of files, in their order, without a server.

    Rows are scored part by part, a million or a row group at a time, for files of any size. Finished parts lie beside
    the output, in a folder of its name and `.partial`; when all are finished, the complete output appears. After a
    crash the same call continues with the remaining parts; it refuses to if the model or a file has changed.

    Args:
        entry: the entry's directory. Its own code runs: score only entries that you trust.
        inputs: files, folders and globs of .parquet and .csv; those of a folder, at any depth, in the order of their
            paths. Columns that folders state, as in date=2026-01-31/, count as the files'.
        output: a .parquet or .csv for all of them, or a folder for a .parquet of each.
        version: see `load`, as for columns and device.
        outputs: their names.
        contributions: whether there is also the output of this name: a column contribution_age for a column age, ...,
            and contribution_base, which add up to y, or to what stands before a link; see `export`. If they are
            estimated, contribution_error_age, ... are their standard errors.
        where: a condition on an output, as in "y > 400" (see `Client.explain`): rows for which it does not hold have
            no contributions, and none are computed for them. None: all rows have some.
        keep: columns that the output has too.
        columns: the feature columns, if they differ from the entry's names.
        device: "auto", "cpu", "gpu", "gpu:1".
        errors: the response to a refused row or an unreadable file. "stop" ends the run. "row" leaves the outputs of
            refused rows null. "file" leaves out files with a refused row, and unreadable ones. A .csv beside the output
            lists refused rows and files with the reasons.
        workers: processes that score parts in parallel, each in one thread on a CPU, or on the GPUs in turn; by
            default only this one.
        ray: address of a Ray cluster ("auto", "local", "HOST:PORT"), whose actors score the parts: `workers` of them,
            by default as many as it has GPUs, or else cores. All its machines need to see the files by the same paths.
        overwrite: replace an existing output.
        restart: forget the finished parts of an earlier run of the same output.
        progress: see `Progress`.

    Raises:
        ScoringError: an argument, a file or an earlier run does not allow it; with errors="stop" also the error of a
            row or a file, with the row counted in its file from 0.
        InvalidRequest: there is no such output, or names clash.
        MissingExtra: pyarrow, the packages that entries compute with, or Ray is not installed.
    """
    began = time.perf_counter()
    require("score", "Scoring files")
    if ray is not None:
        require("ray", "Scoring on Ray", "ray")
    if errors not in ERRORS:
        raise ScoringError(f"errors is {errors!r}; it must be one of {', '.join(ERRORS)}.")
    if workers is not None and workers < 1:
        raise ScoringError(f"workers is {workers}; it must be at least 1.")
    given = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    output = Path(output).absolute()
    if contributions and OUTPUT not in outputs and not isinstance(outputs, str):
        outputs = (*outputs, OUTPUT)
    options = {"version": version, "outputs": outputs, "where": where, "keep": keep, "columns": columns}
    options["device"] = device
    worklist = make_worklist(entry, given, options, leave_out=errors == "file", by_row=errors == "row")
    check_output(output, given, [source.path for source in worklist.sources])
    goals, folder = targets(output, worklist.sources), work_folder(output)
    there = [path for path in goals if path.exists()]
    if there and not overwrite and (restart or not (folder / JOURNAL).exists()):
        raise ScoringError(f"{there[0]} exists already; --overwrite (overwrite=True) replaces it.")
    on_gpu = worklist.scorer.on_gpu() if ray is None else ray_has_gpus(ray, _for_actors(device, worklist))
    with only_run(folder):
        done = begin(folder, worklist.settings(on_gpu), worklist.parts, restart=restart)
        run = _Run(worklist, folder, errors, progress, done)
        try:
            run.score(on_gpu, workers, ray)
        except BaseException:
            if not any(folder.glob("*.parquet")):
                shutil.rmtree(folder)
            raise
        whole = [part for part in worklist.parts if worklist.sources[part.source].path not in worklist.left_out]
        for path, places in goals.items():
            files = [part_file(folder, part.number) for part in whole if part.source in places]
            if files or len(places) != 1:
                join(files, path, worklist.schema)
        empty = [
            (worklist.sources[part.source].path, str(row), why)
            for part in whole
            for row, why in refused_rows(folder, part.number)
        ]
        listed = list_refused(output, [*empty, *((path, "", why) for path, why in worklist.left_out.items())])
        rows = sum(run.rows[part.number] for part in whole)
        shutil.rmtree(folder)
    entry_used, files_used = worklist.scorer.entry, {part.source for part in whole}
    return Score(
        *(output, entry_used.name, entry_used.version, run.where, len(files_used), rows, len(empty)),
        *(worklist.left_out, listed, run.before, time.perf_counter() - began, run.computing_s),
    )


def _for_actors(device: str, worklist: Worklist) -> str:
    """Return the device of Ray's actors; an entry that stays on CPUs needs no GPU."""
    stays = device == "auto" and only_on_cpus(read_config(worklist.scorer.entry.directory))
    return "cpu" if stays else device


@dataclass
class _Run:
    """A run over the parts of a worklist. rows: of each finished part. done: the parts finished by an earlier run."""

    worklist: Worklist
    folder: Path
    errors: str
    progress: Progress | None
    done: set[int]
    rows: dict[int, int] = field(default_factory=dict)
    before: int = 0
    computing_s: float = 0.0
    where: str = ""

    def score(self, on_gpu: bool, workers: int | None, ray: str | None) -> None:
        """Score the remaining parts; raise `ScoringError` if a refused row or a file ends the run."""
        worklist, sources = self.worklist, self.worklist.sources
        self.rows = {number: pq.read_metadata(part_file(self.folder, number)).num_rows for number in self.done}
        self.before = sum(self.rows.values())
        job = Job(worklist.scorer, self.folder, worklist.schema, self.errors == "row")
        tasks = [(sources[part.source], part) for part in worklist.parts if part.number not in self.done]
        if ray is not None:
            outcomes, self.where = on_ray(job, tasks, ray, workers, on_gpu), f"Ray at {ray}"
        elif (workers or 1) > 1:
            gpus = visible_gpus() if on_gpu and worklist.scorer.device in ("auto", "gpu") else []
            outcomes, self.where = in_processes(job, tasks, workers or 1, gpus), f"{workers} processes"
        else:
            self.where = worklist.scorer.where
            outcomes = in_this_process(job, tasks, worklist.left_out, self._advance)
        self._advance(0)
        for outcome in outcomes:
            self._record(outcome)

    def _record(self, outcome: Outcome) -> None:
        source = self.worklist.sources[self.worklist.parts[outcome.part].source]
        if not outcome.error:
            self.rows[outcome.part] = outcome.rows
            self.computing_s += outcome.computing_s
            self._advance(0)
            return
        if self.errors != "file" or outcome.fatal:
            hint = " With --errors row (errors='row') such rows stay empty." if outcome.refused else ""
            done = (
                f" Parts done: {len(self.rows)} of {len(self.worklist.parts)}; the same call continues with the others."
            )
            raise ScoringError(f"{outcome.error}{hint}{done if self.rows else ''}")
        self.worklist.left_out.setdefault(source.path, outcome.error)

    def _advance(self, rows: int) -> None:
        """Report the finished rows, plus `rows` of the current part."""
        if self.progress is not None:
            counts = [part.rows for part in self.worklist.parts]
            total = None if None in counts else sum(count or 0 for count in counts)
            self.progress(sum(self.rows.values()) + rows, total)
