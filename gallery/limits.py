"""What this GPU can do at most, measured: how fast it copies memory, and how fast it multiplies matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from gallery.exhibit import Arguments, Exhibit
from gallery.timing import time_calls

COPY_BYTES = 2**30
PRODUCT_SIDE = 8192


@dataclass(frozen=True)
class Limit:
    """The rate that nothing of a kind exceeds, in units a second, and how a kernel's time compares."""

    name: str
    unit: str
    rate: float
    amount: int
    """What a kernel has to do, in the same units: bytes to move, or floating-point operations."""

    def rate_of(self, microseconds: float) -> float:
        """Return the rate of a kernel that took so long."""
        return self.amount / microseconds * 1e6

    def share_of(self, microseconds: float) -> float:
        """Return it as a share of the limit."""
        return self.rate_of(microseconds) / self.rate

    def text(self, rate: float) -> str:
        """Return a rate with its unit."""
        return f"{rate / 1e9:,.0f} GB/s" if self.unit == "bytes" else f"{rate / 1e12:,.1f} TFLOP/s"


@cache
def copy_rate() -> float:
    """Return bytes read and bytes written in a second by `Tensor.copy_` of 1 GiB."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / time_calls({"copy": lambda: target.copy_(source)})["copy"].median_us * 1e6


@cache
def product_rate(dtype: torch.dtype) -> float:
    """Return floating-point operations in a second by torch's product of two matrices of 8,192 × 8,192.

    For float32 it is what torch is set to: its own float32, unless TF32 is allowed.
    """
    a, b = (torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, dtype=dtype, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    microseconds = time_calls({"product": lambda: torch.matmul(a, b, out=out)})["product"].median_us
    return 2 * PRODUCT_SIDE**3 / microseconds * 1e6


def limit(exhibit: Exhibit, arguments: Arguments, *, backward: bool = False) -> Limit:
    """Return what bounds an exhibit on these arguments, or its backward."""
    work, traffic = (exhibit.backward_work, exhibit.backward_traffic) if backward else (exhibit.work, exhibit.traffic)
    if work is not None:
        dtype = next(each.dtype for each in arguments if isinstance(each, torch.Tensor) and each.is_floating_point())
        return Limit("torch's matrix product", "operations", product_rate(dtype), work(*arguments))
    assert traffic is not None
    return Limit("copy", "bytes", copy_rate(), traffic(*arguments))
