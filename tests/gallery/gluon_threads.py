"""Runs Gluon kernels for Hopper on a CPU: partitions are threads, barriers let them wait, and products end late.

Gluon has no interpreter. This one knows the operations of the attention kernels, and is strict: shared memory begins
as NaN, a product reads its factors only when it is waited for, and using a product without waiting is an error,
as is a barrier that nobody arrives at. It ignores layouts and registers; `hopper_compile.py` checks those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from triton.experimental.gluon import language as gl
from triton.runtime.jit import JITFunction

PATIENCE_S = 20.0
OWN = threading.local()
"""The state of a thread: `program`, its number in the grid, `programs`, and `products` in flight, the oldest first."""


@dataclass
class Barrier:
    """A barrier that opens after a number of arrivals and all expected bytes."""

    count: int = 0
    missing: int = 0
    bytes: int = 0
    phase: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def come(self, arrivals: int, expected: int) -> None:
        with self.changed:
            self.missing -= arrivals
            self.bytes += expected
            assert self.missing >= 0, "more arrivals than a barrier is for"
            if self.missing == 0 and self.bytes == 0:
                self.phase, self.missing = self.phase ^ 1, self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.phase != parity, PATIENCE_S), "nobody comes to a barrier"


class Shared:
    """A tensor, or barriers, in shared memory."""

    def __init__(self, values: Any) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)

    def index(self, place: Any) -> Any:
        found = self.values[int(place)]
        return found[0] if isinstance(found, list) else Shared(found)

    def reshape(self, shape: Sequence[int]) -> Shared:
        return Shared(self.values.view(*shape))

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.values.permute(*order))

    def load(self, layout: Any) -> torch.Tensor:
        return self.values.clone()

    def store(self, value: torch.Tensor) -> None:
        assert value.dtype == self.values.dtype
        self.values.copy_(value)


@dataclass(frozen=True)
class Descriptor:
    """A tensor that blocks of one shape are copied from and to."""

    tensor: torch.Tensor
    shape: tuple[int, ...]
    layout: None = None

    dtype = property(lambda self: self.tensor.dtype)

    def block(self, corner: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the slices of the tensor and of the block that overlap."""
        known = [max(min(length, have - int(at)), 0) for at, length, have in self._ranges(corner)]
        inside = tuple(slice(int(at), int(at) + length) for at, length in zip(corner, known, strict=True))
        return inside, tuple(map(slice, known))

    def _ranges(self, corner: Sequence[Any]) -> Any:
        return zip(corner, self.shape, self.tensor.shape, strict=True)


@dataclass(frozen=True)
class Pointer:
    """A tensor's numbers in a row, and places among them."""

    values: torch.Tensor
    places: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.values, self.places + more)


class Product:
    """A product in flight."""

    def __init__(self, left: Any, right: Shared, sums: torch.Tensor, use_acc: bool) -> None:
        assert isinstance(sums, torch.Tensor), "sums of a product that was not waited for"
        self.given, self.answer = (left, right, sums, use_acc), None

    def end(self) -> None:
        left, right, sums, use_acc = self.given
        left = left.values if isinstance(left, Shared) else left
        found = left.float() @ right.values.float()
        self.answer = found + sums if use_acc else found


def multiply(left: Any, right: Shared, sums: Any, *, use_acc: bool = True, is_async: bool = False) -> Any:
    product = Product(left, right, sums, use_acc)
    OWN.products.append(product)
    return product if is_async else wait(0, [product])


def wait(under_way: int, deps: Sequence[Any]) -> Any:
    while len(OWN.products) > under_way:
        OWN.products.pop(0).end()
    found = [each.answer if isinstance(each, Product) else each for each in deps]
    assert all(each is not None for each in found), "this wait is not for that product"
    return found[0] if len(found) == 1 else tuple(found)


def bring(descriptor: Descriptor, corner: Sequence[Any], barrier: Barrier, tile: Shared) -> None:
    inside, part = descriptor.block(corner)
    tile.values.zero_()
    tile.values[part] = descriptor.tensor[inside]
    barrier.come(0, -tile.values.numel() * tile.values.element_size())


