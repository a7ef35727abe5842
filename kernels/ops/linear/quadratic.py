"""Quadratic: `out[r, t] = f(Σᵢ z[r, i] · (linear[t, i] + Σⱼ z[r, j] · quadratic[t, j, i]) + intercept[t])`.

`z[r, j] = (x[r, j] − shift[j]) · factor[j]`. `x`: `[rows, F]` float32 or float64; `shift`, `factor`: `[F]` float64;
`quadratic`: `[targets, F, F]` float64, upper triangular (zero for `j > i`); `linear`: `[targets, F]`; `intercept`:
`[targets]`; `out`: `[rows, targets]`, float32 or float64. This is a polynomial of degree 2 contracted with its weights,
and also the variance of a Bayesian linear model, `xᵀ Σ x + σ²`.

`precision` says how the products with `quadratic` are summed: "float64" on the float64 matrix units, or "float32" as
six bfloat16 products (float32's 24 bits split in three, the terms below 2⁻²⁴ left out), which is faster. The exporter
picks float32 only if it measured that the answers lose nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles, matmul
from ...format.errors import PlanError
from ...numerics.dot import dot
from ...numerics.functions import FUNCTIONS, apply_function, check_function, function_suffix
from ...plan.devices import has_matrix_units
from ...plan.plan import Operation, Parameters
from .launch import MAX_FEATURES, quadratic_programs, quadratic_shape


@triton.jit
def shifted_tile(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # [BLOCK_FEATURES], loaded
    row,  # int64 [BLOCK_ROWS]
    feature,  # int32 [BLOCK_FEATURES]
    rows,
    FEATURES: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Return `x − shift` for rows and features in the dtype of `shift`; the columns past the last have weight zero.

    A float64 `x` is rounded to float32 after the shift, so a number far from zero loses little.
    """
    inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
    u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
    if SHIFTED:
        u = u - shift[None, :]
    return u.to(shift.dtype)


