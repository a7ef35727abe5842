"""Conformalised quantile regression: what an entry answers around two quantiles, what is said of it, and refusals."""

import math

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBRegressor

from tests.exporter.data import noisy
from tests.exporter.evidence.test_intervals import check_rounded_outwards
from triton_regressors import ExportError, export, load_estimator
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.evidence.quantiles import quantile_levels
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.plan.plan import load_plan

RANDOM = np.random.default_rng(0)
FEATURES = 4
TRAINING, HELD_OUT, NEW = noisy(RANDOM, 150), noisy(RANDOM, 120), noisy(RANDOM, 1000)
OF_TWO = noisy(RANDOM, 150, 2), noisy(RANDOM, 120, 2)


def linear(quantile):
    return QuantileRegressor(quantile=quantile, alpha=0)


def three(make, data=TRAINING, quantiles=(0.05, 0.5, 0.95)):
    """Return fitted models of a lower quantile, of the median, and of an upper quantile."""
    return tuple(make(quantile).fit(*data) for quantile in quantiles)


def several(make, **options):
    """Return one model that answers three quantiles."""
    return make(n_estimators=12, max_depth=2, random_state=0, **options).fit(*TRAINING)


LINEAR = three(linear)
TREES = three(lambda quantile: GradientBoostingRegressor(loss="quantile", alpha=quantile, n_estimators=15))
HISTOGRAMS = three(lambda quantile: HistGradientBoostingRegressor(loss="quantile", quantile=quantile, max_iter=9))
TWO_TARGETS = three(lambda quantile: MultiOutputRegressor(linear(quantile)), OF_TWO[0])
XGBOOST = several(XGBRegressor, n_jobs=1, objective="reg:quantileerror", quantile_alpha=[0.9, 0.5, 0.1])
CATBOOST = several(CatBoostRegressor, thread_count=1, verbose=0, allow_writing_files=False,
                   loss_function="MultiQuantile:alpha=0.05,0.2,0.95")  # fmt: skip


def apart():
    """Return two models that are |6 + 4 · x| apart, x the first column, and cross where x < −1.5."""
    (X, y), half = TRAINING, 3 + 2 * TRAINING[0][:, 0]
    return LinearRegression().fit(X, y - half), LinearRegression().fit(X, y + half)


MODELS = {
    "linear": (LINEAR[1], (LINEAR[0], LINEAR[2]), HELD_OUT),
    "the other way round": (LINEAR[1], (LINEAR[2], LINEAR[0]), HELD_OUT),
    "trees": (TREES[1], (TREES[0], TREES[2]), HELD_OUT),
    "histograms": (HISTOGRAMS[1], (HISTOGRAMS[0], HISTOGRAMS[2]), HELD_OUT),
    "a mean": (Ridge().fit(*TRAINING), (TREES[0], TREES[2]), HELD_OUT),
    "crossing": (Ridge().fit(TRAINING[0], TRAINING[1] + 4), apart(), HELD_OUT),
    "two models": (TREES[0], (TREES[0], TREES[2]), HELD_OUT),
    "two targets": (TWO_TARGETS[1], (TWO_TARGETS[0], TWO_TARGETS[2]), OF_TWO[1]),
    "xgboost": (XGBOOST, (2, 0), HELD_OUT),
    "catboost": (make_pipeline(StandardScaler().fit(TRAINING[0]), CATBOOST), (0, 2), HELD_OUT),
}
"""A model, its quantiles, which are models or columns of its answer, and the calibration rows."""


def ends_of(model, X):
    """Return the two quantiles of a model of `MODELS`, as its parts answer them, `[rows, targets]`."""
    estimator, quantiles, _ = MODELS[model]
    if isinstance(quantiles[0], int):
        answers = np.asarray(estimator.predict(X), dtype=np.float64)
        return tuple(answers[:, [column]] for column in quantiles)
    return tuple(np.asarray(part.predict(X), dtype=np.float64).reshape(len(X), -1) for part in quantiles)


