"""Runs the steps of a plan: the kernels on a GPU or through the interpreter, or the torch references on a CPU.

On a GPU a small batch costs latency, not bandwidth. Rows are staged in pinned host memory that the first kernel reads,
and the last kernel writes, across the bus itself, and the launches of a batch are one captured graph. There is a graph
for each power of two of rows; rows past the batch are computed from whatever lies there and not returned. Since no
row's arithmetic depends on another, neither this nor the batch's size changes an answer.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np
import torch

from .plan import INPUT, Parameters, Plan, Step
from .staging import Staging
from .tiles import one_thread

try:
    from cuda.bindings import driver  # torch's builds for CUDA bring it
except ImportError:
    driver = None

SMALLEST_GRAPH_ROWS = 16
LARGEST_GRAPH_BYTES = 4 * 2**20

Outputs = tuple[str, ...]


class Answers(NamedTuple):
    """Each output's rows in CPU memory, float32 `[rows, width]`, as a tensor and as an array over the same numbers."""

    tensors: dict[str, torch.Tensor]
    arrays: dict[str, np.ndarray]

    @staticmethod
    def of(tensors: dict[str, torch.Tensor]) -> Answers:
        """Return the tensors and arrays over them."""
        return Answers(tensors, {name: tensor.numpy() for name, tensor in tensors.items()})


class Executor(Protocol):
    """One way to run a plan, whose rows lie in a `Staging`."""

    def launch(self, rows: int, outputs: Outputs) -> Answers:
        """Begin to compute outputs of the first `rows` staged rows.

        Returns what holds them after `wait`, until the next launch.
        """

    def wait(self) -> None:
        """Wait until what was launched is computed."""

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows that need not be staged yet, valid until the next launch."""

    def warm_up(self, outputs: Outputs) -> None:
        """Do once what would make the first batch wait."""


def bind_parameters(plan: Plan, device: torch.device) -> dict[str, Parameters]:
    """Return each step's tensors on the device, by the value that the step makes."""
    return {
        step.output: {
            name: torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
            for name, array in step.operation.parameters().items()
        }
        for step in plan.steps
    }


class TorchExecutor:
    """Runs the references on the CPU, in one thread."""

    def __init__(self, plan: Plan, staging: Staging, device: torch.device) -> None:
        self._plan = plan
        self._staging = staging
        self._parameters = bind_parameters(plan, device)
        self._schedules: dict[Outputs, tuple[Step, ...]] = {}

    def launch(self, rows: int, outputs: Outputs) -> Answers:
        """Compute outputs of the first `rows` staged rows."""
        return self._compute(self._staging.tensor[:rows], outputs)

    def wait(self) -> None:
        """Launching computed everything."""

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows, which are read where they lie."""
        if not X.flags.writeable:  # torch warns of arrays that it cannot write to
            self._staging.copy(X)
            return self.launch(len(X), outputs)
        return self._compute(torch.from_numpy(np.ascontiguousarray(X)), outputs)

    def warm_up(self, outputs: Outputs) -> None:
        """Compute one row."""
        self.launch(1, outputs)

    @torch.inference_mode()
    def _compute(self, x: torch.Tensor, outputs: Outputs) -> Answers:
        steps = self._schedules.get(outputs)
        if steps is None:
            steps = self._schedules.setdefault(outputs, self._plan.steps_for(outputs))
        values = {INPUT: x}
        with one_thread():
            for step in steps:
                inputs = [values[name] for name in step.inputs]
                values[step.output] = step.operation.reference(self._parameters[step.output], *inputs)
            return Answers.of({name: values[self._plan.outputs[name]].float() for name in outputs})


class KernelExecutor:
    """Runs the kernels, on a GPU or through the interpreter."""

    def __init__(self, plan: Plan, staging: Staging, device: torch.device) -> None:
        self._plan = plan
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None  # type: ignore[no-untyped-call]
        self._staging = staging
        self._max_rows = len(staging.tensor)
        self._widths = plan.widths()
        self._parameters = bind_parameters(plan, device)
        self._values: dict[str, torch.Tensor] = {}
        self._schedules: dict[Outputs, _Schedule] = {}
        row_bytes = plan.n_features * staging.tensor.itemsize
        self._graph_rows = graph_sizes(row_bytes, self._max_rows) if self._on_gpu else []

    def launch(self, rows: int, outputs: Outputs) -> Answers:
        """Begin to compute outputs of the first `rows` staged rows."""
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        return schedule.start(rows)

    def wait(self) -> None:
        """Wait for the executor's stream."""
        if self._stream is not None:
            self._stream.synchronize()

    def answer(self, X: np.ndarray, outputs: Outputs) -> Answers:
        """Return outputs of rows, after staging them."""
        self._staging.copy(X)
        answers = self.launch(len(X), outputs)
        self.wait()
        return answers

    def warm_up(self, outputs: Outputs) -> None:
        """Compile every kernel, capture every graph, and compute one row."""
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        if self._on_gpu:
            schedule.launch(self._max_rows)  # compiles before anything is captured
            self.wait()
            schedule.capture(self._graph_rows)
        schedule.start(1)
        self.wait()

    def _bind(self, outputs: Outputs) -> _Schedule:
        """Lay out buffers and launches for a set of outputs."""
        steps = self._plan.steps_for(outputs)
        launches: list[Callable[[int], None]] = []
        readers = [step for step in steps if INPUT in step.inputs]
        values = dict(self._values)
        if not self._on_gpu or (len(readers) == 1 and readers[0].operation.reads_input_once()):
            values = {**values, INPUT: self._staging.tensor}
        else:
            values[INPUT] = self._device_buffer(INPUT)
            launches.append(_copy(self._staging.tensor, values[INPUT]))
        host = {name: self._host_buffer(self._widths[self._plan.outputs[name]]) for name in outputs}
        read = {name for step in steps for name in step.inputs}
        direct = {self._plan.outputs[name]: name for name in outputs if self._plan.outputs[name] not in read}
        for step in steps:
            inputs = [values[name] for name in step.inputs]
            target = host[direct[step.output]] if step.output in direct else self._device_buffer(step.output)
            values[step.output] = target
            launches.append(_launch(step, self._parameters[step.output], inputs, target))
        for name in outputs:
            made = values[self._plan.outputs[name]]
            if made is not host[name]:
                launches.append(_copy(made, host[name]))
        schedule = _Schedule(launches, host, self._stream)
        self._schedules[outputs] = schedule
        return schedule

    def _device_buffer(self, value: str) -> torch.Tensor:
        if value not in self._values:
            self._values[value] = torch.empty(
                self._max_rows,
                self._widths[value],
                dtype=self._staging.tensor.dtype if value == INPUT else torch.float64,
                device=self._device,
            )
        return self._values[value]

    def _host_buffer(self, width: int) -> torch.Tensor:
        return torch.zeros(self._max_rows, width, dtype=torch.float32, pin_memory=self._on_gpu)


