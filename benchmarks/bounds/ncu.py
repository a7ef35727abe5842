"""Runs a module under ncu, NVIDIA's profiler of kernels, and reads what it counted."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def profiled(
    arguments: Sequence[str], metrics: Sequence[str], options: Sequence[str] = ()
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the metrics' units, and each kernel's row of ncu's table, as text.

    `arguments` are those of Python: they start what to profile, between calls of `torch.cuda.profiler.start` and
    `stop`. The GPU's clock stays as it is.

    Raises:
        SystemExit: ncu is not on the path.
    """
    if not shutil.which("ncu"):
        raise SystemExit("This benchmark needs ncu, which is not on the path.")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "ncu.csv"
        command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw"]
        command += ["--log-file", str(log), "--metrics", ",".join(metrics), *options, sys.executable, *arguments]
        subprocess.run(command, check=True)
        lines = log.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    units, *rows = csv.DictReader(lines[start:])
    return units, rows


def parsed(text: str) -> float:
    """Return a number of ncu's table, which has commas between thousands."""
    return float(text.replace(",", ""))
