"""Numbers a plan's columns without those that nothing reads, so that a tensor of the others is its matrix as it comes.

An estimator may be fitted on columns that no part of it reads, such as those that a ColumnTransformer drops. Clients do
not send them. The matrix of an entry's plan has no place for them either: the rows of requests need no copy, and a GPU
reads them where they lie. Where strings or INT64 columns are inputs too, the matrix is made of several tensors anyway,
and its columns stay as the estimator was fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from triton_regressors.exporter.sample import Sample
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.plan import INPUT, Plan, Step
from triton_regressors.kernels.row_profile import RowProfile

WHOLE, READ = "columns as fitted", "columns that are read"
"""Names of the values that one numbering has in the other's plan."""


class ReadColumns:
    """The columns of the only tensor of `inputs`, in their order, numbered from 0; all columns if there are several."""

    def __init__(self, inputs: Inputs) -> None:
        several = bool(inputs.text or inputs.integers.columns)
        taken = range(inputs.n_features) if several else inputs.numeric
        self._n_features, self._taken = inputs.n_features, np.array(taken, dtype=np.int32)
        self._place = {column: place for place, column in enumerate(taken)}
        self.all = len(taken) == inputs.n_features
        self.inputs = dataclasses.replace(
            inputs,
            n_features=len(taken),
            numeric=self.places(inputs.numeric),
            categorical=self.places(inputs.categorical),
            float32=None if inputs.float32 is None else self.places(inputs.float32),
        )

    def places(self, columns: Sequence[int]) -> tuple[int, ...]:
        """Return the new numbers of columns that are read."""
        return tuple(self._place[column] for column in columns)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that are read; none if the columns have no names."""
        return tuple(names[column] for column in self._taken) if names else ()

    def rows(self, X: np.ndarray) -> np.ndarray:
        """Return `[rows, n_features]` with the columns that are read alone."""
        return X if self.all else np.ascontiguousarray(X[:, self._taken])

    def sample(self, sample: Sample) -> Sample:
        """Return a sample with the columns that are read alone."""
        return dataclasses.replace(sample, X=self.rows(sample.X))

    def profile(self, profile: RowProfile | None) -> RowProfile | None:
        """Return a profile of the columns that are read alone."""
        if profile is None:
            return None
        return dataclasses.replace(
            profile,
            deciles=self.rows(profile.deciles),
            nan_share=profile.nan_share[self._taken],
            known={self._place[column]: known for column, known in profile.known.items()},
        )

    def plan(self, plan: Plan) -> Plan:
        """Return a plan of all columns as one of those that are read; it must not compute with any other."""
        if self.all:
            return plan
        places = np.zeros(self._n_features, dtype=np.int32)  # nothing is computed with what has no place
        places[self._taken] = np.arange(len(self._taken))
        whole = Step(Columns(places), (INPUT,), WHOLE)
        steps = (whole, *_reading(plan.steps, INPUT, WHOLE))
        return dataclasses.replace(plan, n_features=len(self._taken), steps=steps)

    def of_whole_rows(self, plan: Plan) -> Plan:
        """Return a plan of the columns that are read as one of all columns, with the same answers."""
        if self.all:
            return plan
        steps = (Step(Columns(self._taken), (INPUT,), READ), *_reading(plan.steps, INPUT, READ))
        return dataclasses.replace(plan, n_features=self._n_features, steps=steps)


def _reading(steps: Sequence[Step], old: str, new: str) -> list[Step]:
    """Return steps that read one value in place of another."""
    return [
        Step(step.operation, tuple(new if name == old else name for name in step.inputs), step.output) for step in steps
    ]
