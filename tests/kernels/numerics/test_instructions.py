"""Every instruction of expressions against NumPy's function of that name: the same bits if it is exact."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_expression import expression, instruction
from tests.kernels.ops.columns.test_elementwise import NUMPY as FUNCTIONS
from triton_regressors.kernels.numerics.instructions import (
    BINARY,
    EXACT,
    HIDES_NAN,
    INSTRUCTIONS,
    TERNARY,
    UNARY,
    arguments_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

NUMPY: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in INSTRUCTIONS if hasattr(np, name)},
    **FUNCTIONS,
    "float32": lambda x: x.astype(np.float32),
    "where": lambda condition, x, y: np.where(condition != 0, x, y),
}
SIGN_OF_ZERO = ("fmax", "fmin", "maximum", "minimum")
"""Instructions that may return either of two zeros."""

TOLERANCE = {"arcsinh": 5e-12, "arctanh": 5e-12, "exp10": 3e-13, "exp2": 3e-13, "power": 3e-13, "tanh": 5e-13}
"""The relative error of an instruction that is not exact, by default 1e-13: `numerics/functions.py` says how it is."""

CANCELS = ("cos", "logit", "ndtri", "sin", "tan")
"""Instructions that are as exact as that near a zero that is not at zero: within 1e-15."""

ANY_SIZE = ("arccosh", "arcsinh", "arctan", "log", "log10", "log1p", "log2", "sqrt", "tanh")
"""Instructions that are as exact for the largest numbers, of which no square or product overflows."""

NEAR_ONE = [np.nextafter(1.0, 0), 1.0, np.nextafter(1.0, 2)]
MAGNITUDES = [
    *(0.0, 5e-324, 1e-310, 2.0**-1022, 1e-300, 1e-45, 1e-30, 1e-9, 9e-5, 2e-4, 0.1, 0.3, 0.5, *NEAR_ONE, 1.5, 2.0, 2.5),
    *(3.0, 3.5, 7.0, 10.0, 90.0, 127.5, 1e5 + 0.5, 2.0**24 + 1, 3.4028235e38, 3.4028236e38, 2.0**52 - 0.5, 2.0**52 + 1),
    *(2.0**53, 2.0**53 + 2, 1e19, 1e100, 1e300, 1.7976931348623157e308, np.inf),
]
HARD = np.array([*MAGNITUDES, *(-x for x in MAGNITUDES), np.nan])
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.0, 5e-324, 1e300, np.inf, -np.inf, np.nan])


def rows_for(name: str, seed: int = 0) -> np.ndarray:
    """Return hard numbers in every combination, and many drawn ones, also with whole quotients and equal numbers."""
    rng = np.random.default_rng(seed)
    count = arguments_of(name)
    hard = {1: HARD, 2: HARD, 3: SPECIAL}[count]
    x = rng.standard_normal((1200, count)) * 10.0 ** rng.integers(-3, 4, (1200, count))
    x[:300] = np.round(x[:300])
    x[300:500] = x[300:500, :1] * rng.integers(1, 9, (200, count)) / 8
    any_bits = rng.integers(-(2**63), 2**63 - 1, (500, count)).view(np.float64)
    found = np.concatenate([np.array(list(itertools.product(hard, repeat=count))), x, any_bits])
    if name in EXACT:
        return found
    with np.errstate(all="ignore"):
        expected = np.abs(NUMPY[name](*found.T).astype(np.float64))
    large = np.inf if name in ANY_SIZE else 1e100
    moderate = ((np.abs(found) < large) & (np.abs(found) > 1e-290) | np.isin(np.abs(found), [0.0, np.inf])).all(axis=1)
    kept = moderate & ~((expected > 1e300) & (expected < np.inf)) & ~((expected > 0) & (expected < 1e-290))
    return found[kept | np.isnan(found).any(axis=1)]


def assert_same(name: str, found: np.ndarray, expected: np.ndarray, which: str) -> None:
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan), which
    found, expected = found[~nan], expected[~nan].astype(np.float64)
    if name in SIGN_OF_ZERO:
        np.testing.assert_array_equal(found, expected, err_msg=which)
    elif name in EXACT:
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64), err_msg=which)
    else:
        absolute = 1e-15 if name in CANCELS else 1e-300
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE.get(name, 1e-13), atol=absolute, err_msg=which)


def check(name: str, x: np.ndarray, device: torch.device) -> None:
    op = expression(arguments_of(name), [(instruction(name), 1)])
    op.columns[:] = np.arange(len(op.columns))
    with np.errstate(all="ignore"):
        expected = NUMPY[name](*x.T)
        for which, found in (
            ("reference", run_reference(op, [x])),
            ("cpu", run_on_cpu(op, [x])),
            ("kernel", run_kernel(op, [x], device, torch.float64)),
        ):
            assert_same(name, found[:, 0], expected, which)


@pytest.mark.parametrize("name", sorted(name for name in INSTRUCTIONS if not name.startswith("civil")))
def test_an_instruction_is_the_function_of_numpy(device: torch.device, name: str) -> None:
    check(name, rows_for(name), device)


@pytest.mark.parametrize("name", ["floor_divide", "fmod", "remainder"])
def test_remainders_are_exact_for_quotients_of_every_size(device: torch.device, name: str) -> None:
    rng = np.random.default_rng(1)
    y = rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-300, 300, 4000)
    x = y * rng.uniform(-2, 2, 4000) * 2.0 ** rng.integers(-5, 400, 4000)
    whole = rng.integers(-(2**52), 2**52, 4000) * np.round(y, 3)
    near = np.nextafter(whole, np.where(rng.random(4000) < 0.5, -np.inf, np.inf))
    y = np.where(rng.random(4000) < 0.5, -y, y)
    for numerator in (x, whole, near):
        check(name, np.stack([numerator, y], axis=1), device)


@pytest.mark.parametrize("exponent", [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 10.0, 0.3])
def test_whole_powers_that_are_numbers_are_exact(device: torch.device, exponent: float) -> None:
    x = np.stack([np.arange(-1000.0, 1000.0), np.full(2000, exponent)], axis=1)
    check("power", x, device)
    if exponent >= 0 and exponent.is_integer():
        op = expression(2, [(instruction("power"), 1)])
        op.columns[:] = [0, 1]
        exact = np.array([float(int(base) ** int(exponent)) for base in x[:, 0]])
        inside = np.abs(exact) < 2.0**53
        for found in (run_on_cpu(op, [x]), run_kernel(op, [x], device, torch.float64)):
            assert np.array_equal(found[inside, 0], exact[inside])


def test_every_instruction_is_of_one_kind() -> None:
    assert UNARY | BINARY | TERNARY == INSTRUCTIONS.keys() >= EXACT
    assert len(UNARY) + len(BINARY) + len(TERNARY) == len(INSTRUCTIONS)


@pytest.mark.parametrize("name", sorted(INSTRUCTIONS))
def test_an_instruction_passes_on_nan_unless_it_is_known_to_hide_it(name: str) -> None:
    found = np.array(list(itertools.product(SPECIAL, repeat=arguments_of(name))))
    found = found[np.isnan(found).any(axis=1)]
    result = INSTRUCTIONS[name](*torch.from_numpy(found.T.copy()))
    assert bool(result.isnan().all()) == (name not in HIDES_NAN)
