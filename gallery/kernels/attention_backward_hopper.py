"""The gradients of attention for Hopper: `attention_backward.py` with warps of different duties, in Gluon.

Mathematics and shapes are those of `attention_backward.py`, the duties those of `attention_hopper.py`.
Lesson: the sums that a group owns stay in registers, and so do their left factors. p and ds come out of one product in
exactly the layout in which the next product takes its left factor, if a group's rows own the sums: keys for dk and dv,
for which s is computed as k qᵀ, and queries for dq. No data passes between groups, and shared memory, whose bandwidth
is the next limit after the matrix units, only holds right factors.
L and D are loaded with their block of queries, as a thread has no registers left to load them early.
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

from gallery.kernels.attention_hopper import GROUPS, describe, new_barriers, store_tile

OWN = gl.constexpr(64)
"""The number of keys, or queries, that a group owns."""
QUERIES = gl.constexpr(64)
"""The number of queries in a block, for a group that owns keys."""
KEYS = gl.constexpr(128)
"""The number of keys in a block, for a group that owns queries."""
STAGES = gl.constexpr(2)
"""The number of blocks that shared memory holds at once."""


@gluon.jit
def head_and_tile(tiles, LAST_FIRST: gl.constexpr):
    """Return a program's head and tile; programs of a head are neighbours, as they read the same keys."""
    tile = gl.program_id(0) % tiles
    return gl.program_id(0) // tiles, tiles - 1 - tile if LAST_FIRST else tile


