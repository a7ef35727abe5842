"""Runs the steps of a plan: the kernels on a GPU or through the interpreter, or the torch references on a CPU.

On a GPU a small batch costs latency, not bandwidth. Rows are staged in pinned host memory that the first kernel reads,
and the last kernel writes, across the bus itself, and the launches of a batch are one captured graph. There is a graph
for each power of two of rows; rows past the batch are computed from whatever lies there and not returned. A large batch
costs bandwidth: of the CPU's memory, of the bus and of the device, which chunks of rows use at the same time. Since no
row's arithmetic depends on another, neither this nor the batch's size changes an answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from .branches import MOST_BRANCHES, Launch, Task
from .chunks import Chunk, Lane, graph_sizes, streams
from .gather import Gathering, Part, on_cpu
from .plain_steps import SharedPoints, with_shared_points, with_whole_sums
from .plan import INPUT, Parameters, Plan, Step
from .staging import Staging, split
from .tiles import one_thread
from .upload import upload

LANES = 3
"""How many chunks are under way: while the CPU stages one, the bus carries another and the device computes a third."""

MOST_PIECES = 2**14
"""How many tensors over rows of an output's buffer are kept: making one takes as long as the rest of a small answer."""

Outputs = tuple[str, ...]

Pieces = Callable[[int, int], torch.Tensor]
"""Returns the tensor over the rows from one number on and before another."""

Search = Callable[[np.ndarray], bool]
"""Returns whether all of the numbers are allowed."""


class Answers(NamedTuple):
    """Each output's rows in CPU memory, float32 `[rows, width]`, as a tensor and as an array over the same numbers.

    `pieces` makes tensors of some of the rows.
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
    """One way to run a plan, whose rows lie in a `Staging`."""

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Bring matrices, `rows` in all, one below the other, to where they are computed, and begin with their outputs.

        Returns what holds them after `wait`, until the next launch.
        """

    def allowed(self, rows: int, search: Search) -> bool:
        """Wait until what was launched is computed; return whether all of its numbers are allowed.

        `search` is asked, while the device computes, unless the device has searched them itself.
        """

    def wait(self) -> None:
        """Wait until what was launched is computed."""

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows that need not be staged yet, valid until the next launch."""

    def warm_up(self, outputs: Outputs) -> None:
        """Do once what would make the first batch wait."""


def bind_parameters(plan: Plan, device: torch.device, *, plain: bool = False) -> dict[str, Parameters]:
    """Return each step's tensors on the device, by the value that the step makes: the kernel's, or plain torch's."""
    return {
        step.output: {
            name: torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
            for name, array in (op.plain_parameters() if plain else op.parameters()).items()
        }
        for step in plan.steps
        for op in [step.operation]
    }


class TorchExecutor:
    """Runs the references on the CPU, in one thread."""

    def __init__(self, plan: Plan, staging: Staging, device: torch.device) -> None:
        self._plan = plan = with_whole_sums(plan)
        self._staging = staging
        self._parameters = bind_parameters(plan, device, plain=True)
        self._schedules: dict[Outputs, tuple[Step | SharedPoints, ...]] = {}

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Stage rows and compute their outputs."""
        self._staging.fill([on_cpu(part) for part in parts], 0, rows)
        return self._compute(self._staging.tensor[:rows], outputs)

    def allowed(self, rows: int, search: Search) -> bool:
        """Search the staged rows."""
        return search(self._staging.numbers(rows))

    def wait(self) -> None:
        """Launching computed everything."""

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows, which are read where they lie."""
        if not X.flags.writeable:  # torch warns of arrays that it cannot write to
            return self.launch((X,), len(X), outputs)
        return self._compute(torch.from_numpy(np.ascontiguousarray(X)), outputs)

    def warm_up(self, outputs: Outputs) -> None:
        """Compute one row."""
        self._compute(self._staging.tensor[:1], outputs)

    @torch.inference_mode()
    def _compute(self, x: torch.Tensor, outputs: Outputs) -> Answers:
        steps = self._schedules.get(outputs)
        if steps is None:
            steps = with_shared_points(self._plan, self._plan.steps_for(outputs))
            self._schedules[outputs] = steps
        values = {INPUT: x}
        with one_thread():
            for step in steps:
                if isinstance(step, SharedPoints):
                    values |= step.run(self._parameters, values[step.input])
                    continue
                inputs = [values[name] for name in step.inputs]
                values[step.output] = step.operation.reference(self._parameters[step.output], *inputs)
            return Answers.of({name: values[self._plan.outputs[name]].float() for name in outputs})


