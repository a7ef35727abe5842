"""Map: the same function of every element, here y = x + c. The smallest kernel there is.

Mathematics: yᵢ = xᵢ + c, for x of any shape, n elements in all.
Lesson: a *program* of the Triton language works on a block of elements at once, and `program_id` says which block is
its own. n is seldom a multiple of the block, so the last program has lanes without an element: a *mask* keeps them from
reading and writing beyond the end. Nothing is computed twice and nothing is kept, so the memory's bandwidth is the
limit, and a good kernel reaches it. A *block pointer* says the same with an array's length and stride and a block's
place, and the compiler derives addresses and mask from these (`copy.py` has it for matrices).
In the product: `kernels/engine/upload.py` and the element-wise steps of `kernels/ops/columns/elementwise.py` are maps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike
from gallery.descriptors import using_block_pointers
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("16 bytes of float32 a thread", "every thread waits for one load, and many do", {"BLOCK": 1024}, 8),
    Choice("16 bytes of 16-bit numbers a thread", "the same of numbers half as long", {"BLOCK": 2048}, 8),
    Choice("two loads a thread", "fewer threads, each waiting for more", {"BLOCK": 1024}, 4),
)


def reference(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c."""
    return x + c


@tuned(CHOICES, key=["n"])
@triton.jit
def map_kernel(x, y, c, n, BLOCK: tl.constexpr):
    """Write one block of y; x, y: [n]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside).to(tl.float32)
    tl.store(y + at, value + c, mask=inside)


@tuned(CHOICES, key=["n"])
@triton.jit
def block_pointer_kernel(x, y, c, n, BLOCK: tl.constexpr):
    """Write one block of y by the arrays' lengths from it on, strides and place 0, which has 32 bits; x, y: [n]."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    source = tl.make_block_ptr(x + first, (n - first,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(y + first, (n - first,), (1,), (0,), (BLOCK,), (0,))
    value = tl.load(source, boundary_check=(0,)).to(tl.float32)
    tl.store(target, (value + c).to(y.dtype.element_ty), boundary_check=(0,))


@torch.library.custom_op("gallery::map", mutates_args=())
def map_(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c, of x's shape and type; x of any strides is copied into rows first."""
    demand_alike(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    if n := x.numel():
        map_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, c, n)
    return y


@torch.library.custom_op("gallery::map_by_block_pointers", mutates_args=())
def map_by_block_pointers(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return the same as `map_`, by block pointers."""
    demand_alike(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    if n := x.numel():
        with using_block_pointers():
            block_pointer_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, c, n)
    return y


WAYS = {"map": map_}
if hasattr(tl, "make_block_ptr"):  # which the language has deprecated
    WAYS["block pointers"] = map_by_block_pointers
for operator in (map_, map_by_block_pointers):
    operator.register_fake(lambda x, c: torch.empty_like(x, memory_format=torch.contiguous_format))
    operator.register_autograd(lambda context, gradient: (gradient, None))


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, float]:
    """Return x of a size, and c."""
    return torch.randn(size, dtype=dtype, device=device), 1.5


EXHIBIT = Exhibit(
    name="map",
    formula="yᵢ = xᵢ + c, x [n]",
    reference=reference,
    ways=WAYS,
    peers={"torch": torch.add},
    sample=sample,
    sizes=[(0,), (1,), (7,), (1000,), (4097,), (3, 5, 7)],
    curve=[(2**k,) for k in range(12, 29, 2)],
    lengths="elements, or several lengths whose product they are",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    traffic=lambda x, c: 2 * x.numel() * x.element_size(),
    differentiable=True,
    chosen=lambda: chosen(map_kernel, block_pointer_kernel),
)
