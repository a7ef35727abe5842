"""The hardware units of GPUs, which decide how some operations compute: by compute capability, never by a batch."""

from __future__ import annotations

import functools
import importlib

import torch
import triton

from ..numerics.dot import INTERPRETED

MANY_FLOAT64_UNITS = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""Compute capabilities of GPUs with half as many units for float64 as for float32; others have a 32nd or a 64th."""

HOPPER = (9, 0)
"""The compute capability of H100 and H200, whose warp group products no other GPU has."""

GLUON_VERSIONS = ("3.6.", "3.7.")
"""Versions of the Triton language whose Gluon gave right answers for `ops/networks/int8_hopper.py` on a GPU.

Gluon is experimental, and a change in another version shows only when a kernel is compiled. Other versions therefore
use plain kernels.
"""

RESERVED_BYTES = 2048
"""Bytes of shared memory reserved for sums across the warps of a program."""


@functools.cache
def has_many_float64_units(device: torch.device) -> bool:
    """Return whether float64 arithmetic takes a GPU at most twice the time of float32."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in MANY_FLOAT64_UNITS


@functools.cache
def has_matrix_units(device: torch.device) -> bool:
    """Return whether the Triton language multiplies float16 and int8 on matrix units: from compute capability 8.0."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def has_dependent_launches(device: torch.device) -> bool:
    """Return whether a kernel can begin before the previous one has ended; tested on compute capability 9.0 only."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == HOPPER


def early_launch(device: torch.device, *, after_a_kernel: bool = True) -> dict[str, bool]:
    """Return the arguments of a launch that begins while the kernel right before it still runs, if a GPU can do that.

    A kernel that is EARLY waits for the end of the previous one (`gdc_wait`) before it reads what other kernels write.
    It may let the next one begin (`gdc_launch_dependents`): programs of the next one then take the places that are left
    on the GPU, and spread less evenly. If no kernel is right before it, it begins as others do.
    """
    early = has_dependent_launches(device)
    return {"EARLY": early, "launch_pdl": True} if early and after_a_kernel else {"EARLY": early}


@functools.cache
def has_warp_groups(device: torch.device) -> bool:
    """Return whether products of warp groups can run while a program goes on, which needs Gluon and a Hopper GPU."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return False
    if INTERPRETED.value or not triton.__version__.startswith(GLUON_VERSIONS):
        return False
    try:
        importlib.import_module("triton.experimental.gluon.language.nvidia.hopper")
    except ImportError:
        return False
    return True


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a program may have, 0 on a GPU without matrix units for float16."""
    if device.type != "cuda":
        return 2**30
    properties = torch.cuda.get_device_properties(device)
    most: int = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return most - RESERVED_BYTES if has_matrix_units(device) else 0


@functools.cache
def program_limit(device: torch.device) -> int:
    """Return the most programs to start if each has a workspace: two for each multiprocessor."""
    if device.type == "cuda":
        return 2 * torch.cuda.get_device_properties(device).multi_processor_count
    return 2
