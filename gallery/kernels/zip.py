"""Zip: a function of two elements at the same place, here their sum: the vector addition of most tutorials.

Mathematics: zᵢ = xᵢ + yᵢ, for x and y of one shape, n elements in all.
Lesson: a kernel may read any number of arrays. Its speed depends on the bytes that go through the memory, here three
for every byte of an element, two read and one written. The sum is free.
In the product: `kernels/ops/columns/combine.py` is a zip of up to four matrices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("16 bytes of float32 a thread", "every thread waits for one load, and many do", {"BLOCK": 1024}, 8),
    Choice("16 bytes of 16-bit numbers a thread", "the same of numbers half as long", {"BLOCK": 2048}, 8),
    Choice("two loads a thread", "fewer threads, each waiting for more", {"BLOCK": 1024}, 4),
)


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y."""
    return x + y


@tuned(CHOICES, key=["n"])
@triton.jit
def zip_kernel(x, y, z, n, BLOCK: tl.constexpr):
    """Write one block of z; x, y, z: [n]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside).to(tl.float32) + tl.load(y + at, mask=inside).to(tl.float32)
    tl.store(z + at, total, mask=inside)


@torch.library.custom_op("gallery::zip", mutates_args=())
def zip_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y, both of one shape and type; of any strides, they are copied into rows first.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: The types, the devices or the shapes differ.
    """
    demand_alike(x=x, y=y)
    demand_shape("y", y, *x.shape)
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    if n := x.numel():
        zip_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, z, n)
    return z


@zip_.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


zip_.register_autograd(lambda context, gradient: (gradient, gradient))


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x and y of a size."""
    return torch.randn(size, dtype=dtype, device=device), torch.randn(size, dtype=dtype, device=device)


EXHIBIT = Exhibit(
    name="zip",
    formula="zᵢ = xᵢ + yᵢ, x [n], y [n]",
    reference=reference,
    ways={"zip": zip_},
    peers={"torch": torch.add},
    sample=sample,
    sizes=[(0,), (1,), (7,), (1000,), (4097,), (3, 5, 7)],
    curve=[(2**k,) for k in range(12, 29, 2)],
    lengths="elements, or several lengths whose product they are",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=lambda x, y: 3 * x.numel() * x.element_size(),
    differentiable=True,
    chosen=lambda: chosen(zip_kernel),
)
