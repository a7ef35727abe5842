"""An entry on disk: which of its folders are versions, and whether a version is whole.

Beside the others, `plan.json` has two keys: "files" is the SHA-256 of every other file of its version, by path, and
"digest" that of the bytes of `plan.json` itself with the 64 digits of this digest left out. A flipped bit, a file cut
short, missing or added is found by them. Malice is not: who can write into an entry can write new digests too.
Whatever Python keeps in `__pycache__`, and hidden files, are no part of a version.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import PlanError

PLAN = "plan.json"
LARGEST_VERSION = 2**63 - 1
CHUNK_BYTES = 2**20

_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def version_number(name: str) -> int | None:
    """Return the version whose directory has this name, or None: a number from 1 to 2⁶³ − 1 without leading zeros."""
    number = int(name) if _VERSION.fullmatch(name) else LARGEST_VERSION + 1
    return number if number <= LARGEST_VERSION else None


def versions(entry: Path, file: str = "") -> list[int]:
    """Return the versions in an entry's directory in ascending order, those that hold `file` if one is named."""
    if not entry.is_dir():
        return []
    found = [(version_number(path.name), path) for path in entry.iterdir()]
    return sorted(number for number, path in found if number is not None and path.is_dir() and (path / file).exists())


def sealed(directory: Path, document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a `plan.json` that holds this document and the digests of all files in its directory."""
    whole = {**document, "files": file_digests(directory), "digest": ""}
    written = json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n"
    head, empty, tail = written.rpartition(b'"digest": ""')
    return head + empty[:-1] + hashlib.sha256(written).hexdigest().encode() + b'"' + tail


def file_digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a version but `plan.json`, by its path from there, in the paths' order."""
    return {name: _digest(directory / name) for name in sorted(_files(directory) - {PLAN})}


def read_document(directory: Path) -> dict[str, Any]:
    """Return the JSON object in a version's `plan.json`; raise `PlanError` unless every file is as it was exported."""
    path = directory / PLAN
    try:
        written = path.read_bytes()
        document = json.loads(written)
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"Cannot read the plan {path}: {error}.") from error
    if not isinstance(document, dict):
        raise PlanError(f"Cannot read the plan {path}: it is not a JSON object.")
    digest, files = document.get("digest"), document.get("files")
    if not isinstance(digest, str) or not isinstance(files, dict):
        raise PlanError(
            f"The plan {path} has no digests of itself and of the other files: it is damaged, or of an older release; "
            "export the model again."
        )
    if hashlib.sha256(written.replace(digest.encode(errors="replace"), b"", 1)).hexdigest() != digest:
        raise PlanError(f"{path} is not as it was exported: its SHA-256 is not the one it states.")
    try:
        for name in sorted(files.keys() | _files(directory) - {PLAN}):
            _check_file(directory, name, files.get(name))
    except OSError as error:
        raise PlanError(f"Cannot read {error.filename or directory}: {error}.") from error
    return document


def check_proof(directory: Path, rows: int, tolerance: Any) -> None:
    """Raise `PlanError` unless golden rows, that many, within this tolerance prove anything.

    `tolerance` is in standard deviations of the predictions, more than 0 and less than 1, as `export` takes it.
    """
    if rows < 1:
        raise PlanError(f"{directory / 'golden.safetensors'} has no rows; at least 1 is needed.")
    number = tolerance if isinstance(tolerance, int | float) else math.nan
    if not 0 < number < 1:
        raise PlanError(
            f"{directory / PLAN} has the tolerance {tolerance!r}; it must lie between 0 and 1 standard deviations."
        )


def _check_file(directory: Path, name: str, digest: str | None) -> None:
    path = directory / name
    if digest is None:
        raise PlanError(f"{path} is no part of the version as it was exported; remove it.")
    if not path.is_file():
        raise PlanError(f"{path} is missing: the version was exported with it.")
    if _digest(path) != digest:
        raise PlanError(f"{path} is not as it was exported: its SHA-256 is not the one in {PLAN}.")


def _files(directory: Path) -> set[str]:
    """Return the paths of a version's files from its directory, with slashes."""
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
