"""Expressions against the same formulas in NumPy, how their work is shared out, and what does not fit."""

import json
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_expression import CHOSEN, CLIPPED, MONTH, RATIO, expression
from tests.kernels.test_ops import drawn, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns import expression as module
from triton_regressors.kernels.ops.columns.expression import Expression, Program
from triton_regressors.kernels.ops.columns.launch import LAUNCH_GROUPS, LAUNCH_INSTRUCTIONS
from triton_regressors.kernels.plan.plan import Plan, Step

PROGRAMS = (RATIO, CHOSEN, MONTH, CLIPPED)
FEW = np.array([0], dtype=np.int32)


def numbers(width: int, rows: int, seed: int = 0) -> np.ndarray:
    """Return numbers of which some are NaN, infinite, zero or whole."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width)) * 10.0 ** rng.integers(-2, 4, (rows, width))
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0])
    return np.where(rng.random(x.shape) < 0.2, rng.choice(special, x.shape), x)


def by_numpy(op: Expression, x: np.ndarray) -> np.ndarray:
    """Return the four programs of this module as NumPy computes them, lane by lane."""
    answers, columns, constants = [], iter(op.columns.tolist()), iter(op.constants.tolist())
    for program, lanes in zip(op.programs, op.lanes.tolist(), strict=True):
        for _ in range(lanes):
            a = x[:, next(columns)]
            if program == RATIO:
                b, c = x[:, next(columns)], next(constants)
                answers.append((b - a) / (np.abs(b) + c))
            elif program == CHOSEN:
                b, c, d = x[:, next(columns)], next(constants), next(constants)
                answers.append(np.where((a > b) & (a < c), b**2, b % d))
            elif program == MONTH:
                days = np.floor(a * next(constants))
                known = np.isfinite(days)
                months = np.where(known, days, 0).astype("datetime64[D]").astype("datetime64[M]").astype(int) % 12 + 1
                answers.append(np.where(known, months, np.nan))
            else:
                low, high = next(constants), next(constants)
                answers.append(np.log1p(np.clip(a, low, high)))
    return np.stack(answers, axis=1)


def check(op: Expression, x: np.ndarray, device: torch.device) -> None:
    """Demand the bits of NumPy of every program but the one with a logarithm."""
    close = np.repeat([program == CLIPPED for program in op.programs], op.lanes)
    with np.errstate(all="ignore"):
        expected = by_numpy(op, x)
        for found in (run_reference(op, [x]), run_on_cpu(op, [x]), run_kernel(op, [x], device, torch.float64)):
            assert (found.dtype, found.shape) == (np.float64, expected.shape)
            np.testing.assert_array_equal(found[:, ~close], expected[:, ~close])
            np.testing.assert_allclose(found[:, close], expected[:, close], rtol=1e-15)


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy


@drawn
@given(
    width=st.integers(1, 9),
    groups=st.lists(st.tuples(st.sampled_from(PROGRAMS), st.integers(1, 5)), min_size=1, max_size=6),
    rows=st.sampled_from([0, 1, 2, 31, 70, 511, 512, 513, 1100]),
    seed=seeds,
)
def test_programs(device: torch.device, width: int, groups: list[tuple[Program, int]], rows: int, seed: int) -> None:
    check(expression(width, groups, seed), numbers(width, rows, seed), device)


@pytest.mark.parametrize("rows", [1, 3, 600])
def test_a_program_of_many_columns(device: torch.device, rows: int) -> None:
    check(expression(300, [(CLIPPED, 300), (RATIO, 1)]), numbers(300, rows), device)


@pytest.mark.parametrize("rows", [1, 40])
def test_many_programs(device: torch.device, rows: int) -> None:
    check(expression(12, [(program, 1) for program in PROGRAMS * 15]), numbers(12, rows), device)


def test_a_float32_matrix_is_read_and_written(device: torch.device) -> None:
    op, x = expression(5, [(RATIO, 3), (CHOSEN, 1)]), numbers(5, 70).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = by_numpy(op, x.astype(np.float64))
        assert np.array_equal(run_on_cpu(op, [x]), expected, equal_nan=True)
        found = run_kernel(op, [x], device)
        assert np.array_equal(found, expected.astype(np.float32), equal_nan=True)


def test_a_long_program_and_products_that_are_rounded_before_they_are_added(device: torch.device) -> None:
    """A product and a sum in one rounding would give another number in about half of the rows."""
    steps, value, x = [], "x0", numbers(2, 50)
    expected = x[:, 0]
    with np.errstate(all="ignore"):
        for number in range(75):
            steps += [("multiply", value, "c0"), ("add", f"v{2 * number}", "x1")]
            value, expected = f"v{2 * number + 1}", expected * 0.7 + x[:, 1]
        op = Expression((tuple(steps),), np.array([1]), np.array([0, 1]), np.array([0.7]))
        for found in (run_reference(op, [x]), run_on_cpu(op, [x]), run_kernel(op, [x], device, torch.float64)):
            np.testing.assert_array_equal(found[:, 0], expected)


@pytest.mark.parametrize(
    ("programs", "launches"),
    [
        ([RATIO], 1),
        ([RATIO] * LAUNCH_GROUPS, 1),
        ([RATIO] * (LAUNCH_GROUPS + 1), 2),
        ([RATIO * (LAUNCH_INSTRUCTIONS // 4), MONTH], 2),
        ([MONTH, RATIO * (LAUNCH_INSTRUCTIONS // 2)], 2),
    ],
)
def test_a_kernel_evaluates_so_many_programs(programs: list[Program], launches: int) -> None:
    op = expression(4, [(program, 2) for program in programs])
    with mock.patch.object(module, "expression_kernel", mock.MagicMock()) as kernel:
        run_kernel(op, [np.ones((3, 4))], torch.device("cpu"))
    assert op.launches(1) == launches == kernel.__getitem__.call_count


def test_json_and_arrays_hold_the_whole_operation() -> None:
    for op in (expression(6, [(CLIPPED, 3), (RATIO, 1)]), Expression(((("identity", "x0"),),), np.array([1]), FEW)):
        plan = Plan(6, (Step(op, ("X",), "v0"),), {"y": "v0"})
        read = Plan.from_json(json.loads(json.dumps(plan.to_json())), plan.to_tensors()).steps[0].operation
        assert isinstance(read, Expression)
        assert read.programs == op.programs
        for (name, found), (_, expected) in zip(read.arrays(), op.arrays(), strict=True):
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist()), name


def test_reads_input_once_and_hides_nan() -> None:
    once = Expression((RATIO,), np.array([2]), np.array([0, 1, 2, 3]), np.ones(2))
    assert once.reads_input_once()
    assert not once.hides_nan()
    twice = Expression((CHOSEN,), np.array([2]), np.array([0, 1, 2, 1]), np.ones(4))
    assert not twice.reads_input_once()
    assert twice.hides_nan()


def test_describe() -> None:
    op = expression(4, [(CLIPPED, 3), (RATIO, 1)])
    assert op.describe() == "4 columns of 2 programs, 7 instructions"
    assert repr(op) == "Expression(4 columns of 2 programs, 7 instructions, 14 parameters)"


def of(*program: tuple[str, ...], columns: int = 1, constants: int = 0, lanes: int = 1) -> Expression:
    return Expression((program,), np.array([lanes]), np.zeros(columns, dtype=np.int32), np.zeros(constants))


NEGATIVE: Program = (("negative", "x0"),)
WRONG = {
    "no programs": (Expression((), np.zeros(0, int), FEW), "lanes must be at least 1 for each of 0 programs."),
    "lanes": (Expression((NEGATIVE,), np.array([1, 1]), FEW), "lanes must be at least 1 for each of 1 programs."),
    "no lanes": (of(*NEGATIVE, lanes=0), "lanes must be at least 1 for each of 1 programs."),
    "nothing": (of(), "program 0 has no instruction."),
    "name": (of(("sine", "x0")), "program 0: there is no instruction 'sine'; there are absolute, add, "),
    "few": (of(("add", "x0")), "program 0: 'add' has 2 arguments, not 1."),
    "many": (of(("floor", "x0", "c0")), "program 0: 'floor' has 1 arguments, not 2."),
    "argument": (of(("add", "x0", "1.5")), "program 0: 'add' reads '1.5'; an argument is x0, x1, … or c0, c1, … or"),
    "zero": (of(("floor", "x00")), "program 0: 'floor' reads 'x00'; an argument is"),
    "itself": (of(("floor", "v0")), "program 0: 'floor' reads 'v0'; an argument is"),
    "later": (of(("floor", "x0"), ("add", "v0", "v1")), "program 0: 'add' reads 'v1'; an argument is"),
    "columns": (of(*NEGATIVE, columns=2), "columns must be [1], not [2]."),
    "constants": (of(("add", "x0", "c1")), "constants must be [2], not [0]."),
    "range": (Expression((NEGATIVE,), np.array([2]), np.array([0, 3])), "columns must lie in [0, 3)."),
    "below": (Expression((NEGATIVE,), np.array([1]), np.array([-1])), "columns must lie in [0, 3)."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(3)
    assert str(raised.value).startswith("expression: ")
    assert message in str(raised.value)
