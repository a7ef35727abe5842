"""The profile that an export keeps of the rows it is given, and the output that counts what differs from them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from triton_regressors import ExportError, export
from triton_regressors.describe.contract import contract_of
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document, read_golden
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.row_profile import PROFILE, RowProfile, read_profile
from triton_regressors.kernels.plan.plan import load_plan

rng = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "a": rng.standard_normal(300),
        "b": rng.standard_normal(300),
        "shop": rng.choice(["x", "y", "z"], 300),
        "code": rng.choice([3.0, 5.0, 9.0], 300),
    }
)
TABLE.loc[::7, "b"] = np.nan
ENCODER = make_column_transformer(
    (SimpleImputer(), ["a", "b"]), (OneHotEncoder(handle_unknown="ignore"), ["shop", "code"])
)
MODEL = make_pipeline(ENCODER, Ridge()).fit(TABLE, rng.standard_normal(300))


def test_an_entry_keeps_the_profile_of_its_sample(tmp_path: Path) -> None:
    entry = export(MODEL, tmp_path, name="model", sample=TABLE).entry
    profile = read_profile(entry.version_directory)
    assert profile is not None
    single = TABLE[["a", "b"]].astype(np.float32)  # as it is served
    expected = single.quantile(np.linspace(0, 1, 11), interpolation="higher")
    np.testing.assert_array_equal(profile.low[:2], single.min())
    np.testing.assert_array_equal(profile.high[:2], single.max())
    tenth = single.std().to_numpy() / 10  # deciles have several definitions, which lie a row apart
    assert (np.abs(profile.deciles[:, :2] - expected) < tenth).all().all()
    assert np.isnan(profile.deciles[:, 2:]).all()
    assert profile.nan_share.tolist() == [0, TABLE["b"].isna().mean(), 0, 0]
    assert {column: known.tolist() for column, known in profile.known.items()} == {3: [3, 5, 9]}
    y = MODEL.predict(TABLE)
    answers = profile.answers["y"]
    np.testing.assert_allclose(answers.deciles[[0, -1]], [y.min(), y.max()], rtol=1e-6)
    np.testing.assert_array_equal(np.histogram(y, [-np.inf, *answers.edges, np.inf])[0] / 300, answers.shares)
    document = read_document(entry.version_directory)
    text = contract_of("model", 1, document, read_golden(entry.version_directory, document), profile).text()
    assert "Served rows are compared with 300 rows" in text
    assert "14.3 % missing." in text
    assert "code: 3 categories." in text
    assert answers.rows == 300
    path = entry.version_directory / PROFILE
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(PlanError, match=r"profile\.safetensors is not as it was exported"):
        read_document(entry.version_directory)
    path.write_bytes(b"nothing")
    with pytest.raises(PlanError, match=r"Cannot read the profile .*profile\.safetensors"):
        read_profile(entry.version_directory)


@pytest.mark.parametrize("m", [1, 5, 50])
def test_the_share_of_like_rows_out_of_range_is_what_the_profile_expects(m: int) -> None:
    """2 / (m + 1) for numbers that are never equal, whatever their distribution; less where some are missing."""
    random, outside, with_gaps = np.random.default_rng(m), [], []
    for _ in range(2000):
        X, new = random.exponential(size=(m, 1)), random.exponential(size=(20, 1))
        profile = RowProfile.of(X, {}, {})
        outside.append(profile.outside(new).mean())
        X[random.random(m) < 0.5], new[random.random(20) < 0.5] = np.nan, np.nan
        gaps = RowProfile.of(X, {}, {})
        with_gaps.append(((new < gaps.low) | (new > gaps.high)).mean())
    assert profile.expected_outside == 2 / (m + 1)
    assert np.mean(outside) == pytest.approx(2 / (m + 1), abs=0.02)
    assert np.mean(with_gaps) < 2 / (m + 1)


@pytest.mark.parametrize(("rows", "few"), [(1, True), (5, True), (238, True), (239, False)])
def test_a_small_profile_is_said_to_be_one(rows: int, few: bool, tmp_path: Path) -> None:
    """From where six times the expected share is 5 %, at which the alert on a column fires."""
    X = np.arange(300.0)[:, None]
    done = export(LinearRegression().fit(X, X[:, 0]), tmp_path, name="line", sample=X[:3], profile=X[:rows])
    assert few == any(f"The profile has only {rows:,} row" in note for note in done.contract.notes())
    assert few == ("has only" in done.contract.text(1000)) == ("has only" in done._repr_html_())
    assert any(f"2 / ({rows} + 1)" in sentence for sentence in done.contract.profile)


def test_training_rows_take_the_samples_place() -> None:
    X = np.arange(40.0)[:, None] * [1, 2]
    model = LinearRegression().fit(X, X[:, 0])
    assert compile_estimator(model).profile is None  # rows that are drawn say nothing
    assert compile_estimator(model, sample=X[:5]).profile.high.tolist() == [4, 8]
    profile = compile_estimator(model, sample=X[:5], profile=X).profile
    assert (profile.rows, profile.high.tolist()) == (40, [39, 78])
    assert profile.answers["y"].deciles[-1] == 39
    with pytest.raises(ExportError, match=r"The profile has shape \(40, 1\); it must be two-dimensional, \[rows, 2\]"):
        compile_estimator(model, profile=X[:, :1])


def test_out_of_range_counts_columns_unlike_the_profile(tmp_path: Path) -> None:
    done = export(MODEL, tmp_path, name="model", sample=TABLE, out_of_range=True)
    profile, inputs = done.compilation.profile, done.compilation.inputs
    rows = [
        ([0, 0, 1, 3], 0),
        ([9, 0, 1, 3], 1),
        ([9, -9, -1, 4], 4),
        ([np.nan, np.nan, np.nan, np.nan], 3),  # the profile has NaN in the second column
        ([profile.low[0], profile.high[1], 0, 9], 0),
        ([np.nextafter(np.float32(profile.low[0]), np.float32(-9)), 0, 0, 5], 1),
    ]
    X, expected = np.array([row for row, _ in rows], np.float32), np.array([[count] for _, count in rows])
    np.testing.assert_array_equal(profile.outside(X, inputs.coded), expected)
    plan = load_plan(done.entry.version_directory)
    found = Runner(plan, engine="torch", device="cpu").predict(X, ("out_of_range",))
    np.testing.assert_array_equal(found["out_of_range"], expected)
    with_it, without = (
        Runner(each, engine="torch", device="cpu") for each in (plan, compile_estimator(MODEL, sample=TABLE).plan)
    )
    assert with_it.predict(X)["y"].tobytes() == without.predict(X)["y"].tobytes()


def test_out_of_range_needs_rows() -> None:
    model = LinearRegression().fit(np.eye(3), np.arange(3))
    with pytest.raises(ExportError, match="out_of_range compares rows with a profile: give sample or profile"):
        compile_estimator(model, out_of_range=True)