@gluon.jit
def bring(owned, others, numbers, tiles, barriers, place, BLOCK: gl.constexpr, D: gl.constexpr):
    """Load the groups' own rows of two tensors, then blocks of two others, with the `numbers` of their rows if any."""
    full, first_full, second_full, empty = barriers
    head, start, first, blocks, _ = place
    mbarrier.expect(full.index(0), 2 * GROUPS * OWN * D * 2)
    for group in gl.static_range(GROUPS):
        at = start + group * OWN
        tma.async_copy_global_to_shared(owned[0], [0, head, at, 0], full.index(0), tiles[0].index(group))
        tma.async_copy_global_to_shared(owned[1], [0, head, at, 0], full.index(0), tiles[1].index(group))
    BYTES: gl.constexpr = BLOCK * D * 2 + (BLOCK * 4 if len(numbers) else 0)
    for i in range(blocks):
        at = first + i * BLOCK
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), ((i // STAGES) & 1) ^ 1)
        mbarrier.expect(first_full.index(slot), BYTES)
        tma.async_copy_global_to_shared(others[0], [0, head, at, 0], first_full.index(slot), tiles[2].index(slot))
        if len(numbers):
            tma.async_copy_global_to_shared(numbers[0], [head, at], first_full.index(slot), tiles[4].index(slot))
        mbarrier.expect(second_full.index(slot), BYTES)
        tma.async_copy_global_to_shared(others[1], [0, head, at, 0], second_full.index(slot), tiles[3].index(slot))
        if len(numbers):
            tma.async_copy_global_to_shared(numbers[1], [head, at], second_full.index(slot), tiles[5].index(slot))


@gluon.jit
def own_keys(dk, dv, tiles, barriers, place, scale, D: gl.constexpr, CAUSAL: gl.constexpr, GROUP: gl.constexpr):
    """Compute dk and dv of one group's keys; blocks are [keys, queries]."""
    k_tiles, v_tiles, q_tiles, do_tiles, log_tiles, dot_tiles = tiles
    full, q_full, do_full, empty = barriers
    head, start, first, blocks, _ = place
    BY_QUERY: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    BY_D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, BY_D, 2)
    key = gl.expand_dims(start + GROUP * OWN + gl.arange(0, OWN, gl.SliceLayout(1, BY_QUERY)), 1)
    k = k_tiles.index(GROUP).reshape([OWN, D])
    v = v_tiles.index(GROUP).reshape([OWN, D])
    nothing = gl.zeros([OWN, QUERIES], gl.float32, BY_QUERY)
    of_k = gl.zeros([OWN, D], gl.float32, BY_D)
    of_v = gl.zeros([OWN, D], gl.float32, BY_D)
    mbarrier.wait(full.index(0), 0)
    for i in range(blocks):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        q = q_tiles.index(slot).reshape([QUERIES, D])
        do = do_tiles.index(slot).reshape([QUERIES, D])
        mbarrier.wait(q_full.index(slot), phase)
        s = warpgroup_mma(k, q.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.wait(do_full.index(slot), phase)
        dp = warpgroup_mma(v, do.permute([1, 0]), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale - log_tiles.index(slot).load(BY_QUERY))
        if CAUSAL:
            query = first + i * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(0, BY_QUERY))
            p = gl.where(key <= gl.expand_dims(query, 0), p, 0.0)
        of_v = warpgroup_mma(gl.convert_layout(p.to(dk.dtype), LEFT), do, of_v, is_async=True)
        dp = warpgroup_mma_wait(1, [dp])
        ds = p * (dp - dot_tiles.index(slot).load(BY_QUERY))
        of_k = warpgroup_mma(gl.convert_layout(ds.to(dk.dtype), LEFT), q, of_k, is_async=True)
        of_k, of_v = warpgroup_mma_wait(0, [of_k, of_v])
        mbarrier.arrive(empty.index(slot))
    store_tile(k_tiles.index(GROUP), of_k * (scale / 1.4426950408889634), dk, [0, head, start + GROUP * OWN, 0])
    store_tile(v_tiles.index(GROUP), of_v, dv, [0, head, start + GROUP * OWN, 0])
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["queries", "keys"])
def of_keys_hopper_kernel(
    q, k, v, do, dk, dv, logs, dots, queries, keys, scale, D: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """Compute dk and dv of the keys of both groups of one head; tensors are descriptors."""
    head, tile = head_and_tile(gl.cdiv(keys, OWN * GROUPS), False)
    start = tile * OWN * GROUPS
    first = start // QUERIES * QUERIES if CAUSAL else 0
    place = (head, start, first, gl.cdiv(gl.maximum(queries - first, 0), QUERIES), keys)
    tiles = (
        gl.allocate_shared_memory(k.dtype, [GROUPS, 1, 1, OWN, D], k.layout),
        gl.allocate_shared_memory(k.dtype, [GROUPS, 1, 1, OWN, D], v.layout),
        gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, QUERIES, D], q.layout),
        gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, QUERIES, D], do.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, 1, QUERIES], logs.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, 1, QUERIES], dots.layout),
    )
    barriers = (new_barriers(1, 1), new_barriers(STAGES, 1), new_barriers(STAGES, 1), new_barriers(STAGES, GROUPS))
    fence_async_shared()
    gl.warp_specialize(
        [
            (own_keys, (dk, dv, tiles, barriers, place, scale, D, CAUSAL, 0)),
            (own_keys, (dk, dv, tiles, barriers, place, scale, D, CAUSAL, 1)),
            (bring, ((k, v), (q, do), (logs, dots), tiles, barriers, place, QUERIES, D)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def own_queries(
    dq, logs, dots, tiles, barriers, place, scale,
    D: gl.constexpr, CAUSAL: gl.constexpr, EVEN: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Compute dq of one group's queries; blocks are [queries, keys]."""
    q_tiles, do_tiles, k_tiles, v_tiles = tiles
    full, k_full, v_full, empty = barriers
    head, start, _, blocks, keys = place
    BY_KEY: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    BY_D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, BY_D, 2)
    query = start + GROUP * OWN + gl.arange(0, OWN, gl.SliceLayout(1, BY_KEY))
    log = gl.expand_dims(gl.load(logs + query), 1)
    shift = gl.expand_dims(gl.load(dots + query), 1)
    q = q_tiles.index(GROUP).reshape([OWN, D])
    do = do_tiles.index(GROUP).reshape([OWN, D])
    nothing = gl.zeros([OWN, KEYS], gl.float32, BY_KEY)
    of_q = gl.zeros([OWN, D], gl.float32, BY_D)
    mbarrier.wait(full.index(0), 0)
    for i in range(blocks):
        slot = i % STAGES
        phase = (i // STAGES) & 1
        k = k_tiles.index(slot).reshape([KEYS, D])
        v = v_tiles.index(slot).reshape([KEYS, D])
        mbarrier.wait(k_full.index(slot), phase)
        s = warpgroup_mma(q, k.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(slot), phase)
        dp = warpgroup_mma(do, v.permute([1, 0]), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale - log)
        if CAUSAL or not EVEN:
            key = gl.expand_dims(i * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, BY_KEY)), 0)
            seen = key < keys
            if CAUSAL:
                seen = seen & (key <= gl.expand_dims(query, 1))
            p = gl.where(seen, p, 0.0)
        dp = warpgroup_mma_wait(0, [dp])
        ds = p * (dp - shift)
        of_q = warpgroup_mma(gl.convert_layout(ds.to(dq.dtype), LEFT), k, of_q, is_async=True)
        of_q = warpgroup_mma_wait(0, [of_q])
        mbarrier.arrive(empty.index(slot))
    store_tile(q_tiles.index(GROUP), of_q * (scale / 1.4426950408889634), dq, [0, head, start + GROUP * OWN, 0])
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["queries", "padded", "keys"])
def of_queries_hopper_kernel(
    q, k, v, do, dq, logs, dots, queries, padded, keys, scale, D: gl.constexpr, CAUSAL: gl.constexpr, EVEN: gl.constexpr
):  # fmt: skip
    """Compute dq of the queries of both groups of one head; tensors are descriptors, except logs and dots."""
    head, tile = head_and_tile(gl.cdiv(queries, OWN * GROUPS), CAUSAL)
    start = tile * OWN * GROUPS
    end = gl.minimum(start + OWN * GROUPS, keys) if CAUSAL else keys
    place = (head, start, 0, gl.cdiv(end, KEYS), keys)
    tiles = (
        gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, OWN, D], q.layout),
        gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, OWN, D], do.layout),
        gl.allocate_shared_memory(q.dtype, [STAGES, 1, 1, KEYS, D], k.layout),
        gl.allocate_shared_memory(q.dtype, [STAGES, 1, 1, KEYS, D], v.layout),
    )
    barriers = (new_barriers(1, 1), new_barriers(STAGES, 1), new_barriers(STAGES, 1), new_barriers(STAGES, GROUPS))
    fence_async_shared()
    logs += head.to(gl.int64) * padded
    dots += head.to(gl.int64) * padded
    gl.warp_specialize(
        [
            (own_queries, (dq, logs, dots, tiles, barriers, place, scale, D, CAUSAL, EVEN, 0)),
            (own_queries, (dq, logs, dots, tiles, barriers, place, scale, D, CAUSAL, EVEN, 1)),
            (bring, ((q, do), (k, v), (), tiles, barriers, place, KEYS, D)),
        ],
        [4, 1],
        [240, 24],
    )


