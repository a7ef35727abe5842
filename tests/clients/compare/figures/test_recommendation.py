import pytest

from tests.clients.compare.points import figures, point
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.recommendation import best_point
from triton_regressors.clients.compare.load.generator import Load


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
