"""Matrix product, bias and ReLU: yᵢⱼ = max(Σₖ aᵢₖ bₖⱼ + βⱼ, 0), for a [M, K], b [K, N], β [N], y [M, N].

                     b   ┌─────┐
                         │  ↓  │ BLOCK_K           A program goes along K with a tile of sums in
                         │  ↓  │                   registers: BLOCK_M × BLOCK_N numbers of float32.
          BLOCK_K        └─────┘                   a and b may have any strides.
    a   ┌──→──→──┐   y   ┌─────┐ BLOCK_M           NaN stays NaN, through max too:
        └────────┘       └─────┘                   propagate_nan=tl.PropagateNan.ALL
                         BLOCK_N

Complete `matmul_relu_kernel`; `solve` is done, and must not copy a or b.
Page: docs/gallery.md, steps 9 and 10.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try matmul_relu --hint 1        (and 2, and 3)
    python -m gallery try matmul_relu --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "matmul_relu"
SWEEP = {"BLOCK_M": [32, 64, 128], "BLOCK_N": [32, 64, 128], "BLOCK_K": [32], "num_warps": [4, 8]}


@triton.jit
def matmul_relu_kernel(
    a,  # [M, K]
    b,  # [K, N]
    bias,  # [N]
    y,  # [M, N], rows one after another
    M,
    N,
    K,
    a_rows,  # the strides of a's rows and columns, and of b's
    a_columns,
    b_rows,
    b_columns,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write one tile of Y."""
    # Your part. tl.program_id(0) counts tiles down, tl.program_id(1) across.


def solve(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    BLOCK_M: int = 32,
    BLOCK_N: int = 64,
    BLOCK_K: int = 32,
    num_warps: int = 4,
) -> torch.Tensor:
    """Return max(A B + bias, 0)."""
    (M, K), N = a.shape, b.shape[1]
    y = torch.empty(M, N, dtype=a.dtype, device=a.device)
    matmul_relu_kernel[(triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))](
        a,
        b,
        bias.contiguous(),
        y,
        M,
        N,
        K,
        *a.stride(),
        *b.stride(),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=num_warps,
    )
    return y
