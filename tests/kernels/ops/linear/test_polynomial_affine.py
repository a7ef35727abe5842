"""Nested polynomials: any set of monomials is recognised, and the bits are the same in every batch."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, polynomial_affine, run_kernel, run_reference
from triton_regressors.kernels.ops.linear.polynomial_affine import nested_monomials


@pytest.mark.parametrize(("features", "degree"), [(1, 1), (1, 4), (4, 3), (10, 3)])
def test_every_monomial_has_one_place(features: int, degree: int) -> None:
    found = list(nested_monomials(features, degree))
    assert len(set(found)) == len(found) == math.comb(features + degree, degree)
    assert all(list(monomial) == sorted(monomial, reverse=True) for monomial in found)


def test_few_monomials_of_few_features_are_nested() -> None:
    nested = {(f, d): "nested" in polynomial_affine(f, d).parameters() for f in (5, 9, 12, 13) for d in (1, 3, 4)}
    assert {key for key, value in nested.items() if value} == {
        (5, 1), (5, 3), (5, 4), (9, 1), (9, 3), (12, 1), (12, 3),
    }  # fmt: skip


def test_some_of_the_monomials_some_twice_in_any_order(device: torch.device) -> None:
    whole = polynomial_affine(6, 3, 2)
    rng = np.random.default_rng(0)
    some = rng.permutation(len(whole.indices))[:30]
    indices = np.concatenate([rng.permuted(whole.indices[some], axis=1), whole.indices[some[:5]]])
    op = dataclasses.replace(whole, indices=indices, weight=rng.standard_normal((35, 2)))
    assert op.nested
    (x,) = inputs_for([6], 50)
    np.testing.assert_allclose(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]), rtol=0, atol=1e-11)


def test_a_row_has_the_same_bits_in_every_batch(device: torch.device) -> None:
    op = polynomial_affine(10, 3)
    (x,) = inputs_for([10], 300)
    x[7, 2] = np.nan
    together = run_kernel(op, [x], device, torch.float64)
    assert np.isnan(together[7])
    assert np.isfinite(np.delete(together, 7, axis=0)).all()
    for rows in ([5, 7], [299], [140, 1, 0], list(range(3, 250))):
        np.testing.assert_array_equal(run_kernel(op, [x[rows]], device, torch.float64), together[rows])
