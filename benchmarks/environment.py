"""The conditions of a figure besides the code: the machine and the versions.

Results hold no dates, so that the difference between two runs shows what moved.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
BUSY_SHARE, LOOKED_AT_S = 0.25, 0.5
"""The share of its cores' time from which on a machine is busy, and for how long it is looked at."""

PACKAGES = ("numpy", "scikit-learn", "torch", "triton", "onnxruntime", "skl2onnx", "tritonclient", "nvidia-pytriton")


def environment() -> dict[str, Any]:
    """Return the device, the host and the versions."""
    return {
        "device": device_name(),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {package: version for package in PACKAGES if (version := _version(package))},
    }


def busy() -> bool:
    """Return whether other programs use this machine: a busy core makes threads that wait for each other far slower.

    What this process did before does not count, as it would in the system's load average.
    """
    cores, stat = os.sched_getaffinity(0), Path("/proc/stat")
    before = stat.read_text(encoding="ascii")
    time.sleep(LOOKED_AT_S)
    share = share_in_use(before, stat.read_text(encoding="ascii"), cores)
    if share <= BUSY_SHARE:
        return False
    print(f"Others use {share:.0%} of this machine's {len(cores)} cores: the figures below are not worth keeping.")
    return True


def share_in_use(before: str, after: str, cores: Collection[int]) -> float:
    """Return the share of these cores' time that was used between two readings of /proc/stat."""
    spent = [_spent(text, cores) for text in (before, after)]
    idle, everything = (late - early for early, late in zip(*spent, strict=True))
    return 1 - idle / everything if everything else 0.0


def _spent(text: str, cores: Collection[int]) -> tuple[int, int]:
    """Return the ticks in which these cores were idle, and all; a guest's are among those of its host's programs."""
    lines = [line.split() for line in text.splitlines()]
    ticks = [list(map(int, line[1:9])) for line in lines if line and line[0] in {f"cpu{core}" for core in cores}]
    return sum(each[3] + each[4] for each in ticks), sum(map(sum, ticks))


def device_name() -> str:
    """Return the GPU's name, or the processor's with the number of cores for this process."""
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores"


def cpu_name() -> str:
    """Return the processor's name as the system gives it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    name = found[1] if found else platform.processor() or platform.machine()
    return re.sub(r"\((R|TM)\)|\bCPU\b|@.*", "", name).strip().replace("  ", " ")


def slug(name: str) -> str:
    """Return a device's name as a directory's: lower case, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def save(directory: Path, benchmark: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> Path:
    """Write one benchmark's results into the directory, and print the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{benchmark}.json"
    document = {"benchmark": benchmark, "environment": environment(), "settings": dict(settings), **results}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return path


def save_models(
    directory: Path,
    benchmark: str,
    settings: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    order: Sequence[str],
    *,
    among: str = "models",
    key: str = "model",
) -> Path:
    """Write the results of models, and keep other models' results in the file from the same machine and settings.

    The file has them as the list `among`, in which `key` names each result's model.
    """
    path = directory / f"{benchmark}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = before.get("environment") == environment() and before.get("settings") == dict(settings)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for held in (before[among] if same else (), results):
        fresh: dict[str, list[Mapping[str, Any]]] = {}
        for result in held:
            fresh.setdefault(result[key], []).append(result)
        found |= fresh
    return save(directory, benchmark, settings, {among: [result for name in order for result in found.get(name, ())]})


def default_directory() -> Path:
    """Return the directory of this machine's results."""
    return RESULTS / slug(device_name())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
