"""The walls of benchmarks/: what each folder imports from the others."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "benchmarks"
ROOMS = {
    "": set(),
    "gpu": {""},
    "cpu": {""},
    "served": {""},
    "bounds": {"", "gpu"},
    "figures": {"", "gpu", "cpu", "bounds"},
}
"""Each folder, "" for the files beside them, and the folders that it may import; `run.py` starts the others."""


def room(path: Path) -> str:
    """Return the folder of a file of benchmarks/."""
    return "" if path.parent == ROOT else path.parent.name


def imported(path: Path) -> set[str]:
    """Return the folders that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for parts in (name.split(".") for name in names if name.startswith("benchmarks.")):
            found.add(parts[1] if (ROOT / parts[1]).is_dir() else "")
    return found


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_those_below_it(name: str) -> None:
    files = [path for path in ROOT.rglob("*.py") if room(path) == name]
    assert files
    assert set().union(*map(imported, files)) - {name} == ROOMS[name]


def test_every_file_stands_in_a_room_and_there_is_no_circle() -> None:
    assert {room(path) for path in ROOT.rglob("*.py")} == set(ROOMS)
    tuple(TopologicalSorter(ROOMS).static_order())
