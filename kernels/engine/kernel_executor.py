"""Runs the steps of a plan: the interface of every executor, and the kernels on a GPU or through the interpreter.

On a GPU a small batch costs latency, not bandwidth. Rows are staged in pinned host memory. The first kernel reads it
and the last kernel writes to it directly across the bus, and the launches of a batch are one captured CUDA graph. There
is a graph for each power of two of rows; rows past the batch are computed from whatever lies there and not returned. A
large batch costs bandwidth of the CPU's memory, of the bus and of the device, which chunks of rows use at the same
time. Since no row's arithmetic depends on another, neither this nor the batch's size changes an answer.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from ..format.errors import PlanError
from ..plan.plan import INPUT, Plan, Step
from .gather import Gathering, Part, on_cpu
from .graphs import Chunk, Lane, Piece, graph_sizes, streams
from .program import Program
from .resident import Outputs, Resident
from .staging import Staging, copy, split
from .streams import MOST_BRANCHES, Task
from .upload import upload

LANES = 4
"""The number of pieces of a batch in flight: while the bus carries some, the device computes the others."""

MOST_PIECES = 2**14
"""The number of cached slices of an output's buffer: making a slice takes as long as the rest of a small answer."""

Pieces = Callable[[int, int], torch.Tensor]
"""Given `start` and `stop`, returns the tensor over the rows `start:stop`."""

Way = tuple[tuple[Task, ...], ...]
"""Tasks that bring rows to the device and tasks that compute them, or one group that does both."""

Search = Callable[[np.ndarray], bool]
"""Returns whether all of the numbers are allowed."""


class Answers(NamedTuple):
    """Each output's rows in CPU memory, float32 `[rows, width]`, as a tensor and as an array over the same numbers.

    `pieces` returns tensors over some of the rows.
    """

    tensors: dict[str, torch.Tensor]
    arrays: dict[str, np.ndarray]
    pieces: dict[str, Pieces]

    @staticmethod
    def of(tensors: dict[str, torch.Tensor], pieces: dict[str, Pieces] | None = None) -> Answers:
        """Return the tensors and arrays over them."""
        if pieces is None:
            pieces = {name: functools.partial(_piece, tensor) for name, tensor in tensors.items()}
        return Answers(tensors, {name: tensor.numpy() for name, tensor in tensors.items()}, pieces)


