"""Functions that numpy computes in float32, in front of trees and bins.

A logarithm in float32 is not the float32 nearest to the logarithm: numpy's last bits are those of its own algorithm,
and a tree's threshold may be just such a number. A tree decides by order alone, so nothing has to be computed: for each
threshold behind a monotone function there is one float32 number from which on the answer is another. These numbers are
searched with the function itself, and the function becomes a table: constant between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from triton_regressors.exporter.lowerings.pieces import Pieces, piecewise
from triton_regressors.exporter.rounding import decided_values
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

SEARCHES = 33
"""Halvings that find one of 2³² float32 numbers."""

INFINITY = np.int64(0x7F80_0000)
"""The rank of infinity among the float32 numbers; zero has the rank 0, and −x the rank of x with the other sign."""


@dataclass(frozen=True)
class Function:
    """A transformer's float32 function of each column, and some rows that it takes.

    `compute` maps float32 `[n, width]` to `[n, width]`, monotone in each column; None where it is not.
    `rows` are float32 `[n, width]`. `subject` names the transformer.
    """

    compute: Callable[[np.ndarray], np.ndarray] | None
    rows: np.ndarray
    subject: str


def tabulate(plan: Plan, functions: Mapping[str, Function]) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with tables in place of functions, and the transformers whose function could not become one.

    Args:
        plan: a plan that rounds to float32 where scikit-learn does.
        functions: what steps stand for, by the value they make.
    """
    steps, renamed, left = list(plan.steps), dict[str, str](), dict[str, None]()
    decided = decided_values(plan.steps)
    for place, step in enumerate(plan.steps):
        if step.output not in functions or step.output not in decided:
            continue
        function = functions[step.output]
        readers = _Readers(plan, step.output)
        if not readers.decide:
            continue
        table = _table(function, readers) if readers.decisions_alone else None
        if table is None:
            left[function.subject] = None
            continue
        steps[place] = Step(table, step.inputs, step.output)
        renamed |= {s.output: step.output for s in steps if _rounds(s) and s.inputs == (step.output,)}
    kept = [
        Step(step.operation, tuple(renamed.get(name, name) for name in step.inputs), step.output)
        for step in steps
        if step.output not in renamed  # what a table holds is float32
    ]
    return plan.with_steps(kept), tuple(left)


def _rounds(step: Step) -> bool:
    return isinstance(step.operation, Float32)


class _Readers:
    """The steps that read one value: scaled and rounded copies of its columns, and the trees and bins that read these.

    `decide` says that a step rounds them to float32, as is done in front of a decision alone; `decisions_alone` that
    nothing but trees and bins reads them.
    """

    def __init__(self, plan: Plan, value: str) -> None:
        self._value, widths = value, plan.widths()
        self._widths = widths
        self._chain: list[Step] = []
        self._decisions: list[Step] = []
        self._source = {value: np.arange(widths[value])}
        self.decisions_alone, self.decide = True, False
        for step in plan.steps:
            reached = [name for name in step.inputs if name in self._source]
            if not reached:
                continue
            source = self._followed(step)
            if source is not None:
                self._chain.append(step)
                self._source[step.output] = source
                self.decide |= isinstance(step.operation, Float32) or getattr(step.operation, "single", False)
            elif _asks(step.operation) is not None:
                self._decisions.append(step)
            else:
                self.decisions_alone = False
        self.decisions_alone &= self._source.keys().isdisjoint(plan.outputs.values())

    def thresholds(self) -> Iterator[tuple[str, list[tuple[int, int, np.ndarray]]]]:
        """Yield values that decisions read, with columns of theirs: column, the function's column, and thresholds.

        No two columns of one list are of the same column of the function.
        """
        for step in self._decisions:
            asked, source = _asks(step.operation), self._source[step.inputs[0]]
            assert asked is not None
            waiting = [(column, int(source[column]), asked[column]) for column in asked if source[column] >= 0]
            while waiting:
                layer: dict[int, tuple[int, int, np.ndarray]] = {}
                rest = []
                for each in waiting:
                    if layer.setdefault(each[1], each) is not each:
                        rest.append(each)
                yield step.inputs[0], list(layer.values())
                waiting = rest

    def compute(self, made: np.ndarray, wanted: str) -> np.ndarray:
        """Return a value of the plan, where the function has made the numbers `[n, width]`."""
        values = {self._value: torch.from_numpy(made.astype(np.float64))}
        for step in self._chain:
            inputs = [
                values[name] if name in values else torch.zeros((len(made), self._widths[name]), dtype=torch.float64)
                for name in step.inputs
            ]
            parameters = {name: torch.from_numpy(array) for name, array in step.operation.plain_parameters().items()}
            values[step.output] = step.operation.reference(parameters, *inputs)
        return values[wanted].numpy()

    def _followed(self, step: Step) -> np.ndarray | None:
        """Return which of the function's columns a step's columns are made of, −1 for none; None if it mixes them."""
        operation: Operation = step.operation
        none = {name: np.full(self._widths[name], -1) for name in step.inputs}
        sources = [self._source.get(name, none[name]) for name in step.inputs]
        match operation:
            case Columns():
                selected: np.ndarray = sources[0][operation.indices]
                return selected
            case Concatenate() if operation.columns is None:
                return np.concatenate(sources)
            case Float32() | Scale():
                return sources[0]
            case Elementwise(function="identity"):
                return sources[0]
        return None


