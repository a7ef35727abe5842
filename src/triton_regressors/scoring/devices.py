"""The choice of the device for scoring, and the GPUs that this process may use."""

from __future__ import annotations

import os
import re
from typing import Any

from triton_regressors.scoring.errors import ScoringError

DEVICE = re.compile(r"auto|cpu|(?:gpu|cuda)(?::(\d{1,3}))?")
VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU_GROUP = 2
"""KIND_CPU of an instance group."""


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
