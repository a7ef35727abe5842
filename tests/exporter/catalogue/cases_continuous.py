"""Cases of isotonic regression and of transformers of numbers, with their options."""

import functools

import numpy as np
from scipy import special
from sklearn.compose import TransformedTargetRegressor
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    Data,
    constant_column,
    far_from_zero,
    in_float32,
    several_targets,
    small,
    targets_between,
    unit_scale,
)


@functools.cache
def rising() -> Data:
    """80 × 1, in steps of 1/8 so that float32 holds the features and some come twice.

    Two lie far out, where `rows_like` asks for them as they are, so that no row is beyond them.
    """
    rng = np.random.default_rng(7)
    x = np.round(rng.standard_normal(80) * 8) / 8
    x[5:7] = -9.0, 9.0
    return x[:, None], np.sign(x) * np.sqrt(np.abs(x)) + 0.3 * rng.standard_normal(80)


def falling() -> Data:
    X, y = rising()
    return X, -y


@functools.cache
def stepped() -> Data:
    """`small` in steps of 1/8, so that many rows lie on the edges of bins and on repeated quantiles."""
    X, y = small()
    return np.round(X * 2) / 8, y


@functools.cache
def positive() -> Data:
    X, y = unit_scale()
    return np.exp(X / 2) + 0.5, y


@functools.cache
def terms() -> Data:
    """120 × 9, counts of terms; one row and one column have none."""
    rng = np.random.default_rng(8)
    X = rng.poisson(rng.uniform(0.2, 3, 9), (120, 9)).astype(np.float64)
    X[5] = 0
    X[:, 7] = 0
    return X, X @ rng.standard_normal(9) + 0.1 * rng.standard_normal(120)


def wide_knots(data: Data, count: int) -> np.ndarray:
    """Return knots that go well beyond the data."""
    low, high = data[0].min(axis=0), data[0].max(axis=0)
    places = np.linspace(0, 1, count)[:, None] ** 1.3
    return low - (high - low) / 2 + 2 * (high - low) * places


# Isotonic regression, after a step that says how many features there are

for name, options in {
    "nan": {},
    "clip": {"out_of_bounds": "clip"},
    "raise": {"out_of_bounds": "raise"},
    "bounded": {"y_min": -0.5, "y_max": 0.75, "out_of_bounds": "clip"},
    "from-below": {"y_min": -0.5},
    "falling-fit-to-rising": {"increasing": False, "out_of_bounds": "clip"},
    "auto": {"increasing": "auto", "out_of_bounds": "clip"},
}.items():
    add(f"isotonic-{name}", "steps", make_pipeline(VarianceThreshold(), IsotonicRegression(**options)), rising)
add(
    "isotonic-auto-falling",
    "steps",
    make_pipeline(VarianceThreshold(), IsotonicRegression(increasing="auto", out_of_bounds="clip")),
    falling,
)
add(
    "isotonic-target",
    "steps",
    TransformedTargetRegressor(
        make_pipeline(VarianceThreshold(), IsotonicRegression(out_of_bounds="clip")), transformer=StandardScaler()
    ),
    rising,
)

# Row norms, thresholds, term weights

for norm in ("l1", "l2", "max"):
    add(f"normalizer-{norm}", "steps", make_pipeline(Normalizer(norm), Ridge()), small)
add("normalizer-zero-rows", "steps", make_pipeline(Normalizer(), LinearRegression()), terms)
add("normalizer-scaled", "steps", make_pipeline(StandardScaler(), Normalizer(), Ridge()), constant_column)
add("binarizer", "steps", make_pipeline(Binarizer(), Ridge()), stepped)
add("binarizer-threshold", "steps", make_pipeline(Binarizer(threshold=0.125), Ridge()), stepped)
for name, options in {
    "l2": {},
    "l1": {"norm": "l1"},
    "no-norm": {"norm": None},
    "no-idf": {"use_idf": False},
    "no-smoothing": {"smooth_idf": False},
    "sublinear": {"sublinear_tf": True},
    "sublinear-alone": {"sublinear_tf": True, "norm": None, "use_idf": False},
}.items():
    data = terms if not name.startswith("sublinear") else in_float32(terms)
    before = [FunctionTransformer(np.abs)] if data is not terms else []
    if name != "no-smoothing":  # a term that no row has would weigh infinitely much
        add(f"tfidf-{name}", "steps", make_pipeline(*before, TfidfTransformer(**options), Ridge()), data)
    else:
        selected = make_pipeline(VarianceThreshold(), TfidfTransformer(**options), Ridge())
        add(f"tfidf-{name}", "steps", selected, data)

# Powers

for standardize in (True, False):
    suffix = "" if standardize else "-not-standardized"
    for method, data in {"yeo-johnson": constant_column, "box-cox": positive}.items():
        transformer = PowerTransformer(method=method, standardize=standardize)
        add(f"power-{method}{suffix}", "steps", make_pipeline(transformer, Ridge()), data)
