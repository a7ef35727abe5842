"""Machine code of kernels (SASS) as nvdisasm prints it, and the ways through it."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import triton

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
LINE = re.compile(r'//## File "(.+?)", line (\d+)')
CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P[0-9T])\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\S+):$")


class SassError(Exception):
    """The machine code cannot be followed."""


class Instruction(NamedTuple):
    """One instruction: its guard as printed, opcode with modifiers, operands, and the source line that it came from."""

    guard: str
    opcode: str
    operands: tuple[str, ...]
    file: str
    line: int

    @property
    def kind(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", 1)[0]

    @property
    def function(self) -> str:
        """The source's function, the empty string where that is not known."""
        return function_at(self.file, self.line)

    @property
    def label(self) -> str:
        """The label that a jump names, the empty string of anything else.

        If threads of a warp may have diverged, compilers add a slow way that joined warps never take: BRA.DIV jumps
        to it, BRA.CONV jumps over it.
        """
        if self.kind not in ("BRA", "CALL") or ".DIV" in self.opcode:
            return ""
        return self.operands[-1].strip("`()")

    @property
    def calls(self) -> bool:
        """Return whether this calls a function; to a label within the kernel, CALL is a jump without return."""
        return self.kind == "CALL" and not self.label.startswith(".L_x")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The predicates that a jump asks for beside its guard."""
        return self.operands[:-1] if self.kind == "BRA" and ".CONV" not in self.opcode else ()

    @property
    def conditional(self) -> bool:
        """Return whether control may go past a jump or an end."""
        return bool(self.guard or self.conditions)


@dataclass(frozen=True)
class Ways:
    """What lies on either side of a conditional jump until both meet, as places of instructions.

    Of a jump that decides whether a loop goes on, the side that does holds the jump itself.
    """

    past: set[int]
    jump: set[int]


@dataclass(frozen=True)
class Code:
    """A kernel's instructions, and the place that each label names."""

    instructions: list[Instruction]
    labels: dict[str, int]

    def after(self, at: int) -> list[int]:
        """Return where control may be after an instruction: past it first, then where it jumps; a call comes back."""
        instruction = self.instructions[at]
        jumps = bool(instruction.label) and not instruction.calls
        ends = jumps or instruction.kind in ("EXIT", "RET")
        past = [at + 1] if at + 1 < len(self.instructions) and (not ends or instruction.conditional) else []
        return past + ([self.labels[instruction.label]] if jumps else [])

    def ways(self, at: int) -> Ways:
        """Return the two ways of a conditional jump."""
        blocks, meeting = self._blocks, self._meeting(at)
        sides = []
        for start in self.after(at):
            found: set[int] = set()
            todo = [self._block_of[start]]
            while todo:
                block = todo.pop()
                if block != meeting and block not in found:
                    found.add(block)
                    todo += self._next[block]
            sides.append({place for block in found for place in blocks[block]})
        return Ways(*sides)

    def _may_end(self, at: int) -> bool:
        return self.instructions[at].kind in ("EXIT", "RET")

    @cached_property
    def _blocks(self) -> list[range]:
        """Return the runs of instructions that are only entered at their first and left at their last."""
        count = len(self.instructions)
        starts = {0, count} | set(self.labels.values())
        for at in range(count):
            if self._may_end(at) or self.after(at) != [at + 1]:
                starts.add(at + 1)
        cuts = sorted(place for place in starts if place <= count)
        return [range(first, last) for first, last in itertools.pairwise(cuts)]

    @cached_property
    def _block_of(self) -> dict[int, int]:
        return {at: number for number, block in enumerate(self._blocks) for at in block}

    @cached_property
    def _next(self) -> list[list[int]]:
        return [[self._block_of[place] for place in self.after(block[-1])] for block in self._blocks]

    @cached_property
    def _always_after(self) -> list[int]:
        """Return for each block the set, as bits, of those that every way from it to an end goes through."""
        count = len(self._blocks)
        every = (1 << count) - 1
        ends = [not self._next[block] or self._may_end(self._blocks[block][-1]) for block in range(count)]
        found = [1 << block if ends[block] else every for block in range(count)]
        changed = True
        while changed:
            changed = False
            for block in reversed(range(count)):
                if not ends[block]:
                    common = functools.reduce(int.__and__, (found[place] for place in self._next[block]))
                    if found[block] != common | 1 << block:
                        found[block], changed = common | 1 << block, True
        return found

    def _meeting(self, at: int) -> int | None:
        """Return the first block that both ways of a jump come through, None if they never meet."""
        block, always = self._block_of[at], self._always_after
        others = always[block] & ~(1 << block)
        return next((b for b in range(len(always)) if others >> b & 1 and always[b] == others), None)


def disassemble(cubin: bytes) -> Code:
    """Return the machine code of a cubin that holds one kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(NVDISASM), "-g", "-c", file.name]
        return parse(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse(text: str) -> Code:
    """Return the code in what nvdisasm printed."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    file, line = "", 0
    for printed in text.splitlines():
        if found := LINE.search(printed):
            file, line = found[1], int(found[2])
        elif found := CODE.search(printed):
            operands = tuple(part.strip() for part in found[3].split(",")) if found[3] else ()
            instructions.append(Instruction(found[1] or "", found[2], operands, file, line))
        elif found := LABEL.search(printed):
            labels[found[1]] = len(instructions)
    return Code(instructions, labels)


def function_at(file: str, line: int) -> str:
    """Return the name of the function in whose definition a line of a Python file lies, or the empty string."""
    return next((name for lines, name in _functions(file) if line in lines), "")


@functools.cache
def _functions(file: str) -> list[tuple[range, str]]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except OSError:
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name) for node in found]
