"""Ids of models and columns of models may both be whole numbers in INT64, each in an input of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.fleets.whole import ARTICLE, COLUMNS, asked, fitted, fleet, rows, samples, shop_id
from tests.files import check_same_files
from triton_regressors import FleetExport, InvalidRequest, export, export_fleet, load, update_fleet
from triton_regressors.describe.fleet_text import fleet_sentences
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.plan.plan import load_plan


def exported(models: dict[int, Any], directory: Path, **options: Any) -> FleetExport:
    return export_fleet(models, directory, name="demand", by="shop", samples=samples(), **options)


def alone(whole: FleetExport, model: Any, shop: int) -> Path:
    """Return the entry of one model, which takes the fleet's types of numbers."""
    types = "fp64" if whole.document.inputs.dtype == "float64" else "fp32"
    repository = whole.entry.directory.parent
    return export(model, repository, name=f"shop{shop}", sample=samples()[shop], input=types).entry.version_directory


def answered(model: Any, X: pd.DataFrame) -> tuple[np.ndarray, list[int]]:
    """Return the answers of the rows that are not refused, and the places of the others."""
    refused = []
    for place in range(len(X)):
        try:
            model.predict(X.iloc[[place]])
        except InvalidRequest:
            refused.append(place)
    return model.predict(X.drop(index=refused)), refused


@pytest.mark.parametrize("trees", [False, True], ids=["linear", "trees"])
@pytest.mark.parametrize("unknown", ["ignore", "error"])
def test_a_row_has_the_bits_of_its_models_own_entry(unknown: str, trees: bool, tmp_path: Path) -> None:
    """Of rows with articles of other models and of none, the same are refused too."""
    models, X = fleet(unknown, trees=trees), asked()
    whole = exported(models, tmp_path)
    inputs, served = whole.document.inputs, load(tmp_path / "demand")
    assert inputs.datatypes() == {"X": "FP64", "integers": "INT64", "shop": "INT64"}
    assert inputs.columns() == {"X": (1, 2), "integers": (0, 3), "shop": (4,)}
    assert set(inputs.models) == set(models)
    for shop, model in models.items():
        own, refused = answered(load(alone(whole, model, shop).parent), X)
        found, also_refused = answered(served, X.assign(shop=shop))
        assert found.tobytes() == own.tobytes()
        assert also_refused == refused
        assert bool(refused) == (unknown == "error")
    together = pd.concat([rows(place, 9).assign(shop=shop) for place, shop in enumerate(models)], ignore_index=True)
    together = together.sample(frac=1, random_state=0)[["shop", *COLUMNS[::-1]]]
    one_by_one = [served.predict(together.iloc[[row]]) for row in range(len(together))]
    assert served.predict(together).tobytes() == np.concatenate(one_by_one).tobytes()
    expected = [models[shop].predict(together[COLUMNS].iloc[[row]])[0] for row, shop in enumerate(together["shop"])]
    np.testing.assert_allclose(served.predict(together), expected, rtol=1e-5, atol=1e-5)


def test_kernels_give_the_bits_of_the_members_own_plans(tmp_path: Path, engine: str) -> None:
    models = fleet(trees=True)
    whole = exported(models, tmp_path)
    tensors = whole.document.inputs.decode(whole.golden.X)
    own_places = whole.table.own_places(whole.document.inputs)
    assert own_places is not None
    X = own_places(whole.document.inputs.encode(tensors))
    found = Runner(whole.plan, engine=engine, max_rows=len(X)).predict(X)["y"]
    for shop, model in models.items():
        mine = tensors["shop"][:, 0] == shop
        own = np.ascontiguousarray(X[mine, :-1])
        answers = Runner(load_plan(alone(whole, model, shop)), engine=engine, max_rows=64).predict(own)["y"]
        assert found[mine].tobytes() == answers.tobytes()


def test_an_error_names_the_input_with_the_wrong_number(tmp_path: Path) -> None:
    models = fleet("error")
    exported(models, tmp_path)
    served, X = load(tmp_path / "demand"), rows(2, 8).assign(shop=shop_id(2))
    own = set(rows(2)["article"])
    other = next(article for article in rows(3)["article"] if article not in own)
    unknown = X.assign(article=X["article"].mask(X.index == 5, other))
    why = (
        rf"^integers must hold categories that the model {shop_id(2)} was fitted on: row 5, column 0 \('article'\) "
        rf"is {other}\.$"
    )
    with pytest.raises(InvalidRequest, match=why):
        served.predict(unknown)
    for wrong in (5, ARTICLE, -(2**63), 2**63 - 1):
        with pytest.raises(InvalidRequest, match=rf"^shop must name a model of this fleet: row 5 is {wrong}\.$"):
            served.predict(unknown.assign(shop=X["shop"].mask(X.index == 5, wrong)))
    missing = X.assign(ordered=X["ordered"].mask(X.index == 3))
    why = rf"^integers must hold no missing date: row 3, column 1 \('ordered'\) is NaT \(its model {shop_id(2)} takes"
    with pytest.raises(InvalidRequest, match=why):
        served.predict(missing)


def test_an_unknown_id_may_be_answered_by_a_default(tmp_path: Path) -> None:
    models = fleet()
    whole = exported(models, tmp_path, default=shop_id(3))
    served, X = load(tmp_path / "demand"), asked()
    own = served.predict(X.assign(shop=shop_id(3)))
    found = served.infer(X.assign(shop=77))
    assert found["y"].tobytes() == own.tobytes()
    assert {whole.document.inputs.models[int(place)] for place in found["model_used"].ravel()} == {shop_id(3)}
    np.testing.assert_allclose(own, models[shop_id(3)].predict(X), rtol=1e-5, atol=1e-5)


def test_an_update_keeps_ids_categories_and_bits(tmp_path: Path) -> None:
    models, X = fleet(), asked()
    exported(models, tmp_path)
    before = {shop: load(tmp_path / "demand").predict(X.assign(shop=shop)) for shop in models}
    new = {shop_id(1): fitted(7, "ignore"), -(2**63): fitted(8, "ignore")}
    given = {**samples(), shop_id(1): rows(7), -(2**63): rows(8)}
    updated = update_fleet(
        tmp_path, "demand", set=new, remove=[shop_id(2)], samples={shop: given[shop] for shop in new}
    )
    served = load(tmp_path / "demand")
    for shop in models.keys() - {shop_id(1), shop_id(2)}:
        assert served.predict(X.assign(shop=shop)).tobytes() == before[shop].tobytes()
    now = {**models, **new}
    in_order = {shop: now[shop] for shop in updated.document.inputs.models}
    assert in_order.keys() == now.keys() - {shop_id(2)}
    for shop, model in new.items():
        np.testing.assert_allclose(served.predict(X.assign(shop=shop)), model.predict(X), rtol=1e-5, atol=1e-5)
    again = update_fleet(tmp_path, "demand", set={shop_id(1): now[shop_id(1)]}, samples={shop_id(1): rows(7)})
    fresh = export_fleet(
        in_order, tmp_path / "fresh", name="demand", by="shop", samples={shop: given[shop] for shop in in_order}
    )
    check_same_files(again.entry.version_directory, fresh.entry.version_directory)


def test_a_description_names_the_categories_of_a_model(tmp_path: Path) -> None:
    whole = exported(fleet("error"), tmp_path)
    said = list(fleet_sentences(whole.document, whole.table, str(shop_id(2))))
    known = ", ".join(map(str, sorted(set(rows(2)["article"]))))
    assert "Models know different categories of column 'article'; any other is unknown to them." in said
    assert f"article: {shop_id(2)} knows {known}." in said
