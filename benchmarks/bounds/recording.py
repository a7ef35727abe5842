"""Records which kernels a plan would launch on a GPU that is not there, and compiles them for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from benchmarks.bounds.gpu_rates import Gpu
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.plan.plan import INPUT, Plan

POINTERS = {
    torch.bool: "*i1", torch.int8: "*i8", torch.uint8: "*u8", torch.int16: "*i16", torch.int32: "*i32",
    torch.int64: "*i64", torch.float16: "*fp16", torch.float32: "*fp32", torch.float64: "*fp64",
}  # fmt: skip
FIRST_ARGUMENT = {75: 0x160, 80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210}
"""The offset of a kernel's arguments in the constant bank, by compute capability."""

GRID = 0xC


class OnGpu(torch.Tensor):
    """A tensor on the CPU that claims to be on a GPU."""

    pretended = torch.device("cuda", 0)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU that is not there."""
        return OnGpu.pretended


class _Allocations(TorchFunctionMode):
    """Allocates tensors on the CPU that are asked for on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            return func(*args, **{**kwargs, "device": "cpu"}).as_subclass(OnGpu)
        return func(*args, **kwargs)


@dataclass(frozen=True)
class Recorded:
    """A launch: the kernel, its arguments by name, its options and its grid."""

    kernel: JITFunction[Any]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, int, int]

    def tensors(self) -> list[torch.Tensor]:
        """Return the arguments that are tensors, each once: one that a kernel does not read may be given twice."""
        return unique([value for value in self.arguments.values() if isinstance(value, torch.Tensor)])


@contextmanager
def pretended(gpu: Gpu) -> Iterator[list[Recorded]]:
    """Record launches instead of making them, and answer questions about the device as the GPU would."""
    found: list[Recorded] = []

    def note(self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        given = dict(zip(self.arg_names, args, strict=False)) | named
        arguments = {name: given.pop(name) for name in self.arg_names}
        x, y, z = (*grid, 1, 1)[:3]
        found.append(Recorded(self, arguments, given, (x, y, z)))

    properties = SimpleNamespace(
        name=f"NVIDIA {gpu.name}",
        major=gpu.capability // 10,
        minor=gpu.capability % 10,
        multi_processor_count=gpu.multiprocessors,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=gpu.shared_memory,
    )
    answers: dict[str, Any] = {
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: divmod(gpu.capability, 10),
        "get_device_name": lambda *_: properties.name,
    }
    OnGpu.pretended = torch.device("cuda", gpu.multiprocessors % 128)  # one number a GPU: kernels cache by device
    with _Allocations(), mock.patch.multiple(torch.cuda, **answers), mock.patch.object(JITFunction, "run", note):
        yield found


def record(plan: Plan, rows: int, gpu: Gpu) -> tuple[list[Recorded], list[torch.Tensor]]:
    """Return a plan's launches for a number of rows, and the tensors that hold the model."""
    with pretended(gpu):
        plan = plan.on_device(OnGpu.pretended)
    widths = plan.widths()
    outputs = set(plan.outputs.values())
    bound = bind_parameters(plan, torch.device("cpu"))
    known = [tensor for tensors in bound.values() for tensor in tensors.values()]
    with pretended(gpu) as found:
        values = {INPUT: torch.empty(rows, plan.n_features, dtype=getattr(torch, plan.dtype)).as_subclass(OnGpu)}
        for step in plan.steps:
            dtype = torch.float32 if step.output in outputs else torch.float64
            values[step.output] = torch.empty(rows, widths[step.output], dtype=dtype).as_subclass(OnGpu)
            parameters = {name: tensor.as_subclass(OnGpu) for name, tensor in bound[step.output].items()}
            inputs = [values[name] for name in step.inputs]
            step.operation.launch(parameters, inputs, values[step.output], rows)
    return found, known


def compile_recorded(launch: Recorded, capability: int) -> Any:
    """Compile a launch for a compute capability, as the launcher would specialise it."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], Any] = {}
    for index, parameter in enumerate(launch.kernel.params):
        name, value = parameter.name, launch.arguments[parameter.name]
        if parameter.is_constexpr or (_specialised(parameter, value) and value == 1):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
            if _specialised(parameter, value) and value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(launch.options))


def constant_bank(launch: Recorded, capability: int) -> bytes:
    """Return the constant bank as a program of the launch sees it."""
    bank = bytearray(0x1000)
    struct.pack_into("<3I", bank, GRID, *launch.grid)
    at = FIRST_ARGUMENT[capability]
    for parameter in launch.kernel.params:
        value = launch.arguments[parameter.name]
        if parameter.is_constexpr or (_specialised(parameter, value) and value == 1):
            continue
        if isinstance(value, torch.Tensor):
            at = -(-at // 8) * 8
            struct.pack_into("<Q", bank, at, value.data_ptr())
            at += 8
        else:
            struct.pack_into("<i", bank, at, value)
            at += 4
    return bytes(bank)


def _specialised(parameter: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and not parameter.do_not_specialize


def unique(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, each address once."""
    return list({tensor.data_ptr(): tensor for tensor in tensors}.values())
