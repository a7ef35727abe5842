"""Attention for Hopper: `attention.py` with tensor descriptors and warps of different duties, in Gluon.

Mathematics and shapes are those of `attention.py`; float16 and bfloat16. Shah, Bikshandi, Zhang, Thakkar, Ramani and
Dao, "FlashAttention-3", 2024. Gluon is the layer of the Triton language in which layouts, barriers and the duties of
warps are explicit; its interpreter does not run such kernels.
Lesson: matrix units and exponentials are different hardware, and a loop that waits for one before it begins with
the other uses each half of the time.
- *Descriptors*: one thread asks for a block by its corner, and a copy engine loads it, with zeros beyond the end.
- *Warps of different duties*: one warp loads blocks, and needs 24 registers a thread; two groups of four warps
  compute, with 240 each, enough for a block of s, one of p and the sums. They meet at barriers in shared memory: a
  place is full, or empty again. They request products in turns: while one group computes its exponentials, the other
  uses the matrix units.
- *Late waits for products*: within a group, p v of the last block runs while this block's exponentials are computed. A
  product reads p from registers until it is complete, so these must not be written before.
- *Persistent programs*: there are as many as multiprocessors, and each computes one tile of queries after the other.
  While an answer is on its way to memory, the inputs of the next one are loaded. Causal tiles see different numbers of
  keys: the longest come first, and the program with the longest tile of a round gets the shortest of the next, so that
  all programs end at about the same time.
Blocks come from the last to the first: only the last one, before the loop, needs a mask.
In the product: `kernels/ops/networks/int8_device.py` chooses what the matrix units multiply, and leaves the schedule to
the compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

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

from gallery.descriptors import describable, multiprocessors
from gallery.launches import Launch, by_layout

HEAD_SIZES = (64, 128)

ROWS = gl.constexpr(64)
"""The number of queries of a group."""
KEYS = gl.constexpr(128)
"""The number of keys in a block."""
GROUPS = gl.constexpr(2)


@gluon.jit
def new_barriers(count: gl.constexpr, arrivals: gl.constexpr):
    """Return barriers, each of which opens after a number of arrivals, again and again."""
    found = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(count):
        mbarrier.init(found.index(slot), count=arrivals)
    return found


@gluon.jit
def place_of(turn, all_heads, queries, keys, CAUSAL: gl.constexpr):
    """Return head, first query and blocks of keys of a turn: head by head, or, if causal, the longest of all first."""
    tiles = gl.cdiv(queries, ROWS * GROUPS)
    if CAUSAL:
        head = turn % all_heads
        start = (tiles - 1 - turn // all_heads) * ROWS * GROUPS
        end = gl.minimum(start + ROWS * GROUPS, keys)
    else:
        head = turn // tiles
        start = turn % tiles * ROWS * GROUPS
        end = keys
    return head, start, gl.cdiv(end, KEYS)


@gluon.jit
def after(turn):
    """Return a program's next turn: the program with the longest tile of a round gets the shortest of the next."""
    return turn + 2 * (gl.num_programs(0) - turn % gl.num_programs(0)) - 1


