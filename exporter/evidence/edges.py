"""Rows at the model's own edges: thresholds, bins, knots and categories, where an answer may jump.

Rounding shows its effect where a model's answers jump, and rows drawn at random seldom lie there. The edges are read
off the plan as it was lowered, as numbers of the input's features: steps that select, scale or impute columns are
followed back. Features whose edges lie behind other steps are reported, and `evidence/jumps.py` searches for these.

The rows at an edge hold numbers that the data could hold. If every number of a column lies on a grid of whole numbers
or of some decimals, as prices, counts and times do, these are the two numbers of the grid around the edge. Otherwise
they are the edge itself and a millionth of the column's standard deviation to each side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.expression import Expression, Group
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan

ROWS = 512
"""The largest number of rows made at edges."""

BESIDE = 1e-6
"""The distance of a row from an edge if the data have no grid, in standard deviations of the column."""

JUMPS = frozenset(
    {
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        *("minimum", "maximum", "fmin", "fmax", "where"),
    }
)
"""Instructions that treat numbers on two sides of a constant differently."""

ROUNDINGS = frozenset({"floor", "ceil", "trunc", "rint", "sign", "floor_divide", "remainder", "fmod"})
"""Instructions whose results jump at many numbers."""

DECIMALS = 6
FEWEST_ROWS = 50
"""The fewest rows from which a grid is inferred."""


@dataclass(frozen=True)
class Edges:
    """Numbers of one feature: `jumps`, at which an answer may change, and `keys`, which are compared for equality."""

    jumps: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class _Source:
    """The source of the columns of a value: `x[feature] = z · factor + shift`; −1 if it is not known.

    `mixed` are the features on which the columns of unknown source depend.
    """

    feature: np.ndarray  # int64 [width]
    factor: np.ndarray
    shift: np.ndarray
    mixed: frozenset[int] = frozenset()

    def take(self, columns: np.ndarray) -> _Source:
        return _Source(self.feature[columns], self.factor[columns], self.shift[columns], self.mixed)

    def features(self) -> frozenset[int]:
        """Return the features that any column comes from."""
        return self.mixed | frozenset(self.feature[self.feature >= 0].tolist())

    @staticmethod
    def unknown(width: int, mixed: frozenset[int] = frozenset()) -> _Source:
        return _Source(np.full(width, -1), np.ones(width), np.zeros(width), mixed)


def find_edges(plan: Plan) -> dict[int, Edges]:
    """Return the edges of each feature of a lowered plan, ascending; features without edges are left out."""
    jumps: dict[int, list[np.ndarray]] = {}
    keys: dict[int, list[np.ndarray]] = {}
    for operation, source in _with_sources(plan):
        for found, numbers_of in ((jumps, _jumps), (keys, _keys)):
            for column, numbers in numbers_of(operation):
                feature = int(source.feature[column])
                if feature >= 0:
                    found.setdefault(feature, []).append(numbers * source.factor[column] + source.shift[column])
    features = sorted(jumps.keys() | keys.keys())
    return {feature: Edges(_finite(jumps.get(feature)), _finite(keys.get(feature))) for feature in features}


def features_behind(plan: Plan) -> frozenset[int]:
    """Return the features that reach a threshold through a step that cannot be followed back."""
    found: frozenset[int] = frozenset()
    for operation, source in _with_sources(plan):
        if source.mixed and any(source.feature[column] < 0 for column, _ in _jumps(operation)):
            found |= source.mixed
        if isinstance(operation, Expression):
            found |= source.take(_read_by_jumps(operation)).features()
    return found


def _with_sources(plan: Plan) -> Iterator[tuple[Operation, _Source]]:
    """Yield each operation of a plan with the source of its first input."""
    widths = plan.widths()
    sources = {INPUT: _Source(np.arange(plan.n_features), np.ones(plan.n_features), np.zeros(plan.n_features))}
    for step in plan.steps:
        inputs = [sources[name] for name in step.inputs]
        yield step.operation, inputs[0]
        followed = _followed(step.operation, inputs)
        if followed is None:
            mixed = frozenset().union(*(source.features() for source in inputs))
            followed = _Source.unknown(widths[step.output], mixed)
        sources[step.output] = followed


def rows_at_edges(edges: Mapping[int, Edges], X: np.ndarray) -> np.ndarray:
    """Return at most `ROWS` rows of the float64 matrix `X`, one feature of each moved to an edge or beside it."""
    rng = np.random.default_rng(0)
    places = [(feature, number) for feature, own in edges.items() for number in _beside(own, X[:, feature], rng)]
    if len(places) > ROWS:
        places = [places[index] for index in np.sort(rng.choice(len(places), ROWS, replace=False))]
    rows: np.ndarray = X[rng.integers(0, len(X), len(places))]
    for row, (feature, number) in zip(rows, places, strict=True):
        row[feature] = number
    return rows


def _beside(edges: Edges, column: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return numbers at a feature's edges and beside them, given a column of the data; no more than `ROWS`."""
    jumps, keys = (
        numbers if len(numbers) <= ROWS // 4 else rng.choice(numbers, ROWS // 4, replace=False)
        for numbers in (edges.jumps, edges.keys)
    )
    decimals = _grid(column)
    if decimals is None:
        spread = np.nanstd(column) if np.isfinite(column).any() else 0.0
        step = BESIDE * (spread if spread > 0 else 1.0)
        return np.concatenate([jumps, jumps - step, jumps + step, keys])
    low = np.round(np.floor(jumps * 10.0**decimals) / 10.0**decimals, decimals)
    high = np.round(low + 10.0**-decimals, decimals)
    return np.concatenate([low, high, keys])


