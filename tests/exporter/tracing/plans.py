"""The plan of a traced function, and its values in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from triton_regressors.exporter.estimators.own_code import lower_function
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.lower import _dtypes
from triton_regressors.exporter.lowering.polars_tables import PolarsTables, polars_types
from triton_regressors.exporter.lowering.tables import Tables
from triton_regressors.exporter.lowering.text_columns import TextColumns
from triton_regressors.kernels.plan.plan import INPUT, Plan
from triton_regressors.tables.frames import as_frame


class Traced:
    """A function traced for tables like `table`, a DataFrame or a matrix; `transform` is what its plan computes."""

    def __init__(self, function: Callable[[Any], Any], table: Any) -> None:
        polars, table = polars_types(table), as_frame(table)
        names = list(table.columns) if hasattr(table, "columns") else None
        width = table.shape[1]
        self.profile = Profile(width, (), lambda feature: self._column(table, feature))
        self.profile.names = names or ()
        self.profile.dtypes = _dtypes(names, table, width)
        if polars is not None:
            self.profile.polars = PolarsTables(tuple(polars.values()))
        builder = Builder(width, self.profile)
        value = lower_function(function, function, builder.input, builder, names or ())
        self.names, self.kinds, self.strings = value.names, value.kinds, value.strings
        plan = builder.plan({"y": value})
        self.plan: Plan = plan
        self.text: TextColumns = self.profile.text
        self._tables = Tables(function, self.profile)
        kinds = [getattr(dtype, "kind", "O") for dtype in self.profile.dtypes]
        if polars is not None:  # booleans with nulls are objects in pandas
            kinds = [
                "f" if each.dtype.is_numeric() or str(each.dtype) == "Boolean" else "O" for each in polars.values()
            ]
        self._numeric = tuple(feature for feature, kind in enumerate(kinds) if kind in "fiub")
        taken = {*self._numeric, *self.profile.dates, *self.text.columns()}
        self.profile.unread = frozenset(range(width)) - taken

    def transform(self, table: Any) -> np.ndarray:
        """Return the plan's values for a table, float64 `[rows, width]`."""
        X = self._tables.matrix(self._tables.table(as_frame(table)), self._numeric)
        return self.values(X)

    def values(self, X: np.ndarray) -> np.ndarray:
        """Return the plan's values for rows of its matrix."""
        values = {INPUT: torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64))}
        for step in self.plan.steps:
            operation = step.operation
            parameters = {name: torch.from_numpy(array) for name, array in operation.plain_parameters().items()}
            values[step.output] = operation.compute_on_cpu(parameters, *(values[name] for name in step.inputs))
        found: np.ndarray = values[self.plan.outputs["y"]].numpy()
        return found

    @staticmethod
    def _column(table: Any, feature: int) -> list[Any]:
        return list(table.iloc[:, feature] if hasattr(table, "columns") else table[:, feature])
