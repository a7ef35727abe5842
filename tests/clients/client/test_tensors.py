"""Tests of the conversion of rows before they are sent, without a server."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.tensors import (
    InputTensor,
    datatype,
    input_tensors,
    model_tensors,
    number_rows,
    take,
    text_rows,
    wire,
)
from triton_regressors.clients.errors import InvalidRequest, ServerFault

X = np.array([[34, 5e4], [51, np.nan]], np.float32)
CITIES = [[b"K\xc3\xb6ln", b"nurse"], [b"", b""]]
INPUTS = (InputTensor("X", "FP32", 2, ("age", "income")), InputTensor("cat", "BYTES", 2, ("city", "job")))
PEOPLE = pd.DataFrame(
    {"id": [7, 8], "job": ["nurse", None], "income": [5e4, np.nan], "city": ["Köln", np.nan], "age": [34, 51]}
)


class TestStrings:
    @pytest.mark.parametrize(
        "strings",
        [
            [["Köln", "nurse"], [None, float("nan")]],
            [["Köln", "nurse"], ["", b""]],
            np.array([["Köln", "nurse"], ["", ""]]),
            np.array(CITIES),
            np.array([["Köln", np.str_("nurse")], [pd.NA, np.float32("nan")]], dtype=object),
            np.asfortranarray(np.array([["Köln", np.bytes_(b"nurse")], [None, pd.NaT]], dtype=object)),
            pd.DataFrame({"a": ["Köln", None], "b": ["nurse", np.nan]}),
            pd.DataFrame({"a": ["Köln", None], "b": ["nurse", None]}, dtype="string"),
            pd.DataFrame({"a": ["Köln", None], "b": ["nurse", None]}, dtype="category"),
        ],
        ids=["lists", "empty", "numpy", "bytes", "objects", "fortran", "pandas", "pandas string", "category"],
    )
    def test_what_they_may_be(self, strings: object) -> None:
        found = text_rows(strings, "cat")
        assert found.dtype == object
        assert found.tolist() == CITIES
        assert {type(text) for text in found.ravel()} == {bytes}

    @pytest.mark.parametrize(
        ("strings", "says"),
        [
            ([["a", 5]], r"^cat\[0, 1\] is 5, not a string"),
            ([["a"], [True]], r"^cat\[1, 0\] is True, not a string"),
            ([["\udc80"]], r"^cat\[0, 0\] is '\\udc80', not a string: str, or bytes in UTF-8\.$"),
            (["a", "b"], r"^cat has shape \(2,\).*one row is cat\.reshape\(1, -1\)"),
            (np.empty((0, 2), "U3"), r"^cat has no rows"),
            (pd.DataFrame({"zip": ["01234", 1234]}), r"^Row 1 of column 'zip' of input 'cat' is 1234, not a string"),
        ],
    )
    def test_what_they_may_not_be(self, strings: object, says: str) -> None:
        with pytest.raises(InvalidRequest, match=says):
            text_rows(strings, "cat")

    def test_bytes_of_a_request(self) -> None:
        assert wire(text_rows([["a", None], ["Köln", "b"]], "cat")) == (
            b"\x01\0\0\0a\0\0\0\0\x05\0\0\0K\xc3\xb6ln\x01\0\0\0b"
        )
        assert wire(X[:, :1]) == X[:, :1].tobytes()
        assert (datatype(X), datatype(np.array(CITIES, object))) == ("FP32", "BYTES")


class TestMappings:
    def test_numbers_and_strings_of_any_kind(self) -> None:
        for numbers in (X, X.astype(float), X.tolist(), pd.DataFrame(X), pd.DataFrame(X).convert_dtypes()):
            for strings in (np.array(CITIES), pd.DataFrame([["Köln", "nurse"], [None, None]])):
                tensors = model_tensors({"X": numbers, "cat": strings}, INPUTS, "people")
                np.testing.assert_array_equal(tensors["X"], X)
                assert tensors["X"].dtype == np.float32
                assert tensors["cat"].tolist() == CITIES

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({}, r"^Model 'people' has inputs, and the mapping is empty; it takes the inputs 'X' and 'cat'\.$"),
            ({"X": X, "cat": [["a", "b"]]}, "differ in their number of rows: 'X' 2, 'cat' 1"),
            ({3: X}, r"^Model 'people' has no input 3; it takes the inputs 'X' and 'cat'\.$"),
            ({"X": [[1.0, "a"]]}, "X has dtype <U32; accepted: floats, integers and booleans"),
            ({"X": [[1.0, None], ["2", 3]]}, r"^X\[1, 0\] \('age'\) is '2', not a number"),
            ({"X": [[1e39]]}, r"X\[0, 0\] \('age'\) is 1e\+39, beyond float32"),
            ({"X": X[0]}, r"X has shape \(2,\).*X\.reshape"),
            ({"X": [[1], [2, 3]]}, "X is not an array"),
            ({"X": np.ones((1, 1), complex)}, "X has dtype complex128"),
        ],
    )
    def test_errors_name_the_input(self, given: dict, says: str) -> None:
        with pytest.raises(InvalidRequest, match=says):
            model_tensors(given, INPUTS, "people")

    def test_rows_are_taken_of_every_input(self) -> None:
        tensors = take({"X": X, "cat": np.array(CITIES, object)}, np.array([1, 0]))
        np.testing.assert_array_equal(tensors["X"], X[::-1])
        assert tensors["cat"].tolist() == CITIES[::-1]


class TestTables:
    def test_columns_are_found_by_name(self) -> None:
        tensors = model_tensors(PEOPLE, INPUTS, "people")
        np.testing.assert_array_equal(tensors["X"], X)
        assert tensors["cat"].tolist() == CITIES

    @pytest.mark.parametrize(
        "change",
        [
            lambda table: table.convert_dtypes(),
            lambda table: table.astype(object),
            lambda table: table.astype({"job": "category"}),
        ],
        ids=["nullable", "objects", "categories"],
    )
    def test_whatever_their_dtypes(self, change: Callable) -> None:
        tensors = model_tensors(change(PEOPLE), INPUTS, "people")
        np.testing.assert_array_equal(tensors["X"], X)
        assert tensors["cat"].tolist() == CITIES

    def test_records_are_a_table_whose_none_is_missing(self) -> None:
        records = [
            {"id": 7, "city": "Köln", "job": "nurse", "age": 34, "income": 5e4},
            {"id": 8, "city": None, "job": None, "age": True, "income": None},
        ]
        tensors = model_tensors(records, INPUTS, "people")
        np.testing.assert_array_equal(tensors["X"], [[34, 5e4], [1, np.nan]])
        assert tensors["cat"].tolist() == CITIES

    def test_a_column_without_a_value_is_missing_throughout(self) -> None:
        table = PEOPLE.assign(city=np.nan, job=None, income=None)
        tensors = model_tensors(table, INPUTS, "people")
        assert tensors["cat"].tolist() == [[b"", b""]] * 2
        assert np.isnan(tensors["X"][:, 1]).all()

    def test_categories_that_are_numbers_are_these(self) -> None:
        table = PEOPLE.assign(age=pd.Categorical([34, np.nan]), income=pd.Categorical([True, False]))
        np.testing.assert_array_equal(model_tensors(table, INPUTS, "people")["X"][:, :2], [[34, 1], [np.nan, 0]])

    @pytest.mark.parametrize(
        ("table", "says"),
        [
            (
                PEOPLE.drop(columns="job"),
                r"lacks column 'job' of input 'cat'; besides the model's columns it has column 'id'\.$",
            ),
            (
                PEOPLE[["city", "job"]],
                "lacks columns 'age', 'income' of input 'X'; it has no other column in their",
            ),
            (
                PEOPLE.rename(columns={"age": "Age", "job": "jobs"}),
                r"^The table lacks column 'age' of input 'X' and column 'job' of input 'cat'; besides the "
                r"model's columns it has columns 'id', 'jobs', 'Age': 'Age' may be 'age', 'jobs' may be 'job'\.$",
            ),
            (PEOPLE.assign(age=["34", "old"]), "column 'age' of input 'X' must be numbers: it holds 'old' in row 1"),
            (PEOPLE.assign(city=5.0), "Row 0 of column 'city' of input 'cat' is 5.0, not a string"),
            (PEOPLE.rename(columns={"id": "job"}), "has column 'job' of input 'cat' more than once"),
            (PEOPLE.assign(age=1e39), r"X\[0, 0\] \('age'\) is 1e\+39, beyond float32"),
            (PEOPLE[:0], "X has no rows"),
        ],
    )
    def test_errors_name_the_column(self, table: pd.DataFrame, says: str) -> None:
        with pytest.raises(InvalidRequest, match=says):
            model_tensors(table, INPUTS, "people")

    def test_the_only_input_without_names_takes_all_columns(self) -> None:
        tensors = model_tensors(PEOPLE[["city", "job"]], (InputTensor("cat", "BYTES", 2),), "people")
        assert tensors["cat"].tolist() == CITIES

    def test_a_table_without_names_is_taken_in_its_order(self) -> None:
        named, unnamed = (InputTensor("X", "FP32", 2, columns) for columns in (("b", "a"), ()))
        mixed = pd.DataFrame({"a": [True, False], "b": [0.5, np.nan]})
        for table, tensor, first in (
            (mixed, unnamed, 1),
            (mixed.set_axis([0, 1], axis=1), named, 1),
            (mixed, named, 0.5),
        ):
            assert model_tensors(table, (tensor,), "people")["X"][0, 0] == first

    def test_several_inputs_need_names(self) -> None:
        inputs = (INPUTS[0], InputTensor("cat", "BYTES", 2))
        with pytest.raises(InvalidRequest, match=r"'people' does not say which columns its inputs 'X' and 'cat' are"):
            model_tensors(PEOPLE, inputs, "people")

    def test_an_array_is_for_an_only_input(self) -> None:
        with pytest.raises(
            InvalidRequest, match=r"^Model 'people' has the inputs 'X' and 'cat': give a table with named"
        ):
            model_tensors(X, INPUTS, "people")


class TestNumbers:
    @pytest.mark.parametrize(
        ("array", "says"),
        [
            (np.ones(3), r"two-dimensional.*reshape\(1, -1\)"),
            (np.ones((2, 2, 2)), r"shape \(2, 2, 2\)"),
            (np.ones((0, 3)), "no rows"),
            (np.array([["1", "2"]]), "dtype <U1"),
            (np.array([[1, 1j]], dtype=object), r"^X\[0, 1\] is 1j, not a number"),
            (np.ones((1, 2), complex), "dtype complex128"),
            ([[1, 2], [3]], "not an array"),
            (np.array([[0.0, 1e39]]), r"X\[0, 1\] is 1e\+39, beyond float32"),
            (np.array([["2020-01-01"]], "datetime64[D]"), "dtype datetime64"),
        ],
    )
    def test_what_they_may_not_be(self, array: object, says: str) -> None:
        with pytest.raises(InvalidRequest, match=says):
            number_rows(array, InputTensor("X", "FP32", 2))

    def test_sparse_matrices_are_told_what_to_do(self) -> None:
        sparse = pytest.importorskip("scipy.sparse")
        with pytest.raises(InvalidRequest, match="toarray"):
            number_rows(sparse.csr_matrix(np.eye(3)), InputTensor("X", "FP32", 3))

    @pytest.mark.parametrize(
        ("array", "rows"),
        [
            (np.array([[1, 2**24 + 1]]), [[1, 2**24]]),  # rounded
            (np.array([[True, False]]), [[1, 0]]),
            (np.array([[np.nan, np.inf]]), [[np.nan, np.inf]]),
            (np.array([[1e-60, -0.1]]), [[0, -0.1]]),
            (np.ones((1, 2), np.float16), [[1, 1]]),
        ],
    )
    def test_what_they_may_be(self, array: np.ndarray, rows: list) -> None:
        result = number_rows(array, InputTensor("X", "FP32", 2))
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, np.array(rows, np.float32))

    @pytest.mark.parametrize(("datatype", "dtype"), [("FP32", np.float32), ("FP64", np.float64), ("INT64", np.int64)])
    def test_an_array_of_the_inputs_type_is_taken_as_it_is(self, datatype: str, dtype: type) -> None:
        array = np.array([[1, 2]], dtype)
        assert number_rows(array, InputTensor("X", datatype, 2)) is array

    def test_fp64_takes_what_float64_holds(self) -> None:
        tensor = InputTensor("X", "FP64", 2)
        assert number_rows([[0.1, 2**53 - 1]], tensor).tolist() == [[0.1, 2.0**53 - 1]]
        assert number_rows(X, tensor).dtype == np.float64

    @pytest.mark.parametrize(
        "whole",
        [
            [[2**60 + 1, -5]],
            np.array([[2**60 + 1, -5]], object).astype(np.int64),
            pd.DataFrame({"a": [2**60 + 1], "b": [-5]}),
            pd.DataFrame({"a": [2**60 + 1], "b": [-5]}, dtype="Int64"),
        ],
        ids=["list", "array", "table", "nullable"],
    )
    def test_int64_holds_every_whole_number(self, whole: object) -> None:
        found = number_rows(whole, InputTensor("integers", "INT64", 2))
        assert (found.dtype, found.tolist()) == (np.int64, [[2**60 + 1, -5]])

    @pytest.mark.parametrize("number", [0.5, np.nan, 2.0**63, -np.inf, np.uint64(2**63)])
    def test_int64_holds_nothing_else(self, number: float) -> None:
        with pytest.raises(InvalidRequest, match=r"^integers\[1, 0\] is .*, which is not a whole number that INT64"):
            number_rows(np.array([[1], [number]]), InputTensor("integers", "INT64", 1))

    @pytest.mark.parametrize(
        ("datatype", "number"), [("FP32", 0.1), ("FP32", 2**24 + 1), ("FP32", 1e-60), ("FP64", 2**53 + 1)]
    )
    def test_a_category_is_not_rounded(self, datatype: str, number: float) -> None:
        tensor = InputTensor("X", datatype, 2, ("size", "id"), categories=(1,))
        fits = np.array([[number, 3]], type(number))
        assert number_rows(fits, tensor)[0, 1] == 3
        with pytest.raises(InvalidRequest, match=rf"^X\[0, 1\] \('id'\) is .*, a category, which {datatype} would"):
            number_rows(fits[:, ::-1], tensor)


@pytest.mark.parametrize(
    ("tensor", "shown"),
    [
        (InputTensor("X", "FP32", 8), "<InputTensor 'X' FP32 [8]>"),
        (InputTensor("cat", "BYTES", 2, ("a", "b")), "<InputTensor 'cat' BYTES [2], columns 'a', 'b'>"),
        (
            InputTensor("X", "FP64", 900, tuple(f"c{i}" for i in range(900)), (3, 5)),
            "<InputTensor 'X' FP64 [900], columns 'c0', 'c1', 'c2', ..., 2 of them categories>",
        ),
    ],
)
def test_an_input_shows_itself_in_a_line(tensor: InputTensor, shown: str) -> None:
    assert repr(tensor) == shown


class TestConfigurations:
    @staticmethod
    def config(columns: str | None = None) -> model_config_pb2.ModelConfig:
        config = model_config_pb2.ModelConfig(name="people")
        config.input.add(name="cat", data_type=model_config_pb2.TYPE_STRING, dims=[2])
        config.input.add(name="X", data_type=model_config_pb2.TYPE_FP32, dims=[2])
        if columns is not None:
            config.parameters["columns"].string_value = columns
        return config

    def test_inputs_with_names(self) -> None:
        names = json.dumps({"X": ["age", "income"], "cat": ["city", "job"]})
        assert input_tensors(self.config(names)) == INPUTS[::-1]

    def test_inputs_without_names(self) -> None:
        config = self.config()
        assert input_tensors(config) == (InputTensor("cat", "BYTES", 2), InputTensor("X", "FP32", 2))
        assert not config.parameters, "it is the caller's own"

    @pytest.mark.parametrize("columns", ["", "{", "[]", '{"X": 3}'])
    def test_a_parameter_that_names_nothing(self, columns: str) -> None:
        with pytest.raises(ServerFault, match="Parameter 'columns' of model 'people'"):
            input_tensors(self.config(columns))
