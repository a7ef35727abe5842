"""The files of a folder, and what differs between two folders that should hold the same."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load


def files(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each file under a folder by its path there, without what Python keeps of modules it ran."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def check_same_files(found: Path, expected: Path) -> None:
    """Two folders hold the same files; the error names each tensor and each first line that differs."""
    one, other = files(found), files(expected)
    assert one.keys() == other.keys()
    differences = {path: _difference(path, one[path], other[path]) for path in one if one[path] != other[path]}
    assert not differences, differences


def _difference(path: str, one: bytes, other: bytes) -> list[str]:
    """Return where two versions of a file differ: tensors with their first values that do, or the first line."""
    if not path.endswith(".safetensors"):
        pairs = zip(one.splitlines(), other.splitlines(), strict=False)
        first = next((pair for pair in enumerate(pairs, 1) if pair[1][0] != pair[1][1]), "one ends before the other")
        return [str(first)]
    tensors, others = load(one), load(other)
    if tensors.keys() != others.keys():
        return [f"tensors {sorted(tensors.keys() ^ others.keys())} are in one of them"]
    return [
        f"{name} {a.dtype} {a.shape}, {b.dtype} {b.shape}: {_values(a, b)}"
        for name, (a, b) in ((name, (tensors[name], others[name])) for name in tensors)
        if a.tobytes() != b.tobytes()
    ] or ["the same tensors, written otherwise"]


def _values(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return "not of one shape and type"
    size = a.dtype.itemsize
    bits = [np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (a, b)]
    places = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    shown = [f"[{place}] {a.reshape(-1)[place]!r} and {b.reshape(-1)[place]!r}" for place in places[:4]]
    return f"{len(places)} differ: " + ", ".join(shown)
