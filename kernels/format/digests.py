"""The SHA-256 of a directory's files: whether each is as it was.

A flipped bit, a file cut short, missing or added is found by them. Malice is not: who can write the files can write new
digests too. Whatever Python keeps in `__pycache__`, and hidden files, do not count.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from .errors import PlanError

CHUNK_BYTES = 2**20


def file_digests(directory: Path, holder: str) -> dict[str, str]:
    """Return the digest of each file but the one that will hold them, by its path from there, in the paths' order."""
    return {name: _digest(directory / name) for name in sorted(_files(directory) - {holder})}


def check_digests(directory: Path, digests: Mapping[str, str], holder: str) -> None:
    """Raise `PlanError` unless the files but `holder`, which holds the digests, are those of the digests."""
    try:
        for name in sorted(digests.keys() | _files(directory) - {holder}):
            _check_file(directory / name, digests.get(name), holder)
    except OSError as error:
        raise PlanError(f"Cannot read {error.filename or directory}: {error}.") from error


def _check_file(path: Path, digest: str | None, holder: str) -> None:
    if digest is None:
        raise PlanError(f"{path} is no part of the version as it was exported; remove it.")
    if not path.is_file():
        raise PlanError(f"{path} is missing: the version was exported with it.")
    if _digest(path) != digest:
        raise PlanError(f"{path} is not as it was exported: its SHA-256 is not the one in {holder}.")


def _files(directory: Path) -> set[str]:
    """Return the paths of the files from their directory, with slashes."""
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
