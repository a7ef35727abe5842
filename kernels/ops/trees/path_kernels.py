"""The kernel of `path_contributions.py`, which has the mathematics: walks over chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from . import path_steps
from .integer_sum import ROUND

ONE, TWO, ENTER = map(tl.constexpr, (path_steps.ONE, path_steps.TWO, path_steps.ENTER))
PUSH = tl.constexpr(path_steps.PUSH)
TIP, TIPS_ONLY = map(tl.constexpr, (path_steps.TIP, path_steps.TIPS_ONLY))
ASKED, LEFT, SMALL = map(tl.constexpr, (path_steps.ASKED, path_steps.LEFT, path_steps.SMALL))
FIRST, SECOND = map(tl.constexpr, (path_steps.FIRST, path_steps.SECOND))
COUNT, COUNT_BITS = map(tl.constexpr, (path_steps.COUNT, path_steps.COUNT_BITS))
LARGEST_COUNT = tl.constexpr(2**path_steps.COUNT_BITS - 1)
WORDS, TIP_WORDS = map(tl.constexpr, (path_steps.WORDS, path_steps.TIP_WORDS))
SHARES, FLAGS, NUMBER = map(tl.constexpr, (path_steps.SHARES, path_steps.FLAGS, path_steps.NUMBER))
RATIO, PLACE, TIP_BIT = map(tl.constexpr, (path_steps.RATIO, path_steps.PLACE, path_steps.TIP_BIT))


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
def put(at, stride, numbers, POINTS: tl.constexpr, POLICY: tl.constexpr):
    """Write what `numbers_at` reads."""
    for i in tl.static_range(0, POINTS, 4):
        four = four_of(numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3])
        tl.store((at + i // 4 * stride)[:, None] + tl.arange(0, 4)[None, :], four, eviction_policy=POLICY)


@triton.jit
def four_at(at):
    """Return four numbers that follow each other in memory, as a tuple."""
    return parts_of(tl.load(at[:, None] + tl.arange(0, 4)[None, :]))


@triton.jit
def lefts(state, ROWS: tl.constexpr):
    """Return which rows go to the left; `state` has a bit for each of them."""
    return ((state >> tl.arange(0, ROWS)) & 1) != 0


@triton.jit
def away_of(left, share, small):
    """Return the probability of the side to which a row does not go.

    `share` is the probability of the left side if `small`, or else of the right one.
    """
    share = share.to(tl.float32, bitcast=True)
    return tl.where(left == small, 1.0 - share, share)


@triton.jit
def ratios_at(record, place, states, ratios, ROWS: tl.constexpr, POINTS: tl.constexpr):
    """Return where the ratios of a node are for each row; the node is that at a place of a step's record."""
    known = lefts(tl.load(states + tl.load(record + place) + 1), ROWS=ROWS)
    return ratios + known.to(tl.int32) * (tl.load(record + RATIO + place) * (2 * POINTS))


@triton.jit
def factors(y, met, away, AGAIN: tl.constexpr, POINTS: tl.constexpr):
    """Return the factors of a child, to which the rows in `met` go; `AGAIN` is whether a node above asks its player.

    Numbers are the same whether that is so or not, but a compiler then does not share the code, for which it would move
    registers.
    """
    found, met = tl.tuple(()), tl.where(met, 1.0, 0.0)
    for i in tl.static_range(POINTS):
        found += (tl.abs(met - y[i] * away if AGAIN else y[i] * away - met),)
    return found


@triton.jit
def times(product, other, POINTS: tl.constexpr):
    """Return products point by point."""
    found = tl.tuple(())
    for i in tl.static_range(POINTS):
        found += (product[i] * other[i],)
    return found


@triton.jit
def sizes(numbers, POINTS: tl.constexpr):
    """Return absolute values."""
    found = tl.tuple(())
    for i in tl.static_range(POINTS):
        found += (tl.abs(numbers[i]),)
    return found


