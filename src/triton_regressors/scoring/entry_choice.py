"""The choice of an entry's version and device for scoring, without loading the entry."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from triton_regressors.clients.server.entries import served_versions
from triton_regressors.kernels.entry import Entry, find_entry, read_document, versions
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.model_config import from_pbtxt
from triton_regressors.scoring.errors import ScoringError

DEVICE = re.compile(r"auto|cpu|(?:gpu|cuda)(?::(\d{1,3}))?")
VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU_GROUP = 2
"""KIND_CPU of an instance group."""


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
    try:
        return bool(read_document(entry.version_directory, check_files=False).answers_column)
    except PlanError as error:
        raise ScoringError(str(error)) from None


def digest_of(entry: Entry, config: Any) -> str:
    """Return a digest of all that determines an answer: the version's files, by plan.json, and the configuration."""
    told = {name: value.string_value for name, value in config.parameters.items()}
    tensors = [(each.name, each.data_type, list(each.dims)) for each in (*config.input, *config.output)]
    configured = json.dumps([sorted(told.items()), tensors, config.max_batch_size]).encode()
    return hashlib.sha256((entry.version_directory / "plan.json").read_bytes() + configured).hexdigest()


def choose_device(device: str, config: Any) -> tuple[bool, int]:
    """Return whether a device is a GPU, and its number.

    Args:
        device: "auto" is the first GPU, if there is one and config.pbtxt does not keep the entry on CPUs; "cpu", "gpu"
            and "gpu:1" name a device, as "cuda" and "cuda:1" do.
        config: the entry's configuration.

    Raises:
        ScoringError: there is no such device.
    """
    named = DEVICE.fullmatch(device)
    if named is None:
        raise ScoringError(f"device is {device!r}; it must be auto, cpu, gpu or gpu:1, or torch's name of a device.")
    gpus = len(visible_gpus())
    if device == "auto":
        return bool(gpus) and not only_on_cpus(config), 0
    number = int(named[1] or 0)
    if device != "cpu" and number >= gpus:
        raise ScoringError(f"device is {device!r}, and torch finds {gpus or 'no'} GPU{'s' * (gpus != 1)} here.")
    return device != "cpu", number


def only_on_cpus(config: Any) -> bool:
    """Return whether config.pbtxt keeps an entry on CPUs."""
    return {group.kind for group in config.instance_group} == {CPU_GROUP}


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = os.environ.get(VISIBLE)
    return named.split(",")[:count] if named else [str(number) for number in range(count)]
