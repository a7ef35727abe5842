"""Makes file modes apply to tests that run as root."""

import contextlib
import ctypes
import os
from collections.abc import Iterator


@contextlib.contextmanager
def bound_by_modes() -> Iterator[None]:
    """Take from this thread, for a while, root's right to write where a file's mode forbids it (CAP_DAC_OVERRIDE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # capabilities(7): version 3, this thread
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    assert libc.capget(header, rights) == 0, os.strerror(ctypes.get_errno())
    effective = rights[0]
    try:
        rights[0] = effective & ~(1 << 1)
        assert libc.capset(header, rights) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        rights[0] = effective
        libc.capset(header, rights)
