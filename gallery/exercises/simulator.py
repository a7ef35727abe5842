"""Looks at every access to memory of a kernel that Numba's simulator runs.

The simulator lets a block's threads run one after the other, so threads that race for a place mostly come out right.
Under this watch a thread reads what a GPU might show it: what it wrote itself, what threads of its block wrote before
their last common barrier, and otherwise the memory as it was before the launch; shared memory is NaN before. A thread
that has used an atomic operation sees what others have written. A correct kernel is correct under all of it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy

import gallery.puzzles.numba_cuda  # noqa: F401  (before Numba, which it lets simulate)

from numba.cuda.simulator import kernel, kernelapi  # isort: skip

ORDERS: tuple[str, ...] = ("first to last", "last to first")
SHARED = "shared memory"


class Watched:
    """An array as a kernel sees it: it shows and takes numbers as the module says, and counts races."""

    def __init__(self, array: Any, name: str, races: dict[str, int]) -> None:
        self.array, self.name, self.races = array, name, races
        self.before = array.copy()
        self.writes: dict[Any, list[tuple[Any, int, int, Any]]] = {}
        self.reads: dict[Any, dict[tuple[Any, int], int]] = {}
        self.lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        with self.lock:
            now = self.array[index]
            thread = threading.current_thread()
            if isinstance(now, numpy.ndarray) or getattr(thread, "atomic", False):
                return now
            block, number, epoch = _place(thread)
            self.reads.setdefault(index, {})[block, number] = epoch
            writes = self.writes.get(index, ())
            place = (block, number, epoch)
            seen = [write[3] for write in writes if _sees(place, write)]
            shown = seen[-1] if seen else self.before[index]
            if getattr(thread, "informed", False):
                self._race(bool(writes) and not _sees(place, writes[-1]))
                return now
            self._race(bool(writes) and not _same(shown, now))
            return shown

    def __setitem__(self, index: Any, value: Any) -> None:
        with self.lock:
            thread, before = threading.current_thread(), self.array[index]
            self.array[index] = value
            if isinstance(before, numpy.ndarray):
                return
            place, now, atomic = _place(thread), self.array[index], getattr(thread, "atomic", False)
            writes = self.writes.setdefault(index, [])
            others = [] if atomic else writes[-1:]
            reads = [(*reader, epoch) for reader, epoch in self.reads.get(index, {}).items()]
            self._race(not _same(before, now) and not all(_sees(place, other) for other in (*others, *reads)))
            writes.append((*place, now))

    def _race(self, seen: bool) -> None:
        if seen:
            self.races[self.name] = self.races.get(self.name, 0) + 1


def _place(thread: Any) -> tuple[Any, int, int]:
    """Return a thread's block, its number there, and how many barriers it has passed."""
    return tuple(thread.blockIdx), thread.thread_id, getattr(thread, "epoch", 0)


def _sees(place: tuple[Any, int, int], other: tuple[Any, ...]) -> bool:
    """Return whether an access of another place comes before one of this place in every order."""
    block, number, epoch = place
    return bool(other[0] == block and (other[1] == number or other[2] < epoch))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


class Reversed:
    """NumPy with indices from last to first, by which the simulator starts blocks and threads."""

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    @staticmethod
    def ndindex(*sizes: int) -> list[tuple[int, ...]]:
        """Return all indices, from last to first."""
        return list(numpy.ndindex(*sizes))[::-1]


@contextmanager
def watching(order: str, races: dict[str, int]) -> Iterator[None]:
    """Watch the launches inside the block, which start blocks and threads in an order; note races.

    Raises:
        RuntimeError: From the launch, if not all threads of a block come to the same barriers.
    """
    call, run, barrier = kernel.FakeCUDAKernel.__call__, kernel.BlockManager.run, kernel.BlockThread.syncthreads
    names: list[str] = []

    def launched(own: Any, *arguments: Any) -> Any:
        if not own._device:
            parameters = inspect.signature(own.fn).parameters
            pairs = zip(parameters, arguments, strict=False)
            names[:] = [name for name, each in pairs if isinstance(each, numpy.ndarray) and each.ndim]
        return call(own, *arguments)

    def given(array: Any) -> Watched:
        return Watched(array._ary, names.pop(0), races)

    def in_place(array: Any) -> Any:  # the simulator copies arrays, which it refuses if their elements lie apart
        return SimpleNamespace(to_device=lambda _: kernel.FakeCUDAArray(array))

    def started(own: Any, place: Any, *arguments: Any) -> None:
        own.barriers = {}
        run(own, place, *arguments)
        passed = own.barriers.values()
        if passed and (len(set(passed)) > 1 or len(passed) < prod(own._block_dim)):
            raise RuntimeError("Not all threads of a block come to the same cuda.syncthreads().")

    def passed(own: Any) -> None:
        barrier(own)
        own.epoch = getattr(own, "epoch", 0) + 1
        own._manager.barriers[own.thread_id] = own.epoch

    def shared(own: Any, shape: Any, dtype: Any) -> Watched:
        caller = sys._getframe(1)
        place = tuple(threading.current_thread().blockIdx)  # type: ignore[attr-defined]
        key = (place, "dynamic") if shape == 0 else (place, caller.f_code.co_filename, caller.f_lineno)
        with kernelapi.addlock:
            if key not in own._allocations:
                number = numpy.dtype(kernelapi.numpy_support.as_dtype(dtype))
                size = own._dynshared_size // number.itemsize if shape == 0 else shape
                empty = numpy.full(size, numpy.nan if number.kind == "f" else 0, number)
                own._allocations[key] = Watched(empty, SHARED, races)
        return own._allocations[key]

    def atomic(method: Any) -> Any:
        def operate(own: Any, array: Any, *rest: Any) -> Any:
            thread: Any = threading.current_thread()
            thread.atomic = thread.informed = True
            try:
                return method(own, array, *rest)
            finally:
                thread.atomic = False

        return operate

    methods = {name: atomic(each) for name, each in vars(kernelapi.FakeCUDAAtomic).items() if inspect.isfunction(each)}
    with (
        mock.patch.object(kernel.FakeCUDAKernel, "__call__", launched),
        mock.patch.object(kernel, "FakeWithinKernelCUDAArray", given),
        mock.patch.object(kernel, "wrap_arg", in_place),
        mock.patch.object(kernel.BlockManager, "run", started),
        mock.patch.object(kernel.BlockThread, "syncthreads", passed),
        mock.patch.object(kernelapi.FakeCUDAShared, "array", shared),
        mock.patch.multiple(kernelapi.FakeCUDAAtomic, **methods),
        mock.patch.object(kernel, "np", Reversed() if order == ORDERS[1] else numpy),
    ):
        yield
