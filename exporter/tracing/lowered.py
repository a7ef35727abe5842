"""From a trace to steps of a plan.

Everything that one number after another can be computed from is an instruction of the operation `expression`: all
columns of a function are usually one step. Tables (strings, dictionaries), bins, interpolation, zones and long sums are
operations of their own; what they read is computed before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import Pieces, add_pieces, constant_pieces, interpolation
from triton_regressors.exporter.tracing.dates import zone_offsets
from triton_regressors.exporter.tracing.expressions import Expression, walk
from triton_regressors.kernels.numerics.instructions import EXACT
from triton_regressors.kernels.ops.columns.expression import Expression as Operation
from triton_regressors.kernels.ops.columns.lookup import Lookup

APART = frozenset({"lookup", "places", "interp", "zone_offset", "dot", "model"})
"""Expressions that are operations of their own."""

RISING = frozenset(
    {
        *("identity", "float32", "log", "log1p", "log2", "log10", "exp", "exp2", "exp10", "expm1", "sqrt", "cbrt"),
        *("arcsinh", "arctan", "tanh", "expit", "arcsin", "sinh", "floor", "ceil", "trunc", "rint", "ndtr", "ndtri"),
        *("erf", "logit", "log_expit", "radians", "degrees", "relu", "arccosh", "arctanh"),
    }
)
"""Functions that rise throughout their domain."""

MOST_INSTRUCTIONS = 128
"""The most instructions of the programs of one step."""

Ask = Callable[[np.ndarray], np.ndarray]
"""The user's own function of a matrix of float64 numbers, `[n, columns]`, which returns `[n, results]`."""


@dataclass(frozen=True)
class _At:
    """The place of an expression's values: a column of a value of the plan."""

    value: Value
    column: int


