"""Launch configurations with names and reasons, and the choices of tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import triton
from triton.testing import do_bench

WARM_UP_MS, TIMED_MS = 5, 20


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


def tuned(
    choices: Sequence[Choice], key: Sequence[str], before: Callable[[dict[str, Any]], None] | None = None
) -> Callable[[Any], Any]:
    """Decorate a kernel: on a GPU the fastest of `choices` is found once for every magnitude of `key`'s arguments.

    The interpreter cannot time kernels and takes the first choice. `chosen` returns the choice. `before` is called
    before a launch with the kernel's arguments by name, including those of the choice.
    """

    def decorate(kernel: Any) -> Any:
        found = choices[:1] if triton.knobs.runtime.interpret else choices
        tuner = triton.autotune([choice.config(before) for choice in found], key=list(key), do_bench=_time)(kernel)
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
