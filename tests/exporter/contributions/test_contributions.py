"""The export with contributions: its arguments, its evidence and its entry."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import shap
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from xgboost import DMatrix, XGBRegressor

import triton_regressors as tr
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.export import check_parity
from triton_regressors.kernels.entry import read_document
from triton_regressors.model_config import from_pbtxt

rng = np.random.default_rng(0)
TABLE = pd.DataFrame(rng.standard_normal((90, 3)), columns=["size", "age", "rooms"]).assign(kind=list("abc") * 30)
Y = TABLE["size"] * TABLE["age"] + TABLE["kind"].map({"a": 1, "b": 2, "c": 4}) + TABLE["rooms"]


FOREST = RandomForestRegressor(5, max_depth=5, random_state=0)


def encoded(*last: Any) -> Any:
    return make_pipeline(make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler()), *last)


def test_an_entry_answers_contributions_only_when_asked(tmp_path: Path) -> None:
    model = encoded(GradientBoostingRegressor(n_estimators=20)).fit(TABLE, Y)
    plain = tr.export(model, tmp_path, name="plain", sample=TABLE).compilation.plan
    done = tr.export(model, tmp_path, name="reasons", sample=TABLE, contributions="background", background=TABLE[:20])
    plan = done.compilation.plan
    assert plan.outputs["y"] == plain.outputs["y"]
    assert [step.operation.kind() for step in plan.steps_for(["y"])] == [
        step.operation.kind() for step in plain.steps_for(["y"])
    ]
    more = plan.parameter_bytes() - plain.parameter_bytes()
    assert f" {plan.parameter_bytes():,} bytes, {more:,} of them for contributions." in str(done)
    loaded, alone = tr.load(tmp_path / "reasons"), tr.load(tmp_path / "plain")
    answered = loaded.infer(TABLE, outputs=("y", "contributions"))
    assert answered["y"].tobytes() == alone.infer(TABLE)["y"].tobytes()
    assert answered["contributions"].shape == (90, 5)
    np.testing.assert_allclose(answered["contributions"].sum(axis=1), model.predict(TABLE), atol=2e-6)
    coded = TABLE.assign(kind=TABLE["kind"].map({"a": 0, "b": 1, "c": 2})).to_numpy(float)  # shap subtracts cells

    def predict(cells: np.ndarray) -> np.ndarray:
        table = pd.DataFrame(cells, columns=TABLE.columns)
        return np.asarray(model.predict(table.assign(kind=np.array(list("abc"))[cells[:, 3].astype(int)])))

    expected = shap.ExactExplainer(predict, shap.maskers.Independent(coded[:20], max_samples=20))(coded[:5])
    np.testing.assert_allclose(answered["contributions"][:5, :-1], expected.values, atol=2e-6)
    np.testing.assert_allclose(answered["contributions"][:5, -1], expected.base_values, atol=2e-6)
    for rows in (1, 7):
        some = loaded.infer(TABLE[:rows], outputs=("contributions",))["contributions"]
        assert some.tobytes() == answered["contributions"][:rows].tobytes()


def test_the_record_tells_the_game_and_the_evidence(tmp_path: Path) -> None:
    model = encoded(Ridge()).fit(TABLE, Y)
    done = tr.export(model, tmp_path, name="line", sample=TABLE, contributions="background")
    report = read_document(done.entry.version_directory).contributions
    assert report is not None
    assert (report.game, report.rows, report.links, report.explained) == ("background", 90, (), 64)
    assert report.additivity < 1e-12
    assert report.definition is not None
    assert report.definition < 1e-12
    assert "64 rows from the given sample" in done.contract.brief()


def test_path_is_what_xgboost_returns(tmp_path: Path) -> None:
    X = TABLE[["size", "age", "rooms"]]
    model = XGBRegressor(n_estimators=20, max_depth=4).fit(X, Y)
    tr.export(model, tmp_path, name="boosted", contributions="path")
    found = tr.load(tmp_path / "boosted").infer(X, outputs=("contributions",))["contributions"]
    np.testing.assert_allclose(found, model.get_booster().predict(DMatrix(X), pred_contribs=True), atol=2e-5)


@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()])
def test_path_takes_encoders_that_refuse_unknown_categories(tmp_path: Path, encoder: Any) -> None:
    """The values of one-hot columns do not add up to their column's; one column of numbers is the column."""
    model = make_pipeline(make_column_transformer((encoder, ["kind"]), remainder=StandardScaler()), FOREST)
    model.fit(TABLE, Y)
    tr.export(model, tmp_path, name="forest", sample=TABLE, contributions="path")
    found = tr.load(tmp_path / "forest").infer(TABLE, outputs=("contributions",))["contributions"]
    np.testing.assert_allclose(found.sum(axis=1), model.predict(TABLE), atol=2e-6)
    theirs = shap.TreeExplainer(model[-1])(np.float32(model[0].transform(TABLE))).values
    own = np.column_stack([theirs[:, -3:], theirs[:, :-3].sum(axis=1)])
    assert (np.abs(found[:, :-1] - own).max() < 2e-6) == isinstance(encoder, OrdinalEncoder)


