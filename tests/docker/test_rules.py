"""The PrometheusRule that `deploy` writes: it is alerts.yaml and drift.yaml on the metrics of its own PodMonitor."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DOCKER = Path(__file__).resolve().parents[2] / "docker"
JOB = "team/demand-2"  # the Prometheus Operator calls the job of a PodMonitor NAMESPACE/NAME
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
KINDS = pytest.mark.parametrize("kind", ["plain", "kserve"])


def groups_of(path: Path) -> list[dict[str, Any]]:
    """Return the groups of a file of Prometheus' own."""
    groups: list[dict[str, Any]] = yaml.safe_load(path.read_text())["groups"]
    return groups


SOURCE = groups_of(DOCKER / "alerts.yaml") + groups_of(DOCKER / "drift.yaml")


def read(written: Path, kind: str, name: str) -> Any:
    return yaml.safe_load((written / kind / "base" / name).read_text())


@KINDS
def test_the_rules_are_those_of_the_two_files_but_for_the_job_and_what_is_to_be_done(written: Path, kind: str) -> None:
    resource = read(written, kind, "rules.yaml")
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert resource["metadata"] == read(written, kind, "podmonitor.yaml")["metadata"] == {"name": "demand-2"}
    assert "rules.yaml" in read(written, kind, "kustomization.yaml")["resources"]
    assert list(resource["spec"]) == ["groups"]
    groups = resource["spec"]["groups"]
    assert "docker compose" not in str(groups)
    assert "with the key" not in str(groups)
    told = {rule.get("alert"): rule for group in groups for rule in group["rules"]}
    for group in SOURCE:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace('{job="triton-server"}', "")
            if rule.get("alert") in ("TritonServerDown", "EntryDead"):
                rule["annotations"]["description"] = told[rule["alert"]]["annotations"]["description"]
    for group in groups:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace(f'{{job="{JOB}"}}', "").replace(f'job="{JOB}", ', "")
    assert groups == SOURCE


@KINDS
def test_every_metric_is_asked_of_the_podmonitor_s_job_alone(written: Path, kind: str) -> None:
    for group in read(written, kind, "rules.yaml")["spec"]["groups"]:
        for rule in group["rules"]:
            metrics = re.findall(
                r"\bup\b|[\w:]*\b(?:nv|triton_regressors)_[\w:]+|\w+:triton_regressors_[\w:]+", rule["expr"]
            )
            assert metrics
            assert rule["expr"].count(f'{{job="{JOB}"') == len(metrics), rule["expr"]


def counter(name: str, job: str, step: int, **labels: str) -> dict[str, str]:
    """Return a counter of the model demand_2 for promtool that grows by a step in each of 20 minutes."""
    told = {"job": job, "model": "demand_2", "version": "1", **labels}
    return {
        "series": name + "{" + ", ".join(f'{key}="{value}"' for key, value in told.items()) + "}",
        "values": f"0+{step}x20",
    }


def test_alerts_fire_for_the_entry_s_own_job_whatever_another_s_metrics_are(written: Path, tmp_path: Path) -> None:
    """Another deployment has a model of the same name, which answers, and a full GPU; one replica of two is down."""
    if PROMTOOL is None:
        pytest.skip("promtool is not on the path, nor in $PROMTOOL")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(read(written, "plain", "rules.yaml")["spec"]))
    full = {
        f'nv_gpu_memory_{part}_bytes{{job="other/demand"}}': size
        for part, size in (("used", "9x20"), ("total", "9x20"))
    }
    up = {f'up{{job="{JOB}",pod="a"}}': "1x20", f'up{{job="{JOB}",pod="b"}}': "0x20", 'up{job="other/demand"}': "0x20"}
    series = [
        counter("nv_inference_request_failure", JOB, 60, reason="BACKEND"),
        counter("nv_inference_request_success", JOB, 0),
        counter("nv_inference_request_success", "other/demand", 60),
        *({"series": name, "values": values} for name, values in (full | up).items()),
    ]
    firing = [{"labels": f'{{alertname="{name}", job="{JOB}"}}', "value": 1} for name in ("EntryDead", "EntryFails")]
    down = [{"labels": f'{{alertname="TritonServerDown", job="{JOB}"}}', "value": 1}]
    expression = 'count by (alertname, job) (ALERTS{alertstate="firing"})'
    tests = [
        {"input_series": series, "promql_expr_test": [{"expr": expression, "eval_time": "20m", "exp_samples": firing}]},
        *(
            {"input_series": found, "promql_expr_test": [{"expr": expression, "eval_time": "20m", "exp_samples": down}]}
            for found in ([], [{"series": f'up{{job="{JOB}"}}', "values": "0x20"}])
        ),
    ]
    test = {"rule_files": ["rules.yaml"], "tests": [{"interval": "1m", **each} for each in tests]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    command = [PROMTOOL, "test", "rules", str(tmp_path / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
