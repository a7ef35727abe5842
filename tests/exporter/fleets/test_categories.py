"""Models of a fleet know different categories of a column, and each treats the others as in its own entry."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tests.exporter.fleets.towns import COLUMNS, KINDS, TOWNS, asked, fitted, fleet, rows, samples, target
from tests.files import check_same_files
from triton_regressors import ExportError, FleetExport, InvalidRequest, export, export_fleet, load, update_fleet
from triton_regressors.describe.fleet_text import fleet_sentences
from triton_regressors.exporter.fleets.categories import inputs_of_member, share_categories
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.member_categories import OwnPlaces
from triton_regressors.kernels.format.member_table import MemberTable, read_members
from triton_regressors.kernels.plan.plan import load_plan

CASES = [
    *[(encoder, "ridge") for encoder in ("ignore", "error", "infrequent", "ordinal", "target", "imputed")],
    ("ignore", "forest"),
    ("error", "boosting"),
    ("ordinal", "boosting"),
]


def exported(models: dict[str, Any], directory: Path, **options: Any) -> FleetExport:
    return export_fleet(models, directory, name="demand", by="shop", samples=samples(models), **options)


def alone(fleet: FleetExport, model: Any, name: str) -> Any:
    """Return the entry of one model, which takes the fleet's types of numbers."""
    types = "fp64" if fleet.document.inputs.dtype == "float64" else "fp32"
    repository = fleet.entry.directory.parent
    return export(model, repository, name=name, sample=samples({name: model})[name], input=types).entry


def answered(model: Any, rows: pd.DataFrame) -> tuple[np.ndarray, list[int]]:
    """Return the answers of the rows that are not refused, and the places of the others."""
    refused = []
    for place in range(len(rows)):
        try:
            model.predict(rows.iloc[[place]])
        except InvalidRequest:
            refused.append(place)
    kept = np.delete(np.arange(len(rows)), refused)
    return (model.predict(rows.iloc[kept]) if len(kept) else np.empty(0)), refused


@pytest.mark.parametrize(("encoder", "regressor"), CASES)
def test_a_row_has_the_bits_of_its_models_own_entry(encoder: str, regressor: str, tmp_path: Path) -> None:
    """Of rows with categories of other models, of none and missing ones, the same are refused too."""
    models = fleet(encoder, regressor)
    whole = exported(models, tmp_path)
    served, X = load(tmp_path / "demand"), asked()
    for name, model in models.items():
        own, refused = answered(load(alone(whole, model, name).directory), X)
        found, also_refused = answered(served, X.assign(shop=name))
        assert found.tobytes() == own.tobytes()
        assert also_refused == refused
        assert bool(refused) == (encoder == "error")
    assert whole.document.fleet is not None
    assert len(whole.document.fleet.classes) == 1


@pytest.mark.parametrize(("encoder", "regressor"), [("ignore", "ridge"), ("ignore", "forest")])
def test_kernels_give_the_bits_of_the_members_own_plans(
    encoder: str, regressor: str, tmp_path: Path, engine: str
) -> None:
    models = fleet(encoder, regressor)
    whole = exported(models, tmp_path)
    assert whole.table.categories is not None
    X = OwnPlaces(whole.table.categories, whole.document.inputs)(whole.golden.X.copy())
    found = Runner(whole.plan, engine=engine, max_rows=len(X)).predict(X)["y"]
    for number, name in enumerate(models):
        mine, entry = X[:, -1] == number, alone(whole, models[name], name)
        own = np.ascontiguousarray(X[mine, :-1])
        answers = Runner(load_plan(entry.version_directory), engine=engine, max_rows=64).predict(own)["y"]
        assert found[mine].tobytes() == answers.tobytes()


