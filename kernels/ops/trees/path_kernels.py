"""Kernels of `path_contributions.py`, which has the mathematics: where rows go, and walks over chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from .integer_sum import ROUND
from .terms import meets

ROUND_BITS = tl.constexpr(0x4338000000000000)
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
def numbers_at(at, stride, POINTS: tl.constexpr):
    """Return a number for each point; those of two points follow each other in memory."""
    found = tl.tuple(())
    for i in tl.static_range(0, POINTS, 2):
        found = found + pair_at(at + i // 2 * stride)
    return found


@triton.jit
def all_of(at, POINTS: tl.constexpr):
    """Return the same number for each point."""
    number, found = tl.load(at), tl.tuple(())
    for _ in tl.static_range(POINTS):
        found += (number,)
    return found


@triton.jit
def pair_at(at):
    """Return two numbers that follow each other in memory, as a tuple."""
    one, two = tl.split(tl.load(at[:, None] + tl.arange(0, 2)[None, :]))
    return one, two


@triton.jit
def put(at, stride, numbers, POINTS: tl.constexpr):
    """Write what `numbers_at` reads."""
    for i in tl.static_range(0, POINTS, 2):
        tl.store((at + i // 2 * stride)[:, None] + tl.arange(0, 2)[None, :], tl.join(numbers[i], numbers[i + 1]))


@triton.jit
def sides(state, record):
    """Return whether rows go to the left, the probability of the other side, and the row of ratios and the player."""
    share, owner = pair_at(record + 2)
    share = share.to(tl.float64, bitcast=True)
    left = (state & 1) != 0
    return left, tl.where(left, 1.0 - share, share), owner


@triton.jit
def row_of(ratios, owner, known, POINTS: tl.constexpr):
    """Return where a node's row of ratios is; the first row is for rows that are not known."""
    return ratios + tl.where(known, (owner & 0xFFFFFFFF) * (2 * POINTS), 0)


@triton.jit
def add_whole(sums, owner, given, known, stride):
    """Add the nearest whole numbers to the sums of a player, where known."""
    whole = (given + ROUND).to(tl.int64, bitcast=True) - ROUND_BITS
    tl.atomic_add(sums + (owner >> 32) * stride, whole, mask=known, sem="relaxed")


@triton.jit
def below(product, y, met, away, POINTS: tl.constexpr):
    """Return `P` of a child, to which the rows in `met` go."""
    found, met = tl.tuple(()), tl.where(met, 1.0, 0.0).to(tl.float64)
    for i in tl.static_range(POINTS):
        found += (product[i] * tl.abs(met - y[i] * away),)
    return found


@triton.jit
def of_leaves(product, above, met, above_away, y, q, left, away, one, two, FRESH: tl.constexpr, POINTS: tl.constexpr):
    """Return `R` of a cherry, and what it gives.

    `product`, `above` and `above_away` are `P`, `y` and the probability of the node above, and the rows in `met` go to
    the cherry; `one` and `two` are the leaves to the left and right.
    """
    between = tl.where(left, away, -away) * (two - one)
    middle = tl.where(left, one, two)
    whole, part, found = 0.0, 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        weight = product[i] if FRESH else product[i] * q[i]
        whole = weight if i == 0 else whole + weight
        part = weight * above[i] if i == 0 else part + weight * above[i]
        found += (middle + y[i] * between,)
    part = part * above_away
    whole = tl.where(met, whole - part, part)
    return found, whole * (-between if FRESH else between)


@triton.jit
def cherry(record, value, state, fresh, product, above, met, above_away, t, ratios, sums, stride, POINTS: tl.constexpr):
    """Return `R` of a cherry, and add up what it gives; `value` are the values of its leaves."""
    known = (state & 2) != 0
    left, away, owner = sides(state, record)
    one, two = pair_at(value)
    if fresh:
        found, given = of_leaves(product, above, met, above_away, t, t, left, away, one, two, FRESH=True, POINTS=POINTS)
    else:
        row = row_of(ratios, owner, known, POINTS=POINTS)
        y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
        found, given = of_leaves(
            product, above, met, above_away, y, q, left, away, one, two, FRESH=False, POINTS=POINTS
        )
    add_whole(sums, owner, given, known, stride)
    return found


