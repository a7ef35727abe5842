"""The kernels of `PairwiseContributions`: sums of blocks of points, for each background row, and their total.

A thread has one point, and a program one warp, which waits for no other one. Four players are done at a time, so that
few instructions wait for the one before.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import INTERPRETED

EXCHANGE = tl.constexpr(
    """{
        .reg .b32 low, high;
        mov.b64 {low, high}, $1;
        shfl.sync.bfly.b32 low, low, $2, 31, -1;
        shfl.sync.bfly.b32 high, high, $2, 31, -1;
        mov.b64 $0, {low, high};
    }"""
)


@triton.jit
def reciprocal(x):
    """Return 1 / x to the last bits, for numbers that are not near the ends of the range."""
    if INTERPRETED:
        r = 1.0 / x
    else:  # an exact division takes three times as long
        r = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [x], tl.float64, True, 1)  # 20 bits
        missing = 1.0 - x * r
        r += r * (missing * missing + missing)
    return r


@triton.jit
def four_reciprocals(x):
    """Return the reciprocals of four numbers, from that of their product, and the product."""
    first, second = x[0] * x[1], x[2] * x[3]
    product = first * second
    r = reciprocal(product)
    of_first, of_second = r * second, r * first
    return (of_first * x[1], of_first * x[0], of_second * x[3], of_second * x[2]), product


@triton.jit
def exchanged(x, APART: tl.constexpr):
    """Return the numbers of a warp's threads, those of threads `APART` from each other exchanged."""
    return tl.inline_asm_elementwise(EXCHANGE, "=d,d,r", [x, APART], tl.float64, True, 1)


@triton.jit
def added_in_turn(x, other, lane, APART: tl.constexpr):
    """Return sums of two of `x` where `lane & APART` is 0, and sums of two of `other` elsewhere."""
    lower = (lane & APART) == 0
    return tl.where(lower, x, other) + exchanged(tl.where(lower, other, x), APART)


@triton.jit
def four_sums(x, lane):
    """Return the sums of four blocks of a warp's numbers, in the first four places of a block.

    Each of the first steps halves the numbers that are left, which takes half the instructions of four sums.
    """
    if INTERPRETED:
        total = tl.where(lane == 0, tl.sum(x[0], axis=0), tl.sum(x[1], axis=0))
        total = tl.where(lane < 2, total, tl.where(lane == 2, tl.sum(x[2], axis=0), tl.sum(x[3], axis=0)))
    else:
        total = added_in_turn(added_in_turn(x[0], x[1], lane, 1), added_in_turn(x[2], x[3], lane, 1), lane, 2)
        total += exchanged(total, 4)
        total += exchanged(total, 8)
        total += exchanged(total, 16)
    return total


@triton.jit
def numbers_from(first, COUNT: tl.constexpr):
    """Return a tuple of numbers that follow each other."""
    found = tl.tuple(())
    for k in tl.static_range(COUNT):
        found += (tl.load(first + k),)
    return found


@triton.jit
def four_blocks(first, mask, APART: tl.constexpr):
    """Return four blocks of numbers, each `APART` after the one before; they are 1 where `mask` is false."""
    found = tl.tuple(())
    for k in tl.static_range(4):
        found += (tl.load(first + k * APART, mask=mask, other=1.0),)
    return found


@triton.jit
def polynomial(coefficients, x, COUNT: tl.constexpr):
    """Return the polynomial of the coefficients, the last of which is that of the highest power."""
    y = coefficients[COUNT - 1] + 0.0 * x
    for k in tl.static_range(COUNT - 1):
        y = y * x + coefficients[COUNT - 2 - k]
    return y


@triton.jit
def times_linear_factors(up, down, deltas, nodes, PAIRS: tl.constexpr):
    """Return `up` times `Π (1 + s δ)` and `down` times `Π (1 − s δ)` for the nodes `s` and four `δ`.

    The powers of `s` in the product have the elementary symmetric polynomials of `δ` as coefficients.
    """
    sum_01, product_01 = deltas[0] + deltas[1], deltas[0] * deltas[1]
    sum_23, product_23 = deltas[2] + deltas[3], deltas[2] * deltas[3]
    one, two = sum_01 + sum_23, product_01 + product_23 + sum_01 * sum_23
    three, four = product_01 * sum_23 + product_23 * sum_01, product_01 * product_23
    ups, downs = tl.tuple(()), tl.tuple(())
    for k in tl.static_range(PAIRS):
        square = nodes[k] * nodes[k]
        even, odd = (four * square + two) * square + 1.0, (three * square + one) * nodes[k]
        ups += (up[k] * (even + odd),)
        downs += (down[k] * (even - odd),)
    return ups, downs


