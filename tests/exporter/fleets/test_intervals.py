"""A fleet's intervals are those of its models' own entries, to the bit, and like models stay one class."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklego.meta import GroupedPredictor

from tests.exporter.fleets.fleets import COLUMNS, ridges, rows, samples, table, target
from tests.files import check_same_files, files
from triton_regressors import ExportError, FleetExport, export, export_fleet, load, update_fleet
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.member_table import read_members
from triton_regressors.kernels.plan.plan import load_plan

SHOPS = range(4)
NAMES = [f"shop-{shop}" for shop in SHOPS]
OUTPUTS = ("y", "lower", "upper")


def two_targets(X: pd.DataFrame, shop: int) -> np.ndarray:
    return np.stack([target(X, shop), 3 * target(X, shop + 50)], axis=1)


def counts(X: pd.DataFrame, shop: int) -> np.ndarray:
    return np.random.default_rng(shop).poisson(5.0, len(X)).astype(float)


def fitted(make: Any, of: Any = target) -> dict[str, Any]:
    """Return models by the names of shops; `of` makes their targets."""
    return {name: make(shop).fit(rows(shop), of(rows(shop), shop)) for shop, name in zip(SHOPS, NAMES, strict=True)}


def held_out(of: Any = target) -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Return noisy rows with their targets, another number for each shop."""
    found = {}
    for shop, name in zip(SHOPS, NAMES, strict=True):
        X = rows(shop, 60 + 40 + 7 * shop).iloc[60:]
        y = of(X, shop)
        found[name] = X, y + np.random.default_rng(shop).normal(0, 1 + shop, y.shape)
    return found


def boosted(quantile: float) -> GradientBoostingRegressor:
    return GradientBoostingRegressor(loss="quantile", alpha=quantile, n_estimators=4, random_state=0)


def multi_quantile() -> CatBoostRegressor:
    loss = "MultiQuantile:alpha=0.1,0.5,0.9"
    return CatBoostRegressor(iterations=4, depth=3, loss_function=loss, verbose=0, allow_writing_files=False)


QUANTILES = {name: (low, high) for name, low, high in zip(
    NAMES, fitted(lambda _: boosted(0.1)).values(), fitted(lambda _: boosted(0.9)).values(), strict=True
)}  # fmt: skip

FLEETS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "ridges": (ridges(len(NAMES)), {"calibrate": held_out()}, 4),
    "a link": (fitted(lambda _: PoissonRegressor(), counts), {"calibrate": held_out(counts)}, 4),
    "boosting": (fitted(lambda _: HistGradientBoostingRegressor(max_iter=4)), {"calibrate": held_out()}, 4),
    "two targets": (fitted(lambda _: LinearRegression(), two_targets), {"calibrate": held_out(two_targets)}, 4),
    "std": (fitted(lambda _: make_pipeline(StandardScaler(), BayesianRidge())), {"calibrate": held_out()}, 0),
    "quantile models": (ridges(len(NAMES)), {"calibrate": held_out(), "quantiles": QUANTILES}, 10),
    "quantiles in y": (fitted(lambda _: multi_quantile()), {"calibrate": held_out()}, 0),
}  # fmt: skip
"""Fleets of one class: models, the arguments of their intervals, and the launches of the class if that is known."""

MIXED = {
    **ridges(2),
    "shop-2": KNeighborsRegressor(3).fit(rows(2), target(rows(2), 2)),
    "shop-3": HistGradientBoostingRegressor(max_iter=3).fit(rows(3), target(rows(3), 3)),
}


