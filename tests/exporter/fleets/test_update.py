"""An update writes what an export of the same models writes, and compiles only what is set."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.fleets.fleets import COLUMNS, mixed, ridges, rows, samples, table, target
from tests.files import check_same_files, files
from triton_regressors import ExportError, export, export_fleet, load, update_fleet
from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.client.tensors import take
from triton_regressors.exporter.fleets import member as members_module
from triton_regressors.exporter.fleets import update as update_module
from triton_regressors.exporter.fleets.fleet import FleetExport
from triton_regressors.kernels.entry import read_document, read_golden, write_document
from triton_regressors.model_config import from_pbtxt, to_pbtxt

RIDGES, MIXED = ridges(5), mixed()


def refitted(models: dict[str, Any], name: str) -> Any:
    """Return a model like that of the name, fitted on another target."""
    X = rows(int(name.removeprefix("shop-")))
    return clone(models[name]).fit(X, -target(X, 77))


def ids(fleet: FleetExport) -> list[Any]:
    return list(fleet.document.inputs.models)


def check_like_an_export(updated: FleetExport, models: dict[Any, Any], directory: Path, **options: Any) -> None:
    """The updated version's files are those of an export of the same models in the same order."""
    in_order = {name: models[name] for name in ids(updated)}
    assert in_order.keys() == models.keys()
    fresh = export_fleet(in_order, directory / "fresh", name="demand", by="shop", **options)
    check_same_files(updated.entry.version_directory, fresh.entry.version_directory)
    shutil.rmtree(directory / "fresh")


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("models", [RIDGES, MIXED], ids=["ridges", "mixed"])
def test_each_model_may_be_replaced_one_after_the_other(models: dict[str, Any], sampled: bool, tmp_path: Path) -> None:
    given = samples(models) if sampled else None
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=given)
    order, now = ids(fleet), dict(models)
    for version, name in enumerate(list(models), 2):
        now[name] = refitted(models, name)
        sample = None if given is None else {name: given[name]}
        fleet = update_fleet(tmp_path, "demand", set={name: now[name]}, samples=sample)
        assert fleet.entry.version == version
        assert fleet.changes == f"1 replaced; {len(models) - 1} are those of version {version - 1}."
        assert ids(fleet) == order
    check_like_an_export(fleet, now, tmp_path, samples=given)


def test_models_are_added_replaced_and_removed_at_once(tmp_path: Path) -> None:
    first = export_fleet(MIXED, tmp_path, name="demand", by="shop", samples=samples(MIXED))
    written = files(first.entry.version_directory)
    new = {"shop-9": Ridge().fit(rows(9), target(rows(9), 9)), "shop-1": refitted(MIXED, "shop-1")}
    now = {name: model for name, model in {**MIXED, **new}.items() if name not in ("shop-0", "shop-4")}
    fleet = update_fleet(tmp_path, "demand", set=new, remove=["shop-0", "shop-4"], samples=samples(now))
    assert "\n1 added, 1 replaced, 2 removed; 5 are those of version 1.\n" in str(fleet)
    X, before = table(now), load(tmp_path / "demand", version=1)
    found = load(tmp_path / "demand").predict(X)
    for name, model in now.items():
        own = X[X["shop"] == name]
        if name in new:
            export(model, tmp_path / "alone", name=name, sample=samples(now)[name], input="fp64")
            expected = load(tmp_path / "alone" / name).predict(own[COLUMNS])
        else:
            expected = before.predict(own)
        assert found[X["shop"] == name].tobytes() == expected.tobytes()
    kept = [name for name in ids(first) if name in now and name not in new]
    assert [name for name in ids(fleet) if name in kept] == kept
    assert files(first.entry.version_directory) == written
    provenance, classes = fleet.document.provenance, fleet.document.fleet
    assert provenance.estimator.startswith("2 Ridge, 2 HistGradientBoostingRegressor, 1 ")
    assert classes is not None
    assert sorted(each.estimator for each in classes.classes if each.stacked) == [
        "HistGradientBoostingRegressor",
        "Lasso, Ridge",
    ]
    check_like_an_export(fleet, now, tmp_path, samples=samples(now))


def test_a_model_of_another_kind_changes_its_class_and_keeps_the_order_of_others(tmp_path: Path) -> None:
    export_fleet(RIDGES, tmp_path, name="demand", by="shop", input="fp64")
    boosted = HistGradientBoostingRegressor(max_iter=5).fit(rows(1), target(rows(1), 1))
    fleet = update_fleet(tmp_path, "demand", set={"shop-1": boosted})
    assert ids(fleet) == ["shop-0", "shop-2", "shop-3", "shop-4", "shop-1"]
    check_like_an_export(fleet, {**RIDGES, "shop-1": boosted}, tmp_path, input="fp64")
    again = update_fleet(tmp_path, "demand", set={"shop-1": RIDGES["shop-1"]})
    assert ids(again) == ["shop-0", "shop-2", "shop-3", "shop-4", "shop-1"]
    check_like_an_export(again, RIDGES, tmp_path, input="fp64")


