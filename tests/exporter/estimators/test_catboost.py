"""CatBoost's trees decide as it does: of adversarial rows, of strings that no row had, alone and in files."""

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoost, CatBoostClassifier, CatBoostError, CatBoostRanker, CatBoostRegressor, sum_models
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import StackingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from docs.boosters import compare, number_leaves
from tests.exporter.adversarial import adversarial_rows, edges_of
from tests.exporter.catalogue.cases_catboost import CATEGORIES, catboost, tenants, with_holes
from tests.exporter.catalogue.cases_text import NUMERIC
from triton_regressors.exporter.boosters import catboost as reading
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.estimators import catboost as lowering
from triton_regressors.exporter.estimators import catboost_categories
from triton_regressors.exporter.files.loading import load_estimator
from triton_regressors.exporter.lowering import tree_nodes
from triton_regressors.exporter.lowering.lower import lower, written_columns
from triton_regressors.exporter.lowering.tree_nodes import Trees, arrange
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

ROWS = 1500
NEAREST = 0.5 + 1e-6
"""Units in the last place between a float64 sum and the float32 nearest to another float64 sum of the same numbers."""

STRINGS = ("Paris", "Rome", "no city", "cook", "nurse", "Atlantis", "東京", "\N{REPLACEMENT CHARACTER}", "2", " ")
WHOLE = (-1, 0, 3, 6, 7, -7, 2**24 + 2)

DECISIONS: dict[str, dict[str, Any]] = {
    "symmetric": {"depth": 6, "iterations": 30},
    "deep": {"depth": 10, "iterations": 5},
    "few-borders": {"border_count": 3, "nan_mode": "Max"},
    "depthwise": {"grow_policy": "Depthwise", "depth": 6},
    "lossguide": {"grow_policy": "Lossguide", "max_leaves": 20, "nan_mode": "Max"},
    "one-hot": {"cat_features": CATEGORIES, "one_hot_max_size": 20},
    "combined": {"cat_features": CATEGORIES, "max_ctr_complexity": 4, "one_hot_max_size": 4, "depth": 6},
    "types": {
        "cat_features": CATEGORIES,
        "simple_ctr": ["Buckets", "BinarizedTargetMeanValue", "Borders:TargetBorderCount=4"],
        "one_hot_max_size": 1,
    },
    "nested-categories": {"cat_features": CATEGORIES, "grow_policy": "Lossguide", "one_hot_max_size": 4},
}


@functools.cache
def fitted(name: str) -> CatBoostRegressor:
    options = DECISIONS[name]
    return catboost(**options).fit(*(tenants if "cat_features" in options else with_holes)())


def adversarial(
    model: CatBoostRegressor, inputs: Inputs, ensemble: TreeEnsemble | SymmetricTrees
) -> tuple[Any, np.ndarray]:
    """Return rows as the library takes them, and as the plan does."""
    thresholds = {column: own for column, own in edges_of(ensemble)[0].items() if column < inputs.n_features}
    if not inputs.text:
        rows = adversarial_rows(with_holes()[0], thresholds, rows=ROWS)
        return rows, rows
    X = tenants()[0]
    numbers = X.assign(city=0, job=0).to_numpy(np.float64)
    rows = adversarial_rows(numbers, {1: thresholds.get(1, np.zeros(0)), 3: thresholds.get(3, np.zeros(0))}, rows=ROWS)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rows, columns=X.columns).astype({"city": object, "job": object})
    for column in ("city", "job"):
        table[column] = pd.Series(rng.choice([*X[column].unique(), *STRINGS], ROWS), dtype=object)
    table["floor"] = rng.choice([*X["floor"].unique(), *WHOLE], ROWS)
    tensors = {group.name: table.iloc[:, list(group.columns)].to_numpy() for group in inputs.text}
    tensors = {name: np.array([[text.encode() for text in row] for row in cells]) for name, cells in tensors.items()}
    return table, inputs.encode({"X": table.iloc[:, list(inputs.numeric)].to_numpy(np.float32), **tensors})


