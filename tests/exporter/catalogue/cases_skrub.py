"""Cases of skrub's transformers: tables of numbers, strings and dates, as skrub's users hold them.

Unknown strings, and strings that stand for missing values, are asked in test_skrub.py.
"""

import functools
from typing import Any

import numpy as np
import pandas as pd
import skrub
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from skrub import selectors

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_category_encoders import pandas_people, read_people
from tests.exporter.data import Data, small

FOREST = RandomForestRegressor(5, max_depth=5, random_state=0)
BOOSTER = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype", random_state=0)
ROWS = 200


@functools.cache
def flats() -> Data:
    """A table with missing values in each kind of column, strings that stand for them, and a column without values."""
    rng = np.random.default_rng(0)
    area, rooms = rng.gamma(9, 11, ROWS), rng.integers(1, 7, ROWS)
    city = rng.choice(["Bonn", "Köln", "Ulm"], ROWS)
    street = rng.choice([f"{name} {kind}" for name in ("Oak", "Elm", "Mill", "Lake") for kind in STREETS], ROWS)
    sold = pd.Series(pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 6 * 10**7, ROWS), unit="s"))
    listed = pd.Series(pd.Timestamp("2019-02-03") + pd.to_timedelta(rng.integers(0, 700, ROWS), unit="D"))
    y = 3 * area + 20 * rooms + 60 * (city == "Bonn") + 15 * sold.dt.month + rng.normal(0, 5, ROWS)
    table = pd.DataFrame(
        {
            "area": np.where(rng.random(ROWS) < 0.1, np.nan, area),
            "rooms": rooms,
            "city": pd.Series(city).mask(rng.random(ROWS) < 0.1, "N/A"),
            "street": pd.Series(street).mask(rng.random(ROWS) < 0.05),
            "sold": sold.mask(rng.random(ROWS) < 0.05),
            "listed": listed,
            "lift": rng.random(ROWS) < 0.3,
            "note": pd.Series([None] * ROWS, dtype="str"),
        }
    )
    return table, y.to_numpy()


STREETS = ("Street", "Road", "Lane", "Way", "Avenue", "Court", "Drive", "Park", "Row", "Place", "Walk")


def flats_in_zones() -> Data:
    X, y = flats()
    return X.assign(sold=X["sold"].dt.tz_localize("UTC").dt.tz_convert("America/New_York")), y


def dates_of_flats() -> Data:
    X, y = flats()
    return X[["listed", "sold"]], y


def numbers_of_flats() -> Data:
    X, y = flats()
    return X[["area"]].assign(rooms=X["rooms"].astype(float), sum=X["area"] + X["rooms"]).fillna(50.0), y


OWN_ERROR = 2e-6
"""scikit-learn adds in float32 what skrub's transformers make, in an order that depends on the processor.

Each of some 60 sums near the largest answer, 847, may lose 2.6e-7 standard deviations.
"""


def to_linear(vectorizer: Any) -> Any:
    """Return a model that imputes and scales what a vectorizer makes."""
    return make_pipeline(vectorizer, SimpleImputer(add_indicator=True), StandardScaler(), Ridge())


add("skrub-tabular", "steps", skrub.tabular_pipeline(Ridge()), flats, needs_sample=True, own_error=OWN_ERROR)
add("skrub-tabular-boosted", "steps", skrub.tabular_pipeline(BOOSTER), flats, needs_sample=True)
add("skrub-tabular-forest", "steps", skrub.tabular_pipeline(FOREST), flats, needs_sample=True)
target = to_linear(skrub.TableVectorizer(high_cardinality=TargetEncoder(random_state=0)))
add("skrub-target", "steps", target, flats, own_error=OWN_ERROR)
add("skrub-zone", "steps", make_pipeline(skrub.TableVectorizer(high_cardinality="drop"), BOOSTER), flats_in_zones)

