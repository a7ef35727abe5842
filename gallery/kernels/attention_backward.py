"""The gradients of attention: the probabilities are computed again, by two kernels that each own their sums.

Mathematics: with pᵢⱼ = exp(sᵢⱼ − Lᵢ) from what the forward kept, Dᵢ = doᵢ · oᵢ and dsᵢⱼ = pᵢⱼ (doᵢ · vⱼ − Dᵢ):
dvⱼ = Σᵢ pᵢⱼ doᵢ, dkⱼ = Σᵢ dsᵢⱼ qᵢ / √d, dqᵢ = Σⱼ dsᵢⱼ kⱼ / √d. Shapes as in `attention.py`; L and D
[batch, heads, queries]. Dao, "FlashAttention-2", 2023, section 3.1.2.
Lesson: why compute p again? It has queries × keys elements; reading them would take longer than computing them from q,
k and one number of each query, which combines maximum and sum, so that no second softmax is needed. Softmax's
gradient, pᵢⱼ (dpᵢⱼ − Σₖ pᵢₖ dpᵢₖ), has a sum over all keys, but this sum is doᵢ · oᵢ, a sum over d.
dk and dv sum over queries, dq over keys. One kernel would compute the five products once, but would have to add to dq
from every block of keys: atomically, in an order that differs from run to run. Two kernels, one that owns keys and one
that owns queries, compute s and do · v twice, seven products in all, and give the same bits each time.
In the product: `kernels/ops/points/pairwise_affine.py` also recomputes values that would be too large to keep.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from gallery.arguments import FLOATS, demand_alike, demand_shape
from gallery.dots import dot
from gallery.kernels import attention_backward_hopper, attention_hopper
from gallery.tuning import Choice, tuned

LOG2_E = math.log2(math.e)
WIDEST = 128
"""The most queries of a block; the numbers kept for each query are padded to a multiple of it."""

KEY_CHOICES = (
    Choice("small tiles", "fit the shared memory of every GPU, and of float32", {"BM": 32, "BN": 32}, 4, 1),
    Choice("square tiles", "two programs share a multiprocessor", {"BM": 64, "BN": 64}, 4, 2),
    Choice("large tiles", "queries are read by the fewest programs", {"BM": 64, "BN": 128}, 8, 2),
)
QUERY_CHOICES = (
    Choice("small tiles", "fit the shared memory of every GPU, and of float32", {"BM": 32, "BN": 32}, 4, 1),
    Choice("square tiles", "two programs share a multiprocessor", {"BM": 64, "BN": 64}, 4, 2),
    Choice("large tiles", "keys and values are read by the fewest programs", {"BM": 128, "BN": 64}, 8, 2),
)


@triton.jit
def place(tiles, LAST_FIRST: tl.constexpr):
    """Return a program's head, int64, and its tile; programs of a head are neighbours, as they read the same keys."""
    tile = tl.program_id(0) % tiles
    return (tl.program_id(0) // tiles).to(tl.int64), tiles - 1 - tile if LAST_FIRST else tile


@triton.jit
def load_rows(x, first, rows, D: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    """Return a block of x [rows, D], zero beyond the last row if `MASKED`; otherwise it must end before that."""
    row = first + tl.arange(0, BLOCK)
    at = x + row[:, None] * D + tl.arange(0, D)[None, :]
    if MASKED:
        return tl.load(at, mask=(row < rows)[:, None], other=0.0)
    return tl.load(at)


@triton.jit
def store_rows(x, value, first, rows, D: tl.constexpr, BLOCK: tl.constexpr):
    """Write a block of x [rows, D] in x's type, up to the last row."""
    row = first + tl.arange(0, BLOCK)
    at = x + row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(at, value.to(x.dtype.element_ty), mask=(row < rows)[:, None])


@triton.jit
def numbers_kernel(o, do, kept, logs, dots, queries, padded, D: tl.constexpr, ROWS: tl.constexpr):
    """Write each query's L in units of ln 2, and D; o, do: [batch * heads, queries, D], out: [batch * heads, padded].

    L of a query beyond the last is infinite, which makes its p zero.
    """
    head, tile = place(padded // ROWS, False)
    row = tile * ROWS + tl.arange(0, ROWS)
    log = tl.load(kept + head * queries + row, mask=row < queries, other=float("inf"))
    left = load_rows(o + head * queries * D, tile * ROWS, queries, D, ROWS, True).to(tl.float32)
    right = load_rows(do + head * queries * D, tile * ROWS, queries, D, ROWS, True).to(tl.float32)
    tl.store(logs + head * padded + row, log * 1.4426950408889634)
    tl.store(dots + head * padded + row, tl.sum(left * right, axis=1))


@tuned(KEY_CHOICES, key=["queries", "keys", "D", "CAUSAL"])
@triton.jit
def of_keys_kernel(
    q,  # [batch * heads, queries, D]
    k,  # [batch * heads, keys, D]
    v,  # like k
    do,  # like q
    dk,  # like k
    dv,  # like k
    logs,  # float32 [batch * heads, padded]: L log2(e)
    dots,  # float32 [batch * heads, padded]: D
    queries,
    padded,
    keys,
    scale,  # log2(e) / sqrt(D)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Compute dk and dv of one block of keys of one head."""
    head, tile = place(tl.cdiv(keys, BN), False)
    start = tile * BN
    key_block = load_rows(k + head * keys * D, start, keys, D, BN, True)
    value_block = load_rows(v + head * keys * D, start, keys, D, BN, True)
    of_k = tl.zeros([BN, D], tl.float32)
    of_v = tl.zeros([BN, D], tl.float32)
    first = start // BM * BM if CAUSAL else 0
    whole = tl.minimum(tl.cdiv(start + BN, BM) * BM, queries) if CAUSAL else 0
    own, numbers = head * queries * D, head * padded
    of_k, of_v = over_queries(
        key_block, value_block, q + own, do + own, logs + numbers, dots + numbers, of_k, of_v, start, first, whole,
        queries, scale, D, CAUSAL, PRECISION, BM, BN,
    )  # fmt: skip
    of_k, of_v = over_queries(
        key_block, value_block, q + own, do + own, logs + numbers, dots + numbers, of_k, of_v, start, whole, queries,
        queries, scale, D, False, PRECISION, BM, BN,
    )  # fmt: skip
    store_rows(dk + head * keys * D, of_k * (scale / 1.4426950408889634), start, keys, D, BN)
    store_rows(dv + head * keys * D, of_v, start, keys, D, BN)


@triton.jit
def over_queries(
    key_block, value_block, q, do, logs, dots, of_k, of_v, start, first, end, queries, scale,
    D: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Return sums of dk and dv with the queries from `first` to `end` added; blocks are [keys, queries].

    `CUT`: the diagonal cuts these blocks. A query beyond the last has a p of 0; a key beyond the last is not stored.
    """
    nothing = tl.zeros([BN, BM], tl.float32)
    for at in tl.range(first, end, BM):
        row = at + tl.arange(0, BM)
        query_block = load_rows(q, at, queries, D, BM, True)
        s = dot(key_block, query_block.T, nothing, PRECISION)
        p = tl.exp2(s * scale - tl.load(logs + row)[None, :])
        if CUT:
            p = tl.where((start + tl.arange(0, BN))[:, None] <= row[None, :], p, 0.0)
        gradient = load_rows(do, at, queries, D, BM, True)
        of_v = dot(p.to(gradient.dtype), gradient, of_v, PRECISION)
        dp = dot(value_block, gradient.T, nothing, PRECISION)
        ds = p * (dp - tl.load(dots + row)[None, :])
        of_k = dot(ds.to(query_block.dtype), query_block, of_k, PRECISION)
    return of_k, of_v


@tuned(QUERY_CHOICES, key=["queries", "keys", "D", "CAUSAL"])
@triton.jit
def of_queries_kernel(
    q, k, v, do, dq, logs, dots, queries, padded, keys, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute dq of one block of queries of one head; arguments as above."""
    head, tile = place(tl.cdiv(queries, BM), CAUSAL)
    start = tile * BM
    row = start + tl.arange(0, BM)
    query_block = load_rows(q + head * queries * D, start, queries, D, BM, True)
    gradient = load_rows(do + head * queries * D, start, queries, D, BM, True)
    log, shift = tl.load(logs + head * padded + row), tl.load(dots + head * padded + row)
    of_q = tl.zeros([BM, D], tl.float32)
    of_head = head * keys * D
    end = tl.minimum(start + BM, keys) if CAUSAL else keys
    whole = (tl.minimum(start, keys) if CAUSAL else keys) // BN * BN
    of_q = over_keys(
        query_block,
        gradient,
        k + of_head,
        v + of_head,
        log,
        shift,
        of_q,
        row,
        0,
        whole,
        keys,
        scale,
        D,
        CAUSAL,
        PRECISION,
        BN,
        False,
    )
    of_q = over_keys(
        query_block,
        gradient,
        k + of_head,
        v + of_head,
        log,
        shift,
        of_q,
        row,
        whole,
        end,
        keys,
        scale,
        D,
        CAUSAL,
        PRECISION,
        BN,
        True,
    )
    store_rows(dq + head * queries * D, of_q * (scale / 1.4426950408889634), start, queries, D, BM)


@triton.jit
def over_keys(
    query_block, gradient, k, v, log, shift, of_q, row, first, end, keys, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return sums of dq with the keys from `first` to `end` added; blocks are [queries, keys]."""
    nothing = tl.zeros([query_block.shape[0], BN], tl.float32)
    for at in tl.range(first, end, BN):
        key_block = load_rows(k, at, keys, D, BN, MASKED)
        s = dot(query_block, key_block.T, nothing, PRECISION)
        p = tl.exp2(s * scale - log[:, None])
        if MASKED:
            column = at + tl.arange(0, BN)
            p = tl.where((column < keys)[None, :], p, 0.0)
            if CAUSAL:
                p = tl.where(column[None, :] <= row[:, None], p, 0.0)
        dp = dot(gradient, load_rows(v, at, keys, D, BN, MASKED).T, nothing, PRECISION)
        ds = p * (dp - shift[:, None])
        of_q = dot(ds.to(key_block.dtype), key_block, of_q, PRECISION)
    return of_q


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in rows, at an address that descriptors accept."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


@torch.library.custom_op("gallery::attention_backward", mutates_args=())
def attention_backward(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    kept: torch.Tensor,
    causal: bool,
    portable: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dq, dk and dv of do, q, k, v, o and L [batch, heads, queries], the last float32; see `attention`."""
    demand_alike(FLOATS, gradient=gradient, q=q, k=k, v=v, o=o)
    demand_shape("gradient", gradient, *q.shape)
    demand_shape("o", o, *q.shape)
    demand_alike((torch.float32,), kept=kept)
    demand_shape("kept", kept, *q.shape[:3])
    gradient, q, k, v, o = (aligned(tensor) for tensor in (gradient, q, k, v, o))
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    if not q.numel() or not k.numel():
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    padded = triton.cdiv(queries, WIDEST) * WIDEST
    logs = torch.empty(batch * heads, padded, dtype=torch.float32, device=q.device)
    dots = torch.empty_like(logs)
    numbers_kernel[(padded // 64 * batch * heads,)](
        o, gradient, kept.contiguous(), logs, dots, queries, padded, D=size, ROWS=64
    )
    scale = LOG2_E / math.sqrt(size)
    if not portable and attention_hopper.suits(q):
        attention_backward_hopper.launch(q, k, v, gradient, dq, dk, dv, logs, dots, scale, causal)
        return dq, dk, dv
    numbers = logs, dots, queries, padded, keys, scale
    constants = {"D": size, "CAUSAL": causal, "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32"}
    of_keys_kernel[lambda meta: (triton.cdiv(keys, meta["BN"]) * batch * heads,)](
        q, k, v, gradient, dk, dv, *numbers, **constants
    )
    of_queries_kernel[lambda meta: (triton.cdiv(queries, meta["BM"]) * batch * heads,)](
        q, k, v, gradient, dq, *numbers, **constants
    )
    return dq, dk, dv


@attention_backward.register_fake
def _(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    kept: torch.Tensor,
    causal: bool,
    portable: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
    return dq, dk, dv
