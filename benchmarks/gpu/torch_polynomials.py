"""Polynomials in plain torch, compiled: every formulation that could be the fastest for torch.

All are float32. Each is given its parameters prepared as suits it best; "folded" forms have the scaler multiplied into
their coefficients, which saves torch the scaling and costs some accuracy (the error is printed beside the time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from benchmarks.timing import Contender
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic

Tensor = torch.Tensor
MODES = {"": None, ", max-autotune": "max-autotune-no-cudagraphs"}


def folded_sum(x: Tensor, form: Tensor, linear: Tensor, intercept: Tensor) -> Tensor:
    """Return `((x Q + w) · x).sum() + b`."""
    return ((x @ form + linear) * x).sum(1) + intercept


def folded_two_terms(x: Tensor, form: Tensor, linear: Tensor, intercept: Tensor) -> Tensor:
    """Return `(x Q · x).sum() + x w + b`."""
    return (x @ form * x).sum(1) + x @ linear + intercept


def scaled_sum(x: Tensor, shift: Tensor, factor: Tensor, form: Tensor, linear: Tensor, intercept: Tensor) -> Tensor:
    """Scale, then as `folded_sum`."""
    z = (x - shift) * factor
    return ((z @ form + linear) * z).sum(1) + intercept


def scaled_two_terms(
    x: Tensor, shift: Tensor, factor: Tensor, form: Tensor, linear: Tensor, intercept: Tensor
) -> Tensor:
    """Scale, then as `folded_two_terms`."""
    z = (x - shift) * factor
    return (z @ form * z).sum(1) + z @ linear + intercept


def monomial_sum(x: Tensor, shift: Tensor, factor: Tensor, indices: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """Gather, multiply and add up monomials, which a compiler can keep out of memory."""
    z = with_one((x - shift) * factor)
    return (z[:, indices[0]] * z[:, indices[1]] * z[:, indices[2]] * weight).sum(1) + b


def monomial_product(x: Tensor, shift: Tensor, factor: Tensor, indices: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """Write the monomials and multiply them with the weights."""
    z = with_one((x - shift) * factor)
    return z[:, indices[0]] * z[:, indices[1]] * z[:, indices[2]] @ weight + b


def pair_product(x: Tensor, shift: Tensor, factor: Tensor, pairs: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """Write the products of pairs, multiply them with a matrix and add up over the third factor."""
    z = with_one((x - shift) * factor)
    return (z[:, pairs[0]] * z[:, pairs[1]] @ weight * z).sum(1) + b


def with_one(z: Tensor) -> Tensor:
    """Return the columns and one of ones."""
    return torch.cat([z, torch.ones_like(z[:, :1])], 1)


def quadratic_forms(operation: Quadratic, inputs: Sequence[Tensor], *, tune: bool) -> list[Contender]:
    """Return torch's ways to compute a one-target quadratic form, compiled where the inputs are on a GPU."""
    form, linear, intercept = operation.quadratic[0], operation.linear[0], operation.intercept[0]
    shift, factor = operation.shift, operation.factor
    folded = factor[:, None] * form * factor
    folded_linear = factor * linear - (folded + folded.T) @ shift
    folded_intercept = intercept + shift @ folded @ shift - (factor * linear) @ shift
    small = (folded, folded_linear, folded_intercept)
    large = (shift, factor, form, linear, intercept)
    return [
        *_compiled("((xQ + w)·x).sum, folded", folded_sum, small, inputs, tune=tune),
        *_compiled("(xQ·x).sum + xw, folded", folded_two_terms, small, inputs, tune=tune),
        *_compiled("((zQ + w)·z).sum", scaled_sum, large, inputs, tune=False),
        *_compiled("(zQ·z).sum + zw", scaled_two_terms, large, inputs, tune=False),
    ]


def cubic_forms(operation: PolynomialAffine, inputs: Sequence[Tensor], *, tune: bool) -> list[Contender]:
    """Return torch's ways to compute a one-target polynomial of degree 3, compiled where the inputs are on a GPU."""
    scale, weight, intercept = (operation.shift, operation.factor), operation.weight[:, 0], operation.intercept[0]
    indices = operation.indices.T.astype(np.int64)
    features = len(operation.shift)
    pairs, pair = np.unique(indices[:2], axis=1, return_inverse=True)
    contraction = np.zeros((pairs.shape[1], features + 1))
    np.add.at(contraction, (pair.reshape(-1), indices[2]), weight)
    return [
        *_compiled("monomials · w, summed", monomial_sum, (*scale, indices, weight, intercept), inputs, tune=tune),
        *_compiled("monomials @ w", monomial_product, (*scale, indices, weight, intercept), inputs, tune=False),
        *_compiled("(pairs @ W · z).sum", pair_product, (*scale, pairs, contraction, intercept), inputs, tune=tune),
    ]


def _compiled(
    name: str,
    function: Callable[..., Tensor],
    parameters: Sequence[np.ndarray | np.floating],
    inputs: Sequence[Tensor],
    *,
    tune: bool,
) -> list[Contender]:
    device = inputs[0].device
    tensors = [torch.as_tensor(np.asarray(array)).to(device) for array in parameters]
    tensors = [tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors]

    def contender(label: str, call: Callable[..., Tensor]) -> Contender:
        return Contender(label, lambda i: call(inputs[i], *tensors))

    if device.type != "cuda":
        return [contender(f"torch {name}", function)]
    return [
        contender(f"torch.compile {name}{suffix}", torch.compile(function, dynamic=False, fullgraph=True, mode=mode))
        for suffix, mode in MODES.items()
        if tune or mode is None
    ]
