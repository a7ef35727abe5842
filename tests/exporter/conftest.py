"""Fixtures of the exporter's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

Snapshot = Callable[[], dict[str, bytes | None]]


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    """Returns everything under `tmp_path` by name, a directory as None, wherever an export may leave something."""

    def take() -> dict[str, bytes | None]:
        return {
            str(path.relative_to(tmp_path)): None if path.is_dir() else path.read_bytes()
            for path in sorted(tmp_path.rglob("*"))
        }

    return take
