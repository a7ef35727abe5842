"""Tensor descriptors of Hopper: the tensors that they can describe, and the memory that kernels make them in.

A descriptor tells the GPU's copy engine a tensor's shape and strides once. One instruction of one thread then loads a
whole box into shared memory, with zeros outside the tensor, while all other threads compute. In return the tensor must
begin at a multiple of 16 bytes, its last stride must be one, and all others a multiple of 16 bytes.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import triton

ALIGNMENT = 16  # bytes
INTERPRETED_PROGRAMS = 2
"""Two programs are enough to show that persistent programs take turns; the interpreter runs them one by one."""


def describable(tensor: torch.Tensor) -> bool:
    """Return whether a descriptor can describe a tensor with its strides and address."""
    *strides, last = tensor.stride()
    return last == 1 and aligned(tensor, *strides)


def aligned(tensor: torch.Tensor, *strides: int) -> bool:
    """Return whether a descriptor can describe a tensor's memory with these strides, in elements, and a last of one."""
    if tensor.data_ptr() % ALIGNMENT or not tensor.numel() or not has_descriptors(tensor.device):
        return False
    return min(strides, default=1) > 0 and math.gcd(*strides) * tensor.element_size() % ALIGNMENT == 0


@functools.cache
def has_descriptors(device: torch.device) -> bool:
    """Return whether a device copies by descriptors, as GPUs from capability 9.0 on and the interpreter do."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return how many persistent programs run at once, if each fills a multiprocessor."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@contextmanager
def using_block_pointers() -> Iterator[None]:
    """Launch kernels with block pointers, without the language's warning that it has deprecated them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*make_block_ptr is deprecated", UserWarning)
        yield


def provide_memory(device: torch.device) -> None:
    """Have kernels that this thread launches keep the descriptors they make in memory of torch's allocator."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
