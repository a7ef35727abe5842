"""Fleets whose models are named by several columns: bits of own entries, parents for unknown ids, updates, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from tests.exporter.fleets.fleets import COLUMNS
from tests.exporter.fleets.regions import BY, HISTORY, IDS, answering, belonging, fitted, fleet, unknown
from tests.files import check_same_files
from triton_regressors import ExportError, InvalidRequest, export, export_fleet, load, update_fleet
from triton_regressors.describe.fleet_text import fleet_sentences

SAMPLES = HISTORY.drop(columns="sold")


def own_bits(model: Any, name: tuple[Any, ...], X: pd.DataFrame, directory: Path) -> bytes:
    """Return the answers of a model's own entry."""
    entry = export(model, directory, name="own", sample=belonging(name)[COLUMNS], input="fp64").entry.directory
    return load(entry).predict(X[COLUMNS]).tobytes()


def test_each_row_has_the_bits_of_its_models_own_entry(tmp_path: Path) -> None:
    models, X = fleet(), SAMPLES.sample(frac=1, random_state=0, ignore_index=True)
    whole = export_fleet(models, tmp_path, name="demand", by=BY, samples=SAMPLES, input="fp64")
    inputs, served = whole.document.inputs, load(tmp_path / "demand")
    assert inputs.datatypes() == {"X": "FP64", "region": "BYTES", "shop": "INT64"}
    assert (sorted(inputs.models), served.outputs) == (sorted(IDS), ("y",))
    answers = served.predict(X)
    for name, model in models.items():
        mine = (X["region"] == name[0]) & (X["shop"] == name[1])
        assert answers[mine].tobytes() == own_bits(model, name, X[mine], tmp_path)
    one_by_one = [served.predict(X.iloc[[row]]) for row in range(20)]
    assert np.concatenate(one_by_one).tobytes() == answers[:20].tobytes()
    with pytest.raises(ExportError, match=r"demand has no output model_used, which ids of fewer parts need; export"):
        update_fleet(tmp_path, "demand", set={("north",): fitted(("north",))})
    with pytest.raises(InvalidRequest, match=r"^region, shop must name a model of this fleet: row 3 is 'south', 8\.$"):
        served.predict(X.assign(region="south", shop=X["shop"].where(X.index == 3, 9).where(X.index != 3, 8)))


def test_the_longest_known_beginning_answers_an_unknown_id(tmp_path: Path) -> None:
    models, X = fleet(parents=True), unknown()
    whole = export_fleet(models, tmp_path, name="demand", by=BY, samples=SAMPLES, input="fp64")
    inputs, found = whole.document.inputs, load(tmp_path / "demand").infer(X)
    names = answering(models, X)
    assert {("north",), ("south",), ()} < set(names)
    assert [inputs.models[int(number)] for number in found["model_used"].ravel()] == names
    for name in set(names):
        mine = np.array([each == name for each in names])
        assert found["y"][mine].tobytes() == own_bits(models[name], name, X[mine], tmp_path)
    with pytest.raises(InvalidRequest, match=r"^region, shop must name a model of this fleet: row 0 is '', \d+\.$"):
        load(tmp_path / "demand").predict(X.assign(region=X["region"].where(X.index > 0, "")))
    said = list(fleet_sentences(whole.document, whole.table, "north,8"))
    assert said[:2] == [
        "7 models; region and shop name the one that answers a row.",
        "An unknown id is answered by the model of its longest known beginning, or '()' if there is none; model_used "
        "says so.",
    ]
    assert said[-1].endswith(" of 'north,8'.")


def test_parents_need_not_be_complete_and_a_default_may_be_any_model(tmp_path: Path) -> None:
    models = {name: model for name, model in fleet(parents=True).items() if name not in (("south",), ())}
    X = unknown()
    export_fleet(models, tmp_path, name="parents", by=BY, samples=SAMPLES)
    with pytest.raises(InvalidRequest, match=r"region, shop must name a model of this fleet: row \d+ is 'south', 99"):
        load(tmp_path / "parents").predict(X)
    whole = export_fleet(models, tmp_path, name="default", by=BY, samples=SAMPLES, default=("south", 9))
    used = load(tmp_path / "default").infer(X)["model_used"].ravel()
    expected = answering({**models, (): None}, X)
    assert [whole.document.inputs.models[int(each)] for each in used] == [name or ("south", 9) for name in expected]


