"""Expressions: what a traced function does to the cells of one row, as a graph.

An expression is a leaf (a column of the input), a constant, or an instruction with its arguments. Equal expressions are
one object, so a graph has each subexpression once and `is` compares.

In a plan every value is a float64: a boolean is 0 or 1, a string its number among known strings, a date the
microseconds since 1970 in UTC, and a duration microseconds. NaN is a missing value of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.refusal import Untraceable

FLOAT, SINGLE, INTEGER, BOOLEAN, TEXT, DATE, DURATION = (
    "float64",
    "float32",
    "int64",
    "bool",
    "string",
    "date",
    "duration",
)
NUMBERS = frozenset({FLOAT, SINGLE, INTEGER, BOOLEAN})
"""The kinds of numbers."""


@dataclass(frozen=True)
class Kind:
    """The type of an expression's value: its `name`; for dates also the unit, "s" to "ns", and the zone if any.

    `assumed` says that no sample told the type of a column. `polars` is the `PolarsType` of a column of polars.
    """

    name: str
    unit: str | None = None
    zone: str | None = None
    assumed: bool = False
    polars: Any = None

    @property
    def number(self) -> bool:
        """Return whether the value is a number."""
        return self.name in NUMBERS


class Expression:
    """A node of the graph: an operation's name, its arguments, and the kind of its value.

    `operation` is "leaf", whose argument is a column of the input; "constant", whose argument is its value; or the name
    of an instruction. Arguments are expressions first, and then anything that the instruction needs beside them.
    """

    __slots__ = ("arguments", "kind", "operation")

    def __init__(self, operation: str, arguments: tuple[Any, ...], kind: Kind) -> None:
        self.operation, self.arguments, self.kind = operation, arguments, kind

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The arguments that are expressions."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Expression))

    @property
    def constant(self) -> bool:
        """Return whether the expression is a constant."""
        return self.operation == "constant"

    def leaves(self) -> set[int]:
        """Return the columns of the input that the value depends on."""
        return {each.arguments[0] for each in walk([self]) if each.operation == "leaf"}

    def __repr__(self) -> str:
        return f"{self.operation}({', '.join(map(repr, self.arguments))})"


class Graph:
    """The expressions of one trace. `make` returns the expression that exists, or a new one."""

    def __init__(self) -> None:
        self._made: dict[Any, Expression] = {}

    def make(self, operation: str, *arguments: Any, kind: Kind) -> Expression:
        """Return the expression of an operation with these arguments."""
        key = (operation, *map(_key, arguments), kind)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Expression(operation, arguments, kind)
        return found

    def leaf(self, column: int, kind: Kind) -> Expression:
        """Return a column of the input."""
        return self.make("leaf", column, kind=kind)

    def constant(self, value: Any, kind: Kind) -> Expression:
        """Return a constant."""
        return self.make("constant", value, kind=kind)


def _key(argument: Any) -> Any:
    """Return a hashable key that tells arguments apart: −0 from 0, and an array by its bytes."""
    if isinstance(argument, Expression):
        return id(argument)
    if isinstance(argument, np.ndarray):
        return argument.shape, argument.tobytes()
    if isinstance(argument, float):
        return np.float64(argument).tobytes()
    if isinstance(argument, tuple):
        return tuple(map(_key, argument))
    if callable(argument):
        return "callable"  # a name and a key beside it tell one from another
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return type(argument).__name__, argument


def walk(roots: list[Expression], into: Callable[[Expression], bool] = lambda _: True) -> Iterator[Expression]:
    """Yield every expression that these depend on, arguments first; `into` says whose arguments are visited too."""
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expression, visited = stack.pop()
        if visited:
            yield expression
        elif id(expression) not in seen:
            seen.add(id(expression))
            stack.append((expression, True))
            if into(expression):
                stack.extend((each, False) for each in reversed(expression.inputs))


def common(kinds: list[Kind]) -> Kind:
    """Return the kind that holds values of all these kinds, as numpy promotes them."""
    names = {kind.name for kind in kinds}
    if len(names) == 1:
        return kinds[0]
    if not names <= NUMBERS:
        raise Untraceable(f"it puts {' and '.join(sorted(names))} values into one column")
    return Kind(str(np.result_type(*sorted(names))))
