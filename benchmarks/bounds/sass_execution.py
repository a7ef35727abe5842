"""Counts the instructions that a program of a kernel executes, by following its machine code without a GPU.

`execute` goes through the code as the first thread of each warp would. Integers, predicates and branches are computed,
so that a loop runs as often as it would on a GPU, however the compiler unrolled or pipelined it; loads from the model's
own tensors return what lies there, such as the depths of trees. Everything else, rows and floating-point numbers above
all, is *unknown*, and so is whatever is computed from it. What happens at a jump that depends on it is never guessed in
silence: `Hints` say it by the function of the source that the jump is from, or it is an error.

An instruction counts where its predicate is true or unknown, once for each warp, as a GPU's pipes take whole warps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from benchmarks.bounds.sass import Code, SassError
from benchmarks.bounds.sass_integers import action
from benchmarks.bounds.sass_thread import Program, Thread, predicate

MOST_STEPS = 20_000_000


@dataclass(frozen=True)
class Hints:
    """What happens at jumps that depend on rows.

    Attributes:
        passes: by function, how often a `while` loop's body in it runs each time that the loop is come to.
        avoid: functions that are not entered where there is another way. Functions of the machine code, which are the
            slow ways of divisions and the like, never are.
    """

    passes: Mapping[str, int] = field(default_factory=dict)
    avoid: Collection[str] = ()


@dataclass
class Counts:
    """The number of instructions that warps executed, by opcode, and the number issued in all."""

    executed: Counter[str] = field(default_factory=Counter)
    issued: float = 0

    def times(self, factor: float) -> Counts:
        """Return that many times as many."""
        scaled = {opcode: count * factor for opcode, count in self.executed.items()}
        return Counts(Counter(scaled), self.issued * factor)

    def add(self, other: Counts) -> None:
        """Add others."""
        self.executed.update(other.executed)
        self.issued += other.issued


def execute(code: Code, program: Program, hints: Hints) -> Counts:
    """Return what all warps of a program execute.

    Raises:
        SassError: a jump depends on what is unknown, and no hint says where it goes.
    """
    counts = Counts()
    for warp in range(program.warps):
        walk = Walk(code, Thread(program, 32 * warp), hints)
        walk.run()
        for instruction, given, done in zip(code.instructions, walk.given, walk.done, strict=True):
            counts.issued += given
            if done:
                counts.executed[instruction.opcode] += done
    return counts


class Walk:
    """A thread's way through the code.

    Attributes:
        given: how often each instruction was come to.
        done: how often each was executed.
    """

    def __init__(self, code: Code, thread: Thread, hints: Hints) -> None:
        self.code, self.thread, self.hints = code, thread, hints
        self.given, self.done = [0] * len(code.instructions), [0] * len(code.instructions)
        self._passes: Counter[int] = Counter()

    def run(self) -> None:
        """Go from the first instruction to the end."""
        instructions, predicates, given, done = self.code.instructions, self.thread.predicates, self.given, self.done
        actions = [action(self.thread, instruction) for instruction in instructions]
        guards = [predicate(instruction.guard) for instruction in instructions]
        flow = [bool(i.label) or i.kind in ("EXIT", "RET") for i in instructions]
        at, steps = 0, 0
        while at >= 0:
            steps += 1
            if steps > MOST_STEPS:
                raise SassError(f"after {steps:,} instructions there is no end")
            given[at] += 1
            number, negated = guards[at]
            held = predicates[number]
            if held is not None and held == negated:
                at += 1
                continue
            done[at] += 1
            if flow[at]:
                at = self._flow(at, held is not None)
            else:
                actions[at]()
                at += 1

    def _flow(self, at: int, certain: bool) -> int:
        """Return where control goes after a jump or an end whose guard is true, or unknown; −1 at the end."""
        instruction = self.code.instructions[at]
        if instruction.kind == "EXIT":
            return -1 if certain else at + 1
        if instruction.kind == "RET" or instruction.calls:
            where = f"line {instruction.line} of {instruction.file}"
            raise SassError(f"{where}: {instruction.opcode} is of a function, which is not followed")
        for operand in instruction.conditions:
            number, negated = predicate(operand)
            other = self.thread.predicates[number]
            if other is not None and other == negated:
                return at + 1
            certain = certain and other is not None
        return self.code.after(at)[-1] if certain else self._choose(at)

    def _choose(self, at: int) -> int:
        """Return where control goes after a jump that depends on what is unknown."""
        instructions, ways = self.code.instructions, self.code.ways(at)
        past, jump = self.code.after(at)
        calls = [any(instructions[place].calls for place in way) for way in (ways.past, ways.jump)]
        avoided = [
            any(instructions[place].function in self.hints.avoid for place in way) for way in (ways.past, ways.jump)
        ]
        for on_past, on_jump in (calls, avoided):
            if on_past != on_jump:
                return jump if on_past else past
        passes = self.hints.passes.get(instructions[at].function)
        loop = at in ways.past or at in ways.jump
        if passes is None and not loop and not (ways.past and ways.jump):  # it leaves something out, like a predicate
            return past if ways.past else jump
        if passes is None:
            where = f"line {instructions[at].line} of {instructions[at].file}"
            raise SassError(
                f"{where}: rows decide where {instructions[at].opcode} goes, and no hint says where that is"
            )
        if not loop:  # it is whether to begin one
            into, over = (past, jump) if len(ways.past) > len(ways.jump) else (jump, past)
            return into if passes else over
        self._passes[at] += 1
        again, out = (past, jump) if at in ways.past else (jump, past)
        if self._passes[at] < passes:
            return again
        self._passes[at] = 0
        return out
