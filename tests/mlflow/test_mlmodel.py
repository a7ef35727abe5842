"""A saved model's description is read without MLflow, and refused if it leads out of the model's folder."""

import json

import numpy as np
import pytest

from triton_regressors import MissingExtra, RegistryError, extras
from triton_regressors.mlflow.mlmodel import Column, read_mlmodel
from triton_regressors.mlflow.model_registry import fetch, is_model_uri

COLUMNS = [
    {"type": "long", "name": "floor", "required": True},
    {"type": "double", "name": "area", "required": True},
    {"type": "string", "name": "city", "required": True},
]


@pytest.fixture
def save(tmp_path):
    """Returns a function that writes MLmodel with these flavors and keys, and a file, and returns the folder."""

    def write(flavors, file="model.skops", **keys):
        (tmp_path / "MLmodel").write_text(json.dumps({"flavors": flavors, **keys}))  # YAML is a superset of JSON
        (tmp_path / file).write_bytes(b"model")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("flavors", "file", "found"),
    [
        ({"sklearn": {"pickled_model": "model.skops"}}, "model.skops", ("sklearn", "model.skops")),
        ({"sklearn": {"pickled_model": "model.pkl"}}, "model.pkl", ("sklearn", "model.pkl")),
        ({"xgboost": {"data": "model.ubj"}}, "model.ubj", ("xgboost", "model.ubj")),
        ({"lightgbm": {"data": "model.lgb"}}, "model.lgb", ("lightgbm", "model.txt")),
        ({"lightgbm": {"data": "model.skops"}}, "model.skops", ("lightgbm", "model.skops")),
        ({"xgboost": {"data": "model.xgb"}}, "model.xgb", ("xgboost", "model.ubj")),
        ({"catboost": {"data": "model.cb", "save_format": "cbm"}}, "model.cb", ("catboost", "model.cbm")),
        ({"catboost": {"data": "model.cb", "save_format": "json"}}, "model.cb", ("catboost", "model.json")),
    ],
)
def test_each_flavor_names_its_file(save, flavors, file, found):
    model = read_mlmodel(save({"python_function": {"loader_module": "os"}, **flavors}, file, run_id="abc"))
    assert (model.flavor, model.file.name) == found
    assert model.file.read_bytes() == b"model"
    assert (model.run, model.columns, model.table()) == ("abc", None, None)


@pytest.mark.parametrize(
    ("flavors", "why"),
    [
        ({"pytorch": {}}, "It has the flavors pytorch; supported: sklearn, xgboost, lightgbm, catboost."),
        ({"sklearn": {}}, "does not name the model's file"),
        ({"sklearn": {"pickled_model": "lost.skops"}}, "names lost.skops, which is not there"),
        ({"sklearn": {"pickled_model": "../model.skops"}}, "names ../model.skops, which is not in its folder"),
        ({"sklearn": {"pickled_model": "/etc/passwd"}}, "names /etc/passwd, which is not in its folder"),
        ([], "names no flavors"),
    ],
)
def test_what_is_not_read_is_said(save, flavors, why):
    with pytest.raises(RegistryError) as refused:
        read_mlmodel(save(flavors))
    assert why in str(refused.value)


def test_a_link_does_not_leave_the_folder(save, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.skops"
    elsewhere.write_bytes(b"secret")
    folder = save({"sklearn": {"pickled_model": "link.skops"}})
    (folder / "link.skops").symlink_to(elsewhere)
    with pytest.raises(RegistryError, match="not in its folder"):
        read_mlmodel(folder)


def test_a_folder_without_mlmodel_and_a_damaged_one(tmp_path):
    with pytest.raises(RegistryError, match="no file MLmodel"):
        read_mlmodel(tmp_path)
    (tmp_path / "MLmodel").write_text("flavors: !!python/object/apply:os.system ['true']")  # runs nothing
    with pytest.raises(RegistryError, match="MLmodel cannot be read"):
        read_mlmodel(tmp_path)


def example(save, written, columns=COLUMNS):
    """Return the table of a model with this signature and this JSON of its input example."""
    keys = {"saved_input_example_info": {"artifact_path": "input_example.json", "type": "dataframe"}}
    if columns is not None:
        keys["signature"] = {"inputs": json.dumps(columns)}
    folder = save({"sklearn": {"pickled_model": "model.skops"}}, **keys)
    (folder / "input_example.json").write_text(json.dumps(written))
    model = read_mlmodel(folder)
    if columns == COLUMNS:
        assert model.columns == (Column("floor", "long"), Column("area", "double"), Column("city", "string"))
    return model.table()


def test_the_signature_gives_the_example_its_order_and_types(save):
    rows = {"columns": ["city", "area", "floor"], "data": [["Bonn", 50, 1], ["Köln", 61.5, 2]]}
    table = example(save, rows)
    assert list(table.columns) == ["floor", "area", "city"]
    assert [table[name].dtype for name in ("floor", "area")] == [np.int64, np.float64]
    assert table["city"].tolist() == ["Bonn", "Köln"]
    rows["data"][1][2] = None
    holes = example(save, rows)["floor"]
    assert holes.dtype == np.float64
    assert np.isnan(holes[1])


def test_dates_of_the_example_are_dates(save):
    columns = [{"type": "datetime", "name": "when"}, {"type": "datetime", "name": "later", "required": False}]
    table = example(save, {"columns": ["when"], "data": [["2026-01-31T14:05:09.25"], [None]]}, columns)
    assert table["when"].dtype.kind == "M"
    assert table["when"][0].isoformat() == "2026-01-31T14:05:09.250000"
    assert table.isna().to_numpy().tolist() == [[False, True], [True, True]]
    with pytest.raises(RegistryError, match="The input example is not what the signature says"):
        example(save, {"columns": ["when", "later"], "data": [["soon", None]]}, columns)


def test_optional_columns_that_the_example_lacks_are_missing_in_each_row(save):
    columns = [{**column, "required": column["name"] == "area"} for column in COLUMNS]
    table = example(save, {"columns": ["area"], "data": [[50.0], [61.5]]}, columns)
    assert list(table.columns) == ["floor", "area", "city"]
    assert table["floor"].dtype == np.float64
    assert table["floor"].isna().all()
    assert table["city"].tolist() == [None, None]
    assert table["area"].tolist() == [50.0, 61.5]
    model = read_mlmodel(save({"sklearn": {"pickled_model": "model.skops"}}, signature={"inputs": json.dumps(columns)}))
    assert model.optional == ["floor", "city"]
    old = [{"type": "double", "name": "a", "optional": True}, {"type": "double", "name": "b"}]
    model = read_mlmodel(save({"sklearn": {"pickled_model": "model.skops"}}, signature={"inputs": json.dumps(old)}))
    assert (model.optional, model.names) == (["a"], ["a", "b"])
    with pytest.raises(RegistryError, match=r"^The input example lacks column 'area'"):
        example(save, {"columns": ["floor"], "data": [[1]]}, columns)


ARRAY = [[1.0, 2.0], [3.0, None]]
TENSOR = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 2]}}]
NAMES = [{"type": "double", "name": "a"}, {"type": "double", "name": "b"}]


