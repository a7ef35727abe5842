"""One set of rules for tables, matrices and files: the estimator's own answers, clients and scoring share it."""

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
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import triton_regressors as tr
from triton_regressors.clients.client.tensors import input_tensors, model_tensors
from triton_regressors.clients.rows import read_by_row, read_tensors
from triton_regressors.commands.model_file import read_rows
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.entry_choice import read_config
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.tables.columns import beside
from triton_regressors.tables.errors import TableError
from triton_regressors.tables.frames import as_frame, is_tabular
from triton_regressors.tables.values import WrongCell, column_numbers

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
    sample = compile_estimator(model, sample=given).sample
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
        sample = read_rows(given, model) if isinstance(given, Path) else given
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
TABLE_DOORS = ["export", "Client", "load"]
DOORS = [(door, kind) for door in TABLE_DOORS for kind in ("pandas", "records", "arrow")]


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
        (np.array([1], "m8[s]"), 0, np.timedelta64(1, "s")),
    ],
)
def test_what_is_no_number_is_shown_with_its_row(column: Any, row: int, value: object) -> None:
    with pytest.raises(WrongCell) as caught:
        column_numbers(column)
    assert (caught.value.row, caught.value.value) == (row, value)


TWO = PLAIN[1:3]
UNFIT: dict[str, tuple[Any, str]] = {
    "no column": (TWO[["rented"]], "{called} lacks column 'price'; it has no other column in its place."),
    "none of both": (
        TWO[[]].assign(id=1),
        "{called} lacks columns 'rented', 'price'; besides the model's columns it has column 'id'.",
    ),
    "a name in capitals": (
        TWO.rename(columns={"price": "Price"}),
        "{called} lacks column 'price'; besides the model's columns it has column 'Price': 'Price' may be 'price'.",
    ),
    "a column twice": (pd.concat([TWO, TWO[["price"]]], axis=1), "{called} has column 'price' more than once."),
    "a word": (
        TWO.assign(price=[1, "old"]),
        "{called}'s column 'price' must be numbers: it holds 'old' in row 1.",
    ),
    "numbers as strings": (
        TWO.assign(price="1"),
        "{called}'s column 'price' must be numbers: it holds '1' in row 0.",
    ),
    "two columns of words": (
        TWO.assign(price=[1, "old"], rented="no"),
        "{called}'s columns 'rented', 'price' must be numbers: 'rented' holds 'no' in row 0.",
    ),
    "dates": (
        TWO.assign(price=pd.Timestamp("2020-01-01")),
        "{called}'s column 'price' must be numbers: it holds Timestamp('2020-01-01 00:00:00') in row 0.",
    ),
    "durations": (
        TWO.assign(price=pd.Timedelta("1D")),
        "{called}'s column 'price' must be numbers: it holds Timedelta('1 days 00:00:00') in row 0.",
    ),
    "no rows": (TWO[:0], "{called} has no rows (shape (0, 2)); at least one is needed."),
}
"""A table → the sentence that refuses it."""

UNFIT_MATRICES: dict[str, tuple[Any, str]] = {
    "one row": (
        [1.0, 2.0],
        "{called} has shape (2,); it must be two-dimensional, {shape}; .reshape(1, -1) makes one row of it.",
    ),
    "three dimensions": (np.ones((2, 2, 2)), "{called} has shape (2, 2, 2); it must be two-dimensional, {shape}."),
    "no rows": (np.ones((0, 2)), "{called} has no rows (shape (0, 2)); at least one is needed."),
    "a word": ([[1.0, 2.0], [0.0, "old"]], "{called}'s column 'price' must be numbers: it holds 'old' in row 1."),
    "a string": (
        np.array([[0, None], [1, "2"]], object),
        "{called}'s column 'price' must be numbers: it holds '2' in row 1.",
    ),
    "strings": (
        np.array([["1", "2"]]),
        "{called}'s columns 'rented', 'price' must be numbers: 'rented' holds '1' in row 0.",
    ),
    "complex numbers": (
        np.array([[1, 1j]], object),
        "{called}'s column 'price' must be numbers: it holds 1j in row 0.",
    ),
    "all complex": (
        np.ones((1, 2), complex),
        "{called}'s columns 'rented', 'price' must be numbers: 'rented' holds (1+0j) in row 0.",
    ),
    "ragged lists": ([[1, 2], [3]], "{called} is not an array: setting an array element with a sequence."),
    "a sparse matrix": (csr_matrix(np.eye(2)), "{called} is a sparse matrix; use .toarray()."),
}
"""A matrix → the sentence that refuses it."""