def _grid(column: np.ndarray) -> int | None:
    """Return the fewest decimals that hold every number of a column, or None."""
    numbers = column[np.isfinite(column)]
    if len(numbers) < FEWEST_ROWS:
        return None
    return next((places for places in range(DECIMALS + 1) if (np.round(numbers, places) == numbers).all()), None)


def _jumps(operation: Operation) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the columns of an operation's input along which its answer may jump, each with the places of its jumps."""
    match operation:
        case TreeEnsemble():
            feature = np.where(operation.flags & CATEGORICAL > 0, -1, operation.feature)
            yield from _thresholds(feature, operation.threshold)
        case SymmetricTrees():
            yield from _thresholds(operation.feature, operation.threshold)
        case Piecewise():
            for column in np.unique(operation.source):
                yield int(column), np.unique(operation.knots[operation.source == column])
        case Expression():
            yield from _compared(operation)


def _compared(operation: Expression) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the columns that an expression compares with constants as they are, each with these constants."""
    found: dict[int, set[float]] = {}
    for group in operation.groups:
        pairs = [
            (int(x[1:]), int(c[1:]))
            for name, *arguments in group.program
            for x, c in itertools.permutations(arguments, 2)
            if name in JUMPS and x[0] == "x" and c[0] == "c"
        ]
        columns, constants = _columns(operation, group), operation.constants[group.first_constant :]
        constants = constants[: group.lanes * group.constants].reshape(group.lanes, -1)
        for x, c in pairs:
            for column, constant in zip(columns[:, x].tolist(), constants[:, c].tolist(), strict=True):
                found.setdefault(column, set()).add(constant)
    for column, numbers in sorted(found.items()):
        yield column, np.array(sorted(numbers))


def _columns(operation: Expression, group: Group) -> np.ndarray:
    """Return the columns that each lane of a group reads, `[lanes, inputs]`."""
    columns = operation.columns[group.first_column : group.first_column + group.lanes * group.inputs]
    return columns.reshape(group.lanes, group.inputs)


def _read_by_jumps(operation: Expression) -> np.ndarray:
    """Return the columns that programs with jumps read."""
    jumping = [g for g in operation.groups if any(name in JUMPS | ROUNDINGS for name, *_ in g.program)]
    parts = [_columns(operation, group).ravel() for group in jumping]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


def _thresholds(feature: np.ndarray, threshold: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the columns that are compared with thresholds, and the numbers at which these decide; −1 is no feature."""
    for column in np.unique(feature[feature >= 0]):
        own = np.unique(threshold[feature == column])
        numbers = own.astype(np.float64)
        if own.dtype == np.float32:  # rounding to float32 comes first, so a number a little above still counts as equal
            with np.errstate(over="ignore"):  # the number above the largest is infinity
                numbers = (numbers + np.nextafter(own, np.float32(np.inf)).astype(np.float64)) / 2
        yield int(column), numbers


def _keys(operation: Operation) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the columns of an operation's input that are compared for equality, each with its keys."""
    if isinstance(operation, Lookup):
        parts = np.split(operation.keys, operation.starts[1:-1])
        yield from zip(operation.columns.tolist(), parts, strict=True)


def _followed(operation: Operation, inputs: list[_Source]) -> _Source | None:
    """Return the source of an operation's output columns, if it keeps numbers recognisable."""
    match operation:
        case Columns():
            return inputs[0].take(operation.indices)
        case Float32():
            return inputs[0]
        case Impute():
            made = _Source.unknown(len(operation.indicators))
            return _side_by_side([inputs[0].take(operation.columns), made])
        case Concatenate():
            return _side_by_side(inputs)
        case Piecewise() if not operation.coefficients[:, :, 1:].any():
            return _Source.unknown(len(operation.source))  # a step function changes only at its own knots
        case Scale() if np.all(operation.factor != 0):
            (x,) = inputs  # z = (x − shift) · factor
            factor = x.factor / operation.factor
            return _Source(x.feature, factor, x.factor * operation.shift + x.shift, x.mixed)
    return None


def _side_by_side(sources: list[_Source]) -> _Source:
    feature, factor, shift = (
        np.concatenate([getattr(source, name) for source in sources]) for name in ("feature", "factor", "shift")
    )
    return _Source(feature, factor, shift, frozenset().union(*(source.mixed for source in sources)))


def _finite(parts: list[np.ndarray] | None) -> np.ndarray:
    numbers = np.unique(np.concatenate(parts)) if parts else np.zeros(0)
    return numbers[np.isfinite(numbers)]
