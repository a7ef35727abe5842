"""One set of rules for cells and tables: for the estimator's own answers, for clients and for scoring."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import triton_regressors as tr
from triton_regressors.clients.tensors import input_tensors, model_tensors
from triton_regressors.exporter.compiler import compile_estimator
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.found import read_config
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.tables import NotNumber, as_frame, beside, column_numbers, is_tabular

RANDOM = np.random.default_rng(0)
PLAIN = pd.DataFrame({"rented": RANDOM.integers(0, 2, 120), "price": RANDOM.integers(0, 4000, 120) / 4})
PLAIN.loc[::7, "rented"] = np.nan
Y = PLAIN["price"] + 300 * PLAIN["rented"].fillna(5)

BOOLEANS = [None if cell != cell else bool(cell) for cell in PLAIN["rented"]]
DECIMALS = [Decimal(str(cell)) for cell in PLAIN["price"]]
WRITTEN = {
    "objects": pd.DataFrame({"rented": np.array(BOOLEANS, object), "price": np.array(DECIMALS, object)}),
    "nullable": PLAIN.assign(rented=pd.array(BOOLEANS, "boolean")),
    "arrow": pa.table({"rented": pa.array(BOOLEANS), "price": pa.array(DECIMALS, pa.decimal128(10, 2))}),
    "records": [{"rented": a, "price": b} for a, b in zip(BOOLEANS, DECIMALS, strict=True)],
}


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = HistGradientBoostingRegressor(max_iter=20).fit(PLAIN, Y)
    return tr.export(model, tmp_path_factory.mktemp("models"), name="rents", sample=PLAIN).entry.directory


@pytest.mark.parametrize("kind", WRITTEN)
def test_booleans_decimals_and_none_are_numbers_to_export_client_and_scoring(entry: Path, kind: str) -> None:
    given = WRITTEN[kind]
    model = HistGradientBoostingRegressor(max_iter=20).fit(PLAIN, Y)
    sample = compile_estimator(model, sample=as_frame(given)).sample
    np.testing.assert_array_equal(sample.X, PLAIN.to_numpy())
    tensors = model_tensors(given, input_tensors(read_config(entry)), "rents")
    np.testing.assert_array_equal(tensors["X"], PLAIN.to_numpy(np.float32))
    scorer = Scorer(entry)
    wanted = scorer.answers(Columns(PLAIN))["y"]
    np.testing.assert_array_equal(scorer.answers(Columns(given))["y"], wanted)


def test_files_with_booleans_and_decimals_are_scored(entry: Path, tmp_path: Path) -> None:
    PLAIN.to_parquet(tmp_path / "plain.parquet")
    pa.parquet.write_table(WRITTEN["arrow"], tmp_path / "written.parquet")
    PLAIN.assign(rented=BOOLEANS).to_csv(tmp_path / "written.csv", index=False)
    assert "False" in (tmp_path / "written.csv").read_text()
    for name in ("plain.parquet", "written.parquet", "written.csv"):
        tr.score(entry, tmp_path / name, tmp_path / f"{name}.out.parquet")
    wanted, *found = (pd.read_parquet(path)["y"].tolist() for path in sorted(tmp_path.glob("*.out.parquet")))
    assert all(answers == wanted for answers in found)


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (pd.Series([True, None, False], dtype=object), [1, np.nan, 0]),
        (pd.Series([2**60 + 1, True], dtype=object), [2**60 + 1, 1]),
        (pd.Series([Decimal(2**60 + 1), 5], dtype=object), [2**60 + 1, 5]),
        (pd.Series([Decimal("0.1"), pd.NA, Fraction(1, 4)], dtype=object), [0.1, np.nan, 0.25]),
        (pd.Series([None, None], dtype=object), [np.nan, np.nan]),
        (pd.Series(pd.Categorical([34, np.nan])), [34, np.nan]),
        (pd.Series(pd.Categorical([7, 7])), [7, 7]),
        (pd.Series([1, None], dtype="Int64"), [1, np.nan]),
        (pd.Series([2**60 + 1, 3], dtype="Int64"), [2**60 + 1, 3]),
        (pd.Series([1.0, 0.0], dtype=pd.SparseDtype(float)), [1, 0]),
        (np.array([np.bool_(True), np.float32(0.5)], dtype=object), [1, 0.5]),
        (np.array([0, 3], dtype=object), [0, 3]),
    ],
)
def test_a_column_of_numbers(column: Any, numbers: list[float]) -> None:
    found = column_numbers(column)
    assert found.dtype.kind in "fiub"
    assert [None if number != number else number for number in found.tolist()] == [
        None if number != number else number for number in numbers
    ]


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        (pd.Series(["34", "old"]), 1, "old"),
        (pd.Series([1, "34"], dtype=object), 1, "34"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), 0, pd.Timestamp("2020-01-01")),
        (pd.Series(pd.Categorical(["a", "a"])), 0, "a"),
        (np.array([1.0, 1j], dtype=object), 1, 1j),
        (np.array([1, 10**400], dtype=object), 1, 10**400),
    ],
)
def test_what_is_no_number_is_shown_with_its_row(column: Any, row: int, value: object) -> None:
    with pytest.raises(NotNumber) as caught:
        column_numbers(column)
    assert (caught.value.row, caught.value.value) == (row, value)


def test_a_sample_of_strings_that_read_as_numbers_is_refused_as_clients_refuse_it() -> None:
    model = HistGradientBoostingRegressor(max_iter=2).fit(PLAIN, Y)
    with pytest.raises(tr.ExportError, match=r"column 1 \('price'\) must be numbers: it holds '1' in row 0\.$"):
        compile_estimator(model, sample=PLAIN.assign(price="1"))


def test_what_a_table_has_beside_is_shown_with_the_closest_name() -> None:
    assert beside(["bmi"], ["age", "BMI"], ["age", "bmi"]).endswith("it has column 'BMI': 'BMI' may be 'bmi'")
    assert beside(["area"], ["floor"], ["area"]) == "beside what the model takes it has column 'floor'"
    assert beside(["area"], ["age"], ["area", "age"]) == "it has no other column in its place"


def test_what_is_a_table() -> None:
    for table in (PLAIN, WRITTEN["arrow"], WRITTEN["arrow"].to_batches()[0], WRITTEN["records"]):
        assert is_tabular(table)
        assert list(as_frame(table).columns) == ["rented", "price"]
    for rows in (PLAIN.to_numpy(), [[1, 2]], [], 5):
        assert not is_tabular(rows)
        assert as_frame(rows) is rows
    with pytest.raises(TypeError, match=r"^rows of type DoubleArray are no table"):
        as_frame(pa.array([1.0]))
