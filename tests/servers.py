"""A Triton server for tests that do not look at how it stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton_regressors.clients.server.triton_server import TritonServer


@contextmanager
def triton_server(*args: Any, **options: Any) -> Iterator[TritonServer]:
    """Start `TritonServer(*args, **options)`, and end it at once with its models' processes.

    One that is asked to stop looks once a second whether its models have, and takes three seconds. That this leaves
    nothing behind is tested in clients/test_server.py, and commands and examples stop their servers so.
    """
    server = TritonServer(*args, **options)
    server.start()
    try:
        yield server
    finally:
        server._stop(grace_s=0)