class Executor(Protocol):
    """One way to run a plan on rows in a `Staging`."""

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Bring matrices, `rows` in all, one below the other, to the device, and start to compute their outputs.

        The returned answers are valid after `wait` and until the next launch.
        """

    def stage(self, parts: Sequence[np.ndarray], rows: int, outputs: Outputs) -> Answers:
        """Do the same with copies of the rows: the device may read those of `launch` where they lie."""

    def allowed(self, rows: int, search: Search) -> bool:
        """Wait for the launched rows; return whether all of their numbers are allowed.

        `search` runs while the device computes, unless the device itself searches the numbers.
        """

    def wait(self) -> None:
        """Wait until the launched rows are computed."""

    def staged(self, rows: int) -> np.ndarray | None:
        """Return the last launched `rows` rows, valid until the next launch, or None if they were not staged."""

    def answer(self, X: np.ndarray, outputs: Outputs) -> dict[str, np.ndarray]:
        """Return outputs of rows that need not be staged yet, in arrays that belong to the caller."""

    def warm_up(self, outputs: Outputs) -> None:
        """Do the one-time work that would delay the first batch."""


class KernelExecutor:
    """Runs the kernels, on a GPU or through the interpreter.

    A batch of at most a chunk of rows is one graph. A larger batch is cut into pieces of a chunk. Each piece is staged,
    brought to the device and computed on the stream of a lane; lanes take turns. A piece's intermediate values lie in
    buffers of its lane, which the lane's next piece reuses. With a `gathering`, parts that it can read in place are not
    staged.
    """

    def __init__(self, plan: Plan, staging: Staging, device: torch.device, gathering: Gathering | None = None) -> None:
        self._program = Program(plan, device)
        self._plan = plan = self._program.plan
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._staging = staging
        self._gathering = gathering
        self._searched: Callable[[], bool] | None = None
        self._chunk_rows = staging.chunk_rows
        self._chunks = len(staging.tensor) // self._chunk_rows
        self._widths = plan.widths()
        self._lanes = _lanes(device, min(self._chunks, LANES))
        self._streams = [lane.streams[0] for lane in self._lanes if lane.streams]
        self._busy = self._first = self._streams[:1]
        self._schedules: dict[Outputs, _Schedule] = {}

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Gather or stage rows and begin to compute their outputs, piece by piece."""
        gathering = self._gathering
        if gathering is None or not gathering.lay(parts, rows):
            return self.stage([on_cpu(part) for part in parts], rows, outputs)
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        self._searched = gathering.allowed
        if rows <= self._chunk_rows:
            self._busy = self._first
            return schedule.start(rows, gathered=True)
        self._busy = self._streams
        for piece in schedule.pieces(rows):
            piece.begin(min(piece.stop, rows) - piece.start, gathered=True)
        return schedule.answers(rows)

    def stage(self, parts: Sequence[np.ndarray], rows: int, outputs: Outputs) -> Answers:
        """Stage rows and begin to compute their outputs, piece by piece."""
        self._searched = None
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        if rows <= self._chunk_rows:
            self._staging.fill(parts, 0, rows)
            self._busy = self._first
            return schedule.start(rows)
        self._busy = self._streams
        for piece, group in zip(schedule.pieces(rows), split(parts, self._chunk_rows), strict=True):
            count = min(piece.stop, rows) - piece.start
            self._staging.fill(group, piece.start, count)
            piece.begin(count)
        return schedule.answers(rows)

    def allowed(self, rows: int, search: Search) -> bool:
        """Search the staged rows while the device computes, and wait."""
        if self._searched is not None:
            self.wait()
            return self._searched()
        found = search(self._staging.numbers(rows))
        self.wait()
        return found

    def wait(self) -> None:
        """Wait for the streams of the lanes that received a piece."""
        for stream in self._busy:
            stream.synchronize()

    def staged(self, rows: int) -> np.ndarray | None:
        """Return the last launched rows, or None if the device read them in place."""
        return None if self._searched is not None else self._staging.rows(rows)

    def answer(self, X: np.ndarray, outputs: Outputs) -> dict[str, np.ndarray]:
        """Return outputs of rows, after staging them."""
        rows = len(X)
        answers = self.stage((X,), rows, outputs).arrays
        found = {name: np.empty_like(answer) for name, answer in answers.items()}  # while the device computes
        if rows <= self._chunk_rows:
            self.wait()
            return {name: copy(answer, found[name]) for name, answer in answers.items()}
        for piece in self._schedules[outputs].pieces(rows):
            piece.wait()
            for name, answer in answers.items():
                copy(answer[piece.start : piece.stop], found[name][piece.start : piece.stop])
        return found

    @functools.cached_property
    def resident(self) -> Resident:
        """Return what answers rows that lie in the device's memory."""
        if self._gathering is None:
            raise PlanError("Only an executor with a gathering on this device reads rows there.")
        return Resident(self._program, self._lanes[0], self._gathering, self._staging.tensor.dtype)

    def warm_up(self, outputs: Outputs) -> None:
        """Compile every kernel, capture every graph, and compute one row."""
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        if self._on_gpu:
            self._busy = self._streams
            schedule.warm_up(self._chunk_rows)  # compiles before anything is captured
            self.wait()
            schedule.capture(self._chunk_rows)
        self._busy = self._first
        schedule.start(1)
        self.wait()

    def _bind(self, outputs: Outputs) -> _Schedule:
        """Lay out buffers and launches for a set of outputs."""
        steps = self._plan.steps_for(outputs)
        rows = len(self._staging.tensor)
        host = {
            name: torch.zeros(
                rows, self._widths[self._plan.outputs[name]], dtype=torch.float32, pin_memory=self._on_gpu
            )
            for name in outputs
        }
        readers = [step for step in steps if INPUT in step.inputs]
        direct = not self._on_gpu or (len(readers) == 1 and readers[0].operation.reads_input_once())
        lane = self._lanes[0]
        ways = self._ways(steps, host, lane, 0, self._chunk_rows, direct=direct, alone=True)
        whole = [Chunk(tuple(itertools.chain(*way)), lane) for way in ways]
        pieces: list[Piece] = []
        for number in range(self._chunks if self._chunks > 1 else 0):
            lane = self._lanes[number % len(self._lanes)]
            start, stop = number * self._chunk_rows, (number + 1) * self._chunk_rows
            ways = self._ways(steps, host, lane, start, stop, direct=direct, alone=False)
            chunks = {tasks: Chunk(tasks, lane) for way in ways for tasks in way}
            pieces.append(Piece(start, stop, [[chunks[tasks] for tasks in way] for way in ways], lane))
        schedule = self._schedules[outputs] = _Schedule(whole, pieces, host)
        if self._on_gpu:  # the stream on which buffers were made may still read the earlier contents of their memory
            torch.cuda.current_stream(self._device).synchronize()
        return schedule

    def _ways(
        self,
        steps: Sequence[Step],
        outputs: Mapping[str, torch.Tensor],
        lane: Lane,
        start: int,
        stop: int,
        *,
        direct: bool,
        alone: bool,
    ) -> list[Way]:
        """Return the tasks that bring rows of a batch and compute them: from staging, and by gathering if available.

        With `direct`, kernels read staged rows across the bus, so that one group of tasks does both. `alone` says
        whether no other rows are computed meanwhile.
        """
        host = {name: buffer[start:stop] for name, buffer in outputs.items()}
        tasks = functools.partial(self._program.tasks, steps, lane.values, self._chunk_rows, host, alone=alone)
        staged, ways = self._staging.tensor[start:stop], list[Way]()
        if direct:
            ways.append((tasks(staged),))
        if self._gathering or not direct:
            given = self._program.buffer(lane.values, INPUT, self._chunk_rows, staged.dtype)[: stop - start]
            compute = tasks(given)
            if not direct:
                ways.append(((Task((), INPUT, functools.partial(upload, staged, given)),), compute))
            if self._gathering:
                ways.append(((Task((), INPUT, functools.partial(self._gathering.launch, given, start)),), compute))
        return ways


