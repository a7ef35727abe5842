"""Kernels of `path_contributions.py`, which has the mathematics: where rows go, and walks over chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from .integer_sum import ROUND
from .terms import meets

ROUND_BITS = 0x4338000000000000
"""The bits of `ROUND`."""


@triton.jit
def goes_left(
    x, node, place, words, thresholds, sets, mask,
    WORDS: tl.constexpr, FLOOR: tl.constexpr, MISSING: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Return whether nodes send rows to the left, bool `[nodes, rows]`; `mask` is that of nodes."""
    word = tl.load(words + node, mask=mask, other=0)[:, None]
    threshold = tl.load(thresholds + node, mask=mask, other=0.0)[:, None]
    value = tl.load(x + (word >> 2) * TOGETHER + place).to(thresholds.dtype.element_ty)
    return meets(value, float("nan"), threshold, word, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING)


@triton.jit
def states_kernel(
    x,  # float32 or float64 [blocks of rows, FEATURES, TOGETHER]
    words,  # int32 [NODES], the feature and 2 flags
    thresholds,  # float32 or float64 [NODES]
    sets,  # int32 [sets, WORDS]
    earlier,  # int32 [NODES], twice the node above of the same player, plus 1 to the right; −1 if none, −2 if constant
    states,  # uint8 [blocks of rows, NODES, TOGETHER]
    FEATURES: tl.constexpr,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no node asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN may go to the left
    TOGETHER: tl.constexpr,
    BLOCK_NODES: tl.constexpr,
):
    """Write 2 where the player met all that was asked above, plus 1 if the row goes to the left, and else 1."""
    block = tl.program_id(1).to(tl.int64)
    place = tl.arange(0, TOGETHER)[None, :]
    node = tl.program_id(0) * BLOCK_NODES + tl.arange(0, BLOCK_NODES)
    mask = node < NODES
    x += block * (FEATURES * TOGETHER)
    left = goes_left(
        x, node, place, words, thresholds, sets, mask, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING, TOGETHER=TOGETHER
    )
    above = tl.load(earlier + node, mask=mask, other=-1)
    known = (above > -2)[:, None] & (place >= 0)
    while tl.max(above, axis=0) >= 0:
        asks = above >= 0
        goes = goes_left(
            x, above >> 1, place, words, thresholds, sets, asks,
            WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING, TOGETHER=TOGETHER,
        )  # fmt: skip
        known &= (above < 0)[:, None] | (goes == ((above & 1) == 0)[:, None])
        above = tl.load(earlier + (above >> 1), mask=asks, other=-1)
    state = tl.where(known, tl.where(left, 3, 2), 1)
    tl.store(states + (block * NODES + node[:, None]) * TOGETHER + place, state.to(tl.uint8), mask=mask[:, None])


@triton.jit
def words_of(step):
    """Return a step's flags, node, row of ratios and leaves."""
    return tl.load(step + 1), tl.load(step), tl.load(step + 2), tl.load(step + 3), tl.load(step + 4)


@triton.jit
def read(
    node, row, leaf, other, shares, owners, states, ratios, held, point, POINTS: tl.constexpr, TOGETHER: tl.constexpr
):
    """Return what a step needs: the share, player and state of the node, y, q, and the values of two leaves."""
    ratio = ratios + row.to(tl.int64) * (2 * POINTS) + point
    state = tl.load(states + node.to(tl.int64) * TOGETHER)[None, :]
    share, owner, y, q = tl.load(shares + node), tl.load(owners + node), tl.load(ratio), tl.load(ratio + POINTS)
    return share, owner, state, y, q, tl.load(held + leaf), tl.load(held + other)


@triton.jit(do_not_specialize=["blocks", "jobs", "chunks"])
def walks_kernel(
    states,  # uint8 [blocks, NODES, TOGETHER]
    steps,  # int32 [steps + 1, 5], see `steps_of` in `path_walks.py`
    first_step,  # int32 [chunks + 1]
    shares,  # float64 [NODES]
    owners,  # int32 [NODES], the player of each node
    ratios,  # float64 [ratios, 2, POINTS], y and q
    weights,  # float64 [POINTS]
    held,  # float64 [targets, LEAVES + 1], the values of leaves in units of the output, and 0
    stacks,  # float64 [programs, DEPTH, 2, POINTS, TOGETHER]
    sums,  # int64 [targets, WIDTH, padded]
    blocks,
    jobs,  # the number of targets, chunks and blocks of rows
    chunks,
    NODES: tl.constexpr,
    LEAVES: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    POINTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    ROUNDED: tl.constexpr,  # the sum of the bits of as many `ROUND` as there are points, modulo 2⁶⁴
):
    """Add up what chunks give. A program does `TOGETHER` rows of one chunk after another."""
    point = tl.arange(0, POINTS)[:, None]
    place = tl.arange(0, TOGETHER)
    at = point * TOGETHER + place[None, :]
    stacks += tl.program_id(0).to(tl.int64) * (DEPTH * 2 * POINTS * TOGETHER) + at
    weight = tl.load(weights + point) + tl.zeros([POINTS, TOGETHER], tl.float64)
    for job in tl.range(tl.program_id(0), jobs, tl.num_programs(0)):
        block = (job % blocks).to(tl.int64)
        chunk = job // blocks % chunks
        target = (job // blocks // chunks).to(tl.int64)
        own_states = states + block * NODES * TOGETHER + place
        own_sums = sums + (target * WIDTH * blocks + block) * TOGETHER + place
        own_held = held + target * (LEAVES + 1)
        product, total = weight, 0.0 * weight
        # The words that say which numbers a step needs are loaded one step before.
        begin = tl.load(first_step + chunk)
        flags, node, row, leaf, other_leaf = words_of(steps + 5 * begin)
        for step in tl.range(begin, tl.load(first_step + chunk + 1)):
            share, owner, state, y, q, value, other_value = read(
                node, row, leaf, other_leaf, shares, owners, own_states, ratios, own_held, point,
                POINTS=POINTS, TOGETHER=TOGETHER,
            )  # fmt: skip
            next_flags, node, row, leaf, other_leaf = words_of(steps + 5 * (step + 1))
            left, known = (state & 1) != 0, (state & 2) != 0
            away = tl.where(left, 1.0 - share, share)
            y = tl.where(known, y, 1.0)
            child_left = (flags & 2) == 0
            stack = stacks + (flags >> 7) * (2 * POINTS * TOGETHER)
            if (flags & 32) != 0:
                product = tl.load(stack)
            if (flags & 1) != 0:
                if (flags & 8) != 0:
                    tl.store(stack, product)
                if (flags & 16) != 0:
                    tl.store(stack + POINTS * TOGETHER, total)
                product = product * tl.abs(tl.where(left == child_left, 1.0, 0.0) - y * away)
            else:
                if (flags & 4) != 0:
                    total = value + tl.zeros([POINTS, TOGETHER], tl.float64)
                other = other_value + tl.zeros([POINTS, TOGETHER], tl.float64)
                if (flags & 64) != 0:
                    other = tl.load(stack + POINTS * TOGETHER)
                met = left == child_left
                between = tl.where(met, away, -away) * (other - total)
                given = product * q * between
                total = tl.where(met, total, other) + y * between
                rounded = (given + ROUND).to(tl.int64, bitcast=True)
                output = own_sums + owner.to(tl.int64) * blocks * TOGETHER
                whole = tl.sum(rounded, axis=0) - ROUNDED
                whole = tl.where(tl.reshape(known, [TOGETHER]), whole, 0)  # one that is not asked gives nothing
                tl.atomic_add(output, whole, sem="relaxed")
            flags = next_flags