def test_shap_rounds_thresholds_to_float32(tmp_path: Path) -> None:
    """Its background game compares with float32 thresholds: both rows go left, and it explains neither answer."""
    X = np.float32([[np.nextafter(np.float32(27.2), np.float32(0))], [27.2]]).astype(float)
    model = DecisionTreeRegressor().fit(X, [0, 1])
    tr.export(model, tmp_path, name="edge", sample=X, contributions="background")
    found = tr.load(tmp_path / "edge").infer(X, outputs=("contributions",))["contributions"]
    assert found.tolist() == [[-0.5, 0.5], [0.5, 0.5]]
    theirs = shap.TreeExplainer(model, shap.maskers.Independent(X)).shap_values(X, check_additivity=False)
    assert theirs.tolist() == [[0.0], [0.0]]


def test_batches_of_costly_explanations_have_fewer_rows(tmp_path: Path) -> None:
    X = rng.standard_normal((200, 9))
    model = MLPRegressor(hidden_layer_sizes=(4,), max_iter=20).fit(X, X[:, 0])
    done = tr.export(model, tmp_path, name="net", sample=X, contributions="background", background=X[:100])
    config = from_pbtxt((done.entry.directory / "config.pbtxt").read_text())
    assert config.max_batch_size == 2**24 // (2**9 * 100)
    report = done.compilation.contributions
    assert report is not None
    assert report.explained == 2**18 // (2**9 * 100)


def test_many_columns_without_a_closed_form_have_estimates_and_their_errors(tmp_path: Path) -> None:
    X = rng.standard_normal((90, 13))
    model = MLPRegressor(hidden_layer_sizes=(8,), max_iter=50, random_state=0).fit(X, X[:, 0] * X[:, 1])
    options = {"sample": X, "contributions": "background", "background": X[:5]}
    done = tr.export(model, tmp_path, name="net", permutations=10, **options)  # type: ignore[arg-type]
    report = read_document(done.entry.version_directory).contributions
    assert report is not None
    assert (report.players, report.permutations, report.definition) == (13, 10, None)
    assert 5 * (10 * 11 + 2) < report.evaluations <= 5 * (10 * 12 + 2)  # two orders may have coalitions in common
    says = f"a row take {report.evaluations:,} answers of the model, for 10 orders of the columns. They are estimated: "
    assert says in str(done)
    assert says in done.contract.text(10**6)
    assert "estimated from 10 orders of the columns with the standard errors in 'contributions_error'" in str(
        done.contract
    ).replace("\n    ", " ")
    loaded = tr.load(tmp_path / "net")
    outputs = "contributions", "contributions_error"
    found = loaded.infer(X, outputs=outputs)
    assert {each.shape for each in found.values()} == {(90, 14)}
    np.testing.assert_allclose(found["contributions"].sum(axis=1), model.predict(X), atol=2e-6)
    for rows in (slice(0, 1), slice(3, 20)):
        some = loaded.infer(X[rows], outputs=outputs)
        assert all(some[name].tobytes() == found[name][rows].tobytes() for name in outputs)
    with pytest.raises(ExportError, match="permutations must be an even whole number of at least 4, not 5"):
        tr.export(model, tmp_path, name="net", permutations=5, **options)  # type: ignore[arg-type]


def test_a_column_that_adds_nothing_is_measured_by_the_answers_unit(tmp_path: Path) -> None:
    X = rng.standard_normal((90, 3))
    model = MLPRegressor(hidden_layer_sizes=(4,), max_iter=20).fit(X, X[:, 0])
    model.coefs_[0][2] = 0.0  # its contributions are rounding errors of sums over coalitions
    done = tr.export(model, tmp_path, name="net", sample=X, contributions="background", background=X[:7])
    units = done.compilation.report.units
    np.testing.assert_allclose(units["contributions"], units["y"][0], rtol=1e-6)
    assert np.abs(done.compilation.sample.expected["contributions"][:, 2]).max() < 1e-15


