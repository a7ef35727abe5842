import dataclasses
import io

import pytest
from rich.console import Console

from tests.clients.compare.points import figures, point
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import METRICS, number
from triton_regressors.clients.compare.report.table import columns, legend, rich_table


def test_table_fits_120_columns(comparison: Comparison) -> None:
    console = Console(width=300, file=io.StringIO())
    console.print(rich_table(comparison))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 120
    for expected in ("delay 500 µs, 2 instances", "12,345", "80%", "http"):
        assert expected in text


def test_the_legend_names_columns_that_are_there(comparison: Comparison) -> None:
    table = columns(comparison.points, None)
    assert "of floor: share of the do-nothing model's requests/s." in legend(table)
    without = [dataclasses.replace(point, floor=None) for point in comparison.points]
    assert "of floor" not in legend(columns(without, None))
    for metric in METRICS:
        assert not metric.meaning or f"{metric.heading}: {metric.meaning}." in legend(table)


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
