"""Launch configurations with names and reasons, and the choices of tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.testing import do_bench

WARM_UP_MS, TIMED_MS = 5, 20
MOST_LAUNCHES = 1024
"""The launches of a kernel that are kept to be found again."""
PLAIN = (bool, int, float, str, tl.dtype)
"""The types of arguments that are no tensors."""


@dataclass(frozen=True)
class Choice:
    """A configuration to try: its name, the reason why it could be the best, and its numbers."""

    name: str
    reason: str
    blocks: Mapping[str, int]
    num_warps: int = 4
    num_stages: int = 3

    def config(self, before: Callable[[dict[str, Any]], None] | None = None) -> triton.Config:
        """Return the configuration as the Triton language takes it."""
        return triton.Config(dict(self.blocks), num_warps=self.num_warps, num_stages=self.num_stages, pre_hook=before)


class ByMagnitude(dict[tuple[Any, ...], Any]):
    """Tuned configurations by the kernel's arguments; numbers between two powers of two share one.

    Without this rule every new number of rows would be tuned again, although similar numbers need the same choice.
    """

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(_magnitudes(key))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_magnitudes(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_magnitudes(key), value)


@lru_cache(maxsize=4096)
def _magnitudes(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the key with every number above 1 rounded up to a power of two."""
    return tuple(1 << (part - 1).bit_length() if isinstance(part, int) and part > 1 else part for part in key)


class Tuned(Autotuner):  # type: ignore[misc]  # which has no types
    """A kernel that is tuned, and that launches what it has launched before without a search.

    By itself the language looks the choice and the compiled kernel up by texts that it makes of all arguments, which
    takes longer than many kernels run. Here a launch is found by what decides about both: tensors' types and whether
    16 divides their addresses, the values of numbers, except of floating-point ones that are no constants, and the GPU.
    """

    choices: tuple[Choice, ...]

    def run(self, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> Any:
        """Launch the kernel, and return it compiled; arguments are those of `triton.Autotuner.run`."""
        key = None if warmup else self._key(args, named)
        held = self._launches.get(key) if key is not None else None
        if held is None or held.configs is not self.configs:
            compiled = super().run(*args, grid=grid, warmup=warmup, **named)
            config = self.best_config
            if key is not None and isinstance(compiled, CompiledKernel) and config.pre_hook is None:
                if len(self._launches) >= MOST_LAUNCHES:
                    self._launches.clear()
                self._launches[key] = Launch(compiled, config, self.configs)
            return compiled
        self.best_config = held.config
        named |= held.config.kwargs
        values = [*args, *[named[name] for name in self.arg_names[len(args) :]]]
        size = grid(dict(zip(self.arg_names, values, strict=True))) if callable(grid) else grid
        start(held.compiled, size, *values)
        return held.compiled

    @cached_property
    def _launches(self) -> dict[tuple[Any, ...], Launch]:
        return {}

    @cached_property
    def _constants(self) -> dict[str, bool]:
        """The arguments that a caller gives, and whether each is a constant to the compiler."""
        tuned = self.configs[0].kwargs
        return {each.name: each.is_constexpr for each in self.fn.params if each.name not in tuned}

    def _key(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return what decides about a launch; None if an argument is of another kind, is left out or is none at all."""
        if triton.knobs.runtime.interpret or not torch.cuda.is_initialized():
            return None
        if len(args) + len(named) != len(self._constants) or not named.keys() <= self._constants.keys():
            return None
        key: list[Any] = list(named)
        for name, value in (*zip(self.arg_names, args, strict=False), *named.items()):
            if isinstance(value, torch.Tensor):
                key += value.dtype, value.data_ptr() % 16 == 0
            elif type(value) is float and not self._constants[name]:
                key.append(float)
            elif type(value) in PLAIN:
                key += type(value), value
            else:
                return None
        return (torch.cuda.current_device(), *key)


def cdiv(length: int, block: int) -> int:
    """Return how many blocks cover a length; `triton.cdiv` takes constants of kernels too, which costs microseconds."""
    return -(-length // block)


def next_power_of_2(length: int) -> int:
    """Return the first power of two from a length on, as `triton.next_power_of_2` does, and sooner as above."""
    return 1 << (length - 1).bit_length()


def start(compiled: CompiledKernel, grid: Sequence[int], *arguments: Any) -> None:
    """Launch a compiled kernel on the current device and stream.

    The language's own way looks for hooks of profilers and for what they are told, which takes longer than a launch.
    """
    active = triton.runtime.driver.active
    stream = active.get_current_stream(active.get_current_device())
    x, y, z = (*grid, 1, 1)[:3]
    compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments)


@dataclass(frozen=True)
class Launch:
    """A compiled kernel with its configuration, and the list of configurations that it was chosen from."""

    compiled: CompiledKernel
    config: triton.Config
    configs: list[triton.Config]


def tuned(
    choices: Sequence[Choice], key: Sequence[str], before: Callable[[dict[str, Any]], None] | None = None
) -> Callable[[Any], Any]:
    """Decorate a kernel: on a GPU the fastest of `choices` is found once for every magnitude of `key`'s arguments.

    The interpreter cannot time kernels and takes the first choice. `chosen` returns the choice. `before` is called
    before a launch with the kernel's arguments by name, including those of the choice.
    """

    def decorate(kernel: Any) -> Any:
        found = choices[:1] if triton.knobs.runtime.interpret else choices
        configs = [choice.config(before) for choice in found]
        tuner = Tuned(kernel, kernel.arg_names, configs, list(key), None, None, do_bench=_time)
        tuner.cache = ByMagnitude()
        tuner.choices = tuple(choices)
        return tuner

    return decorate


def _time(launch: Callable[[], Any], quantiles: Sequence[float]) -> Any:
    return do_bench(launch, warmup=WARM_UP_MS, rep=TIMED_MS, quantiles=quantiles)


def chosen(*kernels: Any) -> dict[str, str]:
    """Return the choice of each launched kernel's last launch, and the reason why it could be the best."""
    return {
        kernel.base_fn.__name__: f"{choice.name}: {choice.reason}"
        for kernel in kernels
        if hasattr(kernel, "best_config")
        for choice in kernel.choices
        if choice.config().all_kwargs() == kernel.best_config.all_kwargs()
    }
