"""The workers that score the parts: this process, several processes of this machine, or a Ray cluster's actors."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import astuple
from typing import Any

from triton_regressors.scoring.entry_choice import VISIBLE
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.files import Part, Source
from triton_regressors.scoring.part_scoring import Job, Outcome, score_part

Task = tuple[Source, Part]


def here(
    job: Job, tasks: Sequence[Task], left_out: Container[str], advance: Callable[[int], None]
) -> Iterator[Outcome]:
    """Score parts one after another, except those of left-out files; `advance` receives the finished rows."""
    for source, part in tasks:
        if source.path not in left_out:
            done = [0]

            def count(rows: int, done: list[int] = done) -> None:
                done[0] += rows
                advance(done[0])

            yield score_part(job, source, part, count)


def in_processes(job: Job, tasks: Sequence[Task], workers: int, gpus: Sequence[str] = ()) -> Iterator[Outcome]:
    """Score parts in parallel in new processes, each of which loads the entry once, on the GPUs in turn if any."""
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    begun = context.Value("i", 0)
    pool = ProcessPoolExecutor(max(min(workers, len(tasks)), 1), context, _begin, (gpus, begun))
    try:
        for future in as_completed([pool.submit(score_part, job, *task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool:
        raise ScoringError(
            "A process ended by itself, perhaps because memory ran out: fewer workers need less. The same call "
            "continues with the other parts."
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def ray_has_gpus(address: str, device: str) -> bool:
    """Connect to a cluster, unless already connected, and return whether the entry is to run on its GPUs."""
    if device.startswith("gpu:"):
        raise ScoringError(f"device is {device!r}; Ray gives each actor a GPU of its own: name auto, gpu or cpu.")
    ray = _connected(address)
    gpus = ray.cluster_resources().get("GPU", 0)
    if device.startswith("gpu") and not gpus:
        raise ScoringError(f"device is {device!r}, and the Ray cluster at {address} has no GPU.")
    return bool(gpus) and device != "cpu"


def on_ray(job: Job, tasks: Sequence[Task], address: str, workers: int | None, on_gpu: bool) -> Iterator[Outcome]:
    """Score parts in actors of Ray Data, each of which loads the entry once: on a GPU of its own, or on a core."""
    ray = _connected(address)
    actors = workers or int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))
    dataset = ray.data.from_items([{"task": number} for number in range(len(tasks))], override_num_blocks=len(tasks))
    scored = dataset.map_batches(
        _Actor,
        fn_constructor_args=(job, tasks),
        batch_size=1,
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
        compute=ray.data.ActorPoolStrategy(size=max(min(actors, len(tasks)), 1)),
    )
    try:
        for row in scored.iter_rows():
            part, rows, empty = (int(row[name]) for name in ("part", "rows", "empty"))
            wrong, took = (str(row["error"]), bool(row["refused"]), bool(row["fatal"])), float(row["computing_s"])
            yield Outcome(part, rows, empty, *wrong, took)
    except ray.exceptions.RayError as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        raise ScoringError(f"Ray ended: {said[-1] if said else type(error).__name__}") from error


class _Actor:
    """An actor that scores parts in Ray: a batch is a part's number."""

    def __init__(self, job: Job, tasks: Sequence[Task]) -> None:
        self._job, self._tasks = job, tasks

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        found = [score_part(self._job, *self._tasks[int(number)]) for number in batch["task"]]
        columns = zip(*(astuple(outcome) for outcome in found), strict=True)
        return {name: list(column) for name, column in zip(Outcome.__dataclass_fields__, columns, strict=True)}


def _connected(address: str) -> Any:
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ScoringError(f"Cannot reach a Ray cluster at {address}: {str(error).splitlines()[0]}") from None
    return ray


def _begin(gpus: Sequence[str], begun: Any) -> None:
    """Let Ctrl-C end a worker without output, because the parent process prints the message."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    take_gpu(gpus, begun)


def take_gpu(gpus: Sequence[str], begun: Any) -> None:
    """Restrict this process to the next of some GPUs before it uses one; `begun` counts all such processes."""
    with begun.get_lock():
        number, begun.value = begun.value, begun.value + 1
    if gpus:
        os.environ[VISIBLE] = gpus[number % len(gpus)]