def test_a_model_that_refuses_unknown_strings_does_so_for_its_own_rows(tmp_path: Path) -> None:
    models = {"shop-2": fitted(2, "error", "ridge"), "shop-3": fitted(3, "ignore", "ridge")}
    whole = exported(models, tmp_path)
    served, X = load(tmp_path / "demand"), pd.concat([rows(2, 3), rows(3, 3)], ignore_index=True)
    X["shop"] = ["shop-2"] * 3 + ["shop-3"] * 3
    known = set(rows(2)["town"])
    other = next(town for town in rows(3)["town"] if town not in known)
    X.loc[4, "town"] = next(iter(known - set(rows(3)["town"])))  # unknown to shop-3, which takes it
    np.testing.assert_allclose(served.predict(X), [*models["shop-2"].predict(X[:3]), *models["shop-3"].predict(X[3:])])
    X.loc[1, "town"] = other
    tensor = whole.document.inputs.text[0].name
    why = (
        rf"{tensor} must hold categories that the model 'shop-2' was fitted on: row 1, column 0 \('town'\) is '{other}'"
    )
    with pytest.raises(InvalidRequest, match=why):
        served.predict(X)
    X.loc[1, ["town", "kind"]] = [rows(2)["town"][0], None]
    with pytest.raises(InvalidRequest, match=r"row 1, column 1 \('kind'\) is empty \(its model 'shop-2' takes none\)"):
        served.predict(X)
    with pytest.raises(InvalidRequest, match="shop must name a model of this fleet: row 1 is 'shop-9'"):
        served.predict(X.assign(shop=[*X["shop"][:1], "shop-9", *X["shop"][2:]]))
    assert whole.document.inputs.text[0].closed == (False, False)
    assert whole.table.closed is not None
    assert whole.table.closed[:, :2].tolist() == [[True, True], [False, False]]
    read = read_members(whole.entry.version_directory, whole.document.inputs.n_features)
    assert read.closed is not None
    assert read.closed.tolist() == whole.table.closed.tolist()


def test_models_that_agree_need_no_table_of_categories(tmp_path: Path) -> None:
    models = dict.fromkeys(("shop-3", "shop-5"), fitted(3, "error", "ridge"))
    given = dict.fromkeys(models, rows(3))
    whole = export_fleet(models, tmp_path, name="demand", by="shop", samples=given)
    assert whole.table.categories is None
    assert whole.table.closed is None
    assert whole.document.inputs.text[0].closed == (True, True)


def text(*known: str, closed: bool = False, name: str = "text") -> Inputs:
    return Inputs(2, (1,), (TextInput(name, (0,), (known,), (closed,), ("NA",)),))


def test_categories_are_in_the_order_in_which_models_have_them_first() -> None:
    members = [text("b", "a"), text("c", "a"), text("b", "a", name="another")]
    shared = share_categories(members, [2, 0, 1])
    assert shared.inputs == text("b", "a", "c")
    assert shared.categories is not None
    assert [shared.categories.of_member(number)[0].tolist() for number in range(3)] == [[0, 1], [0, 1], [2, 1]]
    assert len(shared.categories.starts) == 3  # equal lists are kept once


def test_the_inputs_of_a_model_are_found_again() -> None:
    for members in (
        [text("b", "a"), text("c", "a", closed=True), text("b", "a", closed=True)],
        [text("b", "a", closed=True), text("a", "b", closed=True), text("b", "c", closed=True)],
        [text("b", "a"), text("b", "a"), text("b", "a")],
    ):
        shared = share_categories(members, [2, 0, 1])
        none, masks = np.zeros(3, dtype=np.int32), [np.zeros((3, 3), dtype=bool)] * 3
        table = MemberTable(
            masks[0], {}, {}, {}, {}, {}, none, none, masks[1], masks[2], shared.closed, shared.categories
        )
        found = [inputs_of_member(shared.inputs, table, number) for number in range(3)]
        assert found == [members[2], members[0], members[1]]


@pytest.mark.parametrize("most_bytes", [2**20, 0], ids=["table", "search"])
def test_a_model_does_not_know_categories_that_were_appended_later(most_bytes: int) -> None:
    shared = share_categories([text("b", "a"), text("a", "NA")], [0, 1])
    assert shared.categories is not None
    later = text("b", "a", "NA", "", "new")
    numbers = np.array([0.0, 1, 2, 3, 4, -1, np.nan, np.inf])
    matrix = np.stack([np.tile(numbers, 2), np.zeros(16), np.repeat([0.0, 1], 8)], axis=1)
    before = matrix.copy()
    own_places = OwnPlaces(shared.categories, later, most_bytes)
    found = own_places(matrix)
    none = np.nan
    assert np.array_equal(found[:8, 0], [0, 1, none, none, -1, -1, none, np.inf], equal_nan=True)
    assert np.array_equal(found[8:, 0], [-1, 0, 1, none, -1, -1, none, np.inf], equal_nan=True)
    assert np.array_equal(found[:, 1:], before[:, 1:])
    own = np.array([[1.0, 5, 0], [0, 6, 1], [1, 7, 1], [-1, 8, 1], [none, 9, 0]])
    back = shared.categories.shared(own)
    assert np.array_equal(back[:, 0], [1, 1, 2, -1, none], equal_nan=True)
    assert np.array_equal(own_places(back.copy()), own, equal_nan=True)
    nobody = np.array([[1.0, 5, member] for member in (-1, none, np.inf)])
    assert own_places(nobody)[:, 0].tolist() == [1, 1, 0]  # some answer, which is refused afterwards


