"""The files that `triton-regressors deploy` writes into a directory, and the removal of a former run's files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from triton_regressors.errors import TritonRegressorsError

WRITTEN = ".triton-regressors-deploy.json"
"""Name of the file that lists the files which this command wrote into a directory."""


def write(files: Mapping[str, str], directory: Path, overwrite: bool) -> tuple[list[str], list[str]]:
    """Write the files, by their paths in `directory`, which is new or empty unless they are to be overwritten.

    `WRITTEN` keeps the SHA-256 of each. A file that a former run wrote and this one does not is removed, unless
    somebody has changed it since.

    Returns:
        The paths that were removed, and those that were kept because they were changed.

    Raises:
        TritonRegressorsError: the directory is not empty, or cannot be written to.
    """
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    try:
        if directory.is_dir() and any(directory.iterdir()) and not overwrite:
            raise TritonRegressorsError(f"{directory} is not empty; give another --output, or --overwrite.")
        directory.mkdir(parents=True, exist_ok=True)
        before = _written(directory)
        _note(directory, {**before, **digests})
        for name, text in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
        stale = [name for name in before if name not in files and (directory / name).is_file()]
        changed = [name for name in stale if _digest(directory / name) != before[name]]
        removed = [name for name in stale if name not in changed]
        for name in removed:
            (directory / name).unlink()
            _remove_empty((directory / name).parent, directory)
        _note(directory, {**{name: before[name] for name in changed}, **digests})
        return removed, changed
    except OSError as error:
        raise TritonRegressorsError(f"Nothing can be written into {directory}: {error.strerror}.") from error


def _written(directory: Path) -> dict[str, str]:
    """Return the path and SHA-256 of each file that former runs wrote into a directory."""
    try:
        found = json.loads((directory / WRITTEN).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    inside = {name: digest for name, digest in found.items() if isinstance(digest, str)} if type(found) is dict else {}
    return {name: digest for name, digest in inside.items() if _is_below(directory / name, directory)}


def _is_below(path: Path, directory: Path) -> bool:
    """Return True if a path names something in a directory and follows no link out of it."""
    return path.parent.resolve().is_relative_to(directory.resolve()) and not path.is_symlink()


def _note(directory: Path, digests: Mapping[str, str]) -> None:
    """Write down which files are this command's own."""
    text = json.dumps(dict(sorted(digests.items())), indent=1) + "\n"
    (directory / WRITTEN).write_text(text, encoding="utf-8")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remove_empty(folder: Path, directory: Path) -> None:
    """Remove a folder, and those above it in a directory, as far as they are empty."""
    while folder != directory and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
