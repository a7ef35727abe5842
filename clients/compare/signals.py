"""Signals that end a comparison early: it puts the model back first, whatever they interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to stop, and a terminal or connection that is gone."""


@contextmanager
def interrupting() -> Iterator[list[int]]:
    """Each of these signals raises KeyboardInterrupt; yields the list of those that came.

    Only the first counts, so that putting things back is not interrupted in turn. For the main thread.
    """
    came: list[int] = []
    terminals = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def on_signal(number: int, frame: Any) -> None:
        came.append(number)
        if number == signal.SIGHUP:
            _silence(terminals)
        if len(came) == 1:
            raise KeyboardInterrupt

    with _handled(on_signal):
        yield came


@contextmanager
def deferred() -> Iterator[None]:
    """Each of these signals waits until the block is done. It does nothing but in the main thread, which gets them."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with _handled(lambda number, frame: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in ENDINGS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _silence(terminals: Sequence[int]) -> None:
    """Write no more to terminals that are gone: each attempt would be an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in terminals:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
