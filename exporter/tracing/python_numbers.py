"""Python's own functions of single numbers, on cells: those of the module math, and `float` and `int`.

Compiled code calls them on a number alone, so they are replaced in the modules of the user's own code. Where Python
raises an error, such as for the logarithm of 0 or the exponential of 1,000, the result is NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.cells import Cell, algebra, cast, combined
from triton_regressors.exporter.tracing.expressions import FLOAT, SINGLE
from triton_regressors.exporter.tracing.patches import StandingType
from triton_regressors.exporter.tracing.refusal import Untraceable

SAME_NAMES = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "degrees"),
    *("exp", "exp2", "expm1", "fabs", "floor", "fmod", "hypot", "isfinite", "isinf", "isnan", "log10", "log1p"),
    *("log2", "pow", "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "atan2", "erf", "erfc"),
)
"""Functions of math that are instructions of the same name, or of the name in `algebra.SAME`."""

WHOLE = frozenset({"ceil", "floor", "trunc"})
"""Functions whose results are whole numbers in Python and floats in numpy."""


def math_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that stand for those of math, by name: with a cell as an argument they record it."""
    found = {name: _recording(name) for name in SAME_NAMES if hasattr(math, name)}
    return found | {"log": functools.wraps(math.log)(_log), "isclose": _refused(math.isclose, "numpy.isclose")}


def _recording(name: str) -> Callable[..., Any]:
    original = getattr(math, name)

    @functools.wraps(original)
    def function(*values: Any) -> Any:
        if not any(isinstance(value, Cell) for value in values):
            return original(*values)
        if len(values) > 2:
            raise Untraceable(f"it calls math.{name} with {len(values)} values", "Use numpy's functions and operators")
        made = combined(name, *values) if len(values) == 2 else _unary(name, values[0])
        return cast(made, np.int64) if name in WHOLE else _raised(made, *values)

    return function


def _unary(name: str, value: Cell) -> Cell:
    return Cell(algebra().unary(name, value.expression), value.row)


def _raised(made: Cell, *values: Any) -> Cell:
    """Return NaN in place of an infinite result of finite values, at which Python raises an error."""
    own, found = algebra(), made.expression
    if found.kind.name not in (FLOAT, SINGLE):
        return made
    finite = [own.unary("isfinite", value.expression) for value in values if isinstance(value, Cell)]
    error = own.folded("logical_and", [own.unary("isinf", found), *finite])
    return Cell(own.where(error, math.nan, found), made.row)


def _log(value: Any, *base: Any) -> Any:
    if not any(isinstance(each, Cell) for each in (value, *base)):
        return math.log(value, *base)
    natural = _logarithm(value)
    return natural / _logarithm(base[0]) if base else natural


def _logarithm(value: Any) -> Any:
    return _raised(_unary("log", value), value) if isinstance(value, Cell) else math.log(value)


def _refused(original: Callable[..., Any], instead: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*values: Any, **keywords: Any) -> Any:
        if any(isinstance(value, Cell) for value in values):
            raise Untraceable(f"it calls math.{original.__name__} of a cell", f"Use {instead}")
        return original(*values, **keywords)

    return function


class Float(float, metaclass=StandingType):
    """Stands for `float`: a cell becomes a cell of a float."""

    original, dtype = float, np.dtype(np.float64)

    @staticmethod
    def holds(value: Any) -> bool:
        """Return whether a value is a cell of a float."""
        return isinstance(value, Cell) and value.expression.kind.name in (FLOAT, SINGLE)

    def __new__(cls, *value: Any) -> Any:
        """Return a cell for a cell, and otherwise what `float` returns."""
        return _number(value[0], np.float64) if value and isinstance(value[0], Cell) else float(*value)


class Int(int, metaclass=StandingType):
    """Stands for `int`: a cell becomes a cell of a whole number, without its fraction."""

    original, dtype = int, np.dtype(np.int64)

    def __new__(cls, *value: Any, **base: Any) -> Any:
        """Return a cell for a cell, and otherwise what `int` returns."""
        return _number(value[0], np.int64) if value and isinstance(value[0], Cell) else int(*value, **base)


def _number(cell: Cell, dtype: Any) -> Any:
    if not cell.expression.kind.number:
        raise Untraceable(
            f"it takes a cell of kind {cell.expression.kind.name} as a number", "Use the methods of its column"
        )
    return cast(cell, dtype)


BUILTINS: dict[str, Any] = {"float": Float, "int": Int}
"""The names of built-in types in the user's own code, and what stands for them."""
