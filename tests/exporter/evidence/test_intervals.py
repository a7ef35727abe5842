"""Prediction intervals: the quantile, what the entry answers, what is written of it, and what is refused."""

import math

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.data import noisy
from triton_regressors import ExportError, export
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.calibration import conformal_quantile, fewest_rows
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.plan.plan import load_plan

RANDOM = np.random.default_rng(0)
FEATURES = 4
TRAINING, HELD_OUT, NEW = noisy(RANDOM, 150), noisy(RANDOM, 120), noisy(RANDOM, 2000)
OF_TWO = noisy(RANDOM, 150, 2), noisy(RANDOM, 120, 2)


def check_rounded_outwards(answers, ends):
    """The answered ends `[rows, 1]` are the float32 numbers around the float64 `ends` `[rows, 2]`, but for 1e-12."""
    for name, end, sign in (("lower", ends[:, 0], -1.0), ("upper", ends[:, 1], 1.0)):
        found = answers[name][:, 0]
        assert (found == found.astype(np.float32)).all()
        outwards, slack = sign * (found - end), 1e-12 * np.abs(end)
        assert (outwards >= -slack).all()
        assert (outwards <= np.spacing(np.abs(found).astype(np.float32)) + slack).all()


def own(estimator, X):
    """Return an estimator's answers and its standard deviations, or ones, as columns."""
    if isinstance(estimator, BayesianRidge | GaussianProcessRegressor):
        return [np.asarray(part).reshape(len(X), -1) for part in estimator.predict(X, return_std=True)]
    y = np.asarray(estimator.predict(X)).reshape(len(X), -1)
    return [y, np.ones_like(y)]


MODELS = {
    "absolute": (Ridge().fit(*TRAINING), HELD_OUT),
    "trees": (RandomForestRegressor(10, random_state=0).fit(*TRAINING), HELD_OUT),
    "scaled": (BayesianRidge().fit(*TRAINING), HELD_OUT),
    "two targets": (LinearRegression().fit(*OF_TWO[0]), OF_TWO[1]),
    "two targets scaled": (
        GaussianProcessRegressor(RBF(2.0) + WhiteKernel(0.5), optimizer=None, normalize_y=True).fit(*OF_TWO[0]),
        OF_TWO[1],
    ),
}


@pytest.mark.parametrize("model", list(MODELS))
def test_an_entry_answers_the_ends_in_the_same_bits_in_every_batch_and_in_order(model, tmp_path, engine):
    estimator, (X, targets) = MODELS[model]
    entry = export(estimator, tmp_path, name="model", sample=X[:20], calibrate=(X, targets), level=0.8).entry
    plan = load_plan(entry.version_directory)
    rows = NEW[0][:40].astype(plan.dtype)
    runner, plain = Runner(plan, engine=engine, max_rows=64), Runner(plan, engine="torch", max_rows=64)
    found = runner.predict(rows, tuple(plan.outputs))
    assert (found["lower"] <= found["y"]).all()
    assert (found["y"] <= found["upper"]).all()

    y, std = own(estimator, X)
    scores = np.sort(np.abs(targets.reshape(len(X), -1) - y) / std, axis=0)
    half = scores[math.ceil(0.8 * (len(X) + 1)) - 1] * own(estimator, rows.astype(float))[1]
    y = own(estimator, rows.astype(float))[0]
    for answers in (found, plain.predict(rows, tuple(plan.outputs))):
        np.testing.assert_allclose(answers["lower"], y - half, rtol=2e-6, atol=1e-5)
        np.testing.assert_allclose(answers["upper"], y + half, rtol=2e-6, atol=1e-5)
    for outputs in (("lower",), ("upper",), ("y", "lower")):
        alone = [runner.predict(rows[i : i + 1], outputs) for i in range(3)]
        for name in outputs:
            assert np.concatenate([answer[name] for answer in alone]).tobytes() == found[name][:3].tobytes()


def test_the_ends_leave_the_other_answers_as_they_are():
    estimator, calibrate = MODELS["scaled"]
    with_ends = compile_estimator(estimator, sample=NEW[0][:50], calibrate=calibrate).plan
    without = compile_estimator(estimator, sample=NEW[0][:50]).plan
    rows = NEW[0].astype(np.float32)
    both = [Runner(plan, engine="torch").predict(rows, ("y", "std")) for plan in (with_ends, without)]
    assert all(both[0][name].tobytes() == both[1][name].tobytes() for name in ("y", "std"))
    assert len(with_ends.steps) == len(without.steps) + 2
    assert [step.output for step in with_ends.steps[-2:]] == ["lower", "upper"]


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_order_holds_where_rounding_leaves_nothing_of_the_interval(level):
    """A model that is right to a part in 10¹⁵: the ends are the answers of float32, or the numbers beside them."""
    X = RANDOM.normal(size=(50, FEATURES))
    targets = X @ [1e6, 3.0, -2.0, 0.1] + 1e7
    estimator = LinearRegression().fit(X, targets)
    plan = compile_estimator(estimator, sample=X, calibrate=(X, targets), level=level).plan
    rows = RANDOM.normal(size=(4096, FEATURES)).astype(plan.dtype)
    found = Runner(plan, engine="torch").predict(rows, ("y", "lower", "upper"))
    assert (found["lower"] <= found["y"]).all()
    assert (found["y"] <= found["upper"]).all()


