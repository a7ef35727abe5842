"""A transformer of dates with a lowering, for tests of columns of dates: `DayNumber`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from triton_regressors import lowers

DAY_US = 86_400 * 10**6
NAT = np.iinfo(np.int64).min


class DayNumber(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of dates as days since 1970-01-01 UTC; NaT as NaN."""

    def fit(self, X: Any, y: Any = None) -> DayNumber:
        """Keep the unit and the time zone of each column."""
        X = pd.DataFrame(X)
        self.n_features_in_ = X.shape[1]
        self.kinds_ = [(column.dt.unit, None if column.dt.tz is None else str(column.dt.tz)) for _, column in X.items()]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return float64 of the same shape."""
        return np.column_stack([_days(column) for _, column in pd.DataFrame(X).items()])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Name the columns by their numbers."""
        return np.array([f"day{column}" for column in range(self.n_features_in_)], dtype=object)


@lowers(DayNumber)
def lower_day_number(transformer: DayNumber, x: Any, builder: Any) -> Any:
    """Divide the microseconds of the plan's columns of dates."""
    for feature, (unit, zone) in zip(x.features, transformer.kinds_, strict=True):
        builder.profile.note_date(feature, unit, zone)
    return builder.divide(x, 0.0, float(DAY_US))


def orders(rows: int = 200, unit: str = "ns", zone: str | None = None, seed: int = 0) -> pd.DataFrame:
    """Return a table of three columns, of which `ordered` holds dates from 1954 to 2033, in whole seconds."""
    random = np.random.default_rng(seed)
    seconds = random.integers(-5 * 10**8, 2 * 10**9, rows)
    ordered = pd.Series(seconds.astype("datetime64[s]")).dt.as_unit(unit)
    if zone is not None:
        ordered = ordered.dt.tz_localize("UTC").dt.tz_convert(zone)
    return pd.DataFrame({"price": random.normal(50, 9, rows), "ordered": ordered, "weight": random.normal(size=rows)})


def fitted(table: pd.DataFrame, *, trees: bool = False) -> Any:
    """Return a pipeline that was fitted on a table of `orders`."""
    target = _days(table["ordered"]) / 1000 + table["price"]
    model = HistGradientBoostingRegressor(max_iter=10) if trees else Ridge()
    days = make_column_transformer((DayNumber(), ["ordered"]), remainder="passthrough")
    return make_pipeline(days, model).fit(table, target.fillna(0.0))


def _days(column: pd.Series) -> np.ndarray:
    utc = column if column.dt.tz is None else column.dt.tz_convert(None)
    microseconds = utc.to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(microseconds), np.nan, microseconds.astype(np.int64) / DAY_US)
