"""What instructions of machine code (SASS) do to a thread's integers and predicates.

What is made of unknown numbers is unknown, and so is all that an instruction writes that is not among these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from benchmarks.bounds.sass import Instruction
from benchmarks.bounds.sass_thread import (
    NUMBER,
    PREDICATE,
    PT,
    REGISTER,
    RZ,
    WORD,
    Action,
    Read,
    Thread,
    every,
    predicate,
    register,
    written,
)

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "EQ": int.__eq__, "NE": int.__ne__,
}  # fmt: skip
NOTHING = (
    "STG", "STS", "RED", "BAR", "NOP", "BSSY", "BSYNC", "BMOV", "YIELD", "WARPSYNC", "DEPBAR", "LDGDEPBAR",
    "LDGSTS", "MEMBAR", "ERRBAR", "CCTL", "BREAK", "FENCE", "WARPGROUP", "ELECT", "SYNCS", "UBLKCP", "PREEXIT",
)  # fmt: skip
"""What writes no register."""


def action(thread: Thread, instruction: Instruction) -> Action:
    """Return what an instruction does to a thread."""
    kind = instruction.kind
    if kind in NOTHING:
        return lambda: None
    name = kind if kind in MAKERS else kind.removeprefix("U")
    made = MAKERS[name](thread, instruction) if name in MAKERS else None
    return made or thread.forget(instruction)


def _compute(
    thread: Thread, dest: str, reads: list[Read] | None, f: Callable[..., int], words: int = 1
) -> Action | None:
    if reads is None:
        return None
    number = register(dest)

    def go() -> None:
        values = [read() for read in reads]
        thread.write(number, None if None in values else f(*values), words)

    return go


def _split(operands: Sequence[str]) -> tuple[list[str], str, list[str], list[str]]:
    """Return the predicates written, the register written, what is read, and the predicates read after that.

    Predicates are written before the register, as of a logical operation, or after it, as of a sum that is carried.
    """
    kinds = [bool(PREDICATE.match(operand)) for operand in operands]
    at = kinds.index(False)
    first = next((n for n in range(at + 1, len(operands)) if not kinds[n]), len(operands))
    last = next((n for n in reversed(range(len(operands))) if not kinds[n]), at) + 1
    return [*operands[:at], *operands[at + 1 : first]], operands[at], list(operands[first:last]), list(operands[last:])


def _move(thread: Thread, i: Instruction) -> Action | None:
    return _compute(thread, i.operands[0], every(thread.read(i.operands[1])), lambda a: a)


def _load_constant(thread: Thread, i: Instruction) -> Action | None:
    wide = ".64" in i.opcode
    read = thread.read_wide(i.operands[1]) if wide else thread.read(i.operands[1])
    return _compute(thread, i.operands[0], every(read), lambda a: a, 2 if wide else 1)


def _special(thread: Thread, i: Instruction) -> Action | None:
    value = thread.special.get(i.operands[1])
    words = 2 if i.kind == "CS2R" and ".32" not in i.opcode else 1
    return None if value is None else _compute(thread, i.operands[0], [], lambda: value, words)


def _carried(thread: Thread, i: Instruction, total: Callable[..., int], inputs: list[Read] | None) -> Action | None:
    """Return what writes a sum, and to the predicates written whether it is carried over once, or twice."""
    out, to, _, after = _split(i.operands)
    carries = [thread.test(operand) for operand in after] if "X" in i.opcode.split(".") else []
    if inputs is None:
        return None
    dest, flags = register(to), [predicate(operand)[0] for operand in out]

    def go() -> None:
        values, ins = [read() for read in inputs], [carry() for carry in carries]
        value = None if None in values or None in ins else total(*values) + sum(bool(carry) for carry in ins)
        thread.write(dest, value)
        for number, flag in enumerate(flags):
            thread.store(flag, None if value is None else value >> 32 > number)

    return go


def _add(thread: Thread, i: Instruction) -> Action | None:
    _, _, terms, _ = _split(i.operands)
    return _carried(thread, i, lambda *values: sum(values), every(*(thread.read(term) for term in terms)))


def _lea(thread: Thread, i: Instruction) -> Action | None:
    (_, _, terms, _), parts = _split(i.operands), i.opcode.split(".")
    if not NUMBER.match(terms[-1]):
        return None
    shift, reads = int(terms[-1], 16), every(*(thread.read(term) for term in terms[:-1]))
    if "HI" not in parts:
        return _carried(thread, i, lambda a, b: (a << shift & WORD) + b, reads)
    if "SX32" in parts:
        return _carried(thread, i, lambda a, b: (_signed(a) << shift >> 32 & WORD) + b, reads)
    return _carried(thread, i, lambda a, b, c: ((c << 32 | a) << shift >> 32 & WORD) + b, reads)


def _imad(thread: Thread, i: Instruction) -> Action | None:
    parts, (_, dest, terms, _) = i.opcode.split("."), _split(i.operands)
    sign = (lambda a: a & WORD) if "U32" in parts else lambda a: _signed(a & WORD)
    reads = [thread.read(term) for term in terms[:2]]
    if "WIDE" in parts or "HI" in parts:
        if len(i.operands) != 4:
            return None
        shift = 32 if "HI" in parts else 0
        wide = every(*reads, thread.read_wide(terms[2]))
        return _compute(thread, dest, wide, lambda a, b, c: sign(a) * sign(b) + c >> shift, 1 if shift else 2)
    return _carried(thread, i, lambda a, b, c: (a & WORD) * (b & WORD) + c, every(*reads, thread.read(terms[2])))


def _logic(thread: Thread, i: Instruction) -> Action | None:
    out, to, terms, _ = _split(i.operands)
    if ".LUT" not in i.opcode or not NUMBER.match(terms[3]):
        return None
    table, reads = int(terms[3], 16), every(*(thread.read(term) for term in terms[:3]))
    if reads is None:
        return None
    dest, flags = register(to), [predicate(operand)[0] for operand in out]

    def go() -> None:
        a, b, c = (read() for read in reads)
        value = None if a is None or b is None or c is None else _by_table(table, a & WORD, b & WORD, c & WORD)
        thread.write(dest, value)
        for flag in flags:
            thread.store(flag, None if value is None else value != 0)

    return go


def _by_table(table: int, a: int, b: int, c: int) -> int:
    found = 0
    for bits in range(8):
        if table >> bits & 1:
            found |= (a if bits & 4 else ~a) & (b if bits & 2 else ~b) & (c if bits & 1 else ~c)
    return found & WORD


def _shift(thread: Thread, i: Instruction) -> Action | None:
    parts, reads = i.opcode.split("."), every(*(thread.read(part) for part in i.operands[1:4]))
    wide, high, left = "U64" in parts or "S64" in parts, "HI" in parts, "L" in parts

    def f(low: int, by: int, top: int) -> int:
        by = min(by, 63 if wide else 32) if "W" not in parts else by & (63 if wide else 31)
        value = top << 32 | low
        if "S32" in parts or "S64" in parts:
            value = value - (1 << 64) if top >> 31 else value
        value = value << by if left else value >> by
        if not wide and not high:
            return value  # the lower word
        return value >> 32 if high else value

    return _compute(thread, i.operands[0], reads, f)


def _select(thread: Thread, i: Instruction) -> Action | None:
    first, second, held = thread.read(i.operands[1]), thread.read(i.operands[2]), thread.test(i.operands[3])
    if first is None or second is None:
        return None
    dest = register(i.operands[0])

    def go() -> None:
        which = held()
        thread.write(dest, None if which is None else first() if which else second())

    return go


def _minimum(thread: Thread, i: Instruction) -> Action | None:
    first, second, held = thread.read(i.operands[1]), thread.read(i.operands[2]), thread.test(i.operands[3])
    key = (lambda a: a) if ".U32" in i.opcode else _signed
    if first is None or second is None:
        return None
    dest = register(i.operands[0])

    def go() -> None:
        a, b, least = first(), second(), held()
        if a is None or b is None or least is None:
            thread.write(dest, None)
        else:
            thread.write(dest, min(a, b, key=key) if least else max(a, b, key=key))

    return go


def _add_minimum(thread: Thread, i: Instruction) -> Action | None:
    reads, held = every(*(thread.read(operand) for operand in i.operands[1:4])), i.operands[4]
    if reads is None or held not in ("PT", "!PT"):
        return None
    key, best = (lambda a: a & WORD) if ".U32" in i.opcode else _signed, min if held == "PT" else max
    return _compute(thread, i.operands[0], reads, lambda a, b, c: best(key(a + b & WORD), key(c & WORD)))


def _compare(thread: Thread, i: Instruction) -> Action | None:
    parts = i.opcode.split(".")
    compare, unsigned, extended = COMPARISONS.get(parts[1]), "U32" in parts, "EX" in parts
    reads = every(thread.read(i.operands[2]), thread.read(i.operands[3]))
    if compare is None or reads is None:
        return None
    to, other = predicate(i.operands[0])[0], predicate(i.operands[1])[0]
    given, lower = thread.test(i.operands[4]), thread.test(i.operands[5]) if extended else None
    either = "OR" in parts

    def go() -> None:
        a, b = (read() for read in reads)
        found: bool | None = None
        if a is not None and b is not None:
            a, b = (a & WORD, b & WORD) if unsigned else (_signed(a & WORD), _signed(b & WORD))
            found = compare(a, b)
            if lower is not None and (a == b or parts[1] in ("EQ", "NE")):
                low = lower()
                found = low if a == b else parts[1] == "NE"
        rest = given()
        for flag, value in ((to, found), (other, None if found is None else not found)):
            if either:
                known = True if value or rest else None if value is None or rest is None else False
            else:
                known = False if value is False or rest is False else None if value is None or rest is None else True
            thread.store(flag, known)

    return go


def _predicates(thread: Thread, i: Instruction) -> Action | None:
    if len(i.operands) < 6 or not NUMBER.match(i.operands[5]):
        return None
    tests, flags = [thread.test(operand) for operand in i.operands[2:5]], [predicate(o)[0] for o in i.operands[:2]]
    tables = [int(operand, 16) for operand in i.operands[5:7]]

    def go() -> None:
        choices = [(False, True) if (value := test()) is None else (value,) for test in tests]
        for flag, table in zip(flags, tables, strict=False):
            found = {bool(table >> (4 * a + 2 * b + c) & 1) for a, b, c in itertools.product(*choices)}
            thread.store(flag, found.pop() if len(found) == 1 else None)

    return go


def _pack(thread: Thread, i: Instruction) -> Action | None:
    """Return what writes predicates to the bits of a register that a mask names."""
    rest, dest = thread.read(i.operands[2]), register(i.operands[0])
    if i.opcode != "P2R" or rest is None or not NUMBER.match(i.operands[3]):
        return None
    mask = int(i.operands[3], 16)
    held = [number for number in range(PT) if mask >> number & 1]

    def go() -> None:
        value, bits = rest(), [thread.predicates[number] for number in held]
        if value is not None and None not in bits:
            value = value & ~mask | sum(bool(bit) << number for number, bit in zip(held, bits, strict=True))
            thread.write(dest, value)
        else:
            thread.write(dest, None)

    return go


def _unpack(thread: Thread, i: Instruction) -> Action | None:
    """Return what writes the bits of a register that a mask names to predicates."""
    read = thread.read(i.operands[1])
    if i.opcode != "R2P" or read is None or not NUMBER.match(i.operands[2]):
        return None
    mask = int(i.operands[2], 16)

    def go() -> None:
        value = read()
        for number in range(PT):
            if mask >> number & 1:
                thread.store(number, None if value is None else bool(value >> number & 1))

    return go


def _load(thread: Thread, i: Instruction) -> Action | None:
    address, words = thread.address(i.operands[-1], wide=True), written(i)
    if address is None or not REGISTER.match(i.operands[0]) or {"U8", "U16", "S8", "S16"} & set(i.opcode.split(".")):
        return None
    dest = register(i.operands[0])

    def go() -> None:
        at = address()
        thread.write(dest, None if at is None else thread.program.memory.read(at, 4 * words), words)

    return go


def _load_local(thread: Thread, i: Instruction) -> Action | None:
    address, words, dest = thread.address(i.operands[1], wide=False), written(i), register(i.operands[0])
    if address is None:
        return None

    def go() -> None:
        at = address()
        for word in range(words):
            thread.write(dest + word, None if at is None else thread.stack.get(at + 4 * word))

    return go


def _store_local(thread: Thread, i: Instruction) -> Action | None:
    """Return what writes registers to local memory; one whose place is not known makes unknown all that lies there."""
    address, source = thread.address(i.operands[0], wide=False), register(i.operands[1])
    words = 4 if ".128" in i.opcode else 2 if ".64" in i.opcode else 1

    def go() -> None:
        at = address() if address else None
        if at is None:
            thread.stack.clear()
            return
        for word in range(words):
            thread.stack[at + 4 * word] = 0 if source == RZ else thread.registers[source + word]

    return go


def _from_first_lane(thread: Thread, i: Instruction) -> Action | None:
    lane = i.operands[3]
    if ".IDX" not in i.opcode or lane not in ("RZ", "0x0"):
        return None
    return _compute(thread, i.operands[1], every(thread.read(i.operands[2])), lambda a: a)


def _extend(thread: Thread, i: Instruction) -> Action | None:
    if not NUMBER.match(i.operands[2]):
        return None
    bits, unsigned = int(i.operands[2], 16), ".U32" in i.opcode
    keep = (1 << bits) - 1

    def f(a: int) -> int:
        a &= keep
        return a if unsigned or not a >> (bits - 1) else a - (1 << bits)

    return _compute(thread, i.operands[0], every(thread.read(i.operands[1])), f)


def _vote(thread: Thread, i: Instruction) -> Action | None:
    """Return what writes the mask of all threads where each of them votes, for that is all that jumps ask for."""
    if i.operands[-1] not in ("PT", "UPT") or not REGISTER.match(i.operands[0]):
        return None
    return _compute(thread, i.operands[0], [], lambda: WORD)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


MAKERS: dict[str, Callable[[Thread, Instruction], Action | None]] = {
    "MOV": _move, "R2UR": _move, "LDC": _load_constant, "S2R": _special, "S2UR": _special, "CS2R": _special,
    "IADD3": _add, "IADD": _add, "VIADD": _add, "LEA": _lea, "IMAD": _imad, "LOP3": _logic, "SHF": _shift,
    "SEL": _select, "IMNMX": _minimum, "VIMNMX": _minimum, "VIADDMNMX": _add_minimum, "ISETP": _compare,
    "PLOP3": _predicates, "P2R": _pack, "R2P": _unpack, "LDG": _load, "LDL": _load_local, "STL": _store_local,
    "SHFL": _from_first_lane, "SGXT": _extend, "VOTE": _vote, "VOTEU": _vote,
}  # fmt: skip
