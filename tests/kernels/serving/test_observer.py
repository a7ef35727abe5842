"""An observer's counts, and its updates of a server's metrics; its failures do not reach requests."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.metrics import Server
from tests.waiting import wait_for
from triton_regressors.kernels.engine.kernel_executor import Answers
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile
from triton_regressors.kernels.serving import observer as observers
from triton_regressors.kernels.serving.counting import RING_ROWS, Ring
from triton_regressors.kernels.serving.metrics import MOST_COLUMNS, Subject
from triton_regressors.kernels.serving.observer import MOST_ROWS, OFF, ON, SAMPLED, Observer, Unobserved, start

FEATURES = 3


def profile(features: int = FEATURES) -> RowProfile:
    rng = np.random.default_rng(0)
    return RowProfile.of(rng.standard_normal((500, features)), {"y": rng.standard_normal((500, 1))}, {})


def answers(y: np.ndarray) -> Answers:
    return Answers.of({"y": torch.from_numpy(y.astype(np.float32).reshape(-1, 1))})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server's metrics; tests, and no thread, say when rows are counted and handed over."""
    monkeypatch.setattr(observers, "PERIOD_S", 3600.0)
    monkeypatch.setattr(Ring, "filling", lambda ring: False)
    return Server()


@pytest.fixture
def observe(server: Server, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """observe(mode, features, warm_ups) returns an observer of a model with a profile, whose batches are `staged`."""

    def make(mode: str, features: int = FEATURES, warm_ups: tuple[int, ...] = (), **changes: Any) -> Any:
        inputs = Inputs.plain(features)
        subject = Subject("demand", "3", inputs, (), (), {"y": 1}, changes.get("profile", profile(features)))
        made = start(subject, mode, server.utils(), changes.get("staged", lambda rows: None), warm_ups)
        request.addfinalizer(made.close)
        return made

    return make


def batch(rows: int, seed: int = 1, features: int = FEATURES) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, features)).astype(np.float32) * 2


def told(server: Server, name: str) -> dict[str, float]:
    return {label: number for (family, label), number in server.numbers.items() if family == name}


@pytest.mark.parametrize("together", [True, False], ids=["staged", "gathered"])
def test_every_row_is_counted_where_that_is_asked_for(
    server: Server, observe: Callable[..., Any], together: bool
) -> None:
    sizes = (1, 7, RING_ROWS + 50, 100, 1)  # the second but one does not fit into the ring any more
    rows = [batch(count, seed) for seed, count in enumerate(sizes)]
    staged = np.concatenate(rows[3:])
    observer = observe(ON, staged=lambda count: staged if together else None)
    given, y = profile(), np.random.default_rng(3).standard_normal(sum(sizes)) * 2
    for parts in ([rows[0]], [rows[1]], [rows[2]], rows[3:]):
        total = sum(map(len, parts))
        observer.look(parts, total)
        observer.keep(total, answers(y[:total]))
        assert observer._rest == []  # nothing of the server's memory is kept
    observer.look([rows[2]], len(rows[2]))
    observer.refuse("failed", len(rows[2]))
    assert observer._rest == []
    observer.hand_over()
    X = np.concatenate(rows)
    assert told(server, "rows_total") == told(server, "seen_rows_total") == {"": len(X)}
    below, above = (given.low > X).sum(axis=0), (given.high < X).sum(axis=0)
    assert [*told(server, "below_range_total").values()] == below.tolist()
    assert [*told(server, "above_range_total").values()] == above.tolist()
    assert sum(told(server, "answers_total").values()) == len(X)
    edges = given.answers["y"].edges
    counted = sum(
        np.bincount(np.searchsorted(edges, y[:n].astype(np.float32)), minlength=10) for n in (*sizes[:3], 101)
    )
    assert [*told(server, "answers_total").values()] == counted.tolist()
    assert [*told(server, "expected_share").values()] == given.answers["y"].shares.tolist()
    before = dict(server.numbers)
    observer.hand_over()
    assert server.numbers == before


