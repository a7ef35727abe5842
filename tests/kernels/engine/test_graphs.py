"""The pieces of a large batch, and the order in which they are brought and computed."""

from types import SimpleNamespace
from typing import Any

import pytest

from triton_regressors.kernels.engine import graphs
from triton_regressors.kernels.engine.graphs import Chunk, Lane, Piece
from triton_regressors.kernels.engine.streams import Task


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls to streams and events, one after the other."""
    asked: list[str] = []

    def event(_: Lane) -> Any:
        return SimpleNamespace(
            record=lambda stream: asked.append(f"done on {stream.name}"), synchronize=lambda: asked.append("until done")
        )

    monkeypatch.setattr(graphs, "_event", event)
    return asked


def chunk(name: str, log: list[str]) -> Chunk:
    return Chunk([Task((), name, lambda rows: log.append(f"{name} {rows}"))], Lane(()))


LANE: Any = SimpleNamespace(streams=[SimpleNamespace(name="lane")])


def test_a_piece_is_brought_computed_and_waited_for(log: list[str]) -> None:
    compute = chunk("compute", log)
    piece = Piece(16, 32, [[chunk("upload", log), compute], [chunk("gather", log), compute]], LANE)
    piece.begin(9)
    piece.wait()
    assert log == ["upload 9", "compute 9", "done on lane", "until done"]
    log.clear()
    piece.begin(16, gathered=True)
    assert log == ["gather 16", "compute 16", "done on lane"]


def test_every_kernel_is_launched_for_all_rows(log: list[str]) -> None:
    piece = Piece(16, 32, [[chunk("upload", log), chunk("compute", log)]], LANE)
    piece.launch()
    assert log == ["upload 16", "compute 16"]
