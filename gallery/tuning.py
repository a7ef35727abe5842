"""Launch configurations that have names and reasons, and which of them tuning chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton


@dataclass(frozen=True)
class Choice:
    """A configuration to try: what it is called, why it could be the best, and its numbers."""

    name: str
    reason: str
    blocks: Mapping[str, int]
    num_warps: int = 4
    num_stages: int = 3

    def config(self) -> triton.Config:
        """Return it as the Triton language takes it."""
        return triton.Config(dict(self.blocks), num_warps=self.num_warps, num_stages=self.num_stages)


def tuned(choices: Sequence[Choice], key: Sequence[str]) -> Callable[[Any], Any]:
    """Decorate a kernel: on a GPU the fastest of `choices` is found once for every value of `key`'s arguments.

    The interpreter has nothing to time: there the first choice is taken. `chosen` says what was taken.
    """

    def decorate(kernel: Any) -> Any:
        found = choices[:1] if triton.knobs.runtime.interpret else choices
        tuner = triton.autotune([choice.config() for choice in found], key=list(key))(kernel)
        tuner.choices = tuple(choices)
        return tuner

    return decorate


def chosen(kernel: Any) -> str:
    """Return the name of the choice that a tuned kernel's last launch took, with its reason."""
    config = getattr(kernel, "best_config", None)
    for choice in kernel.choices:
        if config is not None and choice.config().all_kwargs() == config.all_kwargs():
            return f"{choice.name}: {choice.reason}"
    return "not launched yet"
