"""The kernel of `path_contributions.py`, which has the mathematics: walks over chunks.

Where `FIRST` is set, no node above asks the node's player: `y` is 1 − t there, and `q` is −1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import path_walks as walks
from .integer_sum import ROUND

ROUND_BITS = tl.constexpr(0x4338000000000000)
"""The bits of `ROUND`."""

CHERRY, VISIT, FRESH, LEFT = map(tl.constexpr, (walks.CHERRY, walks.VISIT, walks.FRESH, walks.LEFT))
POP_P, DOWN, PUSH_P, PUSH_R = map(tl.constexpr, (walks.POP_P, walks.DOWN, walks.PUSH_P, walks.PUSH_R))
ALONE, LEAF, CHERRY_FRESH = map(tl.constexpr, (walks.ALONE, walks.LEAF, walks.CHERRY_FRESH))
VISITED_FRESH, VISITED_LEFT = map(tl.constexpr, (walks.VISITED_FRESH, walks.VISITED_LEFT))
PLACE_BITS = tl.constexpr(walks.PLACE_BITS)


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
    """Return which rows go to the left and are known, the other side's probability, and the row of ratios and player.

    `state` has a bit for each row.
    """
    share, owner = pair_at(record + 2)
    share = share.to(tl.float64, bitcast=True)
    row = tl.arange(0, record.shape[0])
    left, known = (state.to(tl.int32) >> row) & 1, ((state >> 32).to(tl.int32) >> row) & 1
    return left != 0, known != 0, tl.where(left != 0, 1.0 - share, share), owner


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
def times_factors(product, y, met, away, POINTS: tl.constexpr):
    """Return `P` of a child, to which the rows in `met` go."""
    found, met = tl.tuple(()), tl.where(met, 1.0, 0.0).to(tl.float64)
    for i in tl.static_range(POINTS):
        found += (product[i] * tl.abs(met - y[i] * away),)
    return found


@triton.jit
def below(product, fresh, met, away, known, owner, t, ratios, POINTS: tl.constexpr):
    """Return `P` of a child, to which the rows in `met` go; the other arguments are those of the node."""
    if fresh:
        found = times_factors(product, t, met, away, POINTS=POINTS)
    else:
        y = numbers_at(row_of(ratios, owner, known, POINTS=POINTS), 2, POINTS=POINTS)
        found = times_factors(product, y, met, away, POINTS=POINTS)
    return found


@triton.jit
def of_leaves(product, above, met, above_away, y, q, left, away, one, two, FIRST: tl.constexpr, POINTS: tl.constexpr):
    """Return `R` of a cherry, and what it gives.

    `product`, `above` and `above_away` are `P`, `y` and the probability of the node above, and the rows in `met` go to
    the cherry; `one` and `two` are the leaves to the left and right.
    """
    between = tl.where(left, away, -away) * (two - one)
    middle = tl.where(left, one, two)
    whole, part, found = 0.0, 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        weight = product[i] if FIRST else product[i] * q[i]
        whole = weight if i == 0 else whole + weight
        part = weight * above[i] if i == 0 else part + weight * above[i]
        found += (middle + y[i] * between,)
    part = part * above_away
    whole = tl.where(met, whole - part, part)
    return found, whole * (-between if FIRST else between)


@triton.jit
def cherry(record, value, state, fresh, product, above, met, above_away, t, ratios, sums, stride, POINTS: tl.constexpr):
    """Return `R` of a cherry, and add up what it gives; `value` are the values of its leaves."""
    left, known, away, owner = sides(state, record)
    one, two = pair_at(value)
    if fresh:
        found, given = of_leaves(product, above, met, above_away, t, t, left, away, one, two, FIRST=True, POINTS=POINTS)
    else:
        row = row_of(ratios, owner, known, POINTS=POINTS)
        y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
        found, given = of_leaves(
            product, above, met, above_away, y, q, left, away, one, two, FIRST=False, POINTS=POINTS
        )
    add_whole(sums, owner, given, known, stride)
    return found


@triton.jit
def closed(product, one, two, y, q, met, away, FIRST: tl.constexpr, POINTS: tl.constexpr):
    """Return `R` of a node from those of its children, `met` being the rows that go to `one`, and what it gives."""
    signed = tl.where(met, -away, away)
    given, found = 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        between = one[i] - two[i]
        weighed = (product[i] if FIRST else product[i] * q[i]) * between
        given = weighed if i == 0 else given + weighed
        found += (tl.where(met, one[i], two[i]) + y[i] * signed * between,)
    return found, given * (-signed if FIRST else signed)


@triton.jit
def close(
    flags, record, value, state, product, total, y, q, met, away, stack, t, ratios, sums, stride,
    FIRST: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `R` of a node and what it gives, and add up what its cherry gives; or return `R` of the cherry, and 0."""
    leaf = all_of(value, POINTS=POINTS)
    if (flags & (LEAF | CHERRY)) == LEAF:
        total, given = closed(product, total, leaf, y, q, met, away, FIRST=FIRST, POINTS=POINTS)
    else:
        if (flags & CHERRY) != 0:
            other = cherry(
                record + 4, value + 2, state, (flags & CHERRY_FRESH) != 0, product, y, met, away,
                t, ratios, sums, stride, POINTS=POINTS,
            )  # fmt: skip
        else:
            other = numbers_at(stack + POINTS * ROWS, 2 * ROWS, POINTS=POINTS)
        if (flags & LEAF) != 0:
            total, given = closed(product, other, leaf, y, q, met, away, FIRST=FIRST, POINTS=POINTS)
        else:
            alone = (flags & ALONE) != 0
            away = tl.where(alone, 0.0, away)
            total, given = closed(product, other, total, y, q, met | alone, away, FIRST=FIRST, POINTS=POINTS)
    return total, given