@pytest.mark.parametrize("name", DECISIONS)
def test_each_row_reaches_the_librarys_leaf_of_each_tree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(name)

    def number_nodes(trees: Trees, **options: Any) -> TreeEnsemble:
        nodes = np.flatnonzero(trees.left < 0)[:, None].astype(np.float64)
        return arrange(Trees(**{**vars(trees), "value": nodes}), exact=True, output="each")

    def number_symmetric(**fields: Any) -> SymmetricTrees:
        return number_leaves(SymmetricTrees(**fields))

    monkeypatch.setattr(tree_nodes, "arrange", number_nodes)
    monkeypatch.setattr(lowering, "SymmetricTrees", number_symmetric)
    lowered = lower(model, tenants()[0])
    plan = specialise(lowered.plan, "float32")
    rows, X = adversarial(model, lowered.inputs, plan.steps[-1].operation)  # type: ignore[arg-type]
    found = Runner(plan, engine="torch").predict(X)["y"]
    leaves = model.calc_leaf_indexes(rows)
    assert found.shape == leaves.shape == (ROWS, model.tree_count_)
    if isinstance(plan.steps[-1].operation, SymmetricTrees):  # whose leaves have the library's numbers
        assert np.array_equal(found, leaves)
    for ours, own in zip(found.T, leaves.T, strict=True):
        pairs = np.unique(np.stack([ours, own]), axis=1)
        assert pairs.shape[1] == len(np.unique(ours)) == len(np.unique(own))


@pytest.mark.parametrize("name", DECISIONS)
def test_answers_are_the_float32_nearest_to_the_librarys(name: str) -> None:
    model = fitted(name)
    compilation = compile_estimator(model, sample=tenants()[0] if "cat_features" in DECISIONS[name] else None)
    ensemble = compilation.plan.steps[-1].operation
    nested = "grow_policy" in DECISIONS[name]
    assert isinstance(ensemble, TreeEnsemble if nested else SymmetricTrees)
    rows, X = adversarial(model, compilation.inputs, ensemble)
    expected = model.predict(rows)[:, None]
    found = Runner(compilation.plan, engine="torch").predict(X)["y"]
    assert measure(found, expected, units(expected)).max_ulp <= NEAREST
    if name in ("lossguide", "combined", "deep"):
        again = Runner(compilation.plan, engine="interpret").predict(X[:16])["y"]
        assert again.tobytes() == found[:16].tobytes()


OPTIONS = st.fixed_dictionaries(
    {"depth": st.sampled_from([1, 3, 5])},
    optional={
        "bagging_temperature": st.just(5.0),
        "boost_from_average": st.booleans(),
        "boosting_type": st.sampled_from(["Ordered", "Plain"]),
        "border_count": st.sampled_from([1, 7]),
        "bootstrap_type": st.sampled_from(["No", "MVS"]),
        "counter_calc_method": st.sampled_from(["Full", "SkipTest"]),
        "feature_border_type": st.sampled_from(["Uniform", "MinEntropy"]),
        "grow_policy": st.sampled_from(["Depthwise", "Lossguide"]),
        "l2_leaf_reg": st.sampled_from([0.1, 100.0]),
        "leaf_estimation_method": st.just("Newton"),
        "loss_function": st.sampled_from(
            ["MAE", "Quantile:alpha=0.8", "RMSEWithUncertainty", "Poisson", "Huber:delta=1"]
        ),
        "max_ctr_complexity": st.sampled_from([1, 3]),
        "model_shrink_rate": st.just(0.1),
        "monotone_constraints": st.just("0:1"),
        "nan_mode": st.sampled_from(["Max", "Min"]),
        "one_hot_max_size": st.sampled_from([1, 20]),
        "rsm": st.just(0.5),
        "simple_ctr": st.sampled_from(["Buckets", "Counter", "BinarizedTargetMeanValue", "FloatTargetMeanValue"]),
    },
)


@settings(max_examples=20, derandomize=True, database=None)
@given(options=OPTIONS, categories=st.booleans(), seed=st.integers(0, 99))
def test_whatever_the_options(options: dict[str, Any], categories: bool, seed: int) -> None:
    X, y = tenants() if categories else with_holes()
    options = {**options, **({"cat_features": CATEGORIES} if categories else {})}
    try:
        model = catboost(iterations=5, **options | {"random_seed": seed}).fit(X, np.abs(y))
    except CatBoostError:  # it refuses some together
        assume(False)
    found = compare("drawn", model, X, 1500, seed=seed)
    assert found.wrong == 0
    assert found.ulp <= NEAREST


def test_the_base_class_answers_raw_scores() -> None:
    X, y = with_holes()
    options = {"loss_function": "Poisson", "iterations": 5, "verbose": 0, "allow_writing_files": False}
    model = CatBoost(options).fit(X, np.abs(y))
    compilation = compile_estimator(model, sample=X)
    np.testing.assert_allclose(compilation.sample.expected["y"].ravel(), model.predict(X), rtol=1e-6)
    assert compilation.report.outputs["y"].max_ulp <= NEAREST
    both = sum_models([fitted("symmetric"), fitted("deep")], weights=[0.5, 2.0])
    assert compile_estimator(both, sample=X).report.outputs["y"].max_ulp <= NEAREST


