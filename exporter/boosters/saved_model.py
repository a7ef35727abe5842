"""What boosters' libraries write of a model."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path

from triton_regressors.exporter.lowering.memory import hand_back


def saved(save: Callable[[str], object], name: str) -> mmap.mmap:
    """Return what `save` writes to a file of this name; the libraries keep the memory that they write a model to.

    It is read from the file where it is looked at: much of it never is.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        save(str(path))
        hand_back()
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