@pytest.mark.parametrize("door", TABLE_DOORS)
@pytest.mark.parametrize("case", UNFIT)
def test_a_table_that_does_not_fit_is_refused_in_the_same_words(
    entry: Path, tmp_path: Path, case: str, door: str
) -> None:
    given, sentence = UNFIT[case]
    with pytest.raises(REFUSALS) as caught:
        asked(door, entry, given, tmp_path)
    assert str(caught.value) == sentence.format(called="The sample" if door == "export" else "The table")


@pytest.mark.parametrize("door", TABLE_DOORS)
@pytest.mark.parametrize("case", UNFIT_MATRICES)
def test_a_matrix_that_does_not_fit_is_refused_in_the_same_words(
    entry: Path, tmp_path: Path, case: str, door: str
) -> None:
    given, sentence = UNFIT_MATRICES[case]
    with pytest.raises(REFUSALS) as caught:
        asked(door, entry, given, tmp_path)
    of_export, of_requests = ("The sample", "[rows, 2]"), ("X", "[rows, n_features]")
    called, shape = of_export if door == "export" else of_requests
    assert str(caught.value).startswith(sentence.format(called=called, shape=shape).removesuffix("."))


@pytest.mark.parametrize("door", ["export", "load"])  # a client leaves the width to the server
def test_a_matrix_of_another_width_is_refused(entry: Path, tmp_path: Path, door: str) -> None:
    called = "The sample" if door == "export" else "X"
    with pytest.raises(REFUSALS, match=rf"^{called} has shape \(2, 3\); it must be two-dimensional, \[rows, 2\]\.$"):
        asked(door, entry, np.ones((2, 3)), tmp_path)


FILES: dict[str, tuple[str, str]] = {
    "in another order": ("rows.csv", "id,price,rented\nx,2.5,1\ny,3,0\n"),
    "spaces after commas": ("rows.csv", "rented, price\n1, 2.5\n0, 3\n"),
    "of Windows": ("rows.CSV", "\ufeffrented,price\r\n1,2.5\r\n0,3\r\n"),
    "without a header": ("rows.csv", "1,2.5\n0,3\n"),
}
"""A file of the rows (1, 2.5) and (0, 3)."""

UNFIT_FILES: dict[str, tuple[str, bytes, str]] = {
    "a column twice": (
        "rows.csv",
        b"rented,price,price\n1,2,3\n",
        "The header of {path} has column 'price' more than once.",
    ),
    "a header or a row": (
        "rows.csv",
        b"0,1\n0.5,2\n",
        "The first line of {path}, 0,1, may be a header of column numbers or a row of data; write column names there, "
        "or give a .npy file.",
    ),
    "nothing": ("rows.csv", b"", "{path} has no rows."),
    "empty lines": ("rows.csv", b"\n\n", "{path} has no rows."),
    "no text": ("rows.csv", b"\xff\xfe\x00", "Cannot read rows from {path}: it is not a .csv file ("),
    "no end": ("rows.parquet", b"PAR1 is not enough", "Cannot read rows from {path}: it is not a .parquet file ("),
    "another kind": ("rows.txt", b"1,2", "Cannot read rows from {path}: the suffix must be "),
}
"""A file → the sentence that refuses it."""


@pytest.mark.parametrize("door", ["export", *FILE_DOORS])
@pytest.mark.parametrize("case", FILES)
def test_a_csv_is_read_alike_at_every_door(entry: Path, tmp_path: Path, case: str, door: str) -> None:
    name, content = FILES[case]
    (tmp_path / name).write_text(content)
    check(door, entry, tmp_path / name, [2.5, 3], tmp_path)


