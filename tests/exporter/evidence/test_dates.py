"""Columns of dates from a user's sample into the plan's matrix and back, and what an export finds out about them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.exporter.dated import NAT, DayNumber, fitted, orders
from triton_regressors import ExportError, RowsError, export
from triton_regressors.commands.model_file import read_rows
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.sample import take_rows
from triton_regressors.exporter.lowering.input_columns import Profile, with_integers
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.kernels.format.inputs import DateColumn, Inputs
from triton_regressors.tables.dates import UNITS, column_dates

KINDS = [("s", None), ("ms", "UTC"), ("us", "Europe/Berlin"), ("ns", None)]


@pytest.mark.parametrize(("unit", "zone"), KINDS)
@pytest.mark.parametrize("drawn", [False, True], ids=["given", "drawn"])
def test_an_export_takes_dates(unit: str, zone: str | None, drawn: bool) -> None:
    table = orders(unit=unit, zone=zone)
    made = compile_estimator(fitted(table), sample=None if drawn else table)
    assert made.report.within
    assert made.inputs.numeric == (0, 2)
    assert made.inputs.dates == {1: DateColumn(unit, zone)}
    assert made.inputs.integers.columns == (1,)
    assert list(made.nan_columns) == []
    microseconds = made.sample.X[:, 1]
    assert (np.floor(microseconds) == microseconds).all()
    assert (microseconds % max(UNITS[unit] // 1000, 1) == 0).all()
    if drawn:
        years = microseconds.astype("datetime64[us]").astype("datetime64[Y]").astype(int) + 1970
        assert (years.min(), years.max()) == (2000, 2029)


def test_a_missing_date_is_taken_where_the_estimator_takes_it() -> None:
    table = orders(400)
    made = compile_estimator(fitted(table, trees=True), sample=table)
    assert list(made.nan_columns) == [0, 1, 2]
    assert np.isnan(made.nan_sample.X[:, 1]).any()
    assert (made.inputs.decode(made.nan_sample.X)["integers"] == NAT).any()
    table.loc[::7, "ordered"] = pd.NaT
    made = compile_estimator(fitted(table, trees=True), sample=table)
    assert np.isnan(made.sample.X[::7, 1]).all()
    assert 1 in made.nan_columns


@pytest.mark.parametrize(("unit", "zone"), KINDS)
def test_tables_and_the_matrix(unit: str, zone: str | None) -> None:
    table = orders(unit=unit, zone=zone)
    model = fitted(table)
    lowered = lower(model, table)
    oracle = Oracle(model, lowered.profile, ("y",))
    given = oracle.table(table)
    X = oracle.matrix(given, lowered.inputs.numeric)
    pd.testing.assert_frame_equal(oracle.asked(X), table)
    for other in (
        table.assign(ordered=table["ordered"].astype(object)),
        table.assign(ordered=table["ordered"].dt.as_unit("ns")),
        table.to_dict("records"),
    ):
        sample = pd.DataFrame(other)
        pd.testing.assert_frame_equal(oracle.table(sample), table)
        np.testing.assert_array_equal(oracle.matrix(oracle.table(sample), lowered.inputs.numeric), X)
    finer = table.assign(ordered=table["ordered"].dt.as_unit("ns") + pd.Timedelta(1, "ns"))
    np.testing.assert_array_equal(oracle.matrix(oracle.table(finer), lowered.inputs.numeric), X)
    X[0, 1] = np.nan
    assert oracle.asked(X)["ordered"].isna().tolist() == [True] + [False] * 199


def test_nanoseconds_are_rounded_down_before_1970() -> None:
    table = orders()
    table["ordered"] -= pd.Timedelta(1, "ns")
    made = compile_estimator(fitted(table), sample=table)
    assert made.sample.X[:, 1].tolist() == [time // 1000 for time in table["ordered"].astype(np.int64).tolist()]


@pytest.mark.parametrize(
    ("change", "zone", "message"),
    [
        (lambda dates: dates.astype(str), None, "The sample's column 1 must be dates: it holds '"),
        (lambda dates: dates.astype(np.int64), None, "must be dates: it holds -?[0-9]+ in row 0"),
        (lambda dates: dates.dt.tz_localize("UTC"), None, "must be dates: it has the time zone UTC"),
        (lambda dates: dates.dt.tz_convert(None), "UTC", "must be dates: it has no time zone"),
        (
            lambda dates: [dt.datetime(9999, 12, 31)] * len(dates),
            None,
            "holds '9999-12-31.00:00:00[.0]*' in row 0, and nanosec",
        ),
    ],
)
def test_samples_without_such_dates_are_refused(change: Any, zone: str | None, message: str) -> None:
    table = orders(zone=zone)
    with pytest.raises(ExportError, match=message.replace("column 1", "column 'ordered'")):
        compile_estimator(fitted(table), sample=table.assign(ordered=change(table["ordered"])))


def test_dates_that_no_lowering_reads_are_no_numbers() -> None:
    table = orders()
    model = fitted(table.assign(shipped=table["weight"]))
    with pytest.raises(ExportError, match=r"The sample's column 'shipped' must be numbers: it holds .* in row 0\."):
        compile_estimator(model, sample=table.assign(shipped=table["ordered"]))


def test_a_float32_sample_with_dates() -> None:
    table = orders(400).astype({"price": np.float32, "weight": np.float32})
    made = compile_estimator(fitted(table, trees=True), sample=table)
    assert made.report.within
    assert made.inputs.float32 == (0, 2)
    assert list(made.inputs.dates) == [1]


def test_dates_beside_strings_and_whole_numbers() -> None:
    table = orders(400).assign(city=["Bonn", "Ulm"] * 200, code=2**53 + 1 + 2 * np.arange(400) % 50)
    target = np.random.default_rng(0).normal(size=400)
    encoders = make_column_transformer(
        (DayNumber(), ["ordered"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city", "code"]),
        remainder="passthrough",
    )
    made = compile_estimator(make_pipeline(encoders, Ridge()).fit(table, target), sample=table)
    assert made.report.within
    assert made.inputs.columns() == {"X": (0, 2), "integers": (1, 4), "onehotencoder": (3,)}
    assert list(made.inputs.dates) == [1]
    assert made.inputs.coded == [4, 3]


def test_whole_numbers_join_the_dates_in_their_tensor() -> None:
    dated = with_integers(Inputs.plain(3), [1], {1: DateColumn("s")})
    both = with_integers(dated, [0])
    assert both.columns() == {"X": (2,), "integers": (0, 1)}
    assert both.integers.dates == (None, DateColumn("s"))
    assert with_integers(Inputs.plain(3), [0]).integers.dates is None


def test_the_profile_the_interval_and_the_count() -> None:
    table, held_out, later = (orders(300, seed=seed) for seed in range(3))
    target = fitted(table).predict(held_out) + np.random.default_rng(0).normal(size=300)
    made = compile_estimator(
        fitted(table), sample=table, calibrate=(held_out, target), profile=later, out_of_range=True
    )
    assert made.report.within
    assert made.profile is not None
    first = later["ordered"].min()
    assert made.profile.low[1] == first.value // 1000
    assert {"y", "lower", "upper", "out_of_range"} <= made.report.outputs.keys()


def test_a_model_of_dates_alone_without_names(tmp_path: Path) -> None:
    times = orders()[["ordered"]].to_numpy()
    model = make_pipeline(DayNumber(), Ridge()).fit(times, np.arange(200.0))
    made = export(model, tmp_path, name="dates", sample=times).compilation
    assert made.inputs.columns() == {"integers": (0,)}
    assert made.report.within
    assert export(model, tmp_path, name="drawn").compilation.report.within


def test_dates_are_drawn_by_their_location_and_scale() -> None:
    table = orders(unit="s")
    model = fitted(table)
    lowered = lower(model)
    lowered.profile.note_scale([1], 1e15, 1e12)
    rows = take_rows(Oracle(model, lowered.profile, ("y",)), lowered, None)
    assert abs(rows.X[:, 1].mean() - 1e15) < 1e11
    assert (rows.X[:, 1] % 10**6 == 0).all()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_files_of_rows(tmp_path: Path, zone: str | None) -> None:
    table = orders(zone=zone)
    model = fitted(table)
    table.loc[3, "ordered"] = pd.NaT
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_parquet(tmp_path / "rows.parquet")
    for file in ("rows.csv", "rows.parquet"):
        found = read_rows(tmp_path / file, model)
        np.testing.assert_array_equal(column_dates(found["ordered"], zone), column_dates(table["ordered"], zone))
        X = compile_estimator(fitted(table.dropna(), trees=True), sample=found).sample.X
        assert np.isnan(X[:, 1]).tolist() == table["ordered"].isna().tolist()
    (tmp_path / "rows.csv").write_text("price,ordered,weight\n1,31.01.2026,2\n")
    with pytest.raises(
        RowsError, match=r"rows\.csv: The table's column 'ordered' must be dates: it holds '31.01.2026'"
    ):
        read_rows(tmp_path / "rows.csv", model)


def test_what_a_lowering_may_note() -> None:
    profile = Profile(3)
    profile.note_date(1, "us", "UTC")
    profile.note_date(1, "ns")  # the first one holds
    profile.note_date(-1, "ns")
    assert profile.dates == {1: DateColumn("us", "UTC")}
    with pytest.raises(ValueError, match="one of s, ms, us, ns, not 'D'"):
        profile.note_date(0, "D")
