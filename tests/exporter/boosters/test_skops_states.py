"""Boosters inside `.skops` files: they need no trust by name, and damaged ones are refused."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from catboost import CatBoost
from lightgbm import Booster as LightGBM
from sklearn.ensemble import VotingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import Booster as XGBoost
from xgboost import XGBRegressor

from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_catboost import catboost
from tests.exporter.catalogue.cases_lightgbm import lgbm
from tests.exporter.catalogue.cases_xgboost import SIZE
from tests.exporter.data import small
from triton_regressors import ExportError, MissingExtra, extras, load_estimator
from triton_regressors.exporter.boosters.skops_states import checked_models

LIBRARIES = ("catboost", "lightgbm", "xgboost")
KINDS = (CatBoost, LightGBM, XGBoost)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a `.skops` file for each library."""
    X, y = small()
    found = {}
    for library, estimator in zip(LIBRARIES, (catboost(), lgbm(), XGBRegressor(**SIZE)), strict=True):
        found[library] = tmp_path_factory.mktemp("skops") / f"{library}.skops"
        skops.io.dump(estimator.fit(X, y), found[library])
    return found


def changed(whole: Path, path: Path, change: Callable[[bytes], bytes]) -> Path:
    """Write a file with another model, which is its largest part or, LightGBM's, a string of its description."""
    with zipfile.ZipFile(whole) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    models = [name for name in parts if name.endswith(".bin")]
    for name in models or ["schema.json"]:
        parts[name] = change(parts[name])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def test_a_pipeline_of_all_three_needs_no_trust(tmp_path: Path) -> None:
    X, y = small()
    members = [("cat", catboost()), ("light", lgbm()), ("xg", XGBRegressor(**SIZE))]
    model = make_pipeline(StandardScaler(), VotingRegressor(members)).fit(X, y)
    skops.io.dump(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(load_estimator(tmp_path / "m.skops").predict(X), model.predict(X))


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "trees": ("catboost", lambda model: model[:2000], "a part of it lies beyond its end"),
    "nodes": (
        "xgboost",
        lambda model: model.replace(b"left_childrenl", b"left_children[").replace(b"tree_info", b"tree_inf0"),
        "its document does not hold together",
    ),
    "counts": (
        "lightgbm",
        lambda schema: schema.replace(b"split_feature=", b"split_feature=1 ", 1),
        "split_feature does not have as many numbers as its trees",
    ),
    "nothing": (
        "lightgbm",
        lambda schema: without_model(schema),
        "its model of a booster is missing",
    ),
}


def without_model(schema: bytes) -> bytes:
    """Return a description whose `_handle` is None."""
    written = json.loads(schema)

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "_handle" in part:
                part["_handle"] |= {"content": "null"}
            part = [*part.values()]
        for each in part if isinstance(part, list) else ():
            walk(each)

    walk(written)
    return json.dumps(written).encode()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models_are_refused(whole: dict[str, Path], tmp_path: Path, damage: str) -> None:
    library, change, says = DAMAGES[damage]
    before = [kind.__setstate__ for kind in KINDS]
    path = changed(whole[library], tmp_path / "damaged.skops", change)
    with pytest.raises(ExportError, match=rf"^Cannot read .*damaged\.skops: .*{says}"):
        load_estimator(path)
    assert [kind.__setstate__ for kind in KINDS] == before


def test_a_class_derived_from_a_booster_is_checked_too() -> None:
    class Own(type(CASES["catboost-holes"].estimator)):  # type: ignore[misc]
        pass

    with checked_models(LIBRARIES), pytest.raises(ValueError, match="it is not a model of CatBoost's"):
        Own().__setstate__({"__model": b"CBM2    "})


def test_the_library_of_a_file_has_to_be_installed(whole: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package == "lightgbm" else object())
    with pytest.raises(MissingExtra, match=r"^Reading .*lightgbm\.skops needs lightgbm, not installed here; `pip inst"):
        load_estimator(whole["lightgbm"])