def own(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the arguments of one model."""
    return {argument: of_models[name] for argument, of_models in given.items()}


def alone(models: dict[str, Any], given: dict[str, Any], name: str, fleet: FleetExport, directory: Path) -> Path:
    """Return the entry of one model of a fleet."""
    fp64 = fleet.document.inputs.dtype == "float64"
    taken = {"sample": samples(models)[name], "level": 0.8, "input": "fp64" if fp64 else "auto"}
    return export(models[name], directory, name=name, **taken, **own(given, name)).entry.version_directory


@pytest.mark.parametrize("case", [*FLEETS, "mixed"])
def test_ends_have_the_bits_of_the_models_own_entries(case: str, tmp_path: Path) -> None:
    models, given, _ = FLEETS.get(case, (MIXED, {"calibrate": held_out()}, 0))
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models), level=0.8, **given)
    X = table(models)
    found = load(tmp_path / "demand").infer(X)
    assert found.keys() >= set(OUTPUTS)
    for name in models:
        mine = (X["shop"] == name).to_numpy()
        answers = load(alone(models, given, name, fleet, tmp_path).parent).infer(X.loc[mine, COLUMNS])
        assert answers.keys() == found.keys()
        for output, values in answers.items():
            assert found[output][mine].tobytes() == values.tobytes()
    if case in ("ridges", "two targets", "std"):
        assert (found["lower"] <= found["y"]).all()
        assert (found["y"] <= found["upper"]).all()


@pytest.mark.parametrize("case", FLEETS)
def test_kernels_give_the_bits_of_the_models_own_plans(case: str, tmp_path: Path, engine: str) -> None:
    models, given, _ = FLEETS[case]
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models), level=0.8, **given)
    X = fleet.golden.X
    found = Runner(fleet.plan, engine=engine, max_rows=len(X)).predict(X, OUTPUTS)
    for number, name in enumerate(fleet.document.inputs.models):
        mine = X[:, -1] == number
        plan = load_plan(alone(models, given, str(name), fleet, tmp_path))
        answers = Runner(plan, engine=engine, max_rows=64).predict(np.ascontiguousarray(X[mine, :-1]), OUTPUTS)
        for output in OUTPUTS:
            assert found[output][mine].tobytes() == answers[output].tobytes()


@pytest.mark.parametrize("case", FLEETS)
def test_like_models_with_intervals_are_one_class(case: str, tmp_path: Path) -> None:
    models, given, launches = FLEETS[case]
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", **given).document.fleet
    assert fleet is not None
    (alike,) = fleet.classes
    assert (alike.members, alike.stacked) == (len(models), True)
    assert launches in (0, alike.launches)


def test_answers_that_are_not_finite_are_those_of_own_entries(tmp_path: Path) -> None:
    """A Poisson model's answer overflows; a look-up in front of the ends must not make NaN of it."""
    models, given, _ = FLEETS["a link"]
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=samples(models), level=0.8, **given)
    X = np.full((2, len(COLUMNS)), np.finfo(np.float32).max / 2)
    X[1] *= -1
    for number, name in enumerate(fleet.document.inputs.models):
        answers = Runner(fleet.plan, engine="torch", max_rows=2).predict(np.c_[X, [number] * 2].astype("f4"), OUTPUTS)
        plan = load_plan(alone(models, given, str(name), fleet, tmp_path))
        expected = Runner(plan, engine="torch", max_rows=2).predict(X.astype("f4"), OUTPUTS)
        for output in OUTPUTS:
            assert answers[output].tobytes() == expected[output].tobytes()
    assert not np.isfinite(answers["y"]).all()


def as_table(given: dict[str, tuple[pd.DataFrame, np.ndarray]]) -> tuple[pd.DataFrame, pd.Series]:
    """Return calibration rows of all models in any order, with their ids, and their targets."""
    whole = pd.concat([X.assign(shop=name, sold=y) for name, (X, y) in given.items()])
    whole = whole.sample(frac=1, random_state=0)
    return whole.drop(columns="sold"), whole["sold"]


