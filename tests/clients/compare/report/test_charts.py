import pytest

from tests.clients.compare.points import figures, point
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.report.charts import CHARTS, Chart, latency_throughput
from triton_regressors.clients.compare.report.drawing import inline_svg


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_narrow_screen_has_a_chart_of_its_own(comparison: Comparison, chart: Chart) -> None:
    """Its letters are as large as those around it: 1 unit of the drawing is 1/72 of an inch, 9 units a letter."""
    wide, narrow = (float(chart.draw(comparison, narrow).get_figwidth()) for narrow in (False, True))
    assert 345 / (72 * narrow) > 1 > 345 / (72 * wide), "drawn on the 345 pixels that 400 leave"


def test_the_panels_of_a_narrow_chart_are_those_of_a_wide_one(comparison: Comparison) -> None:
    titles = {axes.get_title(loc="left")[:6] for axes in latency_throughput(comparison, narrow=True).axes}
    assert titles == {"Median", "99th p"}


def test_names_and_titles_are_distinct() -> None:
    names, titles = ({getattr(chart, field) for chart in CHARTS} for field in ("name", "title"))
    assert len(names) == len(titles) == len(CHARTS)
    assert {"latency_throughput", "batch_sizes"} <= names, "files that users know"


@pytest.mark.parametrize("narrow", [False, True])
def test_latencies_that_hardly_differ_lie_between_labels(narrow: bool) -> None:
    figure = latency_throughput(Comparison("m", [point("a", figures(100, 3.1)), point("a", figures(200, 3.2))]), narrow)
    median, tail = figure.axes
    assert tail.get_ylim() == pytest.approx((2, 5) if narrow else (1, 5))
    assert median.get_ylim() == pytest.approx((1, 2) if narrow else (1, 5))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_svg_takes_the_colours_of_the_page(comparison: Comparison, chart: Chart) -> None:
    svg = inline_svg(chart.draw(comparison, False), "title")
    assert "var(--ink)" in svg
    assert "#2a2a2a" not in svg.lower()
