"""Neighbours at equal distance: refused by name, with their share, and exported where the user accepts them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.impute import KNNImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.documents import golden_of
from triton_regressors import ExportError, export, load, lowers
from triton_regressors.exporter.compiler import compile_estimator
from triton_regressors.exporter.evidence.ties import tied_rows
from triton_regressors.exporter.lowerings.neighbors import lower_k_neighbors
from triton_regressors.exporter.registry import _LOWERINGS
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.plan.plan import load_plan

rng = np.random.default_rng(0)
X, SAMPLE = (rng.integers(0, 5, (rows, 4)).astype(np.float64) for rows in (600, 500))
y = rng.standard_normal(600)
HOLES = np.where(rng.random(X.shape) < 0.2, np.nan, X)

MODELS: dict[str, Any] = {
    "kd_tree": lambda: KNeighborsRegressor(algorithm="kd_tree"),
    "ball_tree": lambda: KNeighborsRegressor(algorithm="ball_tree"),
    "brute": lambda: KNeighborsRegressor(algorithm="brute"),
    "manhattan": lambda: KNeighborsRegressor(metric="manhattan"),
    "by distance": lambda: KNeighborsRegressor(weights="distance"),
    "scaled": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor()),
    "a graph": lambda: make_pipeline(KNeighborsTransformer(mode="connectivity"), Ridge()),
}


def differing(estimator: Any, entry: Path, rows: np.ndarray) -> np.ndarray:
    """Return which rows an entry answers otherwise than its estimator."""
    found = Runner(load_plan(entry), engine="torch").predict(rows.astype(np.float32))["y"]
    differs: np.ndarray = np.abs(found[:, 0] - estimator.predict(rows)) > 1e-5
    return differs


@pytest.mark.parametrize("name", MODELS)
def test_ties_are_refused_by_name_and_exported_where_accepted(tmp_path: Path, name: str) -> None:
    estimator = MODELS[name]().fit(X, y)
    with pytest.raises(ExportError) as refused:
        export(estimator, tmp_path, name="ties", sample=SAMPLE)
    assert not list(tmp_path.iterdir())
    result = export(estimator, tmp_path, name="ties", sample=SAMPLE, ties="accept")
    count = int(differing(estimator, result.entry.version_directory, SAMPLE).sum())
    assert count > 0
    share = f"({100 * count / 500:.3g} % of the rows)"
    assert f"{count} of 500 rows of the sample differ" in str(refused.value)
    assert f"in all of them {share} several training points are equally near" in str(refused.value)
    assert "ties='accept' (--ties accept)" in str(refused.value)
    parity = read_document(result.entry.version_directory).parity
    assert parity.rows == 500 - count
    assert parity.ties is not None
    assert parity.ties.startswith(f"Ties: in {count} of 500 rows")
    assert any(note.startswith("Ties: ") for note in result.contract.notes())
    golden = golden_of(result.entry.version_directory)
    found = Runner(load_plan(result.entry.version_directory), engine="torch").predict(golden.X)["y"]
    assert np.abs(found - golden.outputs["y"]).max() < 1e-5


class Raised(KNeighborsRegressor):
    """A regressor whose lowering, below, is wrong for every row."""

    def predict(self, X: Any) -> Any:
        return super().predict(X) + 0.01


def test_what_differs_for_another_reason_is_refused_although_ties_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_LOWERINGS, Raised, None)
    lowers(Raised)(lower_k_neighbors)
    draw = np.random.default_rng(2)
    with pytest.raises(ExportError, match="500 of 500 rows of the sample differ") as refused:
        export(Raised().fit(draw.random(X.shape), y), tmp_path, sample=draw.random(SAMPLE.shape), ties="accept")
    assert "several training points" not in str(refused.value)


def test_rows_without_ties_say_nothing_of_them(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((50, 4))
    for ties in ("refuse", "accept"):
        report = compile_estimator(KNeighborsRegressor().fit(X, y), sample=rows, ties=ties).report
        assert (report.ties, report.rows) == (None, 50)


def test_an_imputer_that_refuses_nan_for_ties_says_so(tmp_path: Path) -> None:
    estimator = make_pipeline(KNNImputer(), Ridge()).fit(HOLES, X @ np.arange(1.0, 5.0))
    closed = export(estimator, tmp_path, name="closed", sample=SAMPLE)
    assert not closed.compilation.nan_columns
    assert any("Requests with NaN are refused, though the estimator fills it" in n for n in closed.contract.notes())
    opened = export(estimator, tmp_path, name="opened", sample=SAMPLE, ties="accept")
    assert opened.compilation.nan_columns == [0, 1, 2, 3]
    assert not any("NaN are refused" in note for note in opened.contract.notes())
    with pytest.raises(ExportError, match=r"Cause: in all of them \(.* % of the rows\) several training points"):
        export(estimator, tmp_path, name="holes", sample=HOLES)
    assert export(estimator, tmp_path, name="holes", sample=HOLES, ties="accept").compilation.report.within


def test_an_imputer_takes_nan_where_the_sample_holds_it_without_ties(tmp_path: Path) -> None:
    """Rows of the sample are no ties, and rows of more NaN are: of three integers alone many donors are as near."""
    draw = np.random.default_rng(3)
    table = np.column_stack([draw.normal(0, 5, (600, 2)), draw.integers(0, 3, (600, 3))])
    holes = table.copy()
    holes[np.arange(600), draw.integers(0, 4, 600)] = np.nan
    estimator = make_pipeline(KNNImputer(), Ridge()).fit(table[:400], y[:400])
    done = export(estimator, tmp_path, name="given", sample=holes[400:])
    assert done.compilation.nan_columns == [0, 1, 2, 3]
    assert any("NaN only in the columns in which the sample does" in note for note in done.contract.notes())
    assert np.isnan(golden_of(done.entry.version_directory).X).any(axis=1).all()
    found = load(done.entry.directory, device="cpu").predict(holes[400:])
    assert np.abs(found - estimator.predict(holes[400:])).max() < 1e-5


def test_tied_rows_are_those_whose_nearest_points_are_no_one_set() -> None:
    points, targets = np.array([[0.0], [2.0], [4.0], [9.0]]), np.array([1.0, 2.0, 3.0, 4.0])
    plan = compile_estimator(KNeighborsRegressor(2).fit(points, targets), sample=points + 0.1).plan
    # The second and the third nearest point of 2 are equally far; of 0 and of 3 the two nearest are one set.
    assert tied_rows(plan, np.array([[2.0], [0.0], [3.0]], dtype=plan.dtype)).tolist() == [True, False, False]
    assert not tied_rows(compile_estimator(Ridge().fit(points, targets), sample=points).plan, points).any()


def test_ties_is_one_of_two_words(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^ties must be one of refuse, accept, not 'maybe'\.$"):
        export(KNeighborsRegressor().fit(X, y), tmp_path, ties="maybe")


def test_nothing_is_exported_when_no_row_could_be_verified(tmp_path: Path) -> None:
    estimator = KNeighborsRegressor().fit(X, y)
    entry = export(estimator, tmp_path, name="some", sample=SAMPLE, ties="accept").entry
    tied = SAMPLE[differing(estimator, entry.version_directory, SAMPLE)][:5]
    with pytest.raises(ExportError, match="no row is left to verify the entry with"):
        export(estimator, tmp_path, name="none", sample=tied, ties="accept")
    assert [path.name for path in tmp_path.iterdir()] == ["some"]
