"""The command `export-fleet`, as a user types it."""

import re

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklego.meta import GroupedPredictor

import triton_regressors as tr
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.member_table import read_members

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["price", "day", "stock"])
TREE = DecisionTreeRegressor(max_depth=3)
MODELS = {
    name: make_pipeline(StandardScaler(), last).fit(X, X @ rng.normal(size=3))
    for name, last in {"007": Ridge(), "008": TREE, "shop 9": Ridge()}.items()
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models whose ids look like numbers among others, rows of them, and a model that is a pickle."""
    directory = tmp_path_factory.mktemp("fleet")
    (directory / "models").mkdir()
    for name, model in MODELS.items():
        skops.io.dump(model, directory / "models" / f"{name}.skops")
    (directory / "other").mkdir()
    joblib.dump(MODELS["007"], directory / "other/007.joblib")
    skops.io.dump(Ridge().fit(X[["price", "day"]], X["stock"]), directory / "other/narrow.skops")
    rows = [X[:20].assign(shop=name, sold=1.0) for name in MODELS]
    pd.concat(rows).to_csv(directory / "rows.csv", index=False)
    pd.DataFrame({"id": ["1", "2"], "file": ["models/007.skops", "other/007.joblib"]}).to_csv(
        directory / "models.csv", index=False
    )
    return directory


FILES = [f"models/{name}.skops" for name in MODELS]
GIVEN = [*FILES, "--name", "demand", "--by", "shop"]


def ids(version):
    """The ids in an entry's document, sorted."""
    return sorted(read_document(version).inputs.text[-1].categories[0])


def test_each_file_is_a_model_with_its_stem_as_id(run_here, folder):
    code, out, err = run_here("export-fleet", *GIVEN, "--samples", "rows.csv", "--max-batch-size", 512)
    assert (code, err) == (0, "")
    assert out.startswith("Wrote demand version 1 to model_repository/demand/1: 3 models in 2 classes, ")
    assert "  input   shop  BYTES  [rows, 1]  shop\n" in out
    assert " on 60 rows from 3 models, the given sample of each\n" in out
    assert re.search(r"^3 models; shop names the one that answers a row\.$", out, re.MULTILINE)
    assert out.endswith("triton-regressors describe demand\n")
    assert len(out.splitlines()) <= 15
    assert ids(folder / "model_repository/demand/1") == sorted(MODELS)
    assert "max_batch_size: 512" in (folder / "model_repository/demand/config.pbtxt").read_text()
    loaded = tr.load(folder / "model_repository/demand")
    for name, model in MODELS.items():
        assert loaded.predict(X.assign(shop=name)).ravel() == pytest.approx(model.predict(X), abs=1e-5)


def test_calibration_rows_of_a_file_add_the_ends_of_an_interval(run_here, folder):
    noise = np.random.default_rng(1)
    held_out = X.iloc[20:].reset_index(drop=True)
    targets = {name: model.predict(held_out) + noise.normal(size=len(held_out)) for name, model in MODELS.items()}
    whole = pd.concat([held_out.assign(sold=y, shop=name) for name, y in targets.items()])
    whole.sample(frac=1, random_state=0).to_parquet(folder / "held_out.parquet")
    given = (
        *GIVEN,
        "--repository",
        "calibrated",
        "--calibrate",
        "held_out.parquet",
        "--level",
        "0.8",
        "--input",
        "fp64",
    )
    for target in ((), ("--target", "sold")):
        code, out, err = run_here("export-fleet", *given, *target)
        assert (code, err) == (0, "")
        assert (
            "\nlower and upper are made for 80 % of new rows of each model, from 40 calibration rows of its own.\n"
            in out
        )
    loaded = tr.load(folder / "calibrated/demand")
    in_order = whole.sample(frac=1, random_state=0)
    for name, model in MODELS.items():
        mine = in_order[in_order["shop"] == name]
        own = {"calibrate": (mine[X.columns], mine["sold"]), "level": 0.8, "input": "fp64"}
        tr.export(model, folder / "calibrated", name="alone", **own)
        found = loaded.predict_interval(X.assign(shop=name))
        expected = tr.load(folder / "calibrated/alone").predict_interval(X)
        assert [end.tobytes() for end in found] == [end.tobytes() for end in expected]
    code, out, _ = run_here("describe", "calibrated/demand", "--member", "shop 9")
    assert " % of 'shop 9'." in " ".join(out.split())
    for wrong, why in (
        (("--target", "sold"), "--target goes with --calibrate."),
        (("--level", "0.8"), "level is for a prediction interval, which needs calibration rows: give calibrate."),
        (("--calibrate", "rows.csv", "--target", "price"), "--target names the column 'price' of rows.csv, which the"),
        (
            ("--calibrate", "held_out.parquet", "--target", "price"),
            "--target names the column 'price' of held_out.parquet",
        ),
    ):
        code, _, err = run_here("export-fleet", *GIVEN, "--repository", "wrong", *wrong)
        assert code == 1
        assert why in " ".join(err.split())
    assert not (folder / "wrong").exists()


def test_describe_names_the_worst_the_median_and_the_named_model(run_here, folder):
    run_here("export-fleet", *GIVEN, "--repository", "described")
    code, out, err = run_here("describe", "described/demand", "--member", "shop 9", "--passes")
    assert (code, err) == (0, "")
    section = out.partition("\nModels\n")[2].partition("\n\n")[0]
    first, *classes, parity = section.splitlines()
    assert first == "  3 models; shop names the one that answers a row."
    assert sorted(classes)[1].startswith("  2 models (Ridge): 1 launch for the rows of all of them, ")
    document = read_document(folder / "described/demand/1")
    errors = read_members(folder / "described/demand/1", 4).errors["y"]
    numbers = document.inputs.text[-1].categories[0]
    worst, median = (numbers[place] for place in np.argsort(errors)[[2, 1]])
    named = errors[numbers.index("shop 9")]
    assert (
        f": {errors.max():.1e} of '{worst}', the worst; {np.median(errors):.1e} of '{median}', the median; " in parity
    )
    assert parity.endswith(f"; {named:.1e} of 'shop 9'.")
    assert document.parity.outputs["y"].max_error == errors.max()
    assert sum(each.bytes for each in document.fleet.classes) == sum(step.bytes for step in document.stages[-1].steps)
    assert "as stacked" in out
    code, _, err = run_here("describe", "described/demand", "--member", "shop-9")
    assert (code, err) == (1, "Error: demand has no model 'shop-9'.")
    code, _, err = run_here("describe", FILES[0], "--member", "007")
    assert (code, err) == (1, "Error: --member is for an entry of many models, which `export-fleet` writes.")


def test_a_progress_bar_is_shown_on_a_terminal(run_here, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, _, err = run_here("export-fleet", *GIVEN, "--repository", "shown")
    assert code == 0
    assert "compiling models" in err
    assert "3/3" in err


def test_a_manifest_lists_files_relative_to_its_folder(run_here, folder, monkeypatch):
    given = ("export-fleet", "--manifest", "models.csv", "--name", "listed", "--by", "shop")
    code, _, err = run_here(*given)
    assert code == 1
    assert "other/007.joblib is a pickle, and loading it runs" in err
    code, out, _ = run_here(*given, "--trust-pickle")
    assert code == 0, out
    assert ids(folder / "model_repository/listed/1") == ["1", "2"]
    table = pd.read_csv(folder / "models.csv").rename(columns={"id": "shop"}).astype({"shop": "int64"})
    table.to_parquet(folder / "other/../by_name.parquet")
    assert run_here(*given[:2], "by_name.parquet", *given[3:], "--trust-pickle")[0] == 0
    assert ids(folder / "model_repository/listed/2") == ["1", "2"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("id,path\na,b\n", r"manifest\.csv must have the columns 'file' and 'shop' or 'id'\."),
        ("shop,file\na,x.skops\na,y.skops\n", r"manifest\.csv has the id 'a' more than once\."),
        ("shop,file\na,x.skops\n,y.skops\n", r"Row 1 of manifest\.csv lacks its id\."),
        ("shop,file\na,\n", r"Row 0 of manifest\.csv lacks its file\."),
        ("shop,file\na,x.skops\n", r"x\.skops"),
        ("town,shop,file\na,b,x.skops\na,b,y.skops\n", r"manifest\.csv has the id \('a', 'b'\) more than once\."),
        ("town,shop,file\n,b,x.skops\n", r"Row 0 of manifest\.csv lacks its id\."),
        ("town,id,file\na,b,x.skops\n", r"manifest\.csv must have the columns 'file' and 'town' and 'shop'\."),
    ],
)
def test_manifests_that_cannot_be_used(run_here, folder, lines, says):
    (folder / "manifest.csv").write_text(lines)
    by = ("--by", "town", "--by", "shop") if "town" in lines else ("--by", "shop")
    code, _, err = run_here("export-fleet", "--manifest", "manifest.csv", "--name", "refused", *by)
    assert code == 1
    assert re.search(says, err)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Give the models as files, or with --manifest, or with --mlflow."),
        ((*FILES, "--manifest", "models.csv"), "Give the models as files, or with --manifest, or with --mlflow."),
        (
            (*FILES, "other/007.joblib"),
            "models/007.skops and other/007.joblib would both have the id '007'; give ids with --manifest.",
        ),
        (("models:/demand/3",), "models:/demand/3 has no id: give models in MLflow with --mlflow, or list them"),
        ((*FILES, "other/narrow.skops"), "'007' and 'narrow' differ in the names of their columns"),
        ((*FILES, "--samples", "rows.csv"), "rows.csv has no column 'id' with the id of each row's model; name it"),
        ((FILES[0], "--by", "shop", "--samples", "rows.csv"), "rows for '008', which is no model of the fleet."),
        ((*FILES, "--by", "price"), "'price' already; choose another name with by=."),
        ((*FILES, "--by", "town", "--by", "shop"), "come from a --manifest with the columns file, town, shop."),
        (
            ("--mlflow", "a-*", "--by", "town", "--by", "shop"),
            "come from a --manifest with the columns file, town, shop.",
        ),
        (
            (FILES[0], "--by", "town", "--by", "shop"),
            "must be a tuple of its town and shop, or of the first of them, not",
        ),
        ((*FILES, "--tracking-uri", "http://localhost"), "--tracking-uri goes with models in MLflow."),
        (("--mlflow", "demand"), "the models' name must have one *, such as demand-* or demand-*@ALIAS."),
    ],
)
def test_what_cannot_be_exported_is_said_and_nothing_is_written(run_here, folder, arguments, says):
    code, out, err = run_here("export-fleet", *arguments, "--name", "refused")
    assert (code, out) == (1, "")
    assert says in err
    assert not (folder / "model_repository/refused").exists()