def test_an_update_keeps_bits_and_is_a_new_export_to_the_byte(tmp_path: Path) -> None:
    models, X = fleet(parents=True), unknown()
    export_fleet(models, tmp_path, name="demand", by=BY, samples=SAMPLES)
    before = load(tmp_path / "demand").infer(X)
    changed = {("north",): fitted(("north", 7)), ("south", 99): fitted(("south", 7), tree=True)}
    rows = pd.concat([SAMPLES, belonging(("south", 7)).drop(columns="sold").assign(shop=99)])
    updated = update_fleet(tmp_path, "demand", set=changed, remove=[("south", 9)], samples=rows)
    assert updated.changes == "1 added, 1 replaced, 1 removed; 5 are those of version 1."
    now = {name: model for name, model in {**models, **changed}.items() if name != ("south", 9)}
    names, after = answering(now, X), load(tmp_path / "demand").infer(X)
    same = np.array([was == name not in changed for was, name in zip(answering(models, X), names, strict=True)])
    assert 0 < same.sum() < len(X)
    assert after["y"][same].tobytes() == before["y"][same].tobytes()
    own = [now[name].predict(X.loc[[row], COLUMNS])[0] for row, name in enumerate(names)]
    np.testing.assert_allclose(after["y"].ravel(), own, rtol=1e-5, atol=1e-4)
    again = update_fleet(tmp_path, "demand", set={("south", 99): changed["south", 99]}, samples=rows)
    in_order = {name: now[name] for name in again.document.inputs.models}
    given = {name: belonging(name)[COLUMNS] for name in in_order}
    given["south", 99] = belonging(("south", 7))[COLUMNS]
    given["north",] = rows[rows["region"] == "north"][COLUMNS]
    given["south",] = belonging(("south",))[COLUMNS]
    fresh = export_fleet(in_order, tmp_path / "fresh", name="demand", by=BY, samples=given)
    check_same_files(again.entry.version_directory, fresh.entry.version_directory)
    with pytest.raises(ExportError, match=r"\(\) answers rows with an unknown id; it can be replaced, but not removed"):
        update_fleet(tmp_path, "demand", remove=[()])


def test_calibration_rows_of_a_table_belong_to_parents_too(tmp_path: Path) -> None:
    models = fleet(parents=True)
    noisy = HISTORY["sold"] + np.random.default_rng(0).normal(size=len(HISTORY))
    export_fleet(models, tmp_path, name="table", by=BY, calibrate=(SAMPLES, noisy), input="fp64")
    pairs = {name: (belonging(name)[COLUMNS], noisy[belonging(name).index]) for name in models}
    export_fleet(models, tmp_path, name="pairs", by=BY, calibrate=pairs, input="fp64")
    found, expected = (load(tmp_path / name).predict_interval(unknown()) for name in ("table", "pairs"))
    assert [end.tobytes() for end in found] == [end.tobytes() for end in expected]


RIDGE = fitted(IDS[0])
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an id in one column": (
        {("north", 7): RIDGE, "north": RIDGE},
        {},
        "The id of a model must be a tuple of its region and shop, or of the first of them, not 'north'.",
    ),
    "too many parts": ({("north", 7, 1): RIDGE}, {}, "of its region and shop, or of the first of them, not ('north'"),
    "parts of two kinds": (
        {("north", 7): RIDGE, ("south", "7"): RIDGE},
        {},
        "The part of an id for 'shop' must be a whole number that INT64 holds, as others are, not '7'.",
    ),
    "an empty part": ({("", 7): RIDGE}, {}, "The part of an id for 'region' must be a string that is not empty, not"),
    "parents alone": ({("north",): RIDGE}, {}, "No model has an id with a part for 'shop'; leave that column out"),
    "one name twice": (fleet(), {"by": ["shop", "shop"]}, "or a list of such names, not ['shop', 'shop']."),
    "no name": (fleet(), {"by": []}, "by must be the name of the column of ids, or a list of such names, not []."),
    "a tuple in one column": (fleet(), {"by": "shop"}, "must be a string that is not empty, not ('north', 7)."),
    "a column": (
        fleet(),
        {"by": ["region", "x1"], "samples": None},
        "The models have a column or a tensor 'x1' already",
    ),
    "the name of both": (
        {IDS[0]: Ridge().fit(belonging(IDS[0])[COLUMNS].rename(columns={"x1": "region_shop"}), range(60))},
        {"samples": None},
        "The models have a column or a tensor 'region_shop' already",
    ),
    "a default beside ()": (
        fleet(parents=True),
        {"default": IDS[0]},
        "The model () answers rows with an unknown id, so ('north', 7) cannot; leave out default=.",
    ),
    "another default": (fleet(), {"default": ["north", 7]}, "default must be the id of a model of the fleet, not ['no"),
    "no column": (fleet(), {"samples": SAMPLES.drop(columns="shop")}, "The samples lack the column 'shop' with the"),
    "rows of nobody": (
        fleet(),
        {"samples": SAMPLES.assign(shop=SAMPLES["shop"].where(SAMPLES.index != 3, 5))},
        "The samples have rows for ('north', 5), which is no model of the fleet.",
    ),
    "no rows": (
        fleet(),
        {"samples": SAMPLES[SAMPLES["shop"] != 8]},
        "The samples have no rows for the model ('north', 8).",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_fleet_says_why(case: str, tmp_path: Path) -> None:
    models, options, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        export_fleet(models, tmp_path / "repository", **{"name": "demand", "by": BY, "samples": SAMPLES, **options})
    assert why in str(raised.value)
    assert not (tmp_path / "repository").exists()
