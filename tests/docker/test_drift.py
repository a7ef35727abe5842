"""The rules and panels on the rows that entries see: their form, and their results for counts of real observers.

`tests/promql.py` evaluates the rules; so does Prometheus' promtool if $PROMTOOL names it or it is on the path.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.metrics import Server
from tests.promql import Vector, evaluate_rules, labelled
from triton_regressors.kernels.engine.kernel_executor import Answers
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile
from triton_regressors.kernels.serving import observer as observers
from triton_regressors.kernels.serving.metrics import Subject
from triton_regressors.kernels.serving.observer import SAMPLED, Observer, start

DOCKER = Path(__file__).resolve().parents[2] / "docker"
GROUPS: list[dict[str, Any]] = yaml.safe_load((DOCKER / "drift.yaml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/triton-regressors.json").read_text())
PANELS = {
    panel["title"]: [target["expr"] for target in panel["targets"]]
    for panel in DASHBOARD["panels"]
    if "triton_regressors" in json.dumps(panel.get("targets", ""))
}
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")

LABELS = {
    "rows_total": set(),
    "refused_rows_total": {"reason"},
    "class_rows_total": {"class", "estimator"},
    "id_rows_total": {"id"},
    "seen_rows_total": set(),
    "seen_squares_total": set(),
    "nan_total": {"column"},
    "below_range_total": {"column"},
    "above_range_total": {"column"},
    "unknown_category_total": {"column"},
    "answers_total": {"output", "bin"},
    "answer_squares_total": {"output"},
    "expected_share": {"output", "bin"},
    "profile_answers": {"output"},
    "expected_out_of_range_share": set(),
}
"""The metrics of an entry, and their labels beside the model, its version and the process that counts."""

FLOOR = 1e-4


def named(expression: str) -> set[str]:
    """Return the metrics of entries in an expression, without recorded ones."""
    return set(re.findall(r"(?<![\w:])triton_regressors_(\w+)", expression))


def test_rules_and_panels_read_the_metrics_that_entries_have_and_every_one_of_them() -> None:
    expressions = [rule["expr"] for rule in RULES] + [query for queries in PANELS.values() for query in queries]
    assert set().union(*map(named, expressions)) == set(LABELS)
    for expression in expressions:
        assert set(re.findall(r"\w+:triton_regressors_\w+:\w+", expression)) <= RECORDED
        known = {"job", "model", "version", "side"}.union(*(LABELS[name] for name in named(expression)))
        known |= {"column", "output", "bin"} if RECORDED & set(re.findall(r"[\w:]+", expression)) else set()
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", labels)) <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rule_is_one_of_the_two_kinds(rule: dict[str, Any]) -> None:
    if "record" in rule:
        assert set(rule) == {"record", "expr"}
        assert rule["record"].endswith("1h")
    else:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"] == {"severity": "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


# The rules on the counts of an hour


def an_hour(batches: list[np.ndarray], profile: RowProfile, monkeypatch: pytest.MonkeyPatch) -> dict[str, Vector]:
    """Return the rules' results for a `sampled` entry's counts of batches of rows, whose answers are column 0."""
    monkeypatch.setattr(observers, "PERIOD_S", 3600.0)
    server, features = Server(), batches[0].shape[1]
    subject = Subject("demand", "1", Inputs.plain(features), (), (), {"y": 1}, profile)
    observer = start(subject, SAMPLED, server.utils(), lambda rows: None)
    assert isinstance(observer, Observer)
    for rows in batches:
        observer.look([rows], len(rows))
        observer.keep(len(rows), Answers.of({"y": torch.from_numpy(rows[:, :1].copy())}))
        observer.hand_over()
    observer.close()
    samples: dict[str, Vector] = {}
    for (name, labels), number in server.numbers.items():
        told = dict(zip(NAMED.get(name, ("column",)), labels.split(","), strict=True)) if labels else {}
        at = labelled(job="triton-server", model="demand", version="1", process="7", **told)
        samples.setdefault(f"triton_regressors_{name}", {})[at] = number
    return evaluate_rules(GROUPS, samples)


NAMED = {
    "answers_total": ("output", "bin"),
    "expected_share": ("output", "bin"),
    "answer_squares_total": ("output",),
    "profile_answers": ("output",),
    "refused_rows_total": ("reason",),
}
VERSION = labelled(job="triton-server", model="demand", version="1")
ALERTS = ("AnswersDrift", "ColumnLeavesItsRange", "ColumnGoesMissing", "UnknownCategories", "RowsRefused")
FEATURES = 3


def drawn(rng: np.random.Generator, rows: int, shift: float = 0.0) -> np.ndarray:
    found: np.ndarray = rng.standard_normal((rows, FEATURES)).astype(np.float32) + np.float32(shift)
    return found


def profile_of(X: np.ndarray) -> RowProfile:
    return RowProfile.of(X, {"y": X[:, :1]}, {})


def fired(found: dict[str, Vector]) -> set[str]:
    return {name for name in ALERTS if found[name]}


def test_shares_are_those_of_all_rows_however_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand requests of one usual row stand beside ten batches of 4,096 shifted rows, 97.6 % of all rows."""
    rng, usual = np.random.default_rng(0), np.zeros((1, FEATURES), np.float32)
    batches = [usual] * 1000 + [drawn(rng, 4096, shift=100.0)] * 10
    found = an_hour(batches, profile_of(drawn(rng, 5000)), monkeypatch)
    share = 40960 / 41960
    shares = found["model_version_column:triton_regressors_out_of_range:share1h"]
    assert [*shares.values()] == pytest.approx([share] * FEATURES)
    assert found["model_version:triton_regressors_seen_rows:increase1h"] == {VERSION: 41960}
    effective = found["model_version:triton_regressors_seen_rows:effective1h"][VERSION]
    assert effective == pytest.approx(41960**2 / (1000 + 320 * 128**2))
    assert fired(found) == {"ColumnLeavesItsRange"}  # 336 effective answers are too few for the other
    assert len(found["ColumnLeavesItsRange"]) == FEATURES


