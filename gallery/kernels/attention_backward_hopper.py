"""The gradients of attention for Hopper: `gallery/kernels/attention_backward.py` with warps of different duties.

What is owned stays in registers, and so does what multiplies it: p and ds come out of one product in the arrangement in
which the next takes its left factor. Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

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

from gallery.kernels.attention_hopper import GROUPS, tiles

OWN = 64
"""Keys, or queries, of a warp group."""
QUERIES, QUERY_STAGES = 64, 2
KEYS, KEY_STAGES = 128, 2
"""Queries, or keys, of a block, and how many blocks there is room for."""


@gluon.jit
def bring(own_a, own_b, a, b, own_a_tiles, own_b_tiles, a_tiles, b_tiles, numbers, bars, head, start, first, blocks,
          OWN: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, D: gl.constexpr):
    """Bring what the warp groups own of two tensors, and blocks of two others; `numbers` come with them if not empty."""
    BYTES: gl.constexpr = BLOCK * D * 2 + (BLOCK * 4 if len(numbers) else 0)
    own_full, a_full, b_full, empty = bars
    mbarrier.expect(own_full, 2 * GROUPS * OWN * D * 2)
    for group in gl.static_range(GROUPS):
        tma.async_copy_global_to_shared(own_a, [head, start + group * OWN, 0], own_full, own_a_tiles.index(group))
        tma.async_copy_global_to_shared(own_b, [head, start + group * OWN, 0], own_full, own_b_tiles.index(group))
    for i in range(blocks):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(a_full.index(slot), BYTES)
        tma.async_copy_global_to_shared(a, [head, first + i * BLOCK, 0], a_full.index(slot), a_tiles.index(slot))
        mbarrier.expect(b_full.index(slot), BYTES)
        tma.async_copy_global_to_shared(b, [head, first + i * BLOCK, 0], b_full.index(slot), b_tiles.index(slot))
        if len(numbers):
            of_a, of_b, of_a_tiles, of_b_tiles = numbers
            tma.async_copy_global_to_shared(of_a, [head, first + i * BLOCK], a_full.index(slot), of_a_tiles.index(slot))
            tma.async_copy_global_to_shared(of_b, [head, first + i * BLOCK], b_full.index(slot), of_b_tiles.index(slot))


@gluon.jit
def barriers(STAGES: gl.constexpr, GROUPS: gl.constexpr):
    """Return barriers: what is owned is there; blocks of either tensor are there; a place for both is free."""
    own_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    a_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    b_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(own_full, count=1)
    for slot in gl.static_range(STAGES):
        mbarrier.init(a_full.index(slot), count=1)
        mbarrier.init(b_full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=GROUPS)
    fence_async_shared()
    return own_full, a_full, b_full, empty


@gluon.jit
def store(tile, value, out, head, at):
    """Write a tile in shared memory, and from there to its place."""
    shape: gl.constexpr = [tile.shape[1], tile.shape[2]]
    tile.reshape(shape).store(value.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [head, at, 0], tile)


@gluon.jit
def own_keys(dk, dv, k_tiles, v_tiles, q_tiles, do_tiles, log_tiles, dot_tiles, bars, head, start, first, blocks, scale,
             OWN: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
             GROUP: gl.constexpr):
    """Make dk and dv of one warp group's keys; blocks are [keys, queries]."""
    own_full, q_full, do_full, empty = bars
    dtype: gl.constexpr = dk.dtype
    BY_QUERY: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    BY_D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, BY_D, 2)
    key = start + GROUP * OWN + gl.arange(0, OWN, gl.SliceLayout(1, BY_QUERY))
    place = gl.arange(0, BLOCK, gl.SliceLayout(0, BY_QUERY))
    k = k_tiles.index(GROUP).reshape([OWN, D])
    v = v_tiles.index(GROUP).reshape([OWN, D])
    nothing = gl.zeros([OWN, BLOCK], gl.float32, BY_QUERY)
    of_k = gl.zeros([OWN, D], gl.float32, BY_D)
    of_v = gl.zeros([OWN, D], gl.float32, BY_D)
    mbarrier.wait(own_full, 0)
    for i in range(blocks):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        q = q_tiles.index(slot).reshape([BLOCK, D])
        do = do_tiles.index(slot).reshape([BLOCK, D])
        mbarrier.wait(q_full.index(slot), phase)
        s = warpgroup_mma(k, q.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.wait(do_full.index(slot), phase)
        dp = warpgroup_mma(v, do.permute([1, 0]), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale - log_tiles.index(slot).load(BY_QUERY))
        if CAUSAL:
            query = first + i * BLOCK + place
            p = gl.where(gl.expand_dims(key, 1) <= gl.expand_dims(query, 0), p, 0.0)
        of_v = warpgroup_mma(gl.convert_layout(p.to(dtype), LEFT), do, of_v, is_async=True)
        dp = warpgroup_mma_wait(1, [dp])
        ds = p * (dp - dot_tiles.index(slot).load(BY_QUERY))
        of_k = warpgroup_mma(gl.convert_layout(ds.to(dtype), LEFT), q, of_k, is_async=True)
        of_k, of_v = warpgroup_mma_wait(0, [of_k, of_v])
        mbarrier.arrive(empty.index(slot))
    store(k_tiles.index(GROUP), of_k * (scale / 1.4426950408889634), dk, head, start + GROUP * OWN)
    store(v_tiles.index(GROUP), of_v, dv, head, start + GROUP * OWN)
    tma.store_wait(0)


@gluon.jit
def of_keys_kernel(q, k, v, do, dk, dv, logs, dots, queries, keys, scale, D: gl.constexpr, CAUSAL: gl.constexpr,
                   OWN: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr):
    """Make dk and dv of the keys of both warp groups."""
    head = gl.program_id(1)
    start = gl.program_id(0) * OWN * GROUPS
    first = start // BLOCK * BLOCK if CAUSAL else 0
    blocks = gl.cdiv(gl.maximum(queries - first, 0), BLOCK)
    k_tiles = gl.allocate_shared_memory(k.dtype, [GROUPS, 1, OWN, D], k.layout)
    v_tiles = gl.allocate_shared_memory(k.dtype, [GROUPS, 1, OWN, D], k.layout)
    q_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, 1, BLOCK, D], q.layout)
    do_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, 1, BLOCK, D], q.layout)
    log_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, BLOCK], logs.layout)
    dot_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, 1, BLOCK], logs.layout)
    bars = barriers(STAGES, GROUPS)
    gl.warp_specialize([
        (own_keys, (dk, dv, k_tiles, v_tiles, q_tiles, do_tiles, log_tiles, dot_tiles, bars, head, start, first,
                    blocks, scale, OWN, BLOCK, STAGES, D, CAUSAL, 0)),
        (own_keys, (dk, dv, k_tiles, v_tiles, q_tiles, do_tiles, log_tiles, dot_tiles, bars, head, start, first,
                    blocks, scale, OWN, BLOCK, STAGES, D, CAUSAL, 1)),
        (bring, (k, v, q, do, k_tiles, v_tiles, q_tiles, do_tiles, (logs, dots, log_tiles, dot_tiles), bars, head, start, first, blocks,
                 OWN, BLOCK, STAGES, GROUPS, D)),
    ], [4, 1], [240, 24])