class Lowered:
    """Adds the steps for expressions of the columns of `x` to a plan."""

    def __init__(self, builder: Builder, x: Value, names: Sequence[Any] = ()) -> None:
        self._builder, self._x, self._names = builder, x, tuple(names)
        self._known: dict[Expression, _At] = {}

    def columns(self, roots: Sequence[Expression], ask: Ask | None, transformer: Any) -> Value:
        """Return a value with a column for each expression.

        Columns of `x` stay marked as what they are. With `ask` decisions behind a rising or falling function of one
        column read a table of the user's own function.
        """
        for expression in walk(list(roots)):
            if expression.operation == "leaf":
                self._known[expression] = _At(self._x, expression.arguments[0])
        self._add_made(roots)
        self._add_apart(roots)
        self._shorten(roots)
        leaves = [root for root in roots if root.operation == "leaf"]
        handed = [root for root in roots if root.operation == "made"]
        made = [root for root in roots if root.operation not in ("leaf", "made")]
        tabled = [root for root in made if ask is not None and not _exact(root) and _direction(root)]
        plain = [root for root in made if root not in tabled]
        parts: list[tuple[list[Expression], Value]] = []
        if leaves:
            columns = [leaf.arguments[0] for leaf in leaves]
            whole = columns == list(range(self._x.width))
            parts.append((leaves, self._x if whole else self._builder.columns(self._x, columns)))
        if handed:
            parts.append((handed, self._builder.made([root.arguments for root in handed])))
        if plain:
            parts.append((plain, self._computed(plain)))
        if tabled:
            value = self._computed(tabled)
            places = [roots.index(root) for root in tabled]
            inputs = [next(iter(root.leaves())) for root in tabled]

            def compute(X: np.ndarray) -> np.ndarray:
                return ask(X)[:, places]  # type: ignore[misc]

            parts.append((tabled, self._builder.computed(value, self._x, compute, transformer, inputs)))
        together = self._builder.concatenate([value for _, value in parts])
        order = [root for part, _ in parts for root in part]
        wanted = [order.index(root) for root in roots]
        return together if wanted == list(range(together.width)) else self._builder.columns(together, wanted)

    # Operations of their own

    def _add_apart(self, roots: Sequence[Expression]) -> None:
        """Add the operations that are no instructions, those first that read no others."""
        level: dict[Expression, int] = {}
        for expression in walk(list(roots)):
            below = max((level[each] for each in expression.inputs), default=0)
            level[expression] = below + (expression.operation in APART)
        apart = [each for each in level if each.operation in APART]
        for depth in sorted({level[each] for each in apart}):
            self._add_level([each for each in apart if level[each] == depth])

    def _add_level(self, apart: Sequence[Expression]) -> None:
        read = list(dict.fromkeys(argument for each in apart for argument in each.inputs))
        self._shorten(read)
        missing = [each for each in read if each not in self._known]
        if missing:
            self._place(missing, self._computed(missing))
        tables = [each for each in apart if each.operation not in ("dot", "model")]
        for value in dict.fromkeys(self._known[each.inputs[0]].value.name for each in tables):
            self._add_tables([each for each in tables if self._known[each.inputs[0]].value.name == value])
        for each in apart:
            if each.operation == "dot":
                self._add_sum(each)
        for answers in _together([each for each in apart if each.operation == "model"]):
            self._add_model(answers)

    def _add_tables(self, apart: Sequence[Expression]) -> None:
        """Add the lookups and the piecewise functions of columns of one value."""
        value = self._known[apart[0].inputs[0]].value
        lookups = [each for each in apart if each.operation == "lookup"]
        if lookups:
            self._place(lookups, self._builder.add(_lookup(lookups, self._columns_of(lookups)), value))
        pieces = [each for each in apart if each.operation != "lookup"]
        if pieces:
            functions = [_pieces(each) for each in pieces]
            self._place(pieces, add_pieces(self._builder, value, self._columns_of(pieces), functions))

    def _add_made(self, roots: Sequence[Expression]) -> None:
        """Add the columns that the entry makes of strings and that are read by other expressions."""
        read = [each for root in roots if root.operation != "made" for each in walk([root])]
        made = list(dict.fromkeys(each for each in read if each.operation == "made"))
        if made:
            self._place(made, self._builder.made([each.arguments for each in made]))

    def _add_sum(self, total: Expression) -> None:
        *_, weights = total.arguments
        terms = total.inputs
        self._place([total], self._builder.affine(self._gathered(terms), np.asarray(weights, dtype=np.float64), 0.0))

    def _add_model(self, answers: Sequence[Expression]) -> None:
        """Add the steps of a fitted model that the code calls, for all of its columns that are read."""
        (_, method), name, _, holder = answers[0].arguments[-4:]
        x, estimator = self._gathered(answers[0].inputs), holder()
        with self._builder.at(name):
            if method == "predict":
                value = self._builder.lower(estimator, x)
            elif method == "transform":
                value = self._builder.lower_transform(estimator, x)
            else:
                value = self._builder.lower_inverse(estimator, x)
        for each in answers:
            self._known[each] = _At(value, each.arguments[-2])

    def _columns_of(self, apart: Sequence[Expression]) -> np.ndarray:
        return np.array([self._known[each.inputs[0]].column for each in apart], dtype=np.int32)

    def _gathered(self, expressions: Sequence[Expression]) -> Value:
        """Return a value with a column for each known expression."""
        values = {self._known[each].value.name: self._known[each].value for each in expressions}
        if len(values) > 1:
            parts = [self._builder.columns(self._known[e].value, [self._known[e].column]) for e in expressions]
            return self._builder.concatenate(parts)
        (value,) = values.values()
        columns = [self._known[each].column for each in expressions]
        return value if columns == list(range(value.width)) else self._builder.columns(value, columns)

    def _place(self, expressions: Sequence[Expression], value: Value) -> None:
        for column, each in enumerate(expressions):
            self._known[each] = _At(value, column)

    # Instructions

    def _shorten(self, roots: Sequence[Expression]) -> None:
        """Compute parts of expressions that are too long for one program first."""
        while True:
            sizes = {root: len(self._instructions(root)) for root in roots if root not in self._known}
            long = [root for root, size in sizes.items() if size > MOST_INSTRUCTIONS]
            if not long:
                return
            part = next(
                each for each in self._instructions(long[0]) if len(self._instructions(each)) >= MOST_INSTRUCTIONS // 2
            )
            self._place([part], self._computed([part]))

    def _instructions(self, root: Expression) -> list[Expression]:
        """Return the instructions of an expression's program, in order."""
        return [
            each
            for each in walk([root], lambda each: each not in self._known)
            if each not in self._known and not each.constant
        ]

    def _computed(self, roots: Sequence[Expression]) -> Value:
        """Return a value with a column for each expression, in as few steps as programs allow."""
        parts: list[tuple[list[Expression], Value]] = []
        waiting, length = list[Expression](), 0
        for root in roots:
            size = len(self._instructions(root))
            if waiting and length + size > MOST_INSTRUCTIONS:
                parts.append(self._step(waiting))
                waiting, length = [], 0
            waiting.append(root)
            length += size
        parts.append(self._step(waiting))
        value = self._builder.concatenate([part for _, part in parts])
        order = [root for part, _ in parts for root in part]
        wanted = [order.index(root) for root in roots]
        return value if wanted == list(range(value.width)) else self._builder.columns(value, wanted)

    def _step(self, roots: Sequence[Expression]) -> tuple[list[Expression], Value]:
        """Add one step; columns with the same program stand together."""
        programs = [self._program(root) for root in roots]
        read = list(dict.fromkeys(each for _, inputs, _ in programs for each in inputs))
        source = self._source(read)
        groups: dict[Any, list[int]] = {}
        for place, (program, _, _) in enumerate(programs):
            groups.setdefault(program, []).append(place)
        order = [place for places in groups.values() for place in places]
        operation = Operation(
            tuple(groups),
            np.array([len(places) for places in groups.values()], dtype=np.int32),
            np.array([source.column(each) for place in order for each in programs[place][1]], dtype=np.int32),
            np.array([number for place in order for number in programs[place][2]], dtype=np.float64),
        )
        return [roots[place] for place in order], self._builder.add(operation, source.value)

    def _source(self, read: Sequence[Expression]) -> _Source:
        values = {self._known[each].value.name: self._known[each].value for each in read}
        if len(values) <= 1:
            value = next(iter(values.values()), self._x)
            return _Source(value, {each: self._known[each].column for each in read})
        return _Source(self._gathered(read), {each: column for column, each in enumerate(read)})

    def _program(self, root: Expression) -> tuple[tuple[tuple[str, ...], ...], list[Expression], list[float]]:
        """Return an expression's program, the expressions that it reads and its constants."""
        inputs: dict[Expression, str] = {}
        constants: list[float] = []
        names: dict[Expression, str] = {}

        def argument(each: Expression) -> str:
            if each in self._known:
                return inputs.setdefault(each, f"x{len(inputs)}")
            if each.constant:
                constants.append(float(each.arguments[0]))
                return f"c{len(constants) - 1}"
            return names[each]

        program = []
        for each in self._instructions(root):
            program.append((each.operation, *map(argument, each.inputs)))
            names[each] = f"v{len(program) - 1}"
        if not program:
            program.append(("identity", argument(root)))
        return tuple(program), list(inputs), constants


