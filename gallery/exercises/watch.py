"""Looks at every access to memory of a kernel that the interpreter of the Triton language runs.

- An access outside of the tensors that the kernel was given does not happen and is noted; a number that would come from
  there is NaN. So is a lane that a mask excludes, unless `other` gives it a value: on a GPU it might be anything.
- Programs run in a chosen order. A plain load shows what the program itself has written, and otherwise the memory as it
  was before the launch: on a GPU others may not have written yet. A program that has used an atomic operation sees what
  others have written, since it may have waited for them. A correct program is correct under both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from triton._C.libtriton import ir
from triton.runtime import interpreter

NOBODY, ATOMIC = -1, -2
OF_FLOAT32 = ("exp", "exp2", "log", "log2", "cos", "sin", "sqrt", "precise_sqrt", "rsqrt", "erf")
"""The functions that a GPU's compiler refuses for types other than float32 and float64."""

ORDERS: tuple[str, ...] = ("first to last", "last to first", "shuffled")


@dataclass
class Accesses:
    """The accesses of one call that no correct kernel makes, by the name of the kernel's argument."""

    loads: dict[str, int] = field(default_factory=dict)
    """The numbers loaded from outside."""

    stores: dict[str, int] = field(default_factory=dict)
    """The numbers stored outside."""

    races: dict[str, int] = field(default_factory=dict)
    """The numbers that a program stored and another one loaded or stored too, without atomic operations."""


