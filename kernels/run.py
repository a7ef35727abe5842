"""Runs a plan: binds it to an engine and a device, and owns the buffers between a request and its answer.

Engines: `triton` runs the Triton-language kernels on a GPU; `interpret` runs the same kernels on a CPU through the
Triton language's interpreter (TRITON_INTERPRET=1 must be set before this module is imported); `torch` runs the
operations' plain torch references on a CPU; `auto` is `triton` on a GPU and `torch` on a CPU.

On a GPU a small batch costs latency, not bandwidth. Rows are gathered into pinned host memory that the first kernel
reads, and the last kernel writes, across the bus itself, and the launches of a batch are one captured graph. There is a
graph for each power of two of rows; rows past the batch are computed from whatever lies there and not returned. Since
no row's arithmetic depends on another, neither this nor the batch's size changes an answer.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch

from .errors import PlanError
from .plan import INPUT, Parameters, Plan, Step

ENGINES = ("auto", "triton", "torch", "interpret")

SMALLEST_GRAPH_ROWS = 16
LARGEST_GRAPH_BYTES = 4 * 2**20
MANY_NUMBERS = 2**17

FLOAT32 = np.dtype(np.float32)

Outputs = tuple[str, ...]


class Answers(NamedTuple):
    """Each output's rows in CPU memory, float32 `[rows, width]`, as a tensor and as an array over the same numbers."""

    tensors: dict[str, torch.Tensor]
    arrays: dict[str, np.ndarray]

    @staticmethod
    def of(tensors: dict[str, torch.Tensor]) -> Answers:
        """Return the tensors and arrays over them."""
        return Answers(tensors, {name: tensor.numpy() for name, tensor in tensors.items()})


class Runner:
    """A plan ready to run on one device, for one thread at a time.

    A batch's way is `stage`, `launch`, `wait`: between the last two the device works and the caller may do something
    else. `predict` is all of it, for matrices of any number of rows.
    """

    def __init__(
        self, plan: Plan, *, engine: str = "auto", device: torch.device | str | None = None, max_rows: int = 4096
    ) -> None:
        """Bind `plan`; at most `max_rows` rows are staged at a time. `PlanError` if the engine cannot run."""
        self.plan = plan
        self.engine, self.device = choose_engine(engine, device)
        self.max_rows = max_rows
        self._staging = torch.zeros(max_rows, plan.n_features, pin_memory=self.device.type == "cuda")
        executor = _TorchExecutor if self.engine == "torch" else _KernelExecutor
        self._executor = executor(plan, self._staging, self.device)
        self._rows = self._staging.numpy()
        self._numbers = self._rows.reshape(-1)

    def stage(self, parts: list[np.ndarray], rows: int) -> None:
        """Copy float32 matrices `[*, n_features]`, `rows` in all, one below the other into the staging buffer."""
        if len(parts) == 1:
            self._copy_in(parts[0])
        else:
            np.concatenate(parts, out=self._rows[:rows])

    def _copy_in(self, X: np.ndarray) -> None:
        """Copy rows into the staging buffer: torch copies with several threads, numpy begins sooner."""
        if X.size < MANY_NUMBERS or not X.flags.writeable:  # torch warns of arrays that it cannot write to
            self._rows[: len(X)] = X
        else:
            self._staging[: len(X)].copy_(torch.from_numpy(np.ascontiguousarray(X)))

    def staged(self, rows: int) -> np.ndarray:
        """Return the numbers of the first `rows` staged rows, one row after the other, as they lie in the buffer."""
        return self._numbers[: rows * self.plan.n_features]

    def launch(self, rows: int, outputs: Outputs = ("y",)) -> Answers:
        """Begin to compute the named outputs of the first `rows` staged rows.

        Returns what holds them after `wait`, until the next launch.
        """
        return self._executor.launch(rows, outputs)

    def wait(self) -> None:
        """Wait until what was launched is computed."""
        self._executor.wait()

    def compute(self, rows: int, outputs: Outputs = ("y",)) -> dict[str, np.ndarray]:
        """Return the named outputs of the first `rows` staged rows, each `[rows, width]` float32 and the caller's."""
        if rows == 0:
            widths = self.plan.output_widths()
            return {name: np.empty((0, widths[name]), dtype=np.float32) for name in outputs}
        answers = self.launch(rows, outputs)
        self.wait()
        return {name: answer.copy() for name, answer in answers.arrays.items()}

    def predict(self, X: np.ndarray, outputs: Outputs = ("y",)) -> dict[str, np.ndarray]:
        """Return the named outputs for a float32 matrix `[rows, n_features]` of any number of rows."""
        if X.ndim != 2 or X.shape[1] != self.plan.n_features or X.dtype != FLOAT32:
            raise PlanError(f"X must be float32 [rows, {self.plan.n_features}], not {X.dtype} {list(X.shape)}.")
        if len(X) <= self.max_rows:
            return self._predict(X, outputs)
        starts = range(0, len(X), self.max_rows)
        answers = [self._predict(X[start : start + self.max_rows], outputs) for start in starts]
        return {name: np.concatenate([answer[name] for answer in answers]) for name in outputs}

    def _predict(self, X: np.ndarray, outputs: Outputs) -> dict[str, np.ndarray]:
        """Answer at most `max_rows` rows; on a CPU they are read where they lie, unless torch would warn of that."""
        if isinstance(self._executor, _TorchExecutor) and len(X) and X.flags.writeable:
            answers = self._executor.answer(torch.from_numpy(np.ascontiguousarray(X)), outputs)
            return {name: answer.copy() for name, answer in answers.arrays.items()}
        self._copy_in(X)
        return self.compute(len(X), outputs)

    def warm_up(self, output_sets: Iterable[Outputs]) -> None:
        """Compile every kernel and capture every graph that these sets of outputs use, so that no request waits."""
        for outputs in output_sets:
            self._executor.warm_up(outputs)


