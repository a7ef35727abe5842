"""Attention: Y = softmax(QKᵀ/√size) V, for each head of each sequence, causal or not.

Mathematics: Q, K, V, Y `[batch, heads, tokens, size]`; causal: a token sees itself and the tokens before it. Sums and
the softmax are computed in float32.
Source: Dao, *FlashAttention-2* (2023); Milakov, Gimelshein, *Online normalizer calculation for softmax* (2018).
Lesson: QKᵀ has tokens² numbers. A program that holds a block of Q needs them a block at a time, with the largest
and the sum so far, so they are never in memory. Q, K and V of a block of a transformer are views of one product and are
read in place, and Y is written so that the next product reads its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import ALIGNMENT
from gallery.dots import dot
from gallery.kernels import attention_hopper
from gallery.launches import Launch, by_layout
from gallery.levels.extension import library
from gallery.levels.operator import operator
from gallery.tuning import Choice, tuned

SIZES = (16, 32, 64, 128)
ALIGNED = 8
"""Strides are multiples of this many numbers."""

CHOICES = (
    Choice("large blocks", "K and V are read least often", {"QUERIES": 128, "KEYS": 128}, 8, 2),
    Choice("short blocks of keys", "more registers for Y", {"QUERIES": 128, "KEYS": 64}, 8, 3),
    Choice("four warps", "two programs share a multiprocessor", {"QUERIES": 64, "KEYS": 64}, 4, 3),
    Choice("few warps, large blocks", "each warp has more to do at once", {"QUERIES": 128, "KEYS": 64}, 4, 3),
)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """Return Y by torch's own operation, which is flash attention on a GPU."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """Return Y by its formula, with all of QKᵀ in memory."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        tokens = q.shape[-2]
        above = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


