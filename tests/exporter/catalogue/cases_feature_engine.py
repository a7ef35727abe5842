"""Cases of feature_engine's transformers with their options, alone and in Pipelines as people write them."""

import functools
from typing import Any

import feature_engine.creation as creation
import feature_engine.datetime as dates
import feature_engine.discretisation as bins
import feature_engine.encoding as encoding
import feature_engine.imputation as imputation
import feature_engine.outliers as outliers
import feature_engine.preprocessing as preprocessing
import feature_engine.scaling as scaling
import feature_engine.selection as selection
import feature_engine.text as text
import feature_engine.transformation as functions
import numpy as np
import pandas as pd
from feature_engine.pipeline import make_pipeline as with_targets
from feature_engine.wrappers import SklearnTransformerWrapper
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_category_encoders import complete_people, likely_people, read_people
from tests.exporter.data import Data, as_frame, small

NAMES = ["a", "b", "c", "d", "e"]


@functools.cache
def positive() -> Data:
    """160 × 5 positive numbers, in a DataFrame."""
    X, y = small()
    return pd.DataFrame(2.0 + np.abs(X), columns=NAMES), y


def shares() -> Data:
    """The same between 0.2 and 0.8."""
    X, y = small()
    return pd.DataFrame(0.5 + 0.3 * np.sin(X), columns=NAMES), y


@functools.cache
def frame_with_holes() -> Data:
    X, y = small()
    holes = np.random.default_rng(5).random(X.shape) < [0.2, 0.1, 0, 0.3, 0]
    return pd.DataFrame(np.where(holes, np.nan, X), columns=NAMES), y


@functools.cache
def people_with_holes() -> Data:
    """Rows of strings and numbers, some of either missing."""
    X, y = read_people()
    X = X.copy()
    X.loc[::5, "age"] = np.nan
    return X, y


@functools.cache
def with_constants() -> Data:
    X, y = small()
    return pd.DataFrame(np.column_stack([X, X[:, 0], np.full(len(X), 7.0)]), columns=[*NAMES, "again", "same"]), y


def likely() -> Data:
    X, _ = positive()
    return X, (np.random.default_rng(0).random(len(X)) < 0.4 + 0.2 * (X["a"] > 3)).astype(int)


@functools.cache
def visits() -> Data:
    """A table of two columns of dates and one of numbers."""
    rng = np.random.default_rng(3)
    opened = pd.Timestamp("2019-12-20") + pd.to_timedelta(rng.integers(0, 5 * 10**7, 150), unit="s")
    closed = pd.Series(opened + pd.to_timedelta(rng.integers(0, 10**6, 150), unit="s"))
    X = pd.DataFrame({"opened": opened, "amount": rng.gamma(2.0, 3.0, 150), "closed": closed})
    return X, X["amount"] + 3 * X["opened"].dt.month + X["closed"].dt.dayofweek


def visits_with_holes() -> Data:
    X, y = visits()
    return X.assign(closed=X["closed"].mask(X.index % 7 == 0)), y


