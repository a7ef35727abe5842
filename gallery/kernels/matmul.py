"""Matrix product: C = A B, in three ways to address memory: pointers, block pointers and tensor descriptors.

Mathematics: cᵢⱼ = Σₖ aᵢₖ bₖⱼ, for A [M, K] and B [K, N]; sums are float32, the result has the arguments' type.
Lesson:
- *Why tile over K?* A program owns a tile of C and goes along K, a block of A and one of B at a time. A tile of
  BLOCK_M × BLOCK_N loads BLOCK_M + BLOCK_N numbers for each k, and computes BLOCK_M · BLOCK_N products from them:
  without tiles every number would be loaded N or M times. All of K would not fit in shared memory; a few blocks do, so
  that the next are being loaded (`num_stages`) while the matrix units work on this one.
- *Why group the tiles?* Programs that run at once share the L2 cache. In the order of rows of tiles they would need all
  of B; in groups of GROUP rows of tiles they need a square part of A and B. See `grouped`.
- *Why tune the block size?* Large tiles load less and need more registers and shared memory; small ones give every
  multiprocessor work when C is small. The best shape depends on M, N, the type and the GPU: see the choices.
- *Pointers* take any strides, and a mask at every edge. *Block pointers* say the same in fewer words. *Descriptors*
  (Hopper) leave addresses and edges to the copy engine; programs are persistent, one for each multiprocessor, so that
  the next tile's first blocks arrive while this one is stored (`OVERLAP`). Each program first makes its descriptors, in
  some 2 µs, which products of up to 2,048³ feel. From 4,096³ on neither way is faster by more than the spread of its
  times; docs/gallery_speed.md has both.
- *Warps of two kinds*, some that only load and others that only multiply (`tl.range(…, warp_specialize=True)`), were
  tried: in `matmul_relu` of 8,192³ they reached 672 TFLOP/s, and one kind reached 699. In the convolution, version 3.6
  of the language computed wrong sums with them. No kernel here has them.
Precision: float16 and bfloat16 products are exact, their sums float32. float32 is multiplied in float32 ("ieee"), not
by matrix units. These take 11 bits of a number, so that one product becomes three ("tf32x3"): at 4,096³ this reached 36
TFLOP/s, float32 44. Descriptors feed matrix units, so float32 goes by pointers.
In the product: `kernels/numerics/dot.py` (blocks of a product), `kernels/ops/points/products.py` (functions of
products, without writing the products), `kernels/ops/networks/int8_device.py` (products of eight-bit digits, which are
exact).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import describable, multiprocessors, provide_memory, using_block_pointers
from gallery.dots import dot
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

BUSY = "every multiprocessor has work when C is small"
BETWEEN = "numbers are used more often, and there are tiles enough when C is not so large"
USED_MOST = "each number loaded is used the most often"
CHOICES = (
    Choice("small tiles", BUSY, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8}, 4, 4),
    Choice("square tiles", BETWEEN, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8}, 8, 3),
    Choice("wide tiles", USED_MOST, {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8}, 8, 3),
)
DESCRIPTOR_CHOICES = (
    Choice("small tiles", BUSY, {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "OVERLAP": False}, 4, 4),
    Choice(
        "square tiles", BETWEEN, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "OVERLAP": False}, 4, 4
    ),
    Choice("wide tiles", USED_MOST, {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "OVERLAP": True}, 8, 3),
)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A B."""
    return a @ b


@triton.jit
def grouped(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return a tile's first row and column in C. Groups of GROUP rows of tiles are traversed by columns."""
    in_group = GROUP * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP
    high = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP)
    return (first + tile % in_group % high) * BLOCK_M, tile % in_group // high * BLOCK_N


