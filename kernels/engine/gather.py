"""Brings the rows of requests to the device by one kernel, from where the Triton server has put them.

The server hands its Python backend the rows of requests in shared memory, or in the memory of a GPU. With staging, one
core reads the rows of large requests to copy them and again to search them for NaN, and then the device reads them.
Here the device reads the rows in place, which the CUDA driver allows once the memory is registered with it, and
searches them while it copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

try:
    from cuda.bindings import driver  # torch's builds for CUDA bring it
except ImportError:
    driver = None

MOST_PARTS = 64

LEAST_BYTES = 2**17
"""Smaller batches are staged: an additional kernel takes longer than the copy."""

BLOCK = 4096
WARPS = 8

WORDS = {4: tl.uint32, 8: tl.uint64}
"""The unsigned integer type by the bytes of a number."""

SHARED_MEMORY = "/dev/shm/"

Part = np.ndarray | torch.Tensor
"""A request's rows, `[*, n_features]`: a tensor in a GPU's memory, or an array; unstaged rows are contiguous."""


@triton.jit
def shifted(low, high, shift, BITS: tl.constexpr):
    """Return the `BITS` bits that begin at bit `shift` of each word `low`, which the word `high` follows."""
    return tl.where(shift == 0, low, (low >> shift) | (high << ((BITS - shift) % BITS)))


@triton.jit(do_not_specialize=["first", "size", "n_features"])
def gather_kernel(
    table,  # int64 [2, PARTS]: where each part ends among the numbers of the batch, and its address
    nan_allowed,  # uint8 [n_features]: whether a column may hold NaN
    wrong,  # int32 [1]: becomes 1 where a number is not allowed
    out,  # [size]
    first,  # the index of the batch's number that comes first in `out`
    size,
    n_features,
    NAN: tl.constexpr,  # whether any column may hold NaN
    WORD: tl.constexpr,  # an unsigned integer as wide as the numbers
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy `BLOCK` numbers with each program, part by part.

    The server's numbers may straddle two words of memory, and a GPU reads whole words only.
    """
    BITS: tl.constexpr = WORD.primitive_bitwidth
    part = tl.arange(0, PARTS)
    ends = tl.load(table + part)
    begin = first.to(tl.int64) + tl.program_id(0).to(tl.int64) * BLOCK
    stop = tl.minimum(tl.minimum(begin + BLOCK, first.to(tl.int64) + size), tl.max(ends, 0))
    if begin < stop:
        addresses = tl.load(table + PARTS + part)
        at = begin + tl.arange(0, BLOCK)
        refused = tl.zeros([BLOCK], tl.int1)
        lowest = tl.sum((ends <= begin).to(tl.int32), 0)
        highest = tl.sum((ends < stop).to(tl.int32), 0)
        for number in range(lowest, highest + 1):
            start = tl.max(tl.where(part == number - 1, ends, 0), 0)
            end = tl.max(tl.where(part == number, ends, 0), 0)
            address = tl.sum(tl.where(part == number, addresses, 0), 0)
            between = address % (BITS // 8)
            words = (address - between).to(tl.pointer_type(WORD))
            here = (at >= start) & (at < tl.minimum(end, stop))
            low = tl.load(words + (at - start), mask=here, other=0)
            high = tl.load(words + (at - start) + 1, mask=here & (between != 0), other=0)
            x = shifted(low, high, (between * 8).to(WORD), BITS).to(out.dtype.element_ty, bitcast=True)
            tl.store(out + (at - first), x, mask=here)
            not_allowed = here & ~(tl.abs(x) < float("inf"))
            if NAN:
                may = tl.load(nan_allowed + at % n_features, mask=here, other=1) != 0
                not_allowed = not_allowed & ~(may & (x != x))
            refused = refused | not_allowed
        if tl.max(refused.to(tl.int32), 0) > 0:
            tl.store(wrong, 1)


class Gathering:
    """The inputs of `launch`: addresses of a batch's parts, and columns that may hold NaN (`nan_allowed`, `nan`)."""

    def __init__(self, n_features: int, nan_columns: Sequence[int], dtype: str, device: torch.device) -> None:
        kind: torch.dtype = getattr(torch, dtype)
        on_gpu = device.type == "cuda"
        self._n_features = n_features
        self._item_bytes = kind.itemsize
        self._device = device
        self._shared = SharedMemory()
        self._table = torch.zeros(2, MOST_PARTS, dtype=torch.int64, pin_memory=on_gpu)
        self._ends, self._addresses = self._table.numpy()
        self._wrong = torch.zeros(1, dtype=torch.int32, pin_memory=on_gpu)
        self._found = self._wrong.numpy()
        allowed = torch.zeros(n_features, dtype=torch.uint8)
        allowed[list(nan_columns)] = 1
        self.nan_allowed, self.nan = allowed.to(device), len(nan_columns) > 0

    def lay(self, parts: Sequence[Part], rows: int) -> bool:
        """Note where the parts of a batch lie, `rows` in all.

        Returns:
            True if the device can read the parts in place and this takes less time than staging them.
        """
        count = len(parts)
        if count > MOST_PARTS or (rows * self._n_features * self._item_bytes < LEAST_BYTES and not _on_gpu(parts)):
            return False
        addresses = [_address(part) for part in parts]
        if not all(map(self._reads, parts, addresses)):
            return False
        self._addresses[:count] = addresses
        self._ends[:count] = list(accumulate(part.shape[0] * self._n_features for part in parts))
        self._ends[count:] = rows * self._n_features
        self._found[0] = 0
        return True

    def launch(self, target: torch.Tensor, first_row: int, rows: int) -> None:
        """Copy up to `rows` rows of the batch, from `first_row` on, to the first rows of a contiguous matrix."""
        size = rows * self._n_features
        gather_kernel[(triton.cdiv(size, BLOCK),)](
            table=self._table,
            nan_allowed=self.nan_allowed,
            wrong=self._wrong,
            out=target,
            first=first_row * self._n_features,
            size=size,
            n_features=self._n_features,
            NAN=self.nan,
            WORD=WORDS[self._item_bytes],
            PARTS=MOST_PARTS,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def _reads(self, part: Part, address: int) -> bool:
        """Return whether the device can read a part in place; it may be unable to read another GPU's memory."""
        return part.device == self._device if isinstance(part, torch.Tensor) else self._shared.holds(address)

    def allowed(self) -> bool:
        """Return whether all numbers of the batch are allowed; call it once the kernels are done."""
        return not self._found[0]


class SharedMemory:
    """The shared memory of this process that a GPU may read at the CPU's own addresses.

    The Python backend keeps each mapping of its shared memory until the process ends and maps added memory anew. A
    registered address therefore never becomes other memory.
    """

    def __init__(self) -> None:
        self._regions: list[tuple[int, int]] = []
        self._refused = driver is None

    def holds(self, address: int) -> bool:
        """Return whether a GPU may read there. Memory that the server has added is registered at its first use."""
        return any(start <= address < stop for start, stop in self._regions) or self._register(address)

    def _register(self, address: int) -> bool:
        region = None if self._refused else find_region(address)
        self._refused = region is None or not _registered(*region)  # a driver that refuses once is not asked again
        if region is not None and not self._refused:
            self._regions.insert(0, region)
        return not self._refused


def find_region(address: int) -> tuple[int, int] | None:
    """Return where the shared memory that holds an address begins and ends, or None where that is other memory."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        start, stop = (int(digits, 16) for digits in fields[0].split("-"))
        if start <= address < stop:
            return (start, stop) if fields[-1].startswith(SHARED_MEMORY) else None
    return None


def _registered(start: int, stop: int) -> bool:
    """Register memory with the CUDA driver; return whether a GPU can read it at the same addresses."""
    torch.cuda.synchronize()  # makes the device's context current in this thread
    (result,) = driver.cuMemHostRegister(start, stop - start, driver.CU_MEMHOSTREGISTER_PORTABLE)
    if result != driver.CUresult.CUDA_SUCCESS:
        return False
    result, pointer = driver.cuMemHostGetDevicePointer(start, 0)
    return bool(result == driver.CUresult.CUDA_SUCCESS and int(pointer) == start)


def on_cpu(part: Part) -> np.ndarray:
    """Return the rows of a request as an array."""
    return part if isinstance(part, np.ndarray) else part.cpu().numpy()


def _address(part: Part) -> int:
    return part.data_ptr() if isinstance(part, torch.Tensor) else int(part.__array_interface__["data"][0])


def _on_gpu(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, torch.Tensor) for part in parts)