def test_categories_that_are_whole_numbers_are_found_by_their_hashes() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(-20, 300, 400), rng.integers(0, 4, 400)])
    model = catboost(cat_features=[0], one_hot_max_size=1).fit(X, X[:, 0] % 7 + X[:, 1])
    compilation = compile_estimator(model)  # without a sample
    assert compilation.inputs.datatypes() == {"X": "FP32"}
    assert compilation.nan_columns == [1]
    assert compilation.report.outputs["y"].max_ulp <= NEAREST
    shifted = compile_estimator(catboost(cat_features=[0]).fit(X + 2**60, X[:, 0] % 7), sample=X + 2**60)
    assert shifted.inputs.datatypes()["integers"] == "INT64"
    assert shifted.report.outputs["y"].max_ulp <= NEAREST


def test_whole_numbers_may_be_made_by_another_step() -> None:
    X, y = tenants()
    encoder = ColumnTransformer([("codes", OrdinalEncoder(dtype=np.int64), ["city", "job"])])
    compilation = compile_estimator(make_pipeline(encoder, catboost(cat_features=[0, 1])).fit(X, y))
    assert compilation.report.outputs["y"].max_ulp <= NEAREST


def test_strings_pass_beside_numbers_that_a_step_makes() -> None:
    X, y = tenants()
    columns = ColumnTransformer([("num", StandardScaler(), NUMERIC), ("cat", "passthrough", [*CATEGORIES])])
    model = make_pipeline(columns, catboost(cat_features=[2, 3, 4])).fit(X, y)
    compilation = compile_estimator(model, sample=X)
    assert compilation.inputs.columns() == {"X": (1, 3, 4), "cat": (0, 2)}
    assert compilation.report.outputs["y"].max_ulp <= NEAREST


def test_names_are_those_that_a_member_was_fitted_on() -> None:
    X, y = tenants()
    stack = StackingRegressor([("cat", catboost(cat_features=CATEGORIES))], catboost(), cv=2).fit(X, y)
    compilation = compile_estimator(stack, sample=X[X.columns[::-1]])  # which are then put in order
    assert compilation.document().provenance.feature_names == tuple(X.columns)
    assert compilation.report.outputs["y"].max_ulp <= NEAREST


@pytest.mark.parametrize("name", ["combined", "nested-categories"])
def test_strings_are_told_from_numbers_without_a_sample(name: str) -> None:
    assert list(written_columns(fitted(name))[0])[:2] == ["city", "job"]


def test_a_column_that_no_tree_reads_is_no_number() -> None:
    X, y = tenants()
    model = catboost(cat_features=["city"], ignored_features=["city"]).fit(X[["city", "age"]], y)
    assert compile_estimator(model).inputs.columns() == {"X": (1,), "categories": (0,)}


@pytest.mark.parametrize("suffix", ["cbm", "json"])
@pytest.mark.parametrize("loss", ["Poisson", "RMSEWithUncertainty"])
def test_a_model_from_a_file_is_the_estimators(tmp_path: Path, suffix: str, loss: str) -> None:
    X, y = tenants()
    model = catboost(cat_features=CATEGORIES, loss_function=loss, one_hot_max_size=20).fit(X, np.abs(y))
    path = tmp_path / f"m.{suffix}"
    model.save_model(str(path), format=suffix)
    loaded = load_estimator(path)
    assert list(written_columns(loaded)[0]) == ["city", "job"]
    compilation = compile_estimator(loaded, sample=X)
    assert list(compilation.plan.outputs) == (["y", "std"] if loss == "RMSEWithUncertainty" else ["y"])
    answers = model.predict(X).reshape(len(X), -1)[:, 0]
    np.testing.assert_allclose(compilation.sample.expected["y"].ravel(), answers, rtol=1e-12)
    assert compilation.document().provenance.feature_names == tuple(X.columns)


