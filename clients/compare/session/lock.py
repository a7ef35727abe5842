"""A lock that allows one comparison of a model at a time.

Two comparisons would distort each other's measurements and restore each other's configuration.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from triton_regressors.clients.compare.errors import ComparisonError

try:
    import fcntl
except ImportError as error:
    raise ComparisonError("`compare` needs the file locks of Linux or macOS; on Windows run it in WSL.") from error


@contextmanager
def only_comparison(model: str, addresses: Sequence[str]) -> Iterator[None]:
    """Hold a lock for the model at each address "host:port" of its server.

    A lock is a locked file in this machine's temporary directory; a file that merely exists locks nothing. The system
    releases the lock when the process ends, however it ends. Raises ComparisonError if another comparison holds one.
    """
    held: dict[Path, int] = {}
    try:
        for address in addresses:
            path = lock_file(model, address)
            try:
                held[path] = _locked(path)
            except BlockingIOError:
                raise ComparisonError(
                    f"Another comparison of model {model!r} at {address} is running; wait for it to end."
                ) from None
        yield
    finally:
        for path, descriptor in held.items():
            with suppress(OSError):  # another user's file stays
                path.unlink()
            os.close(descriptor)


def _locked(path: Path) -> int:
    """Return a descriptor of the file at this path that holds its lock. Raises BlockingIOError if another one does."""
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the former holder has just removed the file: the path leads to another file now


def lock_file(model: str, address: str) -> Path:
    """Return where the lock is: the same path for each way to write the server's address."""
    host, _, port = address.rpartition(":")
    try:
        known = sorted({found[4][0] for found in socket.getaddrinfo(host.strip("[]"), None)})
        host = "loopback" if any(ip.startswith("127.") or ip == "::1" for ip in map(str, known)) else str(known[0])
    except OSError:
        pass  # no connection to it can succeed
    name = hashlib.sha256(f"{host}:{port}/{model}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"triton-regressors-compare-{name}.lock"


def _open(path: Path) -> int:
    """Open a file, read-only because another user may have made it; a lock needs no write access."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            return os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        raise ComparisonError(f"Cannot make the lock file {path}: {error.strerror}.") from error
