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
    """One computation: its reference, its kernels, its arguments and its peers.

    All functions in `reference`, `ways` and `peers` take the same arguments and give the same answer.
    """

    name: str
    """The NAME of `python -m gallery run NAME`: the file's name under `gallery/kernels/`."""

    formula: str
    """The computation in one line, with the shapes."""

    reference: Callable[..., Answer]
    """The computation in torch, on any device. With float64 arguments its answer is the truth."""

    ways: Mapping[str, Callable[..., Answer]]
    """The gallery's own functions by name; the first is the one to use."""

    sample: Callable[[Size, torch.dtype, torch.device], Arguments]
    """A function that returns arguments of a size, drawn from torch's generator, without requiring gradients."""

    sizes: Sequence[Size]
    """The sizes to check: small, as the interpreter runs them too, with odd and empty ones and one element."""

    curve: Sequence[Size]
    """The sizes to time on a GPU, from small to large."""

    tolerances: Mapping[torch.dtype, float]
    """The accepted types, each with its largest error, also of gradients, in units of the truth's largest magnitude."""

    traffic: Callable[..., int]
    """A function of the arguments: the bytes that must be read and written."""

    bounds: Mapping[str, Callable[[Size], float]] = field(default_factory=dict)
    """The ways whose answers' errors grow with the size of samples: by name a function from the size to the bound that
    mathematics gives, which takes the tolerance's place where it is larger."""

    work: Callable[..., int] | None = None
    """A function of the arguments: the floating-point operations, if these and not bytes are the limit."""

    peers: Mapping[str, Callable[..., Answer]] = field(default_factory=dict)
    """The functions of other libraries that compute the same, by the library's name."""

    differentiable: bool = False
    """True if the gallery's own kernels compute the gradients of `ways`."""

    backward_traffic: Callable[..., int] | None = None
    """Bytes that the gradients must read and write, given the arguments. With this or the next they are timed too,
    those of the peers as well."""

    backward_work: Callable[..., int] | None = None
    """Floating-point operations of the gradients, given the arguments."""

    chosen: Callable[[], Mapping[str, str]] | None = None
    """A function that returns the configuration that tuning chose in the last call, by kernel, with the reason."""

    axis: tuple[str, Callable[[Size], int]] = ("elements", math.prod)
    """The name of the curve's axis, and a function from a size to its place there."""

    lengths: str = "lengths"
    """The meaning of a size's numbers, as `run --size` takes them: "rows x columns"."""

    remark: Callable[..., str] | None = None
    """A further measurement of these arguments on a GPU, as a sentence that `run` prints."""

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The types it takes."""
        return tuple(self.tolerances)

    def allowed(self, way: str, size: Size, dtype: torch.dtype) -> float:
        """Return the largest error that a way's answer to a sample may have."""
        bound = self.bounds.get(way)
        return max(self.tolerances[dtype], bound(size)) if bound else self.tolerances[dtype]


def of_roundings(count: int) -> float:
    """Return the largest relative error of a float32 sum of positive numbers, each rounded `count` times on its way.

    It is k·u / (1 − k·u) for k roundings of u = 2⁻²⁴. With numbers of both signs it is in units of Σ|x|, not of |Σx|.
    """
    return count * 2**-24 / (1 - count * 2**-24)
