"""The kernels of `PairwiseContributions`: sums of parts of the points and background rows, and their total."""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import INTERPRETED

TINY = tl.constexpr(1e-300)
"""A sum of two factors of which nothing is left in a product."""


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
        total = numerator / denominator
    return total


@triton.jit(do_not_specialize=["rows"])
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
    scratch,  # float64 [programs, 3, PLAYERS, BLOCK]
    parts,  # float64 [rows, PARTS, PLAYERS, TARGETS]
    rows,
    WIDTH: tl.constexpr,
    POINTS: tl.constexpr,
    PLAYERS: tl.constexpr,
    TARGETS: tl.constexpr,
    BACKGROUND: tl.constexpr,
    PART_BACKGROUND: tl.constexpr,
    PARTS: tl.constexpr,
    MANHATTAN: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes some parts of some rows: a part is of a block of points and of some background rows.

    A thread has one point. It keeps what it knows of each player in memory of its program: the row's factor, `δ` of one
    background row, and the sum over background rows.
    """
    lane, pair = tl.arange(0, BLOCK), tl.arange(0, PAIRS)
    node, node_weight = tl.load(nodes + pair)[:, None], tl.load(nodes + PAIRS + pair)[:, None]
    node_square = node * node
    of_row = scratch + tl.program_id(0).to(tl.int64) * (3 * PLAYERS * BLOCK) + lane
    delta_of, gain_of = of_row + PLAYERS * BLOCK, of_row + 2 * PLAYERS * BLOCK
    for task in tl.range(tl.program_id(0), rows * PARTS, tl.num_programs(0)):
        row, part = tl.cast(task % rows, tl.int64), task // rows  # programs at work have the same points
        point = part // tl.cdiv(BACKGROUND, PART_BACKGROUND) * BLOCK + lane
        first = part % tl.cdiv(BACKGROUND, PART_BACKGROUND) * PART_BACKGROUND
        real = point < POINTS
        for player in tl.range(PLAYERS):
            exponent = tl.zeros([BLOCK], tl.float64)
            for at in tl.range(tl.load(starts + player), tl.load(starts + player + 1)):
                z = tl.load(x + row * WIDTH + tl.load(column + at)).to(tl.float64)
                z = (z - tl.load(shift + at)) * tl.load(factor + at)
                d = z - tl.load(points + tl.cast(at, tl.int64) * POINTS + point, mask=real, other=0.0)
                exponent += tl.abs(d) if MANHATTAN else d * d
            tl.store(of_row + player * BLOCK, tl.exp(-exponent))
            tl.store(gain_of + player * BLOCK, tl.zeros([BLOCK], tl.float64))
        for b in tl.range(first, tl.minimum(first + PART_BACKGROUND, BACKGROUND)):
            e_of = of_background + tl.cast(b, tl.int64) * (PLAYERS * POINTS) + point
            half = tl.full([BLOCK], 1.0, tl.float64)
            up = tl.full([PAIRS, BLOCK], 1.0, tl.float64)
            down = tl.full([PAIRS, BLOCK], 1.0, tl.float64)
            for player in tl.range(PLAYERS):
                a = tl.load(of_row + player * BLOCK)
                e = tl.load(e_of + player * POINTS, mask=real, other=1.0)
                total = a + e
                delta = (a - e) * (1.0 / tl.where(total < TINY, 1.0, total))
                tl.store(delta_of + player * BLOCK, delta)
                half *= 0.5 * total
                step = node * delta[None, :]
                up += up * step
                down -= down * step
            even, odd = node_weight * (up + down), node_weight * node * (up - down)
            for player in tl.range(PLAYERS):
                delta = tl.load(delta_of + player * BLOCK)
                integral = sum_of_fractions(even - odd * delta[None, :], 1.0 - node_square * (delta * delta)[None, :])
                gain = tl.load(gain_of + player * BLOCK) + half * delta * integral
                tl.store(gain_of + player * BLOCK, gain)
        out = parts + (row * PARTS + part) * (PLAYERS * TARGETS)
        for player in tl.range(PLAYERS):
            gain = tl.load(gain_of + player * BLOCK)
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
):
    """A program adds the parts of `BLOCK` numbers of a row, in order."""
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < TARGETS * (COLUMNS + 1)
    target, column = place // (COLUMNS + 1), place % (COLUMNS + 1)
    player = tl.load(player_of + column, mask=inside & (column < COLUMNS), other=-1)
    plays = inside & (player >= 0)
    total = tl.load(base + target, mask=inside & (column == COLUMNS), other=0.0)
    of_row = parts + row * (PARTS * PLAYERS * TARGETS) + player * TARGETS + target
    for part in tl.range(PARTS):
        total += tl.load(of_row + part * (PLAYERS * TARGETS), mask=plays, other=0.0)
    tl.store(out + row * (TARGETS * (COLUMNS + 1)) + place, total.to(out.dtype.element_ty), mask=inside)