def test_a_search_finds_what_a_table_has() -> None:
    rng, letters = np.random.default_rng(0), np.array([*"abcdefghijklmnop", "", "NA"], dtype=object)

    def drawn(most: int) -> tuple[str, ...]:
        return tuple(rng.permutation(letters)[: rng.integers(1, most)].tolist())

    members = [
        Inputs(3, (2,), (TextInput("text", (0, 1), (drawn(4), drawn(17)), (False, False), ("NA",)),)) for _ in range(9)
    ]
    shared = share_categories(members, range(9))
    assert shared.categories is not None
    known, columns = shared.inputs.text[0], [np.array([*each, "?"]) for each in shared.inputs.text[0].categories]
    texts = np.stack([rng.choice(each, 200) for each in columns], axis=1)
    numbers = np.stack([known.numbered(place, [text.encode() for text in texts[:, place]]) for place in (0, 1)], axis=1)
    matrix = np.column_stack([numbers, np.zeros(200), rng.integers(0, 9, 200)])
    table, search = (OwnPlaces(shared.categories, shared.inputs, most)(matrix.copy()) for most in (2**20, 0))
    assert np.array_equal(table, search, equal_nan=True)
    for row, number in enumerate(matrix[:, -1].astype(int)):
        own = [members[number].text[0].numbered(place, [texts[row, place].encode()])[0] for place in (0, 1)]
        assert np.array_equal(table[row, :2], own, equal_nan=True)


def test_a_model_may_have_a_string_as_a_category_that_is_missing_to_another(tmp_path: Path) -> None:
    tables = {"shop-0": ["a", "b", None], "shop-1": ["a", "None", "c"]}
    models, given = {}, {}
    for name, strings in tables.items():
        given[name] = pd.DataFrame({"kind": strings * 6, "x": np.arange(18.0)})
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-5, encoded_missing_value=-7)
        models[name] = make_pipeline(encoder, Ridge()).fit(given[name].assign(x=0.0), np.arange(18.0))
    export_fleet(models, tmp_path, name="demand", by="shop", samples=given)
    served = load(tmp_path / "demand")
    X = pd.DataFrame({"kind": ["None", None, "c"], "x": 0.0})
    own = models["shop-0"].predict(X.assign(kind=[None, None, "c"]))
    np.testing.assert_allclose(served.predict(X.assign(shop="shop-0")), own, rtol=1e-5)
    np.testing.assert_allclose(
        served.predict(X.iloc[[0, 2]].assign(shop="shop-1")), models["shop-1"].predict(X.iloc[[0, 2]]), rtol=1e-5
    )


def test_whole_numbers_that_float64_rounds_are_categories_of_each_model_too(tmp_path: Path) -> None:
    large = 2**60
    models, given = {}, {}
    for name, codes in {"a": [1, 2, 3], "b": [3, 4]}.items():
        given[name] = pd.DataFrame({"code": np.resize(np.array(codes) + large, 24), "x": np.arange(24.0)})
        models[name] = make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), Ridge()).fit(
            given[name][["code"]], np.resize(np.array(codes) * 1.5, 24)
        )
    given = {name: each[["code"]] for name, each in given.items()}
    whole = export_fleet(models, tmp_path, name="demand", by="shop", samples=given)
    assert isinstance(whole.document.inputs.integers, IntegerInput)
    assert whole.document.inputs.integers.categories == (tuple(large + code for code in (1, 2, 3, 4)),)
    X = pd.DataFrame({"code": np.arange(6) + large})
    served = load(tmp_path / "demand")
    for name, model in models.items():
        np.testing.assert_allclose(served.predict(X.assign(shop=name)), model.predict(X), rtol=1e-5)


@pytest.mark.parametrize("typed", [False, True], ids=["strings", "categoricals"])
def test_a_sample_may_be_one_table_of_all_models(typed: bool, tmp_path: Path) -> None:
    models = fleet("ignore", "ridge")
    given = samples(models)
    together = pd.concat([each.assign(shop=name) for name, each in given.items()], ignore_index=True)
    if typed:
        together = together.astype({"town": "category", "kind": "category"})
    first = export_fleet(models, tmp_path / "a", name="demand", by="shop", samples=given)
    second = export_fleet(models, tmp_path / "b", name="demand", by="shop", samples=together)
    assert first.document.inputs == second.document.inputs
    X = asked().assign(shop=list(models) * 15)
    one, other = load(first.entry.directory), load(second.entry.directory)
    assert one.predict(X).tobytes() == other.predict(X).tobytes()
    typed_rows = X.astype({"town": "category", "kind": "category"})
    assert other.predict(typed_rows).tobytes() == one.predict(X).tobytes()


