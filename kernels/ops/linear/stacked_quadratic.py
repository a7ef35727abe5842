"""Quadratic forms of the members of a fleet: each row has the form of its own member; see `quadratic.py`.

`shift`, `factor`: `[members, features]`; `quadratic`: `[members, targets, features, features]`; `linear`: `[members,
targets, features]`; `intercept`: `[members, targets]`; all float64.

A program computes its block of rows with the weights of one member after the other and writes this member's rows: a row
of a product has the same bits whatever the other rows are. A CPU computes the rows of each member of a batch as its own
operation does, or sums of all rows at once if their answers are rounded; see `cpu/member_sums.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.functions import apply_function, function_suffix
from ...numerics.members import member_places
from ...plan.plan import Parameters
from ...plan.stacked import attributes_key, shapes_key, stacked_fields
from .by_members import SumsByMembers
from .launch import quadratic_shape
from .quadratic import Quadratic, float32_precision, narrow_form, narrow_weights, wide_form


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_quadratic_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # [members, FEATURES], float64 or float32 like the next two
    quadratic,  # [members, TARGETS, FEATURES, FEATURES]
    linear,  # [members, TARGETS, FEATURES]
    intercept,  # float64 [members, TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    SHIFTED: tl.constexpr,
    FUNCTION: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program makes one target of a block of rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    target = tl.program_id(1).to(tl.int64)
    place = tl.where(row < rows, member_places(numbers, row, row < rows, first, members), members)
    member = tl.min(place)
    while member < members:
        own = member * TARGETS + target
        weights, terms = quadratic + own * FEATURES * FEATURES, linear + own * FEATURES
        if FEATURES <= BLOCK_FEATURES:
            i = tl.arange(0, BLOCK_FEATURES)
            q, w, s = narrow_weights(shift + member * FEATURES, weights, terms, i, FEATURES)
            zero = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], shift.dtype.element_ty)
            form = narrow_form(x, q, w, s, zero, row, i, rows, FEATURES, SHIFTED, PRECISION)
        else:
            form = wide_form(
                x, shift + member * FEATURES, weights, terms, row, rows, FEATURES, SHIFTED, PRECISION, BLOCK_FEATURES
            )
        y = apply_function(form + tl.load(intercept + own), FUNCTION)
        tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=place == member)
        place = tl.where(place == member, members, place)
        member = tl.min(place)


@dataclass(frozen=True, eq=False)
class StackedQuadratic(SumsByMembers[Quadratic]):
    """A quadratic form for each member."""

    shift: np.ndarray
    factor: np.ndarray
    quadratic: np.ndarray
    linear: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    precision: str = "float64"
    start: int = 0

    PRECISIONS = Quadratic.PRECISIONS

    @classmethod
    def alike(cls, operation: Quadratic) -> Hashable | None:
        return attributes_key(operation), shapes_key(operation), bool(operation.shift.any())

    @classmethod
    def of(cls, operations: Sequence[Quadratic], start: int = 0) -> StackedQuadratic:
        return cls(**stacked_fields(operations), start=start)

    @property
    def members(self) -> int:
        return len(self.shift)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if {len(array) for _, array in self.arrays()} != {self.members}:
            raise PlanError("stacked_quadratic: each array must have a line for each member.")
        self.member(0).check(widths[0])

    def output_width(self, *widths: int) -> int:
        return self.intercept.shape[1]

    def member(self, place: int) -> Quadratic:
        arrays = {name: array[place] for name, array in self.arrays()}
        return Quadratic(**arrays, function=self.function, precision=self.precision)

    def precisions(self) -> tuple[str, ...]:
        """Return the precision: those of members were chosen one by one."""
        return (self.precision,)

    def parameters(self) -> dict[str, np.ndarray]:
        tables = [self.member(place).parameters() for place in range(self.members)]
        return {name: np.stack([each[name] for each in tables]) for name in tables[0]}

    def terms(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shift, form, linear, intercept = self.tables(place, ("shift", "quadratic", "linear", "intercept"))
        u = (x - shift)[:, None]
        products = u[:, :, :, None] * u[:, :, None, :]
        return form.mul_(products).flatten(2), linear.mul_(u), intercept[:, :, None]

    @property
    def terms_per_row(self) -> int:
        return self.quadratic[0].size + self.linear[0].size

    def gains_by_order(self) -> bool:
        """A program takes as long as its rows have members."""
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), (_, targets, features) = inputs, self.linear.shape
        device = parameters["linear"].device
        shape = dict(quadratic_shape.of(device, triton.next_power_of_2(features), self.precision))
        shape.pop("STAGES")
        stacked_quadratic_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]), targets)](
            x,
            numbers,
            **parameters,
            out=output,
            rows=rows,
            first=self.start,
            members=self.members,
            FEATURES=features,
            TARGETS=targets,
            SHIFTED=bool(self.shift[0].any()),
            FUNCTION=self.function,
            PRECISION="float64" if self.precision == "float64" else float32_precision(device),
            **shape,
        )

    def describe(self) -> str:
        shape = f"{self.linear.shape[2]} → {self.linear.shape[1]}"
        return f"{super().describe()}, {shape} of degree 2 in {self.precision}" + function_suffix(self.function)