class _Schedule:
    """The work for a set of outputs: the chunk of a small batch, the pieces of a larger one, and the answers' buffers.

    `whole` holds the chunk of staged rows and, with a gathering, the chunk of rows that the device gathers itself.
    """

    def __init__(self, whole: Sequence[Chunk], pieces: Sequence[Piece], buffers: dict[str, torch.Tensor]) -> None:
        self._whole = whole
        self._pieces = pieces
        self._buffers = buffers
        self._cut: dict[str, Pieces] = {
            name: functools.lru_cache(MOST_PIECES)(functools.partial(_piece, buffer))
            for name, buffer in buffers.items()
        }
        self._batches: tuple[dict[int, tuple[Callable[[], None], Answers]], ...] = tuple({} for _ in whole)

    def start(self, rows: int, *, gathered: bool = False) -> Answers:
        """Start a batch of one chunk, and return the answers, which are filled later.

        The start function and the answers are kept for each number of rows: slicing a tensor is slow compared with a
        graph's launch.
        """
        batch = self._batches[gathered].get(rows)
        if batch is None:
            batch = self._batches[gathered][rows] = self._whole[gathered].starter(rows), self.answers(rows)
        start, answers = batch
        start()
        return answers

    def pieces(self, rows: int) -> list[Piece]:
        """Return the pieces of a batch of more than a chunk."""
        return [piece for piece in self._pieces if piece.start < rows]

    def answers(self, rows: int) -> Answers:
        """Return the answers of a batch, which are filled later."""
        return Answers.of({name: buffer[:rows] for name, buffer in self._buffers.items()}, self._cut)

    def warm_up(self, rows: int) -> None:
        """Compile every kernel of batches of at most `rows` rows and of every piece by launching it."""
        for chunk in self._whole:
            chunk.launch(rows)
        for piece in self._pieces:
            piece.launch()

    def capture(self, rows: int) -> None:
        """Capture graphs: for a chunk one for each power of two up to `rows`, for a piece one for all of its rows."""
        for chunk in self._whole:
            chunk.capture(graph_sizes(rows))
        for piece in self._pieces:
            piece.capture()
        for batches in self._batches:
            batches.clear()


def _piece(buffer: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return buffer[start:stop]


def _lanes(device: torch.device, count: int) -> list[Lane]:
    """Return lanes with the streams that a GPU needs; with the interpreter, one lane is enough."""
    if device.type != "cuda":
        return [Lane(())]
    own_and_shared = streams(device, count + MOST_BRANCHES - 1)
    return [Lane((stream, *own_and_shared[count:])) for stream in own_and_shared[:count]]
