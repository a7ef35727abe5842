"""Drawn estimators on drawn data, pathological data too: a plan's answers are scikit-learn's own.

They may differ by one float32 unit in the last place and `TOLERANCE` standard deviations more, `EXACT` for trees, which
take the same decisions and sum the same leaves. No sum in floating point is more certain than the numbers in it.
Answers made of sums are therefore allowed more, by scikit-learn's own uncertainty: the change of its answer when every
number of the rows and of the fitted model moves by one unit in its last place, times `TERMS` for the rounding of as
many sums. Most examples must pass without it; the test counts them.
"""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import ARDRegression, BayesianRidge
from sklearn.neighbors import RadiusNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from tests.exporter import drawn
from triton_regressors import ExportError
from triton_regressors.exporter.compile import Compilation, compile_estimator
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import measure, units

pytestmark = pytest.mark.filterwarnings("ignore:Found unknown categories")  # they are asked for too

TOLERANCE = 1e-5  # what an export promises
EXACT = 1e-6
TERMS = 64
MOVES = 12  # so that the largest of them is no lucky one
QUERIES = 48
UNSURE = 2.0**-48  # of a distance of five squares and a square root: some units in the last place of each
WITH_STD = (ARDRegression, BayesianRidge, GaussianProcessRegressor)


# The uncertainty of scikit-learn's answers: a number for each row, in standard deviations