def test_ids_may_have_several_columns(run_here, folder):
    """They come from a manifest, in which the last cells of a parent are empty, and are written with commas."""
    of = {("Bonn", "1"): "007", ("Rom, old", "1"): "008", ("Bonn",): "shop 9", (): "shop 9"}
    listed = [(*(*name, "", "")[:2], f"models/{file}.skops") for name, file in of.items()]
    manifest = pd.DataFrame(listed, columns=["town", "shop", "file"])
    manifest.to_csv(folder / "towns.csv", index=False)
    rows = [X[:20].assign(town=town, shop=1) for town in ("Bonn", "Rom, old")]
    pd.concat(rows).to_csv(folder / "town_rows.csv", index=False)
    given = ("--manifest", "towns.csv", "--name", "towns", "--by", "town", "--by", "shop", "--input", "fp64")
    code, out, err = run_here("export-fleet", *given, "--samples", "town_rows.csv")
    assert (code, err) == (0, "")
    assert "  input   town        BYTES  [rows, 1]  town\n" in out
    assert "\n4 models; town and shop name the one that answers a row.\n" in out
    path = folder / "model_repository/towns"
    assert sorted(read_document(path / "1").inputs.models) == sorted(of)
    manifest.assign(shop=[1.0, 1.0, None, None]).to_parquet(folder / "towns.parquet")
    code, _, err = run_here("export-fleet", "--manifest", "towns.parquet", *given[2:], "--repository", "from_parquet")
    assert (code, err) == (0, "")
    assert sorted(read_document(folder / "from_parquet/towns/1").inputs.models) == sorted(of)
    code, out, err = run_here("describe", "towns", "--member", '"Rom, old",1')
    assert (code, err) == (0, "")
    assert """ of '"Rom, old",1'.""" in " ".join(out.split())
    changes = ("--set", "Bonn,2=models/008.skops", "--set", "()=models/007.skops", "--remove", "Bonn")
    code, out, err = run_here("update-fleet", "towns", *changes)
    assert (code, err) == (0, "")
    assert "\n1 added, 1 replaced, 1 removed; 2 are those of version 1.\n" in out
    now = {("Bonn", "2"): "008", ("Bonn", "3"): "007", ("Rom, old", "1"): "008"}
    asked = pd.concat([X[:9].assign(town=town, shop=shop) for town, shop in now])
    asked.to_csv(folder / "asked.csv", index=False)
    code, _, err = run_here("score", "towns", "asked.csv", "scored.csv", "--keep", "town,shop")
    assert code == 0, err
    scored = pd.read_csv(folder / "scored.csv", dtype={"shop": str})
    assert scored["town"].tolist() == asked["town"].tolist()
    assert scored["shop"].tolist() == asked["shop"].tolist()
    expected = np.concatenate([MODELS[file].predict(X[:9]) for file in now.values()])
    assert scored["y"].to_numpy() == pytest.approx(expected, abs=1e-4)


