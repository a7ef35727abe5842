"""What launchers ask of the GPU."""

from __future__ import annotations

import torch


def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a GPU has; the interpreter counts as one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