@gluon.jit
def own_queries(dq, logs, dots, q_tiles, do_tiles, k_tiles, v_tiles, bars, head, start, blocks, keys, scale,
                OWN: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
                EVEN: gl.constexpr, GROUP: gl.constexpr):
    """Make dq of one warp group's queries; blocks are [queries, keys]."""
    own_full, k_full, v_full, empty = bars
    dtype: gl.constexpr = dq.dtype
    BY_KEY: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    BY_D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, BY_D, 2)
    query = start + GROUP * OWN + gl.arange(0, OWN, gl.SliceLayout(1, BY_KEY))
    log = gl.load(logs + query)
    shift = gl.load(dots + query)
    q = q_tiles.index(GROUP).reshape([OWN, D])
    do = do_tiles.index(GROUP).reshape([OWN, D])
    nothing = gl.zeros([OWN, BLOCK], gl.float32, BY_KEY)
    of_q = gl.zeros([OWN, D], gl.float32, BY_D)
    mbarrier.wait(own_full, 0)
    for i in range(blocks):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        k = k_tiles.index(slot).reshape([BLOCK, D])
        v = v_tiles.index(slot).reshape([BLOCK, D])
        mbarrier.wait(k_full.index(slot), phase)
        s = warpgroup_mma(q, k.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(slot), phase)
        dp = warpgroup_mma(do, v.permute([1, 0]), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale - gl.expand_dims(log, 1))
        if CAUSAL or not EVEN:
            key = i * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, BY_KEY))
            seen = gl.expand_dims(key, 0) < keys
            if CAUSAL:
                seen = seen & (gl.expand_dims(key, 0) <= gl.expand_dims(query, 1))
            p = gl.where(seen, p, 0.0)
        dp = warpgroup_mma_wait(0, [dp])
        ds = p * (dp - gl.expand_dims(shift, 1))
        of_q = warpgroup_mma(gl.convert_layout(ds.to(dtype), LEFT), k, of_q, is_async=True)
        of_q = warpgroup_mma_wait(0, [of_q])
        mbarrier.arrive(empty.index(slot))
    store(q_tiles.index(GROUP), of_q * (scale / 1.4426950408889634), dq, head, start + GROUP * OWN)
    tma.store_wait(0)


