"""Rows of a fleet in the order of their members, for operations that read the arrays of members from caches.

A GPU's caches hold the arrays of few members at a time. Neighbouring rows of one member read them together, rows in a
random order do not. `in_order_of_members` gives a plan's operations the rows in order, and puts their answers back into
the order of the request. No bit of an answer changes, because no row's bits depend on other rows.

A GPU counts the rows of each group of neighbouring members, sums these counts, and then knows the place of each row.
The order of rows within a group differs from one time to the next. Few rows stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..format.errors import PlanError
from ..plan.plan import INPUT, Operation, Parameters, Plan, Step
from ..plan.stacked import Stacked

FEWEST_ROWS = 4096
"""Fewer rows are not brought in order, which takes a GPU more time than their reads from caches save."""

MOST_GROUPS = 4096
"""The most groups of members, whose counts one program sums."""

ORDER, BLOCK, WARPS = "order of members", 1024, 8

ALIGNED = 4
"""Counts begin at a multiple of so many numbers, as kernels are compiled for."""


@triton.jit(do_not_specialize=["rows", "shift", "groups"])
def count_rows_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    counts,  # int32 [groups], at first 0
    places,  # int32 [rows]
    rows,
    shift,  # a group has 2 ** shift members
    groups,
    WIDTH: tl.constexpr,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give each row a place in its group, and count the rows of each group."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    group = member_group(x, row, inside, shift, groups, WIDTH, COLUMN)
    place = tl.atomic_add(counts + group, 1, mask=inside, sem="relaxed")
    tl.store(places + row, place, mask=inside)


@triton.jit
def member_group(x, row, inside, shift, groups, WIDTH: tl.constexpr, COLUMN: tl.constexpr):
    """Return the group of each row's member; the last group takes all numbers that are too large, or NaN."""
    number = tl.load(x + row * WIDTH + COLUMN, mask=inside, other=0.0).to(tl.float64)
    known = (number >= 0.0) & (number < 1073741824.0)
    return tl.minimum(tl.where(known, number, 1073741823.0).to(tl.int32) >> shift, groups - 1)


@triton.jit(do_not_specialize=["groups"])
def sum_counts_kernel(
    counts,  # int32 [groups]
    groups,
    GROUPS: tl.constexpr,  # a power of two, at least `groups`
):
    """Put the number of rows of all groups before a group in the place of its count."""
    group = tl.arange(0, GROUPS)
    count = tl.load(counts + group, mask=group < groups, other=0)
    tl.store(counts + group, tl.cumsum(count, 0) - count, mask=group < groups)


@triton.jit(do_not_specialize=["rows", "shift", "groups"])
def order_rows_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    starts,  # int32 [groups], the number of rows of groups before
    places,  # int32 [rows], in the row's group, and then among all rows
    order,  # int32 [rows]
    rows,
    shift,
    groups,
    WIDTH: tl.constexpr,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write each row's number to its place among all rows, and the place to the row's number."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    group = member_group(x, row, inside, shift, groups, WIDTH, COLUMN)
    place = tl.load(starts + group, mask=inside, other=0) + tl.load(places + row, mask=inside, other=0)
    tl.store(places + row, place, mask=inside)
    tl.store(order + place, row.to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=["size"])
