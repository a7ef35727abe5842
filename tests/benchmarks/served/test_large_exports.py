"""The benchmark of large models, on toy ones: its real steps, the real server included; no time is checked."""

import dataclasses
import json
import types

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks import run
from benchmarks.checking import WrongAnswerError
from benchmarks.figures import tables
from benchmarks.served import large_exports, large_models
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.kernels.ops.trees.nodes import depths

FOREST, SVR = large_models.MODELS[:2]
MIXED = {source.needs: source for source in large_models.MODELS if source.name.endswith("_categories")}


def test_drawn_support_vectors_are_what_the_svr_predicts_with():
    model, X = large_models.support_vectors(300), large_models.rows(7, seed=9).astype(np.float64)
    kernel = rbf_kernel(X, model.support_vectors_, gamma=1 / large_models.FEATURES)
    np.testing.assert_allclose(model.predict(X), kernel @ model.dual_coef_[0] + model.intercept_, rtol=1e-9)
    assert large_models.parts(model) == ("support vectors", 300)


def test_a_forest_is_counted_by_its_nodes():
    kind, count = large_models.parts(large_models.forest(large_exports.TOY))
    assert kind == "nodes"
    # 100 trees are grown out on bootstrapped rows
    assert 100 * large_exports.TOY < count < 100 * (2 * large_exports.TOY - 1)


@pytest.mark.parametrize("name", large_models.BOOSTERS)
def test_boosters_trees_grow_out(name):
    """All are of depth 8, and CatBoost's, which are symmetric, have 256 leaves."""
    model = {source.name: source for source in large_models.MODELS}[name].make(8)
    assert large_models.parts(model) == ("trees", 8)
    ensemble = lower(model).plan.steps[-1].operation
    if name == "catboost":
        assert ensemble.depth.tolist() == [8] * 8
        return
    assert len(ensemble.roots) == 8
    assert depths(ensemble.feature, ensemble.child, ensemble.roots).tolist() == [8] * 8
    assert len(ensemble.values) > 8 * 80


def test_a_peak_is_that_since_the_last_one_was_forgotten():
    large_exports.hand_back()
    large_exports.forget_peak()
    before = large_exports.resident("VmRSS")
    block = np.ones(2**23)
    size = block.nbytes
    del block
    large_exports.hand_back()
    assert large_exports.resident("VmHWM") - before > 0.9 * size
    large_exports.forget_peak()
    assert large_exports.resident("VmHWM") - before < 0.5 * size


@pytest.mark.server
def test_a_toy_is_exported_served_and_checked(capsys):
    result = large_exports.measure_model(dataclasses.replace(SVR, quick_size=1_500), quick=True, rounds=1)
    assert result["title"] == "SVR, rbf, 1,500 support vectors"
    assert result["support_vectors"] == 1_500
    assert result["model_bytes"] > 8 * 1_500 * large_models.FEATURES
    assert result["entry_bytes"] > 8 * 1_500 * large_models.FEATURES
    assert 0 < result["peak_beyond_model_bytes"] < result["peak_bytes"]
    assert len(result["load_s_rounds"]) == len(result["floor_load_s_rounds"]) == 1
    assert 0 <= result["max_error"] < 1e-5
    json.dumps(large_exports.rounded(result), allow_nan=False)
    Console(width=200).print(large_exports.table([result]))
    assert "SVR, rbf, 1,500 support vectors" in capsys.readouterr().out


@pytest.mark.server
@pytest.mark.parametrize("library", MIXED)
def test_a_booster_of_many_categories_is_exported_served_and_checked(library):
    result = large_exports.measure_model(dataclasses.replace(MIXED[library], quick_size=20), quick=True, rounds=1)
    assert result["title"].endswith("depth 8, a column of 2,000 categories, 20 trees")
    assert result["sample_rows"] == 2_000
    assert 0 <= result["max_error"] < 1e-5


