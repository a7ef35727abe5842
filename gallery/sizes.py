"""Sizes as the user gives them: their reading, their explanation, and the memory that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from gallery.errors import GalleryError
from gallery.exhibit import Exhibit, Size

MOST = 2**48
"""A number above this is no length that any memory has."""

OF_TRUTH = 3
"""Float64 numbers that a check holds for each number of arguments and answer: them, the truth and a difference."""

MEMORY = Path("/proc/meminfo")
OUT_OF_MEMORY = ("can't allocate memory", "Storage size calculation overflowed", "multiplication overflow")
"""Parts of torch's messages if a CPU's memory does not suffice, or no memory could."""


def read_size(exhibit: Exhibit, text: str) -> Size:
    """Return a size given as 4096x512; raise `GalleryError` for other texts."""
    try:
        size = tuple(int(part) for part in text.replace(",", "x").split("x"))
    except ValueError:
        raise GalleryError(f"--size {text} is no size; {explained(exhibit)}.") from None
    if min(size) < 0:
        raise GalleryError(f"--size {text} has a number below 0; {explained(exhibit)}.")
    if max(size) > MOST:
        raise _too_large(exhibit, size)
    return size


def explained(exhibit: Exhibit) -> str:
    """Return what an exhibit's sizes say, with one as an example, as the end of a sentence."""
    return f"{exhibit.name} takes {exhibit.lengths}, such as {written(exhibit.curve[-1])}"


def written(size: Size) -> str:
    """Return a size as the user gives it."""
    return "x".join(map(str, size))


@contextmanager
def refusals(exhibit: Exhibit, size: Size) -> Iterator[None]:
    """Raise a kernel's refusal of a size's arguments, and a lack of memory, as one sentence.

    Raises:
        GalleryError: The exhibit refuses the arguments, or the memory does not suffice.
    """
    try:
        yield
    except (TypeError, ValueError) as reason:
        sentence = str(reason).rstrip(".")
        raise GalleryError(f"{exhibit.name} refuses {written(size)}: {sentence}; {explained(exhibit)}.") from reason
    except (RuntimeError, MemoryError) as reason:
        out = isinstance(reason, (torch.OutOfMemoryError, MemoryError))
        if out or any(text in str(reason) for text in OUT_OF_MEMORY):
            raise _too_large(exhibit, size) from None
        raise


def demand_room(exhibit: Exhibit, size: Size, dtype: torch.dtype, device: torch.device) -> None:
    """Raise `GalleryError` if there is no such size, or if it and its check in float64 need more memory than is free.

    The arguments are drawn without memory, on torch's device "meta".
    """
    try:
        drawn = exhibit.sample(size, dtype, torch.device("meta"))
    except (ValueError, TypeError, IndexError) as reason:
        raise GalleryError(f"{exhibit.name} has no size {written(size)}; {explained(exhibit)}.") from reason
    except RuntimeError as reason:
        if any(text in str(reason) for text in OUT_OF_MEMORY):
            raise _too_large(exhibit, size) from None
        raise
    with refusals(exhibit, size):
        numbers = exhibit.traffic(*drawn) // dtype.itemsize
    if numbers * (dtype.itemsize + OF_TRUTH * 8) > free_bytes(device):
        raise _too_large(exhibit, size)


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    (line,) = [line for line in MEMORY.read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def _too_large(exhibit: Exhibit, size: Size) -> GalleryError:
    return GalleryError(f"{exhibit.name} of {written(size)} needs more memory than is free; a smaller size may fit.")
