"""Compiles the gallery's kernels for GPUs that are not there: `python -m tests.gallery.gpu_compile [NAME ...]`.

The interpreter accepts Python that the Triton language's compiler does not. Launches on all sizes of an exhibit are
recorded instead of made. Each kernel's first and last choice are compiled in bfloat16 for compute capability 9.0, and
its first in float32 for 8.0, for the largest size that launched it. TRITON_INTERPRET must not be set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import gallery.catalogue
from gallery.exhibit import Exhibit

TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.bool: "i1",
    torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
TARGETS = ((90, torch.bfloat16, (0, -1)), (80, torch.float32, (0,)))
"""Compute capability, type and the choices, by their places."""

SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}

Launch = tuple[JITFunction[Any], dict[str, Any], dict[str, Any]]


@contextmanager
def recorded(places: tuple[int, ...]) -> Iterator[dict[Any, Launch]]:
    """Note what is launched instead of launching it: of tuned kernels each of these choices, of others the launch."""
    found: dict[Any, Launch] = {}

    def note(self: JITFunction[Any], *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        values = dict(zip(self.arg_names, given, strict=False)) | named
        arguments = {name: values.pop(name) for name in self.arg_names}
        arguments = {name: copy(value) if _is_descriptor(value) else value for name, value in arguments.items()}
        types = tuple(type_of(arguments[p.name]) for p in self.params if not p.is_constexpr)
        tuned = tuple(item for item in arguments.items() if item[0] in named.get("_tuned", ()))
        values.pop("_tuned", None)
        found[(self.__name__, types, tuned, *values.items())] = (self, arguments, values)

    def each_choice(self: Autotuner, *given: Any, **named: Any) -> None:
        for config in {place % len(self.configs): self.configs[place] for place in places}.values():
            values = {**dict(zip(self.arg_names, given, strict=False)), **named, **config.all_kwargs()}
            if config.pre_hook is not None:
                config.pre_hook(values)
            self.best_config = config
            self.fn.run(*given, **named, **config.all_kwargs(), _tuned=tuple(config.kwargs))

    with mock.patch.object(JITFunction, "run", note), mock.patch.object(Autotuner, "run", each_choice):
        yield found


def launches(exhibit: Exhibit, dtype: torch.dtype, places: tuple[int, ...]) -> list[Launch]:
    """Return what an exhibit launches on all its sizes, forward and backward."""
    with recorded(places) as found:
        for size in exhibit.sizes:
            for way in exhibit.ways.values():
                arguments = [
                    each.requires_grad_() if exhibit.differentiable and _is_float(each) else each
                    for each in exhibit.sample(size, dtype, torch.device("cpu"))
                ]
                answer = way(*arguments)
                answers = [each for each in (answer if isinstance(answer, tuple) else (answer,)) if each.requires_grad]
                if answers:
                    asked = [each for each in arguments if _is_float(each)]
                    torch.autograd.grad(answers, asked, [torch.ones_like(each) for each in answers], allow_unused=True)
    return list(found.values())


def type_of(value: Any) -> str:
    """Return how the compiler calls an argument's type."""
    if _is_constant(value):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if _is_descriptor(value):
        return f"tensordesc<{TYPES[value.base.dtype]}{list(value.block_shape)}>"
    return "fp32" if isinstance(value, float) else "i64" if abs(value) >= 2**31 else "i32"


def compile_for(capability: int, launch: Launch) -> Any:
    """Compile one launch as the launcher would, with tensors that begin at multiples of 16 bytes."""
    kernel, arguments, options = launch
    signature: dict[str, str] = {}
    constants: dict[Any, Any] = {}
    attributes: dict[Any, Any] = {}
    for index, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr or _is_constant(value):
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            signature[parameter.name] = type_of(value)
            if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_constant(value: Any) -> bool:
    """Whether the launcher makes a constant of it: what is no number, and the number one."""
    return value is None or isinstance(value, bool) or (isinstance(value, int) and value == 1)


def _is_descriptor(value: Any) -> bool:
    return hasattr(value, "block_shape")


def main() -> int:
    """Compile, and print what was compiled; the exit code is 1 where a kernel takes more memory than there is."""
    with mock.patch.object(gallery.catalogue, "kernel_device", return_value=torch.device("cpu")):
        exhibits = gallery.catalogue.exhibits()
    count, names = 0, set()
    for name in sys.argv[1:] or exhibits:
        for capability, dtype, places in TARGETS:
            for launch in launches(exhibits[name], dtype, places):
                compiled = compile_for(capability, launch)
                if compiled.metadata.shared > SHARED_BYTES[capability]:
                    print(f"{launch[0].__name__} takes {compiled.metadata.shared:,} bytes of shared memory.")
                    return 1
                count, names = count + 1, names | {launch[0].__name__}
    print(f"compiled {count} launches of {len(names)} kernels: {', '.join(sorted(names))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
