"""Expression: each output column is a small program over columns and constants of its own.

    out[r, o] = program_g(x[r, columns[o, 0]], …, x[r, columns[o, K_g − 1]]; constants[o, 0], …, constants[o, C_g − 1])

`x`: `[rows, width]`, float32 or float64; `out`: `[rows, lanes]`. A lane is an output column. Lanes side by side with
the same program are a group, `lanes[g]` of them; program `g` reads K_g inputs and C_g constants of each. `columns`,
int32, and `constants`, float64, are flat: those of a lane side by side, and lane after lane.

A program is a tuple of instructions `(name, *arguments)`. An argument is "x0", "x1", … for an input of the lane, "c0",
"c1", … for a constant, and "v0", "v1", … for the value of an earlier instruction; the last value is the result. The
instructions are those of `numerics/instructions.py`, NumPy's functions by name. Everything is float64, and nothing is
fused: a product is rounded before it is added.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from ...format.errors import PlanError
from ...numerics.instructions import HIDES_NAN, INSTRUCTIONS, arguments_of
from ...numerics.members import one_member
from ...plan.plan import Operation, Parameters
from .expression_kernel import expression_kernel, group_text
from .launch import EXPRESSION_BLOCK, EXPRESSION_WARPS, LAUNCH_GROUPS, LAUNCH_INSTRUCTIONS

ELEMENTS_AT_ONCE = 2**14
"""Numbers that plain torch computes at a time, a multiple of those of a vector loop: so many stay in a cache."""

VECTOR = 64
"""A vectorised loop over a multiple of this many elements has no remainder, which would have other bits."""

Instruction = tuple[str, ...]
Program = tuple[Instruction, ...]


class Group(NamedTuple):
    """Lanes side by side that share a program, and their places among all."""

    program: Program
    lanes: int
    inputs: int
    constants: int
    first_column: int
    first_constant: int
    first_output: int


@dataclass(frozen=True, eq=False)
class Expression(Operation):
    """Evaluate one program for each group of output columns."""

    programs: tuple[Program, ...]
    lanes: np.ndarray
    columns: np.ndarray
    constants: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def check(self, *widths: int) -> None:
        (width,) = widths
        if not self.programs or self.lanes.shape != (len(self.programs),) or self.lanes.min() < 1:
            raise PlanError(f"expression: lanes must be at least 1 for each of {len(self.programs)} programs.")
        for number, program in enumerate(self.programs):
            _check_program(f"expression: program {number}", program)
        for name, expected in (
            ("columns", sum(group.lanes * group.inputs for group in self.groups)),
            ("constants", sum(group.lanes * group.constants for group in self.groups)),
        ):
            if getattr(self, name).shape != (expected,):
                raise PlanError(f"expression: {name} must be [{expected}], not {list(getattr(self, name).shape)}.")
        if len(self.columns) and (self.columns.min() < 0 or self.columns.max() >= width):
            raise PlanError(f"expression: columns must lie in [0, {width}).")

    def output_width(self, *widths: int) -> int:
        return int(self.lanes.sum())

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """Return the groups in order."""
        found: list[Group] = []
        first = first_column = first_constant = 0
        for program, lanes in zip(self.programs, self.lanes.tolist(), strict=True):
            inputs, constants = (_count(program, kind) for kind in "xc")
            found.append(Group(program, lanes, inputs, constants, first_column, first_constant, first))
            first, first_column = first + lanes, first_column + lanes * inputs
            first_constant += lanes * constants
        return tuple(found)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the columns and constants, neither of them empty."""
        return {
            "columns": np.append(self.columns, 0).astype(np.int32),
            "constants": np.append(self.constants, 0.0).astype(np.float64),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x = inputs[0].double()
        own = parameters["constants"].expand(len(x), -1)
        return torch.cat([evaluated(group, parameters["columns"], own, x) for group in self.groups], dim=1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        for group in self.groups:
            columns = group_columns(group, parameters["columns"])
            constants = group_constants(group, parameters["constants"])
            step = max(1, ELEMENTS_AT_ONCE // group.lanes)
            fixed = {f"c{k}": flat(each.expand(min(step, len(x)), -1)) for k, each in enumerate(constants.T)}
            for start in range(0, len(x), step):
                rows = x[start : start + step]
                size = len(rows) * group.lanes
                values = {f"x{k}": flat(rows.index_select(1, each)) for k, each in enumerate(columns.T)}
                values |= {name: each[: _filled(size)] for name, each in fixed.items()}
                found = evaluate(group.program, values)[:size]
                answer[start : start + step, group.first_output :][:, : group.lanes] = found.view(len(rows), -1)
        return answer

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        self.launch_kernels(parameters, inputs[0], output, rows, one_member(inputs[0]))

    def launch_kernels(
        self, parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int, members: Mapping[str, Any]
    ) -> None:
        """Launch kernels on the first rows; `members` says how they find each row's constants."""
        span = min(EXPRESSION_BLOCK, triton.next_power_of_2(max(rows, 1)))
        for lanes, text in self.texts:
            blocks = sum(triton.cdiv(span * count, EXPRESSION_BLOCK) for count in lanes)
            expression_kernel[(triton.cdiv(rows, span) * blocks,)](
                x=x,
                **parameters,
                **members,
                out=output,
                rows=rows,
                span=span,
                blocks=blocks,
                OF_MEMBER=parameters["constants"].shape[-1],
                GROUPS=text,
                WIDTH=x.shape[1],
                OUT_WIDTH=output.shape[1],
                BLOCK=EXPRESSION_BLOCK,
                num_warps=EXPRESSION_WARPS,
                enable_fp_fusion=False,
            )

    def launches(self, inputs: int) -> int:
        return len(self.texts)

    @functools.cached_property
    def texts(self) -> list[tuple[list[int], str]]:
        """Return the lanes of each group of a launch and the text that its kernel is compiled from."""
        launches: list[list[Group]] = []
        left = 0
        for group in self.groups:
            if len(group.program) > left or len(launches[-1]) == LAUNCH_GROUPS:
                launches.append([])
                left = LAUNCH_INSTRUCTIONS
            launches[-1].append(group)
            left -= len(group.program)
        return [
            ([group.lanes for group in groups], "\n".join(group_text(group[1:], group.program) for group in groups))
            for groups in launches
        ]

    def reads_input_once(self) -> bool:
        return len(np.unique(self.columns)) == len(self.columns)

    def hides_nan(self) -> bool:
        return any(name in HIDES_NAN for program in self.programs for name, *_ in program)

    def describe(self) -> str:
        instructions = sum(len(program) for program in self.programs)
        return f"{self.output_width()} columns of {len(self.programs)} programs, {instructions} instructions"


def evaluate(program: Program, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the result of a program, given its inputs and constants by name, tensors of one shape."""
    last = {argument: number for number, (_, *arguments) in enumerate(program) for argument in arguments}
    for number, (name, *arguments) in enumerate(program):
        result = INSTRUCTIONS[name](*(values[argument] for argument in arguments))
        for argument in set(arguments):
            if last[argument] == number:
                del values[argument]  # its memory serves the next value
        values[f"v{number}"] = result
    return result


def evaluated(group: Group, columns: torch.Tensor, constants: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a group's numbers `[rows, lanes]` for float64 rows with constants of their own, `[rows, constants]`."""
    own, inputs = group_constants(group, constants), group_columns(group, columns)
    values = {f"x{k}": x[:, inputs[:, k]] for k in range(group.inputs)}
    return evaluate(group.program, values | {f"c{k}": own[..., k] for k in range(group.constants)})


def flat(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix as float64 numbers row after row, with others after them up to a whole number of vectors."""
    size = matrix.numel()
    if size % VECTOR == 0:
        return matrix.double().reshape(-1)
    found = torch.ones(_filled(size), dtype=torch.float64)
    found[:size].view(matrix.shape).copy_(matrix)
    return found


def _filled(size: int) -> int:
    """Return the whole number of vectors that so many numbers take, in numbers."""
    return -(-size // VECTOR) * VECTOR


def group_columns(group: Group, columns: torch.Tensor) -> torch.Tensor:
    """Return a group's columns `[lanes, inputs]` among those of all groups."""
    end = group.first_column + group.lanes * group.inputs
    return columns[group.first_column : end].view(group.lanes, group.inputs)


def group_constants(group: Group, constants: torch.Tensor) -> torch.Tensor:
    """Return a group's constants `[…, lanes, constants]` among those of all groups, `[…, all]`."""
    end = group.first_constant + group.lanes * group.constants
    return constants[..., group.first_constant : end].unflatten(-1, (group.lanes, group.constants))


def _count(program: Program, kind: str) -> int:
    """Return how many arguments of a kind, "x" or "c", a program has."""
    numbers = [int(argument[1:]) for _, *arguments in program for argument in arguments if argument[0] == kind]
    return max(numbers, default=-1) + 1


def _check_program(where: str, program: Program) -> None:
    """Raise `PlanError` unless each instruction is known and has arguments that come before it."""
    if not program:
        raise PlanError(f"{where} has no instruction.")
    for number, (name, *arguments) in enumerate(program):
        if name not in INSTRUCTIONS:
            raise PlanError(f"{where}: there is no instruction '{name}'; there are {', '.join(sorted(INSTRUCTIONS))}.")
        if len(arguments) != arguments_of(name):
            raise PlanError(f"{where}: '{name}' has {arguments_of(name)} arguments, not {len(arguments)}.")
        for argument in arguments:
            found = re.fullmatch(r"([xcv])(0|[1-9]\d*)", argument)
            if found is None or (found[1] == "v" and int(found[2]) >= number):
                raise PlanError(
                    f"{where}: '{name}' reads '{argument}'; an argument is x0, x1, … or c0, c1, … or an earlier value, "
                    f"below v{number}."
                )