def test_it_needs_a_name(run_here):
    code, _, err = run_here("export-fleet", *FILES)
    assert code == 2
    assert "--name" in err


def test_a_container_may_have_several_columns_of_groups(run_here, folder):
    table = pd.concat([X.assign(town=town, shop=shop) for town in ("Bonn", "Ulm") for shop in (1, 2)])
    fitted = GroupedPredictor(Ridge(), groups=["town", "shop"]).fit(table, table["price"] - table["day"])
    joblib.dump(fitted, folder / "towns.joblib")
    table.to_csv(folder / "towns.csv", index=False)
    for more in (["--samples", "towns.csv"], ["--by", "town", "--by", "shop"]):
        code, out, err = run_here("export-fleet", "towns.joblib", "--name", "grouped-towns", "--trust-pickle", *more)
        assert (code, err) == (0, "")
    assert "\n5 models; town and shop name the one that answers a row.\n" in out
    answers = tr.load(folder / "model_repository/grouped-towns").predict(table)
    assert answers == pytest.approx(fitted.predict(table), abs=1e-5)
    code, _, err = run_here("export-fleet", "towns.joblib", "--name", "refused", "--trust-pickle", "--by", "shop")
    assert code == 1
    assert "by must be ['town', 'shop'], the GroupedPredictor's columns of groups, not 'shop'." in err