ROWS = pd.DataFrame(
    {
        "town": ["Bonn", "Ulm", "Rom", "Linz"] * 15,
        "open": np.arange(60) % 3 == 0,
        "zone": np.arange(60) % 4,
        "area": np.random.default_rng(0).normal(size=60).round(2),
        "age": np.where(np.arange(60) % 9 == 0, np.nan, np.arange(60.0) % 13),
    }
)


def towns(seed: int, last: Any, coded: list[str]) -> Any:
    """Return a model of a table with strings and missing numbers, which encodes some columns."""
    steps = (OneHotEncoder(), coded), (SimpleImputer(), ["age"]), (SplineTransformer(4), ["area"])
    drawn = np.random.default_rng(seed)
    model = make_pipeline(make_column_transformer(*steps, remainder="passthrough"), last)
    return model.fit(ROWS, drawn.normal(size=60) + ROWS["area"] * drawn.normal())


def test_categories_and_booleans_of_others_are_kept(tmp_path: Path) -> None:
    """They differ between the models here, and the fleet's are those of all of them."""
    models = {f"shop-{seed}": towns(seed, Ridge() if seed < 2 else LinearRegression(), ["town"]) for seed in range(4)}
    models["shop-4"] = towns(4, Ridge(), ["town", "zone"])
    models["shop-5"] = towns(5, DecisionTreeRegressor(max_depth=3), ["town"])
    given = dict.fromkeys([*models, "shop-6"], ROWS.assign(open=ROWS["open"].astype(int)))
    given["shop-5"] = ROWS
    sampled = {name: given[name] for name in models}
    for removed, categorical, booleans in (("shop-4", (), (1,)), ("shop-5", (2,), None), ("shop-1", (2,), (1,))):
        export_fleet(models, tmp_path / removed, name="demand", by="shop", samples=sampled, input="fp64")
        new = {"shop-6": towns(6, Ridge(), ["town"]), "shop-3": towns(33, LinearRegression(), ["town"])}
        fleet = update_fleet(tmp_path / removed, "demand", set=new, remove={removed}, samples=given)
        assert fleet.document.inputs.categorical == categorical
        assert fleet.document.boolean_columns == booleans
        now = {name: model for name, model in {**models, **new}.items() if name != removed}
        check_like_an_export(fleet, now, tmp_path, samples={name: given[name] for name in now}, input="fp64")


def test_ids_may_be_whole_numbers_and_a_default_stays(tmp_path: Path) -> None:
    models = {10**15 + shop: model for shop, model in enumerate(RIDGES.values())}
    export_fleet(models, tmp_path, name="demand", by="shop", default=10**15 + 2)
    new = {7: refitted(RIDGES, "shop-3"), 10**15 + 2: refitted(RIDGES, "shop-2")}
    fleet = update_fleet(tmp_path, "demand", set=new, remove=[10**15])
    assert ids(fleet) == [*(10**15 + shop for shop in range(1, 5)), 7]
    now = {number: model for number, model in {**models, **new}.items() if number != 10**15}
    check_like_an_export(fleet, now, tmp_path, default=10**15 + 2)
    asked = rows(3).assign(shop=11)
    found = load(tmp_path / "demand").infer(asked)
    assert set(found["model_used"].ravel()) == {1.0}
    np.testing.assert_allclose(found["y"].ravel(), new[10**15 + 2].predict(rows(3)), rtol=1e-5, atol=1e-4)
    with pytest.raises(ExportError, match=f"^{10**15 + 2} answers rows with an unknown id; it can be replaced, but"):
        update_fleet(tmp_path, "demand", remove=[10**15 + 2])
    with pytest.raises(ExportError, match="must be a whole number that INT64 holds, as others are, not '7'"):
        update_fleet(tmp_path, "demand", set={"7": RIDGES["shop-0"]})


def test_only_what_is_set_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export_fleet(RIDGES, tmp_path, name="demand", by="shop")
    compiled, own = [], members_module._member

    def member(name: str | int, *given: Any) -> members_module.Member:
        compiled.append(name)
        return own(name, *given)

    monkeypatch.setattr(members_module, "_member", member)
    counts = list[int]()
    update_fleet(tmp_path, "demand", set={"shop-2": refitted(RIDGES, "shop-2")}, progress=counts.append)
    assert (compiled, counts) == (["shop-2"], [1])
    fleet = update_fleet(tmp_path, "demand", remove=["shop-2"])
    assert compiled == ["shop-2"]
    document = read_document(fleet.entry.version_directory)
    before, after = first.golden, read_golden(fleet.entry.version_directory, document)
    assert after.outputs["y"].tobytes() == before.outputs["y"][before.X[:, -1] != 2].tobytes()
    assert document.parity.rows == 4 * first.document.parity.rows / 5
    assert document.parity.outputs["y"].max_error == np.delete(first.table.errors["y"], 2).max()


