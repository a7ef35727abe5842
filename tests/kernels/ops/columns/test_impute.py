"""Imputation against NumPy, and what does not fit."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_lookup import impute, impute_sequence
from tests.kernels.test_ops import drawn, rows, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.impute_sequence import ImputeSequence
from triton_regressors.kernels.plan.plan import Operation

missings = st.sampled_from([None, 0.0, -1.0, 0.1])


def with_holes(width: int, rows: int, seed: int, missing: float | None) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width))
    x[rng.random(x.shape) < 0.3] = np.nan if missing is None else missing
    x[rng.random(x.shape) < 0.1] = -0.0
    return x


def is_missing(x: np.ndarray, missing: float | None) -> np.ndarray:
    return np.isnan(x) if missing is None else x == missing


def within_half_ulp(found: np.ndarray, y: np.ndarray, allowed: float = 0.0) -> bool:
    half_ulp = 0.5 * np.spacing(np.abs(y).astype(np.float32)).astype(np.float64) * (1 + 1e-6)
    return bool((np.abs(found - y) <= half_ulp + allowed).all())


@drawn
@given(data=st.data(), width=st.integers(1, 9), missing=missings, rows=rows, seed=seeds)
def test_impute(
    device: torch.device, data: st.DataObject, width: int, missing: float | None, rows: int, seed: int
) -> None:
    columns = data.draw(st.integers(0, width))
    op = impute(width, columns, data.draw(st.integers(0 if columns else 1, width)), missing, seed)
    double = with_holes(width, rows, seed, missing)
    for x in (double, double.astype(np.float32)):
        y = x.astype(np.float64)[:, op.columns]
        y = np.where(is_missing(y, missing), op.fill, y)
        y = np.hstack([y, is_missing(x[:, op.indicators].astype(np.float64), missing)])
        assert np.array_equal(run_reference(op, [x]), y)
        assert np.array_equal(run_on_cpu(op, [x]), y)
        assert np.array_equal(run_kernel(op, [x], device, torch.float64), y)
        assert within_half_ulp(run_kernel(op, [x], device), y)


def test_a_missing_number_is_compared_in_float64(device: torch.device) -> None:
    op = Impute(np.array([0]), np.array([7.0]), np.array([0]), missing=0.1)
    x = np.array([[0.1], [np.nextafter(0.1, 1)], [np.float32(0.1)]])
    for found in (run_reference(op, [x]), run_on_cpu(op, [x]), run_kernel(op, [x], device, torch.float64)):
        assert np.array_equal(found, [[7.0, 1.0], [x[1, 0], 0.0], [x[2, 0], 0.0]])


def test_nan_passes_where_a_number_is_missing(device: torch.device) -> None:
    op = Impute(np.array([0]), np.array([7.0]), np.array([0]), missing=-1.0)
    x = np.array([[-1.0], [np.nan]], dtype=np.float32)
    for found in (run_reference(op, [x]), run_on_cpu(op, [x]), run_kernel(op, [x], device)):
        assert np.array_equal(found, [[7.0, 1.0], [np.nan, 0.0]], equal_nan=True)


def sequence_by_hand(op: ImputeSequence, x: np.ndarray, z: np.ndarray, y: np.ndarray | None) -> np.ndarray:
    z, holes = z.astype(np.float64), is_missing(x.astype(np.float64)[:, op.columns], op.missing)
    for u, target in enumerate(op.targets):
        p = z @ op.weight[u] + op.intercept[u] + (0 if y is None else y[:, u].astype(np.float64))
        z[:, target] = np.where(holes[:, target], np.clip(p, op.low[u], op.high[u]), z[:, target])
    return z


@drawn
@given(
    width=st.integers(1, 40),
    updates=st.integers(1, 9),
    added=st.booleans(),
    missing=missings,
    rows=rows,
    seed=seeds,
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_impute_sequence(
    device: torch.device,
    width: int,
    updates: int,
    added: bool,
    missing: float | None,
    rows: int,
    seed: int,
    scale: float,
) -> None:
    rng = np.random.default_rng(seed)
    op = impute_sequence(width + 2, width, updates, missing, seed, scale)
    inputs = [with_holes(width + 2, rows, seed, missing), scale * rng.standard_normal((rows, width))]
    if added:
        inputs.append(scale * rng.standard_normal((rows, updates)))
    for arrays in (inputs, [array.astype(np.float32) for array in inputs]):
        y = sequence_by_hand(op, arrays[0], arrays[1], arrays[2] if added else None)
        allowed = 1e-14 * scale * (width + 8) * (updates + 1)
        assert np.allclose(run_reference(op, arrays), y, rtol=0, atol=allowed)
        assert np.allclose(run_on_cpu(op, arrays), y, rtol=0, atol=allowed)
        assert np.allclose(run_kernel(op, arrays, device, torch.float64), y, rtol=0, atol=allowed)
        assert within_half_ulp(run_kernel(op, arrays, device), y, allowed)


def test_an_update_reads_what_the_one_before_it_wrote(device: torch.device) -> None:
    """x₀ ← x₁ + 1, then x₁ ← 2 x₀, then x₀ ← at most 5; only where they are missing."""
    weight = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    high = np.array([np.inf, np.inf, 5.0])
    op = ImputeSequence(
        np.array([2, 0]), np.array([0, 1, 0]), weight, np.array([1.0, 0.0, 0.0]), np.full(3, -np.inf), high
    )
    n = np.nan
    x = np.array([[n, 9.0, n], [n, 9.0, 4.0], [3.0, 9.0, n], [3.0, 9.0, 4.0]], dtype=np.float32)
    z = np.array([[0.0, 2.0], [4.0, 2.0], [0.0, 3.0], [4.0, 3.0]])
    y = [[5.0, 6.0], [4.0, 8.0], [3.0, 3.0], [4.0, 3.0]]
    for found in (run_reference(op, [x, z]), run_on_cpu(op, [x, z]), run_kernel(op, [x, z], device)):
        assert found.tolist() == y


@pytest.mark.parametrize("width", [1, 33, 1500])
def test_row_bits_on_a_cpu_do_not_depend_on_the_place_in_a_tile(width: int) -> None:
    op = impute_sequence(width, width, 3)
    x = np.full((1100, width), np.nan, dtype=np.float32)
    z = np.repeat(np.random.default_rng(0).standard_normal((1, width)), 1100, axis=0)
    found = run_on_cpu(op, [x, z])
    assert (found == found[0]).all()


A, S = impute(4, 3, 2), impute_sequence(4, 3, 2)


def changed(op: Operation, **fields: object) -> Operation:
    return dataclasses.replace(op, **fields)  # type: ignore[type-var]


IMPUTE = "impute: columns and indicators must be at least one and lie in [0, 4)."
WRONG: dict[str, tuple[Operation, tuple[int, ...], str]] = {
    "nothing": (Impute(np.arange(0), np.zeros(0), np.arange(0)), (4,), IMPUTE),
    "columns": (changed(A, columns=np.array([0, 4, 1])), (4,), IMPUTE),
    "indicators": (changed(A, indicators=np.array([-1])), (4,), IMPUTE),
    "fill": (changed(A, fill=np.zeros(2)), (4,), "impute: fill must be [3], not [2]."),
    "missing": (
        changed(A, missing=float("nan")),
        (4,),
        "impute: missing must be a finite number, or None for NaN, not nan.",
    ),
    "sequence inputs": (S, (4,), "impute_sequence: 2 or 3 inputs are needed, not 1."),
    "sequence columns": (S, (4, 2), "impute_sequence: columns must be [2] and lie in [0, 4)."),
    "sequence columns range": (S, (1, 3), "impute_sequence: columns must be [3] and lie in [0, 1)."),
    "sequence targets": (
        changed(S, targets=np.array([0, 3])),
        (4, 3),
        "impute_sequence: targets must be at least one and lie in [0, 3).",
    ),
    "sequence weight": (
        changed(S, weight=np.zeros((3, 2))),
        (4, 3),
        "impute_sequence: weight must be [2, 3], not [3, 2].",
    ),
    "sequence low": (changed(S, low=np.zeros(3)), (4, 3), "impute_sequence: intercept, low and high must be [2]."),
    "sequence third": (
        S,
        (4, 3, 1),
        "impute_sequence: the third input must be [rows, 2], not [rows, 1].",
    ),
    "sequence missing": (
        changed(S, missing=float("inf")),
        (4, 3),
        "impute_sequence: missing must be a finite number, or None for NaN, not inf.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, widths, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(*widths)
    assert str(raised.value) == message


def test_describe() -> None:
    assert A.describe() == "3 columns, 2 indicators"
    assert S.describe() == "2 updates of 3 columns"
    assert not A.reads_input_once()
    assert impute(4, 4, 0).reads_input_once()
