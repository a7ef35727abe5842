"""Tests of one server's capacity within a limit, read from a report that `compare` wrote."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.compare.report.test_report import figures
from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.figures.threshold import read_capacity, read_processors
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.report.report import as_json
from triton_regressors.model_config import from_pbtxt

MINE = 'name: "m" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500 } instance_group { count: 1 }'
SAME, OTHER = BatchingConfiguration("mine", max_queue_delay_us=500, instances=1), BatchingConfiguration("other")


def queued(rate: float, p99: float, queue_ms: float, errors: int = 0) -> Figures:
    found = figures(rate, p99, errors=errors)
    return dataclasses.replace(found, server=dataclasses.replace(found.server, queue_ms=queue_ms))


def report(folder: Path, *points: tuple[BatchingConfiguration, int, Figures], limit: float | None = 5.0) -> Path:
    measured = [Point(each, Load("grpc", 1, concurrency=clients), found, None) for each, clients, found in points]
    comparison = Comparison("m", measured, planned=len(measured), p99_ms=limit, environment={"runs_on": "GPU 0"})
    (folder / "comparison.json").write_text(as_json(comparison))
    return folder


def test_it_is_of_the_models_own_configuration_at_the_highest_load_within_the_limit(tmp_path: Path) -> None:
    folder = report(
        tmp_path,
        (OTHER, 8, queued(9000, 2, 3)),
        (SAME, 1, queued(500, 1, 0.2)),
        (SAME, 8, queued(2000, 4, 1.5)),
        (SAME, 16, queued(4000, 4.5, 1, errors=1)),
        (SAME, 32, queued(3000, 9, 4)),
    )
    found = read_capacity(folder, "m", from_pbtxt(MINE))
    assert found.requests_per_s == 2000
    assert found.waiting == pytest.approx(2000 * 1.5e-3)  # Little's law
    assert read_processors(folder) == "GPU 0"
    assert (found.reached, found.load, found.measured_on) == (True, "8 clients", "GPU 0")
    assert read_capacity(folder / "comparison.json", "m", from_pbtxt(MINE), p99_ms=1.0).waiting == pytest.approx(0.1)
    assert not read_capacity(folder, "m", from_pbtxt(MINE), p99_ms=9.0).reached


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "n"}, "compares 'm', not 'n'"),
        ({"config": MINE.replace("500", "100")}, r"no measurement of the batching configuration in config\.pbtxt"),
        ({"p99_ms": 0.5}, r"keeps p99 within 0\.5 ms"),
        ({"p99_ms": 0}, "has no latency limit; give --p99-ms"),
    ],
)
def test_what_it_cannot_tell_it_says(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    folder = report(tmp_path, (SAME, 1, queued(500, 1, 0.2)))
    arguments = {"name": "m", "config": MINE, "p99_ms": None, **change}
    with pytest.raises(ComparisonError, match=says):
        read_capacity(folder, arguments["name"], from_pbtxt(arguments["config"]), arguments["p99_ms"])


def test_without_a_time_in_the_queue_the_rate_is_known(tmp_path: Path) -> None:
    folder = report(tmp_path, (SAME, 1, queued(500, 1, float("nan"))))
    found = read_capacity(folder, "m", from_pbtxt(MINE))
    assert (found.requests_per_s, found.waiting) == (500, None)
    assert "waiting" not in found.text()


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"model": "m"})])
def test_another_file_is_told_from_a_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "comparison.json").write_text(text)
    with pytest.raises(ComparisonError, match=r"is not a comparison\.json"):
        read_capacity(tmp_path, "m", from_pbtxt(MINE))
    with pytest.raises(ComparisonError, match="cannot be read: No such file"):
        read_capacity(tmp_path / "none", "m", from_pbtxt(MINE))
    assert read_processors(tmp_path) is None