@pytest.mark.parametrize("model", ["absolute", "trees"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_it_is_the_interval_of_mapie(model, level):
    conformal = pytest.importorskip("mapie.regression")
    estimator, calibrate = MODELS[model]
    mapie = conformal.SplitConformalRegressor(estimator, confidence_level=level, prefit=True).conformalize(*calibrate)
    _, ends = mapie.predict_interval(NEW[0])
    compilation = compile_estimator(estimator, sample=NEW[0], calibrate=calibrate, level=level, input="fp64")
    check_rounded_outwards(compilation.sample.expected, ends[:, :, 0])


def test_over_many_draws_the_targets_lie_inside_as_often_as_the_theory_says():
    """The share of new scores below the quantile is Beta(k, n + 1 − k), k = ⌈(n + 1) · level⌉, of mean k / (n + 1)."""
    n, level, draws = 37, 0.8, 4000
    scores = np.abs(np.random.default_rng(1).normal(size=(n, draws)))
    quantile = conformal_quantile(scores, level)
    covered = np.mean(np.abs(np.random.default_rng(2).normal(size=(100, draws))) <= quantile, axis=0)
    k = math.ceil(level * (n + 1))
    deviation = np.sqrt(k * (n + 1 - k) / (n + 1) ** 2 / (n + 2) / draws)
    assert abs(covered.mean() - k / (n + 1)) < 5 * (deviation + 0.4 / np.sqrt(100 * draws))
    assert level <= k / (n + 1) <= level + 1 / (n + 1)


@pytest.mark.parametrize(("level", "fewest"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.55, 2)])
def test_a_level_takes_so_many_rows_and_is_what_was_written(level, fewest):
    """0.9 as a float64 lies above nine tenths; nine rows are enough all the same."""
    scores = np.arange(1.0, fewest + 1)[:, None]
    assert fewest_rows(level) == fewest
    assert conformal_quantile(scores, level) == [fewest]
    assert conformal_quantile(scores[:-1], level) is None


def test_what_is_written_of_it(tmp_path):
    estimator, (X, targets) = MODELS["two targets scaled"]
    done = export(estimator, tmp_path, name="two", sample=X[:20], calibrate=(X, targets))
    report = read_document(done.entry.version_directory).interval
    y, std = own(estimator, X)
    scores = np.abs(targets - y) / std
    of_first = np.sort(scores[:60], axis=0)[math.ceil(61 * 0.9) - 1]
    assert (report.method, report.level, report.rows, report.held_out_rows) == (
        "residuals in units of std",
        0.9,
        120,
        60,
    )
    np.testing.assert_allclose(report.quantile, np.sort(scores, axis=0)[math.ceil(121 * 0.9) - 1])
    np.testing.assert_allclose(report.mean_width, 2 * np.array(report.quantile) * std.mean(axis=0))
    np.testing.assert_allclose(report.coverage, (scores[60:] <= of_first).mean(axis=0))
    assert done.compilation.golden().outputs.keys() == {"y", "std", "lower", "upper"}
    text = " ".join(done.contract.text().split())
    assert "Prediction interval lower and upper are y ± " in text
    assert "120 calibration rows, each target by itself." in text
    assert "Of the last 60 of these rows, the interval that the first 60 give covers " in text
    assert "lower and upper are y ± " in done._repr_html_()
    with pytest.raises(ExportError, match="a new version must keep the interface"):
        export(estimator, tmp_path, name="two", sample=X[:20])


def test_too_few_rows_to_hold_some_out_are_said_to_be(tmp_path):
    estimator, (X, targets) = MODELS["absolute"]
    contract = export(estimator, tmp_path, name="few", calibrate=(X[:9], targets[:9])).contract
    assert contract.interval[1].startswith("These rows are too few to hold some out")


def test_rows_in_fp32_are_calibrated_as_fp32_where_that_is_asked_for():
    """Far from zero FP32 moves the answers, and with them the residuals."""
    X = 2.0**24 + RANDOM.integers(0, 400, size=(300, 1))
    targets = X[:, 0] - 2.0**24 + RANDOM.normal(size=300) * 0.01
    estimator = RandomForestRegressor(1, bootstrap=False).fit(X[:200], targets[:200])
    calibrate = X[200:], targets[200:]
    widths = {
        wanted: compile_estimator(estimator, sample=X, calibrate=calibrate, input=wanted).interval.mean_width[0]
        for wanted in ("fp32", "fp64")
    }
    rounded = np.abs(targets[200:] - estimator.predict(X[200:].astype(np.float32).astype(np.float64)))
    assert widths["fp32"] == pytest.approx(2 * np.sort(rounded)[math.ceil(101 * 0.9) - 1])
    given = np.abs(targets[200:] - estimator.predict(X[200:]))
    assert widths["fp64"] == pytest.approx(2 * np.sort(given)[math.ceil(101 * 0.9) - 1])


X, Y = HELD_OUT
REFUSED = {
    "no pair": (X, {}, r"calibrate must be a pair \(X, y\), not ndarray"),
    "columns": ((X[:, :3], Y), {}, r"The calibration table must be \[rows, 4\] with at least one row, not \[120, 3\]"),
    "length": ((X, Y[:-1]), {}, r"targets must be \[120\] or \[120, 1\], to fit the rows and the model, not \[119\]"),
    "width": ((X, np.stack([Y, Y], 1)), {}, r"The calibration targets must be \[120\] or \[120, 1\]"),
    "words": ((X, np.array(["a"] * 120)), {}, "The calibration targets must be numbers: could not convert"),
    "holes": (
        (X, np.where(np.arange(120) == 7, np.nan, Y)),
        {},
        "must be finite; that of row 7 is nan",
    ),
    "beyond float32": (
        (X, np.where(np.arange(120) == 7, 1e39, Y)),
        {},
        r"targets must be within float32's range, ±3.403e\+38, .*; that of row 7 is 1e\+39",
    ),
    "rows with holes": (
        (X * np.where(np.arange(120) == 7, np.nan, 1)[:, None], Y),
        {},
        "Cannot calibrate Ridge: it refu",
    ),
    "infinity": ((np.where(X > 2, np.inf, X), Y), {}, "The calibration table's column 0 holds infinity"),
    "few": ((X[:18], Y[:18]), {"level": 0.95}, "a level of 0.95 needs at least 19 calibration rows, not 18"),
    "level of 1": ((X, Y), {"level": 1.0}, "level must lie between 0 and 1, such as 0.9, not 1.0"),
    "level in percent": ((X, Y), {"level": 90}, "level must lie between 0 and 1, such as 0.9, not 90"),
    "level alone": (None, {"level": 0.9}, "level is for a prediction interval, .* give calibrate"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_refusal_says_what_is_wrong(case, tmp_path):
    calibrate, options, sentence = REFUSED[case]
    with pytest.raises(ExportError, match=sentence):
        export(MODELS["absolute"][0], tmp_path / "models", calibrate=calibrate, **options)
    assert not (tmp_path / "models").exists()


def test_a_target_beyond_float32_is_named_with_its_column():
    X, y = OF_TWO[1]
    y = y.copy()
    y[5, 1] = -1e39
    with pytest.raises(ExportError, match=r"within float32's range, .*; that of row 5, target 1, is -1e\+39"):
        compile_estimator(MODELS["two targets"][0], calibrate=(X, y))


def test_a_residual_in_units_of_no_deviation_is_refused():
    through_zero = GaussianProcessRegressor(DotProduct(1e-200), alpha=0.1, optimizer=None).fit(*TRAINING)
    with pytest.raises(ExportError, match="its std is 0 in row 7 of the calibration rows"):
        compile_estimator(through_zero, calibrate=(X * (np.arange(120) != 7)[:, None], Y))


def test_rows_without_a_finite_answer_are_refused():
    estimator = PoissonRegressor().fit(TRAINING[0], TRAINING[1].clip(1))
    far = X * np.where(np.isin(np.arange(120), [5, 8]), 1e7, 1)[:, None]
    with pytest.raises(ExportError, match=r"no finite number for [12] of the calibration rows, row [58] first"):
        compile_estimator(estimator, calibrate=(far, Y))


def tied(random, rows, spread=0.1):
    """Return rows and targets of which a stump is off by one and the same number: prices in steps of 0.2 or so."""
    X = random.integers(0, 2, (rows, 1)).astype(float)
    return X, X[:, 0] + random.choice([-spread, spread], rows)


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.7, 1.1])
def test_equal_residuals_are_covered_as_often_as_the_export_says(spread, tmp_path, engine):
    """Ends that are rounded to nearest leave out one side, or both: every target lies on an end."""
    random = np.random.default_rng(5)
    X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([-spread, spread, 1 - spread, 1 + spread])
    estimator = DecisionTreeRegressor().fit(X, y)
    calibrate, (new, targets) = tied(random, 400, spread), tied(random, 500, spread)
    done = export(estimator, tmp_path, name="tied", sample=new[:20], calibrate=calibrate)
    plan = load_plan(done.entry.version_directory)
    found = Runner(plan, engine=engine).predict(new.astype(plan.dtype), ("lower", "upper"))
    assert done.compilation.interval.coverage == (1.0,)
    for numbers in (targets, targets.astype(np.float32)):
        assert (found["lower"][:, 0] <= numbers).all()
        assert (numbers <= found["upper"][:, 0]).all()
