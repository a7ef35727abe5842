"""Cases of glum's regressors: families, links, paths of penalties, and columns with names."""

from glum import CloglogLink, GeneralizedLinearRegressor, GeneralizedLinearRegressorCV, TweedieLink
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_text import NUMERIC, TEXT, people
from tests.exporter.data import Data, as_frame, counts, diabetes, positive_counts, small, targets_between

LINKS = {
    "normal": (GeneralizedLinearRegressor(alpha=0.1), small),
    "frame": (GeneralizedLinearRegressor(alpha=0.01), as_frame),
    "poisson": (GeneralizedLinearRegressor(family="poisson", alpha=0.1, l1_ratio=0.5), counts),
    "gamma": (GeneralizedLinearRegressor(family="gamma", link="log", alpha=0.1), positive_counts),
    "tweedie": (GeneralizedLinearRegressor(family="tweedie", alpha=0.1), positive_counts),
    "power": (GeneralizedLinearRegressor(family="gamma", link=TweedieLink(1.5), alpha=1.0), positive_counts),
    "binomial": (GeneralizedLinearRegressor(family="binomial", alpha=0.01), targets_between(0.05, 0.95)),
    "cloglog": (
        GeneralizedLinearRegressor(family="binomial", link=CloglogLink(), alpha=0.01),
        targets_between(0.05, 0.95),
    ),
    "path": (GeneralizedLinearRegressor(alpha_search=True, n_alphas=4), diabetes),
    "cv": (GeneralizedLinearRegressorCV(n_alphas=4, cv=3, l1_ratio=[0.2, 1.0]), diabetes),
}
for name, (estimator, data) in LINKS.items():
    add(f"glum-{name}", "steps", estimator, data)

encoded = ColumnTransformer([("num", "passthrough", NUMERIC), ("text", OneHotEncoder(handle_unknown="ignore"), TEXT)])
add("glum-strings", "steps", make_pipeline(encoded, GeneralizedLinearRegressor(alpha=0.01)), people)


def of_categories() -> Data:
    """`people` with pandas' categories, some of them missing."""
    X, y = people(None)
    return X[["city", "age", "job", "income"]].astype({"city": "category", "job": "category"}), y


for name, options in {
    "convert": {"cat_missing_method": "convert", "drop_first": True},
    "zero": {"cat_missing_method": "zero", "family": "gamma", "link": "log"},
}.items():
    add(f"glum-categories-{name}", "steps", GeneralizedLinearRegressor(alpha=0.01, **options), of_categories)
