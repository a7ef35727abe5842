"""Matrix product, bias and ReLU in one kernel: Y = max(A B + bias, 0), a layer of a neural network.

Mathematics: yᵢⱼ = max(Σₖ aᵢₖ bₖⱼ + βⱼ, 0), for A [M, K], B [K, N] and β [N]; sums are float32, Y has A's type. With
G = dY where Y > 0, else 0: dA = G Bᵀ, dB = Aᵀ G, dβⱼ = Σᵢ gᵢⱼ.
Lesson: three separate operations write A B to memory, read it, write it, read it and write it. Here a tile's sums are
still in registers when bias and ReLU are applied, so both cost next to nothing, and only Y is written. Rounding happens
once, at the end. Such work on a product without a second pass is called its *epilogue*.
Y itself shows which elements passed ReLU, so the gradient keeps nothing else of it. The sums of G's columns are
computed while G is written: first over blocks of rows, then over these, always in one order, so that the same arguments
give the same bits. The functions of `gallery/kernels/matmul.py` compute the tiles; see there for their order and
precision.
In the product: `kernels/ops/networks/int8_fused.py` and `kernels/ops/networks/float16_fused.py` compute such layers,
several in one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.exhibit import Exhibit, Size
from gallery.kernels.matmul import (
    CHOICES,
    DESCRIPTOR_CHOICES,
    by_descriptors,
    by_pointers,
    described,
    grouped,
    halves,
    matmul,
    product_by_descriptors,
    product_by_pointers,
)
from gallery.tuning import chosen, tuned

MASKED_ROWS, MASKED_COLUMNS = 128, 64
"""The tile that one program masks and sums: as wide as whole lines of memory, high enough for few partial sums."""


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return max(A B + bias, 0)."""
    return torch.relu(a @ b + bias)


@triton.jit
def finished(sums, bias, n, N):
    """Return max(sums + bias, 0) of columns n, in the bias' type."""
    shift = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + shift[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL).to(bias.dtype.element_ty)