@pytest.mark.parametrize("name", ["symmetric", "lossguide"])
def test_a_file_is_not_written_again_unless_its_model_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    X, y = with_holes()
    fitted(name).save_model(str(tmp_path / "m.cbm"))
    written = []
    saved = lowering.saved
    monkeypatch.setattr(lowering, "saved", lambda *given: written.append(given[1]) or saved(*given))
    compilation = compile_estimator(load_estimator(tmp_path / "m.cbm"))
    assert compilation.report.outputs["y"].max_ulp <= NEAREST
    assert not written
    changes = {
        "scaled": lambda model: model.set_scale_and_bias(2.0, 1.0),
        "fitted": lambda model: model.fit(X, 3 * y, verbose=0),
        "read": lambda model: model.load_model(str(tmp_path / "other.cbm")),
    }
    if name == "symmetric":  # of which alone CatBoost leaves trees out
        changes["shrunk"] = lambda model: model.shrink(7)
    catboost(iterations=4).fit(X, -y).save_model(str(tmp_path / "other.cbm"))
    for number, change in enumerate(changes.values(), 1):
        model = load_estimator(tmp_path / "m.cbm")
        change(model)
        assert compile_estimator(model, sample=X).report.outputs["y"].max_ulp <= NEAREST
        assert len(written) == number


def test_a_loaded_model_is_pickled_and_copied_without_its_file(tmp_path: Path) -> None:
    fitted("symmetric").save_model(str(tmp_path / "m.cbm"))
    model = load_estimator(tmp_path / "m.cbm")
    assert reading.file_of(model) == (tmp_path / "m.cbm").read_bytes()
    for again in (pickle.loads(pickle.dumps(model)), model.copy(), copy.deepcopy(model)):
        assert reading.file_of(again) is None
        assert np.array_equal(again.predict(with_holes()[0]), model.predict(with_holes()[0]))
    assert model.get_params() == CatBoostRegressor().load_model(str(tmp_path / "m.cbm")).get_params()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.abort()", "CatBoost crashes as it reads it"),
        ("import time; time.sleep(60)", "CatBoost has not read it after 1 s"),
        ("import sys; sys.exit('ValueError: so')", "ValueError: so"),
        ("import sys; open(sys.argv[2], 'w').write('CBM1')", "it is not a model of CatBoost's"),
    ],
)
def test_a_process_of_its_own_reads_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    (tmp_path / "m.json").write_text('{"features_info":{}}')
    monkeypatch.setattr(reading, "REWRITE", program)
    if "after 1 s" in says:
        monkeypatch.setattr(reading, "REWRITE_S", 1.0)
    with pytest.raises(ExportError, match=rf"^Cannot read .*m\.json: {says}\.$"):
        load_estimator(tmp_path / "m.json")


@pytest.mark.parametrize("wanted", [CatBoostClassifier, CatBoostRanker])
def test_a_file_of_no_regressor_is_refused(tmp_path: Path, wanted: Any) -> None:
    X, y = with_holes()
    model = wanted(iterations=2, verbose=0, allow_writing_files=False)
    model.fit(X, y > y.mean(), **({"group_id": np.zeros(len(X), dtype=int)} if wanted is CatBoostRanker else {}))
    model.save_model(str(tmp_path / "m.cbm"))
    with pytest.raises(ExportError, match=r"only regressors are exported\. Load it as a catboost\.CatBoost"):
        load_estimator(tmp_path / "m.cbm")
    with pytest.raises(ExportError, match=rf"^Cannot export {wanted.__name__}: it (is|ranks).* Fit a CatBoostRegres"):
        compile_estimator(model)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    compile_estimator(fitted("symmetric"))
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


TENANTS = tenants()[0]
ALL_ROWS = r"Give rows with every category that it was trained on as sample \(--sample\), such as its training rows\.$"
SAMPLES = {
    "none": (None, rf"it holds the hashes of its categories, and not the categories\. {ALL_ROWS}"),
    "too few rows": (
        TENANTS[TENANTS["city"] != "Rome"],
        rf"column 'city' of the sample lacks 1 of 6 categories, which the model knows by hashes alone\. {ALL_ROWS}",
    ),
    "a missing string": (
        TENANTS.assign(job=TENANTS["job"].where(TENANTS.index > 0, None)),
        r"column 'job' of the sample has missing values, and CatBoost takes only categories there\. Replace missing",
    ),
    "no column": (
        TENANTS.drop(columns="city"),
        r"The sample lacks column 'city'; it has no other column in its place\.$",
    ),
    "too narrow": (
        TENANTS.to_numpy()[:, :2],
        r"The sample has shape \(240, 2\); it must be two-dimensional, \[rows, 5\]\.$",
    ),
    "fractions": (
        TENANTS.assign(floor=0.5),
        r"column 'floor' holds 0\.5, of type float, beside strings; supported: strin",
    ),
}


@pytest.mark.parametrize("case", SAMPLES)
def test_samples_that_do_not_hold_its_categories(case: str) -> None:
    sample, message = SAMPLES[case]
    with pytest.raises(ExportError, match=message):
        compile_estimator(fitted("types"), sample=sample)


