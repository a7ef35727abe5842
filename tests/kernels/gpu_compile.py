"""Compiles the kernel launches of every op for a GPU, without one: `python -m tests.kernels.gpu_compile [PARTS | all]`.

The interpreter accepts Python that the Triton language's compiler does not. TRITON_INTERPRET must not be set.

The compiler's front end generates code for every launch of `gpu_launches.py`. Launches that together hold every line of
that code are compiled to machine code (`chosen`); with `all` every launch is. None may take more shared memory than
there is.

With a number of parts the program reads the number of one part of these launches after another from standard input,
compiles it, and prints one line of JSON for each.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.kernels.gpu_launches import SHARED_BYTES, Launch, at_the_limit, launches

POINTERS = {
    torch.bool: "*i1",
    torch.uint8: "*u8",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
}


def source_of(capability: int, kernel: JITFunction[Any], arguments: dict[str, Any]) -> ASTSource:
    """Return what is compiled for a compute capability, as the launcher would specialise it."""
    constant = {p.name for p in kernel.params if p.is_constexpr}
    signature, constants, attributes = {}, {}, {}
    for index, (name, value) in enumerate(arguments.items()):
        if name in constant:
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, TensorDescriptor):
            kind = POINTERS[value.base.dtype].removeprefix("*")
            signature[name] = f"tensordesc<{kind}{list(value.block_shape)},{value.layout!r}>"
        else:
            signature[name] = "i32"
    if "PRECISION" in constants and constants["PRECISION"] != "float64":
        constants["PRECISION"] = "bf16x6" if capability >= 80 else "ieee"
    if "MATRIX_UNITS" in constants:
        constants["MATRIX_UNITS"] = capability >= 80
    return (GluonASTSource if kernel.is_gluon() else ASTSource)(kernel, signature, constants, attributes)


def compile_for(capability: int, kernel: JITFunction[Any], arguments: dict[str, Any], options: dict[str, Any]) -> Any:
    """Compile one launch to machine code."""
    return triton.compile(source_of(capability, kernel, arguments), target=target_of(capability), options=options)


def target_of(capability: int) -> GPUTarget:
    """Return the target, after telling the language that it is the current GPU's."""
    target = GPUTarget("cuda", capability, 32)
    driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    return target


