"""Like models with other categories make the same indicators in front of trees: one class, with the same bits."""

from collections.abc import Callable
from typing import Any

import pytest
from catboost import CatBoostRegressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.exporter.fleets.towns import NUMBERS, rows, target
from triton_regressors.exporter.fleets.classes import classes_of
from triton_regressors.exporter.fleets.indicators import align_indicators
from triton_regressors.exporter.fleets.member import Member, compile_members
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.ops.columns.lookup import Lookup

OPTIONS = {
    "tolerance": 1e-5,
    "precision": "exact",
    "missing_strings": (),
    "columns": None,
    "kept": (),
    "ties": "refuse",
}

MODELS: dict[str, Callable[[], Any]] = {
    "numbers first": lambda: make_pipeline(
        make_column_transformer(
            (StandardScaler(), NUMBERS), (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind", "town"])
        ),
        ExtraTreesRegressor(3, max_depth=4, random_state=0),
    ),
    "indicators alone": lambda: make_pipeline(
        make_column_transformer((OneHotEncoder(sparse_output=False), ["kind", "town"])),
        HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=3),
    ),
    "symmetric trees": lambda: CatBoostRegressor(
        iterations=4, depth=3, cat_features=["town", "kind"], verbose=0, allow_writing_files=False
    ),
}


def compiled(make: Callable[[], Any], shops: tuple[int, ...]) -> list[Member]:
    models = {f"shop-{shop}": make().fit(rows(shop), target(rows(shop), shop)) for shop in shops}
    own = {f"shop-{shop}": {"sample": rows(shop)} for shop in shops}
    return compile_members(models, own, 16, {**OPTIONS, "input": "fp64"})


def lookups(members: list[Member]) -> set[tuple[int, ...]]:
    """Return the columns of the look-ups that are not summed."""
    steps = (step.operation for member in members for step in member.plan.steps)
    return {tuple(each.columns.tolist()) for each in steps if isinstance(each, Lookup) and not each.summed}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_other_widths_are_one_class(name: str) -> None:
    members = compiled(MODELS[name], (0, 1, 2, 3, 6))
    aligned = align_indicators(members)
    assert len(classes_of(members)) > 1
    assert len(classes_of(aligned)) == 1
    assert len(lookups(aligned)) == 1 < len(lookups(members))
    for before, after in zip(members, aligned, strict=True):
        expected, found = (
            Runner(each.plan, engine="torch", max_rows=16).predict(before.X)["y"].copy() for each in (before, after)
        )
        assert found.tobytes() == expected.tobytes()
    assert lookups(align_indicators(aligned)) == lookups(aligned)


def test_models_with_the_same_indicators_stay_as_they_are() -> None:
    members = compiled(MODELS["numbers first"], (3, 3))
    assert all(after is before for before, after in zip(members, align_indicators(members), strict=True))
