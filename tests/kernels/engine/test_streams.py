"""Tasks of a plan that run side by side."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, polynomial, quadratic, scale
from triton_regressors.kernels.engine import streams as branches
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.engine.streams import START, Place, Task, place
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.plan.plan import Plan, Step

MEMBERS = 12
VOTING = Plan(
    5,
    (
        Step(scale(5), ("X",), "scaled"),
        *(
            step
            for member in range(MEMBERS)
            for step in (
                Step(polynomial(5, 2, seed=member), ("scaled",), f"p{member}"),
                Step(affine(21, 3, seed=member), (f"p{member}",), f"a{member}"),
                Step(quadratic(3, 2, seed=member), (f"a{member}",), f"q{member}"),
            )
        ),
        Step(Concatenate(), ("scaled", *(f"q{member}" for member in range(MEMBERS))), "all"),
    ),
    {"y": "all", "first": "q0", "scaled": "scaled"},
)


def tasks(text: str) -> list[Task]:
    """Return tasks from lines such as `a b → c`."""
    pairs = (line.split("→") for line in text.strip().splitlines())
    return [Task(tuple(reads.split()), makes.strip(), lambda rows: None) for reads, makes in pairs]


def test_a_chain_is_one_branch() -> None:
    assert place(tasks("→ X\nX → a\na → b\nb a X → c")) == [Place(0, ())] * 4


def test_what_reads_the_same_value_runs_side_by_side() -> None:
    found = place(tasks("→ X\nX → a\nX → b\nb → c\nX → d\na c d → e\ne → f"))
    assert found == [
        Place(0, ()),
        Place(0, ()),
        Place(1, (0,)),
        Place(1, ()),
        Place(2, (0,)),
        Place(0, (3, 4)),
        Place(0, ()),
    ]


def test_branches_that_read_what_was_there_begin_at_the_start() -> None:
    assert place(tasks("X → a\nX → b\na b → c")) == [Place(0, ()), Place(1, (START,)), Place(0, (1,))]


def test_a_branch_may_begin_in_another_and_not_end_in_it() -> None:
    assert place(tasks("X → a\na → b\na → c")) == [Place(0, ()), Place(0, ()), Place(1, (0,))]


def test_of_many_branches_those_that_were_given_nothing_for_longest_get_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_BRANCHES", 3)
    found = place(tasks("→ X\nX → a\nX → b\nX → c\nX → d\nb → e\nX → f\na b c d e f → g"))
    assert [spot.branch for spot in found] == [0, 0, 1, 2, 0, 1, 2, 0]
    assert found[4] == Place(0, ())
    assert found[6] == Place(2, (0,))
    assert found[7] == Place(0, (2, 3, 5, 6))


def test_every_value_is_made_before_it_is_read() -> None:
    """In any order of branches, a task's inputs come before it on its branch, or it waits for them."""
    todo = [Task((), "X", lambda rows: None)] + [
        Task(step.inputs, step.output, lambda rows: None) for step in VOTING.steps
    ]
    makers = {task.makes: number for number, task in enumerate(todo)}
    places = place(todo)
    assert len({spot.branch for spot in places}) == branches.MOST_BRANCHES
    for number, (task, spot) in enumerate(zip(todo, places, strict=True)):
        for maker in (makers[value] for value in task.reads):
            assert maker < number
            assert places[maker].branch == spot.branch or maker in spot.after


class FakeStream:
    """A stand-in for a stream, which notes its work; an event is the number of works before it."""

    current: "FakeStream"

    def __init__(self) -> None:
        self.work: list[object] = []

    def record_event(self) -> tuple["FakeStream", int]:
        return self, len(self.work)

    def wait_event(self, event: tuple["FakeStream", int]) -> None:
        self.work.append(event)

    def before(self, length: int) -> set[object]:
        """Return the tasks that are done once the first `length` pieces of this stream's work are."""
        done: set[object] = set()
        for piece in self.work[:length]:
            done |= piece[0].before(piece[1]) if isinstance(piece, tuple) else {piece}
        return done


@pytest.mark.parametrize("rows", [1, branches.MOST_ROWS, branches.MOST_ROWS + 1])
def test_streams_wait_for_each_other(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's inputs are made when it begins; all is done when the first stream's work is."""
    done_before: dict[str, set[object]] = {}

    @contextlib.contextmanager
    def entered(stream: FakeStream) -> Iterator[None]:
        FakeStream.current = stream
        yield

    def noted(value: str) -> None:
        stream = FakeStream.current
        done_before[value] = stream.before(len(stream.work))
        stream.work.append(value)

    monkeypatch.setattr(torch.cuda, "stream", entered)
    values = {"X": (), **{step.output: step.inputs for step in VOTING.steps}, "read by none": ("scaled",)}
    todo = [Task(reads, value, lambda rows, value=value: noted(value)) for value, reads in values.items()]
    streams = [FakeStream() for _ in range(branches.MOST_BRANCHES)]
    launched = branches.Branches(todo, streams)
    launched.launch(rows)
    assert all(done_before[task.makes].issuperset(task.reads) for task in todo)
    assert streams[0].before(len(streams[0].work)) == {task.makes for task in todo}
    assert sum(bool(stream.work) for stream in streams) == (branches.MOST_BRANCHES if rows <= branches.MOST_ROWS else 1)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True], ids=["launched", "captured"])
@pytest.mark.parametrize("outputs", [("y",), ("y", "first", "scaled"), ("first",)])
def test_side_by_side_gives_the_same_bits(
    outputs: tuple[str, ...], captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).standard_normal((3000, 5)).astype(np.float32)
    beside = Runner(VOTING, engine="triton", max_rows=len(X))
    monkeypatch.setattr(branches, "MOST_BRANCHES", 1)
    alone = Runner(VOTING, engine="triton", max_rows=len(X))
    expected = alone.predict(X, outputs)
    if captured:
        beside.warm_up([outputs])
    for _ in range(20):
        for count in (1, 16, 33, 1000, 2048, 3000):
            for name, y in beside.predict(X[:count], outputs).items():
                assert y.tobytes() == expected[name][:count].tobytes()
    torch.cuda.synchronize()