@dataclass(frozen=True)
class _Source:
    """The value that a step reads, and the column of each expression in it."""

    value: Value
    columns: dict[Expression, int]

    def column(self, expression: Expression) -> int:
        return self.columns[expression]


def _together(answers: Sequence[Expression]) -> list[list[Expression]]:
    """Return the answers of models by what is asked: the same model and method, and the same inputs."""
    found: dict[Any, list[Expression]] = {}
    for each in answers:
        found.setdefault((each.arguments[-4], each.inputs), []).append(each)
    return list(found.values())


def _lookup(lookups: Sequence[Expression], columns: np.ndarray) -> Lookup:
    """Return the operation of some tables."""
    keys = [each.arguments[1] for each in lookups]
    tables = [each.arguments[2] for each in lookups]
    counts = [len(own) for own in keys]
    numbers = [*(table[:count] for table, count in zip(tables, counts, strict=True))]
    missing = [table[count] for table, count in zip(tables, counts, strict=True)]
    unknown = [table[count + 1] for table, count in zip(tables, counts, strict=True)]
    return Lookup(
        columns,
        np.cumsum([0, *counts], dtype=np.int32),
        np.concatenate(keys),
        np.concatenate([*numbers, missing, unknown])[:, None],
    )


def _pieces(expression: Expression) -> Pieces:
    """Return the piecewise function that an expression is of its argument."""
    match expression.operation:
        case "places":
            _, edges, right = expression.arguments
            first = np.nextafter(edges, np.inf) if right else edges  # the first number above an edge
            return constant_pieces(first, np.arange(len(edges) + 1.0))
        case "interp":
            _, places, values, ends = expression.arguments
            return interpolation(places, values, *ends)
    _, zone = expression.arguments
    return constant_pieces(*zone_offsets(zone))


def _exact(root: Expression) -> bool:
    """Return whether an expression's bits are numpy's on every processor."""
    return all(
        each.operation in EXACT or each.operation in ("leaf", "made", "constant", "lookup", "places", "zone_offset")
        for each in walk([root])
    )


def _direction(root: Expression) -> int:
    """Return 1 for a function of one column that rises, −1 for one that falls, 0 for any other."""
    if len(root.leaves()) != 1:
        return 0
    found: dict[Expression, int | None] = {}
    for each in walk([root]):
        found[each] = _turn(each, [found[argument] for argument in each.inputs])
    return found[root] or 0


def _turn(expression: Expression, directions: list[int | None]) -> int | None:
    """Return an expression's direction given those of its arguments: 0 for a constant, None for one without."""
    name = expression.operation
    if name == "leaf":
        return 1
    if name == "constant":
        return 0
    if None in directions:
        return None
    if name in RISING:
        return directions[0]
    if name == "negative":
        return -(directions[0] or 0)
    if name == "subtract":
        directions, name = [directions[0], -(directions[1] or 0)], "add"
    if name in ("add", "minimum", "maximum"):
        signs = set(directions) - {0}
        return (next(iter(signs), 0)) if len(signs) <= 1 else None
    if name in ("multiply", "divide") and 0 in directions:
        moving = 0 if directions[0] else 1
        constant = expression.inputs[1 - moving]
        if constant.constant and (name == "multiply" or moving == 0) and constant.arguments[0] != 0:
            return (directions[moving] or 0) * (1 if constant.arguments[0] > 0 else -1)
    return None
