"""Models as the boosting libraries write them."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path

from triton_regressors.exporter.lowering.memory import hand_back


def saved(save: Callable[[str], object], name: str) -> mmap.mmap:
    """Return the contents of the file of this name that `save` writes.

    A file is used because the libraries do not free the memory to which they write a model. It is memory-mapped,
    because much of it is never read.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        save(str(path))
        hand_back()
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