@pytest.mark.parametrize("m", [2, 5, 20, 60, 150, 300, 2000])
def test_rows_of_the_same_distribution_raise_no_alarm_however_few_the_profile_has(
    m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile of 5 rows exceeds both thresholds without their gate in nearly every draw."""
    exceeded = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        found = an_hour([drawn(rng, 30) for _ in range(100)], profile_of(drawn(rng, m)), monkeypatch)
        assert fired(found) == set()
        shares = found["model_version_column:triton_regressors_out_of_range:share1h"]
        index = found["model_version_output:triton_regressors_answers:psi1h"]
        exceeded += max(shares.values()) > 0.05 or max(index.values()) > 0.2
    assert exceeded >= 10 if m <= 20 else exceeded == 0 if m >= 300 else True


@pytest.mark.parametrize(("m", "alerts"), [(5, set()), (30, {"AnswersDrift", "ColumnLeavesItsRange"}),
                                           (2000, {"AnswersDrift", "ColumnLeavesItsRange"})])  # fmt: skip
def test_a_change_raises_both_alarms_where_the_profile_can_show_it(
    m: int, alerts: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    found = an_hour([drawn(rng, 30, 4.0) for _ in range(100)], profile_of(drawn(rng, m)), monkeypatch)
    assert fired(found) >= alerts
    assert "ColumnLeavesItsRange" not in fired(found) or m > 11


def test_what_is_expected_of_chance_is_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean share out of range is 2 / (m + 1), and the mean index about d (1 / n + 1 / m)."""
    m, shares, indices = 40, list[float](), list[float]()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found = an_hour([drawn(rng, 30) for _ in range(70)], profile_of(drawn(rng, m)), monkeypatch)
        shares += found["model_version_column:triton_regressors_out_of_range:share1h"].values()
        indices += found["model_version_output:triton_regressors_answers:psi1h"].values()
        (limit,) = found["model_version_output:triton_regressors_answers:chance1h"].values()
        assert limit == pytest.approx((9 + 2 * math.sqrt(63) + 14) * (1 / m + 1 / 2100))
    assert np.mean(shares) == pytest.approx(2 / (m + 1), rel=0.15)
    assert np.mean(indices) == pytest.approx(9 * (1 / m + 1 / 2100), rel=0.25)


def test_entries_of_older_releases_raise_alarms_as_before() -> None:
    def counter(number: float, **labels: str) -> Vector:
        return {VERSION | labelled(process="7", **labels): number}

    samples = {
        "triton_regressors_seen_rows_total": counter(2000),
        "triton_regressors_above_range_total": counter(200, column="age"),
        "triton_regressors_answers_total": counter(2000, output="y", bin="0") | counter(0, output="y", bin="1"),
        "triton_regressors_expected_share": counter(0.5, output="y", bin="0") | counter(0.5, output="y", bin="1"),
    }
    assert fired(evaluate_rules(GROUPS, samples)) == {"AnswersDrift", "ColumnLeavesItsRange"}


# Prometheus on the rules


def psi(counts: list[int], expected: list[float]) -> float:
    """Return the population stability index of counts, with shares of 0.0001 at least."""
    a, e = (np.maximum(np.array(part) / sum(part), FLOOR) for part in (counts, expected))
    return float(((a - e) * np.log(a / e)).sum())


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """Return a series for promtool, of the entry demand version 1 in a job."""
    told = {"job": "triton-server", "model": "demand", "version": "1", "process": "7", **labels}
    return {"series": f"triton_regressors_{name}" + json.dumps(told).replace('": "', '="').replace(', "', ", ").replace(
        '{"', "{"), "values": values}  # fmt: skip


def growing(per_minute: float, before: float = 0.0) -> str:
    """Return a counter that grows by a step a minute for two hours, after a day in which it grew by `before`."""
    if before == per_minute:
        return f"0+{per_minute}x{MINUTES}"
    return f"0+{before}x1439 {before * 1440 + per_minute}+{per_minute}x{MINUTES - 1440}"


def run_promtool(tmp_path: Path, *found: dict[str, Any]) -> None:
    """Have promtool evaluate the rules on `ANSWERS` and `SEEN` for 26 hours, and check what it finds."""
    if PROMTOOL is None:
        pytest.skip("promtool is not on the path, nor in $PROMTOOL")
    test = {
        "rule_files": [str(DOCKER / "drift.yaml")],
        "evaluation_interval": "5m",
        "tests": [{"interval": "1m", "input_series": [*ANSWERS, *SEEN], "promql_expr_test": list(found)}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    command = [PROMTOOL, "test", "rules", str(tmp_path / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


MINUTES = 26 * 60
COUNTS = [40, 10, 10, 10, 10, 10, 5, 5, 0, 0]
EXPECTED = [0.2] + [0.1] * 8 + [0.0]
ANSWERS = [
    *(
        series("answers_total", growing(count, 100 * share), output="y", bin=str(i))
        for i, (count, share) in enumerate(zip(COUNTS, EXPECTED, strict=True))
    ),
    *(
        series("expected_share", f"{share}x{MINUTES}", output="y", bin=str(i), process=process)
        for i, share in enumerate(EXPECTED)
        for process in ("7", "8")
    ),
    series("answers_total", growing(10), output="y", bin="0", job="few"),
    series("expected_share", f"0.1x{MINUTES}", output="y", bin="0", job="few"),
]
SEEN = [
    series("seen_rows_total", growing(6, 6)),
    series("seen_rows_total", growing(4, 4), process="8"),
    series("rows_total", growing(97, 97)),
    series("refused_rows_total", growing(3), reason="not_finite"),
    series("refused_rows_total", growing(50, 50), reason="cancelled"),
    series("below_range_total", growing(0.5), column="age"),
    series("above_range_total", growing(0.25), column="age"),
    series("above_range_total", growing(0.25, 0.25), column="bmi"),
    series("unknown_category_total", growing(4), column="shop"),
    series("nan_total", growing(2), column="age"),
    series("nan_total", growing(5, 5), column="bmi"),
    series("seen_rows_total", growing(1000, 1000), job="many"),
    series("above_range_total", growing(10, 10), column="age", job="many"),
    *(
        series(name, values, job=job, **labels)
        for job, m in (("small", 5), ("large", 500))
        for name, values, labels in (
            ("seen_rows_total", growing(1280, 1280), {}),
            ("seen_squares_total", growing(163840, 163840), {}),
            ("above_range_total", growing(512, 512), {"column": "age"}),
            ("expected_out_of_range_share", f"{2 / (m + 1)}x{MINUTES}", {}),
            ("profile_answers", f"{m}x{MINUTES}", {"output": "y"}),
            ("answers_total", growing(900, 900), {"output": "y", "bin": "0"}),
            ("answers_total", growing(380, 380), {"output": "y", "bin": "1"}),
            ("answer_squares_total", growing(10240, 10240), {"output": "y"}),
            ("expected_share", f"0.4x{MINUTES}", {"output": "y", "bin": "0"}),
            ("expected_share", f"0.6x{MINUTES}", {"output": "y", "bin": "1"}),
        )
    ),
    series("seen_rows_total", growing(1, 1), job="few"),
    series("rows_total", growing(1, 1), job="few"),
    *(
        series(f"{name}_total", growing(1), job="few", **label)
        for name, label in {
            "refused_rows": {"reason": "missing"},
            "nan": {"column": "age"},
            "above_range": {"column": "age"},
            "unknown_category": {"column": "shop"},
        }.items()
    ),
]
"""Ten rows a minute are observed; 7.5 % of one column are out of range for two hours, and 2.5 % of another always.

The same model has in another job many rows, and in a third few, all of which are wrong. In the jobs small and large,
which have profiles of 5 and of 500 rows, each observed row stands for 128 and each answer for 8, and 40 % are out of
range.
"""


def close(expression: str, value: float) -> dict[str, Any]:
    """Return the sample that promtool should find: the value, up to rounding."""
    asked = f"abs(({expression}) - {value!r}) < bool {1e-9 * max(abs(value), 1)!r}"
    expected = [{"labels": "{}", "value": 1}]
    return {"expr": f"sum({asked}) * count({expression})", "eval_time": "26h", "exp_samples": expected}


def test_prometheus_computes_the_shares_and_the_index(tmp_path: Path) -> None:
    where = '{job="triton-server", model="demand"'
    of_version = "model_version_column:triton_regressors_"
    assert 0.2 < psi(COUNTS, EXPECTED) < math.inf
    run_promtool(
        tmp_path,
        close(f'model_version_output:triton_regressors_answers:psi1h{where}, output="y"}}', psi(COUNTS, EXPECTED)),
        close(f"model_version_output:triton_regressors_answers:increase1h{where}}}", 6000),
        close(f'model_version_output_bin:triton_regressors_answers:share1h{where}, bin="0"}}', 0.4),
        close(f"model_version:triton_regressors_seen_rows:increase1h{where}}}", 600),
        close(f'{of_version}out_of_range:share1h{where}, column="age"}}', 0.075),
        close(f'{of_version}out_of_range:share1h{where}, column="bmi"}}', 0.025),
        close(f'{of_version}out_of_range:share1h{{job="many"}}', 0.01),
        close('model_version:triton_regressors_seen_rows:effective1h{job="small"}', 600),
        close('model_version_output:triton_regressors_answers:effective1h{job="small"}', 9600),
        close(
            'model_version_output:triton_regressors_answers:chance1h{job="large"}',
            (15 + 2 * math.sqrt(7)) * (1 / 500 + 1 / 9600),
        ),
        close(f"model_version:triton_regressors_seen_rows:effective1h{where}}}", 600),
        close(f"{of_version}unknown_category:share1h{where}}}", 0.4),
        close(f'model_column:triton_regressors_nan:share1h{where}, column="age"}}', 0.2),
    )


def test_the_alerts_fire_on_what_they_name_and_on_nothing_else(tmp_path: Path) -> None:
    alerts = 'count by (alertname, job, column, output) (ALERTS{alertstate="firing"})'
    job, always = (
        "triton-server",
        [
            {"alertname": "AnswersDrift", "job": "large", "output": "y"},
            {"alertname": "ColumnLeavesItsRange", "job": "large", "column": "age"},
        ],
    )
    firing = [
        {"alertname": "AnswersDrift", "job": job, "output": "y"},
        {"alertname": "ColumnGoesMissing", "job": job, "column": "age"},
        {"alertname": "ColumnLeavesItsRange", "job": job, "column": "age"},
        {"alertname": "RowsRefused", "job": job},
        {"alertname": "UnknownCategories", "job": job, "column": "shop"},
    ]
    before, after = (
        [
            {"labels": "{" + ", ".join(f'{name}="{value}"' for name, value in each.items()) + "}", "value": 1}
            for each in fired
        ]
        for fired in (always, [*always, *firing])
    )
    run_promtool(
        tmp_path,
        {"expr": alerts, "eval_time": "24h", "exp_samples": before},
        {"expr": alerts, "eval_time": "26h", "exp_samples": after},
    )


def test_prometheus_reads_the_queries_of_the_panels(tmp_path: Path) -> None:
    """Grafana's variables are replaced by values first."""
    if PROMTOOL is None:
        pytest.skip("promtool is not on the path, nor in $PROMTOOL")
    queries = [
        query for panel in DASHBOARD["panels"] for target in panel.get("targets", []) for query in [target["expr"]]
    ]
    for variable, value in {"$model": ".*", "$version": ".*", "$__rate_interval": "1m", "$__range": "1h"}.items():
        queries = [query.replace(variable, value) for query in queries]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    command = [PROMTOOL, "check", "rules", str(tmp_path / "queries.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