@gluon.jit
def bring(q, k, v, tiles, barriers, sizes, D: gl.constexpr, CAUSAL: gl.constexpr):
    """Load the queries of every turn, and its blocks of keys and values from the last to the first."""
    query_tiles, _, key_tiles, value_tiles = tiles
    q_full, k_full, k_empty, v_full, v_empty, _ = barriers
    heads, all_heads, queries, keys, turns = sizes
    STAGES: gl.constexpr = key_tiles.shape[0]
    done = 0
    turn = gl.program_id(0)
    while turn < turns:
        head, start, blocks = place_of(turn, all_heads, queries, keys, CAUSAL)
        batch = head // heads
        head = head % heads
        for i in range(blocks):
            at = (blocks - 1 - i) * KEYS
            slot = (done + i) % STAGES
            phase = (done + i) // STAGES & 1
            mbarrier.wait(k_empty.index(slot), phase ^ 1)
            mbarrier.expect(k_full.index(slot), KEYS * D * 2)
            tma.async_copy_global_to_shared(k, [batch, head, at, 0], k_full.index(slot), key_tiles.index(slot))
            if i == 0:
                # The product with the last block of keys is complete, so the queries of the turn before are free.
                mbarrier.wait(k_empty.index((done - 1) % STAGES), (done - 1) // STAGES & 1, pred=done > 0)
                mbarrier.expect(q_full.index(0), GROUPS * ROWS * D * 2)
                for group in gl.static_range(GROUPS):
                    corner = [batch, head, start + group * ROWS, 0]
                    tma.async_copy_global_to_shared(q, corner, q_full.index(0), query_tiles.index(group))
            mbarrier.wait(v_empty.index(slot), phase ^ 1)
            mbarrier.expect(v_full.index(slot), KEYS * D * 2)
            tma.async_copy_global_to_shared(v, [batch, head, at, 0], v_full.index(slot), value_tiles.index(slot))
        done += blocks
        turn = after(turn)


@gluon.jit
def make(
    o, kept, tiles, barriers, sizes, scale,
    D: gl.constexpr, CAUSAL: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Compute the answers of one group's queries of every turn."""
    query_tiles, out_tiles, key_tiles, value_tiles = tiles
    q_full, k_full, k_empty, v_full, v_empty, to_multiply = barriers
    heads, all_heads, queries, keys, turns = sizes
    STAGES: gl.constexpr = key_tiles.shape[0]
    BY_KEY: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    BY_D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, BY_D, 2)
    FIRST: gl.constexpr = 1 - GROUP  # group 0 does not wait for the other before its first product
    own = query_tiles.index(GROUP).reshape([ROWS, D])
    nothing = gl.zeros([ROWS, KEYS], gl.float32, BY_KEY)
    done = 0
    turned = 0
    turn = gl.program_id(0)
    while turn < turns:
        head, start, blocks = place_of(turn, all_heads, queries, keys, CAUSAL)
        row = start + GROUP * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, BY_KEY))
        mbarrier.wait(q_full.index(0), turned & 1)
        mbarrier.wait(k_full.index(done % STAGES), done // STAGES & 1)
        block = key_tiles.index(done % STAGES).reshape([KEYS, D])
        mbarrier.wait(to_multiply.index(GROUP), done & 1 ^ FIRST)
        s = warpgroup_mma(own, block.permute([1, 0]), nothing, use_acc=False, is_async=True)
        mbarrier.arrive(to_multiply.index(1 - GROUP))
        s = warpgroup_mma_wait(0, [s])
        mbarrier.arrive(k_empty.index(done % STAGES))
        column = gl.expand_dims((blocks - 1) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, BY_KEY)), 0)
        seen = column < keys
        if CAUSAL:
            seen = seen & (column <= gl.expand_dims(row, 1))
        s = gl.where(seen, s, float("-inf"))
        top = gl.max(s, 1) * scale
        p = gl.exp2(s * scale - gl.expand_dims(top, 1))
        total = gl.sum(p, 1)
        weights = gl.convert_layout(p.to(o.dtype), LEFT)
        mean = gl.zeros([ROWS, D], gl.float32, BY_D)
        mbarrier.wait(k_full.index((done + 1) % STAGES), (done + 1) // STAGES & 1, pred=blocks > 1)
        for i in range(done + 1, done + blocks):
            slot = i % STAGES
            before = (i - 1) % STAGES
            block = key_tiles.index(slot).reshape([KEYS, D])
            mbarrier.wait(to_multiply.index(GROUP), i & 1 ^ FIRST)
            s = warpgroup_mma(own, block.permute([1, 0]), nothing, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(before), (i - 1) // STAGES & 1)
            mean = warpgroup_mma(weights, value_tiles.index(before).reshape([KEYS, D]), mean, is_async=True)
            mbarrier.arrive(to_multiply.index(1 - GROUP))
            s = warpgroup_mma_wait(1, [s])
            mbarrier.arrive(k_empty.index(slot))
            higher = gl.maximum(top, gl.max(s, 1) * scale)
            p = gl.exp2(s * scale - gl.expand_dims(higher, 1))
            shrink = gl.exp2(top - higher)
            total = total * shrink + gl.sum(p, 1)
            top = higher
            # This waits in a loop of its own, and the assembler moves no exponential from before behind the product.
            mbarrier.wait(k_full.index((i + 1) % STAGES), (i + 1) // STAGES & 1, pred=i + 1 < done + blocks)
            mean, weights = warpgroup_mma_wait(0, [mean, weights])
            mbarrier.arrive(v_empty.index(before))
            mean = mean * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, BY_D)), 1)
            weights = gl.convert_layout(p.to(o.dtype), LEFT)
        done += blocks
        turned += 1
        last = (done - 1) % STAGES
        mbarrier.wait(v_full.index(last), (done - 1) // STAGES & 1)
        mean = warpgroup_mma(weights, value_tiles.index(last).reshape([KEYS, D]), mean, is_async=True)
        mean = warpgroup_mma_wait(0, [mean])
        mbarrier.arrive(v_empty.index(last))
        mean = mean / gl.expand_dims(gl.convert_layout(total, gl.SliceLayout(1, BY_D)), 1)
        gl.store(kept + head * queries + row, (top + gl.log2(total)) / 1.4426950408889634, row < queries)
        tma.store_wait(0)
        store_tile(out_tiles.index(GROUP), mean, o, [head // heads, head % heads, start + GROUP * ROWS, 0])
        turn = after(turn)
    tma.store_wait(0)


@gluon.jit
def store_tile(tile, value, out, corner):
    """Write a tile to shared memory, and have it copied to its place."""
    tile.reshape([tile.shape[2], tile.shape[3]]).store(value.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, corner, tile)


@gluon.jit(do_not_specialize=["heads", "all_heads", "queries", "keys", "turns"])
def attention_hopper_kernel(
    q, k, v, o, kept, heads, all_heads, queries, keys, turns, scale, D: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """Compute one tile for each turn; q, k, v, o: descriptors, kept: float32 [all_heads, queries]."""
    STAGES: gl.constexpr = 3 if D == 64 else 2  # as many blocks as there is room for
    sizes = (heads, all_heads, queries, keys, turns)
    tiles = (
        gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, ROWS, D], q.layout),
        gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, ROWS, D], o.layout),
        gl.allocate_shared_memory(q.dtype, [STAGES, 1, 1, KEYS, D], k.layout),
        gl.allocate_shared_memory(q.dtype, [STAGES, 1, 1, KEYS, D], v.layout),
    )
    k_full, k_empty = new_barriers(STAGES, 1), new_barriers(STAGES, GROUPS)
    v_full, v_empty = new_barriers(STAGES, 1), new_barriers(STAGES, GROUPS)
    barriers = (new_barriers(1, 1), k_full, k_empty, v_full, v_empty, new_barriers(GROUPS, 1))
    fence_async_shared()
    gl.warp_specialize(
        [
            (make, (o, kept, tiles, barriers, sizes, scale, D, CAUSAL, 0)),
            (make, (o, kept, tiles, barriers, sizes, scale, D, CAUSAL, 1)),
            (bring, (q, k, v, tiles, barriers, sizes, D, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )


@functools.cache
def is_hopper() -> bool:
    """Return whether there is a Hopper GPU; later GPUs lack its instructions."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def suits(q: torch.Tensor) -> bool:
    """Return whether the kernels take queries of this type, size of heads and device."""
    return q.is_cuda and is_hopper() and q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] in HEAD_SIZES


def describe(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """Return a descriptor of [batch, heads, tokens, d] in blocks of some tokens of one head."""
    shape = [1, 1, rows, tensor.shape[-1]]
    return TensorDescriptor.from_tensor(tensor, shape, layout_of(*shape, of=tensor.dtype))


@functools.cache
def layout_of(*shape: int, of: torch.dtype) -> gl.NVMMASharedLayout:
    """Return a block's layout in shared memory; it is cached, as finding it takes longer than making a descriptor."""
    return gl.NVMMASharedLayout.get_default_for(shape, gl.bfloat16 if of == torch.bfloat16 else gl.float16)


def launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, kept: torch.Tensor, scale: float, causal: bool
) -> None:
    """Write o, of any strides that a descriptor may have, and L, in rows; scale is log2(e) / sqrt(d).

    q, k and v are read in place; a tensor that no descriptor can describe is copied into rows first.
    """
    launcher(q, k, v, scale, causal)(q, k, v, o, kept)


@by_layout
def launcher(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Callable[..., None]:
    """Return what `launch` does with tensors of these layouts."""
    copied = [not describable(each) for each in (q, k, v)]
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    turns = triton.cdiv(queries, ROWS.value * GROUPS.value) * batch * heads
    kernel = Launch(
        attention_hopper_kernel,
        (min(turns, multiprocessors(q.device)),),
        *(heads, batch * heads, queries, keys, turns, scale, size, causal),
        num_warps=4,
    )

    def write(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, kept: torch.Tensor) -> None:
        if any(copied):
            q, k, v = (
                each.clone(memory_format=torch.contiguous_format) if unfit else each
                for each, unfit in zip((q, k, v), copied, strict=True)
            )
        kernel(describe(q, ROWS.value), describe(k, KEYS.value), describe(v, KEYS.value), describe(o, ROWS.value), kept)

    return write