add("power-far", "steps", make_pipeline(StandardScaler(), PowerTransformer(), Ridge()), far_from_zero)
add("power-float32", "steps", make_pipeline(PowerTransformer(), Ridge()), in_float32(small))
add("power-box-cox-float32", "steps", make_pipeline(PowerTransformer(method="box-cox"), Ridge()), in_float32(positive))

# Quantiles

for output in ("uniform", "normal"):
    for name, options, data in (
        ("", {"n_quantiles": 40}, small),
        ("-few", {"n_quantiles": 3}, constant_column),
        ("-repeated", {"n_quantiles": 160}, stepped),
        ("-float32", {"n_quantiles": 50, "subsample": 100, "random_state": 0}, in_float32(small)),
    ):
        transformer = QuantileTransformer(output_distribution=output, **options)
        add(f"quantile-{output}{name}", "steps", make_pipeline(transformer, Ridge()), data)
add("quantile-one", "steps", make_pipeline(QuantileTransformer(n_quantiles=1), Ridge()), small)

# Bins

for encode, data in {"ordinal": constant_column, "onehot": stepped}.items():
    for strategy in ("uniform", "quantile", "kmeans"):
        bins = KBinsDiscretizer(4, encode=encode, strategy=strategy, quantile_method="averaged_inverted_cdf")
        add(f"k-bins-{encode}-{strategy}", "steps", make_pipeline(bins, Ridge()), data)
bins = KBinsDiscretizer(3, encode="onehot-dense", quantile_method="linear")
add("k-bins-onehot-dense", "steps", make_pipeline(bins, Ridge()), constant_column)
add(
    "k-bins-several-numbers",
    "steps",
    make_pipeline(KBinsDiscretizer([2, 3, 4, 5, 9], quantile_method="linear"), Ridge()),
    stepped,
)
add(
    "k-bins-scaled",
    "steps",
    make_pipeline(StandardScaler(), KBinsDiscretizer(7, strategy="uniform", dtype=np.float64), LinearRegression()),
    several_targets,
)

# Splines

for extrapolation in ("constant", "linear", "continue", "periodic"):
    splines = SplineTransformer(5, extrapolation=extrapolation)
    add(f"spline-{extrapolation}", "steps", make_pipeline(splines, Ridge()), small)
    splines = SplineTransformer(4, degree=2, extrapolation=extrapolation, knots="quantile", include_bias=False)
    add(f"spline-{extrapolation}-quantile", "steps", make_pipeline(splines, Ridge()), constant_column)
for name, options, data in (
    ("error", {"extrapolation": "error", "knots": wide_knots(small(), 6)}, small),
    ("given", {"knots": wide_knots(stepped(), 4)[1:], "degree": 2}, stepped),
    ("linear-1", {"degree": 1, "extrapolation": "linear"}, small),
    ("steps", {"degree": 0, "extrapolation": "continue"}, stepped),
    ("steps-linear", {"degree": 0, "extrapolation": "linear", "n_knots": 6}, stepped),
    ("periodic-steps", {"degree": 0, "extrapolation": "periodic"}, stepped),
    ("sparse-periodic", {"sparse_output": True, "extrapolation": "periodic", "include_bias": False}, small),
    ("fortran", {"order": "F", "degree": 5}, in_float32(small)),
    ("zeros", {"handle_missing": "zeros"}, small),
):
    add(f"spline-{name}", "steps", make_pipeline(SplineTransformer(**options), Ridge()), data)
add("spline-targets", "steps", make_pipeline(StandardScaler(), SplineTransformer(3), Ridge()), several_targets)

# Functions of features

for name, function in {
    "arctan": np.arctan,
    "cos": np.cos,
    "floor": np.floor,
    "ndtr": special.ndtr,
    "positive": np.positive,
    "sign": np.sign,
    "sin": np.sin,
}.items():
    add(f"function-{name}", "steps", make_pipeline(FunctionTransformer(function), Ridge()), small)
scaled = MinMaxScaler((0.05, 0.95), clip=True)
add("function-ndtri", "steps", make_pipeline(scaled, FunctionTransformer(special.ndtri), Ridge()), small)

# Transformed targets

for name, transformer, data in (
    ("yeo-johnson", PowerTransformer(), small),
    ("yeo-johnson-not-standardized", PowerTransformer(standardize=False), targets_between(-1, 1)),
    ("box-cox", PowerTransformer(method="box-cox"), targets_between(0.5, 4)),
    ("box-cox-not-standardized", PowerTransformer(method="box-cox", standardize=False), targets_between(0.5, 4)),
    ("quantile-uniform", QuantileTransformer(n_quantiles=30), small),
    ("quantile-normal", QuantileTransformer(n_quantiles=30, output_distribution="normal"), several_targets),
):
    regressor = TransformedTargetRegressor(Ridge(), transformer=transformer, check_inverse=False)
    add(f"target-{name}", "steps", make_pipeline(StandardScaler(), regressor), data)