def formula(model, rows, level):
    """Return the interval of Romano, Patterson and Candès in numpy, and its quantile."""
    _, _, (X, targets) = MODELS[model]
    first, second = ends_of(model, X)
    low, high, t = np.minimum(first, second), np.maximum(first, second), targets.reshape(len(X), -1)
    q = np.sort(np.maximum(low - t, t - high), axis=0)[math.ceil((len(X) + 1) * level - 1e-9) - 1]
    first, second = ends_of(model, rows)
    lower, upper = np.minimum(first, second) - q, np.maximum(first, second) + q
    empty = lower > upper
    return np.where(empty, (first + second) / 2, lower), np.where(empty, (first + second) / 2, upper), q


def options(model, level):
    """Return what `export` is told of a model of `MODELS`."""
    _, quantiles, calibrate = MODELS[model]
    more = {} if isinstance(quantiles[0], int) else {"quantiles": quantiles}
    return {"calibrate": calibrate, "level": level, "sample": NEW[0][:50], **more}


@pytest.mark.parametrize("model", list(MODELS))
def test_an_entry_answers_the_published_interval_in_the_same_bits_in_every_batch(model, tmp_path, engine):
    level = 0.5 if model == "crossing" else 0.8
    estimator, _, _ = MODELS[model]
    entry = export(estimator, tmp_path, name="model", **options(model, level)).entry
    plan = load_plan(entry.version_directory)
    rows = NEW[0][:40].astype(plan.dtype)
    lower, upper, _ = formula(model, rows.astype(np.float64), level)
    runner = Runner(plan, engine=engine, max_rows=64)
    own = np.asarray(estimator.predict(rows.astype(np.float64))).reshape(len(rows), -1)
    for found in (
        Runner(plan, engine=kind, max_rows=64).predict(rows, tuple(plan.outputs)) for kind in ("torch", engine)
    ):
        np.testing.assert_allclose(found["y"], own, rtol=2e-6, atol=1e-5)
        np.testing.assert_allclose(found["lower"], lower, rtol=2e-6, atol=1e-5)
        np.testing.assert_allclose(found["upper"], upper, rtol=2e-6, atol=1e-5)
        assert (found["lower"] <= found["upper"]).all()
        whole = found
    for outputs in (("lower",), ("upper", "y")):
        alone = [runner.predict(rows[i : i + 1], outputs) for i in range(3)]
        for name in outputs:
            assert np.concatenate([answer[name] for answer in alone]).tobytes() == whole[name][:3].tobytes()


