"""Attention: for every query the mean of all values, weighted by how well query and key agree.

Mathematics: oᵢ = Σⱼ pᵢⱼ vⱼ with pᵢⱼ = exp(sᵢⱼ) / Σₖ exp(sᵢₖ) and sᵢⱼ = qᵢ · kⱼ / √d; causal: only j ≤ i.
q [batch, heads, queries, d], k and v [batch, heads, keys, d], d 64 or 128. Kept for the gradient: Lᵢ = ln Σⱼ exp(sᵢⱼ).
Dao, Fu, Ermon, Rudra and Ré, "FlashAttention", 2022; Dao, "FlashAttention-2", 2023.
Lesson: why s is never written to memory. It has queries × keys elements, and at 8,192 tokens writing and reading it
would take longer than all products. A program keeps a block of queries, takes one block of keys and values after the
other, and rescales its sums when a larger s appears: the *online softmax* (Milakov and Gimelshein, 2018).
- Why subtract the maximum? exp(89) is infinite in float32, and exp(s − max) never exceeds 1. The maximum of the blocks
  so far is enough: when a block raises it, the sums so far are multiplied by exp(old maximum − new one).
- Why powers of two? The hardware's function is 2ˣ: log₂ e is multiplied into the scale once.
- Why two loops? Only blocks that the diagonal or the last key cuts need masks; the others need no comparisons.
- Why keep L? It combines maximum and sum in one number, from which the gradient can compute any p again.
Hopper runs `attention_hopper.py` in 16 bits: tensor descriptors, and warps with different duties.
In the product: `kernels/ops/points/sum_kernel.py` sums functions of rows and points over blocks of points as this
kernel does over keys.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

from gallery.arguments import FLOATS, demand_alike, demand_shape
from gallery.dots import dot
from gallery.exhibit import Exhibit, Size
from gallery.kernels import attention_hopper
from gallery.kernels.attention_backward import (
    LOG2_E,
    aligned,
    attention_backward,
    load_rows,
    of_keys_kernel,
    of_queries_kernel,
    place,
    store_rows,
)
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("small tiles", "fit the shared memory of every GPU, and of float32", {"BM": 64, "BN": 32}, 4, 2),
    Choice("narrow tiles", "more blocks of keys are under way at once", {"BM": 128, "BN": 64}, 8, 3),
    Choice("large tiles", "keys and values are read by the fewest programs", {"BM": 128, "BN": 128}, 8, 2),
)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """Return o, with s written to memory."""
    s = q / math.sqrt(q.shape[-1]) @ k.mT
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(s, -1) @ v


@tuned(CHOICES, key=["queries", "keys", "D", "CAUSAL"])
@triton.jit
def attention_kernel(
    q,  # [batch * heads, queries, D]
    k,  # [batch * heads, keys, D]
    v,  # like k
    o,  # like q
    kept,  # float32 [batch * heads, queries]
    queries,
    keys,
    scale,  # log2(e) / sqrt(D)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Compute one block of queries of one head; with a diagonal, the blocks with most keys come first."""
    head, tile = place(tl.cdiv(queries, BM), CAUSAL)
    start = tile * BM
    row = start + tl.arange(0, BM)
    block = load_rows(q + head * queries * D, start, queries, D, BM, True)
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    mean = tl.zeros([BM, D], tl.float32)
    of_head = head * keys * D
    end = tl.minimum(start + BM, keys) if CAUSAL else keys
    whole = (tl.minimum(start, keys) if CAUSAL else keys) // BN * BN
    mean, total, top = over_keys(
        block, k + of_head, v + of_head, mean, total, top, row, 0, whole, keys, scale, D, CAUSAL, PRECISION, BN, False
    )
    mean, total, top = over_keys(
        block, k + of_head, v + of_head, mean, total, top, row, whole, end, keys, scale, D, CAUSAL, PRECISION, BN, True
    )
    store_rows(o + head * queries * D, mean / total[:, None], start, queries, D, BM)
    tl.store(kept + head * queries + row, (top + tl.log2(total)) / 1.4426950408889634, mask=row < queries)