def visits_in_zones() -> Data:
    X, y = visits()
    return X.assign(opened=X["opened"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")), y


def angles() -> Data:
    """160 × 5 numbers between −60 and 60, in a DataFrame."""
    X, y = small()
    return pd.DataFrame(60.0 * np.sin(X), columns=NAMES), y


def rare(**options: Any) -> encoding.RareLabelEncoder:
    return encoding.RareLabelEncoder(tol=0.1, n_categories=2, **options)


def before_ridge(transformer: Any) -> Any:
    return make_pipeline(transformer, Ridge())


IMPUTERS = {
    "mean": imputation.MeanMedianImputer("mean"),
    "median": imputation.MeanMedianImputer("median", variables=["a", "b", "d"]),
    "number": imputation.ArbitraryNumberImputer(-3.0),
    "number-dict": imputation.ArbitraryNumberImputer(imputer_dict={"a": 1, "b": -2.5, "d": 7}),
    "tail": imputation.EndTailImputer("gaussian", tail="left"),
    "tail-max": imputation.EndTailImputer("max"),
    "tail-iqr": imputation.EndTailImputer("iqr", tail="right", fold=2.0),
}
for name, transformer in IMPUTERS.items():
    add(f"fe-impute-{name}", "steps", before_ridge(transformer), frame_with_holes)
for name, transformer in {
    "indicators": imputation.AddMissingIndicator(),
    "indicators-all": imputation.AddMissingIndicator(missing_only=False),
}.items():
    model = make_pipeline(transformer, imputation.MeanMedianImputer(), Ridge())
    add(f"fe-{name}", "steps", model, frame_with_holes)

FUNCTIONS = {
    "log": functions.LogTransformer(),
    "log-10": functions.LogTransformer(variables=["a", "c"], base="10"),
    "log-cp": functions.LogCpTransformer(C=3.0),
    "log-cp-10": functions.LogCpTransformer(base="10", variables=["b"]),
    "log-cp-each": functions.LogCpTransformer(C={"a": 1.0, "d": 0.5}),
    "reciprocal": functions.ReciprocalTransformer(variables=["a", "b"]),
    "power": functions.PowerTransformer(exp=0.5),
    "power-cubed": functions.PowerTransformer(exp=3, variables=["a", "e"]),
    "power-below": functions.PowerTransformer(exp=-1.5),
    "box-cox": functions.BoxCoxTransformer(),
    "yeo-johnson": functions.YeoJohnsonTransformer(variables=["b", "d"]),
    "arcsinh": functions.ArcSinhTransformer(loc=1.0, scale=2.5),
    "normalised": scaling.MeanNormalizationScaler(variables=["d", "a"]),
}
for name, transformer in FUNCTIONS.items():
    add(f"fe-{name}", "steps", before_ridge(transformer), positive)
add("fe-arcsin", "steps", before_ridge(functions.ArcsinTransformer()), shares)
trees = make_pipeline(functions.YeoJohnsonTransformer(), RandomForestRegressor(5, random_state=0))
add("fe-yeo-johnson-forest", "steps", trees, positive)

for name, transformer in {
    "gaussian": outliers.Winsorizer("gaussian", tail="both", fold=1.0),
    "iqr": outliers.Winsorizer("iqr", tail="right", variables=["a", "c"], fold=0.5),
    "quantiles": outliers.Winsorizer("quantiles", tail="left", fold=0.1),
    "indicators": outliers.Winsorizer("mad", tail="both", fold=1.0, add_indicators=True),
    "indicators-right": outliers.Winsorizer("iqr", tail="right", fold=0.2, add_indicators=True),
    "given": outliers.ArbitraryOutlierCapper({"a": 2.5, "b": 4.0}, {"a": 2.1, "d": 5.0}),
}.items():
    add(f"fe-caps-{name}", "steps", before_ridge(transformer), positive)
capped = outliers.Winsorizer("gaussian", tail="both", missing_values="ignore")
add("fe-caps-missing", "steps", make_pipeline(capped, imputation.MeanMedianImputer(), Ridge()), frame_with_holes)

for name, transformer in {
    "width": bins.EqualWidthDiscretiser(bins=5),
    "frequency": bins.EqualFrequencyDiscretiser(q=6, variables=["a", "d"]),
    "geometric": bins.GeometricWidthDiscretiser(bins=4),
    "given": bins.ArbitraryDiscretiser({"a": [-np.inf, 2.5, 3.0, np.inf], "e": [0, 2.2, 3, 99]}),
    "given-raise": bins.ArbitraryDiscretiser({"a": [0, 2.5, 3.0, 99]}, errors="raise"),
    "tree": bins.DecisionTreeDiscretiser(cv=2, random_state=0),
    "tree-rounded": bins.DecisionTreeDiscretiser(cv=2, precision=1, variables=["b"], random_state=0),
    "tree-bins": bins.DecisionTreeDiscretiser(cv=2, bin_output="bin_number", precision=None, random_state=0),
}.items():
    add(f"fe-bins-{name}", "steps", before_ridge(transformer), positive)
binned = make_pipeline(
    bins.EqualFrequencyDiscretiser(q=4, return_object=True), encoding.MeanEncoder(unseen="encode"), Ridge()
)
add("fe-bins-then-mean", "steps", binned, positive)

ENCODERS = {
    "one-hot": encoding.OneHotEncoder(),
    "one-hot-last": encoding.OneHotEncoder(drop_last=True),
    "one-hot-top": encoding.OneHotEncoder(top_categories=2, variables=["city"]),
    "one-hot-binary": encoding.OneHotEncoder(drop_last_binary=True),
    "ordinal": encoding.OrdinalEncoder("arbitrary", unseen="encode"),
    "ordinal-ordered": encoding.OrdinalEncoder(unseen="raise"),
    "count": encoding.CountFrequencyEncoder(unseen="encode"),
    "frequency": encoding.CountFrequencyEncoder("frequency", unseen="encode", variables=["job", "city"]),
    "mean": encoding.MeanEncoder(unseen="encode"),
    "mean-smooth": encoding.MeanEncoder(smoothing="auto", unseen="encode"),
    "tree": encoding.DecisionTreeEncoder(cv=2, random_state=0, unseen="encode", fill_value=1.5),
}
for name, transformer in ENCODERS.items():
    columns = {"one-hot-top": make_pipeline(transformer, encoding.MeanEncoder(unseen="encode"), Ridge())}
    add(f"fe-{name}", "steps", columns.get(name, before_ridge(transformer)), complete_people)
nan = encoding.MeanEncoder(unseen="ignore", missing_values="ignore")
add("fe-mean-missing", "steps", make_pipeline(nan, HistGradientBoostingRegressor(max_iter=10)), read_people)
labelled = [imputation.CategoricalImputer(variables=["city"]), encoding.WoEEncoder(variables=["job"], unseen="raise")]
add("fe-woe", "steps", make_pipeline(*labelled, encoding.MeanEncoder(unseen="encode"), Ridge()), likely_people)
numbers = encoding.MeanEncoder(variables=["a"], ignore_format=True, unseen="encode")
add("fe-mean-numbers", "steps", make_pipeline(bins.EqualWidthDiscretiser(bins=3), numbers, Ridge()), positive)

for name, transformer in {
    "labels": imputation.CategoricalImputer(),
    "labels-given": imputation.CategoricalImputer(fill_value="?", variables=["city"]),
    "labels-frequent": imputation.CategoricalImputer("frequent", variables=["city"]),
}.items():
    model = make_pipeline(transformer, encoding.OneHotEncoder(), Ridge())
    add(f"fe-{name}", "steps", model, read_people)
for name, steps in {
    "rare": [imputation.CategoricalImputer(), rare(), encoding.OneHotEncoder(), Ridge()],
    "rare-named": [
        imputation.CategoricalImputer(),
        rare(replace_with="few"),
        encoding.OrdinalEncoder(unseen="encode"),
        Ridge(),
    ],
    "rare-most": [imputation.CategoricalImputer(), rare(max_n_categories=2), encoding.MeanEncoder(), Ridge()],
    "rare-missing": [
        rare(missing_values="ignore"),
        imputation.CategoricalImputer(),
        encoding.MeanEncoder(unseen="encode"),
        Ridge(),
    ],
    "everything": [
        imputation.AddMissingIndicator(variables=["age", "city"]),
        imputation.MeanMedianImputer(variables=["age"]),
        imputation.CategoricalImputer(),
        rare(),
        encoding.OrdinalEncoder(),
        outliers.Winsorizer("quantiles", tail="both", variables=["income"]),
        selection.DropFeatures(["age_na"]),
        SklearnTransformerWrapper(StandardScaler(), variables=["age", "income"]),
        RandomForestRegressor(5, random_state=0),
    ],
}.items():
    add(f"fe-{name}", "steps", make_pipeline(*steps), people_with_holes if name == "everything" else read_people)

SELECTORS = {
    "drop": selection.DropFeatures(["b", "e"]),
    "drop-constant": selection.DropConstantFeatures(),
    "drop-duplicate": selection.DropDuplicateFeatures(),
    "drop-correlated": selection.DropCorrelatedFeatures(threshold=0.9),
    "smart": selection.SmartCorrelatedSelection(threshold=0.9, selection_method="variance"),
    "psi": selection.DropHighPSIFeatures(split_frac=0.5, threshold=0.2),
    "single": selection.SelectBySingleFeaturePerformance(Ridge(), scoring="r2", threshold=0.0, cv=2),
    "shuffled": selection.SelectByShuffling(Ridge(), scoring="r2", cv=2, random_state=0),
    "eliminated": selection.RecursiveFeatureElimination(Ridge(), scoring="r2", cv=2),
    "added": selection.RecursiveFeatureAddition(Ridge(), scoring="r2", cv=2),
    "target-mean": selection.SelectByTargetMeanPerformance(bins=3, scoring="r2", cv=2, threshold=-9.0, regression=True),
    "mrmr": selection.MRMR(regression=True, max_features=3),
    "probe": selection.ProbeFeatureSelection(Ridge(), scoring="r2", cv=2, random_state=0),
}
for name, transformer in SELECTORS.items():
    data = with_constants if name in ("drop-constant", "drop-duplicate", "drop-correlated", "smart") else positive
    add(f"fe-{name}", "steps", before_ridge(transformer), data)

informed = selection.SelectByInformationValue(bins=3, threshold=0.01)
add("fe-information", "steps", before_ridge(informed), likely)

for name, transformer in {
    "scaled": SklearnTransformerWrapper(StandardScaler(), variables=["a", "d"]),
    "powers": SklearnTransformerWrapper(PolynomialFeatures(2, include_bias=False), variables=["b", "c"]),
    "chosen": SklearnTransformerWrapper(SelectKBest(f_regression, k=2), variables=["a", "b", "c"]),
}.items():
    add(f"fe-wrapped-{name}", "steps", before_ridge(transformer), positive)
one_hot = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
wrapped = SklearnTransformerWrapper(one_hot, variables=["city", "job"])
add("fe-wrapped-one-hot", "steps", before_ridge(wrapped), complete_people)
add("fe-frame", "steps", before_ridge(functions.YeoJohnsonTransformer()), as_frame)

DATES: dict[str, Any] = {
    "features": dates.DatetimeFeatures(features_to_extract="all"),
    "utc": dates.DatetimeFeatures(["opened", "closed"], features_to_extract=["hour", "day_of_week"], utc=True),
    "missing": dates.DatetimeFeatures(
        missing_values="ignore", features_to_extract=["month", "semester", "weekend", "month_end", "leap_year"]
    ),
    "between": dates.DatetimeSubtraction("closed", ["opened"], output_unit="h", drop_original=True),
}
for name, transformer in DATES.items():
    data = {"utc": visits_in_zones, "features": visits}.get(name, visits_with_holes)
    model = with_targets(transformer, HistGradientBoostingRegressor(max_iter=10) if data != visits else Ridge())
    add(f"fe-dates-{name}", "steps", model, data, needs_sample=True)

CREATED: dict[str, Any] = {
    "math": creation.MathFeatures(["a", "c", "d"], ["sum", "mean", "std", "min", "max", "prod"], drop_original=True),
    "relative": creation.RelativeFeatures(["a", "b"], ["c"], ["add", "sub", "mul", "div", "floordiv", "mod", "pow"]),
    "relative-filled": creation.RelativeFeatures(["a", "b"], ["e"], ["truediv"], fill_value=-1.0),
    "cyclical": creation.CyclicalFeatures(["a", "b"], max_values={"a": 12, "b": 7.5}, drop_original=True),
    "tree": creation.DecisionTreeFeatures(["a", "b", "c"], features_to_combine=2, cv=2, precision=2),
}
for name, transformer in CREATED.items():
    add(f"fe-created-{name}", "steps", before_ridge(transformer), positive)
for method in ("haversine", "euclidean"):
    distance = creation.GeoDistanceFeatures("a", "b", "c", "d", method, output_unit="miles")
    add(f"fe-created-{method}", "steps", before_ridge(distance), angles)

known = [preprocessing.MatchVariables(missing_values="ignore"), preprocessing.MatchCategories(missing_values="ignore")]
matched = make_pipeline(*known, HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype"))
add("fe-matched", "steps", matched, read_people)
for name, transformer in {
    "similarity": encoding.StringSimilarityEncoder(top_categories=3, missing_values="impute"),
    "characters": text.TextFeatures(["job", "city"], missing_values="ignore", drop_original=True),
}.items():
    model = make_pipeline(transformer, imputation.MeanMedianImputer(), Ridge())
    add(f"fe-{name}", "steps", model, read_people, needs_sample=True)
