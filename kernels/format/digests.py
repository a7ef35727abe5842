"""The SHA-256 of a directory's files, to check that each file is unchanged.

The digests reveal a flipped bit and a truncated, missing or added file. They do not reveal an attack: anyone who can
write the files can write new digests too. `__pycache__` and hidden files do not count.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from .errors import PlanError

CHUNK_BYTES = 2**20


def file_digests(directory: Path, holder: str) -> dict[str, str]:
    """Return the digest of each file except `holder`, by its path in the directory, sorted by path."""
    return {name: _digest(directory / name) for name in sorted(_files(directory) - {holder})}


def check_digests(directory: Path, digests: Mapping[str, str], holder: str) -> None:
    """Raise `PlanError` unless the files match the digests, except `holder`, which holds the digests."""
    try:
        for name in sorted(digests.keys() | _files(directory) - {holder}):
            _check_file(directory / name, digests.get(name), holder)
    except OSError as error:
        raise PlanError(f"Cannot read {error.filename or directory}: {error}.") from error


def _check_file(path: Path, digest: str | None, holder: str) -> None:
    if digest is None:
        raise PlanError(f"{path} is not part of the exported version; remove it.")
    if not path.is_file():
        raise PlanError(f"{path} is missing: the version was exported with it.")
    if _digest(path) != digest:
        raise PlanError(f"{path} is not as it was exported: its SHA-256 is not the one in {holder}.")


def _files(directory: Path) -> set[str]:
    """Return the files' paths relative to their directory, with slashes."""
    found: set[str] = set()
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        within = Path(folder).relative_to(directory)
        found.update((within / name).as_posix() for name in files if not name.startswith("."))
    return found


def _digest(path: Path) -> str:
    digest, chunk = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(chunk):
            digest.update(chunk[:count])
    return digest.hexdigest()
