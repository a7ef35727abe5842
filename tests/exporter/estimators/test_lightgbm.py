"""LightGBM's trees decide as it does: of adversarial rows, in float32 and in float64, and of any category."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lightgbm import Booster, Dataset, LGBMClassifier, LGBMModel, LGBMRanker, LGBMRegressor, train
from lightgbm.basic import LightGBMError

from docs.boosters import compare, count, library_of, variants
from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_lightgbm import grouped, lgbm, with_codes, with_pandas_categories
from tests.exporter.data import several_targets, small
from tests.kernels.operations import run_plan
from triton_regressors import ExportError, load_estimator
from triton_regressors.exporter.boosters.lightgbm_model import read_model
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.passes import specialise
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

NAMES = [name for name, case in variants().items() if library_of(case.estimator) == "lightgbm"]
PAIRS = 12_000
NEAREST = 0.5001
"""Units in the last place between LightGBM's float64 answer and a float32 that is taken for the nearest to it."""

pytestmark = pytest.mark.filterwarnings("ignore:categorical_feature keyword")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_is_lightgbms_and_every_answer_the_float32_nearest_to_its_own(name: str, dtype: str) -> None:
    found = count(name, CASES[name], PAIRS, dtype)
    assert found.pairs >= PAIRS
    assert found.wrong == 0
    assert found.ulp <= NEAREST


OPTIONS = st.fixed_dictionaries(
    {"num_leaves": st.sampled_from([2, 5, 20])},
    optional={
        "boosting_type": st.sampled_from(["dart", "gbdt"]),
        "categorical_feature": st.sampled_from([[1], [2], [1, 2]]),
        "extra_trees": st.booleans(),
        "linear_tree": st.booleans(),
        "max_bin": st.sampled_from([3, 16, 255]),
        "max_cat_to_onehot": st.sampled_from([1, 99]),
        "max_depth": st.sampled_from([1, 3]),
        "min_data_in_bin": st.sampled_from([1, 30]),
        "monotone_constraints": st.just([1, 0, 0, -1]),
        "objective": st.sampled_from(["regression_l1", "huber", "quantile"]),
        "path_smooth": st.sampled_from([0.5, 5.0]),
        "reg_alpha": st.sampled_from([0.1, 1e6]),
        "subsample": st.just(0.5),
        "use_missing": st.booleans(),
        "zero_as_missing": st.booleans(),
    },
).filter(lambda options: not (options.get("linear_tree") and options.get("zero_as_missing")))


@settings(max_examples=30, derandomize=True, database=None)
@given(options=OPTIONS, seed=st.integers(0, 99), narrow=st.booleans())
def test_whatever_the_options(options: dict[str, Any], seed: int, narrow: bool) -> None:
    X, y = with_codes()
    rng, dtype = np.random.default_rng(seed), "float32" if narrow else "float64"
    X = np.where(rng.random(X.shape) < 0.1, rng.choice([0.0, np.nan, 1e-35, -1e-35, 3e-35], X.shape), X)
    X[:, 1:3] = np.abs(X[:, 1:3])
    try:
        estimator = lgbm(n_estimators=5, **grouped, **options).fit(X.astype(dtype), y)
    except LightGBMError:  # it refuses some together
        assume(False)
    found = compare("drawn", estimator, X.astype(dtype), 1500, dtype, seed=seed)
    assert found.wrong == 0
    assert found.ulp <= NEAREST


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("lgbm-missing-nan", "float64"),
        ("lgbm-missing-zero", "float32"),
        ("lgbm-codes", "float32"),
        ("lgbm-missing-linear", "float64"),
    ],
)
def test_kernels_decide_likewise(name: str, dtype: str, engine: str) -> None:
    found = compare(name, *CASES[name].fitted(), 200, dtype, engine)
    assert found.wrong == 0
    assert found.ulp <= NEAREST


