import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from triton_regressors.clients.compare.batching import BatchingConfiguration, quick_configurations
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.measurement import Settings, expected_time
from triton_regressors.clients.compare.figures.recommendation import best_point
from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.figures.statistics import Latencies, ServerFigures, Window
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.report.charts import batch_sizes, inline_svg, latency_throughput
from triton_regressors.clients.compare.report.report import number, rich_table, write_report
from triton_regressors.commands.compare import _windows

NAN = float("nan")


def figures(
    rate: float, p99: float, *, errors: int = 0, stable: bool = True, busy: float = 0.5, rows: int = 1
) -> Figures:
    return Figures(
        requests_per_s=rate,
        rows_per_s=rate * rows,
        requests=int(rate * 3),
        latency=Latencies(p99 / 2, p99 * 0.8, p99 * 0.9, p99, p99 * 3, p99 / 2),
        errors={"INTERNAL: <b>broken</b>": errors} if errors else {},
        answers_checked=5,
        server=ServerFigures(0.5, 0.1, 0.2, 0.1, {rows: 5, 8 * rows: 10}, 5.7 * rows),
        client_cpu_share=busy,
        client_processes=1,
        stable=stable,
        windows=(Window(rate, p99 / 2, p99, 0),),
    )


def point(label: str, found: Figures, load: Load | None = None, floor: Figures | None = None) -> Point:
    return Point(BatchingConfiguration(label), load or Load("grpc", 1, concurrency=8), found, floor)


def dead() -> Figures:
    """Figures of a model that answered no request."""
    nothing = ServerFigures(NAN, NAN, NAN, NAN, {}, NAN)
    no_latency = Latencies(NAN, NAN, NAN, NAN, NAN, NAN)
    found = figures(0, 1, errors=9, stable=False)
    return dataclasses.replace(found, requests=0, latency=no_latency, server=nothing)


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


def test_a_comparison_is_shown_in_a_few_lines() -> None:
    points = [point(f"configuration {number}", figures(100 + number, 1)) for number in range(40)]
    lines = repr(Comparison("m", points, planned=41)).splitlines()
    assert lines[0] == "Comparison of m: 40 of 41 points"
    assert " ".join(line.strip() for line in lines[1:]) == Comparison("m", points).verdict()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 100


def test_best_is_the_highest_throughput_within_the_limit() -> None:
    points = [point("a", figures(100, 1)), point("b", figures(300, 9)), point("c", figures(200, 4))]
    assert best_point(points).configuration.label == "b"
    assert best_point(points, 5).configuration.label == "c"
    assert best_point(points, 4).configuration.label == "c", "the limit itself is within"
    assert best_point(points, 1.5).configuration.label == "a"


def test_best_counts_rows() -> None:
    few, many = Load("grpc", 1, concurrency=8), Load("grpc", 64, concurrency=8)
    points = [point("a", figures(300, 1), few), point("b", figures(100, 1, rows=64), many)]
    assert best_point(points).load.rows == 64


def test_best_passes_over_errors() -> None:
    points = [
        point("a", figures(100, 1)),
        point("b", figures(300, 1, stable=False)),
        point("c", figures(900, 1, errors=1)),
    ]
    assert best_point(points).configuration.label == "a"
    with pytest.raises(ComparisonError, match="None of the 1 points was measured without errors"):
        best_point(points[2:])


def test_nothing_is_recommended_from_points_that_are_not_stable() -> None:
    comparison = Comparison("m", [point("a", figures(100, 1, stable=False)), point("b", figures(90, 1, stable=False))])
    sentence = "No configuration is recommended: none of the 2 points became stable. The fastest was 'a' with 100 rows"
    with pytest.raises(ComparisonError, match=sentence):
        comparison.best()
    assert comparison.verdict().startswith(sentence)
    console = Console(width=120, file=io.StringIO(), force_terminal=True)
    console.print(rich_table(comparison))
    assert "\x1b[1;32m" not in console.file.getvalue()
    comparison.points.append(point("c", figures(50, 1)))
    console.print(rich_table(comparison))
    assert console.file.getvalue().count("\x1b[1;32m") > 0
    assert comparison.best().configuration.label == "c"


def test_how_long_it_takes_is_known_beforehand() -> None:
    assert expected_time(24, Settings(), floor=True) == "3 to 7 minutes"
    assert expected_time(24, Settings(), floor=False) == "2 to 4 minutes"
    assert expected_time(8, Settings(0.5, 0.5, 6), floor=True) == "32 to 56 seconds"
    assert expected_time(1, Settings(0.0, 1.0, 1), floor=False) == "1 second"


def test_a_quick_comparison_takes_less_than_a_minute() -> None:
    quick, usual = (_windows(quick, None, None, None) for quick in (True, False))
    labels = [configuration.label for configuration in quick_configurations(64)]
    assert labels == ["none", "on", "delay 500 µs", "on, 2 instances"]
    assert expected_time(len(labels) * 2, Settings(**quick), floor=True) == "32 to 56 seconds"
    assert Settings(**usual) == Settings()
    assert _windows(True, None, 2.0, None) == {**quick, "window_s": 2.0}


