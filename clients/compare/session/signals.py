"""Signals that end a comparison early: the comparison first restores the model, whatever the signals interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals for Ctrl-C, for a request to stop, and for a terminal or connection that is gone."""


@contextmanager
def interrupting() -> Iterator[list[int]]:
    """Let each of these signals raise KeyboardInterrupt; yield the list of those received.

    Only the first signal raises, so that the restoration is not interrupted in turn. Use it in the main thread.
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
    """Defer each of these signals until the block is done. In threads other than the main thread it does nothing."""
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
    """Redirect output from terminals that are gone: each write to them would be an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in terminals:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
