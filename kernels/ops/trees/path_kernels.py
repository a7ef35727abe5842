"""The kernel of `path_contributions.py`, which has the mathematics: walks over chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from . import path_steps
from .integer_sum import ROUND

ONE, TWO, ENTER = map(tl.constexpr, (path_steps.ONE, path_steps.TWO, path_steps.ENTER))
PUSH_P, POP_P, PUSH_R = map(tl.constexpr, (path_steps.PUSH_P, path_steps.POP_P, path_steps.PUSH_R))
TIP, TIPS_ONLY = map(tl.constexpr, (path_steps.TIP, path_steps.TIPS_ONLY))
LEFT, FIRST_LEFT, SECOND_LEFT = map(tl.constexpr, (path_steps.LEFT, path_steps.FIRST_LEFT, path_steps.SECOND_LEFT))
COUNT_BITS = tl.constexpr(path_steps.COUNT_BITS)
WORDS = tl.constexpr(path_steps.WORDS)


@triton.jit
def four_of(first, second, third, fourth):
    """Return four numbers as they follow each other in memory, `[ROWS, 4]`."""
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), [first.shape[0], 4])


@triton.jit
def parts_of(four):
    """Return four numbers that follow each other in memory, as a tuple."""
    even, odd = tl.split(tl.reshape(four, [four.shape[0], 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def numbers_at(at, stride, POINTS: tl.constexpr):
    """Return a number for each point; those of four points follow each other in memory."""
    found = tl.tuple(())
    for i in tl.static_range(0, POINTS, 4):
        found = found + parts_of(tl.load((at + i // 4 * stride)[:, None] + tl.arange(0, 4)[None, :]))
    return found


@triton.jit
def put(at, stride, numbers, POINTS: tl.constexpr):
    """Write what `numbers_at` reads."""
    for i in tl.static_range(0, POINTS, 4):
        four = four_of(numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3])
        tl.store((at + i // 4 * stride)[:, None] + tl.arange(0, 4)[None, :], four)


@triton.jit
def low(word):
    """Return the lower one of the numbers in a word."""
    return word.to(tl.int32)


@triton.jit
def high(word):
    """Return the upper one of the numbers in a word."""
    return (word >> 32).to(tl.int32)


@triton.jit
def sides(state, shares, ROWS: tl.constexpr):
    """Return which rows go to the left, which are known, and the probability of the other side.

    `state` has a bit for each row, and `shares` the probabilities of both sides.
    """
    row = tl.arange(0, ROWS)
    left, known = (low(state) >> row) & 1, (high(state) >> row) & 1
    return left != 0, known != 0, tl.where(left != 0, high(shares), low(shares)).to(tl.float32, bitcast=True)


@triton.jit
def factors(y, met, away, POINTS: tl.constexpr):
    """Return the factors of a child, to which the rows in `met` go."""
    found, met = tl.tuple(()), tl.where(met, 1.0, 0.0)
    for i in tl.static_range(POINTS):
        found += (tl.abs(met - y[i] * away),)
    return found


@triton.jit
def plus(numbers, zero, POINTS: tl.constexpr):
    """Return numbers plus 0, for which a GPU waits here until they are loaded, and not where they are needed.

    There it would wait for whatever was loaded since, even if it had not loaded these numbers.
    """
    found = tl.tuple(())
    for i in tl.static_range(POINTS):
        found += (numbers[i] + zero,)
    return found


@triton.jit
def times(product, other, POINTS: tl.constexpr):
    """Return products point by point."""
    found = tl.tuple(())
    for i in tl.static_range(POINTS):
        found += (product[i] * other[i],)
    return found


@triton.jit
def on_the_way(product, state, shares, row, met_left, ratios, ROWS: tl.constexpr, POINTS: tl.constexpr):
    """Return `P` of a child of a node; the child is the left one if `met_left`, and `row` is the node's of ratios."""
    left, known, away = sides(state, shares, ROWS=ROWS)
    y = numbers_at(ratios + tl.where(known, row * (2 * POINTS), 0), 4, POINTS=POINTS)
    return times(product, factors(y, left == met_left, away, POINTS=POINTS), POINTS=POINTS)