def test_a_wrong_leaf_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds rounded to the nearest float32, and not down, are found out."""
    monkeypatch.setattr(specialise, "round_down", lambda threshold: threshold.astype(np.float32))
    assert count("rounded", CASES["lgbm-quantile"], PAIRS).wrong > 0


@pytest.mark.parametrize("linear", [False, True])
def test_a_tree_of_one_leaf(linear: bool) -> None:
    X, y = small()
    estimator = lgbm(linear_tree=linear, reg_alpha=1e6).fit(X, y)
    assert read_model(estimator.booster_.model_to_string()).trees.sizes.tolist() == [1]
    assert compile_estimator(estimator, sample=X).report.outputs["y"].max_ulp <= 0.5001


def test_float32_thresholds_share_a_word_with_their_nodes() -> None:
    for name in ("lgbm-missing-nan", "lgbm-codes"):
        (step,) = compile_estimator(CASES[name].fitted()[0], input="fp32").plan.steps
        assert isinstance(step.operation, TreeEnsemble)
        assert step.operation.threshold.dtype == np.float32


def test_categories_by_the_hundreds() -> None:
    rng = np.random.default_rng(0)
    code = np.append(rng.integers(0, 2000, 4000), np.repeat(2015, 40))
    X = np.column_stack([code, rng.standard_normal(4040)])
    effect = rng.standard_normal(2016)
    estimator = lgbm(categorical_feature=[0], max_cat_threshold=999, max_bin=4000, min_data_in_bin=1, **grouped)
    estimator.fit(X, effect[code] + 0.1 * X[:, 1])
    model = read_model(estimator.booster_.model_to_string())
    assert model.trees.sets.shape[1] == 64  # its last bit is no category's
    rows = np.column_stack([np.arange(-40, 2100), np.zeros(2140)]).astype(np.float32)
    plan = specialise.specialise(lower(estimator).plan, "float32")
    np.testing.assert_allclose(run_plan(plan, rows)["y"][:, 0], estimator.predict(rows), rtol=1e-14)


def test_several_outputs_of_a_users_objective() -> None:
    X, y = several_targets()

    def each(_: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return found - y[:, :3], np.ones_like(found)

    estimator = lgbm(objective=each, num_class=3, metric="None").fit(X, y[:, 0])
    report = compile_estimator(estimator, sample=X).report.outputs["y"]
    assert estimator.predict(X).shape == (len(X), 3)
    assert report.max_ulp <= 0.5001


@pytest.mark.parametrize("objective", ["regression", "regression_l1", "huber", "fair", "quantile", "mape"])
@pytest.mark.parametrize("root", [False, True])
def test_every_objective_of_differences(objective: str, root: bool) -> None:
    X, y = small()
    estimator = lgbm(objective=objective, reg_sqrt=root).fit(X, y)
    assert compile_estimator(estimator, sample=X).report.outputs["y"].max_ulp <= 0.5001


class TestFiles:
    def test_a_file_is_the_model(self, tmp_path: Any) -> None:
        X, y = with_pandas_categories()
        for table in (X, X[["age", "income"]].to_numpy()):
            booster = train({"verbose": -1, "num_leaves": 7, "objective": "poisson"}, Dataset(table, y + 20), 6)
            booster.save_model(tmp_path / "model.txt", num_iteration=4)
            estimator = load_estimator(tmp_path / "model.txt")
            expected = booster.predict(table, num_iteration=4)
            assert (estimator.predict(table) == expected).all()
            compilation = compile_estimator(estimator, sample=table)
            assert compilation.report.outputs["y"].max_ulp <= 0.5001
            names = compilation.document().provenance.feature_names
            assert names == (tuple(X.columns) if table is X else ())

    def test_a_damaged_file_is_refused(self, tmp_path: Any) -> None:
        lgbm(n_estimators=1, num_leaves=3).fit(*small()).booster_.save_model(tmp_path / "model.txt")
        text = (tmp_path / "model.txt").read_text()
        children = next(line for line in text.splitlines() if line.startswith("right_child"))
        (tmp_path / "model.txt").write_text(text.replace(children, "right_child=0 -3"))
        with pytest.raises(ExportError, match="a node's child does not come after it in its tree"):
            load_estimator(tmp_path / "model.txt")


class TestPandasCategories:
    def test_strings_of_a_sample_are_its_categories(self) -> None:
        X, y = with_pandas_categories()
        estimator = lgbm(**grouped).fit(X, y)
        as_read = X.astype({"city": object, "size": object, "zone": float})
        a, b = (compile_estimator(estimator, sample=sample).sample for sample in (X, as_read))
        assert a.X.tobytes() == b.X.tobytes()
        assert (a.expected["y"] == b.expected["y"]).all()

    def test_codes_that_are_places_are_read_where_they_lie(self) -> None:
        X, y = with_pandas_categories()
        plan = compile_estimator(lgbm(**grouped).fit(X[["age", "city"]], y)).plan
        assert [type(step.operation) for step in plan.steps] == [TreeEnsemble]

    def test_columns_that_the_text_does_not_tell(self) -> None:
        X, y = with_pandas_categories()
        X = X.copy()
        X.insert(3, "rooms", np.arange(len(X)) % 3)  # which may be codes of the ordered column beside it
        assert refusal(lgbm().fit(X, y)) == (
            "Cannot export LGBMRegressor: more than one choice of columns may hold the categories that pandas knew, "
            "which the text names without their columns. Fit it on categories without an order, and without "
            "categorical_feature."
        )

    def test_categories_of_other_types(self) -> None:
        X, y = small()
        mixed = pd.Series(np.arange(len(X)) % 3).map({0: "none", 1: 1, 2: 2.5}).astype("category")
        estimator = lgbm().fit(pd.DataFrame(X, columns=list("abcde")).assign(mixed=mixed), y)
        reason = "column 'mixed' holds 1, of type int, beside strings; supported: strings, or numbers."
        assert reason in refusal(estimator)


def refusal(estimator: Any) -> str:
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator)
    return str(raised.value)


class TestRefusals:
    def test_what_is_no_regressor(self) -> None:
        X, y = small()
        options = {"n_estimators": 2, "verbose": -1, "n_jobs": 1}
        assert refusal(LGBMClassifier(**options).fit(X, y > 0)).startswith(
            "Cannot export LGBMClassifier: it is a classifier, and only regressors are exported. "
        )
        ranker = LGBMRanker(**options).fit(X, (y > 0).astype(int), group=[len(X)])
        assert refusal(ranker).startswith("Cannot export LGBMRanker: it ranks rows within their groups, and only")
        assert refusal(LGBMModel(objective="regression", **options).fit(X, y)) == (
            "Cannot export LGBMModel: it is a model of any objective, and only regressors are exported. Fit an "
            "LGBMRegressor with its parameters."
        )
        booster: Booster = lgbm().fit(X, y).booster_
        assert refusal(booster) == (
            "Cannot export Booster: it is a Booster of LightGBM, and not an estimator. Save it with save_model as a "
            ".txt file, and export that file."
        )
        assert refusal(lgbm(objective="binary").fit(X, y > 0)).startswith(
            "Cannot export LGBMRegressor: its objective is 'binary', which is not for regression; supported: regre"
        )
        assert refusal(LGBMRegressor()) == "Cannot export LGBMRegressor: it is not fitted; call fit first."

    def test_linear_trees_of_several_outputs(self) -> None:
        X, y = several_targets()

        def each(_: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return found - y[:, :2], np.ones_like(found)

        estimator = lgbm(objective=each, num_class=2, metric="None", linear_tree=True).fit(X, y[:, 0])
        assert "it has linear trees of several outputs" in refusal(estimator)
