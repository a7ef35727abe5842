"""A realistic table, and models of it whose answers move when its numbers are rounded to float32."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler, TargetEncoder

from tests.server.models import MAX_ROWS
from triton_regressors import Export, export

ROWS = 4000
MEASURES = ["price", "area"]


@cache
def rentals() -> tuple[pd.DataFrame, pd.Series]:
    """Return a table like those of users: amounts with two decimals, unix seconds, and ids; and a target."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "price": np.round(rng.lognormal(12, 1, ROWS), 2),
            "area": np.round(rng.gamma(4, 30, ROWS), 2),
            "when": rng.integers(1_600_000_000, 1_700_000_000, ROWS),
            "id": rng.integers(100_000_000, 100_000_050, ROWS),
            "hash": rng.choice(2**60 + 3 * np.arange(20), ROWS),
        }
    )
    target = np.log(table.price) + 0.01 * table.area + table.id % 7 + table.when % 97 / 50 + table.hash % 5
    return table, target


@dataclass(frozen=True)
class Model:
    """A model of some columns of the table, with the types of its numbers."""

    estimator: Any
    columns: list[str]
    datatypes: dict[str, str]

    @property
    def table(self) -> pd.DataFrame:
        """The columns that the model reads."""
        return rentals()[0][self.columns]

    def export(self, repository: Path, name: str) -> Export:
        """Fit the model and write its entry."""
        self.estimator.fit(self.table, rentals()[1])
        return export(self.estimator, repository, name=name, sample=self.table[:2000], max_batch_size=MAX_ROWS)

    def expected(self) -> np.ndarray:
        """Return predict on the table as it is, `[rows, 1]`."""
        expected: np.ndarray = self.estimator.predict(self.table)[:, None]
        return expected

    def batches(self) -> Iterator[pd.DataFrame]:
        """Yield the table in parts that one request may have."""
        for start in range(0, ROWS, MAX_ROWS):
            yield self.table[start : start + MAX_ROWS]


def beside(encoder: Any, column: str) -> Any:
    return make_pipeline(make_column_transformer((encoder, [column]), (StandardScaler(), MEASURES)), Ridge())


MODELS = {
    "rent_boosted": Model(HistGradientBoostingRegressor(max_iter=30), MEASURES, {"X": "FP64"}),
    "rent_times": Model(HistGradientBoostingRegressor(max_iter=30), [*MEASURES, "when"], {"X": "FP64"}),
    "rent_forest": Model(
        make_pipeline(StandardScaler(), RandomForestRegressor(10, random_state=0)), MEASURES, {"X": "FP64"}
    ),
    "rent_bins": Model(
        make_pipeline(KBinsDiscretizer(10, quantile_method="averaged_inverted_cdf"), Ridge()), MEASURES, {"X": "FP64"}
    ),
    "rent_ids": Model(beside(OneHotEncoder(), "id"), [*MEASURES, "id"], {"X": "FP32", "integers": "INT64"}),
    "rent_targets": Model(
        beside(TargetEncoder(target_type="continuous", random_state=0), "id"), [*MEASURES, "id"], {"X": "FP64"}
    ),
    "rent_hashes": Model(
        beside(OneHotEncoder(handle_unknown="ignore"), "hash"),
        [*MEASURES, "hash"],
        {"X": "FP32", "integers": "INT64"},
    ),
    "rent_linear": Model(make_pipeline(StandardScaler(), Ridge()), [*MEASURES, "when"], {"X": "FP32"}),
}
