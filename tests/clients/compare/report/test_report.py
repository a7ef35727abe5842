import csv
import dataclasses
import io
import json
import re
from html import escape
from pathlib import Path

import pytest
from rich.console import Console

from tests.clients.compare.points import NAN, dead, figures, point
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.statistics import Latencies
from triton_regressors.clients.compare.report.charts import CHARTS
from triton_regressors.clients.compare.report.report import write_report
from triton_regressors.clients.compare.report.table import rich_table


@pytest.mark.parametrize("alive", [[], ["a"]])
def test_a_report_of_models_that_answer_nothing(tmp_path: Path, alive: list[str]) -> None:
    points = [*(point(label, figures(100, 1)) for label in alive), point("b", dead(), floor=figures(200, 1))]
    comparison = Comparison("m", points, planned=4, interrupted=True, failure="Its stub is not healthy.")
    page = write_report(comparison, tmp_path)[0].read_text()
    assert "Ended by an error (Its stub is not healthy)" in page
    assert rich_table(comparison).row_count == len(points)


def test_names_are_never_markup(tmp_path: Path) -> None:
    """Neither Rich's, nor HTML's, nor that of matplotlib's mathematics."""
    names = "[red]a[/x]<b>&$^$"
    comparison = Comparison(names, [point(names, figures(100, 1))], settings={"rows_file": names})
    console = Console(width=120, file=io.StringIO())
    console.print(rich_table(comparison))
    assert f"configurations of {names}" in console.file.getvalue()
    page = write_report(comparison, tmp_path)[0].read_text()
    assert "<b>" not in page
    assert page.count("[red]a[/x]&lt;b&gt;&amp;$^$") >= 6  # title, heading, verdict, plots, table, settings


def test_files_hold_every_point(comparison: Comparison, tmp_path: Path) -> None:
    odd = comparison.points[0]
    comparison.points[0] = dataclasses.replace(
        odd, model=dataclasses.replace(odd.model, latency=Latencies(*[NAN] * 6), errors={"bad": 3}, requests=0)
    )
    paths = {path.name: path for path in write_report(comparison, tmp_path / "new" / "report")}
    assert set(paths) == {
        "report.html",
        "points.csv",
        "comparison.json",
        *(f"{chart.name}.png" for chart in CHARTS),
    }
    rows = list(csv.DictReader(paths["points.csv"].read_text().splitlines()))
    assert len(rows) == 9
    assert (rows[0]["latency_p99_ms"], rows[0]["errors"], rows[0]["rate"]) == ("", "3", "")
    assert float(rows[1]["latency_p99_ms"]) == pytest.approx(123.45)
    assert float(rows[1]["floor_requests_per_s"]) == pytest.approx(12345 * 1.25)
    document = json.loads(paths["comparison.json"].read_text())
    assert document["points"][0]["model"]["latency"]["p99_ms"] is None
    assert document["points"][1]["model"]["server"]["executions_per_batch_size"] == {"1": 5, "8": 10}
    assert document["points"][1]["throughput_of_floor"] == pytest.approx(0.8)
    assert document["best"] == comparison.points.index(comparison.best())
    for chart in CHARTS:
        assert paths[f"{chart.name}.png"].read_bytes().startswith(b"\x89PNG")


def test_html_stands_alone_and_escapes(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path)[0].read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<svg") == 2 * len(CHARTS), "each chart for a wide screen and for a narrow one"
    assert page.count('<td class="text">*</td>') == 1, "the recommended point"
    assert not re.findall(r"https?://", page)
    references = re.findall(r"(?:href|src|url)\s*(?:=\s*[\"']|\()([^\"')]+)", page)
    assert all(reference.startswith("#") for reference in references)
    assert "prefers-color-scheme: dark" in page
    assert page.count('<div class="scroll"><table') == page.count("<table"), "none is wider than the page"


def test_the_page_shows_every_chart(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path)[0].read_text()
    for chart in CHARTS:
        assert f"<h2>{escape(chart.title)}</h2>" in page
        assert escape(chart.caption) in page


def test_html_says_what_it_was_measured_on(comparison: Comparison, tmp_path: Path) -> None:
    known = {"model_version": "7", "engine": "triton (auto)", "runs_on": "GPU 0", "triton_server": "2.51.0"}
    comparison.environment = {**known, "processor": None, "torch": None, "triton_language": None}
    assert comparison.measured_on() == "version 7, engine triton (auto), on GPU 0, Triton server 2.51.0"
    page = write_report(comparison, tmp_path)[0].read_text()
    assert comparison.measured_on() in page
    for heading in ("Processor", "torch on the server", "Triton language on the server"):
        assert f"<th>{heading}</th><td>unknown: the server does not report it</td>" in page
    comparison.environment = {**known, "processor": "NVIDIA H200", "torch": "2.11.0", "triton_language": "3.6.0"}
    assert "on GPU 0 (NVIDIA H200), Triton server 2.51.0, torch 2.11.0, Triton language" in comparison.measured_on()


def test_nothing_measured_still_writes_what_was_asked(tmp_path: Path) -> None:
    (path,) = write_report(Comparison("m", planned=5, interrupted=True), tmp_path)
    assert json.loads(path.read_text())["warnings"] == ["Interrupted: 0 of 5 points were measured."]
