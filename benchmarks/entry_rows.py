"""Rows for an exported entry in a .npz file: its input tensors as a server receives them, and the model's own answers.

An entry and such a file are measured on a machine that has neither the library nor the table that they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

ANSWERS = "answers"
TENSOR = "tensor "
"""Comes before an input's name in the file."""

Tensors = dict[str, np.ndarray]


def write_rows(path: Path, tensors: Mapping[str, np.ndarray], answers: np.ndarray) -> None:
    """Write tensors, whose strings are bytes in object arrays, and the answers, `[rows]`."""
    plain = {TENSOR + name: X.astype(bytes) if X.dtype == object else X for name, X in tensors.items()}
    np.savez_compressed(path, **{ANSWERS: np.asarray(answers, dtype=np.float64)}, **plain)


def read_rows(path: Path) -> tuple[Tensors, np.ndarray]:
    """Return the tensors and the answers of a file."""
    with np.load(path) as file:
        named = {name.removeprefix(TENSOR): file[name] for name in file.files if name != ANSWERS}
        tensors = {name: X.astype(object) if X.dtype.kind == "S" else X for name, X in named.items()}
        return tensors, file[ANSWERS]


def drawn(tensors: Mapping[str, np.ndarray], rows: int, seed: int) -> Tensors:
    """Return so many rows, drawn with replacement."""
    count = len(next(iter(tensors.values())))
    chosen = np.random.default_rng(seed).integers(count, size=rows)
    return {name: np.ascontiguousarray(X[chosen]) for name, X in tensors.items()}
