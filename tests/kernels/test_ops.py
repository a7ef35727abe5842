"""Kernels against float64 references, for drawn shapes, magnitudes and seeds."""

import ast
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels import operations
from tests.kernels.examples import examples
from tests.kernels.operations import (
    OPERATIONS,
    inputs_for,
    magnitude,
    rounding,
    run_kernel,
    run_on_cpu,
    run_reference,
    summands,
)
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops import kinds
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.expression import Expression
from triton_regressors.kernels.ops.columns.impute_sequence import ImputeSequence
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.row_norm import RowNorm
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.ops.networks.stacked_dense_layers import StackedDenseLayers
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.ops.points.pairwise_contributions import PairwiseContributions
from triton_regressors.kernels.ops.points.stacked_pairwise import StackedPairwise
from triton_regressors.kernels.ops.points.stacked_pairwise_affine import StackedPairwiseAffine
from triton_regressors.kernels.ops.points.stacked_squared_norm import StackedSquaredNorm
from triton_regressors.kernels.ops.trees.background_contributions import BackgroundContributions
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.plan.plan import Operation

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")  # in the interpreter

# The fixtures are the same for every example.
drawn = examples(12)
rows = st.integers(0, 70)
seeds = st.integers(0, 2**32 - 1)
exponents = st.integers(-6, 6)
offsets = st.sampled_from([0.0, 1.0, -300.0, 10_000.0])


def check(op: Operation, arrays: list[np.ndarray], device: torch.device) -> None:
    """Demand answers within the error of float64 (float32) sums, and half a unit in the last place if rounded.

    A sum of n terms in precision ε is off by at most about n · ε of the sum of their magnitudes.
    """
    double = [array.astype(np.float64) for array in arrays]
    expected = run_reference(op, double)
    assert expected.dtype == np.float64
    assert np.array_equal(run_reference(op, arrays), expected)
    allowed = 2 * (summands(op) + 8) * rounding(op) * magnitude(op, double)
    on_cpu = run_on_cpu(op, double)
    assert np.array_equal(run_on_cpu(op, arrays), on_cpu)
    assert (np.abs(on_cpu - expected) <= allowed).all()
    half_ulp = 0.5 * np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64) * (1 + 1e-6)
    for found, rounded in (
        (run_kernel(op, arrays, device), half_ulp),
        (run_kernel(op, double, device, torch.float64), 0.0),
    ):
        assert found.shape == expected.shape
        assert (np.abs(found - expected) <= rounded + allowed).all()


@drawn
@given(features=st.integers(1, 300), rows=rows, seed=seeds, exponent=exponents, offset=offsets)
def test_affine(device: torch.device, features: int, rows: int, seed: int, exponent: int, offset: float) -> None:
    (x,) = inputs_for([features], rows, seed)
    check(
        operations.affine(features, 1, seed), [(offset + x * np.float32(10.0) ** exponent).astype(np.float32)], device
    )


@drawn
@given(features=st.integers(1, 90), targets=st.integers(2, 70), rows=rows, seed=seeds, offset=offsets)
def test_affine_to_several_targets(
    device: torch.device, features: int, targets: int, rows: int, seed: int, offset: float
) -> None:
    (x,) = inputs_for([features], rows, seed)
    check(operations.affine(features, targets, seed), [(offset + x).astype(np.float32)], device)


@pytest.mark.parametrize(("features", "targets"), [(5_000, 1), (100_000, 1), (5_000, 3)])
def test_affine_of_very_many_features(device: torch.device, features: int, targets: int) -> None:
    check(operations.affine(features, targets), inputs_for([features], 5), device)


@drawn
@given(width=st.integers(1, 200), rows=rows, seed=seeds, offset=offsets)
def test_scale(device: torch.device, width: int, rows: int, seed: int, offset: float) -> None:
    (x,) = inputs_for([width], rows, seed)
    op = Scale(*(operations.scale(width, seed).shift + offset, operations.scale(width, seed).factor))
    check(op, [(offset + x).astype(np.float32)], device)


