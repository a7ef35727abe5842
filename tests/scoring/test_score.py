"""Files of rows scored without a server: by names, in order, resumed, refused with a sentence, and whole."""

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import triton_regressors as tr
from triton_regressors.scoring import columns as scoring_columns
from triton_regressors.scoring import file_scoring, files, predictor
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.journal import only_run, work_folder
from triton_regressors.scoring.scorer import Scorer

NAMES = ["age", "bmi", "bp"]
ROWS = 1000


def table(seed: int = 0, rows: int = ROWS) -> pd.DataFrame:
    """Return features in another order than in training, in several types, and an id."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "bp": random.integers(60, 180, rows),
            "id": [f"{seed}-{row}" for row in range(rows)],
            "bmi": random.normal(25, 4, rows).astype(np.float32),
            "age": random.uniform(20, 80, rows),
        }
    )


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X = table()[NAMES]
    y = X @ [1.0, 2.0, 0.1] + np.random.default_rng(1).normal(size=ROWS)
    return tr.export(
        BayesianRidge().fit(X, y), tmp_path_factory.mktemp("models"), name="risk", sample=X
    ).entry.directory


@pytest.fixture(name="rows")
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files of rows, of four parts each."""
    monkeypatch.setattr(files.plan_parts, "__defaults__", (250,))
    for day in (1, 2):
        (tmp_path / "rows" / f"day={day}").mkdir(parents=True)
        table(day).to_parquet(tmp_path / "rows" / f"day={day}" / "a.parquet", index=False, row_group_size=100)
    return tmp_path / "rows"


def expected(entry: Path, *seeds: int) -> pd.DataFrame:
    answer = Scorer(entry, outputs=["y", "std"], keep=["id"])
    return pd.concat([answer(table(seed)) for seed in seeds], ignore_index=True)


def same(found: Any, wanted: pd.DataFrame) -> bool:
    """Return whether both are the same to the bit."""
    found = found if isinstance(found, pd.DataFrame) else pd.read_parquet(found, partitioning=None)
    if list(found.columns) != list(wanted.columns) or not (found["id"] == wanted["id"]).all():
        return False
    numbers = [name for name in wanted.columns if name in ("y", "std")]
    assert all(found[name].dtype == np.float32 for name in numbers)
    return all(found[name].to_numpy().tobytes() == wanted[name].to_numpy().tobytes() for name in numbers)


def interrupted(after: int) -> Callable[[int, int | None], None]:
    """Return a progress that raises once a number of rows is done."""

    def progress(done: int, total: int | None) -> None:
        assert total == 2 * ROWS
        if done >= after:
            raise KeyboardInterrupt

    return progress


def test_columns_go_by_name_and_rows_stay_in_order(entry: Path, rows: Path, tmp_path: Path) -> None:
    done = tr.score(entry, rows, tmp_path / "out.parquet", outputs=["y", "std"], keep=["id", "day"])
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found.pop("day").tolist() == ["1"] * ROWS + ["2"] * ROWS
    assert same(found, expected(entry, 1, 2))
    assert (done.rows, done.files, done.empty, done.before, done.listed) == (2 * ROWS, 2, 0, 0, None)
    assert [path.name for path in tmp_path.iterdir() if path.name != "rows"] == ["out.parquet"]
    tr.score(entry, str(rows / "*" / "*.parquet"), tmp_path / "each", outputs=["y", "std"], keep=["id"], workers=2)
    assert same(tmp_path / "each" / "day=2" / "a.parquet", expected(entry, 2))