def test_combinations_need_every_category_too() -> None:
    X, y = tenants()
    model = catboost(cat_features=CATEGORIES, max_ctr_complexity=4, one_hot_max_size=1, iterations=40).fit(X, y)
    known = catboost_categories.known_categories
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catboost_categories, "COMBINATIONS", 10)
        with pytest.raises(ExportError, match=r"more than 2²⁸ combinations with statistics\. Fit it with a smaller"):
            compile_estimator(model, sample=X)

    def without_one(*arguments: Any) -> Any:
        return {
            column: catboost_categories.Categories(own.numbers[1:], own.hashes[1:])
            for column, own in known(*arguments).items()
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "known_categories", without_one)
        with pytest.raises(ExportError, match=rf"lack categories: the model knows combinations of ca.*{ALL_ROWS}"):
            compile_estimator(model, sample=X)


def test_statistics_of_one_kind_that_split_the_target_otherwise() -> None:
    X, y = tenants()
    ctr = ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=4"]
    model = catboost(cat_features=CATEGORIES, simple_ctr=ctr, one_hot_max_size=1).fit(X, y)
    assert compile_estimator(model, sample=X).report.outputs["y"].max_ulp <= NEAREST


def with_gaps() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = tenants()
    rng = np.random.default_rng(3)
    X = X[["city", "job", "age"]].mask(rng.random((len(X), 3)) < 0.15)
    return X.astype({"city": object, "job": object}), np.asarray(y)


@pytest.mark.parametrize("options", [{"strategy": "most_frequent"}, {"fill_value": "Atlantis", "add_indicator": True}])
def test_behind_an_imputer_of_strings(options: dict[str, Any]) -> None:
    X, y = with_gaps()
    imputer = SimpleImputer(**{"strategy": "constant"} | options)
    filled = ColumnTransformer([("strings", imputer, ["city", "job"])], remainder="passthrough")
    model = make_pipeline(filled, catboost(cat_features=[0, 1], one_hot_max_size=3)).fit(X, y)
    rows = pd.concat([X, X.assign(city="Nowhere"), X.assign(job=np.nan)])
    compilation = compile_estimator(model, sample=rows)
    assert compilation.report.outputs["y"].max_ulp <= NEAREST
    assert compilation.inputs.text[0].columns == (0, 1)


def text_model() -> tuple[Any, Any]:
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0] * 9, "words": ["a word", "two words", "a", "word"] * 9})
    return catboost(text_features=["words"]).fit(X, X["age"]), X


def no_trees() -> tuple[Any, Any]:
    X, y = with_holes()
    model = catboost().fit(X, y)
    model.shrink(0)
    return model, X


def deviation_in_a_stack() -> tuple[Any, Any]:
    X, y = with_holes()
    members = [("cat", catboost(loss_function="RMSEWithUncertainty")), ("other", catboost())]
    return StackingRegressor(members, Ridge(), cv=2).fit(X, y), X


REFUSED = {
    "text": (text_model, "it reads text or embeddings; supported: numbers and categories"),
    "no trees": (no_trees, r"it has no trees\.$"),
    "a deviation in a stack": (deviation_in_a_stack, "it was fitted on 3 features and would get 2"),
    "unfitted": (lambda: (catboost(), None), "call fit first"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    make, message = REFUSED[case]
    model, sample = make()
    with pytest.raises(ExportError, match=message):
        compile_estimator(model, sample=sample)


@pytest.mark.parametrize("named", [True, False])
def test_none_where_the_imputer_takes_nan_is_named(named: bool) -> None:
    rng = np.random.default_rng(0)
    city, size = rng.choice(["Rome", "Paris", "Bonn"], 90).astype(object), rng.standard_normal(90)
    city[::10] = np.nan
    X = pd.DataFrame({"city": pd.Series(city, dtype=object), "size": pd.Series(size, dtype=object)})
    rows = X.copy()
    rows.isetitem(0, pd.Series([None, *city[1:]], dtype=object))
    booster = CatBoostRegressor(iterations=3, cat_features=[0], verbose=0, allow_writing_files=False)
    imputed = make_column_transformer((SimpleImputer(strategy="most_frequent"), [0]), remainder="passthrough")
    model = make_pipeline(imputed, booster).fit(X if named else X.to_numpy(), size)
    compile_estimator(model, sample=X if named else X.to_numpy())
    column = "'city'" if named else "0"
    with pytest.raises(
        ExportError, match=rf"^Cannot verify Pipeline: it refuses .*; column {column} holds None: .*\)\.$"
    ):
        compile_estimator(model, sample=rows if named else rows.to_numpy())
