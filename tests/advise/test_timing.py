import time
from types import SimpleNamespace

import numpy as np
import pytest

from triton_regressors import stopwatch


@pytest.fixture(autouse=True)
def _briefly(monkeypatch):
    monkeypatch.setattr(stopwatch, "ENOUGH_S", 0.0)


def test_calls_are_timed_on_rows_of_each_size():
    asked = []

    def sleep(rows):
        asked.append(len(rows))
        time.sleep(len(rows) * 1e-4)

    found = stopwatch.time_calls(sleep, lambda count: np.zeros((count, 1)), (1, 10, 50))
    assert list(found) == [1, 10, 50]
    assert asked.count(50) == 1 + stopwatch.CALLS  # the first is not timed
    assert found[50] >= 5000


def test_a_size_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(stopwatch, "LONGEST_S", 0.05)
    elapsed = [0.0]

    def call(rows):
        elapsed[0] += rows * 1e-3

    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: elapsed[0]))
    found = stopwatch.time_calls(call, lambda count: count, (1, 10, 10_000, 100_000))
    assert found == {1: pytest.approx(1e3), 10: pytest.approx(1e4)}


def test_few_rows_are_repeated():
    rows = stopwatch.repeated(np.array([[1.0, 2.0], [3.0, 4.0]]), 5)
    assert rows.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4], [1, 2]]
    assert rows.flags.c_contiguous