@triton.jit
def closed(product, one, two, y, q, met, away, FRESH: tl.constexpr, POINTS: tl.constexpr):
    """Return `R` of a node from those of its children, `met` being the rows that go to `one`, and what it gives."""
    signed = tl.where(met, -away, away)
    given, found = 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        between = one[i] - two[i]
        weighed = (product[i] if FRESH else product[i] * q[i]) * between
        given = weighed if i == 0 else given + weighed
        found += (tl.where(met, one[i], two[i]) + y[i] * signed * between,)
    return found, given * (-signed if FRESH else signed)


@triton.jit
def close(
    flags, record, value, state, product, total, y, q, met, away, stack, t, ratios, sums, stride,
    FRESH: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `R` of a node and what it gives, and add up what its cherry gives; or return `R` of the cherry, and 0."""
    leaf = all_of(value, POINTS=POINTS)
    if (flags & 2049) == 2048:
        total, given = closed(product, total, leaf, y, q, met, away, FRESH=FRESH, POINTS=POINTS)
    else:
        if (flags & 1) != 0:
            other = cherry(
                record + 4, value + 2, state, (flags & 1024) != 0, product, y, met, away, t, ratios, sums, stride,
                POINTS=POINTS,
            )  # fmt: skip
        else:
            other = numbers_at(stack + POINTS * ROWS, 2 * ROWS, POINTS=POINTS)
        if (flags & 2048) != 0:
            total, given = closed(product, other, leaf, y, q, met, away, FRESH=FRESH, POINTS=POINTS)
        else:
            alone = (flags & 512) != 0
            away = tl.where(alone, 0.0, away)
            total, given = closed(product, other, total, y, q, met | alone, away, FRESH=FRESH, POINTS=POINTS)
    return total, given


@triton.jit
def visit(
    record, value, state, fresh, product, y, q, met, away, t, ratios, sums, stride,
    FRESH: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `R` of a node of a cherry and a leaf, and what it gives, and add up what its cherry gives."""
    other = cherry(record + 4, value + 2, state, fresh, product, y, met, away, t, ratios, sums, stride, POINTS=POINTS)
    return closed(product, other, all_of(value, POINTS=POINTS), y, q, met, away, FRESH=FRESH, POINTS=POINTS)


@triton.jit(do_not_specialize=["blocks", "jobs", "chunks"])
def walks_kernel(
    states,  # uint8 [blocks, NODES, ROWS]
    steps,  # int64 [RECORDS, 4], see `steps_of` in `path_walks.py`
    first_step,  # int32 [chunks + 1]
    values,  # float64 [targets, RECORDS, 2], the values of leaves in units of the output
    ratios,  # float64 [PARTS, RATIOS, 2, POINTS], y and q
    weights,  # float64 [PARTS, 2, POINTS], 1 − t and the weights of the rule
    stacks,  # float64 [programs, PLACES, POINTS / 2, ROWS, 2]
    sums,  # int64 [targets, WIDTH, padded]
    blocks,
    jobs,  # the number of targets, parts, chunks and blocks of rows
    chunks,
    NODES: tl.constexpr,
    RECORDS: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    RATIOS: tl.constexpr,
    PARTS: tl.constexpr,  # of the points of the rule
    POINTS: tl.constexpr,  # of a part
    ROWS: tl.constexpr,  # of a block, as many as threads: a thread has all points of a row
):
    """Add up what chunks give. A program does one block of rows of one chunk after another."""
    place = tl.arange(0, ROWS)
    stacks += tl.program_id(0).to(tl.int64) * (PLACES * POINTS * ROWS) + 2 * place
    stride = blocks.to(tl.int64) * ROWS
    for job in tl.range(tl.program_id(0), jobs, tl.num_programs(0)):
        block = (job % blocks).to(tl.int64)
        chunk = job // blocks % chunks
        part = job // blocks // chunks % PARTS
        target = (job // blocks // chunks // PARTS).to(tl.int64)
        own_states = states + block * NODES * ROWS + place
        own_sums = sums + target * WIDTH * stride + block * ROWS + place
        own_values = values + target * (2 * RECORDS) + 0 * place
        own_ratios = ratios + part.to(tl.int64) * (RATIOS * 2 * POINTS)
        t, product, total = tl.tuple(()), tl.tuple(()), tl.tuple(())
        for i in tl.static_range(POINTS):
            t += (tl.load(weights + part * (2 * POINTS) + i),)
            product += (tl.load(weights + part * (2 * POINTS) + POINTS + i) + tl.zeros([ROWS], tl.float64),)
            total += (tl.zeros([ROWS], tl.float64),)
        # Where rows go is loaded one step before, and what says for which nodes two steps before.
        step, end = tl.load(first_step + chunk), tl.load(first_step + chunk + 1)
        word, cherry_node = tl.load(steps + 4 * step.to(tl.int64)), tl.load(steps + 4 * step.to(tl.int64) + 1)
        state, cherry_state = tl.load(own_states + (word >> 32) * ROWS), tl.load(own_states + cherry_node * ROWS)
        next_step = step + 1 + (word & 3).to(tl.int32)
        next_word = tl.load(steps + 4 * next_step.to(tl.int64))
        cherry_node = tl.load(steps + 4 * next_step.to(tl.int64) + 1)
        while step < end:
            flags = word.to(tl.int32)
            record = steps + 4 * step.to(tl.int64) + 0 * place
            value = own_values + 2 * step.to(tl.int64)
            known, own_cherry_state = (state & 2) != 0, cherry_state
            left, away, owner = sides(state, record)
            state = tl.load(own_states + (next_word >> 32) * ROWS)
            cherry_state = tl.load(own_states + cherry_node * ROWS)
            this, step, word = step, next_step, next_word
            next_step += 1 + (word & 3).to(tl.int32)
            next_word = tl.load(steps + 4 * next_step.to(tl.int64))
            cherry_node = tl.load(steps + 4 * next_step.to(tl.int64) + 1)
            fresh = (flags & 4) != 0
            met = left == ((flags & 8) != 0)
            stack = stacks + (flags >> 14) * (POINTS * ROWS)
            if (flags & 16) != 0:
                product = numbers_at(stack, 2 * ROWS, POINTS=POINTS)
            if (flags & 32) != 0:
                if (flags & 64) != 0:
                    put(stack, 2 * ROWS, product, POINTS=POINTS)
                if (flags & 128) != 0:
                    put(stack + POINTS * ROWS, 2 * ROWS, total, POINTS=POINTS)
                if fresh:
                    product = below(product, t, met, away, POINTS=POINTS)
                else:
                    y = numbers_at(row_of(own_ratios, owner, known, POINTS=POINTS), 2, POINTS=POINTS)
                    product = below(product, y, met, away, POINTS=POINTS)
            elif (flags & 2) != 0:
                below_state = tl.load(own_states + tl.load(steps + 4 * this.to(tl.int64) + 5) * ROWS)
                if (flags & 128) != 0:
                    put(stack + POINTS * ROWS, 2 * ROWS, total, POINTS=POINTS)
                if fresh:
                    own = below(product, t, met, away, POINTS=POINTS)
                else:
                    y = numbers_at(row_of(own_ratios, owner, known, POINTS=POINTS), 2, POINTS=POINTS)
                    own = below(product, y, met, away, POINTS=POINTS)
                record += 4
                value += 2
                known = (own_cherry_state & 2) != 0
                left, away, owner = sides(own_cherry_state, record)
                met = left == ((flags & 8192) != 0)
                if (flags & 4096) != 0:
                    total, given = visit(
                        record, value, below_state, (flags & 1024) != 0, own, t, t, met, away,
                        t, own_ratios, own_sums, stride, FRESH=True, POINTS=POINTS,
                    )  # fmt: skip
                else:
                    row = row_of(own_ratios, owner, known, POINTS=POINTS)
                    y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
                    total, given = visit(
                        record, value, below_state, (flags & 1024) != 0, own, y, q, met, away,
                        t, own_ratios, own_sums, stride, FRESH=False, POINTS=POINTS,
                    )  # fmt: skip
                add_whole(own_sums, owner, given, known, stride)
            else:
                if fresh:
                    total, given = close(
                        flags, record, value, own_cherry_state, product, total, t, t, met, away, stack,
                        t, own_ratios, own_sums, stride, FRESH=True, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                else:
                    row = row_of(own_ratios, owner, known, POINTS=POINTS)
                    y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
                    total, given = close(
                        flags, record, value, own_cherry_state, product, total, y, q, met, away, stack,
                        t, own_ratios, own_sums, stride, FRESH=False, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                add_whole(own_sums, owner, given, known, stride)
