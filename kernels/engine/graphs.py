"""Computes some of the staged rows of a batch by launches or by captured CUDA graphs of them."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterable, Sequence

import torch
import triton

from .streams import Branches, Task

try:
    from cuda.bindings import driver  # torch's builds for CUDA bring it
except ImportError:
    driver = None

MOST_STREAMS = 64
"""The most streams of the caller whose launches are kept."""


class Lane:
    """The streams, device buffers and graph memory that chunks share if they are computed one after the other.

    The first stream is the lane's own, and other streams may serve several lanes. With the interpreter there are none.
    """

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self.streams = streams
        self.values: dict[str, torch.Tensor] = {}
        self.pool = torch.cuda.graph_pool_handle() if streams else None


class Chunk:
    """The tasks that compute a set of outputs for some of the staged rows, with a start function for each row count."""

    def __init__(self, tasks: Sequence[Task], lane: Lane) -> None:
        self._branches = Branches(tasks, lane.streams)
        self._lane = lane
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._starters: dict[int, Callable[[], None]] = {}

    def starter(self, rows: int) -> Callable[[], None]:
        """Return a function that starts the first `rows`, by the smallest graph that covers them or by the launches."""
        start = self._starters.get(rows)
        if start is None:
            graph = self._graphs.get(graph_rows(rows))
            start = graph_starter(graph, self._lane.streams[0]) if graph else functools.partial(self.launch, rows)
            self._starters[rows] = start
        return start

    def replayer(self, rows: int, device: torch.device) -> Callable[[], Callable[[], None]]:
        """Return a function that starts the first `rows` on torch's current stream and returns a function that waits.

        On a GPU it starts a captured graph. The device must be the current one.
        """
        if device.type != "cuda":
            return lambda: functools.partial(self.launch, rows)
        if rows not in self._graphs:
            self.launch(rows)  # compiles before the capture
            self._lane.streams[0].synchronize()
            self.capture([rows])
        return replayer(self._graphs[rows], device)

    def launch(self, rows: int) -> None:
        """Launch the kernels."""
        self._branches.launch(rows)

    def capture(self, sizes: Iterable[int]) -> None:
        """Capture the launches as one graph for each number of rows."""
        for rows in sizes:
            if rows not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                stream = self._lane.streams[0]
                torch.cuda.graph.default_capture_stream = stream  # or some releases make one of torch's
                collects = gc.isenabled()
                gc.disable()  # or it may free another graph amid this
                try:  # the caller's other threads may use the device meanwhile
                    with torch.cuda.graph(graph, self._lane.pool, stream, capture_error_mode="thread_local"):
                        self.launch(rows)
                finally:
                    if collects:
                        gc.enable()
                self._graphs[rows] = graph
        self._starters.clear()


class Piece:
    """The rows of a large batch from `start` up to but excluding `stop`, and the chunks that bring and compute them.

    There are one or two `ways`: from staging, and by gathering.
    """

    def __init__(self, start: int, stop: int, ways: Sequence[Sequence[Chunk]], lane: Lane) -> None:
        self.start = start
        self.stop = stop
        self._ways = ways
        self._stream = lane.streams[0] if lane.streams else None
        self._done = _event(lane)

    def begin(self, rows: int, *, gathered: bool = False) -> None:
        """Start to bring and compute the piece's first `rows`."""
        for chunk in self._ways[gathered]:
            chunk.starter(rows)()
        if self._done is not None:
            self._done.record(self._stream)

    def wait(self) -> None:
        """Wait until the piece is computed."""
        if self._done is not None:
            self._done.synchronize()

    def launch(self) -> None:
        """Launch all kernels of the piece."""
        for chunk in itertools.chain(*self._ways):
            chunk.launch(self.stop - self.start)

    def capture(self) -> None:
        """Capture graphs for all the rows."""
        for chunk in itertools.chain(*self._ways):
            chunk.capture([self.stop - self.start])


def _event(lane: Lane) -> torch.cuda.Event | None:
    return torch.cuda.Event() if lane.streams else None  # type: ignore[no-untyped-call]


_STREAMS: dict[torch.device, list[torch.cuda.Stream]] = {}
"""The streams by device. Lanes that never run concurrently share them."""


def streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """Return `count` different streams of a GPU, the same in each call.

    The CUDA driver makes them if it can: torch makes a hundred with its first one, which take 70 MB of a GPU.
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
    """Return a function that launches a captured graph on a stream, by the CUDA driver's call if it is available.

    A launch through torch takes one to three microseconds more.
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
        if result == no_context:  # this thread has not used the GPU: the query gives it the context
            with torch.cuda.device(stream.device):
                stream.query()
            (result,) = driver.cuGraphLaunch(executable, handle)
        if result != success:
            raise RuntimeError(f"Launching a captured graph failed: {result.name}.")

    return launch


def replayer(graph: torch.cuda.CUDAGraph, device: torch.device) -> Callable[[], Callable[[], None]]:
    """Return a function that launches a captured graph on torch's current stream and returns a function that waits.

    It keeps the two functions for each stream's handle: torch takes microseconds to make a stream object.
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
    """Return the row count of the smallest graph that covers `rows`: a power of 2."""
    return 1 << (rows - 1).bit_length()


def graph_sizes(max_rows: int) -> list[int]:
    """Return the row counts to capture: powers of 2."""
    return [1 << power for power in range(max_rows.bit_length())]