@drawn
@given(width=st.integers(1, 200), selected=st.integers(1, 300), rows=rows, seed=seeds)
def test_columns(device: torch.device, width: int, selected: int, rows: int, seed: int) -> None:
    (x,) = inputs_for([width], rows, seed)
    op = operations.columns(width, selected, seed)
    assert np.array_equal(run_kernel(op, [x], device), x[:, op.indices])
    assert np.array_equal(run_reference(op, [x]), x[:, op.indices])


@drawn
@given(widths=st.lists(st.integers(1, 50), min_size=1, max_size=10), rows=rows, seed=seeds, selected=st.booleans())
def test_concatenate(device: torch.device, widths: list[int], rows: int, seed: int, selected: bool) -> None:
    arrays = inputs_for(widths, rows, seed)
    expected, op = np.concatenate(arrays, axis=1), Concatenate()
    if selected:
        columns = np.random.default_rng(seed).integers(0, sum(widths), 20).astype(np.int32)
        expected, op = expected[:, columns], Concatenate(columns)
    assert np.array_equal(run_kernel(op, arrays, device), expected)
    assert np.array_equal(run_reference(op, arrays), expected)


def test_matrices_of_both_dtypes_are_put_side_by_side(device: torch.device) -> None:
    """A plan's input is float32, results of steps are float64, and so is the step that puts them side by side."""
    x, y = inputs_for([3, 4], 50)
    double = y.astype(np.float64) / 3
    found = run_kernel(Concatenate(), [x, double], device, torch.float64)
    assert np.array_equal(found, np.concatenate([x, double], axis=1))


@pytest.mark.parametrize(("inputs", "launches"), [(1, 1), (8, 1), (9, 2), (17, 3)])
def test_a_launch_puts_eight_matrices_side_by_side(inputs: int, launches: int) -> None:
    assert Concatenate().launches(inputs) == launches


@drawn
@given(features=st.integers(1, 9), degree=st.integers(1, 4), rows=rows, seed=seeds)
def test_polynomial(device: torch.device, features: int, degree: int, rows: int, seed: int) -> None:
    check(operations.polynomial(features, degree, seed), inputs_for([features], rows, seed), device)


@drawn
@given(features=st.integers(1, 10), degree=st.integers(1, 4), targets=st.integers(1, 3), rows=rows, seed=seeds)
def test_polynomial_affine(
    device: torch.device, features: int, degree: int, targets: int, rows: int, seed: int
) -> None:
    check(operations.polynomial_affine(features, degree, targets, seed), inputs_for([features], rows, seed), device)


@pytest.mark.parametrize("precision", Quadratic.PRECISIONS)
@drawn
@given(features=st.integers(1, 80), targets=st.integers(1, 3), rows=rows, seed=seeds, scaled=st.booleans())
def test_quadratic(
    device: torch.device, precision: str, features: int, targets: int, rows: int, seed: int, scaled: bool
) -> None:
    op = operations.quadratic(features, targets, seed, precision, scaled)
    arrays = inputs_for([features], rows, seed)
    check(op, arrays, device)


def test_quadratic_far_from_zero_keeps_float32_accuracy_of_the_distance(device: torch.device) -> None:
    """The shift is kept in two float32 numbers, so that x − shift is exact to float32 around 10,000 too."""
    features, rng = 6, np.random.default_rng(0)
    near = operations.quadratic(features, precision="float32")
    shift = 10_000 + rng.standard_normal(features)
    op = Quadratic(shift, near.factor, near.quadratic, near.linear, near.intercept, precision="float32")
    x = (shift + rng.standard_normal((40, features))).astype(np.float32)
    expected = run_reference(Quadratic(shift, near.factor, near.quadratic, near.linear, near.intercept), [x])
    assert np.abs(run_kernel(op, [x], device) - expected).max() <= 2e-6 * expected.std()


MANY_ROWS_A_PROGRAM = (
    *("columns", "combine", "concatenate", "elementwise", "expression", "float32", "impute", "impute_sequence"),
    *("piecewise", "power", "scale", "wrap"),
)


INTERPRETED_ROWS = {
    **dict.fromkeys(MANY_ROWS_A_PROGRAM, 1000),
    **dict.fromkeys(("stacked_tree_ensemble", "symmetric_trees", "tree_ensemble"), 600),
    **dict.fromkeys(("stacked_neighbors", "stacked_tree_neighbors", "tree_neighbors"), 40),
}
"""The rows of a batch in the interpreter, which takes 5 ms for a program; 130 for all other operations.

A program holds more rows of trees from 512 on. It has one row to search a fleet's member or to repeat a tree's search,
and up to 32 otherwise.
"""


