"""A model of how docker/kubernetes scales: Prometheus reads the pods, KEDA asks it, and the autoscaler decides.

The autoscaler's rule is that of Kubernetes' HorizontalPodAutoscaler for an external metric with an average value. For a
metric's sum m over r replicas and a threshold θ it proposes r where |m / (r θ) − 1| ≤ 0.1, and ⌈m / θ⌉ elsewhere. It
takes the largest proposal of all metrics, the largest of the last `stabilizationWindowSeconds` before it goes down, and
at most 4 more or twice as many replicas every 15 s. A new pod answers after its start time.

A replica is a measured curve: waiting requests by the rate of requests. Above its capacity requests pile up.
Time is counted in steps and read from no clock.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STEP_S, SCRAPE_S, SYNC_S = 5, 10, 15
TOLERANCE = 0.1
RATES, WAITING = (150.0, 300.0, 600.0, 900.0), (0.03, 0.09, 0.28, 2.3)
"""Measured requests per second at one replica, and the average number that wait then."""
CAPACITY = 1000.0
"""Requests per second that a replica answers at most."""
SCALING = Path(__file__).resolve().parents[2] / "docker/kubernetes/plain/overlays/autoscaled/scaling.yaml"
SIGNALS = {"nv_inference_request_success": "answered", "nv_inference_queue_duration_us": "waited_s"}


def waiting(rate: float) -> float:
    """Return the requests waiting at one replica, interpolated between measurements, in logarithms above the first."""
    if rate <= RATES[0]:
        return WAITING[0] * rate / RATES[0]
    place = min(sum(rate > each for each in RATES), len(RATES) - 1)
    low, high = math.log(WAITING[place - 1]), math.log(WAITING[place])
    share = (min(rate, CAPACITY) - RATES[place - 1]) / (RATES[place] - RATES[place - 1])
    return math.exp(low + share * (high - low))


def rate_at(waits: float) -> float:
    """Return the rate at which a number of requests waits at one replica: the inverse of `waiting`."""
    low, high = 0.0, CAPACITY
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waiting(middle) < waits else (low, middle)
    return low


@dataclass(frozen=True)
class Trigger:
    """A counter's sum over the replicas, its rate over a window, and the threshold of one replica."""

    signal: str
    window_s: int
    threshold: float


@dataclass(frozen=True)
class Rule:
    """The numbers that scaling.yaml holds."""

    triggers: Sequence[Trigger]
    least: int = 1
    most: int = 8
    up_s: int = 0
    down_s: int = 300


def rule_of(scaled: Mapping[str, Any], thresholds: Mapping[str, float]) -> Rule:
    """The rule of a ScaledObject, with other thresholds, by metric, in place of the example's."""
    spec, triggers = scaled["spec"], []
    for each in spec["triggers"]:
        (metric, number, unit) = re.findall(r"sum\(rate\((\w+)\{[^}]*\}\[(\d+)([ms])\]\)\)", each["metadata"]["query"])[
            0
        ]
        window_s = int(number) * {"m": 60, "s": 1}[unit]
        triggers.append(Trigger(SIGNALS[metric], window_s, thresholds[metric]))
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    windows = [behavior[way]["stabilizationWindowSeconds"] for way in ("scaleUp", "scaleDown")]
    return Rule(triggers, up_s=windows[0], down_s=windows[1])


def deployed(limit_rate: float, share: float) -> Rule:
    """The rule that `deploy` writes for this curve, where `limit_rate` is the most that keeps the latency limit."""
    return rule_of(
        yaml.safe_load(SCALING.read_text()),
        {
            "nv_inference_request_success": share * limit_rate,
            "nv_inference_queue_duration_us": share * waiting(limit_rate),
        },
    )


@dataclass(frozen=True)
class Moment:
    """The state at one time: wanted replicas, answering replicas, and requests that wait at each of the latter."""

    s: int
    wanted: int
    ready: int
    waiting: float


def simulate(
    rule: Rule,
    load: Callable[[int], float],
    *,
    seconds: int,
    start_s: int = 60,
    replicas: int = 1,
    seed: int | None = None,
) -> list[Moment]:
    """Return each step of `seconds` under `load` requests per second; with a seed they arrive at random (Poisson)."""
    chance = random.Random(seed)
    pods = [0] * replicas  # the time from which each answers
    totals = {"answered": 0.0, "waited_s": 0.0}
    scrapes: list[tuple[int, dict[str, float]]] = [(0, dict(totals))]
    proposals: list[tuple[int, int]] = [(0, replicas)]
    backlog, found = 0.0, []
    for now in range(STEP_S, seconds + 1, STEP_S):
        ready = sum(pod <= now for pod in pods)
        come = load(now) * STEP_S
        if seed is not None:
            come = max(chance.gauss(come, math.sqrt(come)), 0.0)
        answered = min(come + backlog, ready * CAPACITY * STEP_S)
        backlog += come - answered
        wait = ready * waiting(answered / STEP_S / ready) + backlog
        totals["answered"] += answered
        totals["waited_s"] += wait * STEP_S
        if now % SCRAPE_S == 0:
            scrapes.append((now, dict(totals)))
        if now % SYNC_S == 0:
            wanted = decide(rule, len(pods), scrapes, proposals, now)
            pods = sorted(pods)[:wanted] + [now + start_s] * (wanted - len(pods))
        found.append(Moment(now, len(pods), ready, wait / ready))
    return found


def decide(
    rule: Rule,
    current: int,
    scrapes: Sequence[tuple[int, dict[str, float]]],
    proposals: list[tuple[int, int]],
    now: int,
) -> int:
    """Return the number of replicas that the autoscaler wants, and record its proposal before stabilisation."""
    proposal = rule.least
    for trigger in rule.triggers:
        seen = [each for each in scrapes[-1 - trigger.window_s // SCRAPE_S :] if now - trigger.window_s <= each[0]]
        if len(seen) < 2:
            return current
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        value = (last[trigger.signal] - first[trigger.signal]) / (last_s - first_s)
        ratio = value / (trigger.threshold * current)
        within = abs(ratio - 1) <= TOLERANCE
        proposal = max(proposal, current if within else math.ceil(value / trigger.threshold))
    proposals.append((now, min(max(proposal, rule.least), rule.most)))
    up = min(each for at, each in proposals[-1 - rule.up_s // SYNC_S :] if at >= now - rule.up_s)
    down = max(each for at, each in proposals[-1 - rule.down_s // SYNC_S :] if at >= now - rule.down_s)
    wanted = up if up > current else down if down < current else current
    return min(wanted, max(current + 4, 2 * current))


def flaps(rule: Rule, load: float, replicas: int, seed: int | None = None) -> bool:
    """Return whether the number of replicas changes at a steady load in the second hour."""
    moments = simulate(rule, lambda _: load, seconds=2 * 3600, replicas=replicas, seed=seed)
    return len({each.wanted for each in moments if each.s > 3600}) > 1


def follows_s(rule: Rule, before: float, after: float, start_s: int) -> int:
    """Return the seconds from a step of the load until no more requests wait at a replica than its threshold allows."""
    step_s = 1800
    moments = simulate(rule, lambda s: before if s < step_s else after, seconds=3 * step_s, start_s=start_s)
    (queue,) = [trigger for trigger in rule.triggers if trigger.signal == "waited_s"]
    late = [each.s for each in moments if each.s >= step_s and each.waiting > queue.threshold * (1 + TOLERANCE)]
    return max(late, default=step_s) - step_s