@pytest.mark.parametrize("model", ["linear", "trees", "histograms", "a mean"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_it_is_the_interval_of_mapie(model, level):
    """But where the quantiles cross, of which MAPIE only says so."""
    conformal = pytest.importorskip("mapie.regression")
    estimator, (low, high), calibrate = MODELS[model]
    mapie = conformal.ConformalizedQuantileRegressor([low, high, estimator], confidence_level=level, prefit=True)
    _, ends = mapie.conformalize(*calibrate).predict_interval(NEW[0], symmetric_correction=True)
    first, second = ends_of(model, calibrate[0])
    assert (first <= second).all()
    found = compile_estimator(estimator, **{**options(model, level), "sample": NEW[0]}, input="fp64").sample.expected
    first, second = ends_of(model, NEW[0])
    straight = (first <= second)[:, 0]
    assert straight.mean() > 0.95
    answers = {name: values[straight] for name, values in found.items()}
    check_rounded_outwards(answers, ends[straight, :, 0])


def test_over_many_draws_constants_the_wrong_way_round_cover_as_often_as_asked():
    """The share of new targets inside is Beta(k, n + 1 − k) with k = ⌈(n + 1) · level⌉, whatever the two are."""
    random, covered, n = np.random.default_rng(3), [], 39
    for low, high in [(2.0, -2.0), (0.5, -0.2)] * 15:
        ends = tuple(DummyRegressor(strategy="constant", constant=end).fit([[0.0]], [0.0]) for end in (low, high))
        X, y = np.zeros((n, 1)), random.normal(size=n)
        model = DummyRegressor().fit(X, y)
        found = compile_estimator(model, quantiles=ends, calibrate=(X, y), level=0.8, sample=X[:1]).sample.expected
        new = random.normal(size=4000)
        covered.append(np.mean((found["lower"][0] <= new) & (new <= found["upper"][0])))
    assert abs(np.mean(covered) - 0.8) < 4 * np.sqrt(0.8 * 0.2 / (n + 2) / len(covered))


def test_quantiles_that_cross_or_leave_no_room_have_their_ends_in_order():
    lower, upper, q = formula("crossing", NEW[0], 0.5)
    first, second = ends_of("crossing", NEW[0])
    assert q < 0
    assert (first > second).any()
    assert (lower == upper).any()
    assert (lower < upper).any()
    estimator, _, _ = MODELS["crossing"]
    plan = compile_estimator(estimator, **options("crossing", 0.5)).plan
    found = Runner(plan, engine="torch").predict(NEW[0].astype(plan.dtype), ("lower", "upper"))
    assert (found["lower"] <= found["upper"]).all()


def test_what_is_written_of_it(tmp_path):
    estimator, quantiles, (X, targets) = MODELS["crossing"]
    done = export(estimator, tmp_path, name="crossing", **options("crossing", 0.5))
    report = read_document(done.entry.version_directory).interval
    lower, upper, q = formula("crossing", X, 0.5)
    first, second = ends_of("crossing", X)
    y = estimator.predict(X)[:, None]
    assert (report.method, report.level, report.rows) == ("conformalised quantiles", 0.5, 120)
    assert report.ends == tuple(map(repr, quantiles))
    np.testing.assert_allclose(report.quantile, q)
    np.testing.assert_allclose(report.mean_width, (upper - lower).mean(axis=0))
    assert report.crossed == (first > second).sum() > 0
    assert report.y_outside == ((y < lower) | (y > upper)).sum() > 0
    low, high = np.minimum(first, second), np.maximum(first, second)
    scores = np.maximum(low - targets[:, None], targets[:, None] - high)
    of_first = np.sort(scores[:60], axis=0)[math.ceil(61 * 0.5) - 1]
    np.testing.assert_allclose(report.coverage, (scores[60:] <= of_first).mean(axis=0))
    assert done.contract.interval[0].startswith(
        f"lower and upper are the answers of the two quantile models, each moved inwards by {-q[0]:.4g}, "
    )
    assert "for 50 % of new rows by conformalised quantile regression on 120 cal" in done.contract.interval[0]
    assert done.contract.interval[1].startswith(f"The quantiles cross in {report.crossed} of these rows")
    assert done.contract.interval[2].startswith(f"In {report.y_outside} of these rows y lies outside")


@pytest.mark.parametrize(
    ("model", "level", "sentence"),
    [
        ("xgboost", 0.8, "lower and upper are the quantiles 0.1 and 0.9 in y, each moved outwards by "),
        ("catboost", 0.9, "lower and upper are the quantiles 0.05 and 0.95 in y, each moved "),
        ("catboost", 0.6, "lower and upper are the quantiles 0.2 and 0.95 in y, each moved "),
        ("two targets", 0.8, "lower and upper are the answers of the two quantile models, each moved "),
    ],
)
def test_the_quantiles_that_a_model_knows_are_chosen_by_the_level(model, level, sentence):
    compilation = compile_estimator(MODELS[model][0], **options(model, level))
    assert compilation.contract(model).interval[0].startswith(sentence)
    assert (compilation.interval.y_outside is None) == (model != "two targets")


def test_a_model_knows_its_quantiles_from_its_file_and_in_a_search(tmp_path):
    for model, suffix, quantiles in ((XGBOOST, "ubj", (0.9, 0.5, 0.1)), (CATBOOST, "cbm", (0.05, 0.2, 0.95))):
        model.save_model(tmp_path / f"model.{suffix}")
        missing = {"missing": float("nan")} if suffix == "ubj" else {}
        assert quantile_levels(load_estimator(tmp_path / f"model.{suffix}", **missing)) == pytest.approx(quantiles)
    search = GridSearchCV(XGBOOST, {"max_depth": [1]}, cv=2, scoring=lambda *_: 0.0).fit(*TRAINING)
    assert quantile_levels(search) == pytest.approx((0.9, 0.5, 0.1))
    assert quantile_levels(Ridge()) == ()


def test_columns_of_strings_go_to_every_model():
    rows = 60
    table = pd.DataFrame({"shop": RANDOM.choice(["a", "b", "c"], rows), "age": RANDOM.normal(size=rows)})
    target = table.age + (table.shop == "b") * 5 + RANDOM.normal(size=rows)
    encoded = make_column_transformer((OneHotEncoder(), ["shop"]), remainder="passthrough")
    low, middle, high = (make_pipeline(encoded, linear(quantile)).fit(table, target) for quantile in (0.1, 0.5, 0.9))
    compilation = compile_estimator(middle, quantiles=(low, high), calibrate=(table, target), level=0.8, sample=table)
    assert set(compilation.inputs.datatypes().values()) == {"FP32", "BYTES"}
    assert all(parity.within(1e-5) for parity in compilation.report.outputs.values())
    assert compilation.report.outputs.keys() == {"y", "lower", "upper"}


X, Y = HELD_OUT
NAMED = pd.DataFrame(X, columns=["a", "b", "c", "d"])
REFUSED = {
    "no rows": (LINEAR[1], {"quantiles": LINEAR[::2]}, "quantiles are the ends of a prediction interval, which needs"),
    "one model": (LINEAR[1], {"quantiles": LINEAR[0]}, "must be a pair of fitted models, .* not QuantileRegressor"),
    "no model": (
        LINEAR[1],
        {"quantiles": (0.05, 0.95)},
        "model of the lower quantile must be a fitted regressor, not 0",
    ),
    "not fitted": (LINEAR[1], {"quantiles": (LINEAR[0], Ridge())}, r"Ridge \(step 'upper'\): it is not fitted"),
    "fewer columns": (
        LINEAR[1],
        {"quantiles": (Ridge().fit(X[:, :3], Y), LINEAR[2])},
        r"Ridge \(step 'lower'\): it was fitted on 3 features and would get 4",
    ),
    "other columns": (
        Ridge().fit(NAMED, Y),
        {"quantiles": (Ridge().fit(NAMED, Y), Ridge().fit(NAMED[["a", "c", "b", "d"]], Y))},
        "The model of the upper quantile was fitted on other columns than Ridge, or in another order",
    ),
    "other targets": (
        LINEAR[1],
        {"quantiles": TWO_TARGETS[::2]},
        "y, the lower and the upper quantile must have a column for each target, and have 1, 2, 2",
    ),
    "one side": (
        several(XGBRegressor, n_jobs=1, objective="reg:quantileerror", quantile_alpha=[0.9, 0.95]),
        {},
        "needs a quantile below 0.5 and one above 0.5, and the model answers 0.9, 0.95; fit it with 0.05 and 0.95",
    ),
    "few": (LINEAR[1], {"quantiles": LINEAR[::2], "calibrate": (X[:8], Y[:8])}, "needs at least 9 calibration rows"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_refusal_says_what_is_wrong(case, tmp_path):
    estimator, given, sentence = REFUSED[case]
    given = {"calibrate": None if case == "no rows" else (X, Y), **given}
    with pytest.raises(ExportError, match=sentence):
        export(estimator, tmp_path / "models", **given)
    assert not (tmp_path / "models").exists()