@pytest.mark.parametrize("name", OPERATIONS)
def test_row_bits_do_not_depend_on_the_batch(engine: str, device: torch.device, name: str) -> None:
    op, widths = OPERATIONS[name]
    rows = 1000 if engine == "triton" else INTERPRETED_ROWS.get(op.kind(), 130)
    assert_rows_do_not_depend_on_the_batch(lambda arrays: run_kernel(op, arrays, device), widths, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, (op, _) in OPERATIONS.items() if op.reads_input_once()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_across_the_bus_give_the_same_bits(name: str, dtype: type) -> None:
    """A small batch's rows are read from pinned memory, which torch says is on the CPU, if nothing else reads them."""
    op, widths = OPERATIONS[name]
    arrays = [array.astype(dtype) for array in inputs_for(widths, 1000)]
    here = run_kernel(op, arrays, torch.device("cuda"))
    assert run_kernel(op, arrays, torch.device("cuda"), pinned=True).tobytes() == here.tobytes()


@pytest.mark.parametrize("name", [name for name, (op, _) in OPERATIONS.items() if op.passes_on_not_finite()])
def test_what_is_not_finite_is_passed_on(device: torch.device, name: str) -> None:
    """It does so whatever the row holds beside it: a search of the output then finds it."""
    op, (width,) = OPERATIONS[name]
    (X,) = inputs_for([width], 3 * width)
    for number, value in enumerate((np.nan, np.inf, -np.inf)):
        X[np.arange(number * width, (number + 1) * width), np.arange(width)] = value
    X[:, 0] = np.where(np.isfinite(X[:, 0]), -np.inf, X[:, 0])  # a sum of infinities is not finite either
    for found in (run_kernel(op, [X], device), run_reference(op, [X]), run_on_cpu(op, [X])):
        assert not np.isfinite(found).any()


def test_an_affine_map_passes_on_what_it_looks_at() -> None:
    weight, intercept = np.array([[1.0, 2.0], [0.0, 3.0]]), np.zeros(2)
    assert Affine(weight, intercept).passes_on_not_finite()
    assert not Affine(weight, intercept, "exp").passes_on_not_finite()  # exp(-inf) is 0
    assert not Affine(weight * [[1.0], [0.0]], intercept).passes_on_not_finite()
    assert {op.kind() for op, _ in OPERATIONS.values() if op.passes_on_not_finite()} == {"affine"}


EXACT = (
    *("linear_leaves", "ordered_affine", "piecewise", "pool", "stacked_linear_leaves", "stacked_ordered_affine"),
    *("stacked_symmetric_trees", "stacked_tree_ensemble", "stacked_weighted_median", "symmetric_trees"),
    *("tree_contributions", "tree_ensemble", "weighted_median"),
)
"""Operations that move numbers, add up integers or compute with floats in a given order."""


def allowed_in_float64(op: Operation, arrays: list[np.ndarray], expected: np.ndarray) -> float | np.ndarray:
    """Return how far a float64 kernel of the operation may be from its reference, as its family's tests say."""
    if type(op).compute_on_cpu is Operation.compute_on_cpu or op.kind() in EXACT:
        return 0.0
    size = np.abs(expected)
    match op:
        case Pairwise():
            return 2e-13 * max(10.0, size.max())
        case PairwiseAffine():
            largest = float(op.values(torch.from_numpy(arrays[0])).abs().max())
            return 2e-13 * np.maximum(10 * largest * len(op.points), size)
        case PairwiseContributions():
            return 1e-13 * float(np.abs(op.weight).sum())
        case StackedPairwise() | StackedPairwiseAffine() | StackedSquaredNorm():
            members = [op.member(place) for place in range(op.members)]
            return np.max([allowed_in_float64(member, arrays[:1], expected) for member in members], axis=0)
        case DenseLayers() | StackedDenseLayers():
            return 1e-13 * (1 + size)
        case Lookup():
            return len(op.columns) ** 2 * 2.0**-52 * np.abs(op.table).max() if op.summed else 0.0
        case ImputeSequence():
            return 1e-14 * (op.weight.shape[1] + 8) * (len(op.weight) + 1)
        case PiecewiseAffine():
            parts = np.abs(op.values(torch.from_numpy(arrays[0]), op.nan_is_zero).numpy())
            return 1e-11 * (parts @ np.abs(op.weight) + 10.0 ** (op.coefficients.shape[2] - 1))
        case PathContributions():
            return op.rounding_error()
        case BackgroundContributions():
            return 2.0**-46 * np.abs(op.values).sum()
        case Elementwise() | Expression() | Power() | RowNorm():
            return 2 * (max(array.shape[1] for array in arrays) + 8) * 2.0**-53 * size
    return 2 * (summands(op) + 8) * rounding(op) * magnitude(op, arrays)  # a CPU reads the same tables


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cpu_computes_the_reference(name: str) -> None:
    """To what is allowed to float64 kernels; `test_elementwise.py` has the functions that follow sums."""
    op, widths = OPERATIONS[name]
    if "function" in op.attributes() and not isinstance(op, Elementwise):
        op = dataclasses.replace(op, function="identity")
    arrays = [array.astype(np.float64) for array in inputs_for(widths, 200)]
    found, expected = run_on_cpu(op, arrays), run_reference(op, arrays)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    allowed = np.broadcast_to(allowed_in_float64(op, arrays, expected), found.shape)
    differ = (found != expected) & ~np.isnan(found)
    assert (np.abs(found[differ] - expected[differ]) <= allowed[differ]).all()


@pytest.mark.parametrize("name", OPERATIONS)
def test_row_bits_on_a_cpu_do_not_depend_on_the_batch(name: str) -> None:
    op, widths = OPERATIONS[name]
    assert_rows_do_not_depend_on_the_batch(lambda arrays: run_on_cpu(op, arrays), widths)


@pytest.mark.parametrize("features", [90, 100, 200, 300, 700, 5_000])
@pytest.mark.parametrize("targets", [1, 3])
def test_row_bits_on_a_cpu_do_not_depend_on_the_place_in_a_tile(features: int, targets: int) -> None:
    """A CPU computes tiles of rows; a library may treat a tile's last rows in another way."""
    op = operations.affine(features, targets)
    (row,) = inputs_for([features], 1)
    found = run_on_cpu(op, [np.repeat(row, 1100, axis=0)])
    assert (found == found[0]).all()


def assert_rows_do_not_depend_on_the_batch(
    run: Callable[[list[np.ndarray]], np.ndarray], widths: tuple[int, ...], rows: int = 1000
) -> None:
    arrays = inputs_for(widths, rows)
    whole = run(arrays)
    block = 64 if rows > 64 else 32  # of which every program holds a part or a multiple
    parts = {1: (0, 1, block - 1), 2: (0, rows // 2 + 1), 7: (0, block - 6), block: (0, 37 % (rows - block))}
    for size, starts in parts.items():
        for start in (*starts, rows - size):
            part = run([array[start : start + size] for array in arrays])
            assert part.tobytes() == whole[start : start + size].tobytes(), f"{size} rows from {start}"
    moved = run([np.roll(array, 389, axis=0) for array in arrays])
    assert np.roll(moved, -389, axis=0).tobytes() == whole.tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy
def test_extreme_rows_leave_their_neighbours_alone(device: torch.device) -> None:
    """NaN and infinity in one row must not reach another; a server computes strangers' rows side by side."""
    for name, (op, widths) in OPERATIONS.items():
        arrays = inputs_for(widths, 24)
        clean = run_kernel(op, arrays, device)
        on_cpu = run_on_cpu(op, arrays)
        for array in arrays:
            array[5], array[17] = np.nan, np.inf
        others = np.delete(np.arange(24), [5, 17])
        assert run_kernel(op, arrays, device)[others].tobytes() == clean[others].tobytes(), name
        assert run_on_cpu(op, arrays)[others].tobytes() == on_cpu[others].tobytes(), name


W = np.ones
WRONG: dict[str, tuple[Operation, tuple[int, ...], str]] = {
    "affine weight": (Affine(W((3, 1)), W(1)), (4,), "affine: weight must be [4, targets], not [3, 1]."),
    "affine intercept": (Affine(W((3, 2)), W(1)), (3,), "affine: intercept must be [2], not [1]."),
    "affine function": (Affine(W((3, 1)), W(1), "sine"), (3,), "There is no function 'sine'; the functions"),
    "scale": (Scale(W(3), W(2)), (3,), "scale: shift and factor must be [3]"),
    "columns none": (Columns(np.array([], dtype=np.int32)), (3,), "columns: at least one column"),
    "columns range": (Columns(np.array([0, 3])), (3,), "columns: indices must lie in [0, 3)."),
    "concatenate": (Concatenate(), (), "concatenate: at least one input"),
    "concatenate none": (Concatenate(np.array([], dtype=np.int32)), (3,), "concatenate: at least one column"),
    "concatenate range": (Concatenate(np.array([0, 5])), (3, 2), "concatenate: columns must lie in [0, 5)."),
    "elementwise": (Elementwise("sine"), (3,), "There is no function 'sine'"),
    "polynomial": (Polynomial(np.array([[4]]), W(3), W(3)), (3,), "polynomial: indices must lie in [0, 3]."),
    "polynomial scale": (Polynomial(np.array([[3]]), W(2), W(3)), (3,), "polynomial: shift and factor must be [3]"),
    "polynomial shape": (Polynomial(np.array([0]), W(3), W(3)), (3,), "indices must be [monomials, degree]"),
    "polynomial_affine": (
        PolynomialAffine(np.array([[0]]), W(3), W(3), W((2, 1)), W(1)),
        (3,),
        "polynomial_affine: weight must be [1, targets], not [2, 1].",
    ),
    "quadratic": (
        Quadratic(W(3), W(3), W((1, 3, 2)), W((1, 3)), W(1)),
        (3,),
        "quadratic: quadratic must be [1, 3, 3], not [1, 3, 2].",
    ),
    "quadratic precision": (
        Quadratic(W(3), W(3), W((1, 3, 3)), W((1, 3)), W(1), precision="half"),
        (3,),
        f"quadratic: precision must be one of {Quadratic.PRECISIONS}, not 'half'.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, widths, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(*widths)
    assert message in str(raised.value)


@pytest.mark.parametrize(("features", "targets"), [(3, 1), (13, 1), (40, 1), (1500, 1), (5, 3)])
def test_affine_does_not_look_at_features_without_weight(device: torch.device, features: int, targets: int) -> None:
    op = operations.affine(features, targets)
    op.weight[1::2] = 0
    (x,) = inputs_for([features], 20)
    expected, wild = run_reference(op, [x]), x.copy()
    wild[:, 1::2] = np.nan
    wild[3, 1] = np.inf
    assert np.array_equal(run_reference(op, [wild]), expected)
    assert np.array_equal(run_on_cpu(op, [wild]), run_on_cpu(op, [x]))
    assert np.array_equal(run_kernel(op, [wild], device), run_kernel(op, [x], device))


EXTENDS = {"neighbors.tree_neighbors": "neighbors", "neighbors.stacked_tree_neighbors": "stacked_neighbors"}
"""Operations that extend another one of their family, as subclasses of it."""


def test_no_operation_imports_another_one() -> None:
    """Code that several operations use has a module of its own; a subclass and a stack import their class."""
    for kind, name in kinds.MODULES.items():
        own = kind.removeprefix("stacked_")
        allowed = {own, EXTENDS.get(name), EXTENDS.get(kinds.MODULES[own])}
        path = (Path(kinds.__file__).parent / name.replace(".", "/")).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported = (node.module or "").rpartition(".")[2]
                assert imported not in kinds.MODULES.keys() - allowed, f"{name} imports {node.module}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_plain_torch_is_given_no_more_than_kernels(name: str) -> None:
    """The same tables or some of them; points may lie in another order, and an offset in the digits' table of terms."""
    op, _ = OPERATIONS[name]
    whole = op.parameters()
    if op.kind() == "squared_norm" and "terms" in whole:
        whole["offset"] = whole["terms"][3, : len(op.offset)]
    for key, array in op.plain_parameters().items():
        if key == "targets" and key not in whole:  # matrix products read digits of them
            continue
        if key == "columns":
            array, whole[key] = np.unique(array), np.intersect1d(array, whole[key])
        np.testing.assert_array_equal(array, whole[key])
