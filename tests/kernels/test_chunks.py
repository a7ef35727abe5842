"""The pieces of a large batch: in which order they are brought and computed."""

from types import SimpleNamespace
from typing import Any

import pytest

from triton_regressors.kernels import chunks
from triton_regressors.kernels.branches import Task
from triton_regressors.kernels.chunks import Chunk, Lane, Piece


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What streams and events are asked, one after the other."""
    asked: list[str] = []
    names = iter(("there", "done"))

    def event(_: Lane) -> Any:
        name = next(names)
        return SimpleNamespace(
            record=lambda stream: asked.append(f"{name} on {stream.name}"),
            synchronize=lambda: asked.append(f"until {name}"),
        )

    monkeypatch.setattr(chunks, "_event", event)
    return asked


def chunk(name: str, log: list[str]) -> Chunk:
    return Chunk([Task((), name, lambda rows: log.append(f"{name} {rows}"))], Lane(()))


def lane(log: list[str]) -> Any:
    return SimpleNamespace(
        streams=[SimpleNamespace(name="lane", wait_event=lambda event: log.append(f"after {event}"))]
    )


def test_staged_rows_wait_for_those_of_another_piece(log: list[str]) -> None:
    compute = chunk("compute", log)
    ways = [[chunk("upload", log), compute], [chunk("gather", log), compute]]
    other: Any = "the other's"
    piece = Piece(16, 32, ways, lane(log), other)
    piece.begin(9)
    piece.wait()
    assert log == ["after the other's", "upload 9", "there on lane", "compute 9", "done on lane", "until done"]
    log.clear()
    piece.begin(16, gathered=True)
    assert log == ["gather 16", "there on lane", "compute 16", "done on lane"]


def test_a_piece_that_is_brought_as_it_is_computed(log: list[str]) -> None:
    piece = Piece(0, 16, [[chunk("all", log)]], lane(log), None)
    piece.begin(16)
    assert log == ["all 16", "there on lane", "done on lane"]


def test_every_kernel_is_launched_for_all_rows(log: list[str]) -> None:
    piece = Piece(16, 32, [[chunk("upload", log), chunk("compute", log)]], lane(log), None)
    piece.launch()
    assert log == ["upload 16", "compute 16"]
