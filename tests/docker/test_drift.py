"""The rules and panels on what entries see: their shape always, their answers where Prometheus' promtool is at hand.

$PROMTOOL names that program, or it is on the path.
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
import yaml

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
    "seen_rows_total": set(),
    "nan_total": {"column"},
    "below_range_total": {"column"},
    "above_range_total": {"column"},
    "unknown_category_total": {"column"},
    "answers_total": {"output", "bin"},
    "expected_share": {"output", "bin"},
}
"""The metrics of an entry, and their labels beside the model, its version and the process that counts."""

FLOOR = 1e-4


def named(expression: str) -> set[str]:
    """Return the metrics of entries in an expression, the recorded ones left out."""
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


# What Prometheus makes of them


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
    """Return a counter that grows by so much a minute for two hours, after a day in which it grew by `before`."""
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
"""Ten rows a minute are looked at; for two hours of one column 7.5 % are out of range, of another always 2.5 %.

The same model has in another job many rows, and in a third few, all of which are wrong.
"""


def close(expression: str, value: float) -> dict[str, Any]:
    """Return what promtool is to find: one sample, which is the value but for rounding."""
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
        close(f"{of_version}unknown_category:share1h{where}}}", 0.4),
        close(f'model_column:triton_regressors_nan:share1h{where}, column="age"}}', 0.2),
    )


def test_the_alerts_fire_on_what_they_name_and_on_nothing_else(tmp_path: Path) -> None:
    alerts = 'count by (alertname, job, column, output) (ALERTS{alertstate="firing"})'
    job = "triton-server"
    firing = [
        {"alertname": "AnswersDrift", "job": job, "output": "y"},
        {"alertname": "ColumnGoesMissing", "job": job, "column": "age"},
        {"alertname": "ColumnLeavesItsRange", "job": job, "column": "age"},
        {"alertname": "RowsRefused", "job": job},
        {"alertname": "UnknownCategories", "job": job, "column": "shop"},
    ]
    labels = ["{" + ", ".join(f'{name}="{value}"' for name, value in each.items()) + "}" for each in firing]
    run_promtool(
        tmp_path,
        {"expr": alerts, "eval_time": "24h", "exp_samples": []},
        {"expr": alerts, "eval_time": "26h", "exp_samples": [{"labels": each, "value": 1} for each in labels]},
    )


def test_prometheus_reads_the_queries_of_the_panels(tmp_path: Path) -> None:
    """With what Grafana puts in place of its variables."""
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
