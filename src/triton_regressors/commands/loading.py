"""How a command imports what it works with: when it runs, because torch and scikit-learn take seconds."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


@contextmanager
def loading() -> Iterator[None]:
    """Have Ctrl-C end the process at once: what it raises within an import may come out as an ImportError."""
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