@tuned(CHOICES, key=["M", "N", "K"])
@triton.jit
def pointer_relu_kernel(
    a,  # [M, K] of any strides, as b [K, N]
    b,
    bias,  # [N]
    y,  # [M, N], rows one after another
    M,
    N,
    K,
    a_rows,
    a_columns,
    b_rows,
    b_columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write one tile of Y."""
    tl.static_assert(BLOCK_N <= 128 or a.dtype.element_ty != tl.float32, "float32 has no registers for wide tiles")
    row, column = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m, n = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    sums = product_by_pointers(a, b, m, n, M, N, K, a_rows, a_columns, b_rows, b_columns, BLOCK_K)
    at = y + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(at, finished(sums, bias, n, N), mask=(m < M)[:, None] & (n < N)[None, :])


@tuned(DESCRIPTOR_CHOICES, key=["M", "N", "K"])
@triton.jit
def descriptor_relu_kernel(
    a,  # [M, K], rows or columns `a_stride` apart, as b [K, N]
    b,
    bias,  # [N]
    y,  # [M, N]
    M,
    N,
    K,
    a_stride,
    b_stride,
    A_UPRIGHT: tl.constexpr,
    B_UPRIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Write every tile of Y whose number is this program's, plus a multiple of the number of programs."""
    PIECE: tl.constexpr = BLOCK_N // 2 if OVERLAP else BLOCK_N
    a_boxes = described(a, M, K, a_stride, A_UPRIGHT, BLOCK_M, BLOCK_K)
    b_boxes = described(b, K, N, b_stride, B_UPRIGHT, BLOCK_K, BLOCK_N)
    y_boxes = described(y, M, N, N, False, BLOCK_M, PIECE)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=OVERLAP):
        row, column = grouped(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        sums = product_by_descriptors(a_boxes, b_boxes, row, column, K, A_UPRIGHT, B_UPRIGHT, BLOCK_M, BLOCK_N, BLOCK_K)
        n = column + tl.arange(0, PIECE)
        if OVERLAP:
            left, right = halves(sums)
            y_boxes.store([row, column], finished(left, bias, n, N))
            y_boxes.store([row, column + PIECE], finished(right, bias, n + PIECE, N))
        else:
            y_boxes.store([row, column], finished(sums, bias, n, N))


@triton.jit
def masked_kernel(
    gradient,  # [M, N] of any strides
    y,  # [M, N], as g
    g,
    sums,  # float32 [row blocks, N]
    M,
    N,
    rows,
    columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write one block of G, and the sums of its columns."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (m < M)[:, None] & (n < N)[None, :]
    value = tl.load(gradient + m[:, None] * rows + n[None, :] * columns, mask=inside, other=0.0)
    at = m[:, None] * N + n[None, :]
    value = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, value.to(tl.float32), 0.0)
    tl.store(g + at, value.to(g.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(0).to(tl.int64) * N + n, tl.sum(value, axis=0), mask=n < N)


@torch.library.custom_op("gallery::masked", mutates_args=())
def masked(gradient: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient where Y > 0 and zero elsewhere, [M, N], and the sums of its columns, [N]."""
    M, N = y.shape
    g, sums = torch.empty_like(y), y.new_empty(triton.cdiv(M, MASKED_ROWS), N, dtype=torch.float32)
    if y.numel():
        grid = (sums.shape[0], triton.cdiv(N, MASKED_COLUMNS))
        masked_kernel[grid](gradient, y, g, sums, M, N, *gradient.stride(), BLOCK_M=MASKED_ROWS, BLOCK_N=MASKED_COLUMNS)
    return g, sums.sum(0).to(y.dtype)


@masked.register_fake
def _(gradient: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(y), y.new_empty(y.shape[1])


WAYS: dict[str, Callable[..., None]] = {
    "descriptors": partial(by_descriptors, descriptor_relu_kernel, pointer_relu_kernel),
    "pointers": partial(by_pointers, pointer_relu_kernel),
}


@torch.library.custom_op("gallery::matmul_relu", mutates_args=())
def matmul_relu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, way: str = "descriptors") -> torch.Tensor:
    """Return max(A B + bias, 0), [M, N], of the arguments' type; A and B have any strides, as in `gallery::matmul`.

    The ways are "descriptors" and "pointers"; the second replaces the first if that cannot run.
    """
    demand_alike(a=a, b=b, bias=bias)
    demand_shape("a", a, -1, -1)
    demand_shape("b", b, a.shape[1], -1)
    demand_shape("bias", bias, b.shape[1])
    if way not in WAYS:
        raise ValueError(f"'way' is {way!r}; the ways are {', '.join(WAYS)}.")
    y = a.new_empty(a.shape[0], b.shape[1])
    if y.numel():
        WAYS[way](a, b, bias.contiguous(), y)
    return y


@matmul_relu.register_fake
def _(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, way: str = "descriptors") -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def keep(ctx, inputs, output) -> None:
    """Keep the tensors that the gradients need."""
    a, b, _, ctx.way = inputs
    ctx.save_for_backward(a, b, output)


def gradients(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return dA, dB and dβ."""
    a, b, y = ctx.saved_tensors
    g, sums = masked(gradient, y)
    da = matmul(g, b.T, ctx.way) if ctx.needs_input_grad[0] else None
    db = matmul(a.T, g, ctx.way) if ctx.needs_input_grad[1] else None
    return da, db, sums, None


matmul_relu.register_autograd(gradients, setup_context=keep)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return A [M, K], B [K, N] and a bias [N], of a size (M, N, K)."""
    M, N, K = size
    a, b = torch.randn(M, K, dtype=dtype, device=device), torch.randn(K, N, dtype=dtype, device=device)
    return a, b, torch.randn(N, dtype=dtype, device=device)


def one_operation(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return the same product and epilogue by cuBLASLt."""
    return torch._addmm_activation(bias, a, b)


EXHIBIT = Exhibit(
    name="matmul_relu",
    formula="yᵢⱼ = max(Σₖ aᵢₖ bₖⱼ + βⱼ, 0), a [M, K], b [K, N], β [N]",
    reference=reference,
    ways={way: partial(matmul_relu, way=way) for way in WAYS},
    peers={"torch, three operations": reference, "cuBLASLt": one_operation},
    sample=sample,
    sizes=[(0, 3, 2), (3, 2, 0), (1, 1, 1), (5, 7, 3), (72, 80, 104), (130, 65, 33)],
    curve=[(2**k, 2**k, 2**k) for k in range(8, 14)],
    lengths="M x N x K",
    tolerances={torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 4e-6},
    traffic=lambda a, b, bias: (a.numel() + b.numel() + bias.numel() + a.shape[0] * b.shape[1]) * a.element_size(),
    work=lambda a, b, bias: 2 * a.numel() * b.shape[1],
    differentiable=True,
    chosen=lambda: chosen(descriptor_relu_kernel, pointer_relu_kernel),
    axis=("M, N and K", lambda size: size[0]),
)
