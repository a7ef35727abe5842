"""Lookups against a search in plain Python, and what does not fit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_lookup import lookup
from tests.kernels.test_ops import drawn, rows, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.numerics.functions import FUNCTIONS
from triton_regressors.kernels.ops.columns.lookup import Lookup


def numbers(width: int, rows: int, seed: int, grid: float = 0.25, span: int = 30) -> np.ndarray:
    """Return multiples of `grid`, so that many are keys, with zeros of both signs, NaN and numbers between keys."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-span, span + 1, (rows, width)) * grid
    x[rng.random(x.shape) < 0.1] = -0.0
    x[rng.random(x.shape) < 0.1] = np.nan
    return x + np.where(rng.random(x.shape) < 0.1, grid / 3, 0.0)


def found_by_hand(op: Lookup, x: np.ndarray) -> np.ndarray:
    """Return the row of the table for each row and lookup."""
    found = np.empty((len(x), len(op.columns)), dtype=int)
    for index, column in enumerate(op.columns):
        start, stop = op.starts[index : index + 2]
        places = {key: start + place for place, key in enumerate(op.keys[start:stop].tolist())}
        nan, unknown = len(op.keys) + index, len(op.keys) + len(op.columns) + index
        found[:, index] = [nan if v != v else places.get(v, unknown) for v in x[:, column].tolist()]
    return found


def expected(op: Lookup, x: np.ndarray) -> np.ndarray:
    at = found_by_hand(op, x)
    y = op.table[at].sum(axis=1) if op.summed else op.table[at, 0]
    return FUNCTIONS[op.function](torch.from_numpy(y)).numpy()


def check(op: Lookup, x: np.ndarray, device: torch.device) -> None:
    """Lookups find the very same rows; sums of n numbers may differ by n units of float64."""
    y = expected(op, x)
    allowed = len(op.columns) * 2.0**-52 * np.abs(op.table).max() * len(op.columns) if op.summed else 0.0
    assert np.allclose(run_reference(op, [x]), y, rtol=0, atol=allowed, equal_nan=True)
    assert np.allclose(run_on_cpu(op, [x]), y, rtol=0, atol=allowed, equal_nan=True)
    assert np.allclose(run_kernel(op, [x], device, torch.float64), y, rtol=0, atol=allowed, equal_nan=True)
    single = x.astype(np.float32)
    y = expected(op, single.astype(np.float64))
    half_ulp = 0.5 * np.spacing(np.abs(y).astype(np.float32)) * (1 + 1e-6)
    assert np.allclose(run_reference(op, [single]), y, rtol=0, atol=allowed)
    assert np.allclose(run_on_cpu(op, [single]), y, rtol=0, atol=allowed)
    assert (np.abs(run_kernel(op, [single], device) - y) <= half_ulp + allowed).all()


shapes = st.lists(st.integers(0, 20), min_size=1, max_size=6)


@drawn
@given(width=st.integers(1, 6), counts=shapes, rows=rows, seed=seeds)
def test_lookup(device: torch.device, width: int, counts: list[int], rows: int, seed: int) -> None:
    check(lookup(width, counts, seed=seed), numbers(width, rows, seed), device)


@drawn
@given(width=st.integers(1, 6), counts=shapes, targets=st.integers(1, 4), rows=rows, seed=seeds)
def test_lookup_summed(device: torch.device, width: int, counts: list[int], targets: int, rows: int, seed: int) -> None:
    check(lookup(width, counts, targets, seed=seed), numbers(width, rows, seed), device)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 1000, 4095, 4096])
def test_every_key_is_found_and_nothing_between(device: torch.device, count: int) -> None:
    keys = np.random.default_rng(count).standard_normal(count) * 10.0 ** np.random.default_rng(1).integers(-9, 9, count)
    keys = np.unique(keys)
    op = Lookup(np.array([0]), np.array([0, len(keys)]), keys, np.arange(len(keys) + 2.0)[:, None])
    nothing = float(len(keys) + 1)
    for x, y in (
        (keys, np.arange(len(keys))),
        (np.nextafter(keys, np.inf), np.full(len(keys), nothing)),
        (np.nextafter(keys, -np.inf), np.full(len(keys), nothing)),
        (np.array([np.nan, np.inf, -np.inf, 1e300]), np.array([nothing - 1, nothing, nothing, nothing])),
    ):
        assert np.array_equal(run_reference(op, [x[:, None]])[:, 0], y)
        assert np.array_equal(run_on_cpu(op, [x[:, None]])[:, 0], y)
        assert np.array_equal(run_kernel(op, [x[:, None]], device, torch.float64)[:, 0], y)