class Watch:
    """Watches the launches of one call."""

    def __init__(self, order: str, regions: Callable[[], dict[int, tuple[int, int, str]]]) -> None:
        self.order, self.regions, self.found = order, regions, Accesses()
        self.programs: list[tuple[int, int, int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the launches inside the block."""
        builder = interpreter.interpreter_builder
        prepare, patch = interpreter.GridExecutor._init_args_hst, interpreter._patch_lang_tensor

        def begin(executor: Any, arguments: Any, named: Any) -> Any:
            held = prepare(executor, arguments, named)
            self._begin(dict(zip(executor.arg_names, held[0], strict=False)) | held[1])
            return held

        def patch_all(tensor: Any, scope: Any) -> None:
            patch(tensor, scope)
            scope.set_attr(tensor, "__index__", _index)

        replaced = {
            "set_grid_dim": self._set_grid_dim,
            "set_grid_idx": self._set_grid_idx,
            "create_masked_load": self._load,
            "create_masked_store": self._store,
            "create_atomic_rmw": self._atomic_rmw,
            "create_atomic_cas": self._atomic_cas,
            "create_dot": self._dot,
        }
        replaced |= {f"create_{name}": _demanding_float32(getattr(builder, f"create_{name}")) for name in OF_FLOAT32}
        self.original = {name: getattr(builder, name) for name in replaced}
        interpreter.GridExecutor._init_args_hst, interpreter._patch_lang_tensor = begin, patch_all
        vars(builder).update(replaced)
        try:
            yield
        finally:
            interpreter.GridExecutor._init_args_hst, interpreter._patch_lang_tensor = prepare, patch
            for name in replaced:
                del vars(builder)[name]

    def _begin(self, arguments: dict[str, Any]) -> None:
        """Note the memory that a launch was given, and keep it as it is before the launch."""
        known, regions = self.regions(), {}
        for name, tensor in _tensors(arguments):
            storage = tensor.untyped_storage()
            base = storage.data_ptr()
            begin, end, _ = known.get(base, (base, base + storage.nbytes(), name))
            if end > begin and begin not in regions:
                regions[begin] = end, name, np.frombuffer(_bytes(storage, begin - base, end - base), np.uint8).copy()
        self.begins = np.array(sorted(regions), np.int64)
        self.ends = np.array([regions[begin][0] for begin in self.begins], np.int64)
        self.names = [regions[begin][1] for begin in self.begins]
        lengths = self.ends - self.begins
        self.starts = np.cumsum(lengths) - lengths
        self.arena = np.concatenate([np.zeros(0, np.uint8), *(regions[begin][2] for begin in self.begins)])
        self.writers = np.full(len(self.arena), NOBODY, np.int32)
        self.informed: set[int] = set()
        self.program = 0

    def _set_grid_dim(self, *grid: int) -> None:
        self.original["set_grid_dim"](*grid)
        count = grid[0] * grid[1] * grid[2]
        order = list(range(count))
        if self.order == "last to first":
            order.reverse()
        elif self.order == "shuffled":
            order = np.random.default_rng(7).permutation(count).tolist()
        self.grid, self.queue = grid, iter(order)

    def _set_grid_idx(self, *_: int) -> None:
        self.program = next(self.queue)
        _, y, z = self.grid
        self.original["set_grid_idx"](self.program // (y * z), self.program // z % y, self.program % z)

    def _locate(self, pointers: Any, mask: Any, note: dict[str, int]) -> tuple[Any, Any, Any]:
        """Return the addresses, which of them may be used, and their places in `arena`; note those outside."""
        addresses = pointers.data.astype(np.int64)
        wanted = np.broadcast_to(mask, addresses.shape).astype(bool)
        width = max(pointers.get_element_ty().primitive_bitwidth // 8, 1)
        if not len(self.begins):
            inside, places = np.zeros_like(wanted), np.zeros_like(addresses)
        else:
            region = np.maximum(np.searchsorted(self.begins, addresses, "right") - 1, 0)
            inside = (addresses >= self.begins[region]) & (addresses + width <= self.ends[region])
            places = np.where(inside, addresses - self.begins[region] + self.starts[region], 0)
        self._count(note, addresses[wanted & ~inside])
        return addresses, wanted & inside, places

    def _count(self, note: dict[str, int], addresses: Any) -> None:
        """Add addresses to the counts of the arguments whose memory is nearest."""
        if not len(addresses):
            return
        names = self.names or ["nothing"]
        if self.names:
            far = np.maximum(self.begins[None] - addresses[:, None], addresses[:, None] - self.ends[None])
            counts = np.bincount(far.argmin(1), minlength=len(names))
        else:
            counts = [len(addresses)]
        for name, count in zip(names, counts, strict=True):
            if count:
                note[name] = note.get(name, 0) + int(count)

    def _others_wrote(self, taken: Any, places: Any) -> Any:
        """Return where another program has written, and this one cannot know."""
        writers = self.writers[places]
        return taken & (writers != NOBODY) & (writers != self.program) & (self.program not in self.informed)

    def _load(
        self, pointers: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
    ) -> Any:
        element = pointers.get_element_ty()
        number = interpreter._get_np_dtype(element)
        addresses, taken, places = self._locate(pointers, mask.data, self.found.loads)
        poison = np.frombuffer(b"\xff" * number.itemsize, number)[0] if element.is_floating() else number.type(0)
        rest = np.full(addresses.shape, poison, number)
        if other is not None:
            rest = np.where(mask.data & ~taken, rest, other.data).astype(number)
        now = _read(addresses, taken, rest, number)
        stale = self._others_wrote(taken, places)
        if not is_volatile and stale.any():
            before = _read(np.where(stale, self.arena.ctypes.data + places, addresses), taken, rest, number)
            self._count(self.found.races, addresses[stale & _differ(now, before)])
            now = before
        return interpreter.TensorHandle(now, element)

    def _store(self, pointers: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any) -> Any:
        addresses, taken, places = self._locate(pointers, mask.data, self.found.stores)
        numbers = np.ascontiguousarray(np.broadcast_to(value.data, addresses.shape))
        twice = self._others_wrote(taken, places)
        if twice.any():
            now = _read(addresses, twice, numbers, numbers.dtype)
            self._count(self.found.races, addresses[twice & _differ(now, numbers)])
        self.writers[places[taken]] = self.program
        return interpreter._interpreter.store(addresses.astype(np.uint64), numbers, taken)

    def _dot(self, a: Any, b: Any, sums: Any, input_precision: Any, most: Any) -> Any:
        """Multiply in TF32 where a GPU's matrix units do, which the interpreter alone does not."""
        if input_precision == ir.INPUT_PRECISION.TF32:
            a, b = _in_tf32(a), _in_tf32(b)
        return self.original["create_dot"](a, b, sums, input_precision, most)

    def _atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _, taken, places = self._locate(pointers, mask.data, self.found.stores)
        self.writers[places[taken]] = ATOMIC
        self.informed.add(self.program)
        allowed = interpreter.TensorHandle(taken, mask.dtype)
        return self.original["create_atomic_rmw"](operation, pointers, value, allowed, sem, scope)

    def _atomic_cas(self, pointers: Any, compared: Any, value: Any, sem: Any, scope: Any) -> Any:
        _, taken, places = self._locate(pointers, np.ones_like(pointers.data, dtype=bool), self.found.stores)
        self.informed.add(self.program)
        if not taken.all():
            return interpreter.TensorHandle(compared.data.copy(), compared.dtype.scalar)
        self.writers[places[taken]] = ATOMIC
        return self.original["create_atomic_cas"](pointers, compared, value, sem, scope)


def _in_tf32(block: Any) -> Any:
    """Return a block of float32 rounded to the ten bits of TF32's mantissa; others have no more."""
    if block.data.dtype != np.float32:
        return block
    bits = np.ascontiguousarray(block.data).view(np.uint32)
    rounded = np.where(np.isfinite(block.data), (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)
    return interpreter.TensorHandle(rounded.view(np.float32), block.dtype)


def _index(scalar: Any) -> int:
    """Return a scalar as a loop's bound; release 3.6 holds it as an array [1], which numpy 2.5 does not convert."""
    return int(scalar.handle.data.item())


def _demanding_float32(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(argument: Any) -> Any:
        if argument.dtype.scalar.primitive_bitwidth < 32:
            raise TypeError(f"Expected dtype ['fp32', 'fp64'] but got {argument.dtype.scalar}")
        return function(argument)

    return call


def _tensors(arguments: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Return all tensors among a kernel's arguments, with the argument's name."""
    for name, value in arguments.items():
        value = getattr(value, "base", value)  # of a descriptor, or of a tensor that is given as another type
        if isinstance(value, tuple):
            yield from _tensors({f"{name}[{place}]": each for place, each in enumerate(value)})
        elif isinstance(value, torch.Tensor):
            yield name, value


def _bytes(storage: Any, begin: int, end: int) -> Any:
    return torch.tensor([], dtype=torch.uint8).set_(storage)[begin:end].numpy()


def _read(addresses: Any, mask: Any, rest: Any, number: Any) -> Any:
    return interpreter._interpreter.load(np.ascontiguousarray(addresses).astype(np.uint64), mask, rest, number)


def _differ(one: Any, other: Any) -> Any:
    """Return where two arrays of a type have different bits."""
    unsigned = f"u{one.dtype.itemsize}"
    return np.ascontiguousarray(one).view(unsigned) != np.ascontiguousarray(other).view(unsigned)