def generate_for(capability: int, kernel: JITFunction[Any], arguments: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the code that the compiler's front end generates for one launch."""
    source, target = source_of(capability, kernel, arguments), target_of(capability)
    backend, context = make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    known = backend.parse_options(options | source.parse_options())
    functions, modules = backend.get_codegen_implementation(known), backend.get_module_map()
    return str(source.make_ir(target, known, functions, modules, context))


class Contents(NamedTuple):
    """What is in the code of a launch, and how much it takes."""

    shown: set[tuple[Any, ...]]
    """Lines of source for which there is code, the kernel, and the types of its matrix products, for each capability.

    The compiler uses other instructions for products on each capability. Lines are the same on all.
    """
    instructions: float
    """About how many instructions a thread gets."""
    operand_bytes: int
    """The bytes of the factors of the largest product in all stages of a pipeline."""


def contents(launch: Launch) -> Contents:
    """Return what is in the code of a launch."""
    capability, kernel, _, options = launch
    shown: set[tuple[Any, ...]] = {(kernel.__name__, capability)}
    elements = operand_bytes = 0
    for line in generate_for(*launch).splitlines():
        if place := re.search(r'loc\("([^"]+)":(\d+)', line):
            shown.add(place.groups())
        tensors = re.findall(r"tensor<([\dx]+)x(?:[a-z]+(\d+)|!)", line)
        shapes = [[int(size) for size in shape.split("x")] for shape, _ in tensors]
        if " tt.dot " in line:
            shown.add(
                (kernel.__name__, capability, *re.findall(r"(?<=inputPrecision = )\w+|(?<=x)[a-z]+\d+(?=>)", line))
            )
            elements += math.prod(shapes[0]) * shapes[1][-1] // (16 if capability >= 80 else 1)
            factors = zip(shapes[:2], tensors, strict=False)
            operand_bytes = max(operand_bytes, sum(math.prod(shape) * int(bits) // 8 for shape, (_, bits) in factors))
        elif shapes:
            elements += math.prod(shapes[-1])
    instructions = 1000 + elements / (32 * options.get("num_warps", 4))
    return Contents(shown, instructions, operand_bytes * options.get("num_stages", 3))


def chosen(known: Sequence[Launch], always: Sequence[Launch]) -> list[Launch]:
    """Return launches that together show all that the known ones do.

    They are those of `always`, the launch with the largest products of each kernel and capability, whose shared memory
    is in question, and small ones: the next is the one that shows most that is new for its instructions. Capability 10
    has other matrix units: the largest products for 9 are compiled for it too, except those for units that 9 alone has.
    """
    left = [(launch, contents(launch)) for launch in known]
    multiply = [each for each in left if each[1].operand_bytes and is_limited(each[0])]
    by_size = sorted(multiply, key=lambda each: each[1].operand_bytes)
    largest = {(launch[0], launch[1].__name__): (launch, inside) for launch, inside in by_size}
    products = [launch for launch, _ in largest.values()]
    on_blackwell = [(100, *launch[1:]) for launch in products if launch[0] == 90 and not launch[1].is_gluon()]
    found = [*always, *products, *on_blackwell]
    all_inside = [*(contents(launch) for launch in always), *(inside for _, inside in largest.values())]
    seen = set().union(*(inside.shown for inside in all_inside))
    while left := [each for each in left if not each[1].shown <= seen]:
        launch, inside = max(left, key=lambda each: len(each[1].shown - seen) / each[1].instructions)
        seen |= inside.shown
        found.append(launch)
    return found


BY_SHARED_MEMORY = ("resident_layers_kernel", "stacked_sums_of_pairs_kernel", "sums_of_pairs_kernel")
"""Kernels that a GPU gets, or whose shape it gets, only with enough shared memory."""


def is_limited(launch: Launch) -> bool:
    """Return whether a launch has to fit.

    Where shared memory chooses the shape, only that of wide distances is one that a GPU gets.
    """
    _, kernel, arguments, _ = launch
    by_memory = kernel.__name__ in BY_SHARED_MEMORY or arguments.get("WAY") == "digits"
    return not by_memory or (arguments.get("METRIC") == "euclidean" and arguments.get("PROFILE") == "exp")


def fault(launch: Launch) -> str:
    """Return the fault of a launch's machine code, or nothing."""
    capability, kernel, *_ = launch
    compiled = compile_for(*launch)
    if not compiled.asm["cubin"]:
        return f"{kernel.__name__} gave no machine code for {capability}"
    shared, most = compiled.metadata.shared, SHARED_BYTES[max(known for known in SHARED_BYTES if known <= capability)]
    if shared > most and is_limited(launch):
        return f"{kernel.__name__} takes {shared:,} bytes of shared memory, and there are {most:,} on {capability}"
    return ""


def compile_part(known: Sequence[Launch], part: int, parts: int) -> dict[str, Any]:
    """Compile every `parts`-th launch from the number `part` on, and return the compiled launches and their faults."""
    own = known[part::parts]
    return {
        "launches": len(own),
        "all_launches": len(known),
        "all_kernels": sorted({kernel.__name__ for _, kernel, *_ in known}),
        "faults": [found for launch in own if (found := fault(launch))],
    }


def main() -> int:
    """Compile the launches, or each part of them that is asked for, and print the faults."""
    asked = sys.argv[1] if sys.argv[1:] else ""
    known, always = launches(), at_the_limit()
    known = [*known, *always] if asked == "all" else chosen(known, always)
    if asked.isdecimal():
        for line in sys.stdin:
            print(json.dumps(compile_part(known, int(line), int(asked))), flush=True)
        return 0
    found = compile_part(known, 0, 1)
    print("\n".join(found["faults"]) or f"compiled {len(known)} launches of {len(found['all_kernels'])} kernels")
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