@triton.jit
def visit(
    record, value, state, fresh, product, y, q, met, away, t, ratios, sums, stride,
    FIRST: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `R` of a node of a cherry and a leaf, and what it gives, and add up what its cherry gives."""
    other = cherry(record + 4, value + 2, state, fresh, product, y, met, away, t, ratios, sums, stride, POINTS=POINTS)
    return closed(product, other, all_of(value, POINTS=POINTS), y, q, met, away, FIRST=FIRST, POINTS=POINTS)


@triton.jit(do_not_specialize=["blocks", "jobs", "chunks"])
def walks_kernel(
    states,  # int64 [blocks, NODES], see `path_states.py`
    steps,  # int64 [RECORDS, 4], see `steps_of` in `path_walks.py`
    first_step,  # int32 [chunks + 1]
    order,  # int32 [chunks], the chunks from the one with most steps on, so that programs end at the same time
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
        chunk = tl.load(order + job // blocks % chunks)
        part = job // blocks // chunks % PARTS
        target = (job // blocks // chunks // PARTS).to(tl.int64)
        own_states = states + block * NODES
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
        state, cherry_state = tl.load(own_states + (word >> 32)), tl.load(own_states + cherry_node)
        next_step = step + 1 + (word & (CHERRY | VISIT)).to(tl.int32)
        next_word = tl.load(steps + 4 * next_step.to(tl.int64))
        cherry_node = tl.load(steps + 4 * next_step.to(tl.int64) + 1)
        while step < end:
            flags = word.to(tl.int32)
            record = steps + 4 * step.to(tl.int64) + 0 * place
            value = own_values + 2 * step.to(tl.int64)
            left, known, away, owner = sides(state, record)
            own_cherry_state = cherry_state
            state, cherry_state = tl.load(own_states + (next_word >> 32)), tl.load(own_states + cherry_node)
            this, step, word = step, next_step, next_word
            next_step += 1 + (word & (CHERRY | VISIT)).to(tl.int32)
            next_word = tl.load(steps + 4 * next_step.to(tl.int64))
            cherry_node = tl.load(steps + 4 * next_step.to(tl.int64) + 1)
            fresh = (flags & FRESH) != 0
            met = left == ((flags & LEFT) != 0)
            stack = stacks + (flags >> PLACE_BITS) * (POINTS * ROWS)
            if (flags & POP_P) != 0:
                product = numbers_at(stack, 2 * ROWS, POINTS=POINTS)
            if (flags & DOWN) != 0:
                if (flags & PUSH_P) != 0:
                    put(stack, 2 * ROWS, product, POINTS=POINTS)
                if (flags & PUSH_R) != 0:
                    put(stack + POINTS * ROWS, 2 * ROWS, total, POINTS=POINTS)
                product = below(product, fresh, met, away, known, owner, t, own_ratios, POINTS=POINTS)
            elif (flags & VISIT) != 0:
                below_state = tl.load(own_states + tl.load(steps + 4 * this.to(tl.int64) + 5))
                if (flags & PUSH_R) != 0:
                    put(stack + POINTS * ROWS, 2 * ROWS, total, POINTS=POINTS)
                own = below(product, fresh, met, away, known, owner, t, own_ratios, POINTS=POINTS)
                record += 4
                value += 2
                left, known, away, owner = sides(own_cherry_state, record)
                met = left == ((flags & VISITED_LEFT) != 0)
                if (flags & VISITED_FRESH) != 0:
                    total, given = visit(
                        record, value, below_state, (flags & CHERRY_FRESH) != 0, own, t, t, met, away,
                        t, own_ratios, own_sums, stride, FIRST=True, POINTS=POINTS,
                    )  # fmt: skip
                else:
                    row = row_of(own_ratios, owner, known, POINTS=POINTS)
                    y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
                    total, given = visit(
                        record, value, below_state, (flags & CHERRY_FRESH) != 0, own, y, q, met, away,
                        t, own_ratios, own_sums, stride, FIRST=False, POINTS=POINTS,
                    )  # fmt: skip
                add_whole(own_sums, owner, given, known, stride)
            else:
                if fresh:
                    total, given = close(
                        flags, record, value, own_cherry_state, product, total, t, t, met, away, stack,
                        t, own_ratios, own_sums, stride, FIRST=True, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                else:
                    row = row_of(own_ratios, owner, known, POINTS=POINTS)
                    y, q = numbers_at(row, 2, POINTS=POINTS), numbers_at(row + POINTS, 2, POINTS=POINTS)
                    total, given = close(
                        flags, record, value, own_cherry_state, product, total, y, q, met, away, stack,
                        t, own_ratios, own_sums, stride, FIRST=False, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                add_whole(own_sums, owner, given, known, stride)
