import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.tensors import input_tensors, model_tensors
from triton_regressors.clients.errors import InvalidRequest, RowsError
from triton_regressors.clients.rows import read_tensors

ROWS = np.array([[1, 2.5, -3], [4, 5, 6e-3]], np.float32)


def config(names: Sequence[str] | None = None) -> model_config_pb2.ModelConfig:
    """Return what a server tells of a model of numbers, and of its columns' names if it has any."""
    found = model_config_pb2.ModelConfig(name="model")
    found.input.add(name="X", data_type=model_config_pb2.TYPE_FP32, dims=[-1])
    if names is not None:
        found.parameters["columns"].string_value = json.dumps({"X": list(names)})
    return found


def read_rows(path: Path, names: Sequence[str] | None = None) -> np.ndarray:
    return read_tensors(path, config(names))["X"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.csv", "1,2.5,-3\n4,5,6e-3\n"),
        ("header.csv", "a,b,c\n1,2.5,-3\n4,5,6e-3\n"),
        ("spaces.csv", "a, b, c\n1, 2.5, -3\n4, 5, 6e-3\n"),
        ("windows.csv", "\ufeffa,b,c\r\n1,2.5,-3\r\n4,5,6e-3\r\n"),
        ("part-header.csv", "1,b,3\n1,2.5,-3\n4,5,6e-3\n"),
        ("SUFFIX.CSV", "1,2.5,-3\n4,5,6e-3"),
    ],
)
def test_csv(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    rows = read_rows(tmp_path / name)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)


@pytest.mark.parametrize("dtype", ["float32", "float64", ">f8"])
def test_npy(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "x.npy", ROWS.astype(dtype))
    np.testing.assert_array_equal(read_rows(tmp_path / "x.npy"), ROWS)


