"""The choice of an entry's version for scoring, and its configuration, without loading the entry."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from triton_regressors.clients.server.entries import served_versions
from triton_regressors.contribution_game import Game
from triton_regressors.kernels.entry import Document, Entry, find_entry, read_document, versions
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.model_config import from_pbtxt
from triton_regressors.scoring.errors import ScoringError


def choose_entry(directory: Path, version: int | str | None) -> Entry:
    """Return the named version of an entry, or else the one that a server answers with.

    Raises:
        ScoringError: the version does not exist, or is not this project's.
    """
    try:
        if not directory.is_dir():
            beside = directory.parent
            known = sorted(path.name for path in beside.iterdir() if versions(path)) if beside.is_dir() else []
            raise PlanError(f"There is no entry {directory}; {beside} has {', '.join(known) or 'none'}.")
        if version is None:
            served = served_versions(directory, read_config(directory)) if versions(directory) else []
            version = served[-1] if served else None
        entry = find_entry(directory.resolve(), version)
    except PlanError as error:
        raise ScoringError(str(error)) from None
    if not entry.exported:
        raise ScoringError(f"{entry.version_directory} holds no plan.json, so it is not an entry of triton_regressors.")
    return entry


def read_config(directory: Path) -> Any:
    """Return an entry's `ModelConfig`, with its directory's name.

    Raises:
        ScoringError: it cannot be read.
    """
    path = directory / "config.pbtxt"
    try:
        config = from_pbtxt(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ScoringError(f"Cannot read {path}: {error}") from None
    config.name = directory.name
    return config


def answers_column(entry: Entry) -> bool:
    """Return whether the estimator's `predict` answers one target as `[rows, 1]`, by the version's plan.json.

    Raises:
        ScoringError: plan.json cannot be read.
    """
    return bool(_document(entry).answers_column)


def game_of(entry: Entry) -> Game | None:
    """Return the game of the version's contributions, by its plan.json; None if it has none.

    Raises:
        ScoringError: plan.json cannot be read.
    """
    return Game.of(_document(entry))


def _document(entry: Entry) -> Document:
    try:
        return read_document(entry.version_directory, check_files=False)
    except PlanError as error:
        raise ScoringError(str(error)) from None


def digest_of(entry: Entry, config: Any) -> str:
    """Return a digest of all that determines an answer: the version's files, by plan.json, and the configuration."""
    told = {name: value.string_value for name, value in config.parameters.items()}
    tensors = [(each.name, each.data_type, list(each.dims)) for each in (*config.input, *config.output)]
    configured = json.dumps([sorted(told.items()), tensors, config.max_batch_size]).encode()
    return hashlib.sha256((entry.version_directory / "plan.json").read_bytes() + configured).hexdigest()
