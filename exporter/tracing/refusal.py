"""The refusal of a function that cannot be traced: the line of the user's file, the reason, and the remedy."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

import numpy as np

OURS = str(Path(__file__).parents[2])
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

VALUES = "an entry computes all rows alike"


class Untraceable(Exception):  # noqa: N818
    """A step of a function that no plan can take.

    The message is a clause that says what it does, and `instead` a sentence on what to do.
    """

    def __init__(self, reason: str, instead: str = "") -> None:
        super().__init__(reason)
        self.instead = instead


class NoAttribute(Untraceable, AttributeError):  # noqa: N818
    """An attribute that cells do not have."""


def place(error: BaseException) -> str:
    """Return the innermost line of the user's own code at which an error was raised, with its file; or nothing."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not own:
        return ""
    frame = own[-1]
    name = Path(frame.filename).name
    line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    shown = f", `{line if len(line) <= 100 else line[:97] + '...'}`," if line else ""
    return f"line {frame.lineno} of {name}{shown}"


def is_own(filename: str) -> bool:
    """Return whether a file is the user's: neither this package's tracing, nor a library's, nor Python's own."""
    return not (
        filename.startswith((OURS, str(Path(np.__file__).parent)))
        or "site-packages" in filename
        or any(filename.startswith(library) for library in LIBRARIES)
        or filename.startswith("<frozen")
    )
