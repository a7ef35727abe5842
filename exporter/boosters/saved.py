"""What boosters' libraries write of a model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path


def saved(save: Callable[[str], object], name: str) -> bytes:
    """Return what `save` writes to a file of this name; the libraries keep the memory that they write a model to."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        save(str(path))
        return path.read_bytes()
