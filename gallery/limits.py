"""What rates are compared with, copying memory and multiplying matrices on this GPU, timed beside the exhibits.

Neither is a limit: a copy reads as much as it writes, and memory is faster if nearly all bytes go one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from benchmarks.timing import Timing
from gallery.exhibit import Arguments, Exhibit
from gallery.timing import ROUNDS, time_calls

COPY_BYTES = 2**30
PRODUCT_SIDE = 8192
LIMIT = "the limit"


@dataclass(frozen=True)
class Limit:
    """The rate of a copy or of a product, in units a second, and how a kernel's time compares."""

    name: str
    unit: str
    """Either "bytes" or "operations"."""

    rate: float
    amount: int
    """The work of a kernel in the same units: bytes to move, or floating-point operations."""

    spread: float
    """How far the medians of its own blocks of calls lie apart, as a share of its time."""

    def rate_of(self, microseconds: float) -> float:
        """Return the rate of a kernel that took so long."""
        return self.amount / microseconds * 1e6

    def share_of(self, microseconds: float) -> float:
        """Return it as a share of this rate."""
        return self.rate_of(microseconds) / self.rate

    def text(self, rate: float) -> str:
        """Return a rate with its unit."""
        return f"{rate / 1e9:,.0f} GB/s" if self.unit == "bytes" else f"{rate / 1e12:,.1f} TFLOP/s"


def time_beside_limit(
    exhibit: Exhibit,
    arguments: Arguments,
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = ROUNDS,
    *,
    backward: bool = False,
) -> tuple[Limit, dict[str, Timing]]:
    """Return what bounds an exhibit on these arguments, or its backward, and the times of the calls.

    Its own calls take turns with them: a GPU that slows down as it grows warm slows all.
    """
    work, traffic = (exhibit.backward_work, exhibit.backward_traffic) if backward else (exhibit.work, exhibit.traffic)
    if work is not None:
        dtype = next(each.dtype for each in arguments if isinstance(each, torch.Tensor) and each.is_floating_point())
        name, unit, amount = "torch's matrix product", "operations", work(*arguments)
        full, call = product_call(dtype)
    else:
        assert traffic is not None
        name, unit, amount = "torch's copy", "bytes", traffic(*arguments)
        full, call = copy_call()
    times = time_calls({LIMIT: call, **calls}, rounds)
    bound = times.pop(LIMIT)
    return Limit(name, unit, full / bound.median_us * 1e6, amount, bound.spread), times


@cache
def copy_call() -> tuple[int, Callable[[], Any]]:
    """Return the bytes that `Tensor.copy_` of 1 GiB reads and writes, and that."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES, lambda: target.copy_(source)


@cache
def product_call(dtype: torch.dtype) -> tuple[int, Callable[[], Any]]:
    """Return the operations of torch's product of two matrices of 8,192 × 8,192, and that.

    For float32 it is what torch is set to: its own float32, unless TF32 is allowed.
    """
    a, b = (torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, dtype=dtype, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    return 2 * PRODUCT_SIDE**3, lambda: torch.matmul(a, b, out=out)