@triton.jit
def on_the_way(
    product, left, share, flags, record, place, states, ratios,
    FLAG: tl.constexpr, POINTS_LEFT: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `P` of a child of a node on the way from the anchor; the flags of the node are multiples of `FLAG`."""
    away = away_of(left, share, (flags & SMALL * FLAG) != 0)
    met = left == ((flags & LEFT * FLAG) != 0)
    if len(POINTS_LEFT) == 0 or (flags & ASKED * FLAG) != 0:
        y = numbers_at(ratios_at(record, place, states, ratios, ROWS=ROWS, POINTS=POINTS), 4, POINTS=POINTS)
        # Products are not negative. Their absolute values keep a compiler from sharing them with the other case.
        found = sizes(times(product, factors(y, met, away, AGAIN=True, POINTS=POINTS), POINTS=POINTS), POINTS=POINTS)
    else:
        found = times(product, factors(POINTS_LEFT, met, away, AGAIN=False, POINTS=POINTS), POINTS=POINTS)
    return found


@triton.jit
def add_whole(sums, player, given, stride):
    """Add the nearest whole number to the sums of a player; it has the lowest bits of its sum with `ROUND`."""
    whole = (given.to(tl.float64) + ROUND).to(tl.int64, bitcast=True).to(tl.int32)
    tl.atomic_add(sums + player * stride, whole, sem="relaxed")


@triton.jit
def give(product, numbers, first, player, sums, stride, POINTS: tl.constexpr):
    """Add what an inner node of a tip gives; `first` is the first one of the numbers."""
    given = product[0] * first
    for i in tl.static_range(1, POINTS):
        given += product[i] * numbers[i]
    add_whole(sums, player, given, stride)


@triton.jit
def gives(product, factor, table, entry, more, second, third, tips, count, sums, stride, POINTS: tl.constexpr):
    """Add what the inner nodes of a tip give.

    `product` is `P` of the node above, `factor` what that of the tip has more, `entry` that of `R` of the tip for each
    row, and `tips` where the words of the tip are. Entries of one inner node after the other are `more` apart. The
    first numbers of the `second` and the `third` one are already loaded, so that their others come from the L1 cache.
    """
    players = tips + 2
    entry += more
    one = numbers_at(table + entry * POINTS, 4, POINTS=POINTS)
    product = times(product, factor, POINTS=POINTS)
    give(product, one, one[0], tl.load(players), sums, stride, POINTS=POINTS)
    if count > 1:
        entry += more
        two = numbers_at(table + entry * POINTS, 4, POINTS=POINTS)
        give(product, two, second, tl.load(players + 1), sums, stride, POINTS=POINTS)
        if count > 2:
            entry += more
            three = numbers_at(table + entry * POINTS, 4, POINTS=POINTS)
            give(product, three, third, tl.load(players + 2), sums, stride, POINTS=POINTS)
            if count > 3:
                four = numbers_at(table + (entry + more) * POINTS, 4, POINTS=POINTS)
                give(product, four, four[0], tl.load(players + 3), sums, stride, POINTS=POINTS)


@triton.jit
def closed(
    product, total, left, share, player, flags, record, one_entry, more, two_pattern, tips, states, ratios, table,
    stack, sums, stride, AGAIN: tl.constexpr, POINTS_LEFT: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Return `R` of a node, and add what it and its tips give; `AGAIN` is whether a node above asks its player.

    Factors are computed twice, so that no registers hold them while the tips are added.
    """
    away = away_of(left, share, (flags & SMALL) != 0)
    met = left == ((flags & LEFT) != 0)
    other, row = total, ratios + tl.zeros([ROWS], tl.int32)
    if (flags & TIP) != 0:
        one = numbers_at(table + one_entry * POINTS, 4, POINTS=POINTS)
        count = (flags >> COUNT) & LARGEST_COUNT
        ahead = tl.load(table + (one_entry + 2 * more) * POINTS, mask=count > 1)
        after = tl.load(table + (one_entry + 3 * more) * POINTS, mask=count > 2)
        if AGAIN:
            row = ratios_at(record, 0, states, ratios, ROWS=ROWS, POINTS=POINTS)
        if count > 0:
            if AGAIN:
                first = factors(numbers_at(row, 4, POINTS=POINTS), met, away, AGAIN=True, POINTS=POINTS)
            else:
                first = factors(POINTS_LEFT, met, away, AGAIN=False, POINTS=POINTS)
            gives(product, first, table, one_entry, more, ahead, after, tips, count, sums, stride, POINTS=POINTS)
        if (flags & TIPS_ONLY) != 0:
            count = (flags >> COUNT + COUNT_BITS) & LARGEST_COUNT
            two_entry = tl.load(tips + TIP_WORDS) + two_pattern
            other = numbers_at(table + two_entry * POINTS, 4, POINTS=POINTS)
            more = tl.load(tips + TIP_WORDS + 1)
            ahead = tl.load(table + (two_entry + 2 * more) * POINTS, mask=count > 1)
            after = tl.load(table + (two_entry + 3 * more) * POINTS, mask=count > 2)
            if count > 0:
                if AGAIN:
                    second = factors(numbers_at(row, 4, POINTS=POINTS), met == 0, away, AGAIN=True, POINTS=POINTS)
                else:
                    second = factors(POINTS_LEFT, met == 0, away, AGAIN=False, POINTS=POINTS)
                gives(
                    product, second, table, two_entry, more, ahead, after, tips + TIP_WORDS, count, sums, stride,
                    POINTS=POINTS,
                )  # fmt: skip
    else:
        one = numbers_at(stack + tl.load(record + PLACE) * (POINTS * ROWS), 4 * ROWS, POINTS=POINTS)
        if AGAIN:
            row = ratios_at(record, 0, states, ratios, ROWS=ROWS, POINTS=POINTS)
    if AGAIN:
        y, weighed = numbers_at(row, 4, POINTS=POINTS), numbers_at(row + POINTS, 4, POINTS=POINTS)
        weighed = times(product, weighed, POINTS=POINTS)
        factor = factors(y, met, away, AGAIN=True, POINTS=POINTS)
    else:
        factor, weighed = factors(POINTS_LEFT, met, away, AGAIN=False, POINTS=POINTS), product
    given, found = 0.0, tl.tuple(())
    for i in tl.static_range(POINTS):
        if AGAIN:
            between = one[i] - other[i]
            found += (other[i] + factor[i] * between,)
        else:  # the same numbers, but a compiler does not share this code, which takes more moves of registers
            between = other[i] - one[i]
            found += (other[i] - factor[i] * between,)
        given = weighed[i] * between if i == 0 else given + weighed[i] * between
    add_whole(sums, player, given * tl.where(met, -away, away), stride)
    return found


@triton.jit(do_not_specialize=["blocks", "jobs", "chunks", "trees"])
def walks_kernel(
    states,  # int32 [blocks, NODES, 2], see `path_states.py`
    patterns,  # int8 [blocks, TIPS, ROWS]
    tips,  # int32 [TIPS, TIP_WORDS], see `tip_words` in `path_steps.py`
    steps,  # int32 [STEPS, WORDS], see `steps_of` in `path_steps.py`
    first_step,  # int32 [chunks + 1]
    tree,  # int32 [chunks], to whose sums a chunk adds
    order,  # int32 [chunks], the chunks from the one with most steps on, so that programs end at the same time
    table,  # float32 [targets, PARTS, ENTRIES, POINTS], see `table_of` in `path_tips.py`
    ratios,  # float32 [PARTS, RATIOS, 2, POINTS], y and q
    weights,  # float32 [PARTS, POINTS], of the rule
    stacks,  # float32 [programs, PLACES, POINTS / 4, ROWS, 4]
    sums,  # int32 [targets, WIDTH, trees, padded], of trees that have sums of their own
    blocks,
    jobs,  # the number of targets, parts, chunks and blocks of rows
    chunks,
    trees,
    NODES: tl.constexpr,
    TIPS: tl.constexpr,
    ENTRIES: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    RATIOS: tl.constexpr,
    PARTS: tl.constexpr,  # of the points of the rule
    POINTS: tl.constexpr,  # of a part
    POINTS_LEFT: tl.constexpr,  # 1 minus the points, which is y if no node above asks the player; () if there are parts
    ROWS: tl.constexpr,  # of a block, as many as threads: a thread has all points of a row
):
    """Add up what chunks give. A program does one block of rows of one chunk after another."""
    place = tl.arange(0, ROWS)
    stack = stacks + (tl.program_id(0).to(tl.int64) * (PLACES * POINTS * ROWS) + 4 * place)
    for job in tl.range(tl.program_id(0), jobs, tl.num_programs(0)):
        block = (job % blocks).to(tl.int64)
        chunk = tl.load(order + job // blocks % chunks)
        part = job // blocks // chunks % PARTS
        target = (job // blocks // chunks // PARTS).to(tl.int64)
        own_states, own_patterns = states + block * (2 * NODES), patterns + block * (TIPS * ROWS) + place
        padded = blocks.to(tl.int64) * ROWS
        own_sums = sums + (target * WIDTH * trees + tl.load(tree + chunk)) * padded + block * ROWS + place
        own_table = table + (target * PARTS + part) * (ENTRIES * POINTS)
        own_ratios = ratios + part.to(tl.int64) * (RATIOS * 2 * POINTS)
        own, total = tl.tuple(()), tl.tuple(())
        for i in tl.static_range(POINTS):
            own += (tl.load(weights + part * POINTS + i) + tl.zeros([ROWS], tl.float32),)
            total += (tl.zeros([ROWS], tl.float32),)
        put(stack, 4 * ROWS, own, POINTS=POINTS, POLICY="")
        # Where rows go is loaded one step before, and what says for which nodes and tips two steps before. All threads
        # read the same words. `none` is 0, which the compiler cannot know: it would keep words in uniform registers,
        # and wait for them at once.
        none = tl.load(own_patterns + (TIPS - 1) * ROWS).to(tl.int32)
        step, end = tl.load(first_step + chunk), tl.load(first_step + chunk + 1)
        record = steps + step.to(tl.int64) * WORDS + none * WORDS
        node, first, second, anchor = four_at(record)
        number = tl.load(record + NUMBER)
        state, first_state, second_state = (
            tl.load(own_states + node), tl.load(own_states + first), tl.load(own_states + second)
        )  # fmt: skip
        one_pattern, two_pattern = tl.load(own_patterns + number * ROWS), tl.load(own_patterns + number * ROWS + ROWS)
        entry, more = tl.load(tips + number * TIP_WORDS), tl.load(tips + number * TIP_WORDS + 1)
        flags = tl.load(record + FLAGS)
        node, first, second, anchor = four_at(record + WORDS)
        next_flags = tl.load(record + (WORDS + FLAGS))
        while step < end:
            own_flags, own_tips, other_pattern = tl.max(flags, axis=0), tips + number * TIP_WORDS, two_pattern
            left, first_left, second_left = (
                lefts(state, ROWS=ROWS), lefts(first_state, ROWS=ROWS), lefts(second_state, ROWS=ROWS)
            )  # fmt: skip
            one_entry, own_more = entry + one_pattern, more
            share, first_share, second_share, player = four_at(record + SHARES)
            if (own_flags & ONE) != 0:
                own = on_the_way(
                    own, first_left, first_share, own_flags, record, 1, own_states, own_ratios,
                    FLAG=FIRST, POINTS_LEFT=POINTS_LEFT, ROWS=ROWS, POINTS=POINTS,
                )  # fmt: skip
                if (own_flags & TWO) != 0:
                    own = on_the_way(
                        own, second_left, second_share, own_flags, record, 2, own_states, own_ratios,
                        FLAG=SECOND, POINTS_LEFT=POINTS_LEFT, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
            if (own_flags & ENTER) != 0:
                put(stack + player * (POINTS * ROWS), 4 * ROWS, own, POINTS=POINTS, POLICY="")
            number += ((flags >> TIP_BIT) & 1) + ((flags >> TIP_BIT + 1) & 1)
            flags, next_anchor = next_flags, anchor
            state, first_state, second_state = (
                tl.load(own_states + node),
                tl.load(own_states + first),
                tl.load(own_states + second, mask=(flags & TWO) != 0),
            )
            one_pattern, two_pattern = (
                tl.load(own_patterns + number * ROWS),
                tl.load(own_patterns + number * ROWS + ROWS, mask=(flags & TIPS_ONLY) != 0),
            )
            entry, more = tl.load(tips + number * TIP_WORDS), tl.load(tips + number * TIP_WORDS + 1)
            node, first, second, anchor = four_at(record + 2 * WORDS)
            next_flags = tl.load(record + (2 * WORDS + FLAGS))
            if (own_flags & ENTER) == 0:
                if len(POINTS_LEFT) == 0 or (own_flags & ASKED) != 0:
                    total = closed(
                        own, total, left, share, player, own_flags, record, one_entry, own_more, other_pattern,
                        own_tips, own_states, own_ratios, own_table, stack, own_sums, trees * blocks * ROWS,
                        AGAIN=True, POINTS_LEFT=POINTS_LEFT, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                else:
                    total = closed(
                        own, total, left, share, player, own_flags, record, one_entry, own_more, other_pattern,
                        own_tips, own_states, own_ratios, own_table, stack, own_sums, trees * blocks * ROWS,
                        AGAIN=False, POINTS_LEFT=POINTS_LEFT, ROWS=ROWS, POINTS=POINTS,
                    )  # fmt: skip
                if (own_flags & PUSH) != 0:
                    put(
                        stack + tl.load(record + PLACE + 1) * (POINTS * ROWS), 4 * ROWS, total,
                        POINTS=POINTS, POLICY="evict_last",
                    )  # fmt: skip
                own = numbers_at(stack + next_anchor * (POINTS * ROWS), 4 * ROWS, POINTS=POINTS)
            step += 1
            record += WORDS
