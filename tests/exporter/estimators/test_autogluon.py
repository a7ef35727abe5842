"""Predictors of AutoGluon: every kind of model alone, ensembles, bags, stacks and refitted models, and refusals.

AutoGluon wants an older pandas than the other tests have: `make autogluon` runs these in an environment of their own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import triton_regressors as tr
from triton_regressors import ExportError
from triton_regressors.__main__ import make_app
from triton_regressors.errors import MissingExtra
from triton_regressors.exporter.files import loading
from triton_regressors.exporter.files.loading import load_estimator

tabular = pytest.importorskip("autogluon.tabular", reason="AutoGluon is not installed: make autogluon runs these tests")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3600)]
TOLERANCE = 1e-5
KINDS: dict[str, dict[str, Any]] = {
    "GBM": {"num_boost_round": 60},
    "CAT": {"iterations": 40},
    "XGB": {"n_estimators": 60},
    "RF": {"n_estimators": 12},
    "XT": {"n_estimators": 12},
    "KNN": {},
    "LR": {},
    "NN_TORCH": {"num_epochs": 3},
}
MEMBERS = (
    *("LightGBM", "CatBoost", "XGBoost", "RandomForest", "ExtraTrees", "KNeighbors", "LinearModel"),
    *("NeuralNetTorch", "WeightedEnsemble_L2"),
)
STACKED = (
    *("LightGBM_BAG_L1", "RandomForest_BAG_L1", "LinearModel_BAG_L1", "NeuralNetTorch_BAG_L1", "CatBoost_BAG_L1"),
    *("XGBoost_BAG_L2", "LightGBM_BAG_L2", "NeuralNetTorch_BAG_L2", "RandomForest_BAG_L2", "WeightedEnsemble_L3"),
    *("LightGBM_BAG_L1_FULL", "CatBoost_BAG_L2_FULL", "WeightedEnsemble_L3_FULL"),
)


def trips(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table with a column of every kind, and the target."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Oslo", "Rome", "Lima", "Bonn", "Kyiv"], rows, p=[0.4, 0.3, 0.2, 0.05, 0.05]).astype(object)
    town[rng.random(rows) < 0.05] = None
    day = pd.Series(pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 2000 * 86400, rows), unit="s"))
    day[rng.random(rows) < 0.05] = pd.NaT
    size = rng.gamma(2.0, 30.0, rows)
    size[rng.random(rows) < 0.08] = np.nan
    flag, count, area = rng.random(rows) < 0.4, rng.integers(-20, 50, rows), rng.normal(50, 10, rows)
    table = pd.DataFrame(
        {
            "town": town,
            "grade": pd.Categorical(rng.choice(["a", "b", "c"], rows), categories=["c", "b", "a", "z"]),
            "level": pd.Categorical(rng.choice([1, 2, 5], rows)),
            "flag": flag,
            "maybe": np.where(rng.random(rows) < 0.1, None, (rng.random(rows) < 0.5).astype(object)),
            "answer": rng.choice(["yes", "no"], rows),
            "day": day,
            "size": size,
            "count": count,
            "area": area,
            "slope": rng.normal(0, 1, rows).astype(np.float32),
            "skewed": rng.lognormal(0, 2, rows),
            "constant": 1.0,
            "again": area,
        }
    )
    month = day.dt.month.fillna(6).to_numpy()
    table["target"] = 3 * np.nan_to_num(size, nan=20.0) ** 0.5 + 0.7 * count + area + 5 * (town == "Oslo") + 4 * flag
    table["target"] += 2 * table["slope"] + month + rng.normal(0, 2, rows)
    return table


def trained(path: Path, table: pd.DataFrame, **options: Any) -> Any:
    predictor = tabular.TabularPredictor("target", problem_type="regression", path=str(path), verbosity=0)
    return predictor.fit(table, num_cpus=1, **options)


def rows_to_ask(rows: int = 300) -> pd.DataFrame:
    """Return rows that were not fitted, without the columns that AutoGluon drops, with cells that it never saw."""
    table = trips(rows, seed=9).drop(columns=["target", "constant", "again"])
    table.loc[:4, "town"] = ["Paris", "", None, "oslo", "Kyiv"]
    table.loc[5, "answer"] = "perhaps"
    table.loc[6:7, "day"] = [pd.Timestamp("1969-12-31 23:59:59"), pd.NaT]
    table["grade"] = table["grade"].cat.set_categories(["a", "b", "c", "unknown"])
    table.loc[8, "grade"] = "unknown"
    return table


def check(predictor: Any, folder: Path, sample: pd.DataFrame, ties: str = "refuse") -> None:
    """Export a predictor, and compare what is served with `predict`, together and row by row."""
    exported = tr.export(predictor, folder, name="m", sample=sample, ties=ties)
    model = tr.load(exported.entry.directory, device="cpu")
    expected = predictor.predict(sample, as_pandas=False).astype(np.float64)
    answers = model.predict(sample)
    error = np.abs(answers - expected)
    allowed = TOLERANCE * expected.std() + np.spacing(np.abs(expected).astype(np.float32))
    assert (error <= allowed).all(), f"{(error / expected.std()).max():.1e} standard deviations"
    alone = np.array([model.predict(sample.iloc[[row]])[0] for row in range(12)])
    assert (alone == answers[:12]).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("autogluon")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    return trained(folder / "plain", trips(400), hyperparameters=KINDS)


@pytest.fixture(scope="module")
def stacked(folder: Path) -> Any:
    kinds = {kind: KINDS[kind] for kind in ("GBM", "CAT", "XGB", "RF", "LR", "NN_TORCH")}
    bagged: dict[str, Any] = {"num_bag_folds": 2, "num_stack_levels": 1, "dynamic_stacking": False}
    inside = {"fold_fitting_strategy": "sequential_local"}
    predictor = trained(folder / "stacked", trips(300), hyperparameters=kinds, ag_args_ensemble=inside, **bagged)
    predictor.refit_full()
    return predictor


@pytest.mark.parametrize("name", MEMBERS)
def test_every_model_is_served_as_autogluon_predicts(plain, tmp_path, name):
    plain.set_model_best(name)
    check(plain, tmp_path, rows_to_ask())


@pytest.mark.parametrize("name", STACKED)
def test_bags_stacks_and_refitted_models(stacked, tmp_path, name):
    assert name in stacked.model_names()
    stacked.set_model_best(name)
    check(stacked, tmp_path, rows_to_ask(120))


@pytest.mark.parametrize("preset", ["medium_quality", "good_quality", "best_quality"])
def test_presets_are_exported_as_users_train_them(folder, tmp_path, preset):
    predictor = tabular.TabularPredictor("target", path=str(folder / preset), verbosity=0)
    predictor.fit(trips(400), presets=preset, time_limit=60)
    check(predictor, tmp_path, rows_to_ask(120))


def test_a_table_of_numbers_without_names_of_strings(folder, tmp_path):
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(300, 5)), columns=list("abcde"))
    table["target"] = 2 * table["a"] - table["b"] ** 2 + 1000
    predictor = trained(folder / "numbers", table, hyperparameters={"GBM": {"num_boost_round": 30}, "LR": {}})
    check(predictor, tmp_path, table.drop(columns="target"))


def test_dates_written_as_text_are_sent_as_dates(folder, tmp_path):
    table = trips(300)[["day", "area", "target"]]
    written = table.assign(day=table["day"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    predictor = trained(folder / "written", written, hyperparameters={"GBM": {"num_boost_round": 30}})
    sample = table.drop(columns="target")
    exported = tr.export(predictor, tmp_path, name="m", sample=sample)
    expected = predictor.predict(written.drop(columns="target"), as_pandas=False)
    error = np.abs(tr.load(exported.entry.directory, device="cpu").predict(sample) - expected).max()
    assert error <= TOLERANCE * expected.std()


def test_dates_with_a_zone_and_in_seconds(folder, tmp_path):
    table = trips(300)[["day", "area", "target"]].assign(other=lambda t: t["day"].astype("datetime64[s]"))
    table["day"] = table["day"].dt.tz_localize("UTC").dt.tz_convert("Europe/Rome")
    predictor = trained(folder / "zones", table, hyperparameters={"RF": {"n_estimators": 5}})
    check(predictor, tmp_path, table.drop(columns="target"))


@pytest.mark.parametrize("activation", ["elu", "tanh"])
def test_networks_with_other_activations_and_batch_norm(folder, tmp_path, activation):
    kinds = {"NN_TORCH": {"num_epochs": 2, "activation": activation, "use_batchnorm": True}}
    predictor = trained(folder / activation, trips(200), hyperparameters=kinds, fit_weighted_ensemble=False)
    check(predictor, tmp_path, rows_to_ask(60))


def test_networks_encode_numbers_with_two_values_as_categories(folder, tmp_path):
    rng = np.random.default_rng(0)
    table = trips(300)[["area", "target"]]
    year, month = rng.integers(2012, 2022, len(table)), rng.integers(1, 3, len(table))
    table["day"] = pd.to_datetime(pd.DataFrame({"year": year, "month": month, "day": 1}))
    table["target"] += 20 * month
    kinds = {"NN_TORCH": {"num_epochs": 3}}
    predictor = trained(folder / "two values", table, hyperparameters=kinds, fit_weighted_ensemble=False)
    assert predictor._trainer.load_model(predictor.model_best)._types_of_features["onehot"] == ["day.month"]
    sample = table.drop(columns="target")
    sample.loc[:4, "day"] = [*pd.to_datetime(["2021-07-09", "1969-12-31", "2020-02-01"]), pd.NaT, pd.NaT]
    check(predictor, tmp_path, sample)


def test_networks_of_fastai(folder, tmp_path):
    pytest.importorskip("fastai.tabular.core", reason="fastai is not installed")
    kinds = {"FASTAI": {"epochs": 2}}
    predictor = trained(folder / "fastai", trips(200), hyperparameters=kinds, fit_weighted_ensemble=False)
    check(predictor, tmp_path, rows_to_ask(60))


def test_categories_that_xgboost_reads_as_such(folder, tmp_path):
    kinds = {"XGB": {"n_estimators": 40, "enable_categorical": True}}
    predictor = trained(folder / "categorical", trips(300), hyperparameters=kinds, fit_weighted_ensemble=False)
    check(predictor, tmp_path, rows_to_ask(60))


def test_models_with_other_settings(folder, tmp_path):
    kinds = {
        "GBM": [
            {"num_boost_round": 20, "extra_trees": True},
            {"num_boost_round": 20, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7},
        ],
        "CAT": {"iterations": 20, "grow_policy": "Depthwise", "max_ctr_complexity": 1},
        "LR": {"penalty": "L1", "proc.skew_threshold": 0.5},
        "KNN": {"weights": "distance", "n_neighbors": 3},
    }
    predictor = trained(folder / "settings", trips(300), hyperparameters=kinds, fit_weighted_ensemble=False)
    for name in predictor.model_names():
        predictor.set_model_best(name)
        check(predictor, tmp_path / name, rows_to_ask(60))


# Refusals


def refused(predictor: Any, sample: pd.DataFrame, tmp_path: Path) -> str:
    with pytest.raises(ExportError) as raised:
        tr.export(predictor, tmp_path, name="m", sample=sample)
    return str(raised.value)


def test_a_predictor_that_is_not_fitted_is_refused(tmp_path):
    predictor = tabular.TabularPredictor("target", problem_type="regression", path=str(tmp_path / "p"), verbosity=0)
    assert refused(predictor, rows_to_ask(60), tmp_path) == (
        "Cannot export TabularPredictor: it is not fitted; call fit first."
    )


def test_other_problem_types_are_refused(folder, tmp_path):
    table = trips(200)[["size", "area", "flag"]].rename(columns={"flag": "target"})
    predictor = tabular.TabularPredictor("target", path=str(folder / "binary"), verbosity=0)
    predictor.fit(table, num_cpus=1, hyperparameters={"LR": {}})
    assert refused(predictor, table.drop(columns="target"), tmp_path) == (
        "Cannot export TabularPredictor: its problem_type is 'binary'; supported: 'regression'."
    )


def test_text_is_refused_with_the_generator_that_goes_without(folder, tmp_path):
    rng = np.random.default_rng(0)
    words = ["fast", "slow", "red", "green", "old", "new", "tiny", "huge"]
    table = trips(300)[["area", "target"]]
    table["note"] = [" ".join(rng.choice(words, 12)) + f" {row}." for row in range(len(table))]
    predictor = trained(folder / "text", table, hyperparameters={"LR": {}})
    said = refused(predictor, table.drop(columns="target"), tmp_path)
    assert "TextSpecialFeatureGenerator counts words and signs of the text in 'note'" in said
    assert "enable_text_special_features=False, enable_text_ngram_features=False" in said
    from autogluon.features.generators import AutoMLPipelineFeatureGenerator

    without = AutoMLPipelineFeatureGenerator(enable_text_special_features=False, enable_text_ngram_features=False)
    predictor = trained(folder / "no text", table, hyperparameters={"LR": {}}, feature_generator=without)
    check(predictor, tmp_path, table.drop(columns="target"))


BEYOND = {
    "TABPFNMIX": "TabPFNMixModel",
    "TABPFN-3": "TabPFN3Model",
    "TABM": "TabMModel",
    "MITRA": "MitraModel",
    "TABICL": "TabICLModel",
    "REALMLP": "RealMLPModel",
    "GBM_PREP": "PrepLGBModel",
    "AG_TEXT_NN": "TextPredictorModel",
    "AG_IMAGE_NN": "ImagePredictorModel",
    "AG_AUTOMM": "MultiModalPredictorModel",
}
"""The key of each kind of model that other presets train, and its class."""


@pytest.mark.parametrize("key", BEYOND)
def test_models_that_no_plan_computes_are_refused_by_name(plain, tmp_path, monkeypatch, key):
    from autogluon.tabular.registry import ag_model_registry

    kind = ag_model_registry.key_to_cls(key)
    assert kind.__name__ == BEYOND[key]
    other = kind(path=str(tmp_path / "other"), name="Other", problem_type="regression")
    plain.set_model_best("LinearModel")
    monkeypatch.setattr(type(plain._learner.load_trainer()), "load_model", lambda trainer, name: other)
    assert refused(plain, rows_to_ask(60), tmp_path) == (
        f"Cannot export TabularPredictor (step 'LinearModel'): its best model LinearModel needs 'Other', a "
        f"{kind.__name__}, which no plan computes. Choose a model that does without by predictor.set_model_best(…), or "
        f"train with excluded_model_types=['{key}'] or other hyperparameters."
    )


def test_models_with_a_feature_generator_of_their_own_are_refused(folder, tmp_path):
    own = {"feature_generators": [["ArithmeticFeatureGenerator", {}]]}
    kinds = {"GBM": {"num_boost_round": 5, "ag.model_specific_feature_generator_kwargs": own}}
    predictor = trained(folder / "prepared", trips(200), hyperparameters=kinds, fit_weighted_ensemble=False)
    said = refused(predictor, rows_to_ask(60), tmp_path)
    assert "a LGBModel, which has a feature generator of its own (ag.model_specific_feature_generator_kwargs)." in said


# Directories


def test_the_command_reads_a_directory_and_a_csv_with_dates(plain, tmp_path):
    plain.set_model_best("XGBoost")
    plain.save()
    rows = tmp_path / "rows.csv"
    rows_to_ask(60).to_csv(rows, index=False, date_format="%Y-%m-%d %H:%M:%S")
    command = ["export", plain.path, "--repository", str(tmp_path / "repository"), "--sample", str(rows)]
    refused = CliRunner().invoke(make_app(), command)
    assert refused.exit_code != 0
    done = CliRunner().invoke(make_app(), [*command, "--trust-pickle", "--name", "trips"])
    assert done.exit_code == 0, done.output
    assert "Wrote trips version 1" in done.output


def test_a_directory_has_to_be_trusted_and_to_hold_a_predictor(plain, tmp_path):
    with pytest.raises(ExportError, match="say --trust-pickle"):
        load_estimator(plain.path)
    with pytest.raises(ExportError, match=r"is a directory; .* has a predictor\.pkl"):
        load_estimator(tmp_path, trust_pickle=True)
    for path in (plain.path, Path(plain.path) / "predictor.pkl"):
        assert load_estimator(path, trust_pickle=True).model_names() == plain.model_names()


def test_a_predictor_of_another_version_gets_one_sentence(plain, tmp_path):
    shutil.copytree(plain.path, tmp_path / "other", dirs_exist_ok=True)
    (tmp_path / "other" / "version.txt").write_text("0.1.0")
    with pytest.raises(ExportError, match=r"Cannot read .*version"):
        load_estimator(tmp_path / "other", trust_pickle=True)


def test_without_autogluon_the_error_says_what_brings_it(plain, monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs autogluon\.tabular, not installed here; `pip install"):
        load_estimator(plain.path, trust_pickle=True)
