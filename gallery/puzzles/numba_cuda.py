"""Numba's CUDA target, which compiles a Python function to one GPU thread's program; without a GPU, its simulator.

The simulator runs every GPU thread as a thread of Python, about 4,000 a second; it suits small arrays and debugging.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy
import torch

from gallery.arguments import demand_alike
from gallery.errors import GalleryError

if not torch.cuda.is_available():
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when Numba is imported

if not hasattr(numpy, "row_stack"):  # numpy 2.5 removed it, and numba-cuda 0.30 asks for it when it compiles
    numpy.row_stack = numpy.vstack  # type: ignore[attr-defined]

try:
    from numba import config, cuda, float32
except ImportError as error:
    raise GalleryError("The puzzles need Numba; `pip install 'triton-regressors[gallery]'` brings it.") from error

config.CUDA_LOW_OCCUPANCY_WARNINGS = False  # puzzles of a few elements are meant

THREADS = 128
"""The threads of a block: four warps, enough to hide each other's waiting, few enough for the simulator."""

__all__ = ["THREADS", "array", "arrays", "blocks_for", "cuda", "find_device", "float32", "launch"]


def arrays(**tensors: torch.Tensor) -> list[Any]:
    """Return tensors as arrays that Numba's kernels take, over the same memory, strides included.

    Raises:
        TypeError, ValueError: they are not all float32 on one device.
    """
    demand_alike([torch.float32], **tensors)
    return [array(tensor) for tensor in tensors.values()]


def array(tensor: torch.Tensor) -> Any:
    """Return a tensor of any type as an array that Numba's kernels take, over the same memory."""
    return tensor.detach() if tensor.is_cuda else tensor.detach().numpy()


def find_device() -> torch.device:
    """Return the device of Numba's kernels: a GPU, or the CPU with the simulator."""
    return torch.device("cpu" if config.ENABLE_CUDASIM else "cuda")


def blocks_for(n: int, threads: int = THREADS) -> int:
    """Return how many blocks of threads cover n elements."""
    return -(-n // threads)


def launch(kernel: Callable[..., None], grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0) -> None:
    """Start a kernel on torch's current stream, after torch's earlier work there and before its later work."""
    simulated = bool(config.ENABLE_CUDASIM)
    stream = 0 if simulated else cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    kernel[grid, block, stream, shared_bytes](*arguments)