class KernelExecutor:
    """Runs the kernels, on a GPU or through the interpreter.

    A large batch is cut into chunks of rows. Each chunk is staged, brought to the device and computed on the stream of
    a lane, and lanes take turns. What a chunk makes on its way lies in buffers of its lane, which the lane's next chunk
    uses again. With a `gathering` parts that it can lay are not staged.
    """

    def __init__(self, plan: Plan, staging: Staging, device: torch.device, gathering: Gathering | None = None) -> None:
        self._plan = plan = plan.on_device(device)
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._staging = staging
        self._gathering = gathering
        self._searched: Callable[[], bool] | None = None
        self._chunk_rows = staging.chunk_rows
        self._chunks = len(staging.tensor) // self._chunk_rows
        self._widths = plan.widths()
        self._parameters = bind_parameters(plan, device)
        self._lanes = _lanes(device, min(self._chunks, LANES))
        self._streams = [lane.streams[0] for lane in self._lanes if lane.streams]
        self._busy = self._first = self._streams[:1]
        self._schedules: dict[Outputs, _Schedule] = {}

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Gather or stage rows and begin to compute their outputs, chunk by chunk."""
        gathering = self._gathering
        self._searched = None
        if gathering is None or not gathering.lay(parts, rows):
            return self._stage([on_cpu(part) for part in parts], rows, outputs)
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        for number, start in enumerate(range(0, rows, self._chunk_rows)):
            schedule.gathered[number].starter(min(rows - start, self._chunk_rows))()
            self._busy = self._streams[: number + 1]
        self._searched = gathering.allowed
        return schedule.answers(rows)

    def _stage(self, parts: Sequence[np.ndarray], rows: int, outputs: Outputs) -> Answers:
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        if rows <= self._chunk_rows:
            self._staging.fill(parts, 0, rows)
            self._busy = self._first
            return schedule.start(rows)
        for number, group in enumerate(split(parts, self._chunk_rows)):
            count = sum(map(len, group))
            self._staging.fill(group, number * self._chunk_rows, count)
            schedule.chunks[number].starter(count)()
            self._busy = self._streams[: number + 1]
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
        """Wait for the streams of the lanes that were given a chunk."""
        for stream in self._busy:
            stream.synchronize()

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows, after staging them."""
        answers = self._stage((X,), len(X), outputs)
        self.wait()
        return answers

    def warm_up(self, outputs: Outputs) -> None:
        """Compile every kernel, capture every graph, and compute one row."""
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        self._busy = self._first
        if self._on_gpu:
            for chunks in (schedule.chunks, schedule.gathered):
                for chunk in chunks[:1]:
                    chunk.launch(self._chunk_rows)  # compiles before anything is captured
            self.wait()
            schedule.capture(self._chunk_rows)
        schedule.start(1)
        self.wait()

    def _bind(self, outputs: Outputs) -> _Schedule:
        """Lay out buffers and launches for a set of outputs."""
        steps = self._plan.steps_for(outputs)
        host = {name: self._host_buffer(self._widths[self._plan.outputs[name]]) for name in outputs}
        numbers = range(self._chunks)
        chunks = [self._bind_chunk(steps, host, number) for number in numbers]
        gathered = [self._bind_chunk(steps, host, number, self._gathering) for number in numbers if self._gathering]
        schedule = self._schedules[outputs] = _Schedule(chunks, gathered, host)
        return schedule

    def _bind_chunk(
        self,
        steps: Sequence[Step],
        outputs: Mapping[str, torch.Tensor],
        number: int,
        gathering: Gathering | None = None,
    ) -> Chunk:
        """Return the launches that make outputs, given by name as buffers, of one chunk of the batch's rows."""
        lane = self._lanes[number % len(self._lanes)]
        here = slice(number * self._chunk_rows, (number + 1) * self._chunk_rows)
        staged, host = self._staging.tensor[here], {name: buffer[here] for name, buffer in outputs.items()}
        readers = [step for step in steps if INPUT in step.inputs]
        values: dict[str, torch.Tensor] = {}
        tasks: list[Task] = []
        if gathering:
            values[INPUT] = self._device_buffer(lane, INPUT)
            gather = functools.partial(gathering.launch, values[INPUT], number * self._chunk_rows)
            tasks.append(Task((), INPUT, gather))
        elif not self._on_gpu or (len(readers) == 1 and readers[0].operation.reads_input_once()):
            values[INPUT] = staged
        else:
            values[INPUT] = self._device_buffer(lane, INPUT)
            tasks.append(Task((), INPUT, functools.partial(upload, staged, values[INPUT])))
        read = {name for step in steps for name in step.inputs}
        direct = {self._plan.outputs[name]: name for name in host if self._plan.outputs[name] not in read}
        for step in steps:
            inputs = [values[name] for name in step.inputs]
            target = host[direct[step.output]] if step.output in direct else self._device_buffer(lane, step.output)
            values[step.output] = target
            launch = _launch(step, self._parameters[step.output], inputs, target)
            tasks.append(Task(step.inputs, step.output, launch))
        for name, buffer in host.items():
            value = self._plan.outputs[name]
            if values[value] is not buffer:
                tasks.append(Task((value,), f"output {name}", _copy(values[value], buffer)))
        return Chunk(tasks, lane)

    def _device_buffer(self, lane: Lane, value: str) -> torch.Tensor:
        if value not in lane.values:
            lane.values[value] = torch.empty(
                self._chunk_rows,
                self._widths[value],
                dtype=self._staging.tensor.dtype if value == INPUT else torch.float64,
                device=self._device,
            )
        return lane.values[value]

    def _host_buffer(self, width: int) -> torch.Tensor:
        return torch.zeros(len(self._staging.tensor), width, dtype=torch.float32, pin_memory=self._on_gpu)


