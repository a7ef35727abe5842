import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from triton_regressors.clients.errors import RowsError
from triton_regressors.clients.rows import feature_names, read_rows

ROWS = np.array([[1, 2.5, -3], [4, 5, 6e-3]], np.float32)


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
        with pytest.raises(RowsError, match=r"lacks columns 'c', 'd'; it has a, b\.$"):
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
        ("x.csv", b"a,city\n1,2\n3,Bonn\n", "column 'city' is not numeric, for example 'Bonn' in row 1"),
        ("x.csv", b"a,b,c\nx,1,y\n", "columns 'a', 'c' are not numeric, for example 'x' in row 0"),
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
    with pytest.raises(RowsError, match="column 'day' is not numeric"):
        read_rows(tmp_path / "x.parquet")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="there is no such file"):
        read_rows(tmp_path / "absent.csv")


class TestNamesInAnEntry:
    """What an entry's plan.json says of the columns it was trained with."""

    @staticmethod
    def entry(tmp_path: Path, **names: list[str]) -> Path:
        for version, columns in names.items():
            directory = tmp_path / "entry" / version.removeprefix("v")
            directory.mkdir(parents=True)
            (directory / "plan.json").write_text(json.dumps({"provenance": {"feature_names": columns}}))
        return tmp_path / "entry"

    def test_the_newest_version_unless_one_is_named(self, tmp_path: Path) -> None:
        entry = self.entry(tmp_path, v9=["a"], v10=["b", "c"])
        assert feature_names(entry) == ["b", "c"]
        assert feature_names(entry, "9") == ["a"]

    def test_none_where_there_are_no_names(self, tmp_path: Path) -> None:
        entry = self.entry(tmp_path, v1=[])
        assert feature_names(entry) is None
        assert feature_names(entry, "2") is None
        assert feature_names(tmp_path / "absent") is None

    def test_a_plan_that_cannot_be_read(self, tmp_path: Path) -> None:
        entry = self.entry(tmp_path, v1=[])
        (entry / "1" / "plan.json").write_text("{")
        with pytest.raises(RowsError, match=r"plan\.json cannot be read"):
            feature_names(entry)