def test_contributions_become_columns_of_the_rows_that_a_condition_chooses(tmp_path: Path) -> None:
    """They add up to y; other rows have none, and so have refused rows."""
    X = table()[NAMES]
    model = BayesianRidge().fit(X, X @ [1.0, 2.0, 0.1])
    made = tr.export(model, tmp_path, name="told", sample=X, contributions="background", background=X[:50])
    entry = made.entry.directory
    rows = table(3)
    rows.loc[7, "age"] = np.nan
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    options: dict[str, Any] = {"errors": "row", "contributions": True, "keep": ["id"]}
    tr.score(entry, tmp_path / "rows.parquet", tmp_path / "all.parquet", **options)
    found = pd.read_parquet(tmp_path / "all.parquet")
    fields = [f"contribution_{name}" for name in (*NAMES, "base")]
    assert list(found.columns) == ["id", "y", *fields]
    told = found.drop(7)
    assert found.loc[7, ["y", *fields]].isna().all()
    np.testing.assert_allclose(told[fields].sum(axis=1), told["y"], rtol=1e-6)
    given, mean = rows[NAMES].astype(np.float32).astype(float), X[:50].astype(np.float32).astype(float).mean()
    for name, weight in zip(NAMES, model.coef_, strict=True):
        wanted = weight * (given[name] - mean[name]).drop(7)
        np.testing.assert_allclose(told[f"contribution_{name}"], wanted, rtol=1e-6, atol=1e-6)
    middle = float(told["y"].median())
    options |= {"where": f"y >= {middle}", "outputs": ["y", "std"]}
    for errors, read in (("row", rows), ("stop", rows.drop(7))):
        read.to_parquet(tmp_path / "rows.parquet", index=False)
        tr.score(
            entry, tmp_path / "rows.parquet", tmp_path / "some.parquet", **{**options, "errors": errors}, overwrite=True
        )
        some = pd.read_parquet(tmp_path / "some.parquet").set_index(read.index)
        chosen = some["y"] >= middle
        assert some.loc[~chosen, fields].isna().all(axis=None)
        assert some.loc[chosen, ["y", *fields]].equals(found.loc[chosen[chosen].index, ["y", *fields]])
        assert some["y"].notna().sum() == some["std"].notna().sum() == ROWS - 1
    with pytest.raises(tr.InvalidRequest, match=r"^'age > 3' compares 'age'; .* y, std\.$"):
        tr.score(entry, tmp_path / "rows.parquet", tmp_path / "x.parquet", contributions=True, where="age > 3")
    with pytest.raises(tr.InvalidRequest, match=r"^where is for contributions, and the outputs are y\.$"):
        tr.score(entry, tmp_path / "rows.parquet", tmp_path / "x.parquet", where="y > 3")


def test_estimated_contributions_have_columns_of_errors(tmp_path: Path) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 5)), columns=list("abcde"))
    model = KNeighborsRegressor(3).fit(X, X["a"] * X["b"] + X["c"])
    options: dict[str, Any] = {"contributions": "background", "background": X[:5], "permutations": 4}
    made = tr.export(model, tmp_path, name="near", sample=X, **options)
    X.to_parquet(tmp_path / "rows.parquet", index=False)
    tr.score(
        made.entry.directory, tmp_path / "rows.parquet", tmp_path / "all.parquet", contributions=True, where="y > 0"
    )
    found = pd.read_parquet(tmp_path / "all.parquet")
    names = [*"abcde", "base"]
    assert list(found.columns) == ["y", *(f"contribution{kind}_{name}" for kind in ("", "_error") for name in names)]
    asked = tr.load(made.entry.directory).infer(X, outputs=("y", "contributions", "contributions_error"))
    chosen = asked["y"][:, 0] > 0
    for kind, output in {"": "contributions", "_error": "contributions_error"}.items():
        columns = found[[f"contribution{kind}_{name}" for name in names]]
        assert columns[~chosen].isna().all(axis=None)
        assert columns[chosen].to_numpy().tobytes() == asked[output][chosen].tobytes()