def test_origins_are_those_of_each_models_own_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_fleet(RIDGES, tmp_path, name="demand", by="shop")
    monkeypatch.setattr(members_module.sklearn, "__version__", "9.9.9")
    given = {"samples": samples(RIDGES)}
    some = update_fleet(tmp_path, "demand", set={"shop-2": RIDGES["shop-2"]}, **given)
    first = read_document(tmp_path / "demand/1").provenance.scikit_learn
    assert some.document.provenance.scikit_learn == f"{first}, 9.9.9"
    assert some.document.parity.rows_from == "5 models, a draw to the fitted scale or the given sample of each"
    whole = update_fleet(tmp_path, "demand", set=RIDGES, **given)
    assert whole.document.provenance.scikit_learn == "9.9.9"
    assert whole.document.parity.rows_from == "5 models, the given sample of each"


NARROW = Ridge().fit(rows(1).iloc[:, :3], target(rows(1), 1))
RENAMED = Ridge().fit(rows(1).rename(columns=str.upper), target(rows(1), 1))
TWO = Ridge().fit(rows(1), np.stack([target(rows(1), 1)] * 2, axis=1))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "Name a model of demand to set or to remove."),
    "no mapping": ({"set": ["shop-1"]}, "set must be a mapping of fitted models by their ids, not ['shop-1']."),
    "one text": ({"remove": "shop-1"}, "remove must be a list of ids, not 'shop-1'."),
    "an unknown id": ({"remove": ["shop-1", "nobody"]}, "demand has no model 'nobody' to remove."),
    "all": ({"remove": list(RIDGES)}, "A fleet needs at least one model, and these are all models of demand."),
    "both": ({"set": {"shop-1": TWO}, "remove": ["shop-1"]}, "The model 'shop-1' is both set and removed."),
    "a number": ({"set": {7: RIDGES["shop-1"]}}, "The id of a model must be a string that is not empty, not 7."),
    "an empty id": ({"set": {"": RIDGES["shop-1"]}}, "The id of a model must be a string that is not empty, not ''."),
    "fewer columns": ({"set": {"shop-1": NARROW}}, "'shop-0' and 'shop-1' differ in the number of their columns"),
    "other names": ({"set": {"shop-0": RENAMED}}, "'shop-0' and 'shop-1' differ in the names of their columns"),
    "other outputs": ({"set": {"new": TWO}}, "'shop-0' and 'new' differ in their outputs ({'y': 1} and {'y': 2})."),
    "not fitted": ({"set": {"new": Ridge()}}, "Model 'new': Cannot export Ridge: it is not fitted"),
    "no rows": (
        {"set": {"new": RIDGES["shop-1"]}, "samples": samples(RIDGES)},
        "The samples have no rows for the model 'new'.",
    ),
    "rows of nobody": (
        {"set": {"shop-1": RIDGES["shop-1"]}, "samples": {**samples(RIDGES), "nobody": rows(1)}},
        "The samples have rows for 'nobody', which is no model of the fleet.",
    ),
    "a precision": ({"set": {"new": RIDGES["shop-1"]}, "precision": "low"}, "precision must be one of"),
}


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("update")
    export_fleet(RIDGES, directory, name="demand", by="shop")
    export(RIDGES["shop-0"], directory, name="alone")
    (directory / "foreign/1").mkdir(parents=True)
    return directory


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_changed_says_why_and_nothing_is_written(case: str, repository: Path) -> None:
    options, why = REFUSED[case]
    before = files(repository)
    with pytest.raises(ExportError) as raised:
        update_fleet(repository, "demand", **options)
    assert why in str(raised.value)
    assert files(repository) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody", "Cannot update nobody: .*nobody is not an entry"),
        ("alone", r"alone is an entry of one model; `export` writes its next version\."),
        ("foreign", r"foreign/1 has no plan\.json: no export wrote it\."),
        ("a/b", "The name 'a/b' cannot be a model's"),
    ],
)
def test_what_is_no_fleet_is_refused(name: str, why: str, repository: Path) -> None:
    with pytest.raises(ExportError, match=why):
        update_fleet(repository, name, set=RIDGES)


