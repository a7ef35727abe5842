"""Calendar dates against the standard library and NumPy."""

import datetime

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from triton_regressors.kernels.numerics.civil_dates import MOST_DAYS, PARTS
from triton_regressors.kernels.ops.columns import expression
from triton_regressors.kernels.ops.columns.expression import Expression

DATES = Expression(tuple(((f"civil_{part}", "x0"),) for part in PARTS), np.ones(3, dtype=np.int32), np.zeros(3, int))


def by_numpy(days: np.ndarray) -> np.ndarray:
    dates = days.astype("datetime64[D]")
    years, months = (dates.astype(f"datetime64[{unit}]") for unit in "YM")
    day = (dates - months.astype("datetime64[D]")).astype(int) + 1
    return np.stack([years.astype(int) + 1970, months.astype(int) % 12 + 1, day], axis=1)


def check(days: np.ndarray, expected: np.ndarray, device: torch.device) -> None:
    x = np.asarray(days, dtype=np.float64)[:, None]
    assert np.array_equal(run_reference(DATES, [x]), expected, equal_nan=True)
    assert np.array_equal(run_on_cpu(DATES, [x]), expected, equal_nan=True)
    assert np.array_equal(run_kernel(DATES, [x], device, torch.float64), expected, equal_nan=True)


def test_every_day_of_800_years(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "EXPRESSION_BLOCK", 2**13)  # the interpreter takes its time for each program
    first, last = (datetime.date(year, 1, 1).toordinal() for year in (1600, 2401))
    dates = [datetime.date.fromordinal(day) for day in range(first, last)]
    expected = np.array([(date.year, date.month, date.day) for date in dates])
    check(np.arange(first, last) - datetime.date(1970, 1, 1).toordinal(), expected, device)


def test_days_of_a_million_years(device: torch.device) -> None:
    rng = np.random.default_rng(0)
    days = np.concatenate(
        [rng.integers(-110_000, 3_000_000, 3000), rng.integers(-(10**8), 10**8, 3000), [-719_529, -719_528, -1, 0, 59]]
    )
    check(days, by_numpy(days), device)


def test_days_that_are_none(device: torch.device) -> None:
    """A day begins at its whole number; numbers beyond every calendar and NaN have no date."""
    days = np.array([0.5, -0.5, 31.999, np.nan, np.inf, -np.inf, 1e300, MOST_DAYS + 1.0, -MOST_DAYS - 1.0])
    expected = np.array([[1970, 1, 1], [1969, 12, 31], [1970, 2, 1], *[[np.nan] * 3] * 6])
    check(days, expected, device)
    ends = np.array([float(-MOST_DAYS), float(MOST_DAYS)])
    check(ends, by_numpy(ends.astype(int)), device)