@pytest.mark.parametrize("workers", [None, 2])
def test_the_rate_is_that_of_the_whole_call_and_computing_is_told_apart(
    entry: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None
) -> None:
    """Time asleep in planning and joining counts for the whole call, and not for computing."""
    asleep, (plan, join) = 0.3, (file_scoring.make_worklist, file_scoring.join)

    def later(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            time.sleep(asleep)
            return function(*given, **options)

        return call

    monkeypatch.setattr(file_scoring, "make_worklist", later(plan))
    monkeypatch.setattr(file_scoring, "join", later(join))
    began = time.perf_counter()
    done = tr.score(entry, rows, tmp_path / "out.parquet", workers=workers)
    whole = time.perf_counter() - began
    assert 2 * asleep <= done.seconds <= whole
    assert done.rows_per_s == 2 * ROWS / done.seconds
    assert 0 < done.computing_s <= (workers or 1) * (done.seconds - 2 * asleep)
    assert done.computed_rows_per_s == 2 * ROWS / done.computing_s


def test_csv_goes_in_and_out(entry: Path, rows: Path, tmp_path: Path) -> None:
    table(1).to_csv(tmp_path / "rows.csv", index=False)
    tr.score(entry, tmp_path / "rows.csv", tmp_path / "out.csv", outputs=["y", "std"], keep=["id"])
    assert same(pd.read_csv(tmp_path / "out.csv", dtype={"y": np.float32, "std": np.float32}), expected(entry, 1))


def test_an_interrupted_run_is_gone_on_with(entry: Path, rows: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out.parquet", {"outputs": ["y", "std"], "keep": ["id"]}
    with pytest.raises(KeyboardInterrupt):
        tr.score(entry, rows, out, **asked, progress=interrupted(after=1100))
    assert not out.exists()
    kept = {path: path.stat().st_mtime_ns for path in work_folder(out).glob("*.parquet")}
    assert len(kept) == 4  # a part of 300, 300, 300 and 100 rows each; the fifth was under way
    with pytest.raises(
        tr.ScoringError,
        match=r"differs from this one: that run was keeping id, this one is keeping none\. --restart",
    ):
        tr.score(entry, rows, out, outputs=["y", "std"])
    with only_run(work_folder(out)), pytest.raises(tr.ScoringError, match="Another process is at work in"):
        tr.score(entry, rows, out, **asked)
    done = tr.score(entry, rows, out, **asked)
    assert (done.before, done.rows) == (ROWS, 2 * ROWS)
    assert same(out, expected(entry, 1, 2))
    assert not work_folder(out).exists()


def test_a_run_is_not_gone_on_with_where_the_model_or_a_file_has_changed(
    entry: Path, rows: Path, tmp_path: Path
) -> None:
    out, asked = tmp_path / "out.parquet", {"outputs": ["y", "std"], "keep": ["id"]}
    with pytest.raises(KeyboardInterrupt):
        tr.score(entry, rows, out, **asked, progress=interrupted(after=1100))
    config = entry / "config.pbtxt"
    before = config.read_text()
    config.write_text(before.replace("max_batch_size: 4096", "max_batch_size: 64"))
    with pytest.raises(
        tr.ScoringError,
        match=r"differs from this one: the entry, or its config\.pbtxt, has changed since\.",
    ):
        tr.score(entry, rows, out, **asked)
    config.write_text(before)
    table(3).to_parquet(rows / "day=2" / "a.parquet", index=False)
    with pytest.raises(
        tr.ScoringError,
        match=r"differs from this one: .*day=2/a\.parquet has changed\. --restart",
    ):
        tr.score(entry, rows, out, **asked)
    assert tr.score(entry, rows, out, **asked, restart=True).before == 0
    assert same(out, expected(entry, 1, 3))


def test_what_is_refused_ends_the_run_or_is_left_out_or_empty(entry: Path, rows: Path, tmp_path: Path) -> None:
    bad = table(2).astype({"bp": float})
    bad.loc[[17, 700], "bmi"], bad.loc[430, "age"] = np.nan, 1e300
    bad.to_parquet(rows / "day=2" / "a.parquet", index=False, row_group_size=100)
    out, asked = tmp_path / "out.parquet", {"outputs": ["y", "std"], "keep": ["id"]}
    nan = r"X must be finite: row 17, column 1 \('bmi'\) is nan\."
    with pytest.raises(tr.ScoringError, match=rf"day=2/a\.parquet: {nan} With --errors row .* Parts done: 4 of 8"):
        tr.score(entry, rows, out, **asked)
    done = tr.score(entry, rows, out, **asked, errors="row")  # goes on
    assert (done.before, done.rows, done.empty) == (ROWS, 2 * ROWS, 3)
    found, wanted = pd.read_parquet(out), expected(entry, 1, 2)
    wrong = [ROWS + 17, ROWS + 430, ROWS + 700]
    assert np.flatnonzero(found["y"].isna()).tolist() == np.flatnonzero(found["std"].isna()).tolist() == wrong
    assert same(found.drop(index=wrong), wanted.drop(index=wrong))
    with (tmp_path / "out.refused.csv").open() as file:
        listed = list(csv.DictReader(file))
    assert [int(each["row"]) for each in listed] == [17, 430, 700]
    assert "row 700, column 1 ('bmi') is nan" in listed[2]["reason"]
    assert "X[430, 0] ('age') is 1e+300, beyond float32" in listed[1]["reason"]
    (rows / "broken.parquet").write_bytes(b"PAR1")
    done = tr.score(entry, rows, tmp_path / "files", **asked, errors="file")
    assert (done.rows, done.files, len(done.left_out)) == (ROWS, 1, 2)
    assert [path.parent.name for path in (tmp_path / "files").rglob("*.parquet")] == ["day=1"]


def test_cells_that_are_no_numbers_are_their_rows_errors(entry: Path, tmp_path: Path) -> None:
    cells = table().astype({"bp": object, "age": object})
    cells.loc[0, "bp"], cells.loc[[17, 900], "age"], cells.loc[3, "bmi"] = "high", ["unknown", "1_000"], np.nan
    cells.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(tr.ScoringError, match="columns 'age', 'bp' must be numbers: 'age' holds 'unknown' in row 17"):
        tr.score(entry, tmp_path / "rows.csv", tmp_path / "out.parquet", keep=["id"])
    done = tr.score(entry, tmp_path / "rows.csv", tmp_path / "out.parquet", keep=["id", "age"], errors="row")
    assert (done.rows, done.empty) == (ROWS, 4)
    found, clean = pd.read_parquet(tmp_path / "out.parquet"), table()
    clean.to_csv(tmp_path / "clean.csv", index=False)
    tr.score(entry, tmp_path / "clean.csv", tmp_path / "clean.parquet", keep=["id", "age"])
    wanted, wrong = pd.read_parquet(tmp_path / "clean.parquet"), [0, 3, 17, 900]
    assert np.flatnonzero(found["y"].isna()).tolist() == wrong
    assert same(found.drop(index=wrong), wanted.drop(index=wrong))
    with (tmp_path / "out.refused.csv").open() as file:
        reasons = {int(each["row"]): each["reason"] for each in csv.DictReader(file)}
    assert list(reasons) == wrong
    assert reasons[0] == "Row 0 of column 'bp' holds 'high', which is not a number."
    assert reasons[17] == "Row 17 of column 'age' holds 'unknown', which is not a number."
    assert reasons[900] == "Row 900 of column 'age' holds '1_000', which is not a number."
    assert "row 3, column 1 ('bmi') is nan" in reasons[3]


def test_a_csv_without_words_is_scored_alike_row_by_row(entry: Path, tmp_path: Path) -> None:
    given = table().assign(bp=lambda rows: rows["bp"] > 100, age=[f" {age!r}" for age in table()["age"].tolist()])
    given.to_csv(tmp_path / "rows.csv", index=False)
    for errors in ("stop", "row"):
        tr.score(entry, tmp_path / "rows.csv", tmp_path / f"{errors}.parquet", keep=["id"], errors=errors)
    assert same(tmp_path / "row.parquet", pd.read_parquet(tmp_path / "stop.parquet"))


def test_errors_are_found_before_anything_is_computed(entry: Path, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(tr.InvalidRequest, match=r"^Model 'risk' has no output 'contributions': export it with "):
        tr.score(entry, rows, tmp_path / "out.parquet", contributions=True)
    out = tmp_path / "out.parquet"

    def refused(why: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(tr.TritonRegressorsError, match=why):
            tr.score(*arguments, **options)
        assert not work_folder(out).exists()

    for name, wrong in {
        "lacks": table().drop(columns="bmi"),
        "kind": table().assign(bmi="high"),
    }.items():
        wrong.to_parquet(tmp_path / f"{name}.parquet", index=False)
    good = rows / "day=1" / "a.parquet"
    lacks = r"lacks\.parquet: The table lacks column 'bmi'; besides the model's columns it has column 'id'\."
    refused(lacks, entry, [good, tmp_path / "lacks.parquet"], out)
    refused("column 'bmi' must be numbers: it is of type .*string", entry, tmp_path / "kind.parquet", out)
    refused(
        "lacks column 'key'; besides the model's columns it has columns 'id', 'day'", entry, good, out, keep=["key"]
    )
    refused("Model 'risk' has no output 'mean'; it has y, std", entry, good, out, outputs=["mean"])
    refused("Column 'y' cannot be kept: an output has this name", entry, good, out, keep=["y"])
    refused(r"risk has no version 7; it has 1\.", entry, good, out, version=7)
    refused(r"There is no entry .*rsk; .* has risk\.", entry.with_name("rsk"), good, out)
    refused("There is no file of rows at .*nothing", entry, tmp_path / "nothing*", out)
    refused("is in .*, a folder of rows", entry, rows, rows / "out.parquet")
    refused("must be auto, cpu, gpu or gpu:1", entry, good, out, device="tpu")
    out.write_bytes(b"mine")
    refused(r"exists already; --overwrite", entry, good, out)
    assert out.read_bytes() == b"mine"
    tr.score(entry, good, out, outputs=["y", "std"], keep=["id"], overwrite=True)
    assert same(out, expected(entry, 1))


def test_any_kind_of_table_has_the_bits_of_a_matrix(entry: Path) -> None:
    """Types of tables are tried that are converted faster than by a client."""
    frame, answer = table(), Scorer(entry, keep=["id"])
    for name, dtype in (("bp", "int64"), ("bp", "uint8"), ("bp", "category"), ("bp", "Int32"), ("bmi", "float16")):
        given = frame.astype({name: dtype})
        given.loc[0, "age"] = 2.0**60 + 2.0**36 + 1  # rounded twice it would be another float32
        wanted = answer.predict(given[NAMES].astype(np.float64).to_numpy().astype(np.float32)).tobytes()
        assert answer(given)["y"].to_numpy().tobytes() == wanted, dtype
        found = answer(pa.Table.from_pandas(given))
        assert (found.column_names, found["y"].to_numpy().tobytes()) == (["id", "y"], wanted), dtype
        batch = answer({column: given[column].to_numpy() for column in given})
        assert (batch["id"].tolist(), batch["y"].tobytes()) == (given["id"].tolist(), wanted), dtype
    for wrong, why in (
        (np.zeros((2, 4)), r"X has shape \(2, 4\); it must be two-dimensional, \[rows, 3\]"),
        (frame[NAMES].iloc[:, :2], "lacks column 'bp'"),
    ):
        with pytest.raises(tr.InvalidRequest, match=why):
            answer.predict(wrong)
    assert predictor(entry)()(frame)["y"].dtype == np.float32
    with pytest.raises(tr.ScoringError, match=r"makes a class for Ray's actors; predict rows with `tr.load"):
        predictor(entry)(frame)


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (1023, 2), (1024, 1), (5000, 2), (5000, 4)])
def test_a_table_is_the_matrix_that_a_client_sends(
    entry: Path, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are found by name among others, in pieces or in one, all of one type or each of its own."""
    monkeypatch.setattr(scoring_columns, "THREADS", threads)
    monkeypatch.setattr(scoring_columns, "MANY_NUMBERS", 2**20 if threads == 1 else 1)
    frame, answer = table(rows=rows), Scorer(entry)
    wanted = frame[NAMES].to_numpy(dtype=np.float64).astype(np.float32)
    arrow = pa.Table.from_pandas(frame)
    pieces = pa.concat_tables([arrow[: rows // 3], arrow[rows // 3 :]])
    same_type = frame[["bp", "age", "bmi"]].astype(np.float64)
    for given in (frame, same_type, same_type.assign(other=1.0), arrow, pieces, arrow.to_batches()[0], dict(frame)):
        (found,) = answer.tensors(Columns(given)).values()
        assert (found.shape, found.dtype, found.tobytes()) == (wanted.shape, wanted.dtype, wanted.tobytes())
    with pytest.raises(tr.InvalidRequest, match=rf"X\[{rows - 1}, 1\] \('bmi'\) is 1e\+300, beyond float32"):
        answer.tensors(Columns(same_type.assign(bmi=[1e300 if row == rows - 1 else 1.0 for row in range(rows)])))
    missing = pa.table({name: pa.array([None, *frame[name][1:]], pa.float64()) for name in NAMES})
    (found,) = answer.tensors(Columns(missing)).values()
    assert np.isnan(found[0]).all()
    assert (found[1:] == wanted[1:]).all()


def test_strings_are_taken_as_a_request_takes_them(tmp_path: Path) -> None:
    X = pd.DataFrame({"city": ["Bonn", "Köln", "Ulm", None], "rooms": [3, 5, 4, 2]})
    model = make_pipeline(ColumnTransformer([("place", OneHotEncoder(), ["city"])], remainder="passthrough"), Ridge())
    houses = tr.export(model.fit(X, [1.0, 2, 3, 4]), tmp_path, name="houses", sample=X).entry.directory
    answer = Scorer(houses)
    for words in (pa.array(X["city"]), pa.array(X["city"]).dictionary_encode()):
        pq.write_table(pa.table({"rooms": X["rooms"], "city": words}), tmp_path / "rows.parquet")
        tr.score(houses, tmp_path / "rows.parquet", tmp_path / "out.parquet", overwrite=True)
        assert pd.read_parquet(tmp_path / "out.parquet")["y"].tolist() == answer(X)["y"].tolist()
    with pytest.raises(tr.InvalidRequest, match=r"row 1, column 0 \('city'\) is 'Rom'"):
        answer(X.assign(city=["Bonn", "Rom", "Ulm", "Ulm"]))
    pd.DataFrame({"city": [1, 2], "rooms": [1, 2]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(tr.ScoringError, match="column 'city' must be strings: it is of type int64"):
        tr.score(houses, tmp_path / "rows.parquet", tmp_path / "out.parquet", overwrite=True)


def test_a_model_without_names_takes_columns_in_the_order_of_the_first_file(tmp_path: Path) -> None:
    X = table()[NAMES]
    sums = tr.export(Ridge().fit(X.to_numpy(), X.sum(axis=1)), tmp_path, name="sums").entry.directory
    X.to_parquet(tmp_path / "1.parquet")
    X.iloc[:, ::-1].to_parquet(tmp_path / "2.parquet")
    both, out = [tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "out.csv"
    tr.score(sums, both, out)
    wanted = Scorer(sums).predict(X.to_numpy())
    assert pd.read_csv(out, dtype=np.float32)["y"].to_numpy().tobytes() == np.tile(wanted, 2).tobytes()
    table().to_parquet(tmp_path / "1.parquet")
    with pytest.raises(
        tr.ScoringError,
        match=r"takes 3 columns; .*1\.parquet has 4 that are not kept. Name the features with --columns",
    ):
        tr.score(sums, both, out, overwrite=True)
    tr.score(sums, tmp_path / "1.parquet", out, columns=NAMES, overwrite=True)
    assert pd.read_csv(out, dtype=np.float32)["y"].to_numpy().tobytes() == wanted.tobytes()


def test_ray_scores_the_same(entry: Path, rows: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'triton-regressors[ray]'")
    tr.score(entry, rows, tmp_path / "out.parquet", outputs=["y", "std"], keep=["id"], ray="local", workers=1)
    assert same(tmp_path / "out.parquet", expected(entry, 1, 2))


def test_a_disk_that_is_full_is_not_taken_for_a_wrong_file(
    entry: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(tr.ScoringError, match=r"Cannot write .*000000\.parquet: .*No space left on device"):
        tr.score(entry, rows, tmp_path / "out.parquet", errors="file")
    assert not work_folder(tmp_path / "out.parquet").exists()
