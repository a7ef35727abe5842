"""Float32 tables: the plan answers what predict answers to them, wherever a decision follows a transformer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import KNNImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler

from tests.exporter.catalogue.cases_float32 import FITTED, FLOAT32, Float32Case, boosted, holed, mixed, numbers, targets
from triton_regressors import export
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import Float32Rows, read_document
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble


def answers(compilation: Compilation, table: Any) -> np.ndarray:
    """Return the plan's answers to a table of numbers, as a client sends it."""
    X = np.asarray(table, dtype=np.float64).astype(compilation.inputs.matrix_dtype)
    return Runner(compilation.plan, engine="torch", max_rows=len(X)).predict(X)["y"]


@pytest.mark.parametrize("name", FLOAT32)
def test_the_answer_is_predict_on_the_float32_table(name: str) -> None:
    case: Float32Case = FLOAT32[name]
    table = case.table()
    compilation = compile_estimator(case.fitted(), sample=table[:300])
    expected = case.expected()
    assert compilation.report.float32 is None
    single = [place for place, dtype in enumerate(pd.DataFrame(table).dtypes) if dtype == np.float32]
    assert list(compilation.inputs.float32 or ()) == single
    assert measure(answers(compilation, table), expected, units(expected)).within(1e-6)  # rows beyond the sample too


def test_the_cases_can_fail() -> None:
    """The answers to the same tables as float64 are others, so that float64 arithmetic would not do."""
    moved = 0
    for name in ("standard", "robust", "min-max", "log1p", "power-yeo-johnson", "standard-xgboost", "columns-mixed"):
        case = FLOAT32[name]
        table = case.table()
        wide = (
            table.astype(dict.fromkeys("abcd", np.float64)) if hasattr(table, "columns") else table.astype(np.float64)
        )
        found = np.asarray(case.fitted().predict(wide), dtype=np.float64).reshape(-1, 1)
        moved += not measure(found.astype(np.float32), case.expected(), units(case.expected())).within(1e-3)
    assert moved == 7


def test_a_float64_sample_changes_no_plan() -> None:
    model = FLOAT32["standard"].fitted()
    for sample in (None, numbers().astype(np.float64)):
        compilation = compile_estimator(model, sample=sample)
        (scale, trees) = (step.operation for step in compilation.plan.steps)
        assert isinstance(scale, Scale)
        assert not scale.single
        assert isinstance(trees, TreeEnsemble)
        assert compilation.inputs.float32 is None
        assert compilation.report.float32 is None


def test_only_sums_follow() -> None:
    """A linear model needs no rounding: its plan is the one of a float64 sample."""
    model = make_pipeline(StandardScaler(), Ridge()).fit(numbers(), targets())
    compilation = compile_estimator(model, sample=numbers())
    (step,) = compilation.plan.steps
    assert isinstance(step.operation, Affine)
    assert compilation.inputs.float32 == tuple(range(6))
    assert compilation.report.outputs["y"].within(1e-5)


def test_float64_rows_of_a_mixed_table_are_rounded_in_the_plan() -> None:
    """If a float64 column needs FP64, the float32 columns beside it are rounded as `astype` rounds them."""
    case = FLOAT32["whole-table"]
    compilation = compile_estimator(case.fitted(), sample=mixed()[:300], input="fp64")
    first = compilation.plan.steps[0].operation
    assert isinstance(first, Float32)
    assert first.rounded.tolist() == [1, 1, 1, 1, 0, 0, 0]
    wide = np.asarray(mixed(), dtype=np.float64)
    nudged = wide + np.array([1e-9, -1e-9, 1e-9, -1e-9, 0, 0, 0]) * wide
    assert (nudged[:, :4].astype(np.float32) == wide[:, :4]).all()
    assert answers(compilation, nudged).tobytes() == answers(compilation, wide).tobytes()


@pytest.mark.parametrize("step", [PCA(3), Normalizer()], ids=["PCA", "Normalizer"])
def test_sums_before_a_decision_are_measured_and_said(step: Any, tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), step, boosted()).fit(numbers(), targets())
    done = export(model, tmp_path, name="summed", sample=numbers())
    single = model.predict(numbers())
    double = model.predict(numbers().astype(np.float64))
    error = np.abs(single - double) / double.std()
    found = read_document(tmp_path / "summed" / "1").parity.float32
    name = type(step).__name__
    assert found == Float32Rows(
        False, len(single), int((error > 1e-5).sum()), pytest.approx(error.max()), (f"{name} (step '{name.lower()}')",)
    )
    assert found.moved > 0
    assert measure(answers(done.compilation, numbers()), double.reshape(-1, 1), double.std()).within(1e-5)
    assert read_document(tmp_path / "summed" / "1").inputs.float32 is None
    said = " ".join(done.contract.text(200).split())
    assert (
        f"predict answers {found.moved:,} of {found.rows:,} rows of the sample differently in float32 than in float64"
        in said
    )
    assert f" {name} (step '{name.lower()}') computes in float32 before a decision, and the order " in said
    assert 'predict(sample.astype("float64"))' in said


