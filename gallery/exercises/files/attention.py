"""Attention: oᵢ = Σⱼ pᵢⱼ vⱼ with pᵢⱼ = exp(sᵢⱼ) / Σₖ exp(sᵢₖ) and sᵢⱼ = qᵢ · kⱼ / √D; causal: only j ≤ i.
q, k, v and o are [heads, tokens, D], D a power of two.

              keys →
    queries  ┌────┬────┬────┬────┐
       ↓  BM │  s │  s │ s╲·│ ·· │        causal: what lies behind the diagonal is −∞
             └────┴────┴────┴────┘
               BN                         s is never written to memory: a program keeps, for each of its BM queries,
                                          the largest s so far, the sum of exp(s − largest), and the sum of
                                          exp(s − largest) v. When the largest rises, both sums shrink.

Complete `attention_kernel`; `solve` is done.
Page: docs/gallery.md, step 15.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try attention --hint 1        (and 2, and 3)
    python -m gallery try attention --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "attention"
SWEEP = {"BM": [32, 64, 128], "BN": [32, 64, 128], "num_warps": [4, 8]}


@triton.jit
def attention_kernel(
    q, k, v, o, tokens, scale, D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Write one block of queries of one head; q, k, v, o: [heads, tokens, D], scale: 1 / √D."""
    # Your part. tl.program_id(0) counts blocks of queries, tl.program_id(1) heads.


def solve(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, BM: int = 32, BN: int = 32, num_warps: int = 4
) -> torch.Tensor:
    """Return the mean of the values for every query."""
    heads, tokens, D = q.shape
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o = torch.empty_like(q)
    grid = triton.cdiv(tokens, BM), heads
    attention_kernel[grid](q, k, v, o, tokens, D**-0.5, D=D, CAUSAL=causal, BM=BM, BN=BN, num_warps=num_warps)
    return o
