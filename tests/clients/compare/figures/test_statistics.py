import dataclasses
import itertools
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_regressors.clients.compare.figures.measurement import summarise
from triton_regressors.clients.compare.figures.statistics import (
    Latencies,
    ServerCounters,
    ServerFigures,
    Window,
    stable,
)
from triton_regressors.clients.compare.load.generator import Load, merge
from triton_regressors.clients.compare.load.jobs import NO_ANSWER, OK, Records, poisson_arrivals

seconds = st.lists(st.floats(1e-6, 100), min_size=1, max_size=200)


@given(st.lists(seconds, min_size=1, max_size=4))
def test_percentiles_are_over_the_merged_latencies(workers: list[list[float]]) -> None:
    merged = merge([records(start=[0.0] * len(one), end=one) for one in workers])
    found = Latencies.of(merged.end_s - merged.start_s)
    everything = np.sort(np.concatenate([np.array(one) for one in workers])) * 1e3
    assert found.p50_ms == pytest.approx(np.percentile(everything, 50))
    assert found.p90_ms == pytest.approx(np.percentile(everything, 90))
    assert found.p95_ms == pytest.approx(np.percentile(everything, 95))
    assert found.p99_ms == pytest.approx(np.percentile(everything, 99))
    assert found.max_ms == pytest.approx(everything[-1])
    assert found.mean_ms == pytest.approx(everything.mean())
    assert found.p50_ms <= found.p90_ms <= found.p95_ms <= found.p99_ms <= found.max_ms


def test_percentiles_of_nothing_are_nan() -> None:
    assert all(np.isnan(value) for value in dataclasses.astuple(Latencies.of(np.array([]))))


def records(
    start: list[float], end: list[float], code: list[int] | None = None, messages: tuple[str, ...] = ()
) -> Records:
    codes = array("h", code if code is not None else [OK] * len(start))
    return Records(0, array("d", start).tobytes(), array("d", end).tobytes(), codes.tobytes(), messages, (), 0.5)


def test_equal_messages_of_different_workers_are_one() -> None:
    merged = merge(
        [
            records([0, 0, 0], [1, 1, 1], [1, 2, NO_ANSWER], ("a", "b")),
            records([0, 0, 0], [1, 1, 1], [1, OK, 1], ("b",)),
        ]
    )
    assert merged.errors(np.ones(6, bool)) == {"a": 1, "b": 3, "not answered in time": 1}
    assert merged.ok.sum() == 1


def test_closed_loop_counts_what_ended_in_the_time() -> None:
    seen = merge([records([0.5, 1.0, 1.5, 1.9, 1.2], [0.9, 1.4, 1.8, 2.1, 1.3], [OK, OK, OK, OK, 1], ("bad",))])
    latencies, answered, errors = summarise(seen, 1.0, 2.0, open_loop=False)
    assert sorted(latencies) == pytest.approx([0.3, 0.4])
    assert (answered, errors) == (2, {"bad": 1})


def test_open_loop_counts_what_was_due_however_late_it_came() -> None:
    """One that was due but answered after the time, and one never answered, are both in the latencies."""
    seen = merge([records([0.5, 1.0, 1.5, 1.9], [1.5, 1.4, 9.0, 5.0], [OK, OK, OK, NO_ANSWER])])
    latencies, answered, errors = summarise(seen, 1.0, 2.0, open_loop=True)
    assert sorted(latencies) == pytest.approx([0.4, 3.1, 7.5])
    assert (answered, errors) == (2, {"not answered in time": 1}), "throughput is what was answered in the time"


def window(rate: float, p50: float = 1.0, p99: float = 2.0) -> Window:
    return Window(rate, p50, p99, 0)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([window(100)] * 2, False),
        ([window(100), window(95), window(105)], True),
        ([window(10), window(100), window(95), window(105)], True),
        ([window(100), window(100), window(130)], False),
        ([window(100), window(100, p50=1.5), window(100)], False),
        ([window(100), window(100, p99=2.4), window(100)], True),
        ([window(100), window(100, p99=4.0), window(100)], False),
        ([window(0, float("nan"), float("nan"))] * 3, False),
    ],
)
def test_stability(windows: list[Window], expected: bool) -> None:
    assert stable(windows, 0.1) is expected


def answer(requests: int, queue_ns: int, batches: dict[int, int]) -> dict[str, object]:
    return {
        "model_stats": [
            {
                "name": "m",
                "version": "1",
                "inference_stats": {
                    "success": {"count": requests, "ns": 5},
                    "queue": {"count": requests, "ns": queue_ns},
                    "compute_input": {"count": requests, "ns": 2 * queue_ns},
                    "compute_infer": {"count": requests, "ns": 3 * queue_ns},
                    "compute_output": {},
                },
                "batch_stats": [{"batch_size": size, "compute_infer": {"count": n}} for size, n in batches.items()],
            }
        ]
    }


def test_server_figures_are_differences() -> None:
    before = ServerCounters.of(answer(10, 1_000_000, {1: 4, 2: 3}))
    after = ServerCounters.of(answer(30, 41_000_000, {1: 4, 2: 5, 8: 2}))
    found = ServerFigures.between(before, after)
    assert found.queue_ms == pytest.approx(2.0)
    assert (found.compute_input_ms, found.compute_infer_ms, found.compute_output_ms) == pytest.approx((4.0, 6.0, 0.0))
    assert found.compute_ms == pytest.approx(10.0)
    assert found.executions_per_batch_size == {2: 2, 8: 2}
    assert found.mean_batch_size == pytest.approx(5.0)


def test_server_figures_add_versions_up_and_survive_silence() -> None:
    twice = {"model_stats": answer(1, 1, {1: 1})["model_stats"] * 2}  # type: ignore[operator]
    assert ServerCounters.of(twice).executions == {1: 2}
    silent = ServerFigures.between(ServerCounters.of({}), ServerCounters.of({}))
    assert np.isnan(silent.queue_ms)
    assert not silent.executions_per_batch_size


def arrivals(rate: float, seed: int | tuple[int, ...], count: int) -> np.ndarray:
    return np.array(list(itertools.islice(poisson_arrivals(rate, seed), count)))


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    times = arrivals(200.0, 7, 40_000)
    gaps = np.diff(times, prepend=0)
    assert (gaps > 0).all()
    assert 1 / gaps.mean() == pytest.approx(200, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03), "exponential gaps"
    counts = np.bincount(times.astype(int))[:-1]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.25), "as many as a Poisson variable scatters"


def test_arrivals_repeat_for_a_seed_and_differ_between_workers() -> None:
    assert (arrivals(10, (1, 0), 2000) == arrivals(10, (1, 0), 2000)).all()
    assert not np.isclose(arrivals(10, (1, 0), 50), arrivals(10, (1, 1), 50)).any()


@pytest.mark.parametrize(
    ("load", "limit", "expected"),
    [
        (Load("grpc", 1, concurrency=1), None, 1),
        (Load("grpc", 1, concurrency=3), 8, 3),
        (Load("grpc", 1, concurrency=1000), 1, 4),
        (Load("grpc", 1, rate=10.0), 2, 2),
    ],
)
def test_processes_for_a_load(load: Load, limit: int | None, expected: int) -> None:
    assert load.processes(limit) == expected
