"""Compiles the attention kernels for Hopper, without one: `python -m tests.gallery.hopper_compile`.

Their machine code shows, without such a GPU and beyond `gluon_threads.py`, that they compile, that they fit the shared
memory, that products stay in flight while something else is computed, and that no register that a product still reads
is written. The compiler leaves the last to the assembler, which has been wrong before (issue 9433
of the Triton language). TRITON_INTERPRET must not be set.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from gallery.kernels.attention_backward_hopper import OWN, QUERIES, of_keys_hopper_kernel, of_queries_hopper_kernel
from gallery.kernels.attention_hopper import KEYS, ROWS, attention_hopper_kernel

SHARED_BYTES = 227 * 1024
NUMBERS = {"scale": "fp32"}  # the others are int32
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+\s+)?([^;]*?)\s*;")
FROM_REGISTERS = re.compile(r"HGMMA\S+ R\d+, R(\d+), gdesc")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
BRANCH = re.compile(r"BRA\S* 0x([0-9a-f]+)")
NO_TARGET = ("ST", "BAR", "BRA", "SYNCS", "HGMMA", "RED", "WARPGROUP", "DEPBAR", "UTMA", "EXIT", "USETMAX")
FARTHEST = 1500
"""The number of instructions after a product that are searched."""


def block(rows: int, width: int, dtype: str = "bf16") -> str:
    """Return the type of a descriptor of blocks [1, 1, rows, width], or [1, rows] if the width is 0."""
    shape = [1, 1, rows, width] if width else [1, rows]
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.bfloat16 if dtype == "bf16" else gl.float32)
    return f"tensordesc<{dtype}{shape},{layout!r}>"


def kernels(width: int, causal: bool) -> Iterator[tuple[Any, dict[str, str], dict[str, Any]]]:
    """Yield each kernel with the types of its arguments and its constants."""
    constants = {"D": width, "CAUSAL": causal}
    rows, keys, own, queries = (block(length.value, width) for length in (ROWS, KEYS, OWN, QUERIES))
    numbers = block(QUERIES.value, 0, "fp32")
    yield attention_hopper_kernel, {"q": rows, "k": keys, "v": keys, "o": rows, "kept": "*fp32"}, constants
    owned = {"k": own, "v": own, "dk": own, "dv": own}
    blocks = {"q": queries, "do": queries, "logs": numbers, "dots": numbers}
    yield of_keys_hopper_kernel, owned | blocks, constants
    owned = {"q": own, "do": own, "dq": own, "logs": "*fp32", "dots": "*fp32"}
    yield of_queries_hopper_kernel, owned | {"k": keys, "v": keys}, constants | {"EVEN": not causal}


def compile_kernel(kernel: Any, types: dict[str, str], constants: dict[str, Any]) -> Any:
    """Compile for compute capability 9.0, with tensors that begin at multiples of 16 bytes."""
    signature = {
        name: "constexpr" if name in constants else (types | NUMBERS).get(name, "i32") for name in kernel.arg_names
    }
    attributes = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = GluonASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def instructions(cubin: bytes) -> list[tuple[int, str]]:
    """Return address and text of each instruction, without its predicate."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-sass", file.name]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(int(found[1], 16), found[2]) for found in map(INSTRUCTION.match, listing.splitlines()) if found]


def written(instruction: str) -> range:
    """Return the registers that an instruction writes."""
    name, _, rest = instruction.partition(" ")
    found = re.match(r"(?:U?P\d+, )?R(\d+)", rest)
    if name.startswith(NO_TARGET) or not found:
        return range(0)
    wide = 4 if ".128" in name else 2 if ".64" in name or ".WIDE" in name or name.startswith("CS2R") else 1
    return range(int(found[1]), int(found[1]) + wide)


def written_too_early(code: list[tuple[int, str]]) -> list[str]:
    """Return instructions that write a register from which a product may still read its left factor."""
    places = {address: place for place, (address, _) in enumerate(code)}
    found = []
    for place, (_, product) in enumerate(code):
        if not (match := FROM_REGISTERS.match(product)):
            continue
        left = range(int(match[1]), int(match[1]) + 4)
        ahead, seen = [(place + 1, int("gsb0" in product))], set()  # with how many groups of products have ended
        while ahead:
            at, groups = ahead.pop()
            if (at, groups) in seen or at >= len(code) or len(seen) > FARTHEST:
                continue
            seen.add((at, groups))
            instruction = code[at][1]
            groups += "HGMMA" in instruction and "gsb0" in instruction
            wait = WAIT.match(instruction)
            if (wait and int(wait[1], 16) < groups) or instruction.startswith("EXIT"):
                continue
            if set(left) & set(written(instruction)):
                found.append(f"{instruction} after {product}")
                break
            if branch := BRANCH.match(instruction):
                ahead.append((places.get(int(branch[1], 16), len(code)), groups))
            ahead.append((at + 1, groups))
    return found


def faults(kernel: Any, types: dict[str, str], constants: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of a kernel's machine code."""
    compiled = compile_kernel(kernel, types, constants)
    code = instructions(compiled.asm["cubin"])
    products = sum("HGMMA" in text for _, text in code)
    waits = sum(bool(WAIT.match(text)) for _, text in code)
    if compiled.metadata.shared > SHARED_BYTES:
        yield f"takes {compiled.metadata.shared:,} bytes of shared memory"
    if not products:
        yield "has no products of warp groups"
    if waits * 2 > products:
        yield f"waits {waits} times for {products} products"
    yield from written_too_early(code)


def main() -> int:
    """Compile, and print the kernels or their faults."""
    found = [
        f"{kernel.__name__} {fault}"
        for width, causal in ((128, True), (64, False))
        for kernel, types, constants in kernels(width, causal)
        for fault in faults(kernel, types, constants)
    ]
    print("\n".join(found) or "nothing is wrong with the attention kernels for Hopper")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
