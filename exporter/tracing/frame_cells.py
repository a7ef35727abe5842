"""Arrays of cells as columns and tables of pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.cells import mapped
from triton_regressors.exporter.tracing.expressions import Expression
from triton_regressors.exporter.tracing.numpy_functions import unframed


def like(found: Any, frame: Any) -> Any:
    """Return an array as a column or a table with the labels of another."""
    if np.ndim(found) == 1:
        index = frame.index
        return pd.Series(
            np.asarray(found).view(np.ndarray), index=index, name=getattr(frame, "name", None), dtype=object
        )
    if np.ndim(found) == 2 and hasattr(frame, "columns"):
        return pd.DataFrame(found.view(np.ndarray), index=frame.index, columns=frame.columns, dtype=object)
    return found


def each_cell(frame: Any, function: Callable[..., Expression], *others: Any) -> Any:
    """Return a function of each cell of a column or a table."""
    return like(mapped(function, unframed(frame), *others), frame)