def _asks(operation: Operation) -> dict[int, np.ndarray] | None:
    """Return, for each column, the thresholds up to which an operation decides one way; None if it does more."""
    match operation:
        case TreeEnsemble() if not (operation.flags & CATEGORICAL > 0).any():
            feature, threshold = operation.feature, operation.threshold
        case SymmetricTrees():
            feature, threshold = operation.feature, operation.threshold
        case Piecewise() if not operation.coefficients[:, :, 1:].any():
            feature = np.repeat(operation.source, operation.knots.shape[1])
            threshold = np.nextafter(operation.knots.ravel(), -np.inf)  # from a knot on it is the next constant
        case _:
            return None
    return {column: np.unique(threshold[feature == column]) for column in np.unique(feature[feature >= 0]).tolist()}


def _table(function: Function, readers: _Readers) -> Operation | None:
    """Return the function as constants between the numbers at which an answer changes, or None."""
    domain = None if function.compute is None else _domain(function)
    if domain is None:
        return None
    first, last, inside = domain
    width = len(first)
    borders: list[list[np.ndarray]] = [[] for _ in range(width)]
    for value, layer in readers.thresholds():
        rows = max(len(thresholds) for _, _, thresholds in layer)
        columns = [column for column, _, _ in layer]
        places = [place for _, place, _ in layer]
        limits = np.stack([np.resize(thresholds, rows) for _, _, thresholds in layer], axis=1)

        def below(ranks: np.ndarray, value: str = value, columns: list[int] = columns, limits: Any = limits) -> Any:
            return readers.compute(_computed(function, ranks), value)[:, columns] <= limits

        low, high = (np.repeat(ends[None], rows, axis=0) for ends in (first, last))
        at_low, at_high = below(low), below(high)
        for _ in range(SEARCHES):
            middle = (low + high) >> 1
            as_low = np.ones((rows, width), dtype=bool)
            as_low[:, places] = below(middle) == at_low
            low, high = np.where(as_low, middle, low), np.where(as_low, high, middle)
        for number, place in enumerate(places):
            borders[place].append(high[at_low[:, number] != at_high[:, number], place])
    found = []
    for place in range(width):
        known = np.unique(np.concatenate([*borders[place], first[place : place + 1]]))
        ranks = np.repeat(inside[None], len(known), axis=0)
        ranks[:, place] = known
        values = _computed(function, ranks)[:, place].astype(np.float64)
        starts = np.concatenate([[-np.inf], _number(known), [np.nextafter(_number(last[place]), np.inf)]])
        constants = np.concatenate([[np.nan], values, [np.nan]])
        found.append(Pieces(starts, np.append(starts[1], starts[1:]), constants[:, None]))
    return piecewise(np.arange(width), found)


def _domain(function: Function) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the ranks of the first, the last and some number that each column's function takes, or None."""
    rows = function.rows[~np.isnan(_compute(function, function.rows)).any(axis=1)]
    if not len(rows):
        return None
    inside = _rank(rows[0])
    ends = []
    for end in (-INFINITY + 1, INFINITY - 1):  # no row holds infinity
        known, beyond = inside.copy(), np.full(len(inside), end)
        takes = ~np.isnan(_computed(function, beyond[None])[0])
        for _ in range(SEARCHES):
            middle = (known + beyond) >> 1
            good = ~np.isnan(_computed(function, middle[None])[0])
            known, beyond = np.where(good, middle, known), np.where(good, beyond, middle)
        ends.append(np.where(takes, end, known))
    return ends[0], ends[1], inside


def _computed(function: Function, ranks: np.ndarray) -> np.ndarray:
    """Return the function of the float32 numbers of these ranks."""
    return _compute(function, _number(ranks).astype(np.float32))


def _compute(function: Function, rows: np.ndarray) -> np.ndarray:
    assert function.compute is not None
    with np.errstate(all="ignore"):
        found: np.ndarray = np.asarray(function.compute(rows.copy()))
    return found


def _number(ranks: np.ndarray) -> np.ndarray:
    """Return the float32 numbers of these ranks, as float64."""
    bits = np.where(ranks >= 0, ranks, -ranks | 0x8000_0000).astype(np.uint32)
    found: np.ndarray = bits.view(np.float32).astype(np.float64)
    return found


def _rank(numbers: np.ndarray) -> np.ndarray:
    """Return the ranks of float32 numbers."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32).astype(np.int64)
    found: np.ndarray = np.where(bits < 0x8000_0000, bits, -(bits & 0x7FFF_FFFF))
    return found
