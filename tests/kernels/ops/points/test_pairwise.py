"""Functions of rows and points, and combined matrices: kernels against references, and both against plain formulas."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_pairwise import FUNCTIONS, pairwise, pairwise_affine, squared_norm
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.points import pairwise_affine as pairwise_affine_module
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine, contract
from triton_regressors.kernels.ops.points.squared_norm import PART_TARGETS, SquaredNorm
from triton_regressors.kernels.plan.plan import Operation

drawn = examples(10)
rows = st.integers(0, 40)
seeds = st.integers(0, 2**32 - 1)
names = st.sampled_from(list(FUNCTIONS))
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter computes with NumPy


def check(op: Operation, arrays: list[np.ndarray], device: torch.device, scale: float | np.ndarray = 1.0) -> None:
    """Kernel and CPU answer as the reference does, to some 1e-13 of `scale`, and to half a unit in the last place."""
    double = [array.astype(np.float64) for array in arrays]
    expected = run_reference(op, double)
    assert expected.dtype == np.float64
    assert np.array_equal(run_reference(op, arrays), expected)
    allowed, on_cpu = 2e-13 * np.maximum(scale, np.abs(expected)), run_on_cpu(op, double)
    assert np.array_equal(run_on_cpu(op, arrays), on_cpu)
    assert (np.abs(on_cpu - expected) <= allowed).all()
    half_ulp = 0.5 * np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64) * (1 + 1e-6)
    assert (np.abs(run_kernel(op, double, device, torch.float64) - expected) <= allowed).all()
    assert (np.abs(run_kernel(op, arrays, device) - expected) <= allowed + half_ulp).all()


@drawn
@given(name=names, features=st.integers(1, 40), points=st.integers(1, 150), rows=rows, seed=seeds)
def test_pairwise(device: torch.device, name: str, features: int, points: int, rows: int, seed: int) -> None:
    op = pairwise(name, features, points, seed)
    if not rows:
        assert run_reference(op, inputs_for([features], 0)).shape == (0, points)
        assert run_on_cpu(op, inputs_for([features], 0)).shape == (0, points)
        return
    magnitude = 1.0
    if FUNCTIONS[name]["profile"] == "power":  # of the largest base, with products of either sign that cancel
        magnitude = float(np.abs(run_reference(op, inputs_for([features], rows, seed))).max())
    elif name == "table":  # a drawn table has steps of size one; the pieces' ends are not to be drawn
        magnitude = 10.0
    check(op, inputs_for([features], rows, seed), device, magnitude)


@drawn
@given(
    name=names,
    features=st.integers(1, 30),
    points=st.integers(1, 300),
    targets=st.integers(1, 9),
    parts=st.integers(1, 4),
    rows=st.integers(1, 40),
    seed=seeds,
)
def test_pairwise_affine(
    device: torch.device, name: str, features: int, points: int, targets: int, parts: int, rows: int, seed: int
) -> None:
    op = pairwise_affine(name, features, points, targets, parts, seed)
    arrays = inputs_for([features], rows, seed)
    matrix = run_reference(pairwise(name, features, points, seed), arrays)
    check(op, arrays, device, 10 * float(np.abs(matrix).max()) * points)
    # The parts add up to the product of the matrix with the weights.
    found = run_reference(op, arrays).reshape(rows, parts, targets).sum(axis=1)
    assert np.allclose(found, matrix @ op.weight + op.intercept, rtol=0, atol=1e-12 * np.abs(matrix).max() * points)


@drawn
@given(
    name=names,
    features=st.integers(1, 40),
    points=st.integers(1, 300),
    targets=st.integers(1, 4),
    parts=st.integers(1, 3),
    rows=st.integers(1, 40),
    seed=seeds,
)
def test_precisions(
    device: torch.device, name: str, features: int, points: int, targets: int, parts: int, rows: int, seed: int
) -> None:
    """The kernel is as close to float64 as the precision's name says, and so is the exporter's emulation."""
    exact = pairwise_affine(name, features, points, targets, parts, seed)
    (x,) = inputs_for([features], rows, seed)
    double = [x.astype(np.float64)]
    expected = run_reference(exact, double)
    matrix = np.abs(run_reference(pairwise(name, features, points, seed), double)).max()
    for precision in exact.precisions()[1:]:
        op = exact.in_precision(precision)
        op.check(features)
        np.testing.assert_allclose(run_reference(op, double), expected, rtol=1e-9, atol=1e-9)  # that stays float64
        np.testing.assert_allclose(run_on_cpu(op, double), expected, rtol=1e-9, atol=1e-9)  # that stays float64
        # An error of some 1e-10 or 1e-7 for each point, relative where a power enlarges numbers.
        allowed = OF_A_POINT[precision] * max(float(matrix), 1.0) * np.abs(exact.weight).sum(axis=0).max()
        for found in (op.emulate(x), run_kernel(op, double, device, torch.float64)):
            assert np.abs(found - expected).max() <= allowed


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("features", [3, 20])
def test_what_is_emulated_of_some_points_at_a_time_is_what_is_of_all(
    monkeypatch: pytest.MonkeyPatch, name: str, features: int
) -> None:
    exact = pairwise_affine(name, features, 700, 1, 2)
    (x,) = inputs_for([features], 9)
    for precision in exact.precisions()[1:]:
        op = exact.in_precision(precision)
        monkeypatch.setattr(pairwise_affine_module, "EMULATED_POINTS", 1024)
        whole = op.emulate(x)
        monkeypatch.setattr(pairwise_affine_module, "EMULATED_POINTS", 256)
        np.testing.assert_allclose(op.emulate(x), whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())


OF_A_POINT = {"ten digits": 1e-9, "float32 pairs": 2e-8, "float32": 3e-6}


@pytest.mark.parametrize("precision", ["ten digits", "float32 pairs", "float32"])
@pytest.mark.parametrize(
    "name",
    ["rbf", "matern_1_2", "matern_3_2", "matern_5_2", "laplacian", "chi2", "sigmoid", "cosine", "rational_quadratic"],
)
@pytest.mark.parametrize("features", [3, 20])
def test_nan_and_the_largest_numbers_are_kept(device: torch.device, name: str, features: int, precision: str) -> None:
    op = pairwise_affine(name, features, 70, 1, 2)
    if precision not in op.precisions():
        return
    op = op.in_precision(precision)
    (x,) = inputs_for([features], 12)
    x[3, 1], x[5, 0] = np.nan, np.float32(3e38)
    found, expected = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    assert np.isnan(found[3]).all()
    others = np.isfinite(expected).all(axis=1)
    assert others.sum() >= 10
    relative = 1e-4 if precision == "float32" else 1e-8
    np.testing.assert_allclose(found[others], expected[others], rtol=relative, atol=100 * relative)


@pytest.mark.parametrize("features", [4, 20])
def test_distances_of_rows_that_are_points_have_ten_digits(device: torch.device, features: int) -> None:
    """The root of what products leave of zero would be 1e-8."""
    exact = dataclasses.replace(pairwise_affine("distance", features, 150, 1, 2), profile="exp", gamma=-0.8)
    x = exact.points[:30] / exact.factor + exact.shift
    x[20:] += 1e-7
    expected = run_reference(exact, [x])
    op = exact.in_precision("ten digits")
    assert op.way() == ("digits" if features > 16 else "features")
    for found in (op.emulate(x), run_kernel(op, [x], device, torch.float64)):
        assert np.abs(found - expected).max() <= 2e-10 * np.abs(exact.weight).sum()


@pytest.mark.parametrize("features", [3, 20])
def test_weights_may_be_part_of_the_exponents(device: torch.device, features: int) -> None:
    """Weights have either sign, any size, or are zero: a row as far from every point as possible has the sum zero."""
    op = pairwise_affine("rbf", features, 150, 1, 2).in_precision("ten digits")
    weight = op.weight * 10.0 ** np.random.default_rng(0).integers(-30, 31, op.weight.shape)
    weight[[0, 7, 149]] = 0.0
    op = dataclasses.replace(op, weight=weight, intercept=np.zeros(1))
    assert op.weighed
    assert not dataclasses.replace(op, weight=np.repeat(weight, 2, axis=1), intercept=np.zeros(2)).weighed
    (x,) = inputs_for([features], 20)
    x[4] = 1e6
    found, expected = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    assert np.abs(found - expected).max() <= 1e-9 * np.abs(weight).sum()
    assert np.abs(found[4]).max() <= 1e-200


@pytest.mark.parametrize("precision", ["ten digits", "float32 pairs", "float32"])
@pytest.mark.parametrize(("name", "features"), [("rbf", 9), ("rbf", 20), ("matern_3_2", 20), ("sigmoid", 40)])
def test_gpus_without_matrix_units(
    device: torch.device, name: str, features: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise_affine.shared_memory", lambda device: 0)
    exact = pairwise_affine(name, features, 150, 1, 2)
    (x,) = inputs_for([features], 20)
    expected = run_reference(exact, [x])
    found = run_kernel(exact.in_precision(precision).on_device(device), [x], device, torch.float64)
    assert np.abs(found - expected).max() <= 1e-7 * np.abs(exact.weight).sum()


def test_a_gpu_holds_the_tables_of_the_precision_that_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, module = torch.device("cpu"), "triton_regressors.kernels.ops.points.pairwise"
    exact = pairwise("rbf", 20, 70)
    op = exact.in_precision("ten digits")
    assert op.on_device(cpu) is op
    assert exact.on_device(cpu) is exact
    assert op.launches(1) == 2
    assert set(op.parameters()) == {"shift", "factor", "numbers", "offsets", "digits"}
    for name, answer in (("has_many_float64_units", True), ("shared_memory", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.{name}", lambda device, answer=answer: answer)
            found = op.on_device(cpu)
        assert (found.precision, found.launches(1)) == ("float64", 1)
        assert set(found.parameters()) == set(exact.parameters())


@drawn
@given(
    product=st.booleans(),
    exponent=st.sampled_from([1.0, 2.0, 3.0, 7.0, 0.0, -1.0, -3.0, 0.5, 2.25, -1.5]),
    columns=st.lists(st.booleans(), min_size=1, max_size=4),
    width=st.integers(1, 40),
    rows=rows,
    seed=seeds,
)
def test_combine(
    device: torch.device, product: bool, exponent: float, columns: list[bool], width: int, rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    widths = [1 if column else width for column in columns]
    factors, offsets = rng.uniform(0.1, 0.3, len(widths)), rng.uniform(2, 3, len(widths))  # so that bases are positive
    op = Combine("product" if product else "sum", tuple(factors), tuple(offsets), exponent)
    arrays = inputs_for(widths, rows, seed)
    terms = np.broadcast_arrays(
        *(f * a.astype(np.float64) + o for f, a, o in zip(factors, arrays, offsets, strict=True))
    )
    expected = (np.prod(terms, axis=0) if product else np.sum(terms, axis=0)) ** exponent
    assert np.allclose(run_reference(op, arrays), expected, rtol=1e-13, atol=0)
    if rows:
        check(op, arrays, device)


def test_combine_takes_its_inputs_as_they_are_by_default(device: torch.device) -> None:
    arrays = inputs_for([4, 1, 4], 9)
    for op, expected in (
        (Combine("sum"), sum(arrays)),
        (Combine("product"), np.prod(np.broadcast_arrays(*arrays), axis=0)),
    ):
        assert np.allclose(run_reference(op, arrays), expected, rtol=1e-6)
        check(op, arrays, device)
    assert run_reference(Combine("sum", exponent=2.0), [np.full((1, 1), 3.0, dtype=np.float32)]).item() == 9.0


def test_a_power_of_a_negative_base_is_numpys(device: torch.device) -> None:
    x = np.array([[-2.0, -0.5, 0.0, 3.0]], dtype=np.float32)
    for exponent in (0.0, 1.0, 2.0, 3.0, 5.0, 0.5):
        with np.errstate(invalid="ignore"):
            expected = x.astype(np.float64) ** exponent
        op = Combine("sum", (1.0,), (0.0,), exponent)
        for found in (run_reference(op, [x]), run_kernel(op, [x], device)):
            assert np.allclose(found, expected, rtol=1e-7, equal_nan=True)


def plain(op: Pairwise, x: np.ndarray) -> np.ndarray:
    """Return a function of rows and points as NumPy and SciPy compute it."""
    z = (x - op.shift) * op.factor
    metric = {"squared_euclidean": "sqeuclidean", "manhattan": "cityblock"}.get(op.metric, op.metric)
    if op.metric == "dot":
        m = z @ op.points.T
    elif op.metric == "chi2":
        d, total = z[:, None] - op.points, z[:, None] + op.points
        m = np.where(total == 0, 0.0, d**2 / np.where(total == 0, 1.0, total)).sum(axis=2)
    else:
        m = cdist(z, op.points, metric)
        m = 1 - m if op.metric == "cosine" else m
    u = op.gamma * m + op.coef0
    profiles: dict[str, Any] = {
        "identity": lambda: u,
        "exp": lambda: np.exp(u),
        "tanh": lambda: np.tanh(u),
        "power": lambda: u**op.exponent,
        "matern_3_2": lambda: (1 + u) * np.exp(-u),
        "matern_5_2": lambda: (1 + u + u**2 / 3) * np.exp(-u),
        "sine": lambda: np.exp(-op.exponent * np.sin(u) ** 2),
    }
    return profiles[op.profile]()


@pytest.mark.parametrize("features", [3, 23])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "table"])
def test_reference_is_the_plain_formula(name: str, features: int) -> None:
    op = pairwise(name, features, 31)
    (x,) = inputs_for([features], 50)
    expected = plain(op, x.astype(np.float64))
    assert np.abs(run_reference(op, [x]) - expected).max() <= 1e-13 * max(1.0, np.abs(expected).max())
    assert np.abs(run_on_cpu(op, [x]) - expected).max() <= 1e-13 * max(1.0, np.abs(expected).max())


def test_table_is_piecewise_polynomials(device: torch.device) -> None:
    """On piece k of the table the function is its polynomial; before the first constant, past the last zero."""
    table = np.arange(12.0).reshape(4, 3) + 1  # 2⁻⁵² · (1, 1.25, 1.5, 1.75), to 2⁻⁵¹
    op = Pairwise(
        points=np.zeros((1, 1)), shift=np.zeros(1), factor=np.full(1, 2.0**-52), metric="euclidean",
        profile="table", table=table,
    )  # fmt: skip
    x = np.array([0.0, 0.5, 1.0, 1.125, 1.25, 1.4375, 1.96875, 2.0, 100.0])[:, None]
    local = [(0, -1), (0, -1), (0, -1), (0, 0), (1, -1), (1, 0.5), (3, 0.75)]
    expected = [table[piece] @ [1, t, t**2] for piece, t in local] + [0, 0]
    assert run_reference(op, [x])[:, 0].tolist() == expected
    assert run_on_cpu(op, [x])[:, 0].tolist() == expected
    assert run_kernel(op, [x], device, torch.float64)[:, 0].tolist() == expected
    assert np.isnan(run_kernel(op, [np.full((1, 1), np.nan)], device)).all()


@pytest.mark.parametrize("features", [4, 30])
def test_distances_far_from_zero(device: torch.device, features: int) -> None:
    """Around 10,000 a kernel is off by less than 1e-9, and the distance of a row to itself is zero."""
    rng = np.random.default_rng(0)
    x = (10_000 + rng.standard_normal((20, features))).astype(np.float32)
    points = x[:9].astype(np.float64)
    rbf = Pairwise(
        points=points, shift=np.zeros(features), factor=np.ones(features), metric="squared_euclidean", profile="exp",
        gamma=-0.5,
    )  # fmt: skip
    distance = dataclasses.replace(rbf, metric="euclidean", profile="identity", gamma=1.0)
    for op in (rbf, distance):
        expected = plain(op, x.astype(np.float64))
        kernel = run_kernel(op, [x.astype(np.float64)], device, torch.float64)
        for found in (run_reference(op, [x]), run_on_cpu(op, [x]), kernel):
            assert np.abs(found - expected).max() <= 1e-12
    assert (np.diag(run_kernel(distance, [x], device)) == 0).all()


@pytest.mark.parametrize("features", [2, 20])
def test_rows_of_zeros_have_no_direction_and_chi2_takes_no_negative_number(device: torch.device, features: int) -> None:
    points = np.abs(np.random.default_rng(0).standard_normal((3, features)))
    points[1] = 0
    x = np.zeros((3, features), dtype=np.float32)
    x[1, 0], x[2, 0] = -1, -1e-12
    fields: dict[str, Any] = {"points": points, "shift": np.zeros(features), "factor": np.ones(features)}
    cosine = Pairwise(**fields, metric="cosine", profile="identity")
    chi2 = Pairwise(**fields, metric="chi2", profile="identity")
    for run in (run_reference, run_on_cpu, lambda op, arrays: run_kernel(op, arrays, device)):
        assert (run(cosine, [x])[0] == 0).all()
        assert run(cosine, [x])[1, 1] == 0
        assert np.allclose(run(chi2, [x])[[0, 2]], points.sum(axis=1))
        assert np.isnan(run(chi2, [x])[1]).all()


def test_overflow_past_the_last_point_reaches_no_sum(device: torch.device) -> None:
    """A tile's columns past the last point are zero, whatever the function is there."""
    op = pairwise("polynomial", 2, 5)
    op = dataclasses.replace(
        op, coef0=-50.0, exponent=0.5, gamma=1000.0, points=np.abs(op.points), shift=np.full(2, -9.0)
    )
    both = contract(op, np.ones((5, 1)), np.zeros(1))
    assert both is not None
    (x,) = inputs_for([2], 7)
    assert np.isfinite(run_kernel(both, [x], device)).all()
    check(both, [x], device, 1000.0)