def choose_engine(engine: str, device: torch.device | str | None) -> tuple[str, torch.device]:
    """Return the engine and device that these mean on this machine, or raise `PlanError` with why they cannot be."""
    if engine not in ENGINES:
        raise PlanError(f"There is no engine '{engine}'; the engines are {', '.join(ENGINES)}.")
    if engine == "auto":
        on_gpu = torch.cuda.is_available() if device is None else torch.device(device).type == "cuda"
        engine = "triton" if on_gpu else "torch"
    interpreting = os.environ.get("TRITON_INTERPRET") == "1"
    if engine == "triton":
        if not torch.cuda.is_available():
            raise PlanError("Engine 'triton' needs a CUDA GPU, and torch finds none; on a CPU use 'torch'.")
        if interpreting:
            raise PlanError("Engine 'triton' cannot run while TRITON_INTERPRET=1; unset it, or use 'interpret'.")
        chosen = torch.device("cuda" if device is None else device)
        index = torch.cuda.current_device() if chosen.index is None else chosen.index
        return engine, torch.device("cuda", index)
    if engine == "interpret" and not interpreting:
        raise PlanError("Engine 'interpret' needs TRITON_INTERPRET=1 in the environment before Python starts.")
    return engine, torch.device("cpu")


def bind_parameters(plan: Plan, device: torch.device) -> dict[str, Parameters]:
    """Return each step's tensors on the device, by the value that the step makes."""
    return {
        step.output: {
            name: torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
            for name, array in step.operation.parameters().items()
        }
        for step in plan.steps
    }


