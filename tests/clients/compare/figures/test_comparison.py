from tests.clients.compare.points import figures, point
from triton_regressors.clients.compare.figures.comparison import Comparison


def test_a_comparison_is_shown_in_a_few_lines() -> None:
    points = [point(f"configuration {number}", figures(100 + number, 1)) for number in range(40)]
    lines = repr(Comparison("m", points, planned=41)).splitlines()
    assert lines[0] == "Comparison of m: 40 of 41 points"
    assert " ".join(line.strip() for line in lines[1:]) == Comparison("m", points).verdict()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 100


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