@pytest.mark.parametrize("triangular", [False, True])
@pytest.mark.parametrize(("features", "targets"), [(1, 1), (40, 70), (70, 33)])
def test_squared_norm(device: torch.device, features: int, targets: int, triangular: bool) -> None:
    op = squared_norm(features, targets, triangular=triangular)
    assert op.triangular == (triangular or features == 1)
    (x,) = inputs_for([features], 40)
    squares = (x.astype(np.float64) @ op.weight + op.offset) ** 2
    expected = np.add.reduceat(squares, np.arange(0, targets, PART_TARGETS), axis=1)
    assert np.allclose(run_reference(op, [x]), expected, rtol=1e-12)
    check(op, [x], device, float(expected.max()))


def test_many_targets_are_not_contracted_as_the_matrix_is_made() -> None:
    first = pairwise("rbf", 2, 5)
    assert contract(first, np.ones((5, 65)), np.zeros(65)) is None
    assert contract(first, np.ones((5, 64)), np.zeros(64)) is not None


W = np.ones
POINTS: dict[str, Any] = {"points": W((4, 3)), "shift": W(3), "factor": W(3), "metric": "dot", "profile": "exp"}
AFFINE: dict[str, Any] = {**POINTS, "weight": W((4, 2)), "intercept": W(2)}
WRONG: dict[str, tuple[Operation, tuple[int, ...], str]] = {
    "points": (Pairwise(**POINTS), (2,), "pairwise: points must be [points, 2], not [4, 3]."),
    "no points": (
        Pairwise(**{**POINTS, "points": W((0, 3))}),
        (3,),
        "pairwise: points must be [points, 3], not [0, 3].",
    ),
    "shift": (Pairwise(**{**POINTS, "shift": W(2)}), (3,), "pairwise: shift must be [3], not [2]."),
    "factor": (Pairwise(**{**POINTS, "factor": W(4)}), (3,), "pairwise: factor must be [3], not [4]."),
    "metric": (
        Pairwise(**{**POINTS, "metric": "hamming"}),
        (3,),
        "pairwise: metric must be one of dot, cosine, squared_euclidean, euclidean, manhattan, chi2, not 'hamming'.",
    ),
    "profile": (
        Pairwise(**{**POINTS, "profile": "cos"}),
        (3,),
        "pairwise: profile must be one of identity, exp, tanh, power, matern_3_2, matern_5_2, sine, table, not 'cos'.",
    ),
    "table": (Pairwise(**POINTS, table=W(3)), (3,), "pairwise: table must be [pieces, terms], not [3]."),
    "points of affine": (PairwiseAffine(**AFFINE), (2,), "pairwise_affine: points must be [points, 2], not [4, 3]."),
    "weight": (
        PairwiseAffine(**{**AFFINE, "weight": W((3, 2))}),
        (3,),
        "pairwise_affine: weight must be [4, targets], not [3, 2].",
    ),
    "intercept": (
        PairwiseAffine(**{**AFFINE, "intercept": W(1)}),
        (3,),
        "pairwise_affine: intercept must be [2], not [1].",
    ),
    "function": (PairwiseAffine(**AFFINE, function="sine"), (3,), "There is no function 'sine'"),
    "parts": (
        PairwiseAffine(**AFFINE, parts=0),
        (3,),
        "pairwise_affine: parts must be at least 1, and 1 before identity.",
    ),
    "precision": (
        PairwiseAffine(**AFFINE, precision="half"),
        (3,),
        "pairwise_affine: precision must be one of ('float64', 'ten digits', 'float32'), not 'half'.",
    ),
    "precision of a table": (
        PairwiseAffine(**{**AFFINE, "profile": "table"}, precision="ten digits"),
        (3,),
        "pairwise_affine: precision must be one of ('float64',), not 'ten digits'.",
    ),
    "precision of a matrix": (
        Pairwise(**POINTS, precision="ten digits"),
        (3,),
        "pairwise: precision must be one of ('float64',), not 'ten digits'.",
    ),
    "norm": (SquaredNorm(W((3, 2)), W(2)), (4,), "squared_norm: weight must be [4, targets], not [3, 2]."),
    "offset of a norm": (SquaredNorm(W((3, 2)), W(3)), (3,), "squared_norm: offset must be [2], not [3]."),
    "parts and function": (
        PairwiseAffine(**AFFINE, parts=2, function="exp"),
        (3,),
        "pairwise_affine: parts must be at least 1, and 1 before exp.",
    ),
    "no input": (Combine("sum", (), ()), (), "combine: there must be 1 to 4 inputs, not 0."),
    "inputs": (Combine("sum", (1.0,) * 5, (0.0,) * 5), (3,) * 5, "combine: there must be 1 to 4 inputs, not 5."),
    "operation": (Combine("mean", (1.0,), (0.0,)), (3,), "combine: operation must be 'sum' or 'product', not 'mean'."),
    "factors": (Combine("sum", (1.0,), (0.0, 0.0)), (3, 3), "combine: factors must be 2 numbers, not 1."),
    "offsets": (Combine("sum", (1.0, 1.0), (0.0,)), (3, 3), "combine: offsets must be 2 numbers, not 1."),
    "widths": (Combine("sum", (1.0, 1.0), (0.0, 0.0)), (3, 2), "combine: widths must be 3 or 1, not [3, 2]."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, widths, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(*widths)
    assert message in str(raised.value)