@triton.jit
def look_at(
    q, k, v, stride, begin, end, tokens, query, factor, total, largest, y,
    SIZE: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    """Return the sum, the largest score and Y updated by the keys from `begin` to `end`."""
    column = tl.arange(0, SIZE)
    for first in tl.range(begin, end, KEYS):
        key = first + tl.arange(0, KEYS)
        at = key[:, None].to(tl.int64) * stride + column[None, :]
        keys = tl.load(k + at, mask=(key < tokens)[:, None] if MASKED else None, other=0.0 if MASKED else None)
        scores = dot(q, keys.T, tl.zeros([q.shape[0], KEYS], tl.float32), "tf32x3")
        if MASKED:
            seen = (key < tokens)[None, :]
            if CAUSAL:
                seen = seen & (key[None, :] <= query[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(scores, axis=1) * factor)
        shrunk = tl.exp2(before - largest)
        p = tl.exp2(scores * factor - largest[:, None])
        total = total * shrunk + tl.sum(p, axis=1)
        values = tl.load(v + at, mask=(key < tokens)[:, None] if MASKED else None, other=0.0 if MASKED else None)
        y = dot(p.to(values.dtype), values, y * shrunk[:, None], "tf32x3")
    return total, largest, y


@tuned(CHOICES, key=["tokens", "SIZE", "CAUSAL"])
@triton.jit
def attention_kernel(
    q,  # [batch, heads, tokens, SIZE], like k and v; tokens are `stride`, heads SIZE numbers apart
    k,
    v,
    y,  # [batch, tokens, heads, SIZE]
    batch_stride,
    stride,
    heads,
    tokens,
    factor,  # log₂e / √SIZE
    SIZE: tl.constexpr,
    CAUSAL: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Write Y of QUERIES tokens of one head: first the keys that all of them see, then those at the edge."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    begins = batch.to(tl.int64) * batch_stride + head * SIZE
    query = block * QUERIES + tl.arange(0, QUERIES)
    column = tl.arange(0, SIZE)
    at = begins + query[:, None].to(tl.int64) * stride + column[None, :]
    queries = tl.load(q + at, mask=(query < tokens)[:, None], other=0.0)
    total = tl.zeros([QUERIES], tl.float32)
    largest = tl.full([QUERIES], -1e30, tl.float32)
    out = tl.zeros([QUERIES, SIZE], tl.float32)
    end = tl.minimum(tokens, (block + 1) * QUERIES) if CAUSAL else tokens
    whole = (block * QUERIES if CAUSAL else tokens) // KEYS * KEYS
    total, largest, out = look_at(
        *(queries, k + begins, v + begins, stride, 0, whole, tokens, query, factor, total, largest, out),
        *(SIZE, KEYS, False, CAUSAL),
    )
    total, largest, out = look_at(
        *(queries, k + begins, v + begins, stride, whole, end, tokens, query, factor, total, largest, out),
        *(SIZE, KEYS, True, CAUSAL),
    )
    into = y + (batch.to(tl.int64) * tokens + query[:, None]) * (heads * SIZE) + head * SIZE + column[None, :]
    tl.store(into, (out / total[:, None]).to(y.dtype.element_ty), mask=(query < tokens)[:, None])


@operator("gallery::level_attention")
def in_triton_language(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """Return Y, whose heads of a token lie side by side; `size` is 16, 32, 64 or 128.

    On a Hopper GPU `gallery/kernels/attention_hopper.py` computes heads of 64 and 128 in float16 and bfloat16.
    """
    return launcher(q, k, v, causal)(q, k, v)


@by_layout
def launcher(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Callable[..., torch.Tensor]:
    """Return what computes Y of tensors with these layouts."""
    check(q, k, v)
    batch, heads, tokens, size = q.shape
    factor = math.log2(math.e) / math.sqrt(size)
    if q.numel() and attention_hopper.suits(q):
        write = attention_hopper.launcher(q, k, v, factor, causal)

        def on_hopper(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            y = q.new_empty(batch, tokens, heads, size).transpose(1, 2)
            write(q, k, v, y, q.new_empty(batch, heads, tokens, dtype=torch.float32))
            return y

        return on_hopper
    head = alike(q, k, v)[0]
    launch = Launch(
        attention_kernel,
        lambda meta: (triton.cdiv(tokens, meta["QUERIES"]), batch * heads),
        *(head.stride(0), head.stride(2), heads, tokens, factor, size, causal),
    )
    del head

    def answer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = q.new_empty(batch, tokens, heads, size)
        if y.numel():
            launch(*alike(q, k, v), y)
        return y.transpose(1, 2)

    return answer


@in_triton_language.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    batch, heads, tokens, size = q.shape
    return q.new_empty(batch, tokens, heads, size).transpose(1, 2)


def in_cuda(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """Return Y by `cuda/attention.cu`: bfloat16, `size` 64 or 128; heads of a token lie side by side."""
    check(q, k, v)
    demand_alike((torch.bfloat16,), q=q)
    return library().attention(*alike(q, k, v), causal).transpose(1, 2)


def alike(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors if all have one layout, heads of a token side by side, otherwise copies in that layout.

    Tensors and their tokens also have to begin at multiples of 16 bytes, which CUDA C++ loads at once.
    """
    head = tensors[0]
    fits = head.stride(3) == 1 and head.stride(1) == head.shape[3]
    fits = fits and head.stride(0) % ALIGNED == 0 and head.stride(2) % ALIGNED == 0
    begins = all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors)
    if fits and begins and all(tensor.stride() == head.stride() for tensor in tensors):
        return tensors
    return tuple(tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors)


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse arguments that the kernels do not support."""
    demand_alike(q=q, k=k, v=v)
    demand_shape("q", q, -1, -1, -1, -1)
    demand_shape("k", k, *q.shape)
    demand_shape("v", v, *q.shape)
    if q.shape[-1] not in SIZES:
        raise ValueError(f"Heads of {q.shape[-1]} are not accepted; 16, 32, 64 or 128 are.")
