"""What a thread of a program sees while its machine code (SASS) is followed: registers, predicates and memory.

A number that is not known is None.
"""

from __future__ import annotations

import bisect
import functools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.bounds.sass import Instruction, SassError

WORD = 0xFFFFFFFF
RZ, UR, UNIFORM = 255, 256, 63
"""Registers: R0 to R254, RZ, which is zero, and from 256 on the uniform ones, of which UR63 is zero."""

PT, UP = 7, 8
"""Predicates: P0 to P6, PT, which is true, and from 8 on the uniform ones, of which UP7 is true."""

REGISTER = re.compile(r"^([-~]?)(U?)R(\d+|Z)(?:\.reuse|\.64)?$")
CONSTANT = re.compile(r"^(-?)c\[0x0\]\[0x([0-9a-f]+)\]$")
NUMBER = re.compile(r"^-?0x[0-9a-f]+$")
PREDICATE = re.compile(r"^!?U?P[0-9T]$")
ADDRESS = re.compile(r"\[([^][]+)\]$")
Value = int | None
Read = Callable[[], Value]
Action = Callable[[], None]


class Memory:
    """The tensors whose contents are known."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        kept = sorted(((t.data_ptr(), t) for t in tensors if t.numel()), key=lambda pair: pair[0])
        self._starts = [start for start, _ in kept]
        self._bytes = [t.reshape(-1).view(torch.uint8).numpy() for _, t in kept]

    def read(self, address: int, size: int) -> Value:
        """Return the `size` bytes at an address as a number, None where they are not known."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        offset = address - self._starts[place]
        found = self._bytes[place][offset : offset + size].tobytes()
        return int.from_bytes(found, "little") if len(found) == size else None


@dataclass(frozen=True)
class Program:
    """What one program sees.

    Attributes:
        constants: the constant bank, where the grid's size and the kernel's arguments lie.
        place: the program's number on each axis.
        warps: how many warps it has.
        memory: what is known to lie in memory.
    """

    constants: bytes
    place: tuple[int, int, int]
    warps: int
    memory: Memory