def test_a_model_that_needs_fp64_is_refused_where_the_fleet_is_fp32(tmp_path: Path) -> None:
    export_fleet(RIDGES, tmp_path, name="demand", by="shop", samples=samples(RIDGES))
    given: dict[str, Any] = {"set": {"shop-3": MIXED["shop-3"]}, "samples": samples(RIDGES)}
    with pytest.raises(ExportError, match=r"The fleet takes FP32, and the model 'shop-3' needs FP64.*--input fp32\.$"):
        update_fleet(tmp_path, "demand", **given)
    assert [path.name for path in (tmp_path / "demand").iterdir() if path.is_dir()] == ["1"]
    fleet = update_fleet(tmp_path, "demand", **given, input="fp32")
    assert fleet.document.inputs.dtype == "float32"


def test_a_damaged_version_is_not_kept(tmp_path: Path) -> None:
    version = export_fleet(RIDGES, tmp_path, name="demand", by="shop").entry.version_directory
    (version / "golden.safetensors").write_bytes(b"")
    with pytest.raises(ExportError, match=r"^Cannot update demand: .*golden\.safetensors"):
        update_fleet(tmp_path, "demand", remove=["shop-1"])
    shutil.rmtree(version)
    version = export_fleet(RIDGES, tmp_path, name="demand", by="shop").entry.version_directory
    document = read_document(version)
    write_document(version, dataclasses.replace(document, plan={**document.plan, "protocol": 99}))
    with pytest.raises(ExportError, match=r"^Cannot keep the models of demand version 1: The plan is written in prot"):
        update_fleet(tmp_path, "demand", remove=["shop-1"])
    assert not (version.parent / "2").exists()


@pytest.mark.parametrize("step", ["compile_members", "publish_fleet"])
def test_no_change_of_another_update_is_lost(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another update writes the next version while this one compiles, or just before it writes."""
    own = getattr(update_module, step)

    def later(*given: Any) -> Any:
        monkeypatch.undo()
        update_fleet(tmp_path, "demand", remove=["shop-4"])
        return own(*given)

    export_fleet(RIDGES, tmp_path, name="demand", by="shop")
    monkeypatch.setattr(update_module, step, later)
    with pytest.raises(ExportError, match=r"^demand got a version 2 during this update; update that version\.$"):
        update_fleet(tmp_path, "demand", remove=["shop-1"])
    fleet = update_fleet(tmp_path, "demand", remove=["shop-1"])
    assert (fleet.entry.version, ids(fleet)) == (3, ["shop-0", "shop-2", "shop-3"])


def test_the_entrys_settings_stay(tmp_path: Path) -> None:
    export_fleet(RIDGES, tmp_path, name="demand", by="shop", max_batch_size=256, versions=2)
    before = (tmp_path / "demand/config.pbtxt").read_bytes()
    update_fleet(tmp_path, "demand", set={"shop-3": refitted(RIDGES, "shop-3")})
    assert (tmp_path / "demand/config.pbtxt").read_bytes() == before


@pytest.mark.parametrize("older", [False, True])
def test_an_entry_keeps_its_inputs_whatever_the_length_of_ids(older: bool, tmp_path: Path) -> None:
    """Ids that the input of joined rows and ids does not hold are sent apart, and an older entry lacks this input."""
    path = export_fleet(RIDGES, tmp_path, name="demand", by="shop").entry.directory / "config.pbtxt"
    config, long = from_pbtxt(path.read_bytes()), "a shop whose id is longer"
    if older:
        config.input.remove(next(each for each in config.input if each.name == "X_shop_FP32x6_BYTES"))
        path.write_text(to_pbtxt(config))
    update_fleet(tmp_path, "demand", set={long: RIDGES["shop-3"]})
    assert list(from_pbtxt(path.read_bytes()).input) == list(config.input)
    X = pd.concat([rows(3, 3).assign(shop=shop) for shop in ("shop-3", long)])
    found = load(tmp_path / "demand").predict(X)
    assert found[3:].tobytes() == found[:3].tobytes()
    told = Configuration.of(config)
    tensors, _ = told.tensors(X)
    assert list(told.sent(take(tensors, slice(0, 3)))) == (["X", "shop"] if older else ["X_shop_FP32x6_BYTES"])
    assert list(told.sent(tensors)) == ["X", "shop"]


def test_columns_without_names_may_be_updated(tmp_path: Path) -> None:
    plain = {
        f"shop-{shop}": make_pipeline(StandardScaler(), Ridge()).fit(rows(shop).to_numpy(), target(rows(shop), shop))
        for shop in range(3)
    }
    export_fleet(plain, tmp_path, name="demand", by="shop")
    fleet = update_fleet(tmp_path, "demand", set={"shop-1": plain["shop-2"]})
    check_like_an_export(fleet, {**plain, "shop-1": plain["shop-2"]}, tmp_path)