@pytest.mark.parametrize("whole", [False, True])
def test_a_file_may_hold_a_container_of_models(run_here, folder, whole):
    """Its groups are the ids, in the column that it was fitted on, and no type has to be named."""
    table = pd.concat([X.assign(shop=number if whole else f"0{number}") for number in (1, 2)], ignore_index=True)
    fitted = GroupedPredictor(Ridge(), groups="shop").fit(table, table["price"] - table["day"])
    skops.io.dump(fitted, folder / "grouped.skops")
    table.to_csv(folder / "grouped.csv", index=False)
    for more in ([], ["--samples", "grouped.csv"], ["--by", "shop"]):
        code, out, err = run_here("export-fleet", "grouped.skops", "--name", f"grouped-{whole}", *more)
        assert (code, err) == (0, "")
    assert "3 models; shop names the one that answers a row." in out
    assert f"{-1 if whole else 'global'!r} answers rows with another id; model_used says so." in out
    answers = tr.load(folder / f"model_repository/grouped-{whole}").predict(table)
    assert answers == pytest.approx(fitted.predict(table), abs=1e-5)
    (folder / "grouped.csv").write_text("price,day,stock,shop\n1,2,3,x\n")
    code, _, err = run_here("export-fleet", "grouped.skops", "--name", "refused", "--samples", "grouped.csv")
    assert code == 1
    assert ("'shop' of grouped.csv must hold whole numbers" if whole else "no rows for the model '01'") in err
    code, _, err = run_here("export-fleet", "grouped.skops", "--name", "refused", "--by", "store")
    assert (code, err) == (1, "Error: by must be 'shop', the GroupedPredictor's column of groups, not 'store'.")
    code, _, err = run_here("export", "grouped.skops")
    assert code == 1
    assert "it holds a model for each group" in err