class _Schedule:
    """The chunks of a batch that make a set of outputs, and the host buffers in which their answers end.

    `chunks` are of staged rows, `gathered` of those that the device brings itself.
    """

    def __init__(self, chunks: list[Chunk], gathered: list[Chunk], buffers: dict[str, torch.Tensor]) -> None:
        self.chunks = chunks
        self.gathered = gathered
        self._buffers = buffers
        self._pieces: dict[str, Pieces] = {
            name: functools.lru_cache(MOST_PIECES)(functools.partial(_piece, buffer))
            for name, buffer in buffers.items()
        }
        self._batches: dict[int, tuple[Callable[[], None], Answers]] = {}

    def start(self, rows: int) -> Answers:
        """Begin a batch of one chunk, and return what will hold its answers.

        What this needs is kept for each number of rows: beside a graph's launch, slicing a tensor is slow.
        """
        batch = self._batches.get(rows)
        if batch is None:
            batch = self._batches[rows] = self.chunks[0].starter(rows), self.answers(rows)
        start, answers = batch
        start()
        return answers

    def answers(self, rows: int) -> Answers:
        """Return what will hold the answers of a batch."""
        return Answers.of({name: buffer[:rows] for name, buffer in self._buffers.items()}, self._pieces)

    def capture(self, rows: int) -> None:
        """Capture graphs: of the first chunk for powers of two of its `rows`, of the others for all of them."""
        sizes = graph_sizes(rows)
        for chunks in (self.chunks, self.gathered):
            for number, chunk in enumerate(chunks):
                chunk.capture(sizes if number == 0 else sizes[-1:])
        self._batches.clear()


def _piece(buffer: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return buffer[start:stop]


def _lanes(device: torch.device, count: int) -> list[Lane]:
    """Return lanes with the streams that a GPU needs; where kernels are interpreted one lane is enough."""
    if device.type != "cuda":
        return [Lane(())]
    own_and_shared = streams(device, count + MOST_BRANCHES - 1)
    return [Lane((stream, *own_and_shared[count:])) for stream in own_and_shared[:count]]


def _copy(source: torch.Tensor, target: torch.Tensor) -> Launch:
    def copy(rows: int) -> None:
        target[:rows].copy_(source[:rows], non_blocking=True)

    return copy


def _launch(step: Step, parameters: Parameters, inputs: list[torch.Tensor], output: torch.Tensor) -> Launch:
    return lambda rows: step.operation.launch(parameters, inputs, output, rows)