class _Schedule:
    """The launches that make a set of outputs, the host buffers they end in, and what starts batches of each size."""

    def __init__(
        self, launches: list[Callable[[int], None]], buffers: dict[str, torch.Tensor], stream: torch.cuda.Stream | None
    ) -> None:
        self._launches = launches
        self._buffers = buffers
        self._stream = stream
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._batches: dict[int, tuple[Callable[[], None], Answers]] = {}

    def start(self, rows: int) -> Answers:
        """Begin a batch, and return what will hold its answers.

        What this needs is kept for each number of rows: beside a graph's launch, slicing a tensor is slow.
        """
        batch = self._batches.get(rows)
        if batch is None:
            answers = Answers.of({name: buffer[:rows] for name, buffer in self._buffers.items()})
            batch = self._batches[rows] = self._starter(rows), answers
        start, answers = batch
        start()
        return answers

    def launch(self, rows: int) -> None:
        """Launch one kernel after the other."""
        with contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            for launch in self._launches:
                launch(rows)

    def capture(self, sizes: Iterable[int]) -> None:
        """Capture the launches as one graph for each of these numbers of rows."""
        for rows in sizes:
            if rows not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self._stream):
                    self.launch(rows)
                self._graphs[rows] = graph
        self._batches.clear()

    def _starter(self, rows: int) -> Callable[[], None]:
        """Return what starts so many rows: the smallest graph that covers them, or the launches."""
        graph = self._graphs.get(max(SMALLEST_GRAPH_ROWS, 1 << (rows - 1).bit_length()))
        if graph is None or self._stream is None:
            return functools.partial(self.launch, rows)
        return graph_starter(graph, self._stream)


def graph_starter(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Callable[[], None]:
    """Return what launches a captured graph on a stream: the driver itself where it can be had, as torch takes longer.

    Between a small batch and its answer lie some ten microseconds; torch's part of the launch is one to three of them.
    """
    if driver is None or not hasattr(graph, "raw_cuda_graph_exec"):

        def replay() -> None:
            with torch.cuda.stream(stream):
                graph.replay()

        return replay

    executable, handle = driver.CUgraphExec(graph.raw_cuda_graph_exec()), driver.CUstream(stream.cuda_stream)
    success = driver.CUresult.CUDA_SUCCESS

    def launch() -> None:
        (result,) = driver.cuGraphLaunch(executable, handle)
        if result != success:
            raise RuntimeError(f"Launching a captured graph failed: {result.name}.")

    return launch


def graph_sizes(row_bytes: int, max_rows: int) -> list[int]:
    """Return the row counts to capture: powers of two whose rows are few enough for a launch's cost to matter."""
    sizes = []
    rows = SMALLEST_GRAPH_ROWS
    while rows <= max_rows and rows * row_bytes <= LARGEST_GRAPH_BYTES:
        sizes.append(rows)
        rows *= 2
    return sizes


def _copy(source: torch.Tensor, target: torch.Tensor) -> Callable[[int], None]:
    def copy(rows: int) -> None:
        target[:rows].copy_(source[:rows], non_blocking=True)

    return copy


def _launch(
    step: Step, parameters: Parameters, inputs: list[torch.Tensor], output: torch.Tensor
) -> Callable[[int], None]:
    return lambda rows: step.operation.launch(parameters, inputs, output, rows)
