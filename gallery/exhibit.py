"""What a kernel of the gallery comes with: its mathematics in torch, ways to compute it, its peers and its sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Size = tuple[int, ...]
Arguments = tuple[Any, ...]
Answer = torch.Tensor | tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Exhibit:
    """One semantics: what to compute, how, on what, and beside whom.

    All functions in `reference`, `ways` and `peers` take the same arguments and give the same answer.
    """

    name: str
    """As `python -m gallery run NAME` takes it: the file's name under `gallery/kernels/`."""

    formula: str
    """What is computed, in one line, with the shapes."""

    reference: Callable[..., Answer]
    """In torch, on any device. Given float64 arguments, its answer is the truth."""

    ways: Mapping[str, Callable[..., Answer]]
    """Ours by name; the first is the one to use."""

    sample: Callable[[Size, torch.dtype, torch.device], Arguments]
    """Returns arguments of a size, drawn from torch's generator; those that have gradients ask for none."""

    sizes: Sequence[Size]
    """To check on: small, as the interpreter runs them too; odd, empty and one are among them."""

    curve: Sequence[Size]
    """To time on, on a GPU, from small to the largest."""

    tolerances: Mapping[torch.dtype, float]
    """The types it takes, and the largest error of each in units of the truth's largest magnitude; of gradients too."""

    traffic: Callable[..., int]
    """Bytes that must be read and written, given the arguments."""

    work: Callable[..., int] | None = None
    """Floating-point operations, given the arguments, where these and not bytes are the limit."""

    peers: Mapping[str, Callable[..., Answer]] = field(default_factory=dict)
    """What the field would call instead, by the library's name."""

    differentiable: bool = False
    """Whether `ways` have gradients by kernels of ours."""

    backward_traffic: Callable[..., int] | None = None
    """Bytes that the gradients must read and write, given the arguments. With this or the next they are timed too,
    those of the peers as well."""

    backward_work: Callable[..., int] | None = None
    """Floating-point operations of the gradients, given the arguments."""

    chosen: Callable[[], Mapping[str, str]] | None = None
    """Which of the named configurations tuning chose, by kernel, and why one would be: of the last call."""

    axis: tuple[str, Callable[[Size], int]] = ("elements", math.prod)
    """What the curve is drawn over, and it of a size."""

    remark: Callable[..., str] | None = None
    """What there is to say of these arguments besides, measured on a GPU: `run` prints it."""

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The types it takes."""
        return tuple(self.tolerances)