def test_best_in_an_open_loop_is_the_lowest_p99_of_those_that_keep_up() -> None:
    load = Load("grpc", 1, rate=500)
    points = [
        point("a", figures(499, 9), load),
        point("b", figures(495, 3), load),
        point("c", figures(400, 1), load),
    ]
    assert best_point(points).configuration.label == "b"


def test_best_names_the_nearest_where_none_is_within_the_limit() -> None:
    points = [point("a", figures(100, 3)), point("b", figures(300, 9))]
    with pytest.raises(ComparisonError, match=r"No configuration keeps p99 within 2 ms; the nearest is 'a' with 3 ms"):
        best_point(points, 2)
    with pytest.raises(ComparisonError, match="accepted: a number above 0"):
        best_point(points, 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(NAN, "–"), (0, "0"), (0.01234, "0.0123"), (1.5, "1.50"), (99.95, "100.0"), (123.4, "123"), (12345.6, "12,346")],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text


@pytest.fixture
def comparison() -> Comparison:
    labels = ("none", "delay 500 µs, 2 instances", "<script>alert(1)</script>")
    found = [
        point(label, figures(rate, rate / 100), load, figures(rate * 1.25, rate / 200))
        for label in labels
        for load, rate in (
            (Load("grpc", 1, concurrency=1), 400.0),
            (Load("grpc", 1, concurrency=32), 12345.0),
            (Load("http", 1000, concurrency=32), 123.0),
        )
    ]
    return Comparison("model", found, planned=9, environment={"measured_at": "2020-01-01T00:00:00"}, p99_ms=100)


def test_table_fits_120_columns(comparison: Comparison) -> None:
    console = Console(width=300, file=io.StringIO())
    console.print(rich_table(comparison))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 120
    for expected in ("delay 500 µs, 2 instances", "12,345", "80%", "http"):
        assert expected in text


def test_the_recommended_row_is_marked_where_nothing_is_bold(comparison: Comparison) -> None:
    best = comparison.best()
    console = Console(width=300, file=io.StringIO())
    console.print(rich_table(comparison))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("*"))
    assert number(best.model.requests_per_s) in row
    assert number(best.model.latency.p99_ms) in row
    assert "* recommended" in text


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
        "latency_throughput.png",
        "batch_sizes.png",
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
    for name in ("latency_throughput.png", "batch_sizes.png"):
        assert paths[name].read_bytes().startswith(b"\x89PNG")


def test_html_stands_alone_and_escapes(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path)[0].read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<svg") == 4, "both plots for a wide screen and for a narrow one"
    assert page.count('<td class="text">*</td>') == 1, "the recommended point"
    assert not re.findall(r"https?://", page)
    references = re.findall(r"(?:href|src|url)\s*(?:=\s*[\"']|\()([^\"')]+)", page)
    assert all(reference.startswith("#") for reference in references)
    assert "prefers-color-scheme: dark" in page
    assert page.count('<div class="scroll"><table') == page.count("<table"), "none is wider than the page"


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


def test_a_narrow_screen_has_plots_of_its_own(comparison: Comparison) -> None:
    """Their letters are as large as those around them: 1 unit of the drawing is 1/72 of an inch, 9 units a letter."""
    for plot in (latency_throughput, batch_sizes):
        wide, narrow = (float(plot(comparison.points, narrow=narrow).get_figwidth()) for narrow in (False, True))
        assert 345 / (72 * narrow) > 1 > 345 / (72 * wide), "drawn on the 345 pixels that 400 leave"
    assert {axes.get_title(loc="left")[:6] for axes in latency_throughput(comparison.points, narrow=True).axes} == {
        "Median",
        "99th p",
    }


@pytest.mark.parametrize("narrow", [False, True])
def test_latencies_that_hardly_differ_lie_between_labels(narrow: bool) -> None:
    figure = latency_throughput([point("a", figures(100, 3.1)), point("a", figures(200, 3.2))], narrow=narrow)
    median, tail = figure.axes
    assert tail.get_ylim() == pytest.approx((2, 5) if narrow else (1, 5))
    assert median.get_ylim() == pytest.approx((1, 2) if narrow else (1, 5))


def test_svg_takes_the_colours_of_the_page(comparison: Comparison) -> None:
    svg = inline_svg(latency_throughput(comparison.points, 100), "title")
    assert "var(--ink)" in svg
    assert "#2a2a2a" not in svg.lower()


def test_warnings_say_what_to_distrust() -> None:
    comparison = Comparison(
        "m",
        [
            point("a", figures(100, 1, busy=0.95), floor=figures(100, 1, busy=0.2, errors=2)),
            point("b", figures(100, 1, stable=False, errors=2)),
        ],
        planned=4,
        interrupted=True,
    )
    text = "\n".join(comparison.warnings())
    assert "Interrupted: 2 of 4 points" in text
    assert "The load generator was the limit in 1 of 3 measurements" in text
    assert "1 of 3 measurements did not become stable" in text
    assert "1 of 2 points had errors: 2 × INTERNAL" in text
    assert "do-nothing model had errors in 1 of 2" in text
    assert not Comparison("m", [point("a", figures(100, 1))], planned=1).warnings()


def test_nothing_measured_still_writes_what_was_asked(tmp_path: Path) -> None:
    (path,) = write_report(Comparison("m", planned=5, interrupted=True), tmp_path)
    assert json.loads(path.read_text())["warnings"] == ["Interrupted: 0 of 5 points were measured."]