@pytest.mark.parametrize("door", ["export", "predict", "score"])
@pytest.mark.parametrize("case", UNFIT_FILES)
def test_a_file_that_cannot_be_read_is_refused_in_the_same_words(
    entry: Path, tmp_path: Path, case: str, door: str
) -> None:
    name, content, sentence = UNFIT_FILES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(REFUSALS) as caught:
        asked(door, entry, tmp_path / name, tmp_path)
    assert str(caught.value).startswith(sentence.format(path=tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("case", [case for case in UNFIT if case not in ("a column twice", "no rows")])
def test_a_file_without_the_columns_is_refused_as_a_table_is(
    entry: Path, tmp_path: Path, case: str, suffix: str
) -> None:
    given, sentence = UNFIT[case]
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        given.to_csv(path, index=False)
    else:
        given.astype({name: str for name in given if given[name].dtype == object}).to_parquet(path)
    told = sentence.format(called="The table")
    if case == "numbers as strings" and suffix == "csv":  # a .csv has no others
        return
    for door in ("predict", "score"):
        with pytest.raises(REFUSALS) as caught:
            asked(door, entry, path, tmp_path)
        start = told.partition(": ")[0] if "must be numbers" in told else told  # the cell is spelt as the file holds it
        assert str(caught.value).startswith(f"{path}: {start}")


def test_a_csv_without_a_header_is_scored_to_its_first_row(entry: Path, tmp_path: Path) -> None:
    """Its columns get the names of the model, if it has any and there are as many."""
    sums = tr.export(Ridge().fit(PLAIN.fillna(0).to_numpy(), Y), tmp_path / "models", name="sums").entry.directory
    (tmp_path / "1.csv").write_text("5,1\n3,4\n")
    (tmp_path / "2.csv").write_text("0.5,1\n3,4\n")
    tr.score(sums, [tmp_path / "1.csv", tmp_path / "2.csv"], tmp_path / "out.parquet")
    rows = np.array([[5, 1], [3, 4], [0.5, 1], [3, 4]])
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "out.parquet")["y"], Scorer(sums).predict(rows))
    (tmp_path / "3.csv").write_text("5,1,2\n3,4,2\n")
    with pytest.raises(
        tr.ScoringError, match=r"3\.csv does not name its columns; model 'rents' needs columns 'rented',"
    ):
        tr.score(entry, tmp_path / "3.csv", tmp_path / "other.parquet")


CITY: list[Any] = ["Köln", None]
STRINGS: dict[str, Any] = {
    "None": CITY,
    "NaN": ["Köln", np.nan],
    "pandas' own": ["Köln", pd.NA],
    "empty": ["Köln", ""],
    "bytes": ["Köln".encode(), None],
    "string": pd.array(CITY, "string"),
    "category": pd.Categorical(CITY),
    "objects": np.array(CITY, object),
}
NO_STRINGS: dict[str, tuple[list[Any], str]] = {
    "a number": (["Köln", 5], "it holds 5 in row 1."),
    "a boolean": (["Köln", True], "it holds True in row 1."),
    "half a character": (["\udc80", "Köln"], "it holds '\\udc80' in row 0."),
}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = pd.DataFrame({"city": ["Köln", "Ulm", None, "Ulm"], "area": [70.0, 80, 90, 100]})
    encoder = ColumnTransformer([("place", OneHotEncoder(), ["city"])], remainder="passthrough")
    model = make_pipeline(encoder, Ridge()).fit(table, [1.0, 2, 3, 4])
    return tr.export(model, tmp_path_factory.mktemp("models"), name="homes", sample=table).entry.directory


@pytest.mark.parametrize("cells", STRINGS)
def test_strings_and_missing_ones_are_the_same_bytes_to_clients_and_scoring(homes: Path, cells: str) -> None:
    table, scorer = pd.DataFrame({"area": [70.0, 90.0], "city": STRINGS[cells]}), Scorer(homes)
    given: list[Any] = [table, table.to_dict("records")]
    given += [] if cells in ("bytes", "pandas' own", "NaN") else [pa.Table.from_pandas(table)]
    for rows in given:
        for tensors in (model_tensors(rows, scorer.inputs, "homes"), scorer.tensors(Columns(rows))):
            assert tensors["place"].tolist() == [["Köln".encode()], [b""]]
            assert {type(text) for text in tensors["place"].ravel()} == {bytes}


@pytest.mark.parametrize("cells", NO_STRINGS)
def test_what_is_no_string_is_shown_with_its_row(homes: Path, cells: str) -> None:
    column, wrong = NO_STRINGS[cells]
    table, scorer = pd.DataFrame({"area": 1.0, "city": pd.Series(column, dtype=object)}), Scorer(homes)
    sentence = f"The table's column 'city' must be strings: {wrong}"
    for convert in (lambda: model_tensors(table, scorer.inputs, "homes"), lambda: scorer.tensors(Columns(table))):
        with pytest.raises(tr.InvalidRequest) as caught:
            convert()
        assert str(caught.value) == sentence
    arrays = {"X": [[1.0], [1.0]], "place": [[cell] for cell in column]}
    with pytest.raises(tr.InvalidRequest) as caught:
        model_tensors(arrays, scorer.inputs, "homes")
    assert str(caught.value) == f"place's column 'city' must be strings: {wrong}"


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
    with pytest.raises(TableError, match=r"^Rows of type DoubleArray are not a table"):
        as_frame(pa.array([1.0]))
    with pytest.raises(
        TableError, match=r"^Rows of type Series are not a table: `to_frame\(\)` makes one of one column\.$"
    ):
        as_frame(PLAIN["price"])
