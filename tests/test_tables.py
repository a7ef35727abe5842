"""One set of rules for cells and tables: for the estimator's own answers, for clients and for scoring."""

import re
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
from triton_regressors.clients.client.tensors import input_tensors, model_tensors
from triton_regressors.clients.rows import read_by_row, read_tensors
from triton_regressors.commands.model_file import read_rows
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.entry_choice import read_config
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


CELLS: dict[str, tuple[list[Any], list[float] | str]] = {
    "integers": ([3, -1], [3, -1]),
    "booleans": ([True, False], [1, 0]),
    "booleans and None": ([True, None], [1, np.nan]),
    "booleans and numbers": ([True, 0.5], [1, 0.5]),
    "decimals": ([Decimal("0.25"), Decimal(4)], [0.25, 4]),
    "pandas' own missing": ([pd.NA, 2.5], [np.nan, 2.5]),
    "nothing": ([None, None], [np.nan, np.nan]),
    "a word": ([1.5, "old"], "it holds 'old' in row 1"),
    "a boolean and a word": ([True, "old"], "it holds 'old' in row 1"),
}
"""Two cells of a table → the numbers, or the end of the message that refuses them."""

TEXT: dict[str, tuple[str, str, list[float] | str]] = {
    "booleans": ("True", "false", [1, 0]),
    "a boolean and a number": ("TRUE", "0.5", [1, 0.5]),
    "a boolean and nothing": ("False", "", [0, np.nan]),
    "spaces": (" 2.5 ", "+3", [2.5, 3]),
    "missing": ("<NA>", "None", [np.nan, np.nan]),
    "missing beside a number": ("n/a", "7", [np.nan, 7]),
    "a word below a boolean": ("True", "old", "it holds 'old' in row 1"),
    "a word below a number": ("1.5", "yes", "it holds 'yes' in row 1"),
    "a word below nothing": ("", "old", "it holds 'old' in row 1"),
    "Python's own": ("1.5", "1_000", "it holds '1_000' in row 1"),
    "other digits": ("1.5", "\u0663", "it holds '\u0663' in row 1"),
}
"""Two cells of a .csv → the numbers, or the end of the message that refuses them."""

REFUSALS = (tr.ExportError, tr.InvalidRequest, tr.RowsError, tr.ScoringError)


def asked(door: str, entry: Path, given: Any, folder: Path) -> np.ndarray:
    """Return the column `price` as a door reads it; of the doors that only answer, the answers."""
    inputs = input_tensors(read_config(entry))
    if door == "export":
        model = HistGradientBoostingRegressor(max_iter=20).fit(PLAIN, Y)
        sample = read_rows(given, model) if isinstance(given, Path) else as_frame(given)
        return compile_estimator(model, sample=sample).sample.X[:, 1]
    if door == "Client":
        return model_tensors(given, inputs, "rents")["X"][:, 1]
    if door == "predict":
        return read_tensors(given, read_config(entry))["X"][:, 1]
    if door == "predict --errors row":
        tables, kept, refused = read_by_row(given, read_config(entry))
        if refused:
            assert list(refused) == [1]
            assert kept.tolist() == [0]
            raise tr.RowsError(refused[1])
        return model_tensors(tables, inputs, "rents")["X"][:, 1]
    if door == "load":
        return tr.load(entry, device="cpu").predict(given)
    out = folder / "out.parquet"
    done = tr.score(entry, given, out, overwrite=True, errors="row" if door == "score --errors row" else "stop")
    if done.empty:
        assert done.empty == 1
        raise tr.ScoringError((folder / "out.refused.csv").read_text())
    return pd.read_parquet(out)["y"].to_numpy()


def check(door: str, entry: Path, given: Any, wanted: list[float] | str, folder: Path) -> None:
    """Hold a door to the numbers, the answers to these, or the sentence."""
    if isinstance(wanted, str):
        by_row = re.search("'(.*)' in row 1", wanted)
        sentence = f"Row 1 of column 'price' holds '{by_row[1]}', which is not a number." if by_row else ""
        with pytest.raises(REFUSALS) as caught:
            asked(door, entry, given, folder)
        expected = sentence if door.endswith("row") else f"must be numbers: {wanted}."
        assert expected in str(caught.value)
        return
    found = asked(door, entry, given, folder)
    if door == "load" or door.startswith("score"):
        rows = pd.DataFrame({"rented": [1.0, 0.0], "price": np.array(wanted, float)})
        np.testing.assert_array_equal(found, Scorer(entry).answers(Columns(rows))["y"][:, 0])
    else:
        np.testing.assert_array_equal(found, np.array(wanted, found.dtype))


