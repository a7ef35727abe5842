"""Neighbours at equal distance: the rows where scikit-learn and an entry may take different points.

If several training points share the k-th smallest distance, the k nearest points are not one set. scikit-learn takes
what its search leaves. A tree's choice follows from the row, and an entry that holds the tree repeats it
(`exporter/search_tree.py`). Brute force depends on how a batch was shared among threads and on the BLAS library,
`KNNImputer` on the processor's `argpartition`; there an entry takes the points with the smallest indices. Both answers
are right.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import ulps
from triton_regressors.kernels.ops.neighbors.barycenter import Barycenter
from triton_regressors.kernels.ops.neighbors.cpu_search import nearest_points
from triton_regressors.kernels.ops.neighbors.distances import SQUARED, reference_reduced_distances, transposed
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

TIES = ("refuse", "accept")
"""The choices for rows that are answered differently because points are equally near."""

LEFT_OUT = "; these rows are no part of the parity"

ROUNDING = 2.0**-44
"""Distances that differ by less than this share of the largest terms of their sums are equal to scikit-learn's sums.

Its brute force adds up |x|² − 2 x · s + |s|² in float64, whose last place is 2⁻⁵²."""

ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Ties:
    """Rows of a sample that have neighbours at equal distance and another answer than the estimator's.

    `rows` of `of` rows; their answers differ by up to `max_error` standard deviations.
    """

    rows: int
    of: int
    max_error: float

    def __str__(self) -> str:
        rows = f"{self.rows:,} of {self.of:,} row{'s' * (self.of != 1)} ({100 * self.rows / self.of:.3g} %)"
        return (
            f"in {rows} several training points are equally near, and scikit-learn takes others of them than the entry;"
            f" the answers differ by up to {self.max_error:.2g} standard deviations"
        )


def ties_in_words(ties: Ties | None, *, accepted: bool, closed: bool, some: bool) -> str | None:
    """Return what neighbours at equal distance do, in one sentence or two without the last full stop, or None.

    `closed` says that NaN is refused in requests because of them, but for `some` columns in which the sample holds it.
    """
    if ties is not None:
        return f"Ties: {ties}{LEFT_OUT if accepted else ''}"
    if closed and some:
        return (
            "Requests may hold NaN only in the columns in which the sample does: donors at equal distance make the "
            "estimator's answers to other rows with NaN others than the entry's. Export with ties='accept' "
            "(--ties accept) to allow NaN wherever the estimator fills it"
        )
    if closed:
        return (
            "Requests with NaN are refused, though the estimator fills it: donors at equal distance make its answers "
            "others than the entry's. Export with ties='accept' (--ties accept) to allow NaN"
        )
    return None


def search_ties(runner: Runner, sample: Sample, rounded: bool, tolerance: float) -> tuple[np.ndarray, Ties | None]:
    """Return which rows of a sample are tied and answered beyond the tolerance, bool `[rows]`, and what is said of it.

    `rounded` says whether answers are compared with those to the rounded rows.
    """
    none = np.zeros(len(sample.X), dtype=bool)
    if not any(isinstance(step.operation, SEARCHES) for step in runner.plan.steps):
        return none, None
    outputs = tuple(sample.expected)
    error = errors(runner.predict(sample.X, outputs), sample.rounded if rounded else sample.expected, sample.units)
    tied = error > tolerance
    tied[tied] = tied_rows(runner.plan, sample.X[tied])
    if not tied.any():
        return none, None
    return tied, Ties(int(tied.sum()), len(tied), float(error[tied].max()))


def without(sample: Sample, rows: np.ndarray) -> Sample:
    """Return a sample without some rows, bool `[rows]`.

    Raises:
        ExportError: none are left, so that nothing could be verified.
    """
    if rows.all():
        raise ExportError(
            "Every row of the sample has neighbours at equal distance, or lies on a threshold, and has another answer "
            "than the estimator's; no row is left to verify the entry with. Give more rows as the sample."
        )
    expected, rounded = (
        {name: values[~rows] for name, values in answers.items()} for answers in (sample.expected, sample.rounded)
    )
    return dataclasses.replace(sample, X=sample.X[~rows], expected=expected, rounded=rounded)


def errors(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], units: dict[str, np.ndarray]) -> np.ndarray:
    """Return each row's largest difference between answers, float64 `[rows]`, as parity is judged.

    It is in standard deviations, of all outputs, after one unit in the answer's last float32 place is taken off;
    infinity where an answer is no number.
    """
    largest = np.zeros(len(next(iter(expected.values()))))
    for name, wanted in expected.items():
        error = np.abs(found[name].astype(np.float64) - wanted)
        excess = np.maximum(error - ulps(wanted), 0.0) / units[name]
        largest = np.maximum(largest, np.nan_to_num(excess, nan=np.inf).max(axis=1, initial=0.0))
    return largest


@torch.inference_mode()
def tied_rows(plan: Plan, X: np.ndarray) -> np.ndarray:
    """Return whether each row has equally near points of which a search of the plan takes some, bool `[rows]`.

    Args:
        plan: any plan.
        X: rows of its matrix, `[rows, n_features]`.
    """
    tied = np.zeros(len(X), dtype=bool)
    last = max((place for place, step in enumerate(plan.steps) if isinstance(step.operation, SEARCHES)), default=-1)
    steps = plan.steps[: last + 1]
    if not steps:
        return tied
    searches = dataclasses.replace(plan, steps=steps, outputs={"y": steps[-1].output})
    parameters = bind_parameters(searches, torch.device("cpu"), plain=True)
    for start in range(0, len(X), ROWS_AT_ONCE):
        values = {INPUT: torch.from_numpy(np.ascontiguousarray(X[start : start + ROWS_AT_ONCE]))}
        with one_thread():
            for step in steps:
                inputs = [values[name] for name in step.inputs]
                if isinstance(step.operation, SEARCHES):
                    tied[start : start + ROWS_AT_ONCE] |= _tied(step, inputs[0].double()).numpy()
                values[step.output] = step.operation.reference(parameters[step.output], *inputs)
    return tied


def _tied(step: Step, x: torch.Tensor) -> torch.Tensor:
    """Return whether the search of a step is tied for each row, bool `[rows]`."""
    search = step.operation
    assert isinstance(search, SEARCHES)
    points, k = search.points, search.n_neighbors
    columns = torch.from_numpy(transposed(points))
    if isinstance(search, NeighborImputer):
        return _tied_donors(x, columns, k, search.columns)
    if isinstance(search, Barycenter):
        metric, p, factor = "euclidean", 2.0, np.ones(len(columns))
    else:
        metric, p, factor = search.metric, search.p, search.factor
    if not 0 < k < len(points):  # a graph of all points within a radius has no number of neighbours
        return torch.zeros(len(x), dtype=torch.bool)
    weights = torch.from_numpy(np.ascontiguousarray(factor))
    found = nearest_points(x, {"columns": columns, "factor": weights}, metric, p, k + 1, None)[0].sort(1).values
    scale = found[:, k].abs()
    if metric in SQUARED:
        scale = scale + (x * x * weights).sum(1) + (columns * columns * weights[:, None]).sum(0).max()
    return found[:, k] - found[:, k - 1] <= ROUNDING * scale


def _tied_donors(x: torch.Tensor, columns: torch.Tensor, k: int, imputed: np.ndarray) -> torch.Tensor:
    """Return in which rows a missing feature has equally near donors, bool `[rows]`.

    `columns` are the points, `[features, points]`.
    """
    distance = reference_reduced_distances(x, columns, torch.ones(len(columns)), "nan_euclidean", 2.0)
    squares = (x.nan_to_num() ** 2).sum(1) + (columns.nan_to_num() ** 2).sum(0).max()
    tied = torch.zeros(len(x), dtype=torch.bool)
    for feature in set(imputed.tolist()):
        near = distance[:, ~columns[feature].isnan()]
        if near.shape[1] > k:
            near = near.topk(k + 1, dim=1, largest=False).values.sort(1).values
            # nan_euclidean scales a sum over the features that both have by the share of these.
            close = near[:, k] - near[:, k - 1] <= ROUNDING * len(columns) * squares
            tied |= x[:, feature].isnan() & close & near[:, k].isfinite()
    return tied


SEARCHES = (Neighbors, NeighborGraph, NeighborImputer, Barycenter)
"""The operations that take a number of nearest points."""