def describe_numbers(numbers: torch.Tensor) -> TensorDescriptor:
    """Return a descriptor of [batch * heads, padded] in blocks of some queries of one head."""
    shape = [1, QUERIES.value]
    return TensorDescriptor.from_tensor(numbers, shape, gl.NVMMASharedLayout.get_default_for(shape, gl.float32))


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    logs: torch.Tensor,
    dots: torch.Tensor,
    scale: float,
    causal: bool,
) -> None:
    """Write dq, dk and dv; scale is log2(e) / sqrt(d), and logs and dots are float32 [batch * heads, padded]."""
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    q, k, v, do, dq, dk, dv = (each.view(1, -1, *each.shape[2:]) for each in (q, k, v, do, dq, dk, dv))
    own, several = OWN.value, OWN.value * GROUPS.value
    owned = [describe(tensor, own) for tensor in (k, v, dk, dv)]
    q_blocks, do_blocks = describe(q, QUERIES.value), describe(do, QUERIES.value)
    of_keys_hopper_kernel[(triton.cdiv(keys, several) * batch * heads,)](
        q_blocks, *owned[:2], do_blocks, *owned[2:], describe_numbers(logs), describe_numbers(dots),
        queries, keys, scale, D=size, CAUSAL=causal, num_warps=4,
    )  # fmt: skip
    k_blocks, v_blocks = describe(k, KEYS.value), describe(v, KEYS.value)
    of_queries_hopper_kernel[(triton.cdiv(queries, several) * batch * heads,)](
        describe(q, own), k_blocks, v_blocks, describe(do, own), describe(dq, own), logs, dots, queries,
        logs.shape[1], keys, scale, D=size, CAUSAL=causal, EVEN=keys % KEYS.value == 0, num_warps=4,
    )  # fmt: skip