FILE_DOORS = ["predict", "predict --errors row", "score", "score --errors row"]
DOORS = [(door, kind) for door in ("export", "Client", "load") for kind in ("pandas", "records", "arrow")]


def has_type(column: list[Any]) -> bool:
    """Return whether Arrow has a type for a column."""
    return len({type(cell) for cell in column if cell is not None and cell is not pd.NA}) <= 1


def of_arrow(column: list[Any]) -> pa.Table:
    return pa.table({"rented": [1, 0], "price": pa.array([None if cell is pd.NA else cell for cell in column])})


@pytest.mark.parametrize(
    ("cells", "door", "kind"),
    [
        (cells, door, kind)
        for cells, (column, _) in CELLS.items()
        for door, kind in [*DOORS, ("load", "mapping")]
        if kind != "arrow" or has_type(column)
    ],
)
def test_cells_of_tables_at_every_door(entry: Path, tmp_path: Path, cells: str, door: str, kind: str) -> None:
    column, wanted = CELLS[cells]
    frame = pd.DataFrame({"rented": [1, 0], "price": pd.Series(column, dtype=object)})
    given: Any = {
        "pandas": lambda: frame,
        "records": lambda: frame.to_dict("records"),
        "arrow": lambda: of_arrow(column),
        "mapping": lambda: {"rented": [1, 0], "price": column},
    }[kind]()
    check(door, entry, given, wanted, tmp_path)


@pytest.mark.parametrize("door", ["export", *FILE_DOORS])
@pytest.mark.parametrize("cells", TEXT)
def test_cells_of_a_csv_at_every_door(entry: Path, tmp_path: Path, cells: str, door: str) -> None:
    first, second, wanted = TEXT[cells]
    (tmp_path / "rows.csv").write_text(f"rented,price\n1,{first}\n0,{second}\n")
    check(door, entry, tmp_path / "rows.csv", wanted, tmp_path)


@pytest.mark.parametrize("door", FILE_DOORS)
@pytest.mark.parametrize("cells", [name for name, (column, _) in CELLS.items() if has_type(column)])
def test_cells_of_a_parquet_at_every_door(entry: Path, tmp_path: Path, cells: str, door: str) -> None:
    column, wanted = CELLS[cells]
    pa.parquet.write_table(of_arrow(column), tmp_path / "rows.parquet")
    check(door, entry, tmp_path / "rows.parquet", wanted, tmp_path)


def test_a_boolean_far_down_a_csv_is_the_number_that_it_is_above(entry: Path, tmp_path: Path) -> None:
    """The first blocks are read as plain numbers, and those from a boolean on as strings: no row is lost or twice."""
    rows = pd.DataFrame({"rented": np.arange(200_000) % 2, "price": np.arange(200_000) / 4 % 1000})
    rows.astype({"rented": object}).replace({"rented": {1: 1}}).to_csv(tmp_path / "plain.csv", index=False)
    lines = (tmp_path / "plain.csv").read_text().splitlines()
    lines[150_002] = lines[150_002].replace("1,", "True,", 1)
    assert lines[150_002].startswith("True,")
    (tmp_path / "far.csv").write_text("\n".join(lines))
    for name in ("plain", "far"):
        tr.score(entry, tmp_path / f"{name}.csv", tmp_path / f"{name}.parquet", keep=["price"])
    assert pd.read_parquet(tmp_path / "far.parquet").equals(pd.read_parquet(tmp_path / "plain.parquet"))


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
    assert beside(["area"], ["floor"], ["area"]) == "besides the model's columns it has column 'floor'"
    assert beside(["area"], ["age"], ["area", "age"]) == "it has no other column in its place"


def test_what_is_a_table() -> None:
    for table in (PLAIN, WRITTEN["arrow"], WRITTEN["arrow"].to_batches()[0], WRITTEN["records"]):
        assert is_tabular(table)
        assert list(as_frame(table).columns) == ["rented", "price"]
    for rows in (PLAIN.to_numpy(), [[1, 2]], [], 5):
        assert not is_tabular(rows)
        assert as_frame(rows) is rows
    with pytest.raises(TypeError, match=r"^rows of type DoubleArray are not a table"):
        as_frame(pa.array([1.0]))