@pytest.mark.server
def test_a_file_of_a_library_is_exported_served_and_checked(monkeypatch):
    source = next(source for source in large_models.MODELS if source.suffix == "cbm")
    result = large_exports.measure_model(dataclasses.replace(source, quick_size=20), quick=True, rounds=1)
    assert result["title"] == "CatBoostRegressor, depth 8, from a .cbm file, 20 trees"
    assert 0 <= result["max_error"] < 1e-5


@pytest.mark.parametrize(("passed", "answer"), [(True, 0.5), (False, 1.0)])
def test_a_wrong_answer_is_no_result(monkeypatch, tmp_path, passed, answer):
    monkeypatch.setattr(large_exports, "verify", lambda client, entry: types.SimpleNamespace(passed=passed))
    client = types.SimpleNamespace(infer=lambda name, X: {"y": np.full((len(X), 1), answer, dtype=np.float32)})
    with pytest.raises(WrongAnswerError, match="The served model is"):
        large_exports.check(client, tmp_path / "model", large_models.rows(3, seed=0), np.ones((3, 1)))


def test_a_run_writes_what_the_table_shows(monkeypatch, tmp_path):
    figures = {
        "model_bytes": 182_000_000,
        "export_s": 2.34567,
        "predict_s": 0.1,
        "peak_bytes": 495_000_000,
        "peak_beyond_model_bytes": 312_000_000,
        "peak_over_model": 2.72,
        "entry_bytes": 43_400_000,
        "load_s": 2.5,
        "load_s_rounds": [2.45678, 2.5],
        "floor_load_s": 1.1,
        "max_error": 1.2e-7,
    }
    monkeypatch.setattr(large_exports, "measure_model", lambda source, **_: {"title": source.title, **figures})
    document = json.loads(large_exports.run(tmp_path, quick=True).read_text(encoding="utf-8"))
    assert document["settings"]["rounds"] == 1
    assert document["models"][0]["load_s_rounds"] == [2.457, 2.5]
    document["environment"] |= {"device": "A device", "cores": 2, "versions": {"torch": "2.13.0"}}
    document["settings"]["busy_at_start"] = False
    section = tables.markdown({"a-device": {"large": document}})
    assert "## A device" in section.splitlines()
    assert "(2 cores, torch 2.13.0, a quick run):" in section
    for source in large_models.MODELS:
        assert f"| {source.title} | 182 | 183 | 2.3 | 495 (2.7 ×) | 43 | 2.5 | 1.1 | 1e-07 |" in section


def test_a_run_takes_the_models_that_are_asked_for_or_installed(monkeypatch, tmp_path):
    taken = []
    monkeypatch.setattr(
        large_exports, "measure_model", lambda source, **_: taken.append(source.name) or {"model": source.name}
    )
    monkeypatch.setattr(large_exports, "table", lambda results: "")
    large_exports.run(tmp_path, models=["svr", "lightgbm"])
    held = json.loads(large_exports.run(tmp_path, models=["forest", "svr"]).read_text(encoding="utf-8"))["models"]
    assert [result["model"] for result in held] == ["forest", "svr", "lightgbm"]
    held = json.loads(large_exports.run(tmp_path, quick=True, models=["svr"]).read_text(encoding="utf-8"))["models"]
    assert [result["model"] for result in held] == ["svr"]
    monkeypatch.setattr(large_exports, "find_spec", lambda library: library != "catboost")
    large_exports.run(tmp_path)
    others = ["xgboost", "xgboost_categories", "lightgbm", "lightgbm_categories"]
    assert taken == ["svr", "lightgbm", "forest", "svr", "svr", "forest", "svr", *others]


def test_it_needs_the_server_s_client(monkeypatch):
    assert "served.large_exports" in run.BENCHMARKS
    assert run.missing("served.large_exports") == ""
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    assert run.missing("served.large_exports") == "tritonclient is not installed"
