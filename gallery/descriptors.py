"""Tensor descriptors of Hopper: which tensors they describe, and what a launcher gives the kernels that make them.

A descriptor tells the GPU's copy engine a tensor's shape and strides once. One instruction of one thread then brings a
whole box into shared memory, with zeros for what lies outside the tensor, while all other threads compute. In return
the tensor must begin at a multiple of 16 bytes, have a last stride of one, and all others a multiple of 16 bytes.
"""

from __future__ import annotations

import functools

import torch
import triton

ALIGNMENT = 16  # bytes
INTERPRETED_PROGRAMS = 2
"""As many as show that persistent programs take turns; the interpreter runs one after another."""


def describable(tensor: torch.Tensor) -> bool:
    """Return whether a descriptor may describe a tensor, as it lies and where it lies."""
    if not (tensor.numel() and tensor.stride(-1) == 1 and tensor.data_ptr() % ALIGNMENT == 0):
        return False
    strides = [stride * tensor.element_size() for stride in tensor.stride()[:-1]]
    return has_descriptors(tensor.device) and all(stride > 0 and stride % ALIGNMENT == 0 for stride in strides)


@functools.cache
def has_descriptors(device: torch.device) -> bool:
    """Return whether a device copies by descriptors: GPUs from capability 9.0 on do, and the interpreter."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return how many persistent programs run at once, if each fills a multiprocessor."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def provide_memory(device: torch.device) -> None:
    """Have kernels that this thread launches keep the descriptors they make in memory of torch's allocator."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