@gluon.jit
def of_queries_kernel(q, k, v, do, dq, logs, dots, padded, keys, scale, D: gl.constexpr, CAUSAL: gl.constexpr,
                      EVEN: gl.constexpr, OWN: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr,
                      GROUPS: gl.constexpr):
    """Make dq of the queries of both warp groups."""
    head = gl.program_id(1)
    start = (gl.num_programs(0) - 1 - gl.program_id(0) if CAUSAL else gl.program_id(0)) * OWN * GROUPS
    blocks = gl.cdiv(gl.minimum(start + OWN * GROUPS, keys) if CAUSAL else keys, BLOCK)
    q_tiles = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, OWN, D], q.layout)
    do_tiles = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, OWN, D], q.layout)
    k_tiles = gl.allocate_shared_memory(q.dtype, [STAGES, 1, BLOCK, D], k.layout)
    v_tiles = gl.allocate_shared_memory(q.dtype, [STAGES, 1, BLOCK, D], k.layout)
    bars = barriers(STAGES, GROUPS)
    row = head.to(gl.int64) * padded
    gl.warp_specialize([
        (own_queries, (dq, logs + row, dots + row, q_tiles, do_tiles, k_tiles, v_tiles, bars, head, start, blocks,
                       keys, scale, OWN, BLOCK, STAGES, D, CAUSAL, EVEN, 0)),
        (own_queries, (dq, logs + row, dots + row, q_tiles, do_tiles, k_tiles, v_tiles, bars, head, start, blocks,
                       keys, scale, OWN, BLOCK, STAGES, D, CAUSAL, EVEN, 1)),
        (bring, (q, do, k, v, q_tiles, do_tiles, k_tiles, v_tiles, (), bars, head, start, 0, blocks,
                 OWN, BLOCK, STAGES, GROUPS, D)),
    ], [4, 1], [240, 24])


def rows(numbers: torch.Tensor) -> TensorDescriptor:
    """Return a descriptor of [batch * heads, queries, padded] in blocks of some queries of one head."""
    layout = gl.NVMMASharedLayout.get_default_for([1, QUERIES], gl.float32)
    return TensorDescriptor.from_tensor(numbers, [1, QUERIES], layout)


def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor,
           dv: torch.Tensor, logs: torch.Tensor, dots: torch.Tensor, scale: float, causal: bool) -> None:
    """Write dq, dk and dv; scale is log2(e) / sqrt(d), and logs and dots are [batch * heads, queries, padded]."""
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    of_keys_kernel[(triton.cdiv(keys, OWN * GROUPS), batch * heads)](
        tiles(q, QUERIES), tiles(k, OWN), tiles(v, OWN), tiles(do, QUERIES), tiles(dk, OWN), tiles(dv, OWN), rows(logs), rows(dots),
        queries, keys, scale, D=size, CAUSAL=causal, OWN=OWN, BLOCK=QUERIES, STAGES=QUERY_STAGES, GROUPS=GROUPS,
        num_warps=4,
    )  # fmt: skip
    of_queries_kernel[(triton.cdiv(queries, OWN * GROUPS), batch * heads)](
        tiles(q, OWN), tiles(k, KEYS), tiles(v, KEYS), tiles(do, OWN), tiles(dq, OWN), logs, dots, logs.shape[1], keys, scale,
        D=size, CAUSAL=causal, EVEN=keys % KEYS == 0, OWN=OWN, BLOCK=KEYS, STAGES=KEY_STAGES, GROUPS=GROUPS,
        num_warps=4,
    )  # fmt: skip