@triton.jit
def numerators(up, down, factor, nodes, forms, PAIRS: tl.constexpr):
    """Return the coefficients of `E` and `O` of `PairwiseContributions`, times a factor."""
    evens, odds = tl.tuple(()), tl.tuple(())
    for j in tl.static_range(PAIRS):
        even, odd = 0.0 * factor, 0.0 * factor
        for k in tl.static_range(PAIRS):
            form = tl.load(forms + (j * PAIRS + k))
            even += form * (up[k] + down[k])
            odd += form * (nodes[k] * (up[k] - down[k]))
        evens += (even * factor,)
        odds += (odd * factor,)
    return evens, odds


@triton.jit(do_not_specialize=["rows", "at_once"])
def parts_of_contributions_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    column,  # int32 [FACTORS]: the columns of `x`, player after player
    starts,  # int32 [PLAYERS + 1]: each player's first one
    shift,  # float64 [FACTORS]
    factor,  # float64 [FACTORS]
    points,  # float64 [FACTORS, POINTS]
    of_background,  # float64 [BACKGROUND, PLAYERS, POINTS]: the background's factors
    quadrature,  # float64 [GROUPS, PAIRS + PAIRS + 1 + PAIRS · PAIRS]: nodes, coefficients of `D`, those of `E` by node
    weights,  # float64 [POINTS, TARGETS]
    scratch,  # float64 [programs, 2, PLAYERS, BLOCK]
    parts,  # float64 [rows, blocks of points, BACKGROUND · GROUPS, PLAYERS, TARGETS]
    rows,
    at_once,  # parts of a task
    WIDTH: tl.constexpr,
    POINTS: tl.constexpr,
    PLAYERS: tl.constexpr,  # a multiple of four; those that fill it up have no columns, and factors of 1
    TARGETS: tl.constexpr,
    BACKGROUND: tl.constexpr,
    MANHATTAN: tl.constexpr,
    PAIRS: tl.constexpr,  # pairs of nodes of a group
    GROUPS: tl.constexpr,  # groups of pairs
    BLOCK: tl.constexpr,  # threads of a warp
):
    """A program makes the parts of some tasks: of a row, a block of points, and `at_once` parts.

    A part has a background row and a group of pairs of nodes. A thread keeps two numbers of each player in memory of
    its program, the row's factor and `δ` of the background row, and loads those of the next four players early.
    """
    lane = tl.arange(0, BLOCK)
    always = lane >= 0
    of_row = scratch + tl.program_id(0).to(tl.int64) * (2 * PLAYERS * BLOCK) + lane
    delta_of = of_row + PLAYERS * BLOCK
    some = tl.cdiv(BACKGROUND * GROUPS, at_once)
    for task in tl.range(tl.program_id(0), rows * tl.cdiv(POINTS, BLOCK) * some, tl.num_programs(0)):
        row, rest = tl.cast(task % rows, tl.int64), task // rows  # programs at work have the same points
        block, first_part = rest // some, rest % some * at_once
        point = block * BLOCK + lane
        real = point < POINTS
        for player in tl.range(PLAYERS):
            exponent = tl.zeros([BLOCK], tl.float64)
            for at in tl.range(tl.load(starts + player), tl.load(starts + player + 1)):
                z = tl.load(x + row * WIDTH + tl.load(column + at)).to(tl.float64)
                z = (z - tl.load(shift + at)) * tl.load(factor + at)
                d = z - tl.load(points + tl.cast(at, tl.int64) * POINTS + point, mask=real, other=0.0)
                exponent += tl.abs(d) if MANHATTAN else d * d
            tl.store(of_row + player * BLOCK, tl.exp(-exponent))
        for part in tl.range(first_part, tl.minimum(first_part + at_once, BACKGROUND * GROUPS)):
            e_of = of_background + tl.cast(part // GROUPS, tl.int64) * (PLAYERS * POINTS) + point
            table = quadrature + part % GROUPS * (2 * PAIRS + 1 + PAIRS * PAIRS)
            nodes = numbers_from(table, PAIRS)
            one = tl.full([BLOCK], 1.0, tl.float64)
            both, up = one, tl.tuple(())
            for _ in tl.static_range(PAIRS):
                up += (one,)
            down = up
            next_a, next_e = four_blocks(of_row, always, BLOCK), four_blocks(e_of, real, POINTS)
            for first in tl.range(0, PLAYERS, 4, loop_unroll_factor=2):
                a, e, deltas = next_a, next_e, tl.tuple(())
                ahead = tl.minimum(first + 4, PLAYERS - 4)
                next_a = four_blocks(of_row + ahead * BLOCK, always, BLOCK)
                next_e = four_blocks(e_of + ahead * POINTS, real, POINTS)
                inverse, product = four_reciprocals((a[0] + e[0], a[1] + e[1], a[2] + e[2], a[3] + e[3]))
                both *= product
                for k in tl.static_range(4):
                    deltas += ((a[k] - e[k]) * inverse[k],)
                    tl.store(delta_of + (first + k) * BLOCK, deltas[k])
                up, down = times_linear_factors(up, down, deltas, nodes, PAIRS=PAIRS)
            if TARGETS == 1:
                both *= tl.load(weights + point, mask=real, other=0.0)
            even, odd = numerators(up, down, both, nodes, table + 2 * PAIRS + 1, PAIRS=PAIRS)
            denominator = numbers_from(table + PAIRS, PAIRS + 1)
            out = parts + ((row * tl.cdiv(POINTS, BLOCK) + block) * BACKGROUND * GROUPS + part) * (PLAYERS * TARGETS)
            next_deltas = four_blocks(delta_of, always, BLOCK)
            for first in tl.range(0, PLAYERS, 4, loop_unroll_factor=2):
                delta, gains = next_deltas, tl.tuple(())
                over, under = tl.tuple(()), tl.tuple(())
                next_deltas = four_blocks(delta_of + tl.minimum(first + 4, PLAYERS - 4) * BLOCK, always, BLOCK)
                for k in tl.static_range(4):
                    v = 1.0 - delta[k] * delta[k]
                    over += (polynomial(even, v, PAIRS) - delta[k] * polynomial(odd, v, PAIRS),)
                    under += (polynomial(denominator, v, PAIRS + 1),)
                inverse, product = four_reciprocals(under)
                for k in tl.static_range(4):
                    gains += (delta[k] * over[k] * inverse[k],)
                place = out + (first + lane) * TARGETS
                if TARGETS == 1:
                    tl.store(place, four_sums(gains, lane), mask=lane < 4)
                else:
                    for target in tl.range(TARGETS):
                        weight = tl.load(weights + point * TARGETS + target, mask=real, other=0.0)
                        given = (gains[0] * weight, gains[1] * weight, gains[2] * weight, gains[3] * weight)
                        tl.store(place + target, four_sums(given, lane), mask=lane < 4)


@triton.jit(do_not_specialize=["rows"])
def sums_of_contributions_kernel(
    parts,  # float64 [rows, PARTS, PLAYERS, TARGETS]
    player_of,  # int32 [COLUMNS]: the player of each column of the table, -1 for none
    base,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS * (COLUMNS + 1)]
    rows,
    COLUMNS: tl.constexpr,
    PLAYERS: tl.constexpr,
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
):
    """A program adds the parts of `BLOCK` numbers of a row, `BLOCK_PARTS` at a time."""
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < TARGETS * (COLUMNS + 1)
    target, column = place // (COLUMNS + 1), place % (COLUMNS + 1)
    player = tl.load(player_of + column, mask=inside & (column < COLUMNS), other=-1)
    plays = inside & (player >= 0)
    of_row = parts + row * (PARTS * PLAYERS * TARGETS) + player * TARGETS + target
    total = tl.zeros([BLOCK_PARTS, BLOCK], tl.float64)
    for first in tl.range(0, PARTS, BLOCK_PARTS):
        part = first + tl.arange(0, BLOCK_PARTS)[:, None]
        total += tl.load(of_row[None, :] + part * (PLAYERS * TARGETS), mask=plays[None, :] & (part < PARTS), other=0.0)
    y = tl.sum(total, axis=0) + tl.load(base + target, mask=inside & (column == COLUMNS), other=0.0)
    tl.store(out + row * (TARGETS * (COLUMNS + 1)) + place, y.to(out.dtype.element_ty), mask=inside)
