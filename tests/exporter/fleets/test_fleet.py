"""A fleet answers each row with the bits of its model's own entry, and what cannot be one entry says why."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tests.exporter.fleets.fleets import (
    COLUMNS,
    gaussian_processes,
    linear_leaves,
    mixed,
    nearest,
    networks,
    polynomials,
    powers,
    ridges,
    rows,
    samples,
    single_trees,
    sums_over_points,
    table,
    target,
)
from tests.files import check_same_files
from triton_regressors import ExportError, FleetExport, InvalidRequest, export, export_fleet, load, lowers
from triton_regressors.exporter.lowering.registry import _LOWERINGS
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document, read_golden
from triton_regressors.kernels.format.member_table import read_members
from triton_regressors.kernels.plan.plan import load_plan

RIDGES, MIXED = ridges(7), mixed()
ALIKE = {
    "ridges": RIDGES,
    "sums over points": sums_over_points(5),
    "quadratic": polynomials(3, 2),
    "cubic": polynomials(3, 3),
    "single trees": single_trees(5),
    "linear leaves": linear_leaves(3),
    "gaussian processes": gaussian_processes(3),
    "powers": powers(3),
    "nearest": nearest(3),
}
"""Fleets of one class."""
NETWORKS = networks(4)
FLEETS = {**ALIKE, "networks": NETWORKS, "mixed": MIXED}


def input_of(fleet: FleetExport) -> str:
    return "fp64" if fleet.document.inputs.dtype == "float64" else "fp32"


@pytest.mark.parametrize("models", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("sampled", [True, False])
def test_a_row_has_the_bits_of_its_models_own_entry(models: dict[str, Any], sampled: bool, tmp_path: Path) -> None:
    given = samples(models) if sampled else None
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=given)
    X = table(models)
    found = load(tmp_path / "demand").predict(X)
    for name, model in models.items():
        own_sample = None if given is None else given[name]
        alone = export(model, tmp_path, name=name, sample=own_sample, input=input_of(fleet))
        mine = (X["shop"] == name).to_numpy()
        own = X.loc[mine, COLUMNS]
        assert found[mine].tobytes() == load(alone.entry.directory).predict(own).tobytes()
        np.testing.assert_allclose(found[mine], model.predict(own), rtol=1e-5, atol=1e-4)
    assert fleet.document.fleet is not None
    assert fleet.document.fleet.members == len(models)


@pytest.mark.parametrize("models", FLEETS.values(), ids=FLEETS)
def test_kernels_give_the_bits_of_the_members_own_plans(models: dict[str, Any], tmp_path: Path, engine: str) -> None:
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models))
    X = fleet.golden.X
    ids = fleet.document.inputs.text[-1].categories[0]
    found = Runner(fleet.plan, engine=engine, max_rows=len(X)).predict(X)["y"]
    for number, name in enumerate(ids):
        alone = export(models[name], tmp_path, name=name, sample=samples(models)[name], input=input_of(fleet))
        mine = X[:, -1] == number
        own = np.ascontiguousarray(X[mine, :-1])
        answers = Runner(load_plan(alone.entry.version_directory), engine=engine, max_rows=64).predict(own)["y"]
        assert found[mine].tobytes() == answers.tobytes()


@pytest.mark.parametrize("models", ALIKE.values(), ids=ALIKE)
def test_models_that_differ_in_their_numbers_alone_are_one_class(models: dict[str, Any], tmp_path: Path) -> None:
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models)).document.fleet
    assert fleet is not None
    assert [(each.members, each.stacked) for each in fleet.classes] == [(len(models), True)]


def test_like_models_are_one_class(tmp_path: Path) -> None:
    fleet = export_fleet(MIXED, tmp_path, name="demand", by="shop", samples=samples(MIXED)).document.fleet
    assert fleet is not None
    ridge = next(each for each in fleet.classes if each.members == 3)  # two behind a scaler, and a Lasso
    assert ridge.stacked
    assert ridge.launches == 1
    assert sum(each.members for each in fleet.classes) == len(MIXED)


def test_networks_are_one_class_for_each_precision(tmp_path: Path) -> None:
    plan = export_fleet(NETWORKS, tmp_path, name="demand", by="shop", samples=samples(NETWORKS)).plan
    found = [step.operation for step in plan.steps if step.operation.kind().endswith("dense_layers")]
    precisions = [each.attributes()["precision"] for each in found]
    assert len(precisions) == len(set(precisions)) < len(NETWORKS)


def test_nan_is_refused_for_models_that_do_not_take_it(tmp_path: Path) -> None:
    export_fleet(MIXED, tmp_path, name="demand", by="shop", samples=samples(MIXED))
    X, model = table(MIXED, 40), load(tmp_path / "demand")
    boosted = X["shop"].isin(["shop-3", "shop-5"])
    X.loc[boosted, "x2"] = np.nan
    expected = [MIXED[name].predict(X.loc[[row], COLUMNS])[0] for row, name in enumerate(X["shop"])]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-5, atol=1e-4)
    row = int(np.flatnonzero(X["shop"] == "shop-0")[0])
    X.loc[row, "x2"] = np.nan
    with pytest.raises(InvalidRequest, match=rf"X must be finite: row {row}, column 2 \('x2'\) is nan \(its model"):
        model.predict(X)


@pytest.mark.parametrize("wrong", ["nobody", "", "shop-00", "SHOP-0"])
def test_an_unknown_id_is_refused_by_its_name(wrong: str, tmp_path: Path) -> None:
    export_fleet(RIDGES, tmp_path, name="demand", by="shop")
    X = table(RIDGES, 10)
    X.loc[4, "shop"] = wrong
    with pytest.raises(InvalidRequest, match=f"shop must name a model of this fleet: row 4 is '{wrong}'"):
        load(tmp_path / "demand").predict(X)


def test_ids_may_be_whole_numbers(tmp_path: Path) -> None:
    numbers = {name: int(name.removeprefix("shop-")) * 10**15 - 3 for name in RIDGES}
    models = {numbers[name]: model for name, model in RIDGES.items()}
    X = table(RIDGES)
    named = export_fleet(RIDGES, tmp_path, name="named", by="shop", samples=samples(RIDGES))
    given = {numbers[name]: each for name, each in samples(RIDGES).items()}
    numbered = export_fleet(models, tmp_path, name="numbered", by="shop", samples=given)
    assert numbered.document.inputs.datatypes() == {"X": "FP32", "shop": "INT64"}
    assert numbered.plan.dtype == named.plan.dtype == "float32"
    model, of_numbers = load(tmp_path / "numbered"), X.assign(shop=X["shop"].map(numbers))
    assert model.predict(of_numbers).tobytes() == load(tmp_path / "named").predict(X).tobytes()
    with pytest.raises(InvalidRequest, match="shop must name a model of this fleet: row 2 is 11"):
        model.predict(of_numbers.assign(shop=of_numbers["shop"].where(of_numbers.index != 2, 11)))


def test_an_unknown_id_may_be_answered_by_a_default(tmp_path: Path) -> None:
    for models, ids in ((RIDGES, list(RIDGES)), ({int(name[5:]): model for name, model in RIDGES.items()}, range(7))):
        default = list(models)[2]
        fleet = export_fleet(models, tmp_path, name=f"demand-{default}", by="shop", default=default)
        X = table(RIDGES)
        X["shop"] = X["shop"].map(dict(zip(RIDGES, ids, strict=True)))
        unknown = X["shop"] == list(ids)[4]
        given = X.assign(shop=X["shop"].mask(unknown, 11 if isinstance(default, int) else "nobody"))
        model = load(tmp_path / f"demand-{default}")
        y, used = model.predict(given), model.infer(given)["model_used"][:, 0]
        assert y.tobytes() == model.predict(X.assign(shop=X["shop"].mask(unknown, default))).tobytes()
        assert [list(ids)[int(number)] for number in used] == X["shop"].mask(unknown, default).tolist()
        assert fleet.document.parity.outputs["model_used"].max_error == 0
    with pytest.raises(InvalidRequest, match="shop must name a model of this fleet: row 3 is ''"):
        load(tmp_path / "demand-shop-2").predict(table(RIDGES).assign(shop=["shop-1"] * 3 + [""] + ["shop-1"] * 96))
    with pytest.raises(ExportError, match="default must be the id of a model of the fleet, not 'nobody'"):
        export_fleet(RIDGES, tmp_path, name="new", by="shop", default="nobody")


def test_an_export_is_reproducible_and_its_ids_keep_their_order(tmp_path: Path) -> None:
    first = export_fleet(RIDGES, tmp_path / "a", name="demand", by="shop", samples=samples(RIDGES)).entry.directory
    again = export_fleet(RIDGES, tmp_path / "b", name="demand", by="shop", samples=samples(RIDGES)).entry.directory
    check_same_files(first, again)
    document = read_document(first / "1")
    assert document.inputs.text[-1].categories == (tuple(RIDGES),)


def test_samples_may_be_one_table(tmp_path: Path) -> None:
    whole = pd.concat([each.assign(shop=name) for name, each in samples(RIDGES).items()])
    by_id = export_fleet(RIDGES, tmp_path / "a", name="demand", by="shop", samples=samples(RIDGES)).entry.directory
    at_once = export_fleet(RIDGES, tmp_path / "b", name="demand", by="shop", samples=whole).entry.directory
    check_same_files(by_id, at_once)


def test_members_have_golden_rows_and_parity_of_their_own(tmp_path: Path) -> None:
    version = export_fleet(MIXED, tmp_path, name="demand", by="shop", samples=samples(MIXED)).entry.version_directory
    document = read_document(version)
    golden, members = read_golden(version, document), read_members(version, document.inputs.n_features)
    assert np.bincount(golden.X[:, -1].astype(int)).min() == 16
    assert members.errors["y"].max() == document.parity.outputs["y"].max_error
    assert golden.units["y"].shape == (len(golden.X), 1)
    assert len(np.unique(golden.units["y"])) == len(MIXED)


def test_many_members_are_compiled_in_other_processes(tmp_path: Path) -> None:
    models, counts = ridges(70), list[int]()
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models), progress=counts.append)
    assert counts == [32, 64, 70]
    assert fleet.document.inputs.text[-1].categories == (tuple(models),)
    X = table(models)
    expected = [models[name].predict(X.loc[[row], COLUMNS])[0] for row, name in enumerate(X["shop"])]
    np.testing.assert_allclose(load(tmp_path / "demand").predict(X), expected, rtol=1e-5, atol=1e-4)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nothing": ({}, {}, "A fleet needs a mapping with at least one fitted model by its id"),
    "an empty id": ({"": RIDGES["shop-0"]}, {}, "The id of a model must be a string that is not empty, not ''"),
    "a number among strings": (
        {"shop-0": RIDGES["shop-0"], 7: RIDGES["shop-0"]},
        {},
        "The id of a model must be a string that is not empty, not 7",
    ),
    "a string among numbers": ({7: RIDGES["shop-0"], "7": RIDGES["shop-0"]}, {}, "as others are, not '7'"),
    "a number that is too large": ({2**63: RIDGES["shop-0"]}, {}, "a whole number that INT64 holds, as others are"),
    "a column": (RIDGES, {"by": "x1"}, "The models have a column or a tensor 'x1' already"),
    "rows and numbers": (
        {"shop-0": Ridge().fit(rows(0).rename(columns={"x1": "X_shop_number"}), target(rows(0), 0))},
        {"samples": None},
        "The models have a column or a tensor 'X_shop_number' already",
    ),
    "an input": (RIDGES, {"by": "X"}, "The models have a column or a tensor 'X' already"),
    "not fitted": (
        {**RIDGES, "new": Ridge()},
        {"samples": None},
        "Model 'new': Cannot export Ridge: it is not fitted",
    ),
    "no rows": (
        {**RIDGES, "new": RIDGES["shop-0"]},
        {},
        "The samples have no rows for the model 'new'.",
    ),
    "rows of nobody": (
        ridges(2),
        {"samples": samples(RIDGES)},
        "The samples have rows for 'shop-2', which is no model",
    ),
    "other columns": (
        {"shop-0": RIDGES["shop-0"], "shop-1": Ridge().fit(rows(1).iloc[:, :3], target(rows(1), 1))},
        {"samples": None},
        "'shop-0' and 'shop-1' differ in the names of their columns",
    ),
    "no name": (RIDGES, {"name": "a/b"}, "The name 'a/b' cannot be a model's"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_fleet_says_why(case: str, tmp_path: Path) -> None:
    models, options, why = REFUSED[case]
    given = {"name": "demand", "by": "shop", "samples": samples(RIDGES), **options}
    with pytest.raises(ExportError) as raised:
        export_fleet(models, tmp_path / "repository", **given)
    assert why in str(raised.value)
    assert not (tmp_path / "repository").exists()


TOWNS = pd.DataFrame({"town": ["Bonn", "Ulm", "Rom"] * 8, "n": range(24)})


def test_columns_that_are_made_of_strings_are_refused(tmp_path: Path) -> None:
    steps = FunctionTransformer(lambda table: table[["n"]].assign(size=table["town"].str.len()))
    model = make_pipeline(steps, Ridge()).fit(TOWNS, np.arange(24.0))
    with pytest.raises(ExportError, match="made of strings, such as a part"):
        export_fleet(dict.fromkeys("ab", model), tmp_path, name="towns", by="id", samples=dict.fromkeys("ab", TOWNS))
    assert not list(tmp_path.iterdir())


class Halver(RegressorMixin, BaseEstimator):
    """Answers half of the first column; `factor` is what its registered lowering answers."""

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "Halver":
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.array(X.columns, dtype=object)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return 0.5 * np.asarray(X)[:, 0]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Halver, None)  # so that the registration ends with the test

    @lowers(Halver)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.affine(x, np.eye(x.width)[0] * estimator.factor, 0.0)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("count", [3, 70])
def test_a_member_with_other_answers_is_named_and_nothing_written(count: int, tmp_path: Path) -> None:
    halver = Halver(0.6).fit(rows(0), target(rows(0), 0))
    why = "^Model 'half': Cannot export Halver: output 'y' differs from the estimator's own prediction by "
    with pytest.raises(ExportError, match=why):
        export_fleet({**ridges(count), "half": halver}, tmp_path, name="demand", by="shop")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("registered")
def test_other_processes_know_the_users_own_lowerings(tmp_path: Path) -> None:
    models = {**ridges(70), "half": Halver().fit(rows(0), target(rows(0), 0))}
    fleet = export_fleet(models, tmp_path, name="demand", by="shop").document.fleet
    assert fleet is not None
    assert [each.members for each in fleet.classes] == [71]
