"""The squared norm of an affine map, in parts: `out[r, p] = Σₜ (Σᵢ x[r, i] · weight[i, t] + offset[t])²` over part p.

`x`: `[rows, features]`, float32 or float64; `weight`: `[features, targets]` float64; `offset`: `[targets]` float64;
`out`: `[rows, parts]`, where a part is `PART_TARGETS` targets. An affine step adds the parts up. The part of the
variance that a Gaussian process explains is such a norm, and the prior variance nearly cancels it: everything is
float64, or as exact as `norm_int8.py` makes it.

If the weight is an upper triangle, zero for `i > t`, like the inverse of a Cholesky factor, a part of the targets
reads only the features that it depends on, and half of all the products are left out.
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

from ...cpu.blocked_weight import LARGE, LargeWeight, Source, rows_of
from ...format.errors import PlanError
from ...numerics.dot import dot, rounded_product
from ...plan.plan import Operation, Parameters
from .cpu_norm import TriangularWeight
from .launch import NORM_BLOCK
from .norm_int8 import MOST_FEATURES, PART_TARGETS, emulated_norms, launch_digit_norm, weight_digits

MOST_DIGITS = 2**27
"""The most numbers of a weight that is tried out; a larger one would take long."""


@triton.jit(do_not_specialize=["rows"])
def squared_norm_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    weight,  # float64 [FEATURES, TARGETS]
    offset,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, PARTS]
    rows,
    FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    TRIANGULAR: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    PART_TARGETS: tl.constexpr,
):
    """A program makes one part of `BLOCK_ROWS` rows; the last part, the slowest, comes first."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    store_part(
        x, weight, offset, out, row, row < rows, rows, FEATURES, TARGETS,
        WIDTH=FEATURES, PARTS=PARTS, TRIANGULAR=TRIANGULAR, BLOCK_FEATURES=BLOCK_FEATURES, PART_TARGETS=PART_TARGETS,
    )  # fmt: skip


@triton.jit
def store_part(
    x,  # float32 or float64 [rows, WIDTH]
    weight,  # like the next as in the kernel
    offset,
    out,  # float32 or float64 [rows, PARTS]
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the rows to write
    rows,
    FEATURES,  # a constant for one model, and for a fleet the number of a member's features, like the next
    TARGETS,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    TRIANGULAR: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    PART_TARGETS: tl.constexpr,
):
    """Write the program's part of the rows that are `mine`."""
    part = PARTS - 1 - tl.program_id(0)
    target = part * PART_TARGETS + tl.arange(0, PART_TARGETS)
    total = tl.zeros([row.shape[0], PART_TARGETS], tl.float64)
    features = FEATURES
    if TRIANGULAR:
        features = tl.minimum(FEATURES, (part + 1) * PART_TARGETS)
    for start in tl.range(0, features, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        tile = tl.load(x + row[:, None] * WIDTH + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        inside = (feature < FEATURES)[:, None] & (target < TARGETS)[None, :]
        w = tl.load(weight + feature.to(tl.int64)[:, None] * TARGETS + target[None, :], mask=inside, other=0.0)
        total = dot(tile, w, total)
    total += tl.load(offset + target, mask=target < TARGETS, other=0.0)[None, :]
    y = tl.sum(rounded_product(total, total), axis=1)
    tl.store(out + row * PARTS + part, y.to(out.dtype.element_ty), mask=mine)


@dataclass(frozen=True, eq=False)
class SquaredNorm(Operation):
    """The squared norm of an affine map, in parts."""

    weight: np.ndarray
    offset: np.ndarray
    precision: str = "float64"

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64", "ten digits")

    def check(self, *widths: int) -> None:
        (features,) = widths
        if self.weight.ndim != 2 or self.weight.shape[0] != features or not self.weight.shape[1]:
            raise PlanError(f"squared_norm: weight must be [{features}, targets], not {list(self.weight.shape)}.")
        if self.offset.shape != self.weight.shape[1:]:
            shapes = f"{list(self.weight.shape[1:])}, not {list(self.offset.shape)}"
            raise PlanError(f"squared_norm: offset must be {shapes}.")
        self.check_precision()

    def precisions(self) -> tuple[str, ...]:
        """Return float64, and ten digits if a triangle is so large that they take less time."""
        large = LARGE <= self.weight.size <= MOST_DIGITS and len(self.weight) <= MOST_FEATURES
        return self.PRECISIONS if large and self.triangular else self.PRECISIONS[:1]

    def output_width(self, *widths: int) -> int:
        return -(-len(self.offset) // PART_TARGETS)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the fields, or the weight's digits instead."""
        return super().parameters() if self.precision == "float64" else weight_digits(self.weight, self.offset)

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return {"offset": self.offset}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        y = inputs[0].double() @ torch.tensor(self.weight) + parameters["offset"]
        squares = torch.nn.functional.pad(y.square(), (0, self._spare))
        return squares.view(len(y), self.output_width(), PART_TARGETS).sum(2)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self.norms(parameters, len(x), rows_of(x))

    def norms(self, parameters: Parameters, rows: int, source: Source) -> torch.Tensor:
        """Return the parts `[rows, parts]` of `rows` rows in plain torch."""
        offset, parts = parameters["offset"], self.output_width()
        answer = torch.empty(rows, parts, dtype=torch.float64)
        for start, tile in self._plain.products(rows, source):
            if self._has_offset:
                tile[:, : len(offset)].add_(offset)
            squares = tile.square_().view(len(tile), parts, PART_TARGETS)
            torch.sum(squares, 2, out=answer[start : start + len(tile)])
        return answer

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        return emulated_norms(inputs[0], weight_digits(self.weight, self.offset), self.output_width())

    def launches(self, inputs: int) -> int:
        return 1 if self.precision == "float64" else 2

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        if self.precision != "float64":
            launch_digit_norm(parameters, inputs[0], output, rows)
            return
        (features, targets), parts = self.weight.shape, self.output_width()
        squared_norm_kernel[(parts, triton.cdiv(rows, NORM_BLOCK["BLOCK_ROWS"]))](
            inputs[0],
            weight=parameters["weight"],
            offset=parameters["offset"],
            out=output,
            rows=rows,
            FEATURES=features,
            TARGETS=targets,
            PARTS=parts,
            TRIANGULAR=self.triangular,
            PART_TARGETS=PART_TARGETS,
            **NORM_BLOCK,
        )

    @property
    def _spare(self) -> int:
        """Return the number of targets that fill the last part."""
        return self.output_width() * PART_TARGETS - len(self.offset)

    @functools.cached_property
    def _has_offset(self) -> bool:
        return bool(self.offset.any())

    @functools.cached_property
    def _plain(self) -> LargeWeight | TriangularWeight:
        """Return the weight, padded to a whole last part."""
        columns = len(self.offset) + self._spare
        if self.triangular and TriangularWeight.suits(self.weight, columns):
            return TriangularWeight(self.weight, columns)
        return LargeWeight(np.pad(self.weight, ((0, 0), (0, self._spare))))

    @functools.cached_property
    def triangular(self) -> bool:
        """Return whether the weight is zero below its diagonal."""
        return not np.tril(self.weight, -1).any()

    def describe(self) -> str:
        precision = "" if self.precision == "float64" else f" in {self.precision}"
        triangle = " by a triangle" if self.triangular else ""
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}{triangle} in {self.output_width()} parts{precision}"
