"""The CUDA C++ level's compiler step: all of `cuda/` in one extension of torch, compiled only for this GPU."""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

SOURCES = Path(__file__).parent / "cuda"
BUILD = Path(__file__).parents[2] / "build" / "gallery_levels"
TIME = BUILD / "seconds.json"


def missing() -> str:
    """Return why CUDA C++ cannot be compiled and run here, or nothing."""
    if not torch.cuda.is_available():
        return "there is no CUDA GPU"
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None or not (Path(CUDA_HOME) / "bin" / "nvcc").exists():
        return "there is no nvcc: set CUDA_HOME to where the CUDA toolkit is"
    return "" if shutil.which("ninja") else "there is no ninja"


@functools.cache
def library() -> Any:
    """Compile the changed sources, load the extension, and return its functions."""
    if reason := missing():
        raise RuntimeError(f"The level CUDA C++ does not run here: {reason}.")
    from torch.utils.cpp_extension import load

    BUILD.mkdir(parents=True, exist_ok=True)
    major, minor = torch.cuda.get_device_capability()
    built, began = BUILD / "gallery_levels.so", time.perf_counter()
    before = built.stat().st_mtime_ns if built.exists() else 0
    with mock.patch.dict(os.environ, TORCH_CUDA_ARCH_LIST=f"{major}.{minor}"):
        load(
            name="gallery_levels",
            sources=[str(path) for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.cu")])],
            extra_cflags=["-O2"],
            extra_cuda_cflags=["-O3"],
            build_directory=str(BUILD),
            is_python_module=False,
        )
    if built.stat().st_mtime_ns != before:
        TIME.write_text(json.dumps(time.perf_counter() - began))
    return torch.ops.gallery_levels


def seconds() -> float:
    """Return how long the compiler took at its last run."""
    library()
    return float(json.loads(TIME.read_text()))
