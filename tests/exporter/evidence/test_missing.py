"""A request may hold NaN only in columns in which the estimator accepts it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.documents import golden_of
from tests.exporter.data import diabetes, small
from triton_regressors import export
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.missing import QUESTIONS, _search
from triton_regressors.kernels.entry import read_document

X, y = small()


def imputed(*columns: int) -> Any:
    parts = ColumnTransformer([("some", SimpleImputer(), list(columns))], remainder=StandardScaler())
    return make_pipeline(parts, Ridge())


ESTIMATORS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "linear": (Ridge, []),
    "scaled": (lambda: make_pipeline(StandardScaler(), Ridge()), []),
    "imputed first": (lambda: make_pipeline(SimpleImputer(), StandardScaler(), Ridge()), [0, 1, 2, 3, 4]),
    "some columns imputed": (lambda: imputed(1, 4), [1, 4]),
    "all but one imputed": (lambda: imputed(0, 1, 3, 4), [0, 1, 3, 4]),
    "tree": (lambda: DecisionTreeRegressor(max_depth=3, random_state=0), [0, 1, 2, 3, 4]),
    "boosting": (lambda: HistGradientBoostingRegressor(max_iter=5), [0, 1, 2, 3, 4]),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_columns_that_may_be_nan(name: str) -> None:
    make, expected = ESTIMATORS[name]
    compilation = compile_estimator(make().fit(X, y), sample=X)
    assert compilation.nan_columns == expected
    holes = np.isnan(compilation.nan_sample.X)
    assert sorted(set(np.flatnonzero(holes.any(axis=0)))) == expected
    assert holes.any(axis=1).all()
    assert np.isfinite(compilation.nan_sample.expected["y"]).all()


def test_an_entry_proves_itself_on_rows_with_nan(tmp_path: Path) -> None:
    export(HistGradientBoostingRegressor(max_iter=5).fit(*diabetes()), tmp_path, name="boosting")
    golden = golden_of(tmp_path / "boosting" / "1")
    assert np.isnan(golden.X).any(axis=1).sum() == 4
    assert np.isfinite(golden.outputs["y"]).all()
    assert read_document(tmp_path / "boosting" / "1").nan_columns == tuple(range(10))


def test_a_sample_with_nan_is_taken_where_the_estimator_takes_it() -> None:
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    compilation = compile_estimator(HistGradientBoostingRegressor(max_iter=5).fit(holed, y), sample=holed)
    assert compilation.report.rows == len(holed)
    assert compilation.report.outputs["y"].within(1e-5)
    assert compilation.nan_columns == [0, 1, 2, 3, 4]


def test_the_search_asks_a_limited_number_of_questions() -> None:
    asked: list[int] = []

    def takes(columns: np.ndarray) -> bool:
        asked.append(len(columns))
        return False

    assert not len(_search(np.arange(100_000), takes))
    assert len(asked) == QUESTIONS