OPTIONS: dict[str, Any] = {
    "gap": skrub.TableVectorizer(high_cardinality=skrub.GapEncoder(n_components=3, random_state=0)),
    "minhash": skrub.TableVectorizer(high_cardinality=skrub.MinHashEncoder(n_components=3)),
    "hashing": skrub.TableVectorizer(high_cardinality=skrub.StringEncoder(3, "hashing", random_state=0)),
    "words": skrub.TableVectorizer(high_cardinality=skrub.StringEncoder(40, analyzer="word", ngram_range=(1, 1))),
    "ordinal": skrub.TableVectorizer(
        cardinality_threshold=0,
        high_cardinality=OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        datetime=skrub.DatetimeEncoder("minute", add_weekday=True, add_day_of_year=True, periodic_encoding="circular"),
        numeric=StandardScaler(),
    ),
    "specific": skrub.TableVectorizer(
        numeric=skrub.SquashingScaler(),
        datetime="drop",
        drop_if_constant=True,
        high_cardinality="drop",
        specific_transformers=[(skrub.CatEncoder(), ["city"]), ("drop", ["note"])],
        null_strings="Ulm",
    ),
}
for name, vectorizer in OPTIONS.items():
    model = to_linear(vectorizer)
    add(f"skrub-options-{name}", "steps", model, flats, needs_sample=True, own_error=OWN_ERROR)
bins = KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf")
binned = make_pipeline(
    skrub.TableVectorizer(high_cardinality=TargetEncoder(random_state=0)), SimpleImputer(), bins, FOREST
)
add("skrub-options-bins", "steps", binned, flats)

hot = OneHotEncoder(handle_unknown="ignore")
columns = ColumnTransformer([("hot", hot, ["city"]), ("kept", "passthrough", ["area", "rooms"])])
add("skrub-cleaner", "steps", make_pipeline(skrub.Cleaner(), columns, BOOSTER), flats)
similar = ColumnTransformer([("similar", skrub.SimilarityEncoder(), ["job", "city"])], remainder="passthrough")
add(
    "skrub-options-similarity",
    "steps",
    make_pipeline(similar, SimpleImputer(), Ridge()),
    read_people,
    needs_sample=True,
)
applied = [
    skrub.DropCols(["sold", "note", "street"]),
    skrub.ApplyToCols(OrdinalEncoder(), selectors.string()),
    skrub.ApplyToCols(skrub.DatetimeEncoder("day"), ["listed"], keep_original=False),
    skrub.ApplyToCols(StandardScaler(), ["rooms", "area"], keep_original=True, rename_columns="{}_scaled"),
    skrub.SelectCols(selectors.all() - "area"),
    BOOSTER,
]
add("skrub-applied", "steps", make_pipeline(*applied), flats, needs_sample=True)
parts = skrub.DatetimeEncoder("second", add_weekday=True, periodic_encoding="spline")
dates = make_pipeline(skrub.ApplyToCols(make_pipeline(skrub.ToDatetime(), parts)), SimpleImputer(), FOREST)
add("skrub-dates", "steps", dates, dates_of_flats)
categories = skrub.TableVectorizer(low_cardinality=skrub.ToCategorical())
add("skrub-categories", "steps", make_pipeline(categories, BOOSTER), pandas_people)

add("skrub-squashed", "steps", make_pipeline(skrub.SquashingScaler(4.0, (10.0, 90.0)), Ridge()), small)
add("skrub-squashed-forest", "steps", make_pipeline(skrub.SquashingScaler(), FOREST), numbers_of_flats)
informative = skrub.ApplyToCols(skrub.DropUninformative(drop_if_constant=True))
floats = make_pipeline(informative, skrub.ApplyToCols(skrub.ToFloat()), FOREST)
add("skrub-to-float", "steps", floats, numbers_of_flats)
dissimilar = make_pipeline(skrub.DropSimilar(0.9), skrub.TableVectorizer(high_cardinality="drop"), BOOSTER)
add("skrub-dissimilar", "steps", dissimilar, flats)
