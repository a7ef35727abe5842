"""Dot product: many numbers to one, in two stages, and in one stage with atomic additions.

Mathematics: d = Σᵢ xᵢ·yᵢ, x [n], y [n]; summed in float32, rounded once at the end.
Lesson: programs cannot wait for each other, so the sum of their results needs a second kernel that adds *partial* sums,
or *atomic* additions to one number. Additions of floating-point numbers round, so their order shows in the answer's
last bits. Partial sums are always added in the same order, atomic additions happen in the order in which programs end.
Atomic additions are also less exact: P additions to one number round it P times, while a tree rounds each of P partial
sums 40 times at most. Their answer is off by (P + 25 + a program's blocks)·2⁻²⁴·Σ|xᵢ·yᵢ| at most, and usually by less
than √P·2⁻²⁴·|d|; that of two stages by the same with 40 for P. On an H200 the answer of 4,096 programs was 2.0e-6·|d|
off, that of two stages 2e-8·|d|. The atomic way therefore has fewer programs.
`python -m gallery run dot` counts on a GPU how many different answers a thousand calls on the same numbers give.
The kernels' shapes are fixed and not tuned: another shape is another order, and each tuning might choose another shape.
In the product: a row's answer has the same bits in every batch: `kernels/ops/trees/integer_sum.py` adds integers, whose
order does not matter, and `kernels/ops/trees/float32_sum.py` adds in one order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size, of_roundings

BLOCK, WARPS = 4096, 8
PROGRAMS = 8192
"""The most programs: each sums many blocks, so that few partial sums are left and each multiprocessor has several."""

ATOMIC_PROGRAMS = 1024
"""The most programs of the atomic way, whose error grows with them: about as many as an H200 runs at once."""

OF_A_BLOCK = BLOCK // (32 * WARPS) + (32 * WARPS).bit_length()
"""The most roundings of a product and of its sum over a block: one after the other in a thread, a tree of threads."""

CALLS = 1000


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the sum of the products."""
    return (x * y).sum()


@triton.jit
def sum_of_blocks(x, y, n, BLOCK: tl.constexpr):
    """Return the sum of products in this program's blocks: its first, then every `num_programs`-th further one."""
    total = tl.zeros([BLOCK], tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in tl.range(tl.program_id(0).to(tl.int64) * BLOCK, n, step):
        at = start + tl.arange(0, BLOCK)
        left = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        total += left * tl.load(y + at, mask=at < n, other=0.0).to(tl.float32)
    return tl.sum(total, 0)


@triton.jit
def partial_sums_kernel(x, y, partial, n, BLOCK: tl.constexpr):
    """Write this program's sum; x, y: [n], partial: [programs]."""
    tl.store(partial + tl.program_id(0), sum_of_blocks(x, y, n, BLOCK))


@triton.jit
def sum_kernel(partial, d, programs, PROGRAMS: tl.constexpr):
    """Add the partial sums; partial: [programs], d: []."""
    at = tl.arange(0, PROGRAMS)
    tl.store(d, tl.sum(tl.load(partial + at, mask=at < programs, other=0.0), 0))


@triton.jit
def atomic_kernel(x, y, d, n, BLOCK: tl.constexpr):
    """Add this program's sum to d; x, y: [n], d: [], zero before."""
    tl.atomic_add(d, sum_of_blocks(x, y, n, BLOCK), sem="relaxed")


@torch.library.custom_op("gallery::dot", mutates_args=())
def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return Σ x·y, a tensor without dimensions, by partial sums: always with the same bits on one kind of GPU.

    x, y: [n], of one type; of other strides they are copied into rows first. The gradients are y and x times the
    answer's, by torch.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: The types, the devices or the shapes differ, or the tensors are not vectors.
    """
    x, y, programs = _checked(x, y, PROGRAMS)
    if not programs:
        return x.new_zeros(())
    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    d = x.new_empty(())
    partial_sums_kernel[(programs,)](x, y, partial, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    sum_kernel[(1,)](partial, d, programs, PROGRAMS=PROGRAMS, num_warps=WARPS)
    return d


@torch.library.custom_op("gallery::atomic_dot", mutates_args=())
def atomic_dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the same as `dot` by atomic additions, less exactly; the last bits may differ in every call."""
    x, y, programs = _checked(x, y, ATOMIC_PROGRAMS)
    d = torch.zeros((), dtype=torch.float32, device=x.device)
    if programs:
        atomic_kernel[(programs,)](x, y, d, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return d.to(x.dtype)


def _checked(x: torch.Tensor, y: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return x and y in rows, and how many programs share the work, of which there may be `most`."""
    demand_alike(x=x, y=y)
    demand_shape("x", x, -1)
    demand_shape("y", y, *x.shape)
    return x.contiguous(), y.contiguous(), min(triton.cdiv(x.numel(), BLOCK), most)


def _fake(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.new_empty(())


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(context: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, y = context.saved_tensors
    return gradient * y, gradient * x


for operator in (dot, atomic_dot):
    operator.register_fake(_fake)
    operator.register_autograd(_gradients, setup_context=_save)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x and y of a size, whose product is about ¼; a product near zero would be mostly rounding error."""
    (n,) = size
    x, y = (torch.rand(n, dtype=dtype, device=device) / max(n, 1) ** 0.5 for _ in range(2))
    return x, y


def error_of_atomics(size: Size) -> float:
    """Return the largest error of `atomic_dot` on a sample: of a block's sum, the loop over blocks, the additions."""
    (n,) = size
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, ATOMIC_PROGRAMS)
    return of_roundings(OF_A_BLOCK + triton.cdiv(blocks, max(programs, 1)) + programs)


def different_answers(x: torch.Tensor, y: torch.Tensor) -> str:
    """Return how many different float32 answers each way gave in many calls on the same numbers."""
    x, y = x.float(), y.float()
    found = {}
    for name, way in (("two stages", dot), ("atomics", atomic_dot)):
        answers = torch.stack([way(x, y) for _ in range(CALLS)])
        spread = float((answers.max() - answers.min()) / answers.mean())
        found[name] = f"{name} gave {len(answers.unique())} different answers, which lie {spread:.0e} apart"
    return f"In {CALLS:,} calls on the same float32 numbers " + ", and ".join(found.values()) + "."


EXHIBIT = Exhibit(
    name="dot",
    formula="d = Σᵢ xᵢ·yᵢ, x [n], y [n]",
    reference=reference,
    ways={"two stages": dot, "atomics": atomic_dot},
    peers={"torch": torch.dot, "torch, multiply and sum": lambda x, y: (x * y).sum()},
    sample=sample,
    sizes=[(0,), (1,), (7,), (1000,), (4097,), (3 * 4096 + 5,)],
    curve=[(2**k,) for k in range(12, 29, 2)],
    lengths="elements",
    tolerances={torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3},
    bounds={"atomics": error_of_atomics},
    traffic=lambda x, y: 2 * x.numel() * x.element_size(),
    differentiable=True,
    remark=different_answers,
)