def test_equality_is_that_of_float64(device: torch.device) -> None:
    """float32(0.1) is not 0.1, while 0.5 and zeros of both signs are themselves."""
    op = Lookup(np.array([0]), np.array([0, 3]), np.array([0.0, 0.1, 0.5]), np.array([[1.0], [2], [3], [4], [5]]))
    x = np.array([[0.0], [-0.0], [0.1], [0.5]])
    for asked, y in ((x, [1, 1, 2, 3]), (x.astype(np.float32), [1, 1, 5, 3])):
        assert run_reference(op, [asked])[:, 0].tolist() == y
        assert run_on_cpu(op, [asked])[:, 0].tolist() == y
        assert run_kernel(op, [asked], device)[:, 0].tolist() == y


def test_nan_in_the_table_stays_in_its_row(device: torch.device) -> None:
    """An unknown number may have no answer; its neighbours keep theirs."""
    table = np.array([[1.0], [2.0], [0.0], [0.0], [np.nan], [np.nan]])
    op = Lookup(np.array([0, 1]), np.array([0, 1, 2]), np.array([5.0, 6.0]), table, summed=True)
    x = np.array([[5.0, 6.0], [5.0, 7.0], [np.nan, 6.0]], dtype=np.float32)
    for found in (run_reference(op, [x]), run_on_cpu(op, [x]), run_kernel(op, [x], device)):
        assert np.array_equal(found, [[3.0], [np.nan], [2.0]], equal_nan=True)


def test_many_lookups_go_through_the_reference_in_pieces(device: torch.device) -> None:
    op = lookup(3, [1] * 3000, grid=1.0)
    x = numbers(3, 400, 0, grid=1.0, span=3)
    assert np.array_equal(run_reference(op, [x]), expected(op, x))
    assert np.array_equal(run_on_cpu(op, [x]), expected(op, x))


def test_reads_input_once() -> None:
    keys, starts = np.array([1.0, 2.0]), np.array([0, 1, 2])
    for columns, targets, once in (([0, 1], 0, True), ([1, 1], 0, False), ([0, 1], 1, True), ([0, 1], 2, False)):
        assert (
            Lookup(np.array(columns), starts, keys, np.zeros((6, max(targets, 1))), targets > 0).reads_input_once()
            is once
        )


C, S, K, T = np.array([0, 1]), np.array([0, 1, 3]), np.array([4.0, 1.0, 2.0]), np.zeros((7, 1))
WRONG = {
    "no columns": (Lookup(C[:0], S[:1], K[:0], T[:0]), "columns must be at least one and lie in [0, 3)."),
    "columns": (Lookup(np.array([0, 3]), S, K, T), "columns must be at least one and lie in [0, 3)."),
    "starts shape": (Lookup(C, S[:2], K, T), "starts must be [3] and ascend from 0 to 3, the number of keys."),
    "starts end": (Lookup(C, np.array([0, 1, 2]), K, T), "starts must be [3] and ascend from 0 to 3"),
    "starts order": (Lookup(C, np.array([0, 4, 3]), K, T), "starts must be [3] and ascend from 0 to 3"),
    "keys order": (Lookup(C, S, K[[0, 2, 1]], T), "the keys of each lookup must be numbers that ascend."),
    "keys twice": (Lookup(C, S, np.array([4.0, 2, 2]), T), "the keys of each lookup must be numbers that ascend."),
    "keys nan": (Lookup(C, S, np.array([4.0, 1, np.nan]), T), "the keys of each lookup must be numbers that ascend."),
    "table": (Lookup(C, S, K, T[:6]), "table must be [7, 1], not [6, 1]."),
    "table width": (Lookup(C, S, K, np.zeros((7, 2))), "table must be [7, 1], not [7, 2]."),
    "table of nothing": (Lookup(C, S, K, np.zeros((7, 0)), summed=True), "table must be [7, targets], not [7, 0]."),
    "function": (Lookup(C, S, K, T, function="none"), "There is no function 'none'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(3)
    assert str(raised.value).startswith("There is" if case == "function" else "lookup: ")
    assert message in str(raised.value)


def test_describe() -> None:
    assert lookup(3, [2, 4]).describe() == "2 of 6 keys"
    assert lookup(3, [2, 4], 5, function="exp").describe() == "2 of 6 keys, summed to 5, then exp"
