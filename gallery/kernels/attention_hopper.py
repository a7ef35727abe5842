"""Attention for Hopper: `gallery/kernels/attention.py` with warps of different duties, in Gluon.

Shah, Bikshandi, Zhang, Thakkar, Ramani and Dao, "FlashAttention-3", 2024.
"""

from __future__ import annotations

import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS, KEYS, STAGES = 64, 128, 2
"""Queries of a warp group, keys of a block, and how many blocks of keys and of values there is room for."""
GROUPS = 2


@gluon.jit
def produce(
    q,
    k,
    v,
    query_tiles,
    key_tiles,
    value_tiles,
    bars,
    head,
    start,
    blocks,
    D: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
):
    """Bring the queries, and blocks of keys and values from the last to the first."""
    q_full, k_full, k_empty, v_full, v_empty = bars
    mbarrier.expect(q_full, GROUPS * ROWS * D * 2)
    for group in gl.static_range(GROUPS):
        tma.async_copy_global_to_shared(q, [head, start + group * ROWS, 0], q_full, query_tiles.index(group))
    for i in range(blocks):
        at = (blocks - 1 - i) * KEYS
        slot = i % STAGES
        phase = (i // STAGES) & 1
        mbarrier.wait(k_empty.index(slot), phase ^ 1)
        mbarrier.expect(k_full.index(slot), KEYS * D * 2)
        tma.async_copy_global_to_shared(k, [head, at, 0], k_full.index(slot), key_tiles.index(slot))
        mbarrier.wait(v_empty.index(slot), phase ^ 1)
        mbarrier.expect(v_full.index(slot), KEYS * D * 2)
        tma.async_copy_global_to_shared(v, [head, at, 0], v_full.index(slot), value_tiles.index(slot))


@gluon.jit
def consume(
    o,
    kept,
    query_tiles,
    key_tiles,
    value_tiles,
    bars,
    head,
    start,
    blocks,
    queries,
    keys,
    scale,
    D: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Make the answers of one warp group's queries."""
    q_full, k_full, k_empty, v_full, v_empty = bars
    dtype: gl.constexpr = o.dtype
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    BY_S: gl.constexpr = gl.SliceLayout(1, S)
    BY_O: gl.constexpr = gl.SliceLayout(1, O)
    row = start + GROUP * ROWS + gl.arange(0, ROWS, BY_S)
    own = query_tiles.index(GROUP).reshape([ROWS, D])
    nothing = gl.zeros([ROWS, KEYS], gl.float32, S)
    mbarrier.wait(q_full, 0)
    mbarrier.wait(k_full.index(0), 0)
    s = warpgroup_mma(own, key_tiles.index(0).reshape([KEYS, D]).permute([1, 0]), nothing, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, [s])
    mbarrier.arrive(k_empty.index(0))
    column = (blocks - 1) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, S))
    seen = gl.expand_dims(column, 0) < keys
    if CAUSAL:
        seen = seen & (gl.expand_dims(column, 0) <= gl.expand_dims(row, 1))
    s = gl.where(seen, s, float("-inf"))
    top = gl.max(s, 1) * scale
    p = gl.exp2(s * scale - gl.expand_dims(top, 1))
    total = gl.sum(p, 1)
    weights = gl.convert_layout(p.to(dtype), P)
    mean = gl.zeros([ROWS, D], gl.float32, O)
    mbarrier.wait(k_full.index(1 % STAGES), 1 // STAGES, pred=blocks > 1)
    for i in range(1, blocks):
        slot = i % STAGES
        before = (i - 1) % STAGES
        following = (i + 1) % STAGES
        keys_of_block = key_tiles.index(slot).reshape([KEYS, D])
        s = warpgroup_mma(own, keys_of_block.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(before), ((i - 1) // STAGES) & 1)
        mean = warpgroup_mma(weights, value_tiles.index(before).reshape([KEYS, D]), mean, is_async=True)
        s = warpgroup_mma_wait(1, [s])
        mbarrier.arrive(k_empty.index(slot))
        higher = gl.maximum(top, gl.max(s, 1) * scale)
        p = gl.exp2(s * scale - gl.expand_dims(higher, 1))
        shrink = gl.exp2(top - higher)
        total = total * shrink + gl.sum(p, 1)
        top = higher
        # A branch, over which the compiler does not move the exponentials behind the wait for the product.
        mbarrier.wait(k_full.index(following), ((i + 1) // STAGES) & 1, pred=i + 1 < blocks)
        mean, weights = warpgroup_mma_wait(0, [mean, weights])
        mbarrier.arrive(v_empty.index(before))
        mean = mean * gl.expand_dims(gl.convert_layout(shrink, BY_O), 1)
        weights = gl.convert_layout(p.to(dtype), P)
    last = (blocks - 1) % STAGES
    mbarrier.wait(v_full.index(last), ((blocks - 1) // STAGES) & 1)
    mean = warpgroup_mma(weights, value_tiles.index(last).reshape([KEYS, D]), mean, is_async=True)
    mean = warpgroup_mma_wait(0, [mean])
    mean = mean / gl.expand_dims(gl.convert_layout(total, BY_O), 1)
    query_tiles.index(GROUP).reshape([ROWS, D]).store(mean.to(dtype))
    fence_async_shared()
    gl.store(kept + head.to(gl.int64) * queries + row, (top + gl.log2(total)) / 1.4426950408889634, row < queries)
    tma.async_copy_shared_to_global(o, [head, start + GROUP * ROWS, 0], query_tiles.index(GROUP))
    tma.store_wait(0)


@gluon.jit
def attention_kernel(
    q,
    k,
    v,
    o,
    kept,
    queries,
    keys,
    scale,
    D: gl.constexpr,
    CAUSAL: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
):
    head = gl.program_id(1)
    tile = gl.num_programs(0) - 1 - gl.program_id(0) if CAUSAL else gl.program_id(0)
    start = tile * ROWS * GROUPS
    end = gl.minimum(start + ROWS * GROUPS, keys) if CAUSAL else keys
    blocks = gl.cdiv(end, KEYS)
    query_tiles = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, ROWS, D], q.layout)
    key_tiles = gl.allocate_shared_memory(q.dtype, [STAGES, 1, KEYS, D], k.layout)
    value_tiles = gl.allocate_shared_memory(q.dtype, [STAGES, 1, KEYS, D], v.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for slot in gl.static_range(STAGES):
        mbarrier.init(k_full.index(slot), count=1)
        mbarrier.init(v_full.index(slot), count=1)
        mbarrier.init(k_empty.index(slot), count=GROUPS)
        mbarrier.init(v_empty.index(slot), count=GROUPS)
    fence_async_shared()
    bars = (q_full, k_full, k_empty, v_full, v_empty)
    gl.warp_specialize(
        [
            (
                consume,
                (
                    o,
                    kept,
                    query_tiles,
                    key_tiles,
                    value_tiles,
                    bars,
                    head,
                    start,
                    blocks,
                    queries,
                    keys,
                    scale,
                    D,
                    ROWS,
                    KEYS,
                    STAGES,
                    CAUSAL,
                    0,
                ),
            ),
            (
                consume,
                (
                    o,
                    kept,
                    query_tiles,
                    key_tiles,
                    value_tiles,
                    bars,
                    head,
                    start,
                    blocks,
                    queries,
                    keys,
                    scale,
                    D,
                    ROWS,
                    KEYS,
                    STAGES,
                    CAUSAL,
                    1,
                ),
            ),
            (
                produce,
                (
                    q,
                    k,
                    v,
                    query_tiles,
                    key_tiles,
                    value_tiles,
                    bars,
                    head,
                    start,
                    blocks,
                    D,
                    ROWS,
                    KEYS,
                    STAGES,
                    GROUPS,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )


@functools.cache
def is_hopper() -> bool:
    """Return whether there is a GPU with the instructions of Hopper, which no later GPU has."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def demand_hopper(q: torch.Tensor) -> None:
    """Raise `ValueError` unless the kernel takes queries of this type where they are."""
    if q.dtype == torch.float32 or not (q.is_cuda and is_hopper()):
        raise ValueError("'specialised' attention takes float16 and bfloat16 on a Hopper GPU alone; leave it out.")


def tiles(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """Return a descriptor of [batch * heads, tokens, d] in blocks of some tokens of one head."""
    shape = [1, rows, tensor.shape[-1]]
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.bfloat16 if tensor.dtype == torch.bfloat16 else gl.float16)
    return TensorDescriptor.from_tensor(tensor.view(-1, *tensor.shape[-2:]), shape, layout)


def launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, kept: torch.Tensor, scale: float, causal: bool
) -> None:
    """Write o and L; scale is log2(e) / sqrt(d)."""
    batch, heads, queries, size = q.shape
    attention_kernel[(triton.cdiv(queries, ROWS * GROUPS), batch * heads)](
        tiles(q, ROWS), tiles(k, KEYS), tiles(v, KEYS), tiles(o, ROWS), kept, queries, k.shape[2], scale,
        D=size, CAUSAL=causal, ROWS=ROWS, KEYS=KEYS, STAGES=STAGES, GROUPS=GROUPS, num_warps=4,
    )  # fmt: skip
