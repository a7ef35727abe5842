"""All exhibits, in the best order for reading."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gallery.errors import GalleryError

if TYPE_CHECKING:
    import torch

    from gallery.exhibit import Exhibit

PATH = (
    *("map", "zip", "map_2d", "broadcast", "pooling", "dot", "softmax", "copy", "matmul", "matmul_relu"),
    *("layer_norm", "weighted_sum", "linear_regression", "convolution", "attention"),
)
"""The learning path: each step builds on those before it."""

KERNELS = Path(__file__).parent / "kernels"


def kernel_device() -> torch.device:
    """Return the device that kernels run on: a GPU, or the CPU with the interpreter of the Triton language.

    Call this before kernels are imported, since they are compiled or interpreted as set when they are defined.
    """
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    return torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")


@cache
def exhibits() -> Mapping[str, Exhibit]:
    """Return the exhibits by name, in the path's order."""
    kernel_device()
    there = [name for name in PATH if (KERNELS / f"{name}.py").exists()]
    return {name: importlib.import_module(f"gallery.kernels.{name}").EXHIBIT for name in there}


def find(name: str) -> Exhibit:
    """Return an exhibit; if there is none, raise `GalleryError` with the nearest names, or with all."""
    known = exhibits()
    if name not in known:
        near = get_close_matches(name, known, cutoff=0.5)
        raise GalleryError(
            f"The gallery has no exhibit {name}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}.")
        )
    return known[name]
