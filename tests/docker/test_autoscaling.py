"""The rule of scaling.yaml under load that is steady, and that grows in a step: computed by autoscaling.py."""

from __future__ import annotations

import re

import pytest

from tests.docker.autoscaling import SCALING, Rule, Trigger, deployed, flaps, follows_s, rate_at, simulate, waiting
from triton_regressors.deploy.sizing import SHARE

LOADS = [50.0 * step for step in range(1, 65)]
"""Requests per second of all clients, from much less than one replica's rate to the rate of five."""
LIMIT = rate_at(0.83 / SHARE)
"""The rate at the latency limit of the comparison that gave a threshold of 0.83 waiting requests."""
QUEUE_ALONE = Rule([Trigger("waited_s", window_s=60, threshold=0.83)])
README = SCALING.parents[3] / "README.md"


def test_the_curve_is_the_one_that_was_measured() -> None:
    assert [waiting(rate) for rate in (150, 300, 600, 900)] == pytest.approx([0.03, 0.09, 0.28, 2.3])
    assert waiting(rate_at(1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("replicas", [1, 8])
def test_at_no_steady_load_replicas_come_and_go(replicas: int) -> None:
    rule = deployed(LIMIT, SHARE)
    assert [load for load in LOADS if flaps(rule, load, replicas)] == []
    assert [load for load in LOADS if flaps(rule, load, replicas, seed=29)] == []  # requests arrive at random


def test_with_the_queue_alone_they_do() -> None:
    """At 900 requests per second 3 replicas are too many by this rule, and 1 is too few."""
    assert {each.wanted for each in simulate(QUEUE_ALONE, lambda _: 900.0, seconds=7200) if each.s > 3600} >= {1, 3}
    assert sum(flaps(QUEUE_ALONE, load, replicas=1) for load in LOADS) > len(LOADS) / 2


def test_no_replica_gets_more_than_the_limit_at_a_steady_load() -> None:
    """A load that stays within the autoscaler's tolerance is answered with p99 within its limit, too."""
    rule = deployed(LIMIT, SHARE)
    for load in LOADS:
        last = simulate(rule, lambda _, load=load: load, seconds=3600)[-1]  # type: ignore[misc]
        assert load / last.ready <= LIMIT
        assert last.waiting <= waiting(LIMIT)


def test_the_documentation_has_the_times_to_follow_a_step() -> None:
    text = README.read_text()
    (head,) = re.findall(r"(?m)^\| requests/s \|(.*)\|$", text)
    starts = [int(number) for number in re.findall(r"(\d+) s", head)]
    rows = re.findall(r"(?m)^\| (\d[\d,]*) → (\d[\d,]*) \|(.*)\|$", text)
    assert len(starts) * len(rows) >= 9
    rule = deployed(LIMIT, SHARE)
    for before, after, cells in rows:
        loads = [float(number.replace(",", "")) for number in (before, after)]
        assert [int(cell) for cell in re.findall(r"\d+", cells)] == [follows_s(rule, *loads, start) for start in starts]
