"""Transformers of numbers as scikit-learn computes them: on every edge, between the edges and beyond them."""

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
)

from tests.exporter.catalogue.cases_continuous import positive, rising, stepped
from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.pieces import first_where
from triton_regressors.kernels.engine.runner import Runner

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # of constant columns, of NaN


def planned(transformer: Any, rows: np.ndarray, inverse: bool = False) -> np.ndarray:
    """Return what the lowered transformer makes of float64 rows."""
    builder = Builder(rows.shape[1])
    value = (builder.lower_inverse if inverse else builder.lower)(transformer, builder.input)
    return run_plan(builder.plan({"y": value}), rows)["y"]


def own(transformer: Any, rows: np.ndarray, inverse: bool = False) -> np.ndarray:
    """Return what scikit-learn makes of them."""
    made = (transformer.inverse_transform if inverse else transformer.transform)(rows.copy())
    dense: np.ndarray = np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
    return dense.reshape(len(rows), -1)


def columns() -> np.ndarray:
    """60 × 5: steps, fractions, a constant and zeros; float32 holds them all."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5)) * [1, 3, 50, 0, 0] + [0, 1, 30, 7.25, 0]
    X[:, 1] = np.round(X[:, 1])
    return X.astype(np.float32).astype(np.float64)


def around(X: np.ndarray, *edges: np.ndarray) -> np.ndarray:
    """Return rows at, near, between and beyond the given ones and these edges, `[edges, width]`."""
    rng = np.random.default_rng(1)
    spread = X.std(axis=0) + 1
    rows = [X, X + 0.3 * spread * rng.standard_normal(X.shape)]
    for edge in (X.min(axis=0)[None], X.max(axis=0)[None], *edges):
        held = np.where(np.isfinite(edge), edge, 0.0)
        rows += [held, np.nextafter(held, np.inf), np.nextafter(held, -np.inf), held + 1e-8, held - 1e-8]
        rows += [held + spread * distance for distance in (-2, -0.5, -1e-7, 1e-7, 0.5, 2)]
    return np.concatenate(rows)


def assert_alike(transformer: Any, rows: np.ndarray, inverse: bool = False, allowed: float = 1e-12) -> None:
    found, expected = planned(transformer, rows, inverse), own(transformer, rows, inverse)
    np.testing.assert_allclose(found, expected, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [1, 2, 5, 60])
@pytest.mark.parametrize("output", ["uniform", "normal"])
def test_quantiles(output: str, count: int, dtype: type) -> None:
    X = columns()
    transformer = QuantileTransformer(n_quantiles=count, output_distribution=output).fit(X.astype(dtype))
    rows = around(X, transformer.quantiles_.astype(np.float64))
    rows[3, 0] = rows[4, 3] = np.nan
    # Near one, a unit in the last place of a share moves its normal quantile by up to 2e-10.
    assert_alike(transformer, rows, allowed=1e-9 if output == "normal" else 1e-12)
    shares = np.random.default_rng(2).standard_normal((90, X.shape[1]))
    shares[:9] = np.array([0.0, 1.0, 0.5, -9.0, 9.0, -5.2, 5.2, -5.199337582, np.nan])[:, None]
    assert_alike(transformer, shares, inverse=True, allowed=1e-11)


@pytest.mark.parametrize("large", [1e-9, 1.0, 1e8, 1e20])
def test_normal_quantiles_of_any_magnitude_end_where_scikit_learns_do(large: float) -> None:
    X = np.array([-1.0, -1e-7, 0.0, 1e-7, 1.0])[:, None] * large
    transformer = QuantileTransformer(n_quantiles=5, output_distribution="normal").fit(X)
    ends = [x + sign * 1e-7 for x in X[:, 0] for sign in (-1, 1)]
    near = [np.nextafter(np.array(ends), side) for side in (-np.inf, np.inf)]
    rows = np.concatenate([ends, *near, X[:, 0]])[:, None]
    assert_alike(transformer, rows, allowed=1e-9)


@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
@pytest.mark.parametrize("strategy", ["uniform", "quantile", "kmeans"])
@pytest.mark.parametrize("encode", ["ordinal", "onehot", "onehot-dense"])
def test_bins(encode: str, strategy: str, dtype: Any) -> None:
    X = columns()
    bins = KBinsDiscretizer(4, encode=encode, strategy=strategy, dtype=dtype, quantile_method="linear").fit(X)
    edges = np.array([np.resize(edges, 5) for edges in bins.bin_edges_]).T.astype(np.float64)
    rows = around(X, *edges[:, None], np.where(np.isfinite(edges), edges, 0) * (1 + 1e-9))
    np.testing.assert_array_equal(planned(bins, rows), own(bins, rows))


@pytest.mark.parametrize("threshold", [0, -1.5, 7.25, 1e-300])
def test_thresholds(threshold: float) -> None:
    X = columns()
    rows = around(X, np.full((1, 5), threshold), np.zeros((1, 5)))
    binarizer = Binarizer(threshold=threshold).fit(X)
    np.testing.assert_array_equal(planned(binarizer, rows), own(binarizer, rows))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_row_norms(norm: str) -> None:
    X = columns()
    short = [np.full((1, 5), length) for length in (0.0, 1e-16, 2e-15, 1e-14, 1e-300, 1e30)]
    assert_alike(Normalizer(norm).fit(X), np.concatenate([X, *short]), allowed=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_powers(method: str, standardize: bool, dtype: type) -> None:
    X = columns() if method == "yeo-johnson" else positive()[0].astype(np.float32).astype(np.float64)
    transformer = PowerTransformer(method=method, standardize=standardize).fit(X.astype(dtype))
    rows = around(X)
    rows = rows if method == "yeo-johnson" else np.abs(rows) + 1e-3
    rows[3, 0] = np.nan
    assert_alike(transformer, rows, allowed=1e-11)
    back = 1.5 * np.random.default_rng(3).standard_normal((80, X.shape[1]))
    # With powers in float32 scikit-learn rounds 1 / λ to float32 too.
    assert_alike(transformer, back, inverse=True, allowed=1e-11 if dtype is np.float64 else 1e-6)


def test_powers_of_tiny_numbers() -> None:
    X = columns()[:, :3] * 1e-9
    assert_alike(PowerTransformer().fit(X), np.concatenate([X, 0.9 * X, -X]), allowed=1e-9)


def test_what_box_and_cox_have_no_answer_for_is_nan() -> None:
    X = positive()[0]
    transformer = PowerTransformer(method="box-cox").fit(X)
    rows = X[:6].copy()
    rows[0, 0], rows[1, 2], rows[2, 4] = 0.0, -1.0, 1e-30
    found = planned(transformer, rows)
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 0], [1, 2]]
    with pytest.raises(ValueError, match="strictly positive"):
        transformer.transform(rows)
    np.testing.assert_allclose(found[2:], own(transformer, rows[2:]), rtol=1e-12)


EXTRAPOLATIONS = ("constant", "linear", "continue", "periodic")


@pytest.mark.parametrize(("extrapolation", "degree"), list(itertools.product(EXTRAPOLATIONS, range(6))))
@pytest.mark.parametrize("knots", ["uniform", "quantile"])
def test_splines(extrapolation: str, degree: int, knots: str) -> None:
    X = columns()
    options = {"extrapolation": extrapolation, "degree": degree, "knots": knots, "handle_missing": "zeros"}
    for count, bias, sparse in ((7, True, False), (7, True, True), (8, False, False)):
        if degree == 0 and (extrapolation, sparse) in (("constant", False), ("periodic", True)):
            continue  # scikit-learn itself fails
        splines = SplineTransformer(count, include_bias=bias, sparse_output=sparse, **options).fit(X)
        rows = around(X, np.array([np.resize(spline.t, 8) for spline in splines.bsplines_]).T)
        # scikit-learn replaces NaN in sparse output by 0 for the first column alone.
        rows[5, 0] = rows[9, 0 if sparse and extrapolation not in ("constant", "linear") else 2] = np.nan
        assert_alike(splines, rows, allowed=1e-11)


@pytest.mark.parametrize("extrapolation", ["constant", "linear"])
@pytest.mark.parametrize("degree", [1, 2])
def test_splines_between_two_knots(extrapolation: str, degree: int) -> None:
    X = columns()[:, :3]
    assert_alike(SplineTransformer(2, degree=degree, extrapolation=extrapolation).fit(X), around(X), allowed=1e-12)


def test_constant_splines_of_degree_0_are_nan_where_scikit_learn_fails() -> None:
    X = columns()[:, :2]
    splines = SplineTransformer(4, degree=0).fit(X)
    rows = around(X)
    above = rows > X.max(axis=0)
    found = planned(splines, rows)
    assert np.array_equal(np.isnan(found), np.repeat(above, 3, axis=1))
    with pytest.raises(ValueError, match="shape mismatch"):
        splines.transform(rows)
    within = ~above.any(axis=1)
    np.testing.assert_array_equal(found[within], own(splines, rows[within]))


@pytest.mark.parametrize("missing", ["error", "zeros"])
def test_splines_beyond_their_knots_are_nan_where_scikit_learn_refuses_them(missing: str) -> None:
    X = columns()[:, :2]
    splines = SplineTransformer(4, extrapolation="error", handle_missing=missing).fit(X)
    rows = around(X)
    rows[0, 0] = np.nan if missing == "zeros" else rows[0, 0]
    beyond = (rows < X.min(axis=0)) | (rows > X.max(axis=0))
    found = planned(splines, rows)
    assert np.array_equal(np.isnan(found), np.repeat(beyond, 6, axis=1))
    within = ~beyond.any(axis=1)
    np.testing.assert_allclose(found[within], own(splines, rows[within]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("increasing", [True, False, "auto"])
@pytest.mark.parametrize("bounds", ["nan", "clip"])
@pytest.mark.parametrize("limits", [{}, {"y_min": -0.5, "y_max": 0.5}], ids=["free", "limited"])
def test_isotonic(increasing: Any, bounds: str, limits: dict[str, float]) -> None:
    X, y = rising()
    for rows in (X, X[:2], X[:1], np.sort(X, axis=0)[40:60]):
        regressor = IsotonicRegression(increasing=increasing, out_of_bounds=bounds, **limits).fit(rows, y[: len(rows)])
        asked = around(rows, regressor.X_thresholds_[:, None])
        np.testing.assert_allclose(planned(regressor, asked), own(regressor, asked), rtol=1e-13, atol=1e-14)


def test_isotonic_alone_answers_nan_out_of_bounds() -> None:
    X, y = rising()
    for bounds in ("nan", "raise"):
        regressor = IsotonicRegression(out_of_bounds=bounds).fit(X, y)
        plan = compile_estimator(regressor, sample=X).plan
        found = Runner(plan, engine="torch").predict(np.array([[-9.0], [9.0], [9.001], [-99.0]], np.float32))["y"]
        assert np.array_equal(np.isnan(found[:, 0]), [False, False, True, True])


def test_nan_in_splines_that_take_it() -> None:
    X, y = stepped()
    model = make_pipeline(SplineTransformer(handle_missing="zeros"), Ridge()).fit(X, y)
    assert list(compile_estimator(model, sample=X).nan_columns) == list(range(5))
    model = make_pipeline(SplineTransformer(), Ridge()).fit(X, y)
    assert list(compile_estimator(model, sample=X).nan_columns) == []


def test_whether_a_number_is_there() -> None:
    X, y = stepped()
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = make_pipeline(FunctionTransformer(np.isnan), Ridge()).fit(X, y)
    compilation = compile_estimator(model, sample=X)
    assert list(compilation.nan_columns) == list(range(5))
    found = run_plan(compilation.plan, X)["y"][:, 0]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)


@pytest.mark.parametrize("number", [0.0, 1.0, -1.0, 1e-300, -1e-7, 3.3, 1e20, -1e308])
def test_first_where_finds_the_very_number(number: float) -> None:
    found = first_where(lambda x: x >= np.array([number, -number]), 2)
    assert found.tolist() == [number, -number]
    above = first_where(lambda x: x > np.array([number]), 1)
    assert above.tolist() == [np.nextafter(number, np.inf)]
