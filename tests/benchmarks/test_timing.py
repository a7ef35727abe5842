"""The arithmetic and the order of the measurements; no time is asserted."""

import math
import time

import numpy as np
import pytest
import torch

from benchmarks.checking import (
    WrongAnswerError,
    demand,
    error_of_arrays,
    error_of_tensors,
    poison,
)
from benchmarks.timing import Contender, Effort, Timing, input_count, rotated, take_turns, time_block

BRIEF = Effort(rounds=3, block_s=0.0, pause_s=0.0, warm_up_s=0.0)


def test_medians_are_over_all_samples_and_spread_over_blocks():
    timing = Timing.of([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [4.0, 5.0, 6.0]], "host")
    assert timing.median_us == 5.0
    assert timing.spread == (20.0 - 2.0) / 5.0
    assert timing.samples == 9
    assert timing.p10_us < timing.median_us < timing.p90_us


def test_contenders_take_turns_in_another_order_each_round():
    calls = []

    def block(name, duration_s):
        calls.append(name)
        return [float(len(calls))]

    found = take_turns(["a", "b", "c"], block, BRIEF)
    assert calls[:3] == ["a", "b", "c"]  # warm-up
    rounds = [calls[3:6], calls[6:9], calls[9:12]]
    assert all(sorted(round_) == ["a", "b", "c"] for round_ in rounds)
    assert len({round_[0] for round_ in rounds}) > 1
    assert {timing.samples for timing in found.values()} == {3}


def test_a_slow_contender_is_left_out_once_it_had_its_rounds():
    effort = Effort(rounds=6, least_rounds=2, contender_s=-1.0, pause_s=0.0, block_s=0.0, warm_up_s=0.0)
    found = take_turns(["a"], lambda name, duration_s: [1.0], effort)
    assert found["a"].samples == 2


def test_contenders_need_names_of_their_own():
    with pytest.raises(ValueError, match="names of their own"):
        take_turns(["a", "a"], lambda name, duration_s: [1.0], BRIEF)


def test_calls_rotate_among_inputs_and_begin_untimed():
    seen = []
    times = time_block(Contender("a", seen.append), inputs=3, duration_s=0.0)
    assert seen == [0, 1]
    assert len(times) == 1
    seen.clear()
    time_block(Contender("a", seen.append), inputs=3, duration_s=0.002)
    assert seen[:6] == [0, 1, 2, 0, 1, 2]


def test_a_stop_of_the_machine_is_not_a_block_s_only_call(monkeypatch):
    now, calls = [0], []

    def call(number):
        calls.append(number)
        now[0] += 20_000_000 if len(calls) == 11 else 100_000

    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])
    assert time_block(Contender("a", call), inputs=1, duration_s=0.005) == [20_000.0, 100.0, 100.0]
    assert len(time_block(Contender("as long as a block", call), inputs=1, duration_s=0.0001)) == 1


def test_rotation_keeps_every_contender():
    assert [sorted(rotated(["a", "b", "c"], number)) for number in range(5)] == [["a", "b", "c"]] * 5


def test_small_inputs_rotate_more():
    assert input_count(4) == 64
    assert input_count(2**30) == 4
    assert input_count(2**22) == 16


def test_an_element_that_is_never_written_is_found():
    X = torch.randn(10, 3)
    answers = torch.empty(10)
    poison([answers])
    answers[:9] = X[:9].sum(1)
    error = error_of_tensors([answers], [X], lambda x: x.sum(1, keepdim=True), 3)
    assert math.isnan(error)
    with pytest.raises(WrongAnswerError, match="kernel is nan"):
        demand("kernel", error, 1.0)


def test_errors_are_in_standard_deviations_of_the_truth():
    X = torch.tensor([[0.0], [2.0]])  # answers spread by 1
    assert error_of_tensors([torch.tensor([0.0, 2.5])], [X], lambda x: x, 1) == pytest.approx(0.5)
    assert error_of_arrays(np.array([0.0, 2.5], dtype=np.float32), np.array([0.0, 2.0])) == pytest.approx(0.5)
    assert demand("right", 0.5, 0.5) == 0.5