@triton.jit
def add_whole(sums, player, given, stride):
    """Add the bits of the nearest whole number and of `ROUND` to the sums of a player."""
    tl.atomic_add(sums + player * stride, (given.to(tl.float64) + ROUND).to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit
def give(product, numbers, player, sums, stride, POINTS: tl.constexpr):
    """Add what an inner node of a tip gives."""
    given = product[0] * numbers[0]
    for i in tl.static_range(1, POINTS):
        given += product[i] * numbers[i]
    add_whole(sums, player, given, stride)


@triton.jit
def tip(product, y, met, away, entries, pattern, count, players, third, sums, stride, POINTS: tl.constexpr):
    """Return `R` of a tip, and add what its inner nodes give.

    `product` is `P` of the node above, whose rows in `met` go to the tip. `players` and `third` are where a step has
    two players, and the third one. Numbers are loaded before those loaded earlier are needed, even where a tip has
    fewer inner nodes and the numbers of the next tip follow.
    """
    at = entries + pattern.to(tl.int32) * ((1 + count) * POINTS)
    found, one = numbers_at(at, 4, POINTS=POINTS), numbers_at(at + POINTS, 4, POINTS=POINTS)
    product = times(product, factors(y, met, away, POINTS=POINTS), POINTS=POINTS)
    if count > 0:
        both = tl.load(players)
        two = numbers_at(at + 2 * POINTS, 4, POINTS=POINTS)
        give(product, one, low(both), sums, stride, POINTS=POINTS)
        if count > 1:
            three = numbers_at(at + 3 * POINTS, 4, POINTS=POINTS)
            give(product, two, high(both), sums, stride, POINTS=POINTS)
            if count > 2:
                give(product, three, tl.load(third), sums, stride, POINTS=POINTS)
    return found


@triton.jit
def closed(product, one, two, y, q, met, away, POINTS: tl.constexpr):
    """Return `R` of a node from those of its children, `met` being the rows that go to `one`, and what it gives."""
    signed = tl.where(met, -away, away)
    given, found = 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        between = one[i] - two[i]
        weighed = product[i] * q[i] * between
        given = weighed if i == 0 else given + weighed
        found += (tl.where(met, one[i], two[i]) + y[i] * signed * between,)
    return found, given * signed


@triton.jit(do_not_specialize=["blocks", "jobs", "chunks"])
def walks_kernel(
    states,  # int64 [blocks, NODES], see `path_states.py`
    patterns,  # int8 [blocks, TIPS, ROWS]
    steps,  # int64 [STEPS, WORDS], see `steps_of` in `path_steps.py`
    first_step,  # int32 [chunks + 1]
    order,  # int32 [chunks], the chunks from the one with most steps on, so that programs end at the same time
    table,  # float32 [targets, PARTS, ENTRIES, POINTS], see `table_of` in `path_tips.py`
    ratios,  # float32 [PARTS, RATIOS, 2, POINTS], y and q
    weights,  # float32 [PARTS, POINTS], of the rule
    stacks,  # float32 [programs, PLACES, POINTS / 4, ROWS, 4]
    sums,  # int64 [targets, WIDTH, padded], to which the bits of `ROUND` are added with each number
    blocks,
    jobs,  # the number of targets, parts, chunks and blocks of rows
    chunks,
    NODES: tl.constexpr,
    TIPS: tl.constexpr,
    ENTRIES: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    RATIOS: tl.constexpr,
    PARTS: tl.constexpr,  # of the points of the rule
    POINTS: tl.constexpr,  # of a part
    ROWS: tl.constexpr,  # of a block, as many as threads: a thread has all points of a row
):
    """Add up what chunks give. A program does one block of rows of one chunk after another."""
    place = tl.arange(0, ROWS)
    stacks += tl.program_id(0).to(tl.int64) * (PLACES * POINTS * ROWS) + 4 * place
    stride = blocks.to(tl.int64) * ROWS
    for job in tl.range(tl.program_id(0), jobs, tl.num_programs(0)):
        block = (job % blocks).to(tl.int64)
        chunk = tl.load(order + job // blocks % chunks)
        part = job // blocks // chunks % PARTS
        target = (job // blocks // chunks // PARTS).to(tl.int64)
        own_states, own_patterns = states + block * NODES, patterns + block * (TIPS * ROWS) + place
        own_sums = sums + target * WIDTH * stride + block * ROWS + place
        own_table = table + (target * PARTS + part) * (ENTRIES * POINTS)
        own_ratios = ratios + part.to(tl.int64) * (RATIOS * 2 * POINTS)
        product, total = tl.tuple(()), tl.tuple(())
        zero = 0.0 * tl.load(weights)
        for i in tl.static_range(POINTS):
            product += (tl.load(weights + part * POINTS + i) + tl.zeros([ROWS], tl.float32),)
            total += (tl.zeros([ROWS], tl.float32),)
        # Where rows go is loaded one step before, and what says for which nodes and tips two steps before.
        step, end = tl.load(first_step + chunk), tl.load(first_step + chunk + 1)
        record = steps + step.to(tl.int64) * WORDS
        word, way, ends = tl.load(record), tl.load(record + 1), tl.load(record + 2)
        state, first, second = (
            tl.load(own_states + high(word)), tl.load(own_states + low(way)), tl.load(own_states + high(way))
        )  # fmt: skip
        one_pattern, two_pattern = tl.load(own_patterns + low(ends) * ROWS), tl.load(own_patterns + high(ends) * ROWS)
        next_word, way, ends = tl.load(record + WORDS), tl.load(record + WORDS + 1), tl.load(record + WORDS + 2)
        while step < end:
            flags, word = low(word), next_word
            shares, first_shares, second_shares = tl.load(record + 3), tl.load(record + 4), tl.load(record + 5)
            node, rows, entries = tl.load(record + 6), tl.load(record + 7), tl.load(record + 8)
            left, known, away = sides(state, shares, ROWS=ROWS)
            first_state, second_state, one_tip, two_tip = first, second, one_pattern, two_pattern
            state, first, second = (
                tl.load(own_states + high(word)),
                tl.load(own_states + low(way)),
                tl.load(own_states + high(way), mask=(low(word) & TWO) != 0),
            )
            one_pattern = tl.load(own_patterns + low(ends) * ROWS)
            two_pattern = tl.load(own_patterns + high(ends) * ROWS, mask=(low(word) & TIPS_ONLY) != 0)
            next_word, way, ends = (
                tl.load(record + 2 * WORDS), tl.load(record + 2 * WORDS + 1), tl.load(record + 2 * WORDS + 2)
            )  # fmt: skip
            if (flags & (POP_P | PUSH_R)) != 0:
                if (flags & POP_P) != 0:
                    product = plus(
                        numbers_at(stacks + low(tl.load(record + 12)) * (POINTS * ROWS), 4 * ROWS, POINTS=POINTS), zero,
                        POINTS=POINTS,
                    )  # fmt: skip
                if (flags & PUSH_R) != 0:
                    put(stacks + high(tl.load(record + 12)) * (POINTS * ROWS), 4 * ROWS, total, POINTS=POINTS)
            own = product
            if (flags & ONE) != 0:
                own = on_the_way(
                    own, first_state, first_shares, low(rows), (flags & FIRST_LEFT) != 0, own_ratios,
                    ROWS=ROWS, POINTS=POINTS,
                )  # fmt: skip
                if (flags & TWO) != 0:
                    own = on_the_way(
                        own, second_state, second_shares, high(rows), (flags & SECOND_LEFT) != 0, own_ratios,
                        ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
            if (flags & ENTER) != 0:
                if (flags & PUSH_P) != 0:
                    put(stacks + low(tl.load(record + 12)) * (POINTS * ROWS), 4 * ROWS, product, POINTS=POINTS)
                product = own
            else:
                row = own_ratios + tl.where(known, low(node) * (2 * POINTS), 0)
                y, q = numbers_at(row, 4, POINTS=POINTS), numbers_at(row + POINTS, 4, POINTS=POINTS)
                met = left == ((flags & LEFT) != 0)
                other = total
                thirds = (record + 11).to(tl.pointer_type(tl.int32))
                if (flags & TIP) != 0:
                    one = tip(
                        own, y, met, away, own_table + low(entries).to(tl.int64) * POINTS, one_tip,
                        (flags >> COUNT_BITS) & 3, record + 9, thirds, own_sums, stride, POINTS=POINTS,
                    )  # fmt: skip
                    if (flags & TIPS_ONLY) != 0:
                        other = tip(
                            own, y, met == 0, away, own_table + high(entries).to(tl.int64) * POINTS, two_tip,
                            (flags >> COUNT_BITS + 2) & 3, record + 10, thirds + 1, own_sums, stride, POINTS=POINTS,
                        )  # fmt: skip
                else:
                    one = numbers_at(stacks + high(tl.load(record + 12)) * (POINTS * ROWS), 4 * ROWS, POINTS=POINTS)
                total, given = closed(own, one, other, y, q, met, away, POINTS=POINTS)
                add_whole(own_sums, high(node), given, stride)
            step += 1
            record += WORDS
