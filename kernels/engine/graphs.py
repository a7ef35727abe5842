"""What computes some of the staged rows of a batch: launches, and captured graphs of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence

import torch
import triton

from .streams import Branches, Task

try:
    from cuda.bindings import driver  # torch's builds for CUDA bring it
except ImportError:
    driver = None

SMALLEST_GRAPH_ROWS = 16

MOST_STREAMS = 64
"""The number of the caller's streams whose launches are kept."""


class Lane:
    """What chunks that are computed one after the other share: streams, device buffers, and the memory of graphs.

    The first stream is the lane's own, others may serve several lanes; there are none where kernels are interpreted.
    """

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self.streams = streams
        self.values: dict[str, torch.Tensor] = {}
        self.pool = torch.cuda.graph_pool_handle() if streams else None


class Chunk:
    """The tasks that make a set of outputs of some of the staged rows, and what starts each number of them."""

    def __init__(self, tasks: Sequence[Task], lane: Lane) -> None:
        self._branches = Branches(tasks, lane.streams)
        self._lane = lane
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._starters: dict[int, Callable[[], None]] = {}

    def starter(self, rows: int) -> Callable[[], None]:
        """Return what begins to compute the first `rows`: the smallest graph that covers them, or the launches."""
        start = self._starters.get(rows)
        if start is None:
            graph = self._graphs.get(graph_rows(rows))
            start = graph_starter(graph, self._lane.streams[0]) if graph else functools.partial(self.launch, rows)
            self._starters[rows] = start
        return start

    def replayer(self, rows: int, device: torch.device) -> Callable[[], Callable[[], None]]:
        """Return what begins to compute the first `rows` on torch's current stream, and returns what waits for it.

        On a GPU this is a captured graph. The device is the current one.
        """
        if device.type != "cuda":
            return lambda: functools.partial(self.launch, rows)
        if rows not in self._graphs:
            self.launch(rows)  # compiles before anything is captured
            self._lane.streams[0].synchronize()
            self.capture([rows])
        return replayer(self._graphs[rows], device)

    def launch(self, rows: int) -> None:
        """Launch the kernels."""
        self._branches.launch(rows)

    def capture(self, sizes: Iterable[int]) -> None:
        """Capture the launches as one graph for each of these numbers of rows."""
        for rows in sizes:
            if rows not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                stream = self._lane.streams[0]
                torch.cuda.graph.default_capture_stream = stream  # or some releases make one of torch's
                # Other threads of the process may use the device meanwhile: the caller's own, where there is no server.
                with torch.cuda.graph(graph, self._lane.pool, stream, capture_error_mode="thread_local"):
                    self.launch(rows)
                self._graphs[rows] = graph
        self._starters.clear()


class Piece:
    """Rows of a large batch, from `start` and before `stop`: what brings them to the device and what computes them.

    There are one or two `ways`: from staging, and by gathering.
    """

    def __init__(self, start: int, stop: int, ways: Sequence[Sequence[Chunk]], lane: Lane) -> None:
        self.start = start
        self.stop = stop
        self._ways = ways
        self._stream = lane.streams[0] if lane.streams else None
        self._done = _event(lane)

    def begin(self, rows: int, *, gathered: bool = False) -> None:
        """Begin to bring its first `rows` and to compute them."""
        for chunk in self._ways[gathered]:
            chunk.starter(rows)()
        if self._done is not None:
            self._done.record(self._stream)

    def wait(self) -> None:
        """Wait until it is computed."""
        if self._done is not None:
            self._done.synchronize()

    def launch(self) -> None:
        """Launch all of its kernels."""
        for chunk in itertools.chain(*self._ways):
            chunk.launch(self.stop - self.start)

    def capture(self) -> None:
        """Capture graphs of all of its rows."""
        for chunk in itertools.chain(*self._ways):
            chunk.capture([self.stop - self.start])


def _event(lane: Lane) -> torch.cuda.Event | None:
    return torch.cuda.Event() if lane.streams else None  # type: ignore[no-untyped-call]


_STREAMS: dict[torch.device, list[torch.cuda.Stream]] = {}
"""The streams of this process by device. Those who work one after the other share them."""


def streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """Return so many different streams of a GPU, the same in each call.

    They are the driver's, where it can be had: with its first stream torch makes a hundred, which take 70 MB of a GPU.
    """
    found = _STREAMS.setdefault(device, [])
    while len(found) < count:
        found.append(_make_stream(device))
    return found[:count]


def _make_stream(device: torch.device) -> torch.cuda.Stream:
    if driver is not None:
        with torch.cuda.device(device):
            result, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        if result == driver.CUresult.CUDA_SUCCESS:
            return torch.cuda.ExternalStream(int(stream), device)  # type: ignore[no-untyped-call]
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


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
    success, no_context = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CONTEXT

    def launch() -> None:
        (result,) = driver.cuGraphLaunch(executable, handle)
        if result == no_context:  # this thread has not used the GPU yet: the runtime's call gives it the GPU's context
            with torch.cuda.device(stream.device):
                stream.query()
            (result,) = driver.cuGraphLaunch(executable, handle)
        if result != success:
            raise RuntimeError(f"Launching a captured graph failed: {result.name}.")

    return launch


def replayer(graph: torch.cuda.CUDAGraph, device: torch.device) -> Callable[[], Callable[[], None]]:
    """Return what launches a captured graph on torch's current stream of a GPU, and returns what waits for the stream.

    The stream is asked for by its handle, and what belongs to a handle is kept: torch takes microseconds to make it.
    """
    handle_of, index = triton.runtime.driver.active.get_current_stream, device.index
    known: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}

    def begin() -> Callable[[], None]:
        handle = handle_of(index)
        found = known.get(handle)
        if found is None:
            if len(known) == MOST_STREAMS:
                known.clear()
            stream = torch.cuda.current_stream(device)
            found = known[handle] = graph_starter(graph, stream), stream.synchronize
        start, wait = found
        start()
        return wait

    return begin


def graph_rows(rows: int) -> int:
    """Return how many rows the smallest graph computes that covers so many: a power of two."""
    return max(SMALLEST_GRAPH_ROWS, 1 << (rows - 1).bit_length())


def graph_sizes(max_rows: int) -> list[int]:
    """Return the row counts to capture: powers of two."""
    sizes = []
    rows = SMALLEST_GRAPH_ROWS
    while rows <= max_rows:
        sizes.append(rows)
        rows *= 2
    return sizes
