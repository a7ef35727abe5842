"""A refusal for parity names rows, columns and the cause."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

from triton_regressors import ExportError, export, lowers
from triton_regressors.exporter.evidence import difference
from triton_regressors.exporter.lowering.registry import _LOWERINGS

ROWS = 200
rng = np.random.default_rng(0)
NUMBERS = rng.standard_normal((ROWS, 3))
CITIES = rng.integers(0, 3, ROWS)


def towns(missing: Any, names: tuple[str, str] = ("Bern", "Genf")) -> pd.DataFrame:
    """Return a table whose column 'city' holds two strings and one kind of missing value."""
    cells = np.array([*names, missing], dtype=object)[CITIES]
    return pd.DataFrame({"size": NUMBERS[:, 0], "city": pd.Series(cells, dtype=object), "age": NUMBERS[:, 1]})


def fitted(missing: Any) -> Any:
    encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    return make_pipeline(encoded, Ridge()).fit(towns(missing), NUMBERS[:, 0] + 2.0 * CITIES)


def refusal(estimator: Any, folder: Path, **options: Any) -> str:
    with pytest.raises(ExportError) as refused:
        export(estimator, folder, **options)
    assert not list(folder.iterdir())
    return str(refused.value)


@pytest.mark.parametrize(
    ("known", "given", "spelt"), [(None, np.nan, "NaN"), (np.nan, None, "None"), (None, pd.NA, "pd.NA")]
)
def test_another_kind_of_missing_value_is_named(tmp_path: Path, known: Any, given: Any, spelt: str) -> None:
    assert export(fitted(known), tmp_path / "same", sample=towns(known)).compilation.report.within
    (tmp_path / "other").mkdir()
    said = refusal(fitted(known), tmp_path / "other", sample=towns(given))
    rows = np.flatnonzero(CITIES == 2)
    assert f"{len(rows)} of 200 rows of the sample differ: {rows[0]}, {rows[1]}, {rows[2]} and" in said
    assert "The column 'city' makes the difference" in said
    assert f"Cause: the row holds {spelt} in column 'city'." in said
    fit = "None" if known is None else "NaN"
    assert f"With {fit} in its place the two agree: the model was fitted with that." in said


class Wrong(Ridge):
    """A model whose lowering, below, is wrong where the third column is positive."""

    def predict(self, X: Any) -> np.ndarray:
        X = np.asarray(X, dtype=np.float64)
        found: np.ndarray = super().predict(X) + np.maximum(X[:, 2], 0.0)
        return found


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Wrong, None)

    @lowers(Wrong)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.affine(x, estimator.coef_, estimator.intercept_)


@pytest.mark.parametrize("frame", [False, True])
def test_a_column_that_makes_the_difference_is_named(tmp_path: Path, wrong: None, frame: bool) -> None:
    X: Any = pd.DataFrame(NUMBERS, columns=["size", "age", "height"]) if frame else NUMBERS
    y = NUMBERS @ [1.0, 2.0, 0.0]
    said = refusal(Wrong().fit(X, y), tmp_path, sample=X)
    positive = np.flatnonzero(NUMBERS[:, 2] > 1e-3)
    worst = int(np.argmax(NUMBERS[:, 2]))
    assert f"of 200 rows of the sample differ: {positive[0]}, " in said
    assert f"In row {worst} the estimator answers " in said
    assert f"The column {chr(39) + 'height' + chr(39) if frame else 2} makes the difference" in said
    assert "None of the usual causes explains it" in said


class LastBit(RegressorMixin, BaseEstimator):
    """A regressor of a user's own, whose last bits are other ones than its lowering's."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "LastBit":
        bins = KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf")
        self.model_, self.n_features_in_ = make_pipeline(bins, Ridge()).fit(X, y), X.shape[1]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.model_.predict(np.nextafter(X, -np.inf))
        return found