def test_strings_may_be_in_groups_of_other_names(tmp_path: Path) -> None:
    """Steps of other kinds give the tensors of their strings other names; those of the first model are the fleet's."""
    models = {"shop-2": fitted(2, "ignore", "ridge"), "shop-3": fitted(3, "ordinal", "boosting")}
    whole = exported(models, tmp_path)
    assert [group.name for group in whole.document.inputs.text] == ["onehotencoder", "shop"]
    served = load(tmp_path / "demand")
    for name, model in models.items():
        X = rows(int(name[-1]))
        np.testing.assert_allclose(served.predict(X.assign(shop=name)), model.predict(X), rtol=1e-5, atol=1e-5)


def test_a_description_names_the_categories_of_a_model(tmp_path: Path) -> None:
    whole = exported({"shop-2": fitted(2, "error", "ridge"), "shop-3": fitted(3, "ignore", "ridge")}, tmp_path)
    said = list(fleet_sentences(whole.document, whole.table, "shop-3"))
    assert "Models know different categories of columns 'town', 'kind'; any other is unknown to them." in said
    assert "town: 1 of 2 models refuse categories that they do not know." in said
    kinds = ", ".join(f'"{kind}"' for kind in sorted(set(rows(3)["kind"])))
    assert f"kind: 'shop-3' knows {kinds}." in said
    assert not any("knows" in sentence for sentence in fleet_sentences(whole.document, whole.table))


def test_a_default_model_answers_with_its_own_categories(tmp_path: Path) -> None:
    models = fleet("ignore", "ridge", 3)
    exported(models, tmp_path, default="shop-1")
    X, served = asked(30), load(tmp_path / "demand")
    assert served.predict(X.assign(shop="nobody")).tobytes() == served.predict(X.assign(shop="shop-1")).tobytes()


def test_an_export_is_the_same_to_the_byte_and_its_rows_are_those_of_its_categories(tmp_path: Path) -> None:
    models = fleet("ignore", "ridge")
    first, again = exported(models, tmp_path / "a"), exported(models, tmp_path / "b")
    check_same_files(first.entry.version_directory, again.entry.version_directory)
    tensors = first.document.inputs.decode(first.golden.X)
    strings = tensors["onehotencoder"]
    for number, name in enumerate(models):
        mine = first.golden.X[:, -1] == number
        assert {each.decode() for each in strings[mine, 0]} <= {*rows(number)["town"], "unknown", ""}, name
    assert set(first.document.inputs.text[0].categories[0]) <= set(TOWNS)
    assert set(first.document.inputs.text[0].categories[1]) <= set(KINDS)


def test_members_with_columns_of_other_types_are_named(tmp_path: Path) -> None:
    X = rows(0).assign(town=np.arange(40.0))
    models = {"shop-0": fitted(0, "ordinal", "ridge"), "shop-1": fitted(1, "ordinal", "ridge")}
    numeric = make_pipeline(models["shop-1"][0], Ridge()).fit(X[COLUMNS], target(rows(0), 0))
    with pytest.raises(ExportError, match="'shop-0' and 'shop-1' differ in the types of their columns"):
        export_fleet(
            {**models, "shop-1": numeric},
            tmp_path,
            name="demand",
            by="shop",
            samples={"shop-0": rows(0), "shop-1": X},
        )


@pytest.mark.parametrize(("encoder", "regressor"), [("error", "ridge"), ("ignore", "forest")])
def test_an_update_keeps_the_categories_and_bits_of_the_other_models(
    encoder: str, regressor: str, tmp_path: Path
) -> None:
    models = fleet(encoder, regressor)
    exported(models, tmp_path)
    X = asked(30)
    before = {name: answered(load(tmp_path / "demand"), X.assign(shop=name)) for name in models}
    new = {"shop-1": fitted(5, encoder, regressor), "shop-7": fitted(7, encoder, regressor)}
    given = {"shop-1": rows(5), "shop-7": rows(7)}
    updated = update_fleet(tmp_path, "demand", set=new, remove=["shop-2"], samples=given)
    whole = {"shop-0": models["shop-0"], "shop-1": new["shop-1"], "shop-3": models["shop-3"], "shop-7": new["shop-7"]}
    served = load(tmp_path / "demand")
    for name in ("shop-0", "shop-3"):
        found, refused = answered(served, X.assign(shop=name))
        assert found.tobytes() == before[name][0].tobytes()
        assert refused == before[name][1]
    for name, shop in {"shop-1": 5, "shop-7": 7}.items():
        answers = served.predict(rows(shop).assign(shop=name))
        np.testing.assert_allclose(answers, whole[name].predict(rows(shop)), rtol=1e-5, atol=1e-5)
    assert updated.document.fleet is not None
    assert len(updated.document.fleet.classes) == 1
