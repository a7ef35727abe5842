"""Every elementwise function against its exact value, near zero and at the edges of its domain."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, inputs_for, run_kernel, run_reference
from triton_regressors.exporter.estimators.preprocessing import FUNCTIONS as KNOWN
from triton_regressors.kernels.numerics.functions import FUNCTIONS
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.linear.affine import Affine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

NUMPY = {
    "relu": lambda x: np.maximum(x, 0.0),
    "sublinear": lambda x: np.where(x == 0, 0.0, np.log(x) + 1),
    **{name: function for function, name in KNOWN.items()},
}

EXACT: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "identity": lambda x: x,
    "absolute": abs,
    "arccos": mpmath.acos,
    "arccosh": mpmath.acosh,
    "arcsin": mpmath.asin,
    "arcsinh": mpmath.asinh,
    "arctan": mpmath.atan,
    "arctanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.root(abs(x), 3),
    "ceil": mpmath.ceil,
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "degrees": mpmath.degrees,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "exp": mpmath.exp,
    "exp10": lambda x: mpmath.power(10, x),
    "exp2": lambda x: mpmath.power(2, x),
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "expm1": mpmath.expm1,
    "floor": mpmath.floor,
    "isnan": lambda x: mpmath.mpf(0),
    "log": mpmath.log,
    "log10": mpmath.log10,
    "log1p": lambda x: mpmath.log(1 + x),
    "log2": lambda x: mpmath.log(x, 2),
    "log_expit": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "ndtr": mpmath.ncdf,
    "ndtri": lambda x: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * x),
    "negative": lambda x: -x,
    "radians": mpmath.radians,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "rint": mpmath.nint,
    "sign": mpmath.sign,
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "square": lambda x: x * x,
    "sublinear": lambda x: mpmath.log(x) + 1,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
    "trunc": lambda x: mpmath.sign(x) * mpmath.floor(abs(x)),
}

# Magnitudes down to the smallest normal float32, the places where a series gives way to the full formula, and then on.
TINY = [1.2e-38, 1e-30, 1e-20, 1e-10, 1e-7, 1e-6, 1e-5]
SWITCHES = [9.99e-5, 1e-4, 1.001e-4, 9.99e-4, 1e-3, 1.001e-3, 0.0999, 0.1, 0.1001]
INSIDE_ONE = [0.01, 0.2, 0.3, 0.4999999, 0.5, 0.5000001, 0.7, 0.99, 0.99999994]
BEYOND_ONE = [1.0000001, 1.5, 2.0, 3.0, 10.0, 50.0, 80.0]
FAR = [1e3, 1e4, 1e10, 1e30]
POSITIVE = [*TINY, *SWITCHES, *INSIDE_ONE, *BEYOND_ONE]

BOTH_SIGNS = [*POSITIVE, *(-x for x in POSITIVE)]
BELOW_ONE = [*TINY, *SWITCHES, *INSIDE_ONE]
HALVES = [0.5, 1.5, 2.5, 3.49999976, 7.5, 1e5 + 0.5, 2.0**23 + 1, 2.0**31, 1e30]
ARGUMENTS = {
    **{name: [*BELOW_ONE, *(-x for x in BELOW_ONE)] for name in ("arccos", "arcsin", "arctanh", "log1p")},
    **{name: [*POSITIVE, *FAR] for name in ("log", "log10", "log2", "sqrt", "sublinear")},
    **dict.fromkeys(("cosh", "exp", "exp2", "expit", "expm1", "log_expit", "sinh", "tanh"), BOTH_SIGNS),
    **{name: [*HALVES, *(-x for x in HALVES), *BOTH_SIGNS] for name in ("ceil", "floor", "rint", "trunc")},
    **dict.fromkeys(("logit", "ndtri"), BELOW_ONE),
    "arccosh": [*BEYOND_ONE, *FAR],
    "erfc": [*BELOW_ONE, 1.0, *(x for x in BEYOND_ONE if x < 9), 7.9999995, 8.0, 8.5, -0.5, -1.0, -3.0, -10.0, -1e30],
    "exp10": [*BELOW_ONE, 1.5, 37.0, -1.5, -37.0],
    "ndtr": [*BELOW_ONE, *(-x for x in BELOW_ONE), 1.5, 8.0, 1e30, -1.5, -1.4142135, -5.0, -11.313708, -12.0],
    "degrees": [*POSITIVE, *FAR, -1.0],
    "radians": [*POSITIVE[1:], *FAR, -1.0],
    "square": [x for x in POSITIVE if x > 1e-15] + [-2.0, 1e10],
    "reciprocal": [*POSITIVE[1:], *FAR, -3.0],
}
EVERYWHERE = [*POSITIVE, *FAR, *(-x for x in [*POSITIVE, *FAR])]

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 89.0, -104.0, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


def test_there_is_an_exact_value_for_every_function() -> None:
    assert set(EXACT) == set(FUNCTIONS) == set(NUMPY)


def run_both(op: Elementwise | Affine, x: np.ndarray, device: torch.device) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore"):
        return {"kernel": run_kernel(op, [x], device), "reference": run_reference(op, [x]).astype(np.float32)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_answer_is_the_float32_nearest_to_the_exact_one(device: torch.device, name: str) -> None:
    x = np.array(ARGUMENTS.get(name, EVERYWHERE), dtype=np.float32)[:, None]
    with mpmath.workdps(50):
        exact = [EXACT[name](mpmath.mpf(float(value))) for value in x[:, 0]]
    ulp = np.spacing(np.abs(np.array([float(value) for value in exact], dtype=np.float32)))
    for which, found in run_both(Elementwise(name), x, device).items():
        with mpmath.workdps(50):
            errors = [
                float(abs(mpmath.mpf(float(y)) - value) / mpmath.mpf(float(unit)))
                for y, value, unit in zip(found[:, 0], exact, ulp, strict=True)
            ]
        # Nearest, but for ties that float64's own last places decide: logit near ½ is off by 2e-9 of its value.
        assert max(errors) <= 0.55, f"{which} of {x[int(np.argmax(errors)), 0]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_as_in_numpy(device: torch.device, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = NUMPY[name](SPECIAL.astype(np.float64)).astype(np.float32)
    for which, found in run_both(Elementwise(name), SPECIAL[:, None], device).items():
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-7, atol=0, err_msg=which)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_at_the_end_of_an_affine_map(device: torch.device, name: str) -> None:
    op = affine(5, function=name)
    (x,) = inputs_for([5], 40)
    plain = run_reference(Affine(op.weight, op.intercept), [x])
    with np.errstate(all="ignore"):
        expected = NUMPY[name](plain)[:, 0]
    finite = np.isfinite(expected)
    assert finite.sum() >= 5
    ulp = np.spacing(np.abs(expected[finite]).astype(np.float32))
    with np.errstate(all="ignore"):
        for which, found in run_both(op, x, device).items():
            assert (np.abs(found[finite, 0] - expected[finite]) <= 0.55 * ulp).all(), which
            assert np.isnan(found[~finite, 0]).all() or np.isinf(expected[~finite]).any(), which


@pytest.mark.parametrize(("low", "high"), [(None, None), (-0.5, None), (None, 0.25), (-0.5, 0.25), (0.1, 0.1)])
def test_clip(device: torch.device, low: float | None, high: float | None) -> None:
    x = np.array([[-2.0, -0.5, -0.0, 0.1, 0.25, 7.0, np.inf, -np.inf, np.nan]], dtype=np.float32)
    expected = x if low is None and high is None else np.clip(x, low, high).astype(np.float32)
    for which, found in run_both(Elementwise("identity", low, high), x, device).items():
        np.testing.assert_array_equal(found, expected, err_msg=which)