class _TorchExecutor:
    """Runs the references on the CPU."""

    def __init__(self, plan: Plan, staging: torch.Tensor, device: torch.device) -> None:
        self._plan = plan
        self._staging = staging
        self._parameters = bind_parameters(plan, device)
        self._schedules: dict[Outputs, tuple[Step, ...]] = {}

    def launch(self, rows: int, outputs: Outputs) -> Answers:
        return self.answer(self._staging[:rows], outputs)

    def answer(self, x: torch.Tensor, outputs: Outputs) -> Answers:
        """Compute the outputs of any rows."""
        steps = self._schedules.get(outputs)
        if steps is None:
            steps = self._schedules.setdefault(outputs, self._plan.steps_for(outputs))
        values = {INPUT: x}
        for step in steps:
            inputs = [values[name] for name in step.inputs]
            values[step.output] = step.operation.reference(self._parameters[step.output], *inputs)
        return Answers.of({name: values[self._plan.outputs[name]].float() for name in outputs})

    def wait(self) -> None:
        """Launching computed everything."""

    def warm_up(self, outputs: Outputs) -> None:
        self.launch(1, outputs)


class _KernelExecutor:
    """Runs the kernels, on a GPU or through the interpreter."""

    def __init__(self, plan: Plan, staging: torch.Tensor, device: torch.device) -> None:
        self._plan = plan
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._staging = staging
        self._max_rows = len(staging)
        self._widths = plan.widths()
        self._parameters = bind_parameters(plan, device)
        self._values: dict[str, torch.Tensor] = {}
        self._schedules: dict[Outputs, _Schedule] = {}
        self._graph_rows = graph_sizes(plan.n_features, self._max_rows) if self._on_gpu else []

    def launch(self, rows: int, outputs: Outputs) -> Answers:
        schedule = self._schedules.get(outputs) or self._bind(outputs)
        return schedule.start(rows)

    def wait(self) -> None:
        """Wait for the current stream, whose object is made anew only when another stream has become current."""
        if not self._on_gpu:
            return
        handle = torch._C._cuda_getCurrentRawStream(self._device.index)
        if self._stream is None or self._stream.cuda_stream != handle:
            self._stream = torch.cuda.current_stream(self._device)
        self._stream.synchronize()

    def warm_up(self, outputs: Outputs) -> None:
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
            values = {**values, INPUT: self._staging}
        else:
            values[INPUT] = self._device_buffer(INPUT)
            launches.append(_copy(self._staging, values[INPUT]))
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
        schedule = _Schedule(launches, host, self._device)
        self._schedules[outputs] = schedule
        return schedule

    def _device_buffer(self, value: str) -> torch.Tensor:
        if value not in self._values:
            self._values[value] = torch.empty(
                self._max_rows,
                self._widths[value],
                dtype=torch.float32 if value == INPUT else torch.float64,
                device=self._device,
            )
        return self._values[value]

    def _host_buffer(self, width: int) -> torch.Tensor:
        return torch.zeros(self._max_rows, width, dtype=torch.float32, pin_memory=self._on_gpu)


class _Schedule:
    """The launches that make a set of outputs, the host buffers they end in, and what starts batches of each size."""

    def __init__(
        self, launches: list[Callable[[int], None]], buffers: dict[str, torch.Tensor], device: torch.device
    ) -> None:
        self._launches = launches
        self._buffers = buffers
        self._device = device
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
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            for launch in self._launches:
                launch(rows)

    def capture(self, sizes: Iterable[int]) -> None:
        """Capture the launches as one graph for each of these numbers of rows."""
        for rows in sizes:
            if rows not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.device(self._device), torch.cuda.graph(graph):
                    self.launch(rows)
                self._graphs[rows] = graph
        self._batches.clear()

    def _starter(self, rows: int) -> Callable[[], None]:
        """Return what starts so many rows: the smallest graph that covers them, or the launches."""
        graph = self._graphs.get(max(SMALLEST_GRAPH_ROWS, 1 << (rows - 1).bit_length()))
        if graph is None:
            return functools.partial(self.launch, rows)
        return graph.replay  # on the current stream: entering one of our own would cost more than the graph


def graph_sizes(n_features: int, max_rows: int) -> list[int]:
    """Return the row counts to capture: powers of two whose rows are few enough for a launch's cost to matter."""
    sizes = []
    rows = SMALLEST_GRAPH_ROWS
    while rows <= max_rows and rows * n_features * 4 <= LARGEST_GRAPH_BYTES:
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