def test_rows_may_be_in_one_table(tmp_path: Path) -> None:
    models, calibrate = ridges(len(NAMES)), as_table(held_out())
    unique = calibrate[0].reset_index(drop=True), calibrate[1].reset_index(drop=True)
    in_order = {
        name: (part.drop(columns="shop"), unique[1][part.index].to_numpy()) for name, part in unique[0].groupby("shop")
    }
    export_fleet(models, tmp_path / "mapped", name="demand", by="shop", calibrate=in_order)
    for targets in (calibrate[1], list(calibrate[1]), calibrate[1].to_frame()):
        export_fleet(models, tmp_path / "table", name="demand", by="shop", calibrate=(calibrate[0], targets), version=1)
        check_same_files(tmp_path / "mapped/demand/1", tmp_path / "table/demand/1")
        for file in sorted((tmp_path / "table").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
    assert read_document(tmp_path / "mapped/demand/1").fleet.level == 0.9  # type: ignore[union-attr]


def test_the_default_model_answers_its_interval_to_unknown_ids(tmp_path: Path) -> None:
    models = ridges(len(NAMES))
    export_fleet(models, tmp_path, name="demand", by="shop", default="shop-2", calibrate=held_out(), level=0.8)
    X, model = table(models, 30), load(tmp_path / "demand")
    found = model.predict_interval(X.assign(shop="nobody"))
    expected = model.predict_interval(X.assign(shop="shop-2"))
    assert [end.tobytes() for end in found] == [end.tobytes() for end in expected]
    assert (found[0] < found[1]).all()


def test_a_container_is_calibrated_by_its_groups_and_its_global_model_on_all_rows(tmp_path: Path) -> None:
    X = pd.concat([rows(shop).assign(shop=name) for shop, name in zip(SHOPS, NAMES, strict=True)], ignore_index=True)
    y = np.concatenate([target(rows(shop), shop) for shop in SHOPS])
    grouped = GroupedPredictor(Ridge(), groups="shop").fit(X, y)
    calibrate = as_table(held_out())
    fleet = export_fleet(grouped, tmp_path, name="grouped", calibrate=calibrate, level=0.8)
    assert fleet.table.calibration_rows is not None
    counted = dict(zip(fleet.document.inputs.models, fleet.table.calibration_rows.tolist(), strict=True))
    assert counted == {name: len(given[1]) for name, given in held_out().items()} | {"global": len(calibrate[1])}
    asked = table(ridges(len(NAMES)), 40)
    ends = load(tmp_path / "grouped").predict_interval(asked.assign(shop="nobody"))
    options = {"calibrate": (calibrate[0][COLUMNS], calibrate[1]), "level": 0.8}
    export(grouped.fallback_, tmp_path, name="alone", **options)
    own_ends = load(tmp_path / "alone").predict_interval(asked[COLUMNS])
    assert [end.tobytes() for end in ends] == [end.tobytes() for end in own_ends]


def test_the_text_says_the_level_and_the_coverage_of_the_worst_and_the_median_model(tmp_path: Path) -> None:
    models, calibrate = ridges(3), held_out()
    del calibrate["shop-3"]
    calibrate["shop-1"] = tuple(part[:7] for part in calibrate["shop-1"])  # type: ignore[assignment]
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", calibrate=calibrate, level=0.8)
    coverage = {}
    for name in ("shop-0", "shop-2"):
        interval = export(models[name], tmp_path, name=name, calibrate=calibrate[name], level=0.8).compilation.interval
        assert interval is not None
        assert interval.coverage is not None
        coverage[name] = interval.coverage[0]
    assert len(set(coverage.values())) == 2
    worst, median = sorted(coverage, key=lambda name: coverage[name])
    said = [f"{round(100 * coverage[name], 2):g} % of {name!r}" for name in (worst, median)]
    assert "lower and upper are made for 80 % of new rows of each model, from 7 to 54 calibration rows of" in str(fleet)
    assert f"the first half gives covers {said[0]}, the worst; {said[1]}, the median.\n" in str(fleet)
    assert "\n1 model has too few of these rows to hold some out.\n" in str(fleet)


def refit(models: dict[str, Any], name: str) -> Any:
    shop = int(name.removeprefix("shop-"))
    return clone(models[name]).fit(rows(shop), -target(rows(shop), shop + 9))


@pytest.mark.parametrize("case", ["ridges", "boosting", "std", "quantile models"])
def test_an_update_writes_what_an_export_of_the_same_models_writes(case: str, tmp_path: Path) -> None:
    models, given, _ = FLEETS[case]
    before = {name: models[name] for name in NAMES[:3]}
    old = {argument: {name: each[name] for name in before} for argument, each in given.items()}
    kept = export_fleet(before, tmp_path, name="demand", by="shop", level=0.8, input="fp64", **old)
    new = {"shop-1": refit(models, "shop-1"), "shop-3": models["shop-3"]}
    fleet = update_fleet(tmp_path, "demand", set=new, remove=["shop-0"], **given)
    after = {name: {**models, **new}[name] for name in fleet.document.inputs.models}
    whole = {argument: {name: each[name] for name in after} for argument, each in given.items()}
    fresh = export_fleet(after, tmp_path / "fresh", name="demand", by="shop", level=0.8, input="fp64", **whole)
    assert fleet.document.fleet == fresh.document.fleet
    X = table(after, 60)
    found, expected = (load(at / "demand").infer(X) for at in (tmp_path, tmp_path / "fresh"))
    for output in found:
        assert found[output].tobytes() == expected[output].tobytes()
    tables = [read_members(each.entry.version_directory, len(COLUMNS) + 1) for each in (kept, fleet, fresh)]
    place = list(kept.document.inputs.models).index("shop-2"), list(fleet.document.inputs.models).index("shop-2")
    for name in ("calibration_rows", "coverage"):
        first, second, third = (getattr(each, name) for each in tables)
        assert second.tobytes() == third.tobytes()
        assert first[place[0]] == second[place[1]]


def test_models_may_be_removed_without_calibration_rows(tmp_path: Path) -> None:
    models = ridges(len(NAMES))
    export_fleet(models, tmp_path, name="demand", by="shop", calibrate=held_out())
    before = load(tmp_path / "demand").infer(table(ridges(2)))
    fleet = update_fleet(tmp_path, "demand", remove=["shop-2", "shop-3"])
    assert fleet.document.fleet is not None
    assert fleet.document.fleet.level == 0.9
    after = load(tmp_path / "demand").infer(table(ridges(2)))
    assert all(before[output].tobytes() == after[output].tobytes() for output in OUTPUTS)


WITHOUT_ONE = {name: given for name, given in held_out().items() if name != "shop-1"}
FEW = {**held_out(), "shop-2": tuple(part[:3] for part in held_out()["shop-2"])}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no rows": ({"calibrate": WITHOUT_ONE}, "The calibration tables have no rows for the model 'shop-1'."),
    "rows of nobody": (
        {"calibrate": {**held_out(), "nobody": held_out()["shop-1"]}},
        "The calibration tables have rows for 'nobody', which is no model of the fleet.",
    ),
    "no rows in the table": ({"calibrate": as_table(WITHOUT_ONE)}, "have no rows for the model 'shop-1'."),
    "no ids": ({"calibrate": (rows(0), target(rows(0), 0))}, "The calibration rows lack the column 'shop'"),
    "an array": ({"calibrate": (rows(0).to_numpy(), target(rows(0), 0))}, "must be a DataFrame with the column 'shop'"),
    "no pair": ({"calibrate": rows(0)}, "calibrate must be a mapping of pairs (X, y) by their ids, or a pair (table"),
    "fewer targets": (
        {"calibrate": (as_table(held_out())[0], [1.0, 2.0])},
        "calibrate must have a target for each row, and has 202 rows and targets of shape [2].",
    ),
    "no targets": ({"calibrate": {**held_out(), "shop-2": rows(2)}}, "Model 'shop-2': calibrate must be a pair (X, y)"),
    "few rows": (
        {"calibrate": FEW},
        "Model 'shop-2': Cannot calibrate Pipeline: a level of 0.9 needs at least 9 calibration rows, not 3;",
    ),
    "a level": ({"calibrate": held_out(), "level": 2}, "level must lie between 0 and 1, such as 0.9, not 2."),
    "a level alone": ({"level": 0.9}, "level is for a prediction interval, which needs calibration rows"),
    "quantiles of some": (
        {"calibrate": held_out(), "quantiles": {"shop-0": QUANTILES["shop-0"]}},
        "The quantiles have no models for the model 'shop-1', nor for 2 others.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_calibration_rows_that_do_not_fit_say_why_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    options, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        export_fleet(ridges(len(NAMES)), tmp_path / "models", name="demand", by="shop", **options)
    assert why in str(raised.value)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("calibrated", "given", "why"),
    [
        (True, {}, "demand has prediction intervals, so the models to set need calibration rows: give calibrate."),
        (True, {"calibrate": WITHOUT_ONE}, "The calibration tables have no rows for the model 'shop-1'."),
        (False, {"calibrate": held_out()}, "demand has no prediction intervals, so calibrate cannot be given;"),
    ],
)
def test_an_update_needs_calibration_rows_where_the_fleet_has_intervals_and_only_there(
    calibrated: bool, given: dict[str, Any], why: str, tmp_path: Path
) -> None:
    models = ridges(len(NAMES))
    export_fleet(models, tmp_path, name="demand", by="shop", calibrate=held_out() if calibrated else None)
    before = files(tmp_path)
    with pytest.raises(ExportError) as raised:
        update_fleet(tmp_path, "demand", set={"shop-1": refit(models, "shop-1")}, **given)
    assert why in str(raised.value)
    assert files(tmp_path) == before
