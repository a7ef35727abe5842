"""The charts and the text of contributions: the forms that they draw, by their numbers."""

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.cells import cell_len

from tests.clients.contributions.test_shap import contributions
from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.contributions.drawing import DOTS, DOWN, MOST, UP, bars, beeswarm, waterfall
from triton_regressors.clients.contributions.page import fragment, html_page
from triton_regressors.clients.contributions.target import Target, shown_cell, shown_number, signed
from triton_regressors.clients.contributions.text import mean_lines, row_lines

NAMES = ("age", '<script>alert("1")</script>', "size & number", "city")


@pytest.fixture
def target() -> Target:
    values = np.array([[3, -1, 0.5, -8], [1, 1, 1, 1]], np.float32)
    base, y = np.array([10, 10], np.float32), np.exp(np.array([4.5, 14], np.float32))
    cells = np.array([[30.5, "x", np.nan, "<b>"], [31.5, "y", 2, "c"]], dtype=object)
    return Target("y", NAMES, values, base, y, cells, np.array([7, 9]), ("exp",))


def test_a_waterfall_leads_from_the_base_to_the_sum(target: Target) -> None:
    drawn = ET.fromstring(waterfall(target, 0))
    arrows = [
        ([[float(number) for number in point.split(",")] for point in each.get("points", "").split()], each.get("fill"))
        for each in drawn.iter("polygon")
    ]
    starts, tips = ([points[place][0] for points, _ in arrows] for place in (0, 2))
    marks = [
        float(re.match(r"M([\d.]+)", each.get("d", ""))[1]) for each in drawn.iter("path") if each.get("stroke-width")
    ]
    assert [marks[0], *tips[:-1]] == starts
    assert tips[-1] == marks[1]
    moved = np.subtract(tips, starts)
    np.testing.assert_allclose(moved / moved[0], np.array([-8, 3, -1, 0.5]) / -8, atol=2e-3)
    assert [fill for _, fill in arrows] == [DOWN, UP, DOWN, UP]
    texts = ["".join(each.itertext()) for each in drawn.iter("text")]
    assert texts[0] == "row 7: y = exp(4.5) = 90.02"
    assert [text for text in texts if text[0] in "+−"] == ["−8.00", "+3.00", "−1.00", "+0.500"]
    assert {"city = <b>", "age = 30.5", "size & number = missing", "base", "sum"} <= set(texts)


def test_columns_beyond_the_lines_are_one_sum() -> None:
    many = 40
    values = np.arange(many, dtype=np.float32)[None]
    names = tuple(f"c{place}" for place in range(many))
    cells = np.full((1, many), 1.0, dtype=object)
    target = Target("y", names, values, np.zeros(1), values.sum(axis=1), cells, np.zeros(1, int), ())
    parts = list(target.parts(0, MOST))
    rest = many - MOST + 1
    assert (len(parts), parts[-1]) == (MOST, (f"{rest} other columns", "", rest * (rest - 1) / 2, ""))
    assert sum(value for _, _, value, _ in parts) == target.total(0)
    assert list(target.means(MOST))[-1] == (f"sum of {rest} others", rest * (rest - 1) / 2, False)
    assert len(row_lines(target, 0)) == MOST + 3
    widths = [float(each.get("width", "")) for each in ET.fromstring(bars(target)).iter("rect")]
    assert len(widths) == MOST - 1  # beside the sum of many columns, bars of single ones would be stumps
    assert widths[-1] / widths[0] == pytest.approx(rest / (many - 1), abs=0.01)
    assert "█" not in mean_lines(target)[-1]
    assert f"each of the {MOST} largest of {many} columns" in html_page("m", "1", "", [_repeated(target)])


