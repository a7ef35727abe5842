"""Neighbours at equal distance: answered as a tree's search answers them, else refused by name or accepted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.impute import KNNImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.documents import golden_of
from triton_regressors import ExportError, export, load, lowers
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.estimators.neighbors import lower_k_neighbors
from triton_regressors.exporter.evidence.ties import tied_rows
from triton_regressors.exporter.lowering.registry import _LOWERINGS
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.tree_neighbors import TreeNeighbors
from triton_regressors.kernels.ops.neighbors.tree_search import search
from triton_regressors.kernels.plan.plan import load_plan

rng = np.random.default_rng(0)
X, SAMPLE = (rng.integers(0, 5, (rows, 4)).astype(np.float64) for rows in (600, 500))
y = rng.standard_normal(600)
HOLES = np.where(rng.random(X.shape) < 0.2, np.nan, X)

ALTERNATIVES: dict[str, Any] = {
    "brute": lambda: KNeighborsRegressor(algorithm="brute"),
    "brute and scaled": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor(algorithm="brute")),
    "more neighbours than a tree's search is repeated for": lambda: KNeighborsRegressor(64),
    "a graph": lambda: make_pipeline(KNeighborsTransformer(mode="connectivity"), Ridge()),
}
"""Models of which an entry takes other points."""

TREES: dict[str, Any] = {
    "by default": KNeighborsRegressor,
    "kd_tree": lambda: KNeighborsRegressor(3, algorithm="kd_tree", leaf_size=7),
    "ball_tree": lambda: KNeighborsRegressor(algorithm="ball_tree"),
    "manhattan": lambda: KNeighborsRegressor(metric="manhattan"),
    "cubed": lambda: KNeighborsRegressor(p=3),
    "hamming": lambda: KNeighborsRegressor(metric="hamming"),
    "by distance": lambda: KNeighborsRegressor(weights="distance"),
    "scaled": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor()),
    "the most neighbours": lambda: KNeighborsRegressor(63),
    "in parallel": lambda: KNeighborsRegressor(n_jobs=2),
}
"""Models whose search an entry repeats."""


def differing(estimator: Any, entry: Path, rows: np.ndarray) -> np.ndarray:
    """Return which rows an entry answers otherwise than its estimator."""
    found = Runner(load_plan(entry), engine="torch").predict(rows.astype(np.float32))["y"]
    differs: np.ndarray = np.abs(found[:, 0] - estimator.predict(rows)) > 1e-5
    return differs


@pytest.mark.parametrize("name", TREES)
def test_a_tree_s_choice_among_equally_near_points_is_the_entry_s(tmp_path: Path, name: str) -> None:
    """On the sample, and on whole numbers that no sample held."""
    estimator = TREES[name]().fit(X, y)
    result = export(estimator, tmp_path, name="ties", sample=SAMPLE)
    entry = result.entry.version_directory
    parity = read_document(entry).parity
    assert (parity.rows, parity.ties) == (500, None)
    others = np.random.default_rng(9).integers(-1, 7, (500, 4)).astype(np.float64)
    for rows in (SAMPLE, others):
        assert tied_rows(load_plan(entry), rows).mean() > 0.3
        assert not differing(estimator, entry, rows).any()


def test_a_tree_s_choice_is_that_of_the_kernels(tmp_path: Path) -> None:
    for estimator in (KNeighborsRegressor(), KNeighborsRegressor(algorithm="ball_tree", weights="distance")):
        plan = compile_estimator(estimator.fit(X, y), sample=SAMPLE).plan
        rows = SAMPLE[:8].astype(np.float32)
        found = Runner(plan, engine="interpret").predict(rows)["y"]
        assert np.abs(found[:, 0] - estimator.predict(SAMPLE[:8])).max() < 1e-6


def test_decimals_of_a_table_keep_their_order_too(tmp_path: Path) -> None:
    """Sums of rounded numbers that are equal on paper differ in their last places, as scikit-learn's sums do."""
    draw = np.random.default_rng(4)
    table, rows = draw.normal(size=(600, 3)).round(1), draw.normal(size=(400, 3)).round(1)
    estimator = KNeighborsRegressor().fit(table, y)
    entry = export(estimator, tmp_path, sample=rows).entry.version_directory
    found = Runner(load_plan(entry), engine="torch").predict(rows)["y"]
    assert np.abs(found[:, 0] - estimator.predict(rows)).max() < 1e-6


def test_a_table_without_ties_needs_no_tree() -> None:
    draw = np.random.default_rng(5)
    plan = compile_estimator(
        KNeighborsRegressor().fit(draw.random((300, 3)), y[:300]), sample=draw.random((50, 3))
    ).plan
    assert [type(step.operation) for step in plan.steps] == [Neighbors]


def test_a_search_that_is_not_scikit_learns_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release may search in another way: then the entry is what it is without a tree."""
    estimator = KNeighborsRegressor().fit(X, y)
    assert [type(step.operation) for step in compile_estimator(estimator, sample=SAMPLE).plan.steps] == [TreeNeighbors]

    def smallest(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        distance, index = search(*given)
        return distance, torch.arange(index.shape[1]).repeat(len(index), 1)

    monkeypatch.setattr("triton_regressors.exporter.search_tree.search", smallest)
    plan = compile_estimator(estimator, sample=SAMPLE, ties="accept").plan
    assert [type(step.operation) for step in plan.steps] == [Neighbors]


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_ties_are_refused_by_name_and_exported_where_accepted(tmp_path: Path, name: str) -> None:
    estimator = ALTERNATIVES[name]().fit(X, y)
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
    estimator = KNeighborsRegressor(algorithm="brute").fit(X, y)
    entry = export(estimator, tmp_path, name="some", sample=SAMPLE, ties="accept").entry
    tied = SAMPLE[differing(estimator, entry.version_directory, SAMPLE)][:5]
    with pytest.raises(ExportError, match="no row is left to verify the entry with"):
        export(estimator, tmp_path, name="none", sample=tied, ties="accept")
    assert [path.name for path in tmp_path.iterdir()] == ["some"]
