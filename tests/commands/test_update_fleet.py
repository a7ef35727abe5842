"""The command `update-fleet`, as a user types it."""

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import triton_regressors as tr
from triton_regressors.kernels.entry import read_document, versions

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["price", "day", "stock"])
MODELS = {name: Ridge().fit(X, X @ rng.normal(size=3)) for name in ("007", "008", "shop 9")}
NEW = {
    "new": Ridge().fit(X, X @ rng.normal(size=3)),
    "tree": DecisionTreeRegressor(max_depth=3).fit(X, X @ rng.normal(size=3)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fleets with ids of both kinds, new models as files, and rows of the models."""
    directory = tmp_path_factory.mktemp("update")
    given = {"repository": directory / "model_repository", "by": "shop", "input": "fp64"}
    tr.export_fleet(MODELS, name="demand", **given)
    tr.export_fleet(dict(enumerate(MODELS.values())), name="numbered", **given)
    for name, model in NEW.items():
        skops.io.dump(model, directory / f"{name}.skops")
    joblib.dump(NEW["new"], directory / "new.joblib")
    skops.io.dump(Ridge().fit(X[["price", "day"]], X["stock"]), directory / "narrow.skops")
    pd.concat([X[:20].assign(shop=name) for name in (*MODELS, "9")]).to_csv(directory / "rows.csv", index=False)
    pd.concat([X[:20].assign(shop=shop) for shop in range(4)]).to_csv(directory / "numbers.csv", index=False)
    pd.DataFrame({"shop": ["007", "9"], "file": ["new.skops", "tree.skops"]}).to_csv(directory / "new.csv", index=False)
    return directory


def ids(folder, name):
    """The ids in the newest version of an entry."""
    entry = folder / "model_repository" / name
    return list(read_document(entry / str(versions(entry)[-1])).inputs.models)


def test_models_are_set_and_removed(run_here, folder):
    given = ("--set", "007=new.skops", "--set", "9=tree.skops", "--remove", "shop 9", "--samples", "rows.csv")
    code, out, err = run_here("update-fleet", "demand", *given)
    assert (code, err) == (0, "")
    assert out.startswith("Wrote demand version 2 to model_repository/demand/2: 3 models in 2 classes, ")
    assert "\n1 added, 1 replaced, 1 removed; 1 are those of version 1.\n" in out
    assert out.endswith("triton-regressors describe demand\n")
    assert ids(folder, "demand") == ["007", "008", "9"]
    loaded = tr.load(folder / "model_repository/demand")
    for name, model in {"007": NEW["new"], "008": MODELS["008"], "9": NEW["tree"]}.items():
        assert loaded.predict(X.assign(shop=name)).ravel() == pytest.approx(model.predict(X), abs=1e-5)
    code, out, err = run_here("update-fleet", "demand", "--manifest", "new.csv", "--remove", "008")
    assert (code, err) == (0, "")
    assert "\n2 replaced, 1 removed; 0 are those of version 2.\n" in out
    code, out, err = run_here("update-fleet", "demand", "--remove", "9")
    assert (code, err) == (0, "")
    assert ids(folder, "demand") == ["007"]


def test_models_that_are_set_get_intervals_where_the_fleet_has_them(run_here, folder):
    def calibrate(ids):
        return {key: (X[30:], X[30:] @ rng.normal(size=3)) for key in ids}

    given = {"repository": folder / "model_repository", "by": "shop"}
    tr.export_fleet(dict(enumerate(MODELS.values())), name="calibrated", calibrate=calibrate(range(3)), **given)
    pd.concat([X[30:].assign(shop=shop, sold=X["day"]) for shop in (1, 2)]).to_csv(folder / "sold.csv", index=False)
    setting = ("update-fleet", "calibrated", "--set", "1=new.skops")
    code, _, err = run_here(*setting)
    assert code == 1
    assert "calibrated has prediction intervals, so the models to set need calibration rows: give" in err
    code, out, err = run_here(*setting, "--calibrate", "sold.csv", "--target", "sold")
    assert (code, err) == (0, "")
    assert "\n1 replaced; 2 are those of version 1.\n" in out
    tr.export(NEW["new"], folder / "model_repository", name="own", calibrate=(X[30:], X["day"][30:]))
    found = tr.load(folder / "model_repository/calibrated").predict_interval(X.assign(shop=1))
    expected = tr.load(folder / "model_repository/own").predict_interval(X)
    assert [end.tobytes() for end in found] == [end.tobytes() for end in expected]
    for wrong, why in (
        (("--remove", "2", "--calibrate", "sold.csv"), "--calibrate goes with models to set."),
        (("--remove", "2", "--target", "sold"), "--target goes with --calibrate."),
    ):
        code, _, err = run_here("update-fleet", "calibrated", *wrong)
        assert code == 1
        assert why in err


def test_ids_are_whole_numbers_where_the_fleets_are(run_here, folder):
    given = ("update-fleet", "numbered", "--samples", "numbers.csv")
    code, _, err = run_here(*given, "--set", "3=new.skops", "--set", "1=tree.skops", "--remove", "0")
    assert (code, err) == (0, "")
    assert ids(folder, "numbered") == [1, 2, 3]
    code, _, err = run_here(*given, "--set", "three=new.skops")
    assert (code, err) == (1, "Error: The ids of this fleet are whole numbers, and 'three' is none.")


def test_ids_in_several_columns_are_of_the_fleets_kinds(run_here, folder):
    names = [("Bonn", 1), ("Bonn", 2), ("Ulm", 1)]
    given = {"repository": folder / "model_repository", "by": ["town", "shop"], "input": "fp64"}
    tr.export_fleet(dict(zip(names, MODELS.values(), strict=True)), name="towns", **given)
    rows = [X[:20].assign(town=town, shop=shop) for town, shop in [*names, ("Ulm", 7)]]
    pd.concat(rows).to_csv(folder / "towns.csv", index=False)
    changes = ("--set", "Ulm,7=new.skops", "--remove", "Bonn,2", "--samples", "towns.csv")
    code, _, err = run_here("update-fleet", "towns", *changes)
    assert (code, err) == (0, "")
    assert sorted(ids(folder, "towns")) == [("Bonn", 1), ("Ulm", 1), ("Ulm", 7)]
    code, _, err = run_here("update-fleet", "towns", "--remove", "Ulm,one")
    assert (code, err) == (1, "Error: The ids of this fleet are whole numbers, and 'one' is none.")
    code, _, err = run_here("update-fleet", "towns", "--remove", "Ulm,9")
    assert (code, err) == (1, "Error: towns has no model ('Ulm', 9) to remove.")


def test_a_progress_bar_is_shown_on_a_terminal(run_here, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, _, err = run_here("update-fleet", "numbered", "--set", "2=new.skops")
    assert code == 0
    assert "compiling models" in err
    assert "1/1" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("numbered",), "Name a model of numbered to set or to remove."),
        (("numbered", "--samples", "numbers.csv"), "--samples goes with models to set."),
        (("numbered", "--set", "new.skops"), "--set takes an id and a model, such as shop-7=new.skops, not 'new.skops"),
        (("numbered", "--set", "=new.skops"), "--set takes an id and a model, such as shop-7=new.skops, not '=new"),
        (("numbered", "--set", "7=a", "--set", "7=b"), "a and b would both have the id '7'."),
        (("numbered", "--set", "7=new.joblib"), "new.joblib is a pickle, and loading it runs"),
        (
            ("numbered", "--set", "7=narrow.skops"),
            "differ in the names of their columns (('price', 'day', 'stock')",
        ),
        (("numbered", "--set", "7=new.skops", "--tracking-uri", "u"), "--tracking-uri goes with models in MLflow."),
        (("numbered", "--remove", "77"), "numbered has no model 77 to remove."),
        (("nobody", "--remove", "77"), "Cannot update nobody: model_repository/nobody is not an entry"),
    ],
)
def test_what_cannot_be_changed_is_said_and_nothing_is_written(run_here, folder, arguments, says):
    before = versions(folder / "model_repository/numbered")
    code, out, err = run_here("update-fleet", *arguments)
    assert (code, out) == (1, "")
    assert says in err
    assert versions(folder / "model_repository/numbered") == before


def test_a_pickle_is_loaded_if_it_is_trusted(run_here):
    assert run_here("update-fleet", "numbered", "--set", "2=new.joblib", "--trust-pickle")[0] == 0
