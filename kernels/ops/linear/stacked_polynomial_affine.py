"""Polynomials of the members of a fleet: each row has the weights of its own member; see `polynomial_affine.py`.

`indices`: `[monomials, degree]` int32, the same for all members; `shift`, `factor`: `[members, features]`; `weight`:
`[members, monomials, targets]`; `intercept`: `[members, targets]`; all float64.

The kernel of few, nested monomials reads each row's own weights. That of many computes its block of rows with the
weights of one member after the other and writes this member's rows: a row of a product has the same bits whatever the
other rows are. A CPU computes the rows of each member of a batch as its own operation does, or sums of all rows at once
if their answers are rounded; see `cpu/member_sums.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.functions import apply_function, function_suffix
from ...numerics.members import member_places
from ...plan.plan import Parameters
from .by_members import SumsByMembers
from .launch import NESTED_ROWS, polynomial_affine_shape
from .monomials import monomials
from .polynomial_affine import PolynomialAffine, nested_sum, polynomial_sum


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_nested_polynomial_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # float64 [members, FEATURES]
    nested,  # float64 [members, TARGETS, MONOMIALS], see `nested_polynomial_kernel`
    intercept,  # float64 [members, TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    DEGREE: tl.constexpr,
    MONOMIALS: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one target."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = member_places(numbers, row, row < rows, first, members)
    own = place * TARGETS + tl.program_id(1)
    features = ()
    for k in tl.static_range(FEATURES):
        u = tl.load(x + row * FEATURES + k, mask=row < rows, other=0.0).to(tl.float64)
        features += (u - tl.load(shift + place * FEATURES + k),)  # type: ignore[assignment]  # tuples of any length
    total, _ = nested_sum(features, nested + own * MONOMIALS, LARGEST=FEATURES - 1, DEGREE=DEGREE)
    y = apply_function(total + tl.load(intercept + own), FUNCTION)
    tl.store(out + row * TARGETS + tl.program_id(1), y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_polynomial_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    prefixes,  # int32 [PREFIXES, DEGREE]: the monomials without their last feature
    shift,  # float64 [members, FEATURES]
    table,  # float64 [members, TARGETS, PREFIXES, FEATURES]: the weight of each prefix times each last feature
    intercept,  # float64 [members, TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
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
    place = tl.where(row < rows, member_places(numbers, row, row < rows, first, members), members)
    member = tl.min(place)
    while member < members:
        own = member * TARGETS + target
        total = polynomial_sum(
            x, prefixes, shift + member * FEATURES, table + own * PREFIXES * FEATURES, row, rows,
            FEATURES, PREFIXES, DEGREE, BLOCK_PREFIXES, BLOCK_FEATURES,
        )  # fmt: skip
        y = apply_function(total + tl.load(intercept + own), FUNCTION)
        tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=place == member)
        place = tl.where(place == member, members, place)
        member = tl.min(place)


@dataclass(frozen=True, eq=False)
class StackedPolynomialAffine(SumsByMembers[PolynomialAffine]):
    """A polynomial for each member, of the same monomials."""

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    start: int = 0

    @classmethod
    def alike(cls, operation: PolynomialAffine) -> Hashable | None:
        indices = operation.indices
        return operation.weight.shape, operation.function, operation.shift.shape, indices.shape, indices.tobytes()

    @classmethod
    def of(cls, operations: Sequence[PolynomialAffine], start: int = 0) -> StackedPolynomialAffine:
        names = ("shift", "factor", "weight", "intercept")
        fields: dict[str, Any] = {name: np.stack([getattr(each, name) for each in operations]) for name in names}
        return cls(operations[0].indices, **fields, function=operations[0].function, start=start)

    @property
    def members(self) -> int:
        return len(self.shift)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if any(len(each) != self.members for each in (self.factor, self.weight, self.intercept)):
            raise PlanError("stacked_polynomial_affine: each member must have a shift, a factor, weights, intercepts.")
        self.member(0).check(widths[0])

    def output_width(self, *widths: int) -> int:
        return self.weight.shape[2]

    def member(self, place: int) -> PolynomialAffine:
        weight, intercept = self.weight[place], self.intercept[place]
        scaling = {"indices": self.indices, "shift": self.shift[place], "factor": self.factor[place]}
        return PolynomialAffine(**scaling, weight=weight, intercept=intercept, function=self.function)

    def parameters(self) -> dict[str, np.ndarray]:
        tables = [self.member(place).parameters() for place in range(self.members)]
        stacked = {name: np.stack([each[name] for each in tables]) for name in tables[0] if name != "prefixes"}
        return {"prefixes": tables[0]["prefixes"], **stacked}

    def terms(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shift, table, intercept = self.tables(place, ("shift", "table", "intercept"))
        u = x - shift
        products = monomials(self._prefixes, u)[:, :, None] * u[:, None, :]
        return table.mul_(products[:, None]).flatten(2), intercept[:, :, None]

    @property
    def terms_per_row(self) -> int:
        return self.weight.shape[2] * len(self._prefixes) * self.shift.shape[1]

    @functools.cached_property
    def _prefixes(self) -> torch.Tensor:
        return self.own(0)[1]["prefixes"]

    def gains_by_order(self) -> bool:
        """A program reads the weights of its rows' members, or takes as long as there are such members."""
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), (_, targets, prefixes, features) = inputs, parameters["table"].shape
        device, degree = parameters["table"].device, self.indices.shape[1]
        arguments = {
            **{"x": x, "numbers": numbers, "out": output, "rows": rows, "first": self.start, "members": self.members},
            **{name: parameters[name] for name in ("shift", "intercept")},
            **{"FEATURES": features, "TARGETS": targets, "FUNCTION": self.function},
        }
        if "nested" in parameters:
            stacked_nested_polynomial_kernel[(triton.cdiv(rows, NESTED_ROWS), targets)](
                **arguments,
                nested=parameters["nested"],
                DEGREE=degree,
                MONOMIALS=parameters["nested"].shape[2],
                BLOCK_ROWS=NESTED_ROWS,
                num_warps=1,
            )
            return
        shape = polynomial_affine_shape.of(device, triton.next_power_of_2(features), degree)
        stacked_polynomial_affine_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]), targets)](
            **arguments,
            prefixes=parameters["prefixes"],
            table=parameters["table"],
            PREFIXES=prefixes,
            DEGREE=degree - 1,
            **shape,
        )

    def describe(self) -> str:
        monomials, degree = self.indices.shape
        shape = f"{self.shift.shape[1]} → {self.weight.shape[2]} by {monomials} monomials of degree ≤ {degree}"
        return f"{super().describe()}, {shape}" + function_suffix(self.function)
