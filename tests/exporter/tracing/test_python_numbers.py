"""Python's own functions of single numbers in traced code: math, float, int, round, min and max."""

import math
from collections.abc import Callable
from math import asin, cos, radians, sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.tracing.plans import Traced


def table() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    n = 300
    return pd.DataFrame(
        {
            "a": rng.normal(0, 3, n),
            "b": np.abs(rng.normal(size=n)) + 0.1,
            "k": rng.integers(-5, 6, n),
            "latitude": rng.uniform(-80, 80, n),
            "longitude": rng.uniform(-180, 180, n),
        }
    )


def haversine(row: pd.Series) -> float:
    first, second = radians(row["latitude"]), radians(52.5)
    turn = radians(13.4) - radians(row["longitude"])
    h = math.sin((second - first) / 2) ** 2 + cos(first) * cos(second) * math.sin(turn / 2) ** 2
    return 2 * 6371.0 * asin(sqrt(h))


def banded(value: Any) -> int:
    if isinstance(value, float) and math.isnan(value):
        return -1
    return int(float(value) // 2)


def graded(row: pd.Series) -> float:
    return float(min(max(row["a"], -1), 2)) + abs(int(row["b"] * 3))


EXACT: dict[str, Callable[[pd.DataFrame], Any]] = {
    "root": lambda t: t[["a"]].assign(x=t.b.apply(math.sqrt), y=t.b.map(lambda v: sqrt(v) + math.fabs(-v))),
    "whole": lambda t: t[["a"]].assign(x=t.a.apply(math.floor), y=t.a.map(math.ceil), z=t.a.map(math.trunc)),
    "int": lambda t: t[["b"]].assign(x=t.a.apply(int), y=t.k.apply(float), z=t.a.map(lambda v: int(v) // 2)),
    "types": lambda t: t[["a", "k"]].astype(float).assign(x=t.a.astype(int), y=np.zeros(len(t), dtype=int) + t.k),
    "select": lambda t: t.select_dtypes(include=[float]),
    "branches": lambda t: t[["a"]].assign(x=t.a.apply(banded)),
    "rows": lambda t: t[["a"]].assign(x=t.apply(graded, axis=1)),
    "tests": lambda t: t[["a"]].assign(x=t.a.map(math.isnan), y=t.b.map(lambda v: 1 if math.isfinite(v) else 0)),
    "constants": lambda t: t[["a"]] * math.pi + math.floor(2.5) + int("3") + float("1.5") + math.log(2, 10),
    "remainder": lambda t: t[["a"]].assign(
        x=t.a.map(lambda v: math.fmod(v, 2)), y=t.a.map(lambda v: math.copysign(2, v))
    ),
}

NEAR: dict[str, Callable[[pd.DataFrame], Any]] = {
    "haversine": lambda t: t[["a"]].assign(x=t.apply(haversine, axis=1)),
    "logarithms": lambda t: t[["a"]].assign(
        x=t.b.map(math.log), y=t.b.map(lambda v: math.log(v, 2)), z=t.b.map(math.log10)
    ),
    "powers": lambda t: t[["a"]].assign(
        x=t.b.map(lambda v: math.pow(v, 1.7)), y=t.a.map(math.exp), z=t.b.map(math.erf)
    ),
    "angles": lambda t: t[["a"]].assign(x=t.a.map(lambda v: math.atan2(v, 2)), y=t.a.map(lambda v: math.hypot(v, 3))),
    "arrays": lambda t: np.array([[math.sin(v), math.tanh(w)] for v, w in t[["a", "b"]].to_numpy()]),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_has_the_bits_of_python(name: str) -> None:
    t = table()
    expected = np.asarray(EXACT[name](t), dtype=np.float64)
    np.testing.assert_array_equal(Traced(EXACT[name], t).transform(t), expected)


@pytest.mark.parametrize("name", NEAR)
def test_other_functions_are_accurate_to_the_last_digits(name: str) -> None:
    t = table()
    expected = np.asarray(NEAR[name](t), dtype=np.float64)
    np.testing.assert_allclose(Traced(NEAR[name], t).transform(t), expected, rtol=1e-13, atol=1e-13)


def test_a_number_at_which_python_raises_an_error_becomes_nan() -> None:
    t = table()
    ours = Traced(lambda t: t[["a"]].assign(x=t.b.map(math.log), y=t.a.map(math.exp), z=t.a.map(math.sqrt)), t)
    edges = t.iloc[:3].assign(a=[1e4, 1.0, -1.0], b=[0.0, -1.0, 1.0])
    found = ours.transform(edges)
    assert np.isnan(found[[0, 1], 1]).all()
    assert found[2, 1] == 0
    assert np.isnan(found[0, 2])
    assert np.isfinite(found[1:, 2]).all()
    assert np.isfinite(found[:2, 3]).all()
    assert np.isnan(found[2, 3])


def test_the_names_are_as_before_afterwards() -> None:
    t = table()
    Traced(EXACT["int"], t)
    assert "float" not in globals()
    assert "int" not in globals()
    assert math.sqrt is sqrt
    assert type(sqrt) is type(len)