@pytest.mark.parametrize("written", [ARRAY, {"inputs": ARRAY}, {"inputs": ARRAY, "params": {}}, {"data": ARRAY}])
@pytest.mark.parametrize(("columns", "names"), [(None, [0, 1]), (TENSOR, [0, 1]), (NAMES, ["a", "b"])])
def test_an_example_without_names_is_rows_that_get_the_signature_s(save, written, columns, names):
    table = example(save, written, columns)
    assert list(table.columns) == names
    np.testing.assert_array_equal(table, np.array([[1.0, 2.0], [3.0, np.nan]]))


def test_an_example_beside_parameters_and_one_of_objects_are_rows(save):
    rows = {"columns": ["b", "a"], "data": [[2.0, 1.0]]}
    for written in ({"inputs": rows, "params": {"alpha": 1}}, [{"b": 2.0, "a": 1.0}]):
        assert example(save, written, NAMES).to_dict("list") == {"a": [1.0], "b": [2.0]}


@pytest.mark.parametrize(
    "written",
    [
        {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 2]},
        {"a": 1.0, "b": 2.0},
        {"a": [1.0], "b": [2.0]},
        [1.0, 2.0],
        [],
        {"data": []},
        {"inputs": {"a": [[1.0]]}},
        7,
    ],
)
def test_an_example_of_another_kind_is_no_sample(save, written):
    assert example(save, written, NAMES) is None


def test_an_example_that_the_signature_does_not_describe_is_refused(save):
    with pytest.raises(RegistryError, match=r"^The input example lacks column 'floor'"):
        example(save, {"columns": ["city", "area"], "data": [["Bonn", 50]]})
    for area, floor in (("wide", 1), (50, 1.5), (50, "one"), (50, 2**80)):
        with pytest.raises(RegistryError, match="is not what the signature says"):
            example(save, {"columns": ["city", "area", "floor"], "data": [["Bonn", area, floor]]})
    with pytest.raises(RegistryError, match="column new holds a value that is not of type boolean"):
        example(save, {"columns": ["new"], "data": [["no"]]}, [{"type": "boolean", "name": "new"}])
    with pytest.raises(RegistryError, match="column small holds a value that is not of type integer"):
        example(save, {"columns": ["small"], "data": [[2**31]]}, [{"type": "integer", "name": "small"}])


def test_an_example_that_is_lost_or_damaged_is_said_where_it_is_read(save):
    folder = save({"sklearn": {"pickled_model": "model.skops"}}, saved_input_example_info={"artifact_path": "rows"})
    model = read_mlmodel(folder)
    with pytest.raises(RegistryError, match="names rows, which is not there"):
        model.table()
    (folder / "rows").write_text("[")
    with pytest.raises(RegistryError, match="rows cannot be read"):
        model.table()


def test_without_mlflow_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package == "mlflow" else object())
    with pytest.raises(MissingExtra, match=r"^Reading models:/demand/3 needs mlflow, .*\[mlflow\]"):
        fetch("models:/demand/3", tmp_path)


def test_an_address_is_told_from_a_path():
    assert is_model_uri("models:/demand/3")
    assert is_model_uri("runs:/abc/model")
    assert not is_model_uri("models/demand.skops")
