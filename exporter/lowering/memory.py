"""The return of unused memory to the system."""

from __future__ import annotations

import ctypes


def hand_back() -> None:
    """Have the C library return its free memory to the system, if it is glibc, which can.

    Small arrays still in use lie between the many freed ones, so the library would otherwise keep most of the memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
