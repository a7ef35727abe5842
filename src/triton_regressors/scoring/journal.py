"""The work folder of a run, beside its output: its settings, and the finished parts.

The same call continues an interrupted run, if the model and the files are unchanged.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.files import Part
from triton_regressors.scoring.part_scoring import part_file, writing

JOURNAL = "journal.json"
SETTINGS = {
    "entry": "of {}",
    "version": "with version {}",
    "outputs": "for the outputs {}",
    "keep": "keeping {}",
    "columns": "with the features {}",
    "where": "with contributions where {}",
    "device": "on the {}",
}
"""A setting of a run in the journal → its wording in an error."""


def work_folder(output: Path) -> Path:
    """Return the folder of the parts until the output is complete."""
    return output.with_name(f"{output.name}.partial")


@contextmanager
def only_run(work: Path) -> Iterator[None]:
    """Make the work folder and lock it; the system releases the lock when this process ends, however it ends.

    Raises:
        ScoringError: another process has locked the folder, or it cannot be made.
    """
    try:
        work.mkdir(exist_ok=True)
        descriptor = os.open(work, os.O_RDONLY)
    except OSError as error:
        raise ScoringError(f"Cannot make {work}: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScoringError(f"Another process is at work in {work}; wait for it to end.") from None
        yield
    finally:
        os.close(descriptor)


def begin(work: Path, settings: Mapping[str, Any], parts: Sequence[Part], *, restart: bool) -> set[int]:
    """Return the numbers of the finished parts, and write the settings into the journal.

    Args:
        work: the work folder.
        settings: all that determines the answers: the keys of `SETTINGS`, "digest" of the model, and "files" by path.
        parts: all parts.
        restart: forget finished parts.

    Raises:
        ScoringError: an earlier run in this folder had other settings; the message names the difference.
    """
    journal = work / JOURNAL
    settings = json.loads(json.dumps(settings))
    if restart:
        clear(work)
    if not journal.exists():
        clear(work)  # parts without a journal belong to no run
        with writing(journal) as temporary:
            temporary.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        return set()
    try:
        before = json.loads(journal.read_text(encoding="utf-8"))
        files = dict(before["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ScoringError(f"{journal} is damaged; --restart (restart=True) starts again.") from None
    why = _difference(before, settings) or _changed(files, settings["files"])
    if why:
        raise ScoringError(
            f"{work} holds an unfinished run that differs from this one: {why} --restart (restart=True) discards it."
        )
    return {part.number for part in parts if part_file(work, part.number).exists()}


def clear(work: Path) -> None:
    """Remove the content of the work folder."""
    for path in work.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _difference(before: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    for key, words in SETTINGS.items():
        if before.get(key) != settings[key]:
            was, now = (words.format(_shown(each.get(key))) for each in (before, settings))
            return f"that run was {was}, this one is {now}."
    if before.get("digest") != settings["digest"]:
        return "the entry, or its config.pbtxt, has changed since."
    return ""


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if before == now:
        return ""
    for path in [*before, *now]:
        if before.get(path) != now.get(path):
            what = (
                "is new"
                if path not in before
                else "is not among the files any more"
                if path not in now
                else "has changed"
            )
            return f"{path} {what}."
    return "the files are in another order."


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