def take_rows_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    rows,  # int32 [rows]
    out,  # float32 or float64 [rows, COLUMNS]
    size,  # rows * COLUMNS
    WIDTH: tl.constexpr,
    START: tl.constexpr,
    COLUMNS: tl.constexpr,
    MOVED: tl.constexpr,  # otherwise all rows are taken as they are
    BLOCK: tl.constexpr,
):
    """Take neighbouring columns of rows, `out[i] = x[rows[i]]`; a program makes `BLOCK` elements of the output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row = at // COLUMNS
    if MOVED:
        row = tl.load(rows + row, mask=inside, other=0).to(tl.int64)
    value = tl.load(x + row * WIDTH + START + at % COLUMNS, mask=inside)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


def is_ordered(rows: int) -> bool:
    """Return whether that many rows are brought in order."""
    return rows >= FEWEST_ROWS


@dataclass(frozen=True, eq=False)
class MemberOrder(Operation):
    """The rows in the order of their members, whose numbers are the column `column` and below `members`.

    The output is memory of two numbers for each row; see `_order` and `_places`.
    """

    column: int
    members: int

    def check(self, *widths: int) -> None:
        (width,) = widths
        if not 0 <= self.column < width or self.members < 1:
            raise PlanError(f"member_order: there is no column {self.column}, or there are no members.")

    def output_width(self, *widths: int) -> int:
        return 2

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        order = torch.argsort(inputs[0][:, self.column], stable=True)
        memory = torch.zeros(len(order), 2, dtype=torch.float64)
        _order(memory, len(order))[:] = order
        _places(memory, len(order))[order] = torch.arange(len(order), dtype=torch.int32)
        return memory

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        if not is_ordered(rows):
            return
        shift, most = 0, min(MOST_GROUPS, rows // 2)
        while (self.members - 1) >> shift >= most:
            shift += 1
        groups = ((self.members - 1) >> shift) + 1
        order, places = _order(output, rows), _places(output, rows)
        counts = output.view(-1).view(torch.int32)[2 * _aligned(rows) :][:groups]
        counts.zero_()
        grid, x = (triton.cdiv(rows, BLOCK),), inputs[0]
        column = {"WIDTH": x.shape[1], "COLUMN": self.column, "BLOCK": BLOCK, "num_warps": WARPS}
        count_rows_kernel[grid](x, counts, places, rows, shift, groups, **column)
        sum_counts_kernel[(1,)](counts, groups, GROUPS=MOST_GROUPS, num_warps=WARPS)
        order_rows_kernel[grid](x, counts, places, order, rows, shift, groups, **column)

    def launches(self, inputs: int) -> int:
        return 4


@dataclass(frozen=True, eq=False)
class InOrder(Operation):
    """Neighbouring columns of the rows in order, which `slice`, an operation of that kind, takes from rows as they are.

    The second input is the order.
    """

    slice: Operation

    def check(self, *widths: int) -> None:
        return

    def output_width(self, *widths: int) -> int:
        return self.slice.checked_width(widths[0])

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, memory = inputs
        return self.slice.reference(parameters, x)[_order(memory, len(x)).long()]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, memory = inputs
        _take(x, _order(memory, rows), output, rows, self.slice.attributes()["start"])

    def keeps_dtype(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class BackInOrder(Operation):
    """Answers back in the order of the request; the second input is the order in which their rows are."""

    def check(self, *widths: int) -> None:
        return

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        answers, memory = inputs
        return answers[_places(memory, len(answers)).long()]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        answers, memory = inputs
        _take(answers, _places(memory, rows), output, rows)


def _aligned(rows: int) -> int:
    return triton.cdiv(rows, ALIGNED) * ALIGNED


def _order(memory: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the numbers of the rows in order, int32 `[rows]`."""
    return memory.view(-1).view(torch.int32)[:rows]


def _places(memory: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the places of the rows in that order, int32 `[rows]`."""
    return memory.view(-1).view(torch.int32)[_aligned(rows) :][:rows]


def _take(x: torch.Tensor, places: torch.Tensor, output: torch.Tensor, rows: int, start: int = 0) -> None:
    size, columns = rows * output.shape[1], output.shape[1]
    shape = {"WIDTH": x.shape[1], "START": start, "COLUMNS": columns, "MOVED": is_ordered(rows), "BLOCK": BLOCK}
    take_rows_kernel[(triton.cdiv(size, BLOCK),)](x, places, output, size, **shape)


def in_order_of_members(plan: Plan) -> Plan:
    """Return the plan of a fleet with its steps on rows in order, if only slices read its input."""
    if not all(step.operation.kind() == "slice" for step in plan.steps if INPUT in step.inputs):
        return plan
    members = max(each.first + each.members for each in (s.operation for s in plan.steps) if isinstance(each, Stacked))
    steps = [Step(MemberOrder(plan.n_features - 1, members), (INPUT,), ORDER)]
    for step in plan.steps:
        steps.append(Step(InOrder(step.operation), (INPUT, ORDER), step.output) if INPUT in step.inputs else step)
    outputs = {name: f"{name} back in order" for name in plan.outputs}
    steps += [Step(BackInOrder(), (plan.outputs[name], ORDER), value) for name, value in outputs.items()]
    return dataclasses.replace(plan, steps=tuple(steps), outputs=outputs)