def take_back(descriptor: Descriptor, corner: Sequence[Any], tile: Shared) -> None:
    inside, part = descriptor.block(corner)
    descriptor.tensor[inside] = tile.values[part]


def load(pointer: Pointer) -> torch.Tensor:
    return pointer.values.view(-1)[pointer.places]


def store(pointer: Pointer, value: torch.Tensor, mask: torch.Tensor) -> None:
    pointer.values.view(-1)[pointer.places[mask]] = value[mask]


def allocate(dtype: torch.dtype, shape: Sequence[int], layout: Any) -> Shared:
    if dtype == torch.int64:
        return Shared([[Barrier()] for _ in range(shape[0])])
    return Shared(torch.full(list(shape), torch.nan, dtype=dtype))


def init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.missing = count


def specialise(partitions: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], warps: Any, registers: Any) -> None:
    """Run each partition in a thread; raise the first failure's exception."""
    program, programs, failures = OWN.program, OWN.programs, []

    def run(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        OWN.program, OWN.programs, OWN.products = program, programs, []
        try:
            work(*arguments)
            assert not OWN.products, "a partition ends with products under way"
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=each) for each in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def larger(a: Any, b: Any) -> Any:
    return torch.maximum(torch.as_tensor(a), torch.as_tensor(b))


LANGUAGE = SimpleNamespace(
    float32=torch.float32, int64=torch.int64, program_id=lambda axis: OWN.program,
    num_programs=lambda axis: OWN.programs, cdiv=lambda a, b: -(-a // b),
    minimum=lambda a, b: min(int(a), int(b)), maximum=larger, static_range=range,
    arange=lambda start, end, _: torch.arange(start, end),
    zeros=lambda shape, dtype, _: torch.zeros(shape, dtype=dtype), expand_dims=torch.unsqueeze, where=torch.where,
    max=torch.amax, sum=torch.sum, exp2=torch.exp2, log2=torch.log2, convert_layout=lambda value, _: value,
    load=load, store=store, allocate_shared_memory=allocate, warp_specialize=specialise,
    NVMMADistributedLayout=lambda *_: None, SliceLayout=lambda *_: None, DotOperandLayout=lambda *_: None,
)  # fmt: skip
REPLACED = {
    "gl": LANGUAGE,
    "mbarrier": SimpleNamespace(
        MBarrierLayout=lambda: None, init=init, expect=lambda barrier, count: barrier.come(1, int(count)),
        arrive=lambda barrier, pred=True: barrier.come(1, 0) if pred else None,
        wait=lambda barrier, parity, pred=True: barrier.wait(int(parity)) if pred else None,
    ),
    "tma": SimpleNamespace(
        async_copy_global_to_shared=bring, async_copy_shared_to_global=take_back, store_wait=lambda pending: None
    ),
    "warpgroup_mma": multiply, "warpgroup_mma_wait": wait, "fence_async_shared": lambda: None,
}  # fmt: skip


class Kernel:
    """A kernel that is launched like any other: programs run one after the other."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*arguments: Any, num_warps: int, **constants: Any) -> None:
            given = [Pointer(each) if isinstance(each, torch.Tensor) else each for each in arguments]
            for program in range(grid[0]):
                OWN.program, OWN.programs = torch.tensor(program), grid[0]
                self.function(*given, **constants)

        return launch


def translated(module: ModuleType) -> dict[str, Any]:
    """Return a module's names with Gluon replaced: its functions are then plain functions."""
    names: dict[str, Any] = {**vars(module), **REPLACED}
    for name, value in vars(module).items():
        if isinstance(value, gl.constexpr):
            names[name] = value.value
        elif isinstance(value, JITFunction):
            names[name] = FunctionType(value.fn.__code__, names, name, value.fn.__defaults__)
    return names


def on_threads(module: ModuleType) -> Any:
    """Return a context in which a module's `launch` runs its kernels here."""
    names = translated(module)
    kernels = {name: Kernel(each) for name, each in names.items() if name.endswith("_kernel")}
    describe = {
        name: lambda tensor, rows=0: Descriptor(tensor, (1, 1, rows, tensor.shape[-1]) if rows else (1, 64))
        for name in ("describe", "describe_numbers")
        if name in names
    }
    return mock.patch.multiple(module, **kernels, **describe)
