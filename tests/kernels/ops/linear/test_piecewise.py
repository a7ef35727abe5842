"""Piecewise functions, power transforms, row norms and periods: kernels, references and what these should compute."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_piecewise import piecewise, piecewise_affine, power, wrap
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.row_norm import RowNorm
from triton_regressors.kernels.ops.columns.wrap import Wrap
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine, worth_contracting
from triton_regressors.kernels.plan.plan import Operation

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

drawn = examples(10)
rows = st.integers(0, 40)
seeds = st.integers(0, 2**32 - 1)


def check(op: Operation, x: np.ndarray, expected: np.ndarray, device: torch.device, relative: float = 0.0) -> None:
    """Compare kernel and reference, on float32 and float64 inputs, with the float64 answers."""
    x = x.astype(np.float32)
    double = x.astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = expected.astype(np.float32)
    np.testing.assert_allclose(run_kernel(op, [x], device), rounded, rtol=relative + 1e-7, atol=1e-45)
    found = {"reference": run_reference(op, [x]), "reference of float64": run_reference(op, [double])}
    found |= {"cpu": run_on_cpu(op, [x]), "cpu of float64": run_on_cpu(op, [double])}
    found["kernel"] = run_kernel(op, [double], device, torch.float64)
    for which, y in found.items():
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, expected, rtol=relative, atol=0, err_msg=which)


def evaluate(op: Piecewise, x: np.ndarray) -> np.ndarray:
    """Compute a piecewise function number by number."""
    y = np.empty((len(x), len(op.source)))
    for (row, output), _ in np.ndenumerate(y):
        value, knots = x[row, op.source[output]].astype(np.float64), op.knots[output]
        piece = int((knots <= value).sum())
        u, powers = value - knots[max(piece - 1, 0)], np.arange(op.coefficients.shape[2])
        y[row, output] = (op.coefficients[output, piece] * u**powers).sum()
        if np.isnan(value):
            y[row, output] = 0.0 if op.nan_is_zero else value
    return y


@drawn
@given(
    width=st.integers(1, 5),
    outputs=st.integers(1, 9),
    knots=st.integers(1, 20),
    rows=rows,
    seed=seeds,
    nan_is_zero=st.booleans(),
)
def test_piecewise_constant(
    device: torch.device, width: int, outputs: int, knots: int, rows: int, seed: int, nan_is_zero: bool
) -> None:
    op = piecewise(width, outputs, knots, 0, seed, nan_is_zero)
    (x,) = inputs_for([width], rows, seed)
    at_knots = op.knots[np.isfinite(op.knots)].astype(np.float32)
    x.reshape(-1)[: min(x.size, len(at_knots))] = at_knots[: x.size]
    x.reshape(-1)[2::7] = np.nan
    check(op, x, evaluate(op, x), device)


@drawn
@given(knots=st.integers(1, 20), degree=st.integers(1, 5), rows=rows, seed=seeds)
def test_piecewise_polynomials(device: torch.device, knots: int, degree: int, rows: int, seed: int) -> None:
    op = piecewise(3, 5, knots, degree, seed)
    positive = Piecewise(op.source, op.knots, np.abs(op.coefficients))
    (x,) = inputs_for([3], rows, seed)
    x[:, :1] = np.maximum(x[:, :1], op.knots[:, 0].max())  # from its first knot on nothing cancels
    positive = Piecewise(np.zeros(5, dtype=np.int32), positive.knots, positive.coefficients)
    check(positive, x, evaluate(positive, x), device, 1e-14)


@pytest.mark.parametrize("knots", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1000])
def test_every_knot_begins_its_piece(device: torch.device, knots: int) -> None:
    places = np.arange(knots, dtype=np.float64) * 2 + 1
    op = Piecewise(np.zeros(1, dtype=np.int32), places[None], np.arange(knots + 1.0)[None, :, None])
    x = np.concatenate([places, np.nextafter(places, -np.inf), np.nextafter(places, np.inf)])[:, None]
    expected = np.concatenate([np.arange(knots) + 1, np.arange(knots), np.arange(knots) + 1])[:, None]
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), expected)
    np.testing.assert_array_equal(run_reference(op, [x]), expected)
    np.testing.assert_array_equal(run_on_cpu(op, [x]), expected)


@drawn
@given(
    width=st.integers(1, 6),
    outputs=st.integers(1, 9),
    knots=st.integers(1, 9),
    degree=st.integers(0, 4),
    targets=st.integers(1, 3),
    rows=rows,
    seed=seeds,
)
def test_piecewise_affine(
    device: torch.device, width: int, outputs: int, knots: int, degree: int, targets: int, rows: int, seed: int
) -> None:
    op = piecewise_affine(width, outputs, knots, degree, targets, seed)
    (x,) = inputs_for([width], rows, seed)
    x.reshape(-1)[3::11] = np.nan
    x.reshape(-1)[4::7] = np.resize(op.knots[:, 0], len(x.reshape(-1)[4::7]))
    parts = run_reference(Piecewise(op.source, op.knots, op.coefficients, op.nan_is_zero), [x])
    expected = parts @ op.weight + op.intercept
    # Functions that are far from zero cancel where they are moved to the knots of others.
    allowed = 1e-11 * np.nan_to_num(np.abs(parts) @ np.abs(op.weight) + 10.0**degree)
    double = x.astype(np.float64)
    for which, y, rounding in (
        ("kernel", run_kernel(op, [x], device), 1e-7 * np.abs(expected)),
        ("kernel in float64", run_kernel(op, [double], device, torch.float64), 0.0),
        ("reference", run_reference(op, [x]), 0.0),
        ("cpu", run_on_cpu(op, [x]), 0.0),
    ):
        assert np.array_equal(np.isnan(y), np.isnan(expected)), which
        assert (np.nan_to_num(np.abs(y - expected)) <= np.nan_to_num(allowed + rounding)).all(), which


@pytest.mark.parametrize("function", ["expit", "cosh"])
def test_a_row_alone_has_the_bits_that_it_has_among_others_on_a_cpu(function: str) -> None:
    """A vectorised loop computes its last elements in another way, of which some differ in their last bit."""
    op, (x,) = piecewise_affine(3, 7, 4, 1, function=function), inputs_for([3], 600)
    whole = run_on_cpu(op, [x])
    assert np.concatenate([run_on_cpu(op, [row[None]]) for row in x]).tobytes() == whole.tobytes()


def test_contracting_pays_where_there_are_fewer_functions() -> None:
    op = Piecewise(np.array([0, 0, 0, 2, 2, 2], dtype=np.int32), np.zeros((6, 1)), np.zeros((6, 2, 1)))
    assert [worth_contracting(op, targets) for targets in (1, 3, 4)] == [True, True, False]


LAMBDAS = [-2.5, -1.0, -1e-3, 0.0, 1e-8, 0.5, 1.0, 2.0, 2.0 + 1e-9, 3.5]
NUMBERS = [0.0, 1e-30, 1e-9, 1e-3, 0.3, 1.0, 7.5, 400.0, 2e5]


def powers(lambdas: list[float], method: str, inverse: bool = False) -> Power:
    return Power(np.array(lambdas), 2 - np.array(lambdas), method, inverse)


def exact_power(x: float, power: float, method: str) -> float:
    z, p = mpmath.mpf(float(np.float32(x))), mpmath.mpf(power)
    if method == "box-cox":
        return float("nan") if z <= 0 else float(mpmath.log(z) if p == 0 else (z**p - 1) / p)
    if z < 0:
        return -exact_power(-x, 2 - p, method)
    return float(mpmath.log1p(z) if p == 0 else ((1 + z) ** p - 1) / p)


@pytest.mark.parametrize("method", Power.METHODS)
def test_power_is_exact(device: torch.device, method: str) -> None:
    x = np.repeat(np.array([*NUMBERS, *(-n for n in NUMBERS)], dtype=np.float32)[:, None], len(LAMBDAS), axis=1)
    with mpmath.workdps(80):
        expected = np.array([[exact_power(n, p, method) for n, p in zip(row, LAMBDAS, strict=True)] for row in x])
    check(powers(LAMBDAS, method), x, expected, device, 1e-13)


@pytest.mark.parametrize("method", Power.METHODS)
@drawn
@given(width=st.integers(1, 9), rows=rows, seed=seeds)
def test_power_undone(device: torch.device, method: str, width: int, rows: int, seed: int) -> None:
    forward, back = power(width, method, seed=seed), power(width, method, inverse=True, seed=seed)
    (x,) = inputs_for([width], rows, seed)
    x = np.abs(x) + np.float32(0.1) if method == "box-cox" else x
    y = run_kernel(forward, [x], device, torch.float64)
    np.testing.assert_allclose(run_kernel(back, [y], device, torch.float64), x, rtol=1e-11)
    np.testing.assert_allclose(run_reference(back, [run_reference(forward, [x])]), x, rtol=1e-11)
    np.testing.assert_allclose(run_on_cpu(back, [run_on_cpu(forward, [x])]), x, rtol=1e-11)


def test_nothing_is_undone_where_no_number_has_such_a_power(device: torch.device) -> None:
    x = np.array([[-3.0, 3.0, np.nan]], dtype=np.float32)
    check(powers([0.5, -0.5, 1.0], "box-cox", inverse=True), x, np.full((1, 3), np.nan), device)
    check(powers([2.5, -0.5, 1.0], "yeo-johnson", inverse=True), x, np.full((1, 3), np.nan), device)


NORMS = {
    "l1": lambda x: np.abs(x).sum(axis=1),
    "l2": lambda x: np.sqrt((x**2).sum(axis=1)),
    "max": lambda x: np.abs(x).max(axis=1),
}


@pytest.mark.parametrize("norm", RowNorm.NORMS)
@drawn
@given(width=st.integers(1, 60), rows=rows, seed=seeds, exponent=st.integers(-6, 6))
def test_row_norm(device: torch.device, norm: str, width: int, rows: int, seed: int, exponent: int) -> None:
    (x,) = inputs_for([width], rows, seed)
    x *= np.float32(10.0) ** exponent
    x[1::3] = 0
    x[2::5] *= np.float32(1e-20)
    lengths = NORMS[norm](x.astype(np.float64))
    lengths[lengths < 1e-12] = 1
    check(RowNorm(norm, 1e-12), x, x / lengths[:, None], device, 1e-14)


@pytest.mark.parametrize("norm", RowNorm.NORMS)
@pytest.mark.parametrize("place", [0, 700, 2100])
def test_row_norm_of_a_wide_row_with_nan(device: torch.device, norm: str, place: int) -> None:
    (x,) = inputs_for([2101], 3)
    expected = x / NORMS[norm](x.astype(np.float64))[:, None]
    x[1, place] = expected[1] = np.nan
    check(RowNorm(norm, 1e-12), x, expected, device, 1e-13)


def test_row_norm_of_the_smallest_number(device: torch.device) -> None:
    x = np.array([[0.0, 0.0], [1e-45, 0.0]], dtype=np.float32)
    check(RowNorm("max", 5e-324), x, np.array([[0.0, 0.0], [1.0, 0.0]]), device)


@drawn
@given(width=st.integers(1, 9), rows=rows, seed=seeds, exponent=st.integers(-3, 6))
def test_wrap_is_exact(device: torch.device, width: int, rows: int, seed: int, exponent: int) -> None:
    op = wrap(width, seed)
    (x,) = inputs_for([width], rows, seed)
    x = (x * np.float32(10.0) ** exponent).astype(np.float32)
    x[3::4] = (op.low + op.period * 3).astype(np.float32)
    check(op, x, op.low + (x - op.low) % op.period, device)


def test_wrap_of_whole_periods(device: torch.device) -> None:
    op, x = Wrap(np.array([0.5, -1.0]), np.array([3.0, 0.1])), np.array([[0.5, -1.0], [3.5, np.nan], [-2.5, -1.0]])
    expected = np.array([[0.5, -1.0], [0.5, np.nan], [0.5, -1.0]])
    check(op, x, expected, device)


S, K, C = np.zeros(2, dtype=np.int32), np.array([[1.0], [2.0]]), np.zeros((2, 2, 1))
WRONG: dict[str, tuple[Operation, tuple[int, ...], str]] = {
    "source": (Piecewise(S[:, None], K, C), (3,), "piecewise: source must be [outputs], not [2, 1]."),
    "no source": (Piecewise(S[:0], K, C), (3,), "piecewise: source must be [outputs], not [0]."),
    "source range": (Piecewise(S + 3, K, C), (3,), "piecewise: source must lie in [0, 3)."),
    "knots": (Piecewise(S, K[:1], C), (3,), "piecewise: knots must be [2, knots], not [1, 1]."),
    "no knots": (Piecewise(S, K[:, :0], C), (3,), "piecewise: knots must be [2, knots], not [2, 0]."),
    "order": (Piecewise(S, np.array([[1.0, 0.0]] * 2), C), (3,), "piecewise: knots must ascend."),
    "nan": (Piecewise(S, K * np.nan, C), (3,), "piecewise: knots must ascend."),
    "infinity": (Piecewise(S, K * np.inf, C), (3,), "piecewise: the first of the knots must be finite."),
    "coefficients": (
        Piecewise(S, K, np.zeros((2, 3, 1))),
        (3,),
        "piecewise: coefficients must be [2, 2, degree + 1], not [2, 3, 1].",
    ),
    "no coefficients": (
        Piecewise(S, K, C[:, :, :0]),
        (3,),
        "piecewise: coefficients must be [2, 2, degree + 1], not [2, 2, 0].",
    ),
    "weight": (
        PiecewiseAffine(S, K, C, np.zeros((3, 1)), np.zeros(1)),
        (3,),
        "piecewise_affine: weight must be [2, targets], not [3, 1].",
    ),
    "intercept": (
        PiecewiseAffine(S, K, C, np.zeros((2, 3)), np.zeros(1)),
        (3,),
        "piecewise_affine: intercept must be [3], not [1].",
    ),
    "contracted source": (
        PiecewiseAffine(S + 3, K, C, np.zeros((2, 3)), np.zeros(3)),
        (3,),
        "piecewise: source must lie in [0, 3).",
    ),
    "power": (Power(np.ones(3), np.ones(2), "box-cox"), (3,), "power: right and left must be [3], not (3,), (2,)."),
    "method": (
        Power(np.ones(3), np.ones(3), "log"),
        (3,),
        "power: method must be one of ('box-cox', 'yeo-johnson'), not 'log'.",
    ),
    "norm": (RowNorm("l3", 1e-9), (3,), "row_norm: norm must be one of ('l1', 'l2', 'max'), not 'l3'."),
    "least": (RowNorm("l1", 0.0), (3,), "row_norm: least must lie between 0 and 1, not 0.0."),
    "low": (Wrap(np.ones(2), np.ones(3)), (3,), "wrap: low and period must be [3], not (2,), (3,)."),
    "period": (Wrap(np.ones(3), np.array([1.0, 0.0, 1.0])), (3,), "wrap: period must be above 0."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, widths, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(*widths)
    assert str(raised.value) == message


def test_what_hides_nan() -> None:
    assert [piecewise(1, 1, 2, 1, nan_is_zero=zero).hides_nan() for zero in (False, True)] == [False, True]
    assert [piecewise_affine(1, 1, 2, 1, seed=seed).hides_nan() for seed in (0, 1)] == [False, True]
    assert [Elementwise(name).hides_nan() for name in ("isnan", "sign")] == [True, False]


def test_what_is_read_once() -> None:
    assert piecewise(1, 1, 2, 1).reads_input_once()
    assert not piecewise(1, 2, 2, 1).reads_input_once()
    assert not RowNorm("l1", 1e-9).reads_input_once()
