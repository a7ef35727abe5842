"""Compiles the gallery's kernels for GPUs that are not there: `python -m tests.gallery.gpu_compile [NAME ...]`.

The interpreter accepts Python that the Triton language's compiler does not. Launches on all sizes of an exhibit are
recorded instead of made, and each kernel is compiled as it was launched last, for compute capability 9.0 in bfloat16
and for 8.0 in float16: one choice after the other, until one fits. A choice may refuse a type by `tl.static_assert` or
take more shared memory than there is, and tuning leaves it out; but one must be left. TRITON_INTERPRET must not be set.
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
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import gallery.catalogue
from gallery.exhibit import Exhibit

TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.bool: "i1",
    torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
TARGETS = ((90, torch.bfloat16), (80, torch.float16))
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}

Launch = tuple[JITFunction[Any], dict[str, Any], dict[str, Any]]


@contextmanager
def recorded() -> Iterator[dict[Any, dict[Any, Launch]]]:
    """Record launches instead of making them: each choice by kernel and tensors' types, or the launch."""
    found: dict[Any, dict[Any, Launch]] = {}

    def note(self: JITFunction[Any], *given: Any, grid: Any, warmup: bool, choice: str = "", **named: Any) -> None:
        values = dict(zip(self.arg_names, given, strict=False)) | named
        arguments = {name: values.pop(name) for name in self.arg_names}
        arguments = {name: copy(value) if _is_descriptor(value) else value for name, value in arguments.items()}
        types = tuple(str(value.dtype) for value in arguments.values() if isinstance(value, torch.Tensor))
        found.setdefault((self.__name__, types), {})[choice] = (self, arguments, values)

    def each_choice(self: Autotuner, *given: Any, **named: Any) -> None:
        for config in self.configs:
            if config.pre_hook is not None:
                config.pre_hook({**dict(zip(self.arg_names, given, strict=False)), **named, **config.all_kwargs()})
            self.best_config = config
            self.fn.run(*given, **named, **config.all_kwargs(), choice=str(config))

    with mock.patch.object(JITFunction, "run", note), mock.patch.object(Autotuner, "run", each_choice):
        yield found


def launches(exhibit: Exhibit, dtype: torch.dtype) -> list[list[Launch]]:
    """Return an exhibit's launches on all its sizes, forward and backward: the choices by kernel and types."""
    with recorded() as found:
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
    return [list(choices.values()) for choices in found.values()]


def type_of(value: Any) -> str:
    """Return the compiler's name of an argument's type."""
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
    """Return whether the launcher makes a constant of a value: values that are no number, and the number one."""
    return value is None or isinstance(value, bool) or (isinstance(value, int) and value == 1)


def _is_descriptor(value: Any) -> bool:
    return hasattr(value, "block_shape")


def some_choice_fits(choices: list[Launch], capability: int) -> bool:
    """Compile one choice after the other until one fits, and return whether one does."""
    for launch in choices:
        try:
            if compile_for(capability, launch).metadata.shared <= SHARED_BYTES[capability]:
                return True
        except CompileTimeAssertionFailure:
            continue
    return False


def main() -> int:
    """Compile, and print the kernels; the exit code is 1 if no choice of a kernel fits."""
    with mock.patch.object(gallery.catalogue, "kernel_device", return_value=torch.device("cpu")):
        exhibits = gallery.catalogue.exhibits()
    names = set()
    for name in sys.argv[1:] or exhibits:
        for capability, dtype in TARGETS:
            for choices in launches(exhibits[name], dtype):
                names.add(choices[0][0].__name__)
                if not some_choice_fits(choices, capability):
                    print(f"No choice of {choices[0][0].__name__} fits a GPU of {capability / 10} in {dtype}.")
                    return 1
    print(f"compiled {len(names)} kernels: {', '.join(sorted(names))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
