"""Gives memory back that nothing uses any more."""

from __future__ import annotations

import ctypes


def hand_back() -> None:
    """Have the C library give the system the memory that it keeps for later, where it is one that can: glibc.

    Between many small arrays that were freed lie some that were not, and so it would keep most of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
