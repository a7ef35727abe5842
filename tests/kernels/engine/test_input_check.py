"""The check of requests: every NaN and infinity is seen, wherever it stands, and allowed NaN is let through."""

import numpy as np
import pytest

from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.member_check import MemberAllowed
from triton_regressors.kernels.engine.staging import MANY_NUMBERS

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in dot")


def rows(count: int = 7, width: int = 5) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [(0, 0), (3, 2), (6, 4)])
@pytest.mark.parametrize("nan_columns", [(), (1,), (0, 2, 4), range(5)])
def test_every_place_is_seen(bad: float, position: tuple[int, int], nan_columns: tuple[int, ...]) -> None:
    allowed, X = Allowed(5, nan_columns), rows()
    assert allowed.holds(X.reshape(-1))
    assert allowed.first_wrong(X) is None
    X[position] = bad
    fine = bool(np.isnan(bad)) and position[1] in nan_columns
    assert allowed.holds(X.reshape(-1)) == fine
    assert allowed.first_wrong(X) == (None if fine else position)
    assert allowed.holds(X[: position[0]].reshape(-1))  # the rows before it


def test_an_infinity_beside_nan_is_seen() -> None:
    X = rows()
    X[2], X[4, 1] = np.nan, np.inf
    assert not Allowed(5, range(5)).holds(X.reshape(-1))
    assert Allowed(5, range(5)).first_wrong(X) == (4, 1)


def test_a_member_takes_no_unknown_category_where_its_model_refuses_them() -> None:
    X = np.zeros((6, 3), dtype=np.float32)
    X[:, -1] = [0, 1, 2, 0, 1, 2]
    X[[0, 1], 0] = X[2, 1] = -1
    closed = np.array([[False, False, False], [False, True, False], [True, False, False]])
    allowed = MemberAllowed(3, (), (2,), 3, np.ones((3, 3), dtype=bool), closed)
    assert allowed.holds(X.reshape(-1))
    assert allowed.first_wrong(X) is None
    for row, column in ((5, 0), (4, 1)):
        wrong = X.copy()
        wrong[row, column] = -1
        assert not allowed.holds(wrong.reshape(-1))
        assert allowed.first_wrong(wrong) == (row, column)
    X[3, -1] = -1  # no model: any answer to its categories will do, as its id is refused
    X[3, 1] = -1
    assert allowed.first_wrong(X) == (3, 2)


@pytest.mark.parametrize("count", [1, 64, 65, 300])
@pytest.mark.parametrize("number", [-1, -0.5, 2.5, 3, 1e9, 2.0**31, 2.0**32 + 1, -(2.0**31), np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_ends_with_the_number_of_a_member(dtype: type, number: float, count: int) -> None:
    allowed = MemberAllowed(3, range(3), (), 3, np.zeros((3, 3), dtype=bool))
    X = np.zeros((count, 3), dtype=dtype)
    X[:, -1] = np.arange(count) % 3
    X[0] = np.nan, 1e30, -0.0
    assert allowed.holds(X.reshape(-1))
    assert allowed.first_wrong(X) is None
    X[-1, -1] = number
    assert not allowed.holds(X.reshape(-1))
    assert allowed.first_wrong(X) == (count - 1, 2)


def test_huge_numbers_and_none() -> None:
    huge = np.finfo(np.float32).max
    X = np.array([[huge, -huge, huge, 1e-45, -0.0]] * 8, dtype=np.float32)
    for nan_columns in ((), (2,), range(5)):
        assert Allowed(5, nan_columns).holds(X.reshape(-1))
        assert Allowed(5, nan_columns).holds(X[:0].reshape(-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 2**20 - 1, 2**20, 2**21 + 5])
def test_every_place_of_many_rows_is_seen(place: int, dtype: type) -> None:
    X = np.zeros((2**11 + 3, 2**10), dtype=dtype)
    numbers = X.reshape(-1)
    assert Allowed(2**10, ()).holds(numbers)
    for bad in (np.inf, -np.inf, np.nan):
        numbers[place] = bad
        assert not Allowed(2**10, ()).holds(numbers)
    numbers[place], numbers[-1] = np.inf, -np.inf
    assert not Allowed(2**10, ()).holds(numbers)


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_huge_numbers_are_allowed(dtype: type, writable: bool) -> None:
    numbers = np.full(MANY_NUMBERS, np.finfo(dtype).max, dtype=dtype)  # their sum is infinite
    numbers.flags.writeable = writable
    assert Allowed(1, ()).holds(numbers)