def test_parquet_of_every_numeric_dtype(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "half": np.array([1, 2], np.float16),
            "int": np.array([3, 4], np.int8),
            "bool": [True, False],
            "nullable": pd.array([5, None], dtype="Int64"),
            "empty": [None, None],
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    rows = read_rows(tmp_path / "x.parquet")
    np.testing.assert_array_equal(rows, np.array([[1, 3, 1, 5, np.nan], [2, 4, 0, np.nan, np.nan]], np.float32))


def test_empty_cells_are_nan(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,c\n1,,\n,nan,\n")
    np.testing.assert_array_equal(read_rows(tmp_path / "x.csv"), [[1, np.nan, np.nan], [np.nan] * 3])
    (tmp_path / "y.csv").write_text("1,,3\n4,5,6\n")  # an empty cell makes no header
    np.testing.assert_array_equal(read_rows(tmp_path / "y.csv"), [[1, np.nan, 3], [4, 5, 6]])


class TestFeatureNames:
    def test_columns_are_chosen_and_ordered(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("id,c,target,a\nx7,3,9,1\nx8,6,9,4\n")
        np.testing.assert_array_equal(read_rows(tmp_path / "x.csv", ["a", "c"]), [[1, 3], [4, 6]])

    def test_missing_columns_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("a,b\n1,2\n")
        with pytest.raises(
            RowsError, match=r"lacks columns 'c', 'd' of input 'X'; besides the model's columns it has column 'b'\.$"
        ):
            read_rows(tmp_path / "x.csv", ["a", "c", "d"])

    def test_a_file_without_names_must_have_as_many(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("1,2\n3,4\n")
        assert read_rows(tmp_path / "x.csv", ["a", "b"]).shape == (2, 2)
        np.save(tmp_path / "x.npy", ROWS)
        for name in ("x.csv", "x.npy"):
            with pytest.raises(RowsError, match="; 4 features are expected"):
                read_rows(tmp_path / name, list("abcd"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", b"1,2", r"the suffix must be \.npy, \.csv, \.parquet\.$"),
        ("x.csv", b"", "has no rows"),
        ("x.csv", b"\n\n", "has no rows"),
        ("x.csv", b"a,b\n", "has no rows"),
        ("x.csv", b"a,city\n1,2\n3,Bonn\n", "column 'city' of input 'X' must be numbers: it holds 'Bonn' in row 1"),
        ("x.csv", b"a,b,c\nx,1,y\n", "columns 'a', 'c' of input 'X' must be numbers: 'a' holds 'x' in row 0"),
        ("x.csv", b"1,2\n3,4,5\n", "is not a .csv file"),
        ("x.csv", b"a,b\n1,2\n3,4,5\n", "is not a .csv file"),
        ("x.csv", b"a,b\n1,2,3\n", "has lines with more cells than its first"),
        ("x.csv", b"a\n1e39\n", r"X\[0, 0\] is 1e\+39, beyond float32"),
        ("x.csv", b"\xff\xfe\x00", "is not a .csv file"),
        ("x.parquet", b"PAR1 is not enough", "is not a .parquet file"),
        ("x.npy", b"", "is not a .npy file of numbers"),
        ("x.npy", b"\x93NUMPY and so on", "is not a .npy file of numbers"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RowsError, match=says) as caught:
        read_rows(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones(3), "two-dimensional"),
        (np.ones((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.ones((0, 3)), "has no rows"),
        (np.array([[1, "a"]]), "dtype <U"),
        (np.array([[1, None]], dtype=object), "is not a .npy file of numbers"),
    ],
)
def test_arrays_that_are_not_rows(tmp_path: Path, array: np.ndarray, says: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(RowsError, match=says):
        read_rows(tmp_path / "x.npy")


def test_dates_are_not_numbers(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0], "day": pd.to_datetime(["2020-01-01"])}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(RowsError, match="column 'day' of input 'X' must be numbers"):
        read_rows(tmp_path / "x.parquet")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="there is no such file"):
        read_rows(tmp_path / "absent.csv")


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"x{suffix}")
    with pytest.raises(RowsError, match=rf"x{re.escape(suffix)}: it is not a regular file\.$"):
        read_rows(tmp_path / f"x{suffix}")


def test_a_header_that_has_a_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a, b,b,a\n1,2,3,4\n")
    for names in (None, ["a", "b"], list("abcd")):
        with pytest.raises(RowsError, match=r"^The header of .*x\.csv has columns 'a', 'b' more than once\.$"):
            read_rows(tmp_path / "x.csv", names)
    (tmp_path / "y.csv").write_text("5,5,5\n1,2,3\n")  # a row
    assert read_rows(tmp_path / "y.csv").shape == (2, 3)


class TestFirstLinesThatCountTheColumns:
    @pytest.mark.parametrize("first", [0, 1])
    def test_above_other_numbers_they_are_no_row(self, tmp_path: Path, first: int) -> None:
        """pandas writes such a header for columns without names."""
        X = np.random.default_rng(0).normal(size=(300, 8))
        pd.DataFrame(X, columns=range(first, first + 8)).to_csv(tmp_path / "x.csv", index=False)
        for names in (None, list("abcdefgh")):
            np.testing.assert_array_equal(read_rows(tmp_path / "x.csv", names), X.astype(np.float32))

    @pytest.mark.parametrize(
        "content", ["0,1,2,3\n4,5,6,7\n", "1,2,3,4\n-4,5,6,7\n", "0,1\n0.5,2\n", "0\n2.5\n", "0,1,2,3,4\n"]
    )
    def test_where_they_may_be_a_row_nothing_is_guessed(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "x.csv").write_text(content)
        with pytest.raises(
            RowsError, match=r"^The first line of .*x\.csv, [01](,.*)?, may be a header of column numbers"
        ):
            read_rows(tmp_path / "x.csv")

    def test_few_columns_counted_from_1_are_a_row(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("1,2\n1.5,4\n")
        np.testing.assert_array_equal(read_rows(tmp_path / "x.csv"), [[1, 2], [1.5, 4]])

    def test_the_models_own_names_may_be_numbers(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("2,0,1\n30,10,20\n31,11,21\n")
        np.testing.assert_array_equal(read_rows(tmp_path / "x.csv", ["0", "1", "2"]), [[10, 20, 30], [11, 21, 31]])
        assert read_rows(tmp_path / "x.csv").shape == (3, 3)


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(1000000000000, 8)", f"({2**63}, {2**63})"])
def test_an_array_that_no_memory_holds(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(RowsError, match=r"x\.npy is not a \.npy file of numbers: ") as caught:
        read_rows(tmp_path / "x.npy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("array", [np.ones((2, 3), complex), np.zeros((2, 3), "M8[s]"), np.zeros((2, 3), "m8[s]")])
def test_what_is_no_number_is_refused_by_its_dtype(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(
        RowsError, match=rf"dtype {re.escape(str(array.dtype))}; accepted: floats, integers and booleans"
    ):
        read_rows(tmp_path / "x.npy")
    for given in (array, {"X": array}, pd.DataFrame(array)):
        with pytest.raises(InvalidRequest, match=r"accepted: floats, integers and booleans|must be numbers"):
            model_tensors(given, input_tensors(config()), "model")