@triton.jit
def product_by_pointers(
    a,
    b,
    m,  # int32 [BLOCK_M]: rows of A
    n,  # int32 [BLOCK_N]: columns of B
    M,
    N,
    K,
    a_rows,  # strides, in elements
    a_columns,
    b_rows,
    b_columns,
    BLOCK_K: tl.constexpr,
):
    """Return rows m and columns n of A B, float32 [BLOCK_M, BLOCK_N]."""
    k = tl.arange(0, BLOCK_K)
    a_at = a + m.to(tl.int64)[:, None] * a_rows + k.to(tl.int64)[None, :] * a_columns
    b_at = b + k.to(tl.int64)[:, None] * b_rows + n.to(tl.int64)[None, :] * b_columns
    sums = tl.zeros([m.shape[0], n.shape[0]], tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a_block = tl.load(a_at, mask=(m < M)[:, None] & (k < left)[None, :], other=0.0)
        b_block = tl.load(b_at, mask=(k < left)[:, None] & (n < N)[None, :], other=0.0)
        sums = dot(a_block, b_block, sums, "ieee")
        a_at += BLOCK_K * a_columns
        b_at += BLOCK_K * b_rows
    return sums


@tuned(CHOICES, key=["M", "N", "K"])
@triton.jit
def pointer_kernel(
    a,  # [M, K] of any strides, as b [K, N]
    b,
    c,  # [M, N], rows one after another
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
    """Write one tile of C."""
    tl.static_assert(BLOCK_N <= 128 or a.dtype.element_ty != tl.float32, "float32 has no registers for wide tiles")
    row, column = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m, n = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    sums = product_by_pointers(a, b, m, n, M, N, K, a_rows, a_columns, b_rows, b_columns, BLOCK_K)
    at = c + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(at, sums.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@tuned(CHOICES, key=["M", "N", "K"])
@triton.jit
def block_pointer_kernel(
    a,
    b,
    c,
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
    """Write one tile of C, as `pointer_kernel` does: the language knows the edges, so no mask is written."""
    tl.static_assert(BLOCK_N <= 128 or a.dtype.element_ty != tl.float32, "float32 has no registers for wide tiles")
    row, column = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    a_at = tl.make_block_ptr(a, (M, K), (a_rows, a_columns), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b_at = tl.make_block_ptr(b, (K, N), (b_rows, b_columns), (0, column), (BLOCK_K, BLOCK_N), (1, 0))
    c_at = tl.make_block_ptr(c, (M, N), (N, 1), (row, column), (BLOCK_M, BLOCK_N), (1, 0))
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, K, BLOCK_K):
        a_block = tl.load(a_at, boundary_check=(0, 1), padding_option="zero")
        b_block = tl.load(b_at, boundary_check=(0, 1), padding_option="zero")
        sums = dot(a_block, b_block, sums, "ieee")
        a_at = tl.advance(a_at, (0, BLOCK_K))
        b_at = tl.advance(b_at, (BLOCK_K, 0))
    tl.store(c_at, sums.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def described(x, rows, columns, stride, UPRIGHT: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """Return a descriptor of x [rows, columns], or of its transpose if UPRIGHT, when its columns are contiguous."""
    if UPRIGHT:
        boxes = tl.make_tensor_descriptor(x, [columns, rows], [stride, 1], [BLOCK_COLUMNS, BLOCK_ROWS])
    else:
        boxes = tl.make_tensor_descriptor(x, [rows, columns], [stride, 1], [BLOCK_ROWS, BLOCK_COLUMNS])
    return boxes


@triton.jit
def box(boxes, row, column, UPRIGHT: tl.constexpr):
    """Return the block of x that begins there, given the descriptor from `described`."""
    return boxes.load([column, row]).T if UPRIGHT else boxes.load([row, column])


@triton.jit
def product_by_descriptors(
    a, b, row, column, K, A_UPRIGHT: tl.constexpr, B_UPRIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return the tile of A B that begins there, float32 [BLOCK_M, BLOCK_N]."""
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        a_block, b_block = box(a, row, k, A_UPRIGHT), box(b, k, column, B_UPRIGHT)
        sums = dot(a_block, b_block, sums, "ieee")
    return sums


@triton.jit
def halves(x):
    """Return the left and the right half of a block's columns, as storing a half takes half the shared memory."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@tuned(DESCRIPTOR_CHOICES, key=["M", "N", "K"])
@triton.jit
def descriptor_kernel(
    a,  # [M, K], rows or columns `a_stride` apart, as b [K, N]
    b,
    c,  # [M, N]
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
    """Write every tile of C whose number is this program's, plus a multiple of the number of programs."""
    PIECE: tl.constexpr = BLOCK_N // 2 if OVERLAP else BLOCK_N
    a_boxes = described(a, M, K, a_stride, A_UPRIGHT, BLOCK_M, BLOCK_K)
    b_boxes = described(b, K, N, b_stride, B_UPRIGHT, BLOCK_K, BLOCK_N)
    c_boxes = described(c, M, N, N, False, BLOCK_M, PIECE)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=OVERLAP):
        row, column = grouped(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        sums = product_by_descriptors(a_boxes, b_boxes, row, column, K, A_UPRIGHT, B_UPRIGHT, BLOCK_M, BLOCK_N, BLOCK_K)
        if OVERLAP:
            left, right = halves(sums)
            c_boxes.store([row, column], left.to(c.dtype.element_ty))
            c_boxes.store([row, column + PIECE], right.to(c.dtype.element_ty))
        else:
            c_boxes.store([row, column], sums.to(c.dtype.element_ty))


def lies(x: torch.Tensor) -> tuple[int, bool] | None:
    """Return the stride of a matrix' rows, or of its columns and True; None if no descriptor can describe either."""
    if describable(x):
        return x.stride(0), False
    return (x.stride(1), True) if describable(x.T) else None


def by_pointers(kernel, a: torch.Tensor, b: torch.Tensor, *others: torch.Tensor) -> None:
    """Launch a kernel that writes one tile in each program; the last of `others` is its output."""
    (M, K), N = a.shape, b.shape[1]

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    kernel[grid](a, b, *others, M, N, K, *a.stride(), *b.stride())


def by_descriptors(kernel, otherwise, a: torch.Tensor, b: torch.Tensor, *others: torch.Tensor) -> None:
    """Launch a persistent kernel if descriptors can describe all matrices, otherwise the one for pointers."""
    (M, K), N = a.shape, b.shape[1]
    lie = lies(a), lies(b)
    if a.dtype == torch.float32 or not (lie[0] and lie[1] and describable(others[-1])):
        return by_pointers(otherwise, a, b, *others)
    (a_stride, a_upright), (b_stride, b_upright) = lie
    provide_memory(a.device)

    def grid(meta):
        return (min(multiprocessors(a.device), triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    sizes = (M, N, K, a_stride, b_stride)
    kernel[grid](a, b, *others, *sizes, A_UPRIGHT=a_upright, B_UPRIGHT=b_upright)
    return None


def by_block_pointers(*matrices: torch.Tensor) -> None:
    """Launch the kernel with block pointers, or that with pointers if the language has no others any more."""
    with using_block_pointers():
        by_pointers(block_pointer_kernel if hasattr(tl, "make_block_ptr") else pointer_kernel, *matrices)


WAYS: dict[str, Callable[..., None]] = {
    "descriptors": partial(by_descriptors, descriptor_kernel, pointer_kernel),
    "pointers": partial(by_pointers, pointer_kernel),
    "block pointers": by_block_pointers,
}


@torch.library.custom_op("gallery::matmul", mutates_args=())
def matmul(a: torch.Tensor, b: torch.Tensor, way: str = "descriptors") -> torch.Tensor:
    """Return A B, [M, N], of the arguments' type, its rows one after another; A and B have any strides.

    The ways are "descriptors", "pointers" and "block pointers". Pointers replace the first on GPUs
    before capability 9.0, for rows whose distance is not a multiple of 16 bytes, and for float32.
    """
    demand_alike(a=a, b=b)
    demand_shape("a", a, -1, -1)
    demand_shape("b", b, a.shape[1], -1)
    if way not in WAYS:
        raise ValueError(f"'way' is {way!r}; the ways are {', '.join(WAYS)}.")
    c = a.new_empty(a.shape[0], b.shape[1])
    if c.numel():
        WAYS[way](a, b, c)
    return c


@matmul.register_fake
def _(a: torch.Tensor, b: torch.Tensor, way: str = "descriptors") -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def keep(ctx, inputs, output) -> None:
    """Keep the tensors that the gradients need."""
    a, b, ctx.way = inputs
    ctx.save_for_backward(a, b)


def gradients(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    """Return dA = dC Bᵀ and dB = Aᵀ dC: products again, of matrices that are transposed as views."""
    a, b = ctx.saved_tensors
    da = matmul(gradient, b.T, ctx.way) if ctx.needs_input_grad[0] else None
    db = matmul(a.T, gradient, ctx.way) if ctx.needs_input_grad[1] else None
    return da, db, None


matmul.register_autograd(gradients, setup_context=keep)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A [M, K] and B [K, N], of a size (M, N, K)."""
    M, N, K = size
    return torch.randn(M, K, dtype=dtype, device=device), torch.randn(K, N, dtype=dtype, device=device)


EXHIBIT = Exhibit(
    name="matmul",
    formula="cᵢⱼ = Σₖ aᵢₖ bₖⱼ, a [M, K], b [K, N]",
    reference=reference,
    ways={way: partial(matmul, way=way) for way in WAYS},
    peers={"cuBLAS": torch.mm},
    sample=sample,
    sizes=[(0, 3, 2), (3, 2, 0), (1, 1, 1), (5, 7, 3), (72, 80, 104), (130, 65, 33)],
    curve=[(2**k, 2**k, 2**k) for k in range(8, 14)],
    lengths="M x N x K",
    tolerances={torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 4e-6},
    traffic=lambda a, b: (a.numel() + b.numel() + a.shape[0] * b.shape[1]) * a.element_size(),
    work=lambda a, b: 2 * a.numel() * b.shape[1],
    differentiable=True,
    chosen=lambda: chosen(descriptor_kernel, pointer_kernel, block_pointer_kernel),
    axis=("M, N and K", lambda size: size[0]),
)
