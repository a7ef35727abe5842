"""Tables in place of functions in front of thresholds.

The last bits of a logarithm, a power or a spline come from NumPy's or SciPy's own algorithm, and a threshold may be
exactly such a number: HistGradientBoosting takes values of the training rows as thresholds. A tree or a bin decides by
order alone, so the function need not be computed. For each threshold behind a function there are inputs of the function
at which the decision changes. A search with the estimator's own function finds them, and the function becomes a table
that is constant between two of them.

Rounding errors may let a rising function fall by its last bits. The search therefore also evaluates all numbers around
the one that it finds, as long as the function lies within a few last bits of the threshold.

Other steps may read the function too. Decisions then read the table, and the other steps the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from triton_regressors.exporter.lowering.builder import Function
from triton_regressors.exporter.lowering.pieces import Pieces, piecewise
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

SEARCHES = 65
"""Bisection steps that single out one of 2⁶⁴ numbers."""

AROUND = ((16, 1), (128, 1), (1024, 1), (8192, 1), (4096, 2**6), (4096, 2**16), (4096, 2**28))
"""How far to evaluate around a found number: a count of numbers on each side, and their spacing in last bits.

The search goes on to the next pair if the function is still near a threshold at the ends of this one."""

LAST_BITS = 8
"""Rounding errors are not expected to exceed this many units in a threshold's last place."""

NUMBERS_AT_ONCE = 2**19
"""The most input numbers that a function is evaluated on at once, which bounds the memory for wide models."""

INSIDE = (0.5, 1.0, 2.0, 0.0, -0.5, -1.0, -2.0, 100.0, -100.0)
"""Numbers to try until one lies in a function's domain."""


