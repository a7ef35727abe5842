"""The kernels of `PairwiseContributions`: sums of blocks of points, for each background row, and their total."""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import INTERPRETED

TINY = tl.constexpr(1e-300)
"""A sum of two factors of which nothing is left in a product."""


@triton.jit
def reciprocal(x):
    """Return 1 / x to the last bits, for numbers that are not near the ends of the range."""
    if INTERPRETED:
        r = 1.0 / x
    else:  # an exact division takes three times as long
        r = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [x], tl.float64, True, 1)  # 20 bits
        r += r * (1.0 - x * r)
        r += r * (1.0 - x * r)
    return r


@triton.jit
def add_fractions(numerator, denominator, other_numerator, other_denominator):
    """Return the sum of two fractions as a fraction."""
    sum_of_both = numerator * other_denominator + other_numerator * denominator
    return sum_of_both, denominator * other_denominator


@triton.jit
def sum_of_fractions(numerators, denominators):
    """Return the sums of a block's columns of fractions, which take one division each."""
    if INTERPRETED:  # whose reductions are slow
        total = tl.sum(numerators / denominators, axis=0)
    else:
        numerator, denominator = tl.reduce((numerators, denominators), 0, add_fractions)
        total = numerator * reciprocal(denominator)
    return total


@triton.jit(do_not_specialize=["rows", "at_once"])
def parts_of_contributions_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    column,  # int32 [FACTORS]: the columns of `x`, player after player
    starts,  # int32 [PLAYERS + 1]: each player's first one
    shift,  # float64 [FACTORS]
    factor,  # float64 [FACTORS]
    points,  # float64 [FACTORS, POINTS]
    of_background,  # float64 [BACKGROUND, PLAYERS, POINTS]: the background's factors
    nodes,  # float64 [2, PAIRS]: the positive nodes of the quadrature, and their weights
    weights,  # float64 [POINTS, TARGETS]
    scratch,  # float64 [programs, 2, PLAYERS, BLOCK]
    parts,  # float64 [rows, blocks of points, BACKGROUND, PLAYERS, TARGETS]
    rows,
    at_once,  # background rows of a task
    WIDTH: tl.constexpr,
    POINTS: tl.constexpr,
    PLAYERS: tl.constexpr,
    TARGETS: tl.constexpr,
    BACKGROUND: tl.constexpr,
    MANHATTAN: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes the parts of some tasks: of a row, a block of points, and `at_once` background rows.

    A thread has one point. It keeps two numbers of each player in memory of its program: the row's factor, and `δ` of
    one background row.
    """
    lane, pair = tl.arange(0, BLOCK), tl.arange(0, PAIRS)
    node, node_weight = tl.load(nodes + pair)[:, None], tl.load(nodes + PAIRS + pair)[:, None]
    node_square = node * node
    of_row = scratch + tl.program_id(0).to(tl.int64) * (2 * PLAYERS * BLOCK) + lane
    delta_of = of_row + PLAYERS * BLOCK
    some = tl.cdiv(BACKGROUND, at_once)
    for task in tl.range(tl.program_id(0), rows * tl.cdiv(POINTS, BLOCK) * some, tl.num_programs(0)):
        row, rest = tl.cast(task % rows, tl.int64), task // rows  # programs at work have the same points
        block, first = rest // some, rest % some * at_once
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
        for b in tl.range(first, tl.minimum(first + at_once, BACKGROUND)):
            e_of = of_background + tl.cast(b, tl.int64) * (PLAYERS * POINTS) + point
            half = tl.full([BLOCK], 1.0, tl.float64)
            up = tl.full([PAIRS, BLOCK], 1.0, tl.float64)
            down = tl.full([PAIRS, BLOCK], 1.0, tl.float64)
            for player in tl.range(PLAYERS):
                a = tl.load(of_row + player * BLOCK)
                e = tl.load(e_of + player * POINTS, mask=real, other=1.0)
                total = a + e
                delta = (a - e) * reciprocal(tl.where(total < TINY, 1.0, total))
                tl.store(delta_of + player * BLOCK, delta)
                half *= 0.5 * total
                step = node * delta[None, :]
                up += up * step
                down -= down * step
            even, odd = node_weight * (up + down), node_weight * node * (up - down)
            out = parts + ((row * tl.cdiv(POINTS, BLOCK) + block) * BACKGROUND + b) * (PLAYERS * TARGETS)
            for player in tl.range(PLAYERS):
                delta = tl.load(delta_of + player * BLOCK)
                integral = sum_of_fractions(even - odd * delta[None, :], 1.0 - node_square * (delta * delta)[None, :])
                gain = half * delta * integral
                for target in tl.range(TARGETS):
                    weight = tl.load(weights + point * TARGETS + target, mask=real, other=0.0)
                    tl.store(out + player * TARGETS + target, tl.sum(gain * weight, axis=0))


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
