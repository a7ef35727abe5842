"""Scaler, polynomial of degree 2 and Ridge in one: y = b + Σᵢ aᵢ zᵢ + Σ_{i ≤ j} c_{ij} zᵢ zⱼ with z = (x − m)/s.

Mathematics: x `[rows, features]`, m (`mean`) and s (`scale`) `[features]`; `coefficients` `[features · (features + 3) /
2]` are a, then c row after row, in the order of scikit-learn's `PolynomialFeatures(2, include_bias=False)`; b
(`intercept`) `[1]`; y `[rows]`. All are float32.
Lesson: scikit-learn and torch write the expansion to memory, 560 numbers for 32 features. It is never needed: a
row's answer is the quadratic form zᵀ(Cz + a), computed from a row that is read once.
In the product: the exporter turns such a pipeline into `kernels/ops/linear/quadratic.py`, in float64 if the pipeline
needs it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import multiprocessors
from gallery.launches import Launch, by_layout
from gallery.levels.extension import library
from gallery.levels.operator import operator
from gallery.tuning import Choice, tuned

MOST_FEATURES = 64
CHOICES = (
    Choice("64 rows", "few registers, so many programs are under way", {"ROWS": 64}, 4),
    Choice("128 rows", "the form's matrix is used for more rows", {"ROWS": 128}, 4),
    Choice("128 rows, more threads", "a thread holds fewer numbers", {"ROWS": 128}, 8),
)
PROGRAMS_PER_MULTIPROCESSOR = 8


def reference(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> torch.Tensor:
    """Return y through scikit-learn's expansion."""
    z = (x - mean) / scale
    pairs = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    expansion = torch.cat([z, z.index_select(1, pairs[0]) * z.index_select(1, pairs[1])], dim=1)
    return torch.mv(expansion, coefficients) + intercept


@tuned(CHOICES, key=["rows", "features"])
@triton.jit
def polynomial_kernel(
    x,  # float32 [rows, features]
    mean,  # float32 [features], like scale
    scale,
    coefficients,  # float32 [features · (features + 3) / 2]
    intercept,  # float32 [1]
    y,  # float32 [rows]
    rows,
    features,
    FEATURES: tl.constexpr,  # the power of two from features on, at least 16
    ROWS: tl.constexpr,
):
    """Write y of every `num_programs(0)`-th block of rows, reading the form's matrix once.

    The product z C is computed as three products of tensor cores, which have float32's precision except for some bits.
    """
    i = tl.arange(0, FEATURES)
    known = i < features
    triangle = known[None, :] & (i[:, None] <= i[None, :])
    place = features + i[:, None] * features - i[:, None] * (i[:, None] - 1) // 2 + i[None, :] - i[:, None]
    c = tl.load(coefficients + place, mask=triangle, other=0.0)
    a = tl.load(coefficients + i, mask=known, other=0.0)
    m = tl.load(mean + i, mask=known, other=0.0)
    s = 1.0 / tl.load(scale + i, mask=known, other=1.0)
    b = tl.load(intercept)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=2):
        row = block * ROWS + tl.arange(0, ROWS).to(tl.int64)
        inside = (row < rows)[:, None] & known[None, :]
        z = (tl.load(x + row[:, None] * features + i[None, :], mask=inside, other=0.0) - m[None, :]) * s[None, :]
        inner = tl.dot(z, c, input_precision="tf32x3") + a[None, :]
        tl.store(y + row, tl.sum(z * inner, axis=1) + b, mask=row < rows)


@operator("gallery::level_polynomial")
def in_triton_language(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> torch.Tensor:
    """Return y of at most 64 features; x of any strides is copied into rows first."""
    return launcher(x, mean, scale, coefficients, intercept)(x, mean, scale, coefficients, intercept)


@by_layout
def launcher(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> Callable[..., torch.Tensor]:
    """Return what computes y of tensors with these layouts."""
    check(x, mean, scale, coefficients, intercept)
    (rows, features), most = x.shape, PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(x.device)
    launch = Launch(
        polynomial_kernel,
        lambda meta: (min(triton.cdiv(rows, meta["ROWS"]), most),),
        *(rows, features, max(triton.next_power_of_2(features), 16)),
    )

    def answer(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(rows)
        if rows:
            launch(*(each.contiguous() for each in (x, *parameters)), y)
        return y

    return answer


@in_triton_language.register_fake
def _(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> torch.Tensor:
    return x.new_empty(x.shape[0])


def in_cuda(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> torch.Tensor:
    """Return y of at most 64 features, by `cuda/polynomial.cu`."""
    check(x, mean, scale, coefficients, intercept)
    return library().polynomial(x, mean, scale, coefficients, intercept)


def check(
    x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, intercept: torch.Tensor
) -> None:
    """Refuse arguments that the kernels do not support."""
    demand_alike((torch.float32,), x=x, mean=mean, scale=scale, coefficients=coefficients, intercept=intercept)
    demand_shape("x", x, -1, -1)
    features = x.shape[1]
    if not 1 <= features <= MOST_FEATURES:
        raise ValueError(f"'x' has {features} features; 1 to {MOST_FEATURES} are accepted.")
    demand_shape("mean", mean, features)
    demand_shape("scale", scale, features)
    demand_shape("coefficients", coefficients, features * (features + 3) // 2)
    demand_shape("intercept", intercept, 1)
