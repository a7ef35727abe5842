"""Expressions of a few programs, of many and of many columns, for the tests that every operation must pass."""

from collections.abc import Sequence

import numpy as np

from triton_regressors.kernels.numerics.functions import FUNCTIONS
from triton_regressors.kernels.numerics.instructions import INSTRUCTIONS, arguments_of
from triton_regressors.kernels.ops.columns.expression import Expression, Program
from triton_regressors.kernels.plan.plan import Operation

CLIPPED: Program = (("maximum", "x0", "c0"), ("minimum", "v0", "c1"), ("log1p", "v1"))
RATIO: Program = (("subtract", "x1", "x0"), ("absolute", "x1"), ("add", "v1", "c0"), ("divide", "v0", "v2"))
CHOSEN: Program = (
    ("greater", "x0", "x1"),
    ("less", "x0", "c0"),
    ("logical_and", "v0", "v1"),
    ("square", "x1"),
    ("remainder", "x1", "c1"),
    ("where", "v2", "v3", "v4"),
)
MONTH: Program = (("multiply", "x0", "c0"), ("floor", "v0"), ("civil_month", "v1"))
WHEN: Program = (("multiply", "x0", "c0"), ("floor_divide", "v0", "c1"), ("civil_year", "v1"), ("float32", "v2"))


def expression(width: int, programs: Sequence[tuple[Program, int]], seed: int = 0) -> Expression:
    """Return an expression of programs with these numbers of lanes, which read columns and constants at random."""
    rng = np.random.default_rng(seed)
    lanes = np.array([count for _, count in programs], dtype=np.int32)
    columns, constants = [np.zeros(0, dtype=np.int32)], [np.zeros(0)]
    for program, count in programs:
        kinds = [{each for _, *found in program for each in found if each[0] == kind} for kind in "xc"]
        columns.append(rng.integers(0, width, count * len(kinds[0])).astype(np.int32))
        constants.append(np.sort(rng.uniform(0.1, 3.0, (count, len(kinds[1]))), axis=1).ravel())
    return Expression(
        tuple(program for program, _ in programs), lanes, np.concatenate(columns), np.concatenate(constants)
    )


def instruction(name: str) -> Program:
    """Return the program of one instruction, of as many inputs as it has arguments."""
    return ((name, *(f"x{k}" for k in range(arguments_of(name)))),)


def own_instructions() -> Expression:
    """Return an expression of each instruction that is not only a function of `numerics/functions.py`."""
    names = [name for name in INSTRUCTIONS if name not in FUNCTIONS or name in ("negative", "sign", "rint", "log")]
    return expression(5, [(instruction(name), 1) for name in names])


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "expression": (
        expression(6, [(CLIPPED, 3), (RATIO, 1), (CHOSEN, 5), (MONTH, 1), (WHEN, 2), ((("identity", "x0"),), 2)]),
        (6,),
    ),
    "expression of a column": (
        Expression(((("negative", "x0"), ("hypot", "v0", "c0")),), np.array([1]), np.array([0]), np.array([2.0])),
        (1,),
    ),
    "expression of many columns": (expression(90, [(CLIPPED, 70)]), (90,)),
    "expression of many programs": (expression(9, [(RATIO, 1), (CHOSEN, 1)] * 15), (9,)),
    "expression in two launches": (expression(4, [(CLIPPED * 70, 2), (RATIO, 1)]), (4,)),
    "expression of constants": (
        Expression(((("identity", "c0"),),), np.array([2]), np.zeros(0, dtype=np.int32), np.array([1.0, -0.5])),
        (3,),
    ),
}