def test_a_row_on_a_threshold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, LastBit, None)
    lowers(LastBit)(lambda estimator, x, builder: builder.lower(estimator.model_, x))
    model = LastBit().fit(NUMBERS, NUMBERS[:, 1])
    sample = NUMBERS.copy()
    edge = sample[40, 1] = model.model_[0].bin_edges_[1][2]
    said = refusal(model, tmp_path, sample=sample)
    assert "1 of 200 rows of the sample differ: 40 (counted from 0)." in said
    assert "The column 1 makes the difference" in said
    assert "Cause: the row lies on a threshold of the model." in said
    assert f"is {np.nextafter(edge, 9):.17g} and not {edge:.17g}." in said
    assert "ties='accept' (--ties accept) exports the model and leaves such rows out of the parity" in said
    assert 'sample.astype("float32") exports it for float32 rows instead' in said


def test_many_columns_are_halved(tmp_path: Path, wrong: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "MOST_COLUMNS", 4)
    X = rng.standard_normal((60, 50))
    assert "The column 2 makes the difference" in refusal(Wrong().fit(X, X[:, 0]), tmp_path, sample=X)


def test_drawn_rows_are_called_so(tmp_path: Path, wrong: None) -> None:
    said = refusal(Wrong().fit(NUMBERS, NUMBERS[:, 0]), tmp_path)
    assert "rows of the drawn rows differ" in said


class Everywhere(Wrong):
    def predict(self, X: Any) -> np.ndarray:
        found: np.ndarray = Ridge.predict(self, X) + 1.0
        return found


def test_where_no_row_is_answered_alike_no_column_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Everywhere, None)
    lowers(Everywhere)(lambda estimator, x, builder: builder.affine(x, estimator.coef_, estimator.intercept_))
    said = refusal(Everywhere().fit(NUMBERS, NUMBERS[:, 0]), tmp_path, sample=NUMBERS)
    assert "200 of 200 rows of the sample differ: 0, 1, 2 and 197 more" in said
    assert "No row is answered alike" in said


class Careful(RegressorMixin, BaseEstimator):
    """A regressor of a user's own that answers less where it does not know the city; its lowering forgot that."""

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "Careful":
        encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
        self.model_ = make_pipeline(encoded, Ridge()).fit(X, y)
        self.feature_names_in_, self.n_features_in_ = X.columns.to_numpy(), X.shape[1]
        self.known_ = set(X["city"])
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        found: np.ndarray = self.model_.predict(X) - 5.0 * ~X["city"].isin(self.known_)
        return found


def test_an_unknown_category_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Careful, None)
    lowers(Careful)(lambda estimator, x, builder: builder.lower(estimator.model_, x))
    sample = towns("Thun")
    model = Careful().fit(sample, NUMBERS[:, 0] + 2.0 * CITIES)
    sample.loc[[7, 30], "city"] = "Chur"
    said = refusal(model, tmp_path, sample=sample)
    assert "2 of 200 rows of the sample differ: 7 and 30 (counted from 0)." in said
    assert "The column 'city' makes the difference" in said
    assert said.endswith("Cause: 'Chur' is not a category that the model knows in column 'city'.")


def test_rounding_that_the_user_asked_for_is_no_cause(tmp_path: Path) -> None:
    """Without a wish FP64 is taken where rounding moves answers; with one parity is that of the rounded rows."""
    X = 1e9 + NUMBERS
    model = HistGradientBoostingRegressor(max_iter=5).fit(X, NUMBERS[:, 0])
    rounded = export(model, tmp_path / "fp32", sample=X, input="fp32").compilation.report
    assert rounded.within
    assert rounded.outputs["y"].max_error > 0.1
    kept = export(model, tmp_path / "auto", sample=X).compilation
    assert (kept.inputs.dtype, kept.report.within) == ("float64", True)


def test_numbers_in_place_of_strings_are_named_by_their_types(tmp_path: Path) -> None:
    model = fitted("3")
    known = export(model, tmp_path / "same", sample=towns("3"))
    assert known.compilation.report.within
    (tmp_path / "other").mkdir()
    said = refusal(model, tmp_path / "other", sample=towns(3))
    assert "The column 'city' makes the difference" in said
    assert said.endswith(
        "Cause: the estimator answers the row's values in their own types (int) differently than as float64 numbers "
        "and strings, which an entry gets."
    )