class Thread:
    """The registers and predicates of one thread, and how instructions change them."""

    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.registers: list[Value] = [None] * (UR + UNIFORM + 3)
        self.predicates: list[bool | None] = [None] * (UP + 8)
        self.registers[RZ] = self.registers[UR + UNIFORM] = 0
        self.predicates[PT] = self.predicates[UP + 7] = True
        x, y, z = program.place
        self.stack: dict[int, Value] = {}
        self.special = {"SR_TID.X": number, "SR_TID.Y": 0, "SR_TID.Z": 0, "SR_LANEID": 0, "SRZ": 0}
        self.special |= {"SR_CTAID.X": x, "SR_CTAID.Y": y, "SR_CTAID.Z": z}

    def forget(self, instruction: Instruction) -> Action:
        """Return what makes unknown all that an instruction writes: predicates, and registers."""
        operands = list(instruction.operands)
        if instruction.kind == "R2P":
            mask = int(operands[-1], 16) if NUMBER.match(operands[-1]) else 0x7F
            predicates, registers = [number for number in range(PT) if mask >> number & 1], []
        else:
            at = next((n for n, operand in enumerate(operands) if not PREDICATE.match(operand)), len(operands))
            writes = at < len(operands) and REGISTER.match(operands[at]) is not None
            end = at
            while writes and end + 1 < len(operands) and PREDICATE.match(operands[end + 1]):
                end += 1
            predicates = [predicate(operand)[0] for operand in operands[: end + 1] if PREDICATE.match(operand)]
            first = register(operands[at]) if writes else RZ
            registers = [first + offset for offset in range(written(instruction))] if writes else []
        predicates = [number for number in predicates if number not in (PT, UP + 7)]
        registers = [] if RZ in registers or UR + UNIFORM in registers else registers

        def go() -> None:
            for number in registers:
                self.registers[number] = None
            for number in predicates:
                self.predicates[number] = None

        return go

    def read(self, operand: str) -> Read | None:
        """Return what reads 32 bits: those of `-R` are 2³² − R, so that carries come out right; None of a float."""
        registers = self.registers
        if found := REGISTER.match(operand):
            number, sign = register(operand), found[1]
            if not sign:
                return lambda: registers[number]

            def signed() -> Value:
                value = registers[number]
                return None if value is None else (value ^ WORD) + (sign == "-")

            return signed
        if found := CONSTANT.match(operand):
            (value,) = struct.unpack_from("<I", self.program.constants, int(found[2], 16))
            value = (value ^ WORD) + 1 if found[1] else value
        elif NUMBER.match(operand):
            value = int(operand, 16) & WORD
        else:
            return None
        return lambda: value

    def read_wide(self, operand: str) -> Read | None:
        """Return what reads 64 bits."""
        registers = self.registers
        if found := REGISTER.match(operand):
            number = register(operand)
            if found[1]:
                return None
            if number in (RZ, UR + UNIFORM):
                return lambda: 0

            def pair() -> Value:
                low, high = registers[number], registers[number + 1]
                return None if low is None or high is None else high << 32 | low

            return pair
        if found := CONSTANT.match(operand):
            (value,) = struct.unpack_from("<Q", self.program.constants, int(found[2], 16))
            return lambda: value
        return self.read(operand)

    def address(self, operand: str, *, wide: bool) -> Read | None:
        """Return what reads the address in brackets: the sum of a pair of registers, or one, and numbers."""
        reads: list[Read | None] = []
        found = ADDRESS.search(operand)
        for term in found[1].split("+") if found else ["?"]:
            if NUMBER.match(term):
                reads.append(functools.partial(int, term, 16))
            elif term.endswith(".U32") or not wide:
                reads.append(self.read(term.removesuffix(".U32")))
            else:
                reads.append(self.read_wide(term))
        known = every(*reads)
        if known is None:
            return None

        def go() -> Value:
            values = [read() for read in known]
            return None if None in values else sum(values) & (2**64 - 1 if wide else WORD)  # type: ignore[arg-type]

        return go

    def write(self, number: int, value: Value, words: int = 1) -> None:
        """Write a number to so many registers."""
        for offset in range(words):
            if number not in (RZ, UR + UNIFORM):
                self.registers[number + offset] = None if value is None else value >> (32 * offset) & WORD

    def store(self, number: int, value: bool | None) -> None:
        """Write a predicate."""
        if number not in (PT, UP + 7):
            self.predicates[number] = value

    def test(self, operand: str) -> Callable[[], bool | None]:
        """Return what reads a predicate."""
        number, negated = predicate(operand)

        def go() -> bool | None:
            value = self.predicates[number]
            return None if value is None else value != negated

        return go


def every(*reads: Read | None) -> list[Read] | None:
    """Return what reads operands if all can be read, else None."""
    return None if any(read is None for read in reads) else list(reads)  # type: ignore[arg-type]


def register(operand: str) -> int:
    """Return a register's number."""
    found = REGISTER.match(operand)
    assert found is not None
    number = (UNIFORM if found[2] else RZ) if found[3] == "Z" else int(found[3])
    return number + (UR if found[2] else 0)


def predicate(operand: str) -> tuple[int, bool]:
    """Return a predicate's number, and whether it is negated; that of no predicate is true."""
    name = operand.lstrip("!")
    if not name:
        return PT, False
    if not PREDICATE.fullmatch(name):
        raise SassError(f"{operand} is no predicate that is followed")
    number = 7 if name.endswith("T") else int(name[-1])
    return number + (UP if name.startswith("U") else 0), operand.startswith("!")


def written(instruction: Instruction) -> int:
    """Return how many registers an instruction writes at most."""
    opcode, kind = instruction.opcode, instruction.kind
    if kind in ("HGMMA", "IGMMA", "QGMMA"):  # a tile of 64 rows and so many columns, among four warps
        return int(re.findall(r"\d+", opcode)[1]) // 2
    if kind in ("HMMA", "IMMA", "DMMA", "LDSM") or ".128" in opcode:
        return 4
    wide = kind in ("DADD", "DMUL", "DFMA", "DMNMX", "CS2R") or ".64" in opcode or ".WIDE" in opcode
    return 2 if wide or opcode.startswith(("F2F.F64", "I2F.F64", "F2I.S64", "F2I.U64", "FRND.F64")) else 1