def sure(case: "Case", expected: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """For what decides by comparing, and then adds the same few numbers."""
    return np.zeros(len(expected))


def if_all_moves(case: "Case", expected: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """For continuous functions: the rows move, and all that was fitted.

    Some models that were fitted on float32 sum in float32: what that does is seen when they hold the same numbers as
    float64. And scikit-learn's `euclidean_distances` is |x|² − 2xs + |s|², off by 1e-16 of |x|²: what that does is seen
    when the distances are taken from differences instead.
    """
    rng = np.random.default_rng(0)
    others = (predict(moved(case.model, rng), moved(case.X, rng)) for _ in range(MOVES))
    doubt = TERMS * difference(expected, unit, others)
    doubt += difference(expected, unit, [predict(changed(case.model, in_float64), case.X)])
    with contextlib.ExitStack() as patches:
        for module in ("sklearn.metrics.pairwise", "sklearn.cluster._kmeans"):
            patches.enter_context(mock.patch(f"{module}.euclidean_distances", distances_by_differences))
        return doubt + difference(expected, unit, [predict(case.model, case.X)])


def if_decisions_move(case: "Case", expected: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """For trees behind a scaler, which rounds otherwise here: infinite where a unit in the last place decides."""
    rng = np.random.default_rng(0)
    X = case.model[:-1].transform(case.X)
    others = (predict(case.model[-1], moved(X, rng)) for _ in range(MOVES))
    return np.where(difference(expected, unit, others) > 0, np.inf, 0.0)


def if_the_end_moves(case: "Case", expected: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """For a regressor behind a transformer that decides by comparing."""
    rng = np.random.default_rng(0)
    *before, (_, last) = case.model.steps
    X = Pipeline(before).transform(case.X)
    X = X.toarray() if issparse(X) else X
    return TERMS * difference(expected, unit, (predict(moved(last, rng), moved(X, rng)) for _ in range(MOVES)))


def if_neighbors_are_clear(case: "Case", expected: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Infinite where rounding, or the order of equal distances, decides who is a neighbour; 0 elsewhere.

    Brute force computes Euclidean distances as `if_all_moves` says, so that weights of 1 / distance suffer from it too.
    """
    model, power = case.model, 2 if case.model.effective_metric_ == "euclidean" else 1
    d = np.sort(cdist(case.X, case.fitted_on, model.effective_metric_), axis=1) ** power
    rounding = UNSURE * d
    if model._fit_method == "brute" and power == 2:
        rounding += UNSURE * ((case.X**2).sum(axis=1) + (case.fitted_on**2).sum(axis=1).max())[:, None]
    if isinstance(model, RadiusNeighborsRegressor):
        near, edge = d <= model.radius**power, np.abs(d - model.radius**power) <= rounding
    else:
        near, edge = np.arange(d.shape[1]) < model.n_neighbors, np.zeros_like(d, dtype=bool)
        k = model.n_neighbors
        edge[:, k:] = d[:, k:] - d[:, k - 1 : k] <= rounding[:, k:]
    if model.weights == "distance":
        edge |= near & (rounding > EXACT * d) & (rounding > 0)
    return np.where(edge.any(axis=1), np.inf, 0.0)


def moved(thing: Any, rng: np.random.Generator) -> Any:
    """Return a copy with every float64 in it multiplied by 1 ± 2⁻⁵²."""

    def move(array: np.ndarray) -> np.ndarray:
        if array.dtype != np.float64:
            return array
        return array * (1 + rng.choice([-1.0, 1.0], array.shape) * 2.0**-52)

    return changed(thing, move)


def in_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def changed(thing: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return a copy of an estimator, or of what is in it, with every array changed."""
    if isinstance(thing, np.ndarray):
        return change(thing)
    if isinstance(thing, list | tuple):
        return type(thing)(changed(each, change) for each in thing)
    if isinstance(thing, BaseEstimator):
        other = copy.copy(thing)
        other.__dict__.update({name: changed(value, change) for name, value in vars(thing).items()})
        return other
    return thing


def difference(expected: np.ndarray, unit: np.ndarray, others: Iterable[np.ndarray]) -> np.ndarray:
    """Return how far each row's answers lie from others at most; no number is infinitely far."""
    far = np.array([np.abs(other - expected) / unit for other in others])
    return np.where(np.isnan(far), np.inf, far).max(axis=(0, 2))


def distances_by_differences(X: Any, Y: Any, *, squared: bool = False, **known: Any) -> np.ndarray:
    return cdist(X, Y, "sqeuclidean" if squared else "euclidean")


# Data

KINDS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "normal": lambda rows, rng: rng.standard_normal(rows),
    "far": lambda rows, rng: 10_000 + rng.standard_normal(rows),
    "huge": lambda rows, rng: 1e12 * rng.standard_normal(rows),
    "tiny": lambda rows, rng: 1e-12 * rng.standard_normal(rows),
    "all magnitudes": lambda rows, rng: rng.choice([-1, 1], rows) * 10 ** rng.uniform(-12, 12, rows),
    "constant": lambda rows, rng: np.full(rows, 7.25),
    "zeros": lambda rows, rng: rng.choice([-0.0, 0.0], rows),
    "signs": lambda rows, rng: rng.choice([-1.0, -0.0, 0.0, 1.0], rows),
    "counts": lambda rows, rng: rng.integers(0, 4, rows).astype(float),
}


MODEST = ("normal", "far", "constant", "zeros", "signs", "counts")  # none so large that others vanish beside it


@dataclass(frozen=True)
class Family:
    """Estimators, how sure scikit-learn is of their answers, and what is promised beyond that."""

    estimators: st.SearchStrategy[Any]
    doubt: Callable[["Case", np.ndarray, np.ndarray], np.ndarray]
    tolerance: float = TOLERANCE
    examples: int = 30


FAMILIES = {
    "linear": Family(drawn.linear, if_all_moves, examples=80),
    "polynomial": Family(drawn.polynomial, if_all_moves, examples=40),
    "trees": Family(drawn.trees, sure, EXACT, examples=80),
    "scaled": Family(drawn.scaled, if_decisions_move, EXACT, examples=40),
    "boosting": Family(drawn.boosting, sure, EXACT, examples=80),
    "kernel": Family(drawn.kernel, if_all_moves, examples=80),
    "neighbors": Family(drawn.neighbors, if_neighbors_are_clear, examples=60),
    "neural": Family(drawn.neural, if_all_moves),
    "ensembles": Family(drawn.ensembles, if_all_moves, examples=60),
    "smooth": Family(drawn.smooth, if_all_moves, examples=60),
    "stepped": Family(drawn.stepped, if_the_end_moves, examples=60),
    "isotonic": Family(drawn.isotonic, sure),
}


@dataclass(frozen=True)
class Case:
    """A fitted model, the rows it was fitted on, and the rows to ask, which numbers of `input` hold."""

    family: Family
    model: Any
    fitted_on: np.ndarray
    X: np.ndarray
    input: str


@st.composite
def cases(draw: st.DrawFn, family: Family) -> Case:
    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    estimator = clone(draw(family.estimators))
    tags = get_tags(estimator)
    rows = one(40, 20, 7, 2, 1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = one(MODEST, tuple(KINDS))
    kinds = rng.choice(kinds, 1 if isinstance(estimator, IsotonicRegression) else rng.integers(1, 6))
    X = np.stack([KINDS[kind](rows, rng) for kind in kinds], axis=1)
    if one(False, True):
        X = X[rng.integers(0, rows, rows)]  # rows twice and more, with other targets
    dtype, rounded = one((np.float64, False), (np.float64, True), (np.float32, True))
    X = X.astype(np.float32).astype(dtype) if rounded else X
    # Targets follow the features in part, at some scale and place, or do not vary.
    count = one(1, 1, 3) if tags.target_tags.multi_output else 1
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    y = (X - X.mean(axis=0)) / spread @ rng.standard_normal((X.shape[1], count)) + rng.standard_normal((rows, count))
    scale, place = one((1.0, 0.0), (1.0, 100.0), (1e-9, 0.0), (1e9, 0.0), (0.0, 3.0))
    y = place + scale * y
    if tags.target_tags.positive_only or getattr(estimator, "loss", "") in ("poisson", "gamma"):
        y = np.abs(y) + y.std() / 8 + 1e-30
    input = one("fp32", "fp64")
    asked = queries(X.astype(np.float64), np.float32 if input == "fp32" else np.float64, rng)
    if tags.input_tags.allow_nan:
        X = np.where(rng.random(X.shape) < one(0, 0.2), np.nan, X).astype(dtype)
        asked = np.where(rng.random(asked.shape) < one(0, 0.2), np.nan, asked)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = estimator.fit(X, y if count > 1 else y[:, 0])
            predict(model, asked)
        except (ValueError, IndexError, ArithmeticError, np.linalg.LinAlgError):
            reject()  # scikit-learn takes no such data
    return Case(family, model, X.astype(np.float64), asked, input)


def queries(X: np.ndarray, dtype: type, rng: np.random.Generator) -> np.ndarray:
    """Return rows to ask: rows fitted on; numbers at, between, next to and around theirs; two beyond all."""
    chosen = X[rng.integers(0, len(X), QUERIES)].astype(dtype)
    answer = chosen.copy()
    for column, numbers in zip(answer.T, X.T, strict=True):
        known = np.unique(numbers)
        places = np.concatenate([known, (known[1:] + known[:-1]) / 2]).astype(dtype)
        beside = np.concatenate([places, *(np.nextafter(places, dtype(end)) for end in (-np.inf, np.inf))])
        third = QUERIES // 3
        column[third : 2 * third] = rng.choice(beside, third)
        column[2 * third :] += numbers.std() * rng.standard_normal(QUERIES - 2 * third)
        outside = 3 * numbers.std() or 1.0
        column[-2:] = known[0] - outside, known[-1] + outside
    return answer.astype(np.float64)


# The comparison


def predict(model: Any, X: np.ndarray) -> np.ndarray:
    """Return scikit-learn's answers, float64 `[rows, targets]`, with the standard deviations it has beside them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        answers = model.predict(X, return_std=True) if isinstance(model, WITH_STD) else [model.predict(X)]
    return np.hstack([np.asarray(answer, dtype=np.float64).reshape(len(X), -1) for answer in answers])


def compare(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's excess, and how sure scikit-learn is of it, in standard deviations, where its answer is finite.

    Without any such row the export is to say so.
    """
    expected = predict(case.model, case.X)
    with np.errstate(over="ignore"):
        finite = np.isfinite(expected.astype(np.float32)).all(axis=1)
    if not finite.any():
        with pytest.raises(ExportError, match="it predicts no finite number for the rows of the sample"):
            compile_estimator(case.model, sample=case.X, input=case.input)
        return np.zeros(0), np.zeros(0)
    unit = units(expected[finite])
    plan = compiled(case).plan
    answers = Runner(plan, engine="torch").predict(case.X.astype(plan.dtype), tuple(plan.outputs))
    found = np.hstack([answers[name] for name in plan.outputs])
    excess = [measure(found[row : row + 1], expected[row : row + 1], unit).excess for row in np.flatnonzero(finite)]
    return np.array(excess), case.family.doubt(case, expected, unit)[finite]


def compiled(case: Case) -> Compilation:
    """Return the case compiled for its input, or for FP64 where FP32 merges two categories."""
    try:
        return compile_estimator(case.model, sample=case.X, input=case.input)
    except ExportError as error:
        if "are one number in FP32" not in str(error):
            raise
        return compile_estimator(case.model, sample=case.X, input="fp64")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_drawn_models_answer_as_scikit_learn_does(family: Family) -> None:
    clear = compared = 0

    @settings(
        max_examples=family.examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(family))
    def check(case: Case) -> None:
        nonlocal clear, compared
        excess, doubt = compare(case)
        clear += np.count_nonzero(doubt <= family.tolerance)
        compared += len(doubt)
        assert ((excess <= family.tolerance + doubt) | np.isinf(doubt)).all()

    check()
    assert clear > 0.7 * compared  # which were compared without any doubt added
