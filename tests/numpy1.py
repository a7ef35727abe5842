"""The interpreter with which alone the embedded Triton server reads strings; `make setup` makes it."""

import sys
from pathlib import Path

import numpy as np


def interpreter() -> Path | None:
    """Return an interpreter with numpy 1, and all else as here; None where there is none."""
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return Path(sys.executable)
    python = Path(sys.prefix) / "numpy1" / "bin" / "python"
    return python if python.exists() else None
