"""Methods of pandas' columns and tables that look at several rows, which are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_regressors.exporter.tracing.refusal import Untraceable

ROW_REMOVING = ("dropna", "drop_duplicates", "query", "sample", "nlargest", "nsmallest", "sort_values")
OVER_ROWS = (
    *("rolling", "expanding", "ewm", "shift", "diff", "pct_change", "groupby", "rank", "quantile", "describe", "corr"),
    *("cumsum", "cumprod", "cummax", "cummin", "ffill", "bfill", "interpolate", "value_counts", "unique", "nunique"),
    *("mode", "duplicated", "resample", "pivot", "melt", "join", "factorize", "idxmax", "idxmin"),
)
"""Methods whose answer for a row depends on other rows."""


def refusing(name: str) -> Callable[..., Any]:
    """Return a method that refuses to change rows or to look at others."""

    def method(self: Any, *_: Any, **__: Any) -> Any:
        if name in ROW_REMOVING:
            raise Untraceable(
                f"it calls {name}, which changes the rows", "An entry answers every row that it is sent, in order"
            )
        raise Untraceable(
            f"it calls {name}, whose result depends on other rows",
            "Compute such numbers in fit and keep them as attributes",
        )

    return method