def test_a_background_with_missing_numbers_is_one_where_the_model_takes_them(tmp_path: Path) -> None:
    X = np.where(rng.random((90, 3)) < 0.2, np.nan, rng.standard_normal((90, 3)))
    model = HistGradientBoostingRegressor(max_iter=9).fit(X, Y)
    for name, question in {"path": {}, "background": {"background": X[:9]}}.items():
        tr.export(model, tmp_path, name=name, sample=X, contributions=name, **question)  # type: ignore[arg-type]
        found = tr.load(tmp_path / name).infer(X, outputs=("contributions",))["contributions"]
        np.testing.assert_allclose(found.sum(axis=1), model.predict(X), atol=2e-6)


def test_sums_rounded_to_float32_are_explained_before_they_are_rounded() -> None:
    X = (1e4 + rng.standard_normal((90, 4))).astype(np.float32)
    model = make_pipeline(PCA(2, whiten=True), Ridge()).fit(X, X[:, 0] - X[:, 1])
    found = compile_estimator(model, sample=X, contributions="background", background=X[:9])
    assert found.report.float32 is not None  # both types were tried, the first with rounding everywhere
    assert found.contributions is not None
    assert found.report.within


def test_contributions_stand_beside_every_other_output(tmp_path: Path) -> None:
    model = encoded(GradientBoostingRegressor(n_estimators=9)).fit(TABLE[:60], Y[:60])
    options = {"sample": TABLE[:60], "calibrate": (TABLE[60:], Y[60:]), "out_of_range": True}
    tr.export(model, tmp_path, name="without", **options)  # type: ignore[arg-type]
    tr.export(model, tmp_path, name="with", contributions="background", **options)  # type: ignore[arg-type]
    without, found = (tr.load(tmp_path / name).infer(TABLE) for name in ("without", "with"))
    assert found.pop("contributions").shape == (90, 5)
    assert {name: y.tobytes() for name, y in found.items()} == {name: y.tobytes() for name, y in without.items()}
    assert found.keys() == {"y", "lower", "upper", "out_of_range"}
    with pytest.raises(ExportError, match=r"'with' exists with .* contributions \[5\], and this model has .* delete "):
        tr.export(model, tmp_path, name="with", **options)  # type: ignore[arg-type]
    with pytest.raises(
        ExportError, match=r"'without' exists with output y .* has .* contributions \[5\]; a new .* share"
    ):
        tr.export(model, tmp_path, name="without", contributions="background", **options)  # type: ignore[arg-type]


def test_contributions_that_are_not_the_exact_ones_are_refused_as_such() -> None:
    report = compile_estimator(encoded(Ridge()).fit(TABLE, Y), sample=TABLE, contributions="background").report
    off = dataclasses.replace(report.outputs["contributions"], max_error=0.5, excess=0.5, max_ulp=99.0)
    wrong = dataclasses.replace(report, outputs={**report.outputs, "contributions": off})
    with pytest.raises(
        ExportError, match=r"output 'contributions' differs from its exact values by 5.0e-01 standard dev"
    ):
        check_parity(wrong, "Pipeline")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contributions": "shap"}, "contributions must be one of background, path, not 'shap'"),
        ({"contributions": "background"}, "give background, rows as predict takes them, or a sample"),
        ({"background": TABLE}, 'background goes with contributions="background"'),
        ({"contributions": "path", "background": TABLE}, "background goes with .*, not 'path'"),
        ({"permutations": 10}, 'permutations goes with contributions="background"'),
        ({"contributions": "path"}, "Cannot export Pipeline with contributions: the game 'path' is defined for trees"),
        ({"contributions": "background", "background": TABLE[:0]}, "The background"),
        ({"contributions": "background", "background": TABLE[["size"]]}, "background"),
        (
            {"contributions": "background", "background": TABLE.assign(age=np.nan)},
            "Cannot export Pipeline with contributions: it refuses the background .Input X contains NaN",
        ),
    ],
)
def test_arguments_that_misfit_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    model = encoded(Ridge()).fit(TABLE, Y)
    with pytest.raises(ExportError, match=message):
        tr.export(model, tmp_path, name="line", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "line").exists()
