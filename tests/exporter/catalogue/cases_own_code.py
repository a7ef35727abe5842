"""Cases of code of the user's own, which is traced: functions of arrays and tables, classes, strings and dates."""

from typing import Any

from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data
from tests.exporter.tracing import own_code, own_code_polars

FOREST = RandomForestRegressor(8, max_depth=5, random_state=0)
BOOSTER = HistGradientBoostingRegressor(max_iter=8, random_state=0)

ARRAYS: dict[str, Any] = {
    "clip-log": make_pipeline(FunctionTransformer(own_code.log_of_clipped), Ridge()),
    "products": make_pipeline(FunctionTransformer(own_code.pairwise_products), StandardScaler(), Ridge()),
    "ratios": make_pipeline(FunctionTransformer(own_code.ratios), FOREST),
    "bands": make_pipeline(FunctionTransformer(own_code.bands), DecisionTreeRegressor(max_depth=4, random_state=0)),
    "branches": make_pipeline(FunctionTransformer(own_code.graded), Ridge()),
    "angles": make_pipeline(FunctionTransformer(own_code.angles), Ridge()),
    "row-statistics": make_pipeline(FunctionTransformer(own_code.row_statistics), Ridge()),
    "keywords": make_pipeline(FunctionTransformer(own_code.powers, kw_args={"degree": 3}), StandardScaler(), Ridge()),
    "class": make_pipeline(own_code.CombinedAttributes(), FOREST),
    "class-box-cox": make_pipeline(own_code.BoxCox(), BOOSTER),
    "class-with-models": make_pipeline(own_code.ScaledPolynomials(), Ridge()),
    "regressor": own_code.LogTarget(),
    "regressor-blend": own_code.Blend(),
    "regressor-residuals": own_code.ResidualForest(),
    "regressor-regimes": own_code.TwoRegimes(),
    "regressor-super": own_code.CappedForest(6, max_depth=4, random_state=0),
    "targets": TransformedTargetRegressor(Ridge(), func=own_code.to_logs, inverse_func=own_code.from_logs),
}

HOLES: dict[str, Any] = {
    "indicators": make_pipeline(FunctionTransformer(own_code.zeros_and_indicators), Ridge()),
    "indicators-boosted": make_pipeline(FunctionTransformer(own_code.zeros_and_indicators), BOOSTER),
}

TABLES: dict[str, tuple[Any, tuple[str, ...]]] = {  # the function, and the strings that it returns
    "areas": (own_code.areas, ()),
    "scores": (own_code.quality_scores, ()),
    "calendar": (own_code.calendar, ()),
    "holidays": (own_code.holidays, ()),
    "rules": (own_code.rules_by_row, ()),
    "masks": (own_code.corrected, ()),
    "distance": (own_code.distance_to_centre, ()),
    "bins": (own_code.age_bands, ("band",)),
    "tidy": (own_code.tidy_strings, ("district",)),
    "titles": (own_code.titles, ("title",)),
    "joined": (own_code.sellers_and_districts, ("who",)),
    "seasons": (own_code.seasons, ("season",)),
    "zones": (own_code.local_hours, ()),
    "polars": (own_code_polars.house_numbers, ()),
    "polars-calendar": (own_code_polars.house_calendar, ()),
    "polars-words": (own_code_polars.house_words, ("district", "size")),
}


def houses() -> Data:
    X, y = own_code.houses()
    return X, y


def houses_in_zones() -> Data:
    X, y = own_code.houses()
    sold = X["sold"].dt.tz_localize("UTC")
    return X.assign(sold=sold.dt.tz_convert("Europe/Berlin"), listed=X["listed"].dt.as_unit("s")), y


def in_front(function: Any, strings: tuple[str, ...], last: Any) -> Any:
    """Return a model of a function, an encoder of the strings that it returns, and a regressor."""
    steps: list[Any] = [FunctionTransformer(function)]
    if strings:
        encoder = OneHotEncoder(handle_unknown="ignore")
        steps.append(ColumnTransformer([("hot", encoder, list(strings))], remainder="passthrough"))
    return make_pipeline(*steps, last)


for name, estimator in ARRAYS.items():
    unsized = name.startswith(("class", "regressor")) and not hasattr(estimator, "n_estimators")
    add(f"own-{name}", "steps", estimator, own_code.matrix, needs_sample=unsized)
for name, estimator in HOLES.items():
    add(f"own-{name}", "steps", estimator, own_code.holes)
for name, (function, strings) in TABLES.items():
    data = houses_in_zones if name == "zones" else houses
    add(f"own-table-{name}", "steps", in_front(function, strings, Ridge()), data, needs_sample=True)
add("own-table-polars-forest", "steps", in_front(own_code_polars.house_numbers, (), BOOSTER), houses, needs_sample=True)
add("own-table-calendar-forest", "steps", in_front(own_code.calendar, (), FOREST), houses, needs_sample=True)
add(
    "own-table-classes",
    "steps",
    make_pipeline(own_code.FrequencyEncoder(), FOREST),
    houses,
    needs_sample=True,
)