@pytest.mark.parametrize("step", [PCA(3), Normalizer()], ids=["PCA", "Normalizer"])
def test_the_share_of_moved_answers_is_that_of_the_sample(step: Any) -> None:
    """Also where the entry answers the float32 rows of this sample: float64 rows may have other answers still."""
    model = make_pipeline(StandardScaler(), step, boosted()).fit(numbers(), targets())
    single, double = model.predict(numbers()), model.predict(numbers().astype(np.float64))
    plan = compile_estimator(model, sample=numbers()[single == double][:50])  # in which the plan rounds to float32
    followed = np.abs(answers(plan, numbers())[:, 0] - single) < 1e-6 * single.std()
    compilation = compile_estimator(model, sample=numbers()[followed])
    error = np.abs(single - double)[followed] / double[followed].std()
    found = compilation.report.float32
    assert found is not None
    assert found.answered
    assert (found.rows, found.moved) == (followed.sum(), (error > 1e-5).sum())
    assert found.moved > 50
    assert found.max_error == pytest.approx(error.max())
    assert (
        f"predict answers {found.moved} of {found.rows:,} rows of the sample differently in float32 than in float64, "
        f"by up to {error.max():.2g} standard deviations."
    ) in compilation.contract("shares").notes()


def test_rounding_that_matters_to_sums_is_kept() -> None:
    """Far from zero MinMaxScaler's product loses digits in float32, which a linear model shows."""
    far = numbers() + np.float32(10_000)
    model = make_pipeline(MinMaxScaler(), Ridge()).fit(far, targets())
    compilation = compile_estimator(model, sample=far)
    scale = compilation.plan.steps[0].operation
    assert isinstance(scale, Scale)
    assert scale.single
    assert compilation.report.float32 is None
    assert compilation.report.outputs["y"].within(1e-5)
    wide = model.predict(far.astype(np.float64))
    assert np.abs(wide - model.predict(far)).max() > 1e-4 * wide.std()


def test_float32_sums_that_miss_the_tolerance_are_said() -> None:
    """Far from zero a linear model's own float32 answer is off, without any decision."""
    far = numbers() + np.float32(10_000)
    compilation = compile_estimator(Ridge().fit(far, targets()), sample=far)
    found = compilation.report.float32
    assert found is not None
    assert not found.answered
    assert found.moved > 100
    assert found.sums == ()
    assert compilation.report.outputs["y"].within(1e-5)  # to float64 rows


def test_a_function_that_no_table_holds_is_named() -> None:
    model = make_pipeline(FunctionTransformer(np.log1p), KNeighborsRegressor(5)).fit(numbers(), targets())
    found = compile_estimator(model, sample=numbers()).report.float32
    assert found is not None
    assert found.sums == ("FunctionTransformer (step 'functiontransformer')",)


def test_categories_of_float32_columns_are_rounded_by_clients(tmp_path: Path) -> None:
    """A column that is float32 in the sample is rounded, categories or not: `0.1` finds the category `float32(0.1)`."""
    tenths = np.random.default_rng(0).choice([0.1, 0.2, 0.3], (200, 1)).astype(np.float32)
    model = make_pipeline(OneHotEncoder(), Ridge()).fit(tenths, tenths[:, 0] ** 2)
    done = export(model, tmp_path, name="tenths", sample=tenths)
    assert done.compilation.inputs.categorical == (0,)
    assert done.compilation.inputs.float32 == (0,)
    assert "categories" not in (tmp_path / "tenths" / "config.pbtxt").read_text()
    export(model, tmp_path, name="wide", sample=tenths.astype(np.float64))
    assert "categories" in (tmp_path / "wide" / "config.pbtxt").read_text()


def test_the_entry_says_for_which_table_it_is_exact(tmp_path: Path) -> None:
    case = FLOAT32["columns-mixed"]
    done = export(case.fitted(), tmp_path, name="exact", sample=mixed())
    written = json.loads((tmp_path / "exact" / "1" / "plan.json").read_text())
    assert written["inputs"]["float32"] == [0, 1, 2, 3]
    said = " ".join(done.contract.text(200).split())
    assert "Exact for a table with float32 in a, b, c, d" in said
    plain = export(case.fitted(), tmp_path, name="plain", sample=mixed().astype(dict.fromkeys("abcd", np.float64)))
    assert "float32" not in json.loads((tmp_path / "plain" / "1" / "plan.json").read_text())["inputs"]
    assert "Exact for a table" not in plain.contract.text(200)


def test_calibration_and_profile_ask_the_same_oracle() -> None:
    """Rows that come as float64 are asked as float32, as the entry's clients send them."""
    model = FLOAT32["standard"].fitted()
    wide = numbers().astype(np.float64) * (1 + 1e-9)
    both = [
        compile_estimator(model, sample=numbers()[:300], calibrate=(rows, targets()), profile=rows)
        for rows in (numbers(), wide)
    ]
    first, second = (each.interval for each in both)
    assert first is not None
    assert first == second
    assert both[0].profile is not None
    assert both[1].profile is not None
    assert np.array_equal(both[0].profile.low, both[1].profile.low)


def test_golden_rows_are_the_estimators_float32_answers() -> None:
    case = FLOAT32["standard"]
    golden = compile_estimator(case.fitted(), sample=numbers()).golden()
    kept = ~np.isnan(golden.X).any(axis=1)
    assert np.array_equal(golden.outputs["y"][kept], case.fitted().predict(golden.X[kept]).reshape(-1, 1))
    holes = compile_estimator(FLOAT32["scaler-nan"].fitted(), sample=holed()).golden()
    assert np.isnan(holes.X).any()
    assert np.array_equal(holes.outputs["y"], FLOAT32["scaler-nan"].fitted().predict(holes.X).reshape(-1, 1))


def test_neighbours_that_fill_numbers_in_are_measured() -> None:
    model = make_pipeline(KNNImputer(), HistGradientBoostingRegressor(max_iter=10)).fit(holed(), targets())
    found = compile_estimator(model, sample=holed()[:FITTED]).report
    assert found.outputs["y"].within(1e-5)
    assert found.float32 is not None
    assert found.float32.sums == ("KNNImputer (step 'knnimputer')",)