@triton.jit
def bfloat16_head(value):
    """Return float32 numbers rounded to bfloat16's eight bits, as float32."""
    return ((value.to(tl.uint32, bitcast=True) + 0x8000) & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def bfloat16_parts(value):
    """Return three bfloat16 numbers that sum to the float32 `value`, less than 2¹²⁸ − 2¹¹⁹ in magnitude.

    Integer arithmetic does the rounding: a conversion to bfloat16 and back takes a GPU longer.
    """
    high = bfloat16_head(value)
    rest = value - high
    middle = bfloat16_head(rest)
    return high.to(tl.bfloat16), middle.to(tl.bfloat16), (rest - middle).to(tl.bfloat16)


@triton.jit
def multiply(u, q, acc, PRECISION: tl.constexpr):
    """Return `u @ q + acc` at the given precision; the smallest of the six bfloat16 products come first."""
    if PRECISION == "bf16x6":
        u_high, u_middle, u_low = bfloat16_parts(u)
        q_high, q_middle, q_low = bfloat16_parts(q)
        product = tl.dot(u_middle, q_middle)
        product = tl.dot(u_low, q_high, acc=product)
        product = tl.dot(u_high, q_low, acc=product)
        product = tl.dot(u_middle, q_high, acc=product)
        product = tl.dot(u_high, q_middle, acc=product)
        product = tl.dot(u_high, q_high, acc=product) + acc
    else:
        product = dot(u, q, acc)
    return product


@triton.jit(do_not_specialize=["rows"])
def quadratic_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # [FEATURES], float64 or float32 like the next two
    quadratic,  # [TARGETS, FEATURES, FEATURES]
    linear,  # [TARGETS, FEATURES]
    intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    SHIFTED: tl.constexpr,
    FUNCTION: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program makes one target of every `num_programs(0)`-th block of rows, so that it reads the weights once."""
    target = tl.program_id(1).to(tl.int64)
    b = tl.load(intercept + target)
    linear += target * FEATURES
    quadratic += target * FEATURES * FEATURES
    if FEATURES <= BLOCK_FEATURES:
        i = tl.arange(0, BLOCK_FEATURES)
        q, w, s = narrow_weights(shift, quadratic, linear, i, FEATURES)
        zero = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], shift.dtype.element_ty)
        for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=STAGES):
            row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
            y = apply_function(narrow_form(x, q, w, s, zero, row, i, rows, FEATURES, SHIFTED, PRECISION) + b, FUNCTION)
            tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=row < rows)
    else:
        for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0)):
            row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
            form = wide_form(x, shift, quadratic, linear, row, rows, FEATURES, SHIFTED, PRECISION, BLOCK_FEATURES)
            y = apply_function(form + b, FUNCTION)
            tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit
def narrow_weights(shift, quadratic, linear, i, FEATURES: tl.constexpr):
    """Return the weights of one target, `[BLOCK_FEATURES, BLOCK_FEATURES]` and `[BLOCK_FEATURES]`, and the shift."""
    inside = (i < FEATURES)[:, None] & (i < FEATURES)[None, :]
    q = tl.load(quadratic + i[:, None] * FEATURES + i[None, :], mask=inside, other=0.0)
    w = tl.load(linear + i, mask=i < FEATURES, other=0.0)
    return q, w, tl.load(shift + i, mask=i < FEATURES, other=0.0)


@triton.jit
def narrow_form(
    x, q, w, s, zero, row, i, rows, FEATURES: tl.constexpr, SHIFTED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Return the form of rows that one tile of features holds, float64 `[BLOCK_ROWS]`."""
    u = shifted_tile(x, s, row, i, rows, FEATURES, SHIFTED)
    inner = multiply(u, q, zero, PRECISION) + w[None, :]
    return tl.sum(u * inner, axis=1).to(tl.float64)


@triton.jit
def wide_form(
    x, shift, quadratic, linear, row, rows,
    FEATURES: tl.constexpr, SHIFTED: tl.constexpr, PRECISION: tl.constexpr, BLOCK_FEATURES: tl.constexpr,
):  # fmt: skip
    """Return the form of rows of several tiles of features, float64 `[BLOCK_ROWS]`."""
    total = tl.zeros([row.shape[0], BLOCK_FEATURES], shift.dtype.element_ty)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        i = start + tl.arange(0, BLOCK_FEATURES)
        w = tl.load(linear + i, mask=i < FEATURES, other=0.0)
        inner = tl.zeros([row.shape[0], BLOCK_FEATURES], shift.dtype.element_ty) + w[None, :]
        for start_j in tl.range(0, start + BLOCK_FEATURES, BLOCK_FEATURES):
            j = start_j + tl.arange(0, BLOCK_FEATURES)
            inside = (j < FEATURES)[:, None] & (i < FEATURES)[None, :]
            at = j.to(tl.int64)[:, None] * FEATURES + i[None, :]
            q = tl.load(quadratic + at, mask=inside, other=0.0)
            s = tl.load(shift + j, mask=j < FEATURES, other=0.0)
            uj = shifted_tile(x, s, row, j, rows, FEATURES, SHIFTED)
            inner = multiply(uj, q, inner, PRECISION)
        s = tl.load(shift + i, mask=i < FEATURES, other=0.0)
        total += shifted_tile(x, s, row, i, rows, FEATURES, SHIFTED) * inner
    return tl.sum(total, axis=1).to(tl.float64)


@dataclass(frozen=True, eq=False)
class Quadratic(Operation):
    """A quadratic form with linear and constant terms, then a function of each element."""

    shift: np.ndarray
    factor: np.ndarray
    quadratic: np.ndarray
    linear: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    precision: str = "float64"

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64", "float32")

    def check(self, *widths: int) -> None:
        (features,) = widths
        targets = len(self.intercept)
        expected = {
            "shift": (features,),
            "factor": (features,),
            "quadratic": (targets, features, features),
            "linear": (targets, features),
            "intercept": (targets,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise PlanError(f"quadratic: {name} must be {list(shape)}, not {list(getattr(self, name).shape)}.")
        check_function(self.function)
        self.check_precision()

    def output_width(self, *widths: int) -> int:
        return len(self.intercept)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the form in `u = x − shift`, where `shift` is a float32 number for each feature.

        The factor, and the rounding error of the shift, are folded into the weights in float64: with `z = D (u − e)`
        for the diagonal `D` of factors and the remainder `e`, `zᵀQz + wᵀz + b = uᵀQ'u + w'ᵀu + b'`.
        """
        shift = self.shift.astype(np.float32)
        remainder = self.shift - shift
        form = self.quadratic * self.factor[:, None] * self.factor[None, :]
        linear = self.linear * self.factor
        right, left = np.einsum("tij,j->ti", form, remainder), np.einsum("tij,i->tj", form, remainder)
        intercept = self.intercept + np.einsum("ti,i->t", right - linear, remainder)
        linear = linear - right - left
        tables = {"shift": shift, "quadratic": form, "linear": linear}
        dtype = np.dtype(self.precision)
        return {**{name: table.astype(dtype) for name, table in tables.items()}, "intercept": intercept}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        z = (inputs[0].double() - torch.tensor(self.shift)) * torch.tensor(self.factor)
        forms = torch.einsum("ri,tij,rj->rt", z, torch.tensor(self.quadratic), z)
        return FUNCTIONS[self.function](forms + z @ torch.tensor(self.linear).T + torch.tensor(self.intercept))

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        shift, linear, form = (parameters[name].double() for name in ("shift", "linear", "quadratic"))

        def compute(tile: torch.Tensor) -> torch.Tensor:
            u = tile - shift
            forms = zip(form, linear, strict=True)
            y = torch.cat([(u * (matmul(u, q) + w)).sum(1, keepdim=True) for q, w in forms], 1)
            return FUNCTIONS[self.function](y + parameters["intercept"])

        targets, features = self.linear.shape
        return in_tiles(x, compute, targets, features * max(targets, 2))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (targets, features) = inputs, self.linear.shape
        device = parameters["linear"].device  # `x` is on the CPU if a GPU reads it across the bus
        shape = quadratic_shape.of(device, triton.next_power_of_2(features), self.precision)
        grid = (min(triton.cdiv(rows, shape["BLOCK_ROWS"]), quadratic_programs(device)), targets)
        quadratic_kernel[grid](
            x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=features,
            TARGETS=targets,
            SHIFTED=bool(self.shift.any()),
            FUNCTION=self.function,
            PRECISION="float64" if self.precision == "float64" else float32_precision(device),
            **shape,
        )

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        """Compute products and sums in the dtype of the tables, by loops that NumPy has for all processors."""
        (x,), tables = inputs, self.parameters()
        u = (x - tables["shift"]).astype(tables["linear"].dtype)
        columns = [
            (u * (np.einsum("ri,ij->rj", u, form, optimize=False) + linear)).sum(axis=1, dtype=u.dtype)
            for form, linear in zip(tables["quadratic"], tables["linear"], strict=True)
        ]
        y = torch.from_numpy(np.stack(columns, axis=1).astype(np.float64) + tables["intercept"])
        answer: np.ndarray = FUNCTIONS[self.function](y).numpy()
        return answer

    def reads_input_once(self) -> bool:
        targets, features = self.linear.shape
        return targets == 1 and features <= MAX_FEATURES

    def describe(self) -> str:
        shape = f"{self.linear.shape[1]} → {self.linear.shape[0]}"
        return f"{shape} of degree 2 in {self.precision}" + function_suffix(self.function)


@functools.cache
def float32_precision(device: torch.device) -> str:
    """Return how `multiply` keeps float32's 24 bits; GPUs before compute capability 8 have no bfloat16."""
    return "bf16x6" if device.type == "cuda" and has_matrix_units(device) else "ieee"
