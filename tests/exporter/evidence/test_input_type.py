"""The types of input numbers: FP32 if rounding a user's rows moves no answer, FP64 or INT64 if it does."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVR

from tests.documents import golden_of
from tests.kernels.operations import run_plan
from triton_regressors import ExportError, export
from triton_regressors.__main__ import main
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.edges import Edges, find_edges, rows_at_edges
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.parity import measure
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

RNG = np.random.default_rng(0)
ROWS = 4000
TABLE = pd.DataFrame(
    {
        "price": np.round(RNG.lognormal(12, 1, ROWS), 2),
        "area": np.round(RNG.gamma(4, 30, ROWS), 2),
        "rooms": RNG.integers(1, 9, ROWS),
        "when": RNG.integers(1_600_000_000, 1_700_000_000, ROWS),
        "id": RNG.integers(100_000_000, 100_000_050, ROWS),
        "share": RNG.choice([0.1, 0.2, 0.3], ROWS),
    }
)
Y = np.log(TABLE.price) + TABLE.area / 100 + TABLE.id % 7 + TABLE.when % 97 / 50 + TABLE.share
MEASURES = ["price", "area"]


def forest() -> Any:
    return RandomForestRegressor(10, random_state=0)


def boosting() -> Any:
    return HistGradientBoostingRegressor(max_iter=20)


def bins() -> Any:
    return make_pipeline(KBinsDiscretizer(20, quantile_method="averaged_inverted_cdf"), Ridge())


def beside(encoder: Any, column: str) -> Any:
    return make_pipeline(make_column_transformer((encoder, [column]), (StandardScaler(), MEASURES)), Ridge())


def compiled(estimator: Any, columns: list[str], drawn: bool = False, **options: Any) -> Compilation:
    table = TABLE[columns]
    return compile_estimator(estimator.fit(table, Y), sample=None if drawn else table, **options)


MOVED = {
    "boosting": (boosting, MEASURES),
    "boosting of times": (boosting, [*MEASURES, "when"]),
    "scaled forest": (lambda: make_pipeline(StandardScaler(), forest()), MEASURES),
    "bins": (bins, MEASURES),
    "ids, target-encoded": (lambda: beside(TargetEncoder(target_type="continuous"), "id"), [*MEASURES, "id"]),
    "fractions, one-hot": (lambda: beside(OneHotEncoder(), "share"), [*MEASURES, "share"]),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("drawn", [False, True], ids=["sample", "drawn"])
@pytest.mark.parametrize("name", MOVED)
def test_fp64_where_rounding_moves_answers(name: str, drawn: bool) -> None:
    make, columns = MOVED[name]
    compilation = compiled(make(), columns, drawn)
    assert compilation.inputs.datatypes() == {"X": "FP64"}
    assert compilation.report.why.startswith("FP64: rounding ")
    assert " would move " in compilation.report.why
    expected = compilation.estimator.predict(TABLE[columns])[:, None]
    found = Runner(compilation.plan, engine="torch").predict(TABLE[columns].to_numpy(np.float64))["y"]
    assert measure(found, expected, compilation.report.units["y"]).within(1e-5)


HIDDEN = {
    "products": lambda: PolynomialFeatures(2),
    "functions": lambda: FunctionTransformer(np.arcsinh),
    "powers": PowerTransformer,
    "ranks": lambda: QuantileTransformer(n_quantiles=77),
    "splines": lambda: SplineTransformer(4),
    "components": PCA,
}


def behind(step: str, table: pd.DataFrame, sample: pd.DataFrame) -> Compilation:
    """Compile boosting behind a transformer, fitted on half of the rows."""
    estimator = make_pipeline(HIDDEN[step](), boosting()).fit(table[: ROWS // 2], Y[: ROWS // 2])
    return compile_estimator(estimator, sample=sample)


@pytest.mark.parametrize("step", HIDDEN)
def test_fp64_where_a_transformer_hides_the_thresholds_which_the_sample_does_not_meet(step: str) -> None:
    table = pd.DataFrame({"a": RNG.lognormal(12, 1, ROWS), "b": RNG.uniform(-1, 1, ROWS)})
    compilation = behind(step, table, table[-100:])
    assert compilation.inputs.datatypes() == {"X": "FP64"}
    assert re.fullmatch(
        r"FP64: rounding to FP32 would move .* answers beside the model's own thresholds, by up to .* std",
        compilation.report.why,
    )


def test_fp32_where_it_holds_every_number_before_hidden_thresholds() -> None:
    counts = TABLE[["rooms"]].assign(half=TABLE.rooms / 2)
    assert behind("products", counts, counts[-100:]).inputs.datatypes() == {"X": "FP32"}
    narrow = TABLE[MEASURES].astype(np.float32)
    assert behind("products", narrow, narrow[-100:]).inputs.datatypes() == {"X": "FP32"}


STILL = {
    "scaled linear": (lambda: make_pipeline(StandardScaler(), Ridge()), [*MEASURES, "when"]),
    "polynomial": (lambda: make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), MEASURES),
    "vectors": (lambda: make_pipeline(StandardScaler(), SVR(max_iter=50)), MEASURES),
    "forest, which rounds to float32 itself": (forest, [*MEASURES, "when"]),
    "gradient boosting, which does too": (lambda: GradientBoostingRegressor(n_estimators=20), MEASURES),
    "boosting of counts": (boosting, ["rooms"]),
    "small categories": (lambda: beside(OneHotEncoder(), "rooms"), [*MEASURES, "rooms"]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", STILL)
def test_fp32_where_rounding_moves_none(name: str) -> None:
    make, columns = STILL[name]
    compilation = compiled(make(), columns)
    assert compilation.inputs.datatypes() == {"X": "FP32"}
    assert compilation.report.why == "FP32: rounding to FP32 moves no answer beyond the tolerance"


def test_far_from_zero_a_linear_model_needs_fp64() -> None:
    near = RNG.standard_normal((500, 3))
    for X, dtype in ((near, "float32"), (near + 1e4, "float64")):
        model = LinearRegression().fit(X, near.sum(axis=1))
        assert compile_estimator(model, sample=X).plan.dtype == dtype


def test_the_sentence_counts_the_rows_that_move() -> None:
    compilation = compiled(boosting(), MEASURES)
    rounded = compilation.estimator.predict(TABLE[MEASURES].astype(np.float32).astype(np.float64))
    expected = compilation.estimator.predict(TABLE[MEASURES])
    error = np.abs(rounded - expected) / expected.std()
    moved = np.count_nonzero(error > 1e-5)
    assert moved > 0
    share = f"{100 * moved / ROWS:.0f} % of" if 100 * moved >= ROWS else f"{moved} of {ROWS:,}"
    assert compilation.report.why == (
        f"FP64: rounding your rows to FP32 would move {share} answers, by up to {error.max():.2g} std"
    )


def test_fp32_may_be_forced_and_says_what_it_does(tmp_path: Path) -> None:
    result = export(boosting().fit(TABLE[MEASURES], Y), tmp_path, name="rent", sample=TABLE[MEASURES], input="fp32")
    report, directory = result.compilation.report, result.entry.version_directory
    assert report.why.startswith("FP32: rounding your rows to FP32 would move ")
    assert not report.outputs["y"].within(1e-5)
    assert report.rounded["y"].within(1e-5)
    document = read_document(directory)
    assert document.plan["dtype"] == "float32"
    assert document.parity.why == report.why
    assert document.parity.outputs["y"].max_error == report.outputs["y"].max_error
    assert document.parity.outputs["y"].rounded == report.rounded["y"]
    golden = golden_of(directory)
    assert golden.X.dtype == np.float32
    first = TABLE[MEASURES][:16].astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(golden.outputs["y"][:16, 0], result.compilation.estimator.predict(first))


def test_golden_rows_of_fp64_are_the_rows_as_given(tmp_path: Path) -> None:
    entry = export(boosting().fit(TABLE[MEASURES], Y), tmp_path, name="rent", sample=TABLE[MEASURES]).entry
    golden = golden_of(entry.version_directory)
    np.testing.assert_array_equal(golden.X[:16], TABLE[MEASURES].to_numpy()[:16])


def test_whole_numbers_may_be_int64_beside_fp32() -> None:
    compilation = compiled(beside(OneHotEncoder(), "id"), [*MEASURES, "id"])
    assert compilation.inputs.datatypes() == {"X": "FP32", "integers": "INT64"}
    assert compilation.report.why.startswith("FP32 and INT64: rounding your rows to FP32 would move 8")
    assert compilation.sample.X.dtype == np.float64
    assert compilation.nan_columns == []


@pytest.mark.parametrize("name", ["id", "share"])
def test_categories_that_are_one_number_are_refused(name: str) -> None:
    table = TABLE.assign(share=TABLE.share + RNG.choice([0, 1e-9], ROWS))[[*MEASURES, name]]
    estimator = beside(OneHotEncoder(handle_unknown="ignore"), name).fit(table, Y)
    message = rf": the categories .* and .* of column '{name}' are one number in FP32; choose --input auto or fp64\.$"
    with pytest.raises(ExportError, match=message):
        compile_estimator(estimator, input="fp32")


def test_clients_are_told_which_columns_hold_categories(tmp_path: Path) -> None:
    entry = export(beside(OneHotEncoder(), "share").fit(TABLE[[*MEASURES, "share"]], Y), tmp_path, name="rent").entry
    text = (entry.directory / "config.pbtxt").read_text()
    assert r'string_value: "{\"X\": [2]}"' in text
    assert r'string_value: "{\"X\": [\"price\", \"area\", \"share\"]}"' in text


def test_a_next_version_keeps_the_type(tmp_path: Path) -> None:
    linear = Ridge().fit(TABLE[MEASURES], Y)
    export(boosting().fit(TABLE[MEASURES], Y), tmp_path, name="wide")
    assert export(linear, tmp_path, name="wide").compilation.plan.dtype == "float64"
    export(linear, tmp_path, name="narrow", sample=TABLE[MEASURES])
    with pytest.raises(
        ExportError,
        match=r"^The entry 'narrow' exists with FP32, and this model needs FP64: rounding .*--input fp32\.$",
    ):
        export(boosting().fit(TABLE[MEASURES], Y), tmp_path, name="narrow", sample=TABLE[MEASURES])
    assert export(boosting().fit(TABLE[MEASURES], Y), tmp_path, name="narrow", input="fp32").entry.version == 2


def test_integers_booleans_and_missing_numbers_are_asked_as_they_are() -> None:
    table = TABLE[["rooms", "area"]].assign(new=TABLE.rooms > 4, sold=TABLE.area.where(TABLE.rooms > 2))
    compilation = compile_estimator(boosting().fit(table, Y), sample=table.convert_dtypes())
    assert compilation.report.outputs["y"].within(1e-5)
    assert np.isnan(compilation.sample.X[:, 3]).sum() == (TABLE.rooms <= 2).sum()


def test_what_was_fitted_on_float32_rounds_as_it_does() -> None:
    x = np.arange(20, dtype=np.float32) / 7
    model = IsotonicRegression(out_of_bounds="nan").fit(x, x)
    asked = np.nextafter(x[[0, 3, 19]].astype(np.float64), [-1, 9, 9])
    plan = compile_estimator(model, sample=asked[:, None], input="fp64").plan
    np.testing.assert_array_equal(run_plan(plan, asked[:, None])["y"][:, 0], model.predict(asked))


def test_thresholds_are_rounded_for_float32_rows_alone() -> None:
    for input, dtype in (("fp32", np.float32), ("fp64", np.float64)):
        (step,) = compiled(boosting(), MEASURES, input=input).plan.steps
        assert isinstance(step.operation, TreeEnsemble)
        assert step.operation.threshold.dtype == dtype
    first = make_pipeline(StandardScaler(), Ridge()).fit(TABLE[MEASURES].to_numpy(), Y)
    model = GradientBoostingRegressor(n_estimators=3, init=first).fit(TABLE[MEASURES].to_numpy(), Y)
    for input, rounds in (("fp32", False), ("fp64", True)):
        steps = compile_estimator(model, input=input).plan.steps
        assert any(isinstance(step.operation, Float32) for step in steps) == rounds


# Edges


def edges_of(estimator: Any, columns: list[str]) -> dict[int, Edges]:
    estimator.fit(TABLE[columns], Y)
    builder = Builder(len(columns))
    return find_edges(builder.plan({"y": builder.lower(estimator, builder.input)}))


def test_edges_are_followed_through_selection_and_scaling() -> None:
    model = make_pipeline(make_column_transformer((StandardScaler(), ["area"])), boosting())
    (feature,) = found = edges_of(model, MEASURES)
    assert feature == 1
    scaler, trees = model[0].named_transformers_["standardscaler"], model[-1]._predictors
    thresholds = np.concatenate([tree.nodes["num_threshold"][tree.nodes["is_leaf"] == 0] for (tree,) in trees])
    np.testing.assert_allclose(found[1].jumps, np.unique(thresholds) * scaler.scale_ + scaler.mean_, rtol=1e-12)


def test_categories_are_keys() -> None:
    model = make_pipeline(OrdinalEncoder(), boosting())
    assert edges_of(model, ["share"])[0].keys.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.arange(100.0), [2, 3]),  # whole numbers
        (np.arange(100) / 100, [2.49, 2.5]),  # hundredths
        (np.sqrt(np.arange(100.0)), [2.4999976, 2.4999999, 2.5000022]),  # without a grid
        (np.arange(10.0), [2.4999971, 2.4999999, 2.5000028]),  # too few to tell
    ],
    ids=["whole", "cents", "any", "few"],
)
def test_rows_lie_where_the_data_could(column: np.ndarray, expected: list[float]) -> None:
    edges = {0: Edges(np.array([2.4999999]), np.zeros(0))}
    rows = rows_at_edges(edges, np.stack([column, np.ones(len(column))], axis=1))
    np.testing.assert_allclose(np.sort(rows[:, 0]), expected, atol=2e-7)
    assert (rows[:, 1] == 1).all()


# Printed lines


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["triton-regressors", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    return " ".join(capsys.readouterr().out.split())


def test_export_says_which_type_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    skops.io.dump(boosting().fit(TABLE[MEASURES], Y), "rent.skops")
    TABLE[MEASURES].to_csv("rows.csv", index=False)
    text = printed(capsys, monkeypatch, "export", "rent.skops", "--sample", "rows.csv")
    assert "FP64: rounding your rows to FP32 would move " in text
    assert "input X FP64 [rows, 2] price, area output" in text
    assert "accepted: 1e-05 or 1 ulp" in printed(capsys, monkeypatch, "describe", "model_repository/rent")
    text = printed(
        capsys, monkeypatch, "export", "rent.skops", "--name", "b", "--input", "fp32", "--sample", "rows.csv"
    )
    assert "FP32: rounding your rows to FP32 would move " in text
    assert "Output y passes: its error of " in text
    assert "comes from rounding to FP32, which was requested" in text


def test_an_error_above_the_tolerance_says_why_it_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X = TABLE[MEASURES].to_numpy() / [1e6, 1e2]
    skops.io.dump(Ridge().fit(X, X.sum(axis=1) + 1e6), "far.skops")
    text = printed(capsys, monkeypatch, "export", "far.skops")
    assert "Output y passes: its error of " in text
    assert "is within one unit in the answer's last float32 place" in text