def test_a_beeswarm_has_a_dot_for_each_row_and_column_inside_its_line() -> None:
    (target,) = contributions().targets()
    drawn = ET.fromstring(beeswarm(target))
    dots = list(drawn.iter("circle"))
    assert len(dots) == target.values.size
    assert len({each.get("fill") for each in dots[:20]}) > 10
    order = np.argsort(-np.abs(target.values).mean(axis=0))
    xs = np.array([float(each.get("cx", "")) for each in dots]).reshape(3, -1)
    for place, column in enumerate(order):
        fitted = np.polyfit(target.values[:, column], xs[place], 1)
        np.testing.assert_allclose(np.polyval(fitted, target.values[:, column]), xs[place], atol=0.1)
    height = float(drawn.get("viewBox", "").split()[3])
    assert all(0 < float(each.get("cy", "")) < height for each in dots)
    assert beeswarm(_repeated(target, 3 * DOTS)).count("<circle") == 3 * DOTS


def _repeated(target: Target, rows: int = 2) -> Target:
    """Return a target with its rows repeated up to a number of them."""
    columns = len(target.columns)
    return replace(
        target,
        values=np.resize(target.values, (rows, columns)),
        cells=np.resize(target.cells, (rows, columns)),
        base=np.zeros(rows),
        predictions=np.zeros(rows),
        rows=np.arange(rows),
    )


LONG = "the_area_in_square_metres_as_the_surveyor_measured_it"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([-6.79e-5, -6.36e-5, -5.02e-5, -2.96e-5], LONG),
        ([1e8, -1e8, 1.23e8, 3], "建物の床面積と築年数と駅からの距離"),
        ([-0.0164, 0.1, 1e-7, -1e12], "a"),
        ([0, 0, 0, 0], "TOTAL_SQUARE_METRES_WITH_BALCONIES_" * 2),
    ],
)
@pytest.mark.parametrize("errors", [False, True])
def test_words_lie_inside_the_chart_and_not_on_one_another(
    target: Target, values: list[float], name: str, errors: bool
) -> None:
    """A name, a label and the title each have their room, in letters as broad as those of a usual font."""
    numbers = np.array([values, values], np.float32)
    hard = replace(
        target, name="y_12", values=numbers, errors=numbers if errors else None, columns=(name, name[::-1], "b", "c")
    )
    for chart in (waterfall(hard, 0), beeswarm(hard), bars(hard)):
        drawn = ET.fromstring(chart)
        left, _, wide, _ = map(float, drawn.get("viewBox", "").split())
        lines: dict[str, list[tuple[float, float]]] = {}
        for each in drawn.iter("text"):
            words, x = "".join(each.itertext()), float(each.get("x", ""))
            size = sum(12 if ord(letter) > 0x3000 else 7.7 for letter in words)  # at 12 pixels a letter's height
            start = x - {"end": size, "middle": size / 2}.get(each.get("text-anchor", ""), 0)
            assert left <= start, words
            assert start + size <= left + wide, words
            lines.setdefault(each.get("y", ""), []).append((start, start + size))
        for found in lines.values():
            assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(sorted(found)))


def test_numbers_are_whole_where_an_exponent_would_hide_them() -> None:
    assert [shown_number(value) for value in (500142.7, -999.6, 999.4, 1e9, 2.5e-5)] == [
        "500,143", "−1,000", "999.4", "1e+09", "2.5e−05",
    ]  # fmt: skip
    assert [signed(value) for value in (78996.2, -999.6, -11, 100, 0.1, 0)] == [
        "+78,996", "−1,000", "−11.0", "+100", "+0.100", "0",
    ]  # fmt: skip
    assert [shown_cell(cell) for cell in (np.float32(90123.4), 2024.0, -1.5, "a-b")] == ["90123", "2024", "−1.5", "a-b"]


def test_a_long_name_is_cut_and_its_cell_is_not(target: Target) -> None:
    cells = np.full((2, 4), "Pankow", dtype=object)
    drawn = waterfall(replace(target, columns=(LONG, f"{LONG}_twice", "b", "c"), cells=cells), 0)
    assert f"<title>{LONG} = Pankow</title>" in drawn
    assert all(f">{words} = Pankow<" in drawn for words in ("the_area_in_squa…sured_it", "the_area_in_squa…it_twice"))


