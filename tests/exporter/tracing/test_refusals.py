"""Own code that cannot be traced: the message names line, reason and remedy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tests.exporter.tracing.own_code import houses, matrix
from tests.exporter.tracing.test_frames import table
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.tracing.trace import NotTraced

TABLE = {float(key): 2.0 * key for key in range(300)}


def branch(X):
    if X[0, 0] > 0:
        return X
    return -X


def constant_first_row(X):
    return X - X[0]


def sorted_rows(X):
    X.sort(axis=0)
    return X


def kept(X):
    return X[X[:, 0] > 0]


def reversed_rows(X):
    return X[::-1]


def looked_up(X):
    return np.array([[TABLE.get(value, 0.0) for value in row] for row in X])


def place_of_the_row(X):
    return np.column_stack([X, np.arange(len(X))])


def noise(X):
    return X + np.random.default_rng(0).normal(size=X.shape)


ARRAYS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "branch": (branch, ("line 2", "`if X[0, 0] > 0:`", "decides by the value of a cell", "numpy.where")),
    "mean": (lambda X: X - np.mean(X, axis=0), ("several rows", "Compute such numbers in fit")),
    "standardised": (lambda X: X / X.std(axis=0), ("several rows",)),
    "first row": (constant_first_row, ("several rows",)),
    "sort": (sorted_rows, ("it calls sort", "compares values")),
    "argsort": (lambda X: np.argsort(X, axis=1), ("argsort",)),
    "row filter": (kept, ("selects rows by their values", "fewer answers than rows")),
    "order": (reversed_rows, ("changes the order of rows",)),
    "fewer rows": (lambda X: X[:2], ("returns 2 rows for 5",)),
    "complex": (lambda X: np.array([[complex(v).real for v in row] for row in X]), ("Python number", "numpy or math")),
    "gcd": (lambda X: np.array([[math.gcd(v, 2) for v in row] for row in X]), ("Python number",)),
    "isclose": (lambda X: np.array([[math.isclose(v, 2) for v in row] for row in X]), ("math.isclose",)),
    "dictionary": (looked_up, ("in a set or a dictionary", "Series.map")),
    "number of the row": (place_of_the_row, ("the place of a row",)),
    "noise": (noise, ("the place of a row",)),
    "unknown function": (lambda X: np.linalg.inv(X.T @ X), ("inv",)),
    "quantile": (lambda X: np.quantile(X, 0.5, axis=0), ("numpy.quantile",)),
    "where without values": (lambda X: np.where(X > 0)[0], ("at which places", "both values")),
    "text": (lambda X: np.array([[str(v) for v in row] for row in X]), ("makes text of a number",)),
    "no table": (lambda X: X.tolist(), ("returns a value of type list", "Return an array or a DataFrame")),
    "own error": (lambda X: {}["nothing"], ("KeyError",)),
    "bits": (lambda X: X & 1, ("bitwise",)),
    "assigned rows": (lambda X: X.__setitem__((slice(0, 2), 0), 0.0) or X, ("the place of a row",)),
}

FRAMES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "branch": (lambda t: t[["a"]] if t["a"].mean() > 0 else t[["b"]], ("several rows",)),
    "group": (lambda t: t.groupby("k")[["a"]].transform("mean"), ("groupby", "other rows", "in fit")),
    "rolling": (lambda t: t[["a"]].rolling(3).mean(), ("rolling", "other rows")),
    "shift": (lambda t: t[["a"]].shift(), ("shift", "other rows")),
    "rank": (lambda t: t[["a"]].rank(), ("rank",)),
    "dropna": (lambda t: t[["c"]].dropna(), ("dropna", "changes the rows")),
    "sort_values": (lambda t: t[["a", "b"]].sort_values("a"), ("sort_values",)),
    "mask": (lambda t: t[t["a"] > 0][["a"]], ("keeps the rows",)),
    "query": (lambda t: t.query("a > 0")[["a"]], ("query",)),
    "dummies": (lambda t: pd.get_dummies(t["city"]), ("get_dummies", "OneHotEncoder")),
    "cut of numbers": (lambda t: pd.cut(t["a"], 4, labels=False).to_frame(), ("number of bins", "edges")),
    "qcut": (lambda t: pd.qcut(t["a"], 4, labels=False).to_frame(), ("qcut",)),
    "intervals": (lambda t: pd.cut(t["a"], [0, 1]).to_frame(), ("labels",)),
    "eval": (lambda t: t.eval("a * b").to_frame(), ("eval", "in Python")),
    "text of numbers": (lambda t: t["a"].astype(str).to_frame(), ("makes text of a float64 column", "whole numbers")),
    "text computed with": (lambda t: t["k"].astype(str).str.len().to_frame(), ("computes with the text of numbers",)),
    "codes": (lambda t: t[["a"]].assign(x=t["city"].astype("category").cat.codes), (".cat", "OrdinalEncoder")),
    "dates as text": (lambda t: t.assign(d=pd.Timestamp("2020-01-01")).d.dt.strftime("%Y").to_frame(), ()),
    "dates of strings": (lambda t: pd.to_datetime(t["city"]).to_frame(), ("reads dates from strings", "datetime64")),
    "two strings": (lambda t: (t["city"] + t["grade"].astype(str)).to_frame(), ("joins two columns of strings",)),
    "unknown part": (lambda t: t["city"].str.nothing().to_frame(), ("AttributeError",)),
    "numbers as strings": (lambda t: t["a"].str.len().to_frame(), ("uses a float64 column as strings",)),
    "value counts": (lambda t: t["k"].map(t["k"].value_counts()).to_frame(), ("value_counts", "in fit")),
}


def refusal(function: Callable[[Any], Any], rows: Any) -> str:
    from tests.exporter.tracing.plans import Traced

    with pytest.raises(NotTraced) as refused:
        Traced(function, rows)
    return str(refused.value)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    function, words = ARRAYS[name]
    message = refusal(function, matrix()[0][:, :4])
    assert all(word in message for word in words), message
    assert "test_refusals.py" in message or name in (
        "fewer rows",
        "order",
        "number of the row",
        "noise",
        "no table",
        "assigned rows",
    ), message


@pytest.mark.parametrize("name", [name for name in FRAMES if FRAMES[name][1]])
def test_frames(name: str) -> None:
    function, words = FRAMES[name]
    message = refusal(function, table())
    assert all(word in message for word in words), message


def test_the_error_of_an_export_names_step_line_and_ways_out() -> None:
    X, y = matrix()
    model = make_pipeline(FunctionTransformer(branch), Ridge()).fit(X, y)
    with pytest.raises(ExportError) as refused:
        compile_estimator(model, sample=X)
    message = str(refused.value)
    assert message.startswith(
        "Cannot export FunctionTransformer (step 'functiontransformer'): its func cannot be exported: line "
    )
    assert "docs/own_code.md" in message


class Renamed(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X["rooms"].astype(str).str.len().to_frame()


def test_a_class_is_named_with_its_line() -> None:
    X, y = houses()
    where = r"^Cannot export Renamed \(step 'renamed'\): .*, and line \d+ of test_refusals.py, `return X"
    with pytest.raises(ExportError, match=where):
        compile_estimator(make_pipeline(Renamed(), Ridge()).fit(X, y), sample=X)


def test_strings_without_a_sample_ask_for_one() -> None:
    X, y = houses()
    own = FunctionTransformer(lambda t: t[["area"]].assign(best=t["quality"] == "Ex"))
    with pytest.raises(ExportError, match=r"nothing tells that it holds them.*sample"):
        compile_estimator(make_pipeline(own, Ridge()).fit(X, y))


def test_pandas_and_numpy_are_as_before_after_a_trace() -> None:
    before = {
        name: getattr(pd.Series, name) for name in ("fillna", "str", "__getitem__", "_cmp_method") if name != "str"
    }
    functions = np.asarray, np.zeros, pd.isna, pd.cut
    refusal(branch, matrix()[0][:, :4])
    assert all(getattr(pd.Series, name) is method for name, method in before.items())
    assert (np.asarray, np.zeros, pd.isna, pd.cut) == functions
    assert not hasattr(pd.Series, "__array_function__")
