"""The rows of a fleet's models: exact counts, and series of the busiest models alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.serving.test_observer import answers
from tests.metrics import Server
from triton_regressors.kernels.format.inputs import Inputs, TextInput
from triton_regressors.kernels.serving import observer as observers
from triton_regressors.kernels.serving.counting import Ring
from triton_regressors.kernels.serving.member_counts import AHEAD, SHOWN, MemberCounts
from triton_regressors.kernels.serving.metrics import Subject
from triton_regressors.kernels.serving.observer import SAMPLED, start


@pytest.fixture(name="server")
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server's metrics; tests, and no thread, say when rows are counted and handed over."""
    monkeypatch.setattr(observers, "PERIOD_S", 3600.0)
    monkeypatch.setattr(Ring, "filling", lambda ring: False)
    return Server()


def told(server: Server, name: str) -> dict[str, float]:
    """Return the numbers of a metric that the server shows at present, by their labels."""
    shown = {at: number for at, number in server.numbers.items() if at not in server.ended}
    return {label: number for (family, label), number in shown.items() if family == name}


class Observed:
    """An observer of a fleet with `members` models in two classes; the first of them has three."""

    def __init__(self, server: Server, members: int, request: pytest.FixtureRequest, **options: Any) -> None:
        self.ids = tuple(f"shop-{number}" for number in range(members))
        text = TextInput("shop", (1,), (self.ids,), (True,))
        inputs = Inputs(2, (0,), (text,), numbered="shop_number")
        self.members = MemberCounts(inputs.models, [("Ridge", 3), ("Lasso", members - 3)])
        subject = Subject("demand", "1", inputs, ("x", "shop"), (), {"y": 1}, None)
        self.observer: Any = start(subject, SAMPLED, server.utils(), self.staged, members=self.members, **options)
        self.rows = np.empty((0, 2))
        request.addfinalizer(self.observer.close)

    def staged(self, count: int) -> np.ndarray:
        assert count == len(self.rows)
        return self.rows

    def ask(self, *requests: list[int], kept: bool = True) -> None:
        """Answer requests of rows of these models as one batch; without `kept` it is refused."""
        parts = [np.array([[0.5, number] for number in numbers], np.float32) for numbers in requests]
        self.rows = np.concatenate(parts)
        self.observer.look(parts, len(self.rows))
        if kept:
            self.observer.keep(len(self.rows), answers(np.zeros(len(self.rows))))


def test_every_row_of_every_batch_counts_for_its_model_and_its_class(
    server: Server, request: pytest.FixtureRequest
) -> None:
    fleet, drawn = Observed(server, 8, request), np.random.default_rng(0).integers(0, 8, 5000).tolist()
    assert told(server, "id_rows_total") == dict.fromkeys(fleet.ids, 0)
    fleet.ask([7])
    fleet.ask([7], [0, 1, 1], [5])
    fleet.ask(drawn)
    fleet.ask([-1, 2, 3], kept=False)
    fleet.ask([-1], kept=False)
    fleet.ask([2], [2])
    fleet.observer.hand_over()
    expected = np.bincount([7, 7, 0, 1, 1, 5, *drawn, 2, 2], minlength=8)
    assert told(server, "id_rows_total") == dict(zip(fleet.ids, expected.tolist(), strict=True))
    classes = {"0,Ridge": expected[:3].sum(), "1,Lasso": expected[3:].sum()}
    assert told(server, "class_rows_total") == classes
    assert told(server, "rows_total") == {"": expected.sum()}
    before = dict(server.numbers)
    fleet.observer.hand_over()
    assert server.numbers == before


def test_warm_ups_and_modes_that_do_not_count(server: Server, request: pytest.FixtureRequest) -> None:
    fleet = Observed(server, 8, request, warm_ups=[1])
    fleet.observer.look([np.zeros((1, 2), np.float32)], 1)
    fleet.observer.keep(1, answers(np.zeros(1)))
    fleet.ask([3])
    fleet.observer.hand_over()
    assert told(server, "id_rows_total") == {name: float(name == "shop-3") for name in fleet.ids}


def test_the_busiest_models_alone_have_series(server: Server, request: pytest.FixtureRequest) -> None:
    """A model takes the place of another when it is much busier; its whole count is told then."""
    fleet = Observed(server, 1000, request)
    assert told(server, "id_rows_total") == {}
    assert [*told(server, "class_rows_total").values()] == [0, 0]
    fleet.ask([900, 901, 901])
    fleet.observer.hand_over()
    assert told(server, "id_rows_total") == {"shop-900": 1, "shop-901": 2}
    fleet.ask([*range(2 * SHOWN)] * 4)
    fleet.observer.hand_over()
    shown = told(server, "id_rows_total")
    assert len(shown) == SHOWN
    assert set(shown.values()) == {4}  # those that were busier for a moment are not
    fleet.ask([*range(SHOWN, 2 * SHOWN)] * int(4 * (AHEAD - 1)))
    fleet.observer.hand_over()
    assert told(server, "id_rows_total").keys() == shown.keys()  # not much busier
    later = [number for number in range(2 * SHOWN) if f"shop-{number}" not in shown][:10]
    fleet.ask(later * 8)
    fleet.observer.hand_over()
    now = told(server, "id_rows_total")
    assert len(now) == SHOWN
    assert {f"shop-{number}" for number in later} <= now.keys()
    for name, number in now.items():
        assert number == fleet.members.rows[int(name.removeprefix("shop-"))]
    assert len(now.keys() & shown.keys()) == SHOWN - 10
    assert sum(told(server, "class_rows_total").values()) == told(server, "rows_total")[""]
    fleet.observer.close()
    assert server.ended == set(server.numbers)
    assert server.orphans == []


def test_equally_busy_models_do_not_change_places_for_ever(server: Server, request: pytest.FixtureRequest) -> None:
    fleet, changes = Observed(server, 2000, request), list[int]()
    random, seen = np.random.default_rng(0), set[str]()
    for _ in range(60):
        fleet.ask(random.integers(0, 2000, 20_000).tolist())
        fleet.observer.hand_over()
        shown = set(told(server, "id_rows_total"))
        changes.append(len(shown - seen))
        seen |= shown
    assert len(shown) == SHOWN
    assert changes[-20:] == [0] * 20


def test_ids_that_do_not_exist_leave_nothing(server: Server, request: pytest.FixtureRequest) -> None:
    fleet = Observed(server, 1000, request)
    for _ in range(100):
        fleet.ask([-1, -1], kept=False)
    fleet.observer.hand_over()
    assert told(server, "id_rows_total") == {}
    assert not fleet.members.rows.any()