@triton.jit
def over_keys(
    block,
    k,
    v,
    mean,  # float32 [BM, D]: the sum of the values so far, weighted
    total,  # float32 [BM]: the sum of the weights
    top,  # float32 [BM]: the largest exponent, which all weights are relative to
    row,
    first,
    end,
    keys,
    scale,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return `mean`, `total` and `top` with the keys from `first` to `end` added."""
    for at in tl.range(first, end, BN):
        nothing = tl.zeros([block.shape[0], BN], tl.float32)
        s = dot(block, load_rows(k, at, keys, D, BN, MASKED).T, nothing, PRECISION)
        if MASKED:
            column = at + tl.arange(0, BN)
            seen = (column < keys)[None, :]
            if CAUSAL:
                seen = seen & (column[None, :] <= row[:, None])
            s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1) * scale)
        p = tl.exp2(s * scale - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, axis=1)
        values = load_rows(v, at, keys, D, BN, MASKED)
        mean = dot(p.to(values.dtype), values, mean * shrink[:, None], PRECISION)
        top = higher
    return mean, total, top


def demand_attention(**tensors: torch.Tensor) -> None:
    """Raise `TypeError` or `ValueError` unless the types and shapes of q, k and v are accepted."""
    demand_alike(FLOATS, **tensors)
    q = tensors["q"]
    demand_shape("q", q, -1, -1, -1, -1)
    batch, heads, _, size = q.shape
    if size not in attention_hopper.HEAD_SIZES:
        raise ValueError(
            f"'q' has heads of {size}; accepted are {' and '.join(map(str, attention_hopper.HEAD_SIZES))}."
        )
    demand_shape("k", tensors["k"], batch, heads, -1, size)
    demand_shape("v", tensors["v"], batch, heads, tensors["k"].shape[2], size)


@torch.library.custom_op("gallery::attention", mutates_args=())
def attention_with_logarithms(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, portable: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o and L; `portable` as for `attention`."""
    demand_attention(q=q, k=k, v=v)
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    kept = torch.full(q.shape[:3], -math.inf, dtype=torch.float32, device=q.device)
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    if not q.numel() or not k.numel():
        return o.zero_(), kept
    scale = LOG2_E / math.sqrt(size)
    if not portable and attention_hopper.suits(q):
        attention_hopper.launch(q, k, v, o, kept, scale, causal)
        return o, kept
    q, k, v = aligned(q), aligned(k), aligned(v)
    attention_kernel[lambda meta: (triton.cdiv(queries, meta["BM"]) * batch * heads,)](
        q, k, v, o, kept, queries, keys, scale,
        D=size, CAUSAL=causal, PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    return o, kept


@attention_with_logarithms.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, portable: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(q.shape[:3], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    q, k, v, ctx.causal, ctx.portable = inputs
    o, kept = output
    ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)  # its zeros would be written for nothing
    ctx.save_for_backward(q, k, v, o, kept)


def _gradients(context: Any, gradient: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 5
    return *attention_backward(gradient, *context.saved_tensors, context.causal, context.portable), None, None


attention_with_logarithms.register_autograd(_gradients, setup_context=_keep)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, portable: bool = False
) -> torch.Tensor:
    """Return o of q's shape and type, float32, float16 or bfloat16; tensors of any strides are copied into rows first.

    q [batch, heads, queries, d], k and v [batch, heads, keys, d], d 64 or 128. Without keys o is 0.
    `causal`: query i only sees the keys up to i. On a Hopper GPU float16 and bfloat16 are computed by kernels with
    warps of different duties; in all other cases, and with `portable`, by kernels that every GPU runs. Gradients are
    computed by kernels too, with the same bits each time. Raises `TypeError` or `ValueError` for other types and
    shapes.
    """
    return attention_with_logarithms(q, k, v, causal, portable)[0]


def sample(
    size: Size, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """Return q, k, v and whether causal, of a size (batch, heads, queries, keys, d, causal)."""
    batch, heads, queries, keys, width, causal = size
    draw = partial(torch.randn, dtype=dtype, device=device)
    k, v = draw((2, batch, heads, keys, width)).unbind()
    return draw((batch, heads, queries, width)), k, v, bool(causal)


def by_torch(backend: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return o by one of torch's own kernels, each of which takes some types on some GPUs."""
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


WAYS = {"attention": attention}
if attention_hopper.is_hopper():
    WAYS["portable"] = partial(attention, portable=True)

EXHIBIT = Exhibit(
    name="attention",
    formula="oᵢ = Σⱼ softmaxⱼ(qᵢ · kⱼ / √d) vⱼ, q, k, v [batch, heads, tokens, d]",
    reference=reference,
    ways=WAYS,
    peers={
        "cuDNN": partial(by_torch, SDPBackend.CUDNN_ATTENTION),
        "torch's flash attention": partial(by_torch, SDPBackend.FLASH_ATTENTION),
    },
    sample=sample,
    sizes=[
        (0, 2, 5, 5, 64, 0),
        (1, 2, 0, 3, 64, 0),
        (1, 1, 2, 0, 64, 1),
        (1, 1, 2, 3, 64, 0),
        (2, 1, 7, 33, 64, 0),
        (1, 1, 150, 150, 64, 1),
        (1, 1, 140, 30, 128, 1),
        (1, 1, 129, 200, 128, 1),
    ],
    curve=[(1, 16, tokens, tokens, 128, 0) for tokens in (512, 1024, 2048, 4096, 8192, 16384)],
    lengths="sequences x heads x queries x keys x d (64 or 128) x causal (0 or 1)",
    tolerances={torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 5e-6},
    traffic=lambda q, k, v, causal: (2 * q.numel() + k.numel() + v.numel()) * q.element_size(),
    work=lambda q, k, v, causal: 4 * q.numel() * k.shape[2] // (2 if causal else 1),
    differentiable=True,
    backward_work=lambda q, k, v, causal: 10 * q.numel() * k.shape[2] // (2 if causal else 1),
    chosen=lambda: chosen(attention_kernel, of_keys_kernel, of_queries_kernel),
    axis=("tokens", lambda size: size[2]),
)