def test_of_a_large_batch_evenly_spaced_rows_are_looked_at(server: Server, observe: Callable[..., Any]) -> None:
    observer, first = observe(SAMPLED, staged=lambda rows: None), []
    X = np.repeat(np.arange(1000, dtype=np.float32)[:, None], FEATURES, axis=1)
    for parts in ([X], [X[:300], X[300:310], X[310:]]):
        before = observer._ring._written
        observer.look(parts, 1000)
        observer.keep(1000, answers(np.zeros(1000)))
        found = observer._ring._rows[before : observer._ring._written, 0]
        assert len(found) in (MOST_ROWS - 1, MOST_ROWS)
        assert set(np.diff(found)) == {-(-1000 // MOST_ROWS)}
        first.append(found[0])
    assert first == [0.0, 1.0]
    observer.hand_over()
    assert told(server, "rows_total") == {"": 2000}
    step = -(-1000 // MOST_ROWS)
    looked_at = told(server, "seen_rows_total")[""] / step
    assert 2 * MOST_ROWS - 4 < looked_at <= 2 * MOST_ROWS
    assert told(server, "seen_squares_total") == {"": looked_at * step**2}
    assert sum(told(server, "answers_total").values()) == looked_at * step
    assert told(server, "answer_squares_total") == {"y": looked_at * step**2}


def test_rows_count_for_those_that_they_stand_for(server: Server, observe: Callable[..., Any]) -> None:
    """A thousand requests of one usual row stand beside ten batches of 4,096 shifted rows, 97.6 % of all rows."""
    observer = observe(SAMPLED)
    given = profile()
    usual = np.zeros((1, FEATURES), np.float32)
    shifted = np.full((4096, FEATURES), given.high.max() + 1, np.float32)
    for number in range(1010):
        rows = shifted if number % 101 == 50 else usual
        observer.look([rows], len(rows))
        observer.keep(len(rows), answers(rows[:, 0]))
    observer.hand_over()
    total = 1000 + 10 * 4096
    assert told(server, "rows_total") == {"": total}
    seen = told(server, "seen_rows_total")[""]
    assert seen == total  # 128 divides 4,096
    assert told(server, "above_range_total") == dict.fromkeys("012", 40960)
    assert told(server, "seen_squares_total") == {"": 1000 + 320 * 128**2}
    assert told(server, "answers_total")["y,9"] == 40960


@pytest.mark.parametrize("size", [33, 63, 100, 1000, 4097])
def test_weights_add_up_to_the_rows_and_only_grow(server: Server, observe: Callable[..., Any], size: int) -> None:
    """There are as many batches as first rows, so that each row is observed once."""
    observer, before = observe(SAMPLED), 0.0
    X, step = batch(size), -(-size // MOST_ROWS)
    for _ in range(step):
        observer.look([X], size)
        observer.keep(size, answers(np.zeros(size)))
        observer.hand_over()
        seen = told(server, "seen_rows_total")[""]
        assert seen > before
        before = seen
    assert before == size * step
    assert [*told(server, "above_range_total").values()] == (step * (profile().high < X).sum(axis=0)).tolist()


def test_how_many_rows_the_profile_has_is_told(server: Server, observe: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    few = RowProfile.of(rng.standard_normal((5, FEATURES)), {"y": np.array([[1.0], [2.0], [np.nan]])}, {})
    observe(SAMPLED, profile=few)
    assert told(server, "expected_out_of_range_share") == {"": 2 / 6}
    assert told(server, "profile_answers") == {"y": 2}


def test_where_the_ring_is_full_rows_are_counted_and_not_looked_at(server: Server, observe: Callable[..., Any]) -> None:
    observer = observe(SAMPLED)
    for _ in range(RING_ROWS + 500):
        observer.look([batch(1)], 1)
        observer.keep(1, answers(np.zeros(1)))
    observer.hand_over()
    assert told(server, "rows_total") == {"": RING_ROWS + 500}
    assert told(server, "seen_rows_total") == {"": RING_ROWS}


def test_rows_in_a_gpus_memory_are_looked_at_only_where_all_are(server: Server, observe: Callable[..., Any]) -> None:
    part = torch.from_numpy(batch(90))  # any tensor of torch's is taken for one
    for mode, seen in ((SAMPLED, 0), (ON, 181)):
        server.numbers.clear()
        observer = observe(mode)
        for parts in ([part], [part[:1]], [part[:50], part[50:]]):
            total = sum(map(len, parts))
            observer.look(parts, total)
            observer.keep(total, answers(np.zeros(total)))
        observer.hand_over()
        assert told(server, "rows_total") == {"": 181}
        assert told(server, "seen_rows_total") == {"": seen}


def test_the_servers_own_warm_up_is_not_counted(server: Server, observe: Callable[..., Any]) -> None:
    zeros = np.zeros((8, FEATURES), np.float32)
    for sent, counted in (((1, 8, 1), 1), ((1, 1), 1), ((8,), 8)):
        server.numbers.clear()
        observer = observe(SAMPLED, warm_ups=(1, 8))
        for rows in sent:
            observer.look([zeros[:rows]], rows)
            observer.keep(rows, answers(np.zeros(rows)))
        observer.hand_over()
        assert told(server, "rows_total") == told(server, "seen_rows_total") == {"": counted}
    observer = observe(SAMPLED, warm_ups=(1, 8))
    observer.look([batch(1)], 1)
    observer.keep(1, answers(np.zeros(1)))
    assert observer.counts.rows == 1


def test_series_of_many_columns_begin_when_there_is_something_to_count(
    server: Server, observe: Callable[..., Any]
) -> None:
    width = MOST_COLUMNS + 1
    observer = observe(ON, features=width)
    assert told(server, "above_range_total") == {}
    X = np.zeros((2, width), np.float32)
    X[:, 100] = 1e6
    observer.look([X], 2)
    observer.keep(2, answers(np.zeros(2)))
    observer.hand_over()
    assert told(server, "above_range_total") == {"100": 2}


def test_without_a_profile_rows_and_refusals_are_counted(server: Server, observe: Callable[..., Any]) -> None:
    observer = observe(SAMPLED, profile=None)
    observer.look([batch(4)], 4)
    observer.keep(4, answers(np.zeros(4)))
    observer.refuse("not_finite", 7)
    observer.refuse("empty", 0)
    observer.hand_over()
    names = {"rows_total", "refused_rows_total", "seen_rows_total", "seen_squares_total"}
    assert {name for name, _ in server.numbers} == names
    refused = {reason: number for reason, number in told(server, "refused_rows_total").items() if number}
    assert refused == {"not_finite": 7, "empty": 1}


def test_refusals_are_logged_now_and_then_with_the_last_ones_trace(
    server: Server, observe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    observer, old = observe(SAMPLED, profile=None), types.SimpleNamespace()
    context = '{"traceparent": "00-1-2-01"}\n'
    traced = types.SimpleNamespace(trace=lambda: types.SimpleNamespace(get_context=lambda: context))
    observer.hand_over()
    assert server.log == []
    observer.refuse("not_finite", 1000, traced)
    observer.hand_over()
    observer.refuse("empty", 0, traced)
    observer.refuse("missing", 2, old)
    observer.hand_over()  # too soon
    monkeypatch.setattr(observers, "LOG_PERIOD_S", 0.0)
    observer._next_log = 0.0
    observer.hand_over()
    observer.hand_over()
    assert server.log == [
        f"demand version 3 refused 1,000 rows: 1,000 not_finite; the last one's trace is {context!r}",
        "demand version 3 refused 3 rows: 2 missing, 1 empty",
    ]


def test_the_last_counts_are_handed_over_at_the_end(server: Server, observe: Callable[..., Any]) -> None:
    observer = observe(SAMPLED)
    observer.look([batch(4)], 4)
    observer.keep(4, answers(np.zeros(4)))
    observer.close()
    assert told(server, "seen_rows_total") == {"": 4}
    assert not observer._thread.is_alive()
    assert server.ended == set(server.numbers)
    assert server.orphans == []


def test_the_thread_hands_counts_over_by_itself(monkeypatch: pytest.MonkeyPatch, observe: Callable[..., Any]) -> None:
    monkeypatch.setattr(observers, "PERIOD_S", 0.001)
    handed, observer = [], observe(SAMPLED)
    observer._metrics = types.SimpleNamespace(
        hand_over=lambda: handed.append(setattr(observer, "_stopping", True)), close=lambda: None
    )
    observer._thread.join(60)
    assert handed


def test_the_thread_counts_sooner_where_a_ring_fills(
    monkeypatch: pytest.MonkeyPatch, observe: Callable[..., Any]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(observers, "PERIOD_S", 3600.0)
    observer = observe(ON)
    X = batch(RING_ROWS // 2 + 1)
    observer.look([X], len(X))  # nothing is kept, so it is not yet half full
    observer.keep(len(X), answers(np.zeros(len(X))))
    observer.look([X[:1]], 1)
    observer.keep(1, answers(np.zeros(1)))
    wait_for(lambda: observer.counts.columns.rows >= len(X))


def test_a_ring_that_fills_all_the_time_delays_nothing(
    monkeypatch: pytest.MonkeyPatch, server: Server, observe: Callable[..., Any]
) -> None:
    monkeypatch.setattr(Ring, "filling", lambda ring: True)
    monkeypatch.setattr(observers, "PERIOD_S", 0.05)
    observer = observe(ON)

    def told_while_busy() -> bool:
        observer.look([batch(1)], 1)
        observer.keep(1, answers(np.zeros(1)))
        observer._wake.set()
        return told(server, "rows_total")[""] > 0

    wait_for(told_while_busy)


def test_a_server_that_fails_is_logged_once_and_fails_no_request(
    server: Server, observe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "PERIOD_S", 0.001)
    server_error = RuntimeError("the queue is gone")
    observer = observe(SAMPLED)
    server.broken = server_error
    for rows in (3, 3):
        observer.look([batch(rows)], rows)
        observer.keep(rows, answers(np.zeros(rows)))
    observer._thread.join(60)
    assert not observer._thread.is_alive()
    observer.look([None], 1)  # no array at all
    observer.keep(1, answers(np.zeros(1)))
    observer.close()
    assert server.log == ["demand version 3 is no longer observed in full: RuntimeError: the queue is gone"]
    assert observer.counts.rows == 7


def test_a_server_without_metrics_serves_on(server: Server, observe: Callable[..., Any]) -> None:
    server.broken = RuntimeError("metrics not supported")
    assert type(observe(SAMPLED)) is Unobserved
    assert server.log == ["demand version 3 is not observed: RuntimeError: metrics not supported"]
    subject = Subject("demand", "3", Inputs.plain(1), (), (), {"y": 1}, None)
    old: Any = types.SimpleNamespace(Logger=None)
    assert type(start(subject, ON, old, lambda rows: None)) is Unobserved
    nothing = start(subject, OFF, server.utils(), lambda rows: None)
    assert not isinstance(nothing, Observer)
    nothing.look([batch(1)], 1)
    nothing.keep(1, answers(np.zeros(1)))
    nothing.refuse("failed", 1)
    nothing.close()