@pytest.mark.parametrize("worst", [np.nan, np.inf, 0.0])
def test_numbers_that_are_none_or_equal_are_drawn_too(target: Target, worst: float) -> None:
    odd = replace(target, values=np.full_like(target.values, worst), base=np.full_like(target.base, worst))
    for chart in (waterfall(odd, 0), beeswarm(odd), bars(odd)):
        drawn = ET.fromstring(chart)
        assert not re.search(r' (?:points|c?x|d|width)="[^"]*(?:nan|inf)', chart)
        assert len(list(drawn.iter("text"))) > 2


def test_a_page_fetches_nothing_and_takes_the_colours_of_light_and_dark(target: Target) -> None:
    made = html_page("houses <1>", "3", "meaning", [target])
    assert "prefers-color-scheme: dark" in made
    assert "color-scheme: light dark" in made
    assert made.count("<svg") == 3
    assert "2 rows with y &lt; 20<" in html_page("houses", "3", "meaning", [target], "y < 20")
    assert not re.search(r"https?://|<script|<b>|src=|@import", made)
    assert "houses &lt;1&gt;" in made
    one = fragment("about", "meaning", [target])
    assert one.count("<svg") == 2
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', one))
    assert colours == {"currentColor", UP, DOWN}


def test_text_has_bars_on_two_sides(target: Target) -> None:
    assert row_lines(target, 0)[1:] == [
        "row 7: y = exp(4.5) = 90.02",
        "  city                             <b>   −8.00  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│",
        "  age                             30.5   +3.00                  │██████",
        '  <script>alert("1")</script>        x   −1.00                ▒▒│',
        "  size & number                missing  +0.500                  │█",
        "  base                                      10",
    ]
    assert mean_lines(target)[1:3] == [
        "mean |contribution| to y before exp over 2 rows",
        f"  city                          4.5  {'█' * 32}",
    ]


def test_estimates_stand_beside_their_errors() -> None:
    (target,) = contributions(permutations=8).targets()
    assert target.errors is not None
    largest = np.argmax(np.abs(target.values[0]))
    value, error = target.values[0, largest], target.errors[0, largest]
    label = f"{value:+#.3g} ±{error:.2g}".replace("-", "−")
    assert label in " ".join(row_lines(target, 0)[2].split())
    assert f">{label}<" in waterfall(target, 0)
    assert "estimated from 8 orders" in contributions(permutations=8).meaning


def test_names_and_cells_stay_in_their_line() -> None:
    found = contributions()
    found.data[0, 1] = "a\x1b[31m\nb"
    given = {field.name: getattr(found, field.name) for field in fields(Contributions)}
    told = replace(found.told, columns=("a\nge", "ci\x1bty", "size"))
    odd = Contributions(**given | {"told": told})  # where shap is there, `replace` would make its own object
    assert len(str(odd).splitlines()) == len(str(found).splitlines())
    assert not any("\x1b" in each for each in (str(odd), odd._repr_html_()))


def test_wide_letters_are_aligned_as_a_terminal_shows_them(target: Target) -> None:
    cells = target.cells.copy()
    cells[0, 0], cells[0, 3] = "東京", "ab"
    wide = replace(target, columns=("年齢", "size", "都市", "x"), cells=cells)
    for lines, bar in ((row_lines(wide, 0)[2:-1], "│"), (mean_lines(wide)[2:], "█")):
        assert len({cell_len(line[: line.index(bar)]) for line in lines}) == 1, lines


def test_a_notebook_shows_the_waterfall() -> None:
    shown = contributions()._repr_html_()
    assert shown.count("<svg") == 2
    assert "row 0: y = " in shown
    assert contributions(targets=2)._repr_html_().count("<svg") == 4
