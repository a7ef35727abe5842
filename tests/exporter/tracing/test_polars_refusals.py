"""Own code in polars that cannot be traced: the message names line, reason and remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tests.exporter.tracing.plans import Traced
from tests.exporter.tracing.test_polars import a, b, city, grade, k, table, when
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.tracing.trace import NotTraced

IN_FIT = ("depends on other rows", "Compute such numbers in fit")
EVERY_ROW = ("An entry answers every row",)
LATER = (a - a.mean()) / a.std()


def from_the_second_line(t):
    out = t.with_columns(r=pl.col("a") / pl.col("b"))
    return out.with_columns(before=pl.col("r").shift(1))


REFUSED: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "mean": (lambda t: t.select(a - a.mean()), ("calls mean", *IN_FIT)),
    "expression made before": (lambda t: t.select(LATER), ("calls mean", *IN_FIT)),
    "mean of a column": (lambda t: t.select(a - t["a"].mean()), ("calls mean", *IN_FIT)),
    "shift": (from_the_second_line, ("line 27", "`return out.with_columns(before=", "calls shift", *IN_FIT)),
    "rank": (lambda t: t.select(a.rank()), ("calls rank", *IN_FIT)),
    "over": (lambda t: t.select(a.mean().over("k")), ("calls over", *IN_FIT)),
    "sum so far": (lambda t: t.select(a.cum_sum()), ("calls cum_sum", *IN_FIT)),
    "rolling": (lambda t: t.select(a.rolling_mean(3)), ("calls rolling_mean", *IN_FIT)),
    "filled forward": (lambda t: t.select(b.forward_fill()), ("fill_null_with_strategy", *IN_FIT)),
    "number of rows": (lambda t: t.select(a / pl.len()), ("calls len", *IN_FIT)),
    "sum of a table": (lambda t: t.select("a").sum(), ("calls sum", *IN_FIT)),
    "filter": (lambda t: t.filter(a > 0), ("keeps the rows for which", *EVERY_ROW)),
    "without nulls": (lambda t: t.select("a", "b").drop_nulls(), ("keeps the rows for which", *EVERY_ROW)),
    "sort": (lambda t: t.sort("a"), ("sorts the rows", *EVERY_ROW)),
    "distinct": (lambda t: t.unique(), ("keeps distinct rows", *EVERY_ROW)),
    "groups": (lambda t: t.group_by("k").agg(a.mean()), ("groups the rows", *EVERY_ROW)),
    "first rows": (lambda t: t.lazy().head(3).collect(), ("another number of rows",)),
    "rows of a table": (lambda t: t[t["a"] > 0], ("selects rows", *EVERY_ROW)),
    "tables below each other": (lambda t: pl.concat([t, t]), ("below each other",)),
    "join": (lambda t: t.join(pl.DataFrame({"k": [1]}), on="k"), ("joins tables", "replace_strict")),
    "function of values": (
        lambda t: t.select(a.map_elements(lambda v: v * 2, return_dtype=pl.Float64)),
        ("map_elements", "in expressions of polars"),
    ),
    "numpy's function of two": (lambda t: t.select(np.hypot(pl.col("a"), pl.col("b"))), ("numpy.hypot",)),
    "dummies": (lambda t: t.select("city").to_dummies(), ("DataFrame.to_dummies", "Use select")),
    "rows in Python": (lambda t: list(t.iter_rows()), ("DataFrame.iter_rows",)),
    "values in Python": (lambda t: t["a"].to_list(), ("into Python", "Use expressions")),
    "branch": (lambda t: t if t["a"].is_null().any() else t.select("a"), ("decides by the values", "pl.when")),
    "single value": (lambda t: t.select(a - t["a"][0]), ("single values",)),
    "operators of tables": (lambda t: t.select("a", "b") * 2, ("whole tables", "pl.all() * 2")),
    "own values": (lambda t: t.with_columns(pl.Series("x", np.arange(t.height))), ("one for each row",)),
    "constants alone": (lambda t: t.select(pl.lit(1.0)), ("constants alone",)),
    "strings joined": (lambda t: t.select(city + grade.cast(pl.String)), ("joins two columns of strings",)),
    "text of numbers": (lambda t: t.select(k.cast(pl.String)), ("makes text of numbers",)),
    "text of dates": (lambda t: t.select(when.dt.strftime("%Y")), ("dt.ToString",)),
    "dates of text": (lambda t: t.select(city.str.to_date("%Y")), ("str.Strptime",)),
    "order of strings": (lambda t: t.select(city > "B"), ("by their order",)),
    "struct": (lambda t: t.select(pl.struct("a", "b")), ("as_struct",)),
    "integers without a sign": (
        lambda t: t.select(k.cast(pl.UInt64, strict=False) - 5),
        ("integers without a sign", "Cast them to Int64"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(NotTraced) as refused:
        Traced(function, table())
    message = str(refused.value)
    assert all(word in message for word in words), message
    assert "test_polars_refusals.py" in message, message


MIXED = pl.DataFrame({"a": [1.0, None, float("nan"), 4.0] * 9, "b": np.arange(36.0)})


def test_null_beside_nan_is_refused_where_code_computes_with_the_column() -> None:
    with pytest.raises(NotTraced, match=r"may hold both null and NaN.*fill_nan\(None\)"):
        Traced(lambda t: t.select(pl.col("a").fill_null(0)), MIXED)
    handed_on = Traced(lambda t: t.select("a", pl.col("b") * 2), MIXED)
    np.testing.assert_array_equal(handed_on.transform(MIXED)[:, 1], MIXED["b"].to_numpy() * 2)


def test_the_error_of_an_export_names_step_line_and_ways_out() -> None:
    X, y = table().select("a", "k", "b").fill_null(0), np.arange(len(table()))
    model = make_pipeline(
        FunctionTransformer(from_the_second_line), FunctionTransformer(lambda t: t.fill_null(0)), Ridge()
    )
    with pytest.raises(ExportError) as refused:
        compile_estimator(model.fit(X.with_columns(b=1.0), y), sample=X.with_columns(b=1.0))
    message = str(refused.value)
    assert message.startswith(
        "Cannot export FunctionTransformer (step 'functiontransformer-1'): its func cannot be exported: line "
    )
    assert "docs/own_code.md" in message


@pytest.mark.parametrize("function", [lambda t: t.with_columns(x=a * 2), lambda t: t.select(a / b)])
def test_a_sample_of_pandas_asks_for_one_of_polars(function: Callable[[Any], Any]) -> None:
    X = table().select("a", "b").fill_null(0)
    model = make_pipeline(FunctionTransformer(function), Ridge()).fit(X.with_columns(b=1.0), np.arange(len(X)))
    with pytest.raises(ExportError, match="give a DataFrame of polars as sample"):
        compile_estimator(model, sample=X.to_pandas())


def test_polars_is_as_before_after_a_trace() -> None:
    names = {pl.DataFrame: ("__init__", "lazy"), pl.LazyFrame: ("collect", "_collect_eager"), pl: ("concat",)}
    names[pl.Expr] = ("__array_ufunc__", "to_numpy", "to_frame", "to_list", "__iter__", "__array__")
    before = {(owner, name): getattr(owner, name, None) for owner, own in names.items() for name in own}
    Traced(lambda t: t.select(a * 2), table())
    assert all(getattr(owner, name, None) is held for (owner, name), held in before.items())
    assert pl.DataFrame({"a": [1, 2]}).select(pl.col("a") * 2)["a"].to_list() == [2, 4]
    assert isinstance(pd.Series([1.0]).sum(), float)
