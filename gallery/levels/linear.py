"""Linear layer with the operations after it in the same kernel: y = f(x Wᵀ + b) + r.

Mathematics: x `[..., inputs]`, W (`weight`) `[outputs, inputs]`, b (`bias`) `[outputs]`; f is GELU or nothing; r
(`residual`), if given, has y's shape `[..., outputs]`. Products are summed in float32.
Lesson: a tile of the product is in registers when its sum is complete. There bias, GELU and the residual only cost
their own bytes; as separate kernels each reads and writes all of y once more.
The functions of `gallery/kernels/matmul.py` compute the tiles; this file is the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import describable, multiprocessors, provide_memory
from gallery.kernels.matmul import (
    CHOICES,
    DESCRIPTOR_CHOICES,
    described,
    grouped,
    halves,
    product_by_descriptors,
    product_by_pointers,
)
from gallery.launches import Launch, by_layout
from gallery.levels.extension import library
from gallery.levels.layer_norm import gelu_of
from gallery.levels.operator import operator
from gallery.tuning import tuned

CUDA_MULTIPLE = 8
"""In CUDA C++, which loads 16 bytes at once, inputs and outputs are multiples of this number."""


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y of x's type."""
    y = torch.nn.functional.linear(x, weight, bias)
    if gelu:
        y = torch.nn.functional.gelu(y)
    if residual is not None:
        y = y + residual
    return y


@triton.jit
def finished(sums, bias, residual, m, n, M, N, GELU: tl.constexpr, RESIDUAL: tl.constexpr):
    """Return rows m and columns n of y from those of the product, in the bias' type."""
    y = sums + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if GELU:
        y = gelu_of(y)
    if RESIDUAL:
        inside = (m < M)[:, None] & (n < N)[None, :]
        at = m.to(tl.int64)[:, None] * N + n[None, :]
        y += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    return y.to(bias.dtype.element_ty)


@tuned(CHOICES, key=["M", "N", "K", "RESIDUAL"])
@triton.jit
def pointer_linear_kernel(
    x,  # [M, K], rows one after another
    weight,  # [N, K]
    bias,  # [N]
    residual,  # [M, N], like y; y itself where there is none
    y,
    M,
    N,
    K,
    GELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Write one tile of y."""
    tl.static_assert(BLOCK_N <= 128 or x.dtype.element_ty != tl.float32, "float32 has no registers for wide tiles")
    row, column = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m, n = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    sums = product_by_pointers(x, weight, m, n, M, N, K, K, 1, 1, K, BLOCK_K)
    at = y + m.to(tl.int64)[:, None] * N + n[None, :]
    out = finished(sums, bias, residual, m, n, M, N, GELU, RESIDUAL)
    tl.store(at, out, mask=(m < M)[:, None] & (n < N)[None, :])


@tuned(DESCRIPTOR_CHOICES, key=["M", "N", "K", "RESIDUAL"])
@triton.jit
def descriptor_linear_kernel(
    x,  # as above
    weight,
    bias,
    residual,
    y,
    M,
    N,
    K,
    GELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Write every tile of y whose number is this program's, plus a multiple of the number of programs.

    A tile is finished in halves, which leaves shared memory for one more step of the product.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    x_boxes = described(x, M, K, K, False, BLOCK_M, BLOCK_K)
    w_boxes = described(weight, K, N, K, True, BLOCK_K, BLOCK_N)
    y_boxes = described(y, M, N, N, False, BLOCK_M, HALF)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=OVERLAP):
        row, column = grouped(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        sums = product_by_descriptors(x_boxes, w_boxes, row, column, K, False, True, BLOCK_M, BLOCK_N, BLOCK_K)
        m, n = row + tl.arange(0, BLOCK_M), column + tl.arange(0, HALF)
        left, right = halves(sums)
        y_boxes.store([row, column], finished(left, bias, residual, m, n, M, N, GELU, RESIDUAL))
        y_boxes.store([row, column + HALF], finished(right, bias, residual, m, n + HALF, M, N, GELU, RESIDUAL))


@operator("gallery::level_linear")
def in_triton_language(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y of x's type: 16-bit types by descriptors if rows are multiples of 16 bytes, otherwise by pointers."""
    return launcher(x, weight, bias, residual, gelu)(x, weight, bias, residual)


@by_layout
def launcher(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None, gelu: bool
) -> Callable[..., torch.Tensor]:
    """Return what computes y of tensors with these layouts."""
    check(x, weight, bias, residual)
    (N, K), shape, device = weight.shape, (*x.shape[:-1], weight.shape[0]), x.device
    M, y = math.prod(shape[:-1]), x.new_empty(shape)
    if not y.numel():
        return lambda x, *_: x.new_empty(shape)
    matrices = x.contiguous().view(-1, K), weight.contiguous(), y.view(-1, N)
    by_descriptors = x.dtype != torch.float32 and all(map(describable, matrices))
    most = multiprocessors(device) if by_descriptors else None

    def grid(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (tiles if most is None else min(tiles, most),)

    kernel = descriptor_linear_kernel if by_descriptors else pointer_linear_kernel
    launch = Launch(kernel, grid, M, N, K, gelu, residual is not None)

    def answer(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None
    ) -> torch.Tensor:
        y = x.new_empty(shape)
        if by_descriptors:
            provide_memory(device)
        other = y if residual is None else residual.contiguous()
        launch(x.contiguous(), weight.contiguous(), bias.contiguous(), other, y)
        return y

    return answer


@in_triton_language.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def in_cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y by `cuda/linear.cu`: bfloat16, inputs and outputs multiples of 8."""
    check(x, weight, bias, residual)
    demand_alike((torch.bfloat16,), x=x)
    if any(not length or length % CUDA_MULTIPLE for length in weight.shape):
        raise ValueError(f"'weight' is {list(weight.shape)}; CUDA C++ takes multiples of {CUDA_MULTIPLE}.")
    return library().linear(x, weight, bias, residual, gelu)


def check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None) -> None:
    """Refuse arguments that the kernels do not support."""
    demand_alike(x=x, weight=weight, bias=bias)
    demand_shape("weight", weight, -1, -1)
    demand_shape("bias", bias, weight.shape[0])
    demand_shape("x", x, *x.shape[:-1], weight.shape[1])
    if residual is not None:
        demand_alike(x=x, residual=residual)
        demand_shape("residual", residual, *x.shape[:-1], weight.shape[0])
