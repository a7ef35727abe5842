"""Evaluates the programs of `expression.py` on a GPU, all groups of lanes in one launch.

The compiler gets the programs as a text and unrolls them. A line is a group: six numbers (its lanes, the inputs and the
constants of each, the places of its first column, constant and output), then its instructions, each after a "|" as its
name and the numbers of the values that it reads. The values of a group are its inputs, its constants, and the result of
each instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import triton
import triton.language as tl

from ...numerics.instructions import apply_instruction
from ...numerics.members import member_places


def group_text(numbers: Sequence[int], program: Iterable[tuple[str, ...]]) -> str:
    """Return the line of a group with these six numbers."""
    _, inputs, constants, *_ = numbers
    first = {"x": 0, "c": inputs, "v": inputs + constants}
    parts = [" ".join(str(number) for number in numbers)]
    for name, *arguments in program:
        parts.append(" ".join([name, *(str(first[argument[0]] + int(argument[1:])) for argument in arguments)]))
    return "|".join(parts)


@triton.constexpr_function
def group_count(groups):
    """Return how many groups a text has."""
    return len(groups.split("\n"))


@triton.constexpr_function
def group_at(groups, number):
    """Return the line of a group."""
    return groups.split("\n")[number]


@triton.constexpr_function
def number_of(group, place):
    """Return one of a group's six numbers."""
    return int(group.split("|")[0].split(" ")[place])


@triton.constexpr_function
def instruction_count(group):
    """Return how many instructions a group has."""
    return len(group.split("|")) - 1


@triton.constexpr_function
def name_at(group, instruction):
    """Return the name of an instruction."""
    return group.split("|")[instruction + 1].split(" ")[0]


@triton.constexpr_function
def operand_at(group, instruction, place):
    """Return which value an instruction reads at a place; past its last argument it is the last one."""
    words = group.split("|")[instruction + 1].split(" ")
    return int(words[min(place + 1, len(words) - 1)])


@triton.jit
def evaluate_group(
    x,
    numbers,
    columns,
    constants,
    out,
    first_row,  # int64
    first_number,  # of the group's in this span of rows
    rows,
    span,
    first,
    members,
    STACKED: tl.constexpr,
    GROUP: tl.constexpr,
    OF_MEMBER: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Make `BLOCK` numbers of a group: they lie row after row and lane after lane."""
    LANES: tl.constexpr = number_of(GROUP, 0)
    INPUTS: tl.constexpr = number_of(GROUP, 1)
    CONSTANTS: tl.constexpr = number_of(GROUP, 2)
    COUNT: tl.constexpr = instruction_count(GROUP)
    at = first_number + tl.arange(0, BLOCK)
    lane = at % LANES
    row = first_row + at // LANES
    inside = (at < span * LANES) & (row < rows)
    own = constants + number_of(GROUP, 4) + lane * CONSTANTS
    if STACKED:
        own += member_places(numbers, row, inside, first, members) * OF_MEMBER
    values = ()  # type: tuple[tl.tensor, ...]
    for k in tl.static_range(INPUTS):
        column = tl.load(columns + number_of(GROUP, 3) + lane * INPUTS + k)
        values += (tl.load(x + row * WIDTH + column, mask=inside, other=1.0).to(tl.float64),)
    for k in tl.static_range(CONSTANTS):
        values += (tl.load(own + k),)
    for number in tl.static_range(COUNT):
        a = values[operand_at(GROUP, number, 0)]
        b = values[operand_at(GROUP, number, 1)]
        c = values[operand_at(GROUP, number, 2)]
        values += (apply_instruction(a, b, c, name_at(GROUP, number)),)
    y = values[INPUTS + CONSTANTS + COUNT - 1].to(out.dtype.element_ty)
    tl.store(out + row * OUT_WIDTH + number_of(GROUP, 5) + lane, y, mask=inside)


@triton.jit(do_not_specialize=["rows", "span", "blocks", "first", "members"])
def expression_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    columns,  # int32: those of the lanes of each group
    constants,  # float64, likewise; [members, OF_MEMBER] where STACKED
    out,  # float32 or float64 [rows, OUT_WIDTH]
    rows,
    span,  # rows of which programs side by side make all groups
    blocks,  # programs for these
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    OF_MEMBER: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` numbers of one group of a span of rows."""
    first_row = (tl.program_id(0) // blocks).to(tl.int64) * span
    block = tl.program_id(0) % blocks
    for number in tl.static_range(group_count(GROUPS)):
        count = tl.cdiv(span * number_of(group_at(GROUPS, number), 0), BLOCK)
        if (block >= 0) & (block < count):
            evaluate_group(
                x,
                numbers,
                columns,
                constants,
                out,
                first_row,
                block * BLOCK,
                rows,
                span,
                first,
                members,
                STACKED=STACKED,
                OF_MEMBER=OF_MEMBER,
                GROUP=group_at(GROUPS, number),
                WIDTH=WIDTH,
                OUT_WIDTH=OUT_WIDTH,
                BLOCK=BLOCK,
            )
        block -= count
