"""Polynomial, then affine: `out[r, t] = f(Σₘ weight[m, t] · Πₖ z[r, indices[m, k]] + intercept[t])`.

`z[r, j] = (x[r, j] − shift[j]) · factor[j]`, `z[r, F] = 1`. `x`: `[rows, F]`, float32 or float64; `indices`:
`[monomials, degree]` int32; `shift`, `factor`: `[F]` float64; `weight`: `[monomials, targets]` float64; `intercept`:
`[targets]` float64; `out`: `[rows, targets]`, float32 or float64. The monomials exist in registers only; everything is
float64.

The factors go into the weights, which leaves `u = x − shift`. The kernel then takes the largest index out of each
monomial, `Σ weight · Πₖ u = Σⱼ u[j] · Σₚ prefix[p] · table[p, j]`: there are far fewer prefixes than monomials, and the
inner sum is a matrix product. Any degree and any set of monomials work; for degree 2 `quadratic.py` is faster.

If all monomials of the degree are few, they are nested, `w + Σⱼ u[j] · (wⱼ + Σₖ u[k] · (wⱼₖ + …))` for `k ≤ j`. It
takes one multiplication for each monomial and none for padding, in a thread that holds its rows' features in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles, matmul
from ...numerics.dot import dot
from ...numerics.functions import FUNCTIONS, apply_function, function_suffix
from ...plan.plan import Parameters
from .contraction import Contraction
from .launch import NESTED_ROWS, polynomial_affine_shape
from .monomials import Monomials, monomial_block, monomials

MOST_NESTED = 512  # monomials; each is an instruction of the kernel
MOST_NESTED_FEATURES = 12  # each thread holds those of four rows in registers


@triton.jit
def nested_sum(features, weights, LARGEST: tl.constexpr, DEGREE: tl.constexpr):
    """Return a polynomial in the features up to index LARGEST, and a pointer past the weights that it used.

    `features` is a tuple of blocks, `weights` are in the order of `nested_monomials`.
    """
    total = tl.load(weights)
    weights += 1
    if DEGREE > 0:
        for k in tl.static_range(LARGEST + 1):
            inner, weights = nested_sum(features, weights, LARGEST=k, DEGREE=DEGREE - 1)
            total += inner * features[k]
    return total, weights


@triton.jit(do_not_specialize=["rows"])
def nested_polynomial_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    nested,  # float64 [TARGETS, MONOMIALS]: the weights of all monomials, in the order of `nested_monomials`
    intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    DEGREE: tl.constexpr,
    MONOMIALS: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one target."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1).to(tl.int64)
    features = ()
    for k in tl.static_range(FEATURES):
        u = tl.load(x + row * FEATURES + k, mask=row < rows, other=0.0).to(tl.float64) - tl.load(shift + k)
        features += (u,)  # type: ignore[assignment]  # tuples of any length
    total, _ = nested_sum(features, nested + target * MONOMIALS, LARGEST=FEATURES - 1, DEGREE=DEGREE)
    y = apply_function(total + tl.load(intercept + target), FUNCTION)
    tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def polynomial_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    prefixes,  # int32 [PREFIXES, DEGREE]: the monomials without their last feature
    shift,  # float64 [FEATURES]
    table,  # float64 [TARGETS, PREFIXES, FEATURES]: the weight of each prefix times each last feature
    intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    PREFIXES: tl.constexpr,
    DEGREE: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_PREFIXES: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one target."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1).to(tl.int64)
    table += target * PREFIXES * FEATURES
    total = polynomial_sum(
        x, prefixes, shift, table, row, rows, FEATURES, PREFIXES, DEGREE, BLOCK_PREFIXES, BLOCK_FEATURES
    )
    y = apply_function(total + tl.load(intercept + target), FUNCTION)
    tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit
def polynomial_sum(
    x, prefixes, shift, table, row, rows,
    FEATURES: tl.constexpr, PREFIXES: tl.constexpr, DEGREE: tl.constexpr,
    BLOCK_PREFIXES: tl.constexpr, BLOCK_FEATURES: tl.constexpr,
):  # fmt: skip
    """Return the sums of one target, float64 `[BLOCK_ROWS]`; arguments as in the kernel."""
    total = tl.zeros([row.shape[0], BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        inner = tl.zeros([row.shape[0], BLOCK_FEATURES], tl.float64)
        for start_p in tl.range(0, PREFIXES, BLOCK_PREFIXES):
            p = start_p + tl.arange(0, BLOCK_PREFIXES)
            prefix = monomial_block(
                x, prefixes, shift, row, p, rows, FEATURES=FEATURES, MONOMIALS=PREFIXES, DEGREE=DEGREE
            )
            inside = (p < PREFIXES)[:, None] & (feature < FEATURES)[None, :]
            w = tl.load(table + p.to(tl.int64)[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
            inner = dot(prefix, w, inner)
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        last = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        last -= tl.load(shift + feature, mask=feature < FEATURES, other=0.0)[None, :]
        total += last * inner
    return tl.sum(total, axis=1)


@dataclass(frozen=True, eq=False)
class PolynomialAffine(Contraction, Monomials):
    """Contract monomials with weights as they are made, then apply a function to each element."""

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_monomials(features)
        self.check_contraction(len(self.indices))

    @property
    def nested(self) -> bool:
        """Return whether the monomials are few enough to nest."""
        features, degree = len(self.shift), self.indices.shape[1]
        return features <= MOST_NESTED_FEATURES and math.comb(features + degree, degree) <= MOST_NESTED

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the tables of both kernels; the factors go into the weights, and the constant into the intercept."""
        found = self.plain_parameters()
        if self.nested:
            features, degree = len(self.shift), self.indices.shape[1]
            order = {monomial: place for place, monomial in enumerate(nested_monomials(features, degree))}
            found["nested"] = np.zeros((self.weight.shape[1], len(order)))
            for indices, weight in zip(self.indices, self.weight * self.monomial_scale()[:, None], strict=True):
                monomial = tuple(sorted(indices[indices < features].tolist(), reverse=True))
                found["nested"][:, order[monomial]] += weight if monomial else 0.0
        return found

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the monomials split into prefixes and last features."""
        features, targets = len(self.shift), self.weight.shape[1]
        weight = self.weight * self.monomial_scale()[:, None]
        # The constant's index is smallest, so after sorting the last index of a monomial is its largest feature.
        ordered = np.sort(np.where(self.indices == features, -1, self.indices), axis=1)
        *_, last = ordered.T
        constant = last < 0
        prefixes, which = np.unique(ordered[~constant, :-1], axis=0, return_inverse=True)
        table = np.zeros((targets, len(prefixes), features))
        for target in range(targets):
            np.add.at(table[target], (which.reshape(-1), last[~constant]), weight[~constant, target])
        return {
            "prefixes": np.where(prefixes < 0, features, prefixes).astype(np.int32),
            "shift": self.shift,
            "table": table,
            "intercept": self.intercept + weight[constant].sum(axis=0),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        z = (inputs[0].double() - torch.tensor(self.shift)) * torch.tensor(self.factor)
        terms = monomials(torch.tensor(self.indices), z)
        return FUNCTIONS[self.function](terms @ torch.tensor(self.weight) + torch.tensor(self.intercept))

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), table = inputs, parameters["table"]
        targets, prefixes, features = table.shape
        flat = table.permute(1, 0, 2).reshape(prefixes, targets * features)

        def compute(tile: torch.Tensor) -> torch.Tensor:
            u = tile - parameters["shift"]
            inner = matmul(monomials(parameters["prefixes"], u), flat).reshape(len(tile), targets, features)
            return FUNCTIONS[self.function]((inner * u[:, None, :]).sum(2) + parameters["intercept"])

        return in_tiles(x, compute, targets, prefixes + targets * features)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (targets, prefixes, features) = inputs, parameters["table"].shape
        device, degree = parameters["table"].device, self.indices.shape[1]
        if "nested" in parameters:
            nested_polynomial_kernel[(triton.cdiv(rows, NESTED_ROWS), targets)](
                x=x,
                shift=parameters["shift"],
                nested=parameters["nested"],
                intercept=parameters["intercept"],
                out=output,
                rows=rows,
                FEATURES=features,
                DEGREE=degree,
                MONOMIALS=parameters["nested"].shape[1],
                TARGETS=targets,
                FUNCTION=self.function,
                BLOCK_ROWS=NESTED_ROWS,
                num_warps=1,
            )
            return
        shape = polynomial_affine_shape.of(device, triton.next_power_of_2(features), degree)
        polynomial_affine_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]), targets)](
            x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=features,
            PREFIXES=prefixes,
            DEGREE=degree - 1,
            TARGETS=targets,
            FUNCTION=self.function,
            **shape,
        )

    def describe(self) -> str:
        degree, monomials = self.indices.shape[1], len(self.indices)
        shape = f"{len(self.shift)} → {self.weight.shape[1]}"
        return f"{shape} by {monomials} monomials of degree ≤ {degree}" + function_suffix(self.function)


def nested_monomials(features: int, degree: int) -> Iterator[tuple[int, ...]]:
    """Yield all monomials of so many features up to a degree, each as its feature indices in descending order."""
    yield ()
    if degree > 0:
        for largest in range(features):
            for rest in nested_monomials(largest + 1, degree - 1):
                yield (largest, *rest)
