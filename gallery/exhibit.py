"""The record of one exhibit: its mathematics in torch, ways to compute it, its peers and its sizes."""

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
    """The NAME of `python -m gallery run NAME`: the file's name under `gallery/kernels/`."""

    formula: str
    """The computation in one line, with the shapes."""

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
    """The functions of other libraries that compute the same, by the library's name."""

    differentiable: bool = False
    """True if `ways` have gradients by kernels of ours."""

    backward_traffic: Callable[..., int] | None = None
    """Bytes that the gradients must read and write, given the arguments. With this or the next they are timed too,
    those of the peers as well."""

    backward_work: Callable[..., int] | None = None
    """Floating-point operations of the gradients, given the arguments."""

    chosen: Callable[[], Mapping[str, str]] | None = None
    """The configuration that tuning chose in the last call, by kernel, with the reason."""

    axis: tuple[str, Callable[[Size], int]] = ("elements", math.prod)
    """The name of the curve's axis, and a function from a size to its place there."""

    remark: Callable[..., str] | None = None
    """A further measurement of these arguments on a GPU, as a sentence that `run` prints."""

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The types it takes."""
        return tuple(self.tolerances)
