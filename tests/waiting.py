"""Waiting for an event in another process."""

import time
from collections.abc import Callable

PATIENCE_S = 240
"""Seconds: generous, since a wait ends with what it waits for, and this limit is only met by a defect."""


def wait_for(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something happens, and fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {timeout_s:g} s"
        time.sleep(0.02)