def tabulate(plan: Plan, functions: Mapping[str, Function]) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with tables in front of decisions, and the float32 transformers that tables do not fully replace.

    Args:
        plan: a lowered plan; for a float32 sample it rounds to float32 as scikit-learn does.
        functions: the transformers' functions that steps approximate, by the step's value.
    """
    left = dict[str, None]()
    for value, function in functions.items():
        readers = _Readers(plan, value, function.single)
        if not readers.decide:
            continue
        table = _table(function, readers) if readers.decisions else None
        if function.single and (table is None or not readers.decisions_alone):
            left[function.subject] = None
        if table is not None:
            plan = readers.reading(table, function.input.name)
    return plan, tuple(left)


class _Readers:
    """The steps that read a function's value: scaled and rounded copies of its columns, and the decisions on these.

    A decision is a step of trees or bins. `decide` says that last bits matter for some decision. With float32 rows this
    holds for decisions behind a rounding step, since the plan rounds for decisions alone; with float64 rows it holds
    for decisions that compare unrounded values. `decisions_alone` says that no other step reads the value.
    """

    def __init__(self, plan: Plan, value: str, single: bool) -> None:
        self._plan, self._value = plan, value
        self._widths = widths = plan.widths()
        self._chain: list[Step] = []
        self.decisions: list[Step] = []
        self._source = {value: np.arange(widths[value])}
        self.decisions_alone, self.decide = True, False
        rounded: set[str] = set()
        for step in plan.steps:
            reached = [name for name in step.inputs if name in self._source]
            if not reached:
                continue
            source = self._followed(step)
            if source is not None:
                self._chain.append(step)
                self._source[step.output] = source
                if not rounded.isdisjoint(reached) or _rounds(step.operation):
                    rounded.add(step.output)
            elif _asks(step.operation) is not None and (single or rounded.isdisjoint(reached)):
                self.decisions.append(step)
            else:
                self.decisions_alone = False
        self.decide = bool(rounded) if single else bool(self.decisions)
        self.decisions_alone &= self._source.keys().isdisjoint(plan.outputs.values())
        self._single = single

    def thresholds(self, inputs: np.ndarray) -> Iterator[tuple[str, list[tuple[int, int, np.ndarray]]]]:
        """Yield each value that decisions read, with a list of (its column, the function's column, thresholds).

        No two columns of one list depend on the same one of the function's `inputs`, `[columns]`.
        """
        for step in self.decisions:
            asked, source = _asks(step.operation), self._source[step.inputs[0]]
            assert asked is not None
            waiting = [(column, int(source[column]), asked[column]) for column in asked if source[column] >= 0]
            while waiting:
                layer: dict[int, tuple[int, int, np.ndarray]] = {}
                rest = []
                for each in waiting:
                    if layer.setdefault(int(inputs[each[1]]), each) is not each:
                        rest.append(each)
                yield step.inputs[0], list(layer.values())
                waiting = rest

    def compute(self, made: np.ndarray, wanted: str) -> np.ndarray:
        """Return the plan's value `wanted`, given `made`, the function's values `[n, width]`."""
        values = {self._value: torch.from_numpy(made.astype(np.float64))}
        for step in self._chain:
            inputs = [
                values[name] if name in values else torch.zeros((len(made), self._widths[name]), dtype=torch.float64)
                for name in step.inputs
            ]
            parameters = {name: torch.from_numpy(array) for name, array in step.operation.plain_parameters().items()}
            values[step.output] = step.operation.compute_on_cpu(parameters, *inputs)
        return values[wanted].numpy()

    def reading(self, table: Operation, read: str) -> Plan:
        """Return the plan whose decisions read a table of the value `read` in place of the function."""
        tables, chain, decisions = dict[str, str](), {s.output for s in self._chain}, {s.output for s in self.decisions}
        steps: list[Step] = []
        for step in self._plan.steps:
            inputs = tuple(tables.get(name, name) for name in step.inputs)
            if step.output in decisions:
                steps.append(Step(step.operation, inputs, step.output))
                continue
            steps.append(step)
            if step.output == self._value:
                tables[step.output] = self._name(step.output)
                steps.append(Step(table, (read,), tables[step.output]))
            elif step.output in chain and isinstance(step.operation, Float32) and inputs == (tables[self._value],):
                tables[step.output] = tables[self._value]  # the table of a float32 function holds float32 numbers
            elif step.output in chain:
                tables[step.output] = self._name(step.output)
                steps.append(Step(step.operation, inputs, tables[step.output]))
        plan = self._plan.with_steps(steps)
        return plan.with_steps(plan.steps_for(tuple(plan.outputs)))

    def _name(self, value: str) -> str:
        """Return a name for a value that decisions read."""
        name = f"{value}t"
        while name in self._widths:
            name += "t"
        return name

    def _followed(self, step: Step) -> np.ndarray | None:
        """Return the function's column behind each of a step's columns, −1 for none; None if the step mixes them."""
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


def _rounds(operation: Operation) -> bool:
    return isinstance(operation, Float32) or bool(getattr(operation, "single", False))


def _asks(operation: Operation) -> dict[int, np.ndarray] | None:
    """Return, for each column, an operation's inclusive thresholds; None if it does more than compare with them."""
    match operation:
        case TreeEnsemble() if not (operation.flags & CATEGORICAL > 0).any():
            feature, threshold = operation.feature, _unrounded(operation.threshold)
        case SymmetricTrees():
            feature, threshold = operation.feature, operation.threshold
        case Piecewise() if not operation.coefficients[:, :, 1:].any():
            feature = np.repeat(operation.source, operation.knots.shape[1])
            threshold = np.nextafter(operation.knots.ravel(), -np.inf)  # a knot itself belongs to the next constant
        case _:
            return None
    return {column: np.unique(threshold[feature == column]) for column in np.unique(feature[feature >= 0]).tolist()}


def _unrounded(threshold: np.ndarray) -> np.ndarray:
    """Return the largest numbers that do not exceed a threshold when they are rounded to float32, if it is float32."""
    if threshold.dtype != np.float32:
        return threshold
    with np.errstate(over="ignore"):
        middle = (threshold.astype(np.float64) + np.nextafter(threshold, np.float32(np.inf))) / 2
        stays = middle.astype(np.float32) <= threshold  # a tie is rounded to an even number
    unrounded: np.ndarray = np.where(stays, middle, np.nextafter(middle, -np.inf))
    return unrounded


def _table(function: Function, readers: _Readers) -> Operation | None:
    """Return the function as a table, constant between the numbers at which a decision changes, or None."""
    domain = None if function.compute is None else _domain(function)
    if domain is None:
        return None
    first, last, inside = domain
    inputs = function.inputs
    turns = last[inputs] if function.turns is None else _rank(function.turns, function)
    borders: list[list[np.ndarray]] = [[first[column : column + 1]] for column in inputs.tolist()]
    for value, layer in readers.thresholds(inputs):
        search = _Search(function, readers, inside, value, layer)
        places = search.places
        for low, high in ((first[inputs], turns), (turns, last[inputs])):
            for number, found in enumerate(search.changes(low[places], high[places])):
                borders[places[number]].append(found)
    pieces = []
    for place, column in enumerate(inputs.tolist()):
        known = np.unique(np.concatenate(borders[place]))
        ranks = np.repeat(inside[None], len(known), axis=0)
        ranks[:, column] = known
        values = _computed(function, ranks)[:, place].astype(np.float64)
        starts = _number(known, function)
        if first[column] == -_largest(function):
            starts[0] = -np.inf
        else:
            starts, values = np.append(-np.inf, starts), np.append(np.nan, values)
        if last[column] < _largest(function):
            starts, values = np.append(starts, _number(last[column] + 1, function)), np.append(values, np.nan)
        origins = np.append(starts[1] if len(starts) > 1 else 0.0, starts[1:])
        pieces.append(Pieces(starts, origins, values[:, None]))
    return piecewise(inputs, pieces, function.nan_is_zero)


class _Search:
    """Looks for the numbers at which decisions change, for one list of `_Readers.thresholds`.

    `places` are the function's columns, one for each column of the list.
    """

    def __init__(
        self,
        function: Function,
        readers: _Readers,
        inside: np.ndarray,
        value: str,
        layer: list[tuple[int, int, np.ndarray]],
    ) -> None:
        self._function, self._readers, self._inside, self._value = function, readers, inside, value
        self._columns = [column for column, _, _ in layer]
        self.places = np.array([place for _, place, _ in layer])
        self._count = np.array([len(thresholds) for _, _, thresholds in layer])
        rows = int(self._count.max())
        self._limits = np.stack([np.resize(thresholds, rows) for _, _, thresholds in layer], axis=1)

    def changes(self, first: np.ndarray, last: np.ndarray) -> list[np.ndarray]:
        """Return, for each column, the ranks at which a decision differs from that at the rank before.

        `first` and `last`, `[columns]`, are ranks between which the function is monotonic.
        """
        low, high = (np.repeat(ends[None], len(self._limits), axis=0) for ends in (first, last))
        at_low, at_high = self._below(low, self._limits), self._below(high, self._limits)
        for _ in range(SEARCHES):
            middle = (low & high) + ((low ^ high) >> 1)
            as_low = self._below(middle, self._limits) == at_low
            low, high = np.where(as_low, middle, low), np.where(as_low, high, middle)
        counted = np.arange(len(self._limits))[:, None] < self._count
        changing = (at_low != at_high) & counted
        found = [high[changing[:, column], column] for column in range(len(first))]
        rows = np.flatnonzero(changing.any(axis=1))
        for around, stride in AROUND:
            wide = np.zeros(len(rows), dtype=bool)
            offsets = np.arange(-around, around)[:, None] * stride
            at_once = max(1, NUMBERS_AT_ONCE // (2 * around * len(self._inside)))
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                of_part, limits = changing[part], self._limits[part][:, None]
                ranks = np.clip(high[part][:, None] + offsets, first, last)
                numbers = self._numbers(ranks.reshape(-1, len(first))).reshape(ranks.shape)
                below = numbers <= limits
                turned = (below[:, 1:] != below[:, :-1]) & of_part[:, None]
                for column, own in enumerate(found):
                    found[column] = np.append(own, ranks[:, 1:, column][turned[:, :, column]])
                near = np.abs(numbers - limits) <= LAST_BITS * np.spacing(np.abs(limits))
                beyond = (ranks == first) | (ranks == last)
                late = turned[:, : around // 2].any(axis=1) | turned[:, -(around // 2) :].any(axis=1)
                wide[start : start + at_once] = (((near & ~beyond)[:, [0, -1]].any(axis=1) | late) & of_part).any(
                    axis=1
                )
            rows = rows[wide]
        return [np.unique(own) for own in found]

    def _below(self, ranks: np.ndarray, limits: np.ndarray) -> np.ndarray:
        below: np.ndarray = self._numbers(ranks) <= limits
        return below

    def _numbers(self, ranks: np.ndarray) -> np.ndarray:
        """Return the numbers that decisions compare if the function's inputs have these ranks, `[n, columns]`."""
        whole = np.repeat(self._inside[None], len(ranks), axis=0)
        whole[:, self._function.inputs[self.places]] = ranks
        return self._readers.compute(_computed(self._function, whole), self._value)[:, self._columns]


def _domain(function: Function) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the ranks of the first, the last and some number in the domain of each of a function's inputs, or None."""
    width = function.input.width
    tried = _rank(np.array(INSIDE), function)
    takes = np.stack([_takes(function, np.full(width, rank)) for rank in tried])
    if not takes.any(axis=0).all():
        return None
    inside = tried[np.argmax(takes, axis=0)]
    ends = []
    for end in (-_largest(function), _largest(function)):
        known, beyond = inside.copy(), np.full(width, end)
        reached = _takes(function, beyond)
        for _ in range(SEARCHES):
            middle = (known & beyond) + ((known ^ beyond) >> 1)
            good = _takes(function, middle)
            known, beyond = np.where(good, middle, known), np.where(good, beyond, middle)
        ends.append(np.where(reached, end, known))
    return ends[0], ends[1], inside


def _largest(function: Function) -> int:
    """Return the rank of the largest number; no row holds infinity."""
    return int(_rank(np.array([np.finfo(function.dtype).max]), function)[0])


def _takes(function: Function, ranks: np.ndarray) -> np.ndarray:
    """Return the mask of a function's inputs that have an answer at these ranks, `[width]`."""
    found = np.ones(len(ranks), dtype=bool)
    np.logical_and.at(found, function.inputs, ~np.isnan(_computed(function, ranks[None])[0]))
    return found


def _computed(function: Function, ranks: np.ndarray) -> np.ndarray:
    """Return the function's values at the numbers of these ranks."""
    assert function.compute is not None
    with np.errstate(all="ignore"):
        found: np.ndarray = np.asarray(function.compute(_number(ranks, function).astype(function.dtype)))
    return found


def _number(ranks: np.ndarray, function: Function) -> np.ndarray:
    """Return the numbers of these ranks, as float64; zero has the rank 0, and −x the rank of x with the other sign."""
    ranks = np.asarray(ranks)
    size = np.abs(ranks).astype(f"uint{8 * function.dtype.itemsize}").view(function.dtype)
    found: np.ndarray = np.where(ranks < 0, -size, size).astype(np.float64)
    return found


def _rank(numbers: np.ndarray, function: Function) -> np.ndarray:
    """Return the ranks of numbers among those of the function's type, int64."""
    numbers = np.ascontiguousarray(numbers, dtype=function.dtype)
    size = np.abs(numbers).view(f"int{8 * function.dtype.itemsize}").astype(np.int64)
    found: np.ndarray = np.where(numbers < 0, -size, size)
    return found
