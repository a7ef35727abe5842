"""The kernels of sums over points for the members of a fleet; see `stacked_pairwise_affine.py`.

A program computes its block of rows with the points of one member after the other, and writes the rows of this member:
a row has the same bits whatever the other rows of its block are. A program takes as long as its rows have members, so
neighbouring rows should have the same.

`spans`, int64 `[members, 6]`, says for each member where its points begin among those of all and how many there are,
where its columns begin and how many points a part covers, where its parts begin and how many there are. The third and
the fourth are whole blocks, so that the compiler knows how columns are aligned and spreads them over threads as those
of one model. The other tables hold those of one member after the other.

Where RAGGED, members have other numbers of parts, and the last number of a row of `out` is that of its own member.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.members import member_places
from .l1_chi2 import store_columns
from .l1_chi2_pairs import parts_of_column_pairs
from .launch import MOST_BLOCK_POINTS
from .pairs_kernel import parts_of_pairs
from .row_digits import store_row_digits
from .sum_kernel import parts_of_sums

LARGEST_BLOCK = tl.constexpr(MOST_BLOCK_POINTS)


@triton.jit
def places_of_block(numbers, row, rows, first, members):
    """Return the places of rows' members, int64 `[BLOCK_ROWS]`; a row past the last one has the least of the others."""
    inside = row < rows
    place = member_places(numbers, row, inside, first, members)
    return tl.where(inside, place, tl.min(tl.where(inside, place, members)))


@triton.jit
def next_member(place, member, members):
    """Return the least place above that of a member, or the number of members if there is none."""
    return tl.min(tl.where(place > member, place, members))


@triton.jit
def points_of(spans, member):
    """Return the first point of a member, int64, the number of points, the first column, int64, and a part's points."""
    at = spans + member * 6
    column, part_points = tl.load(at + 2) * LARGEST_BLOCK, tl.load(at + 3).to(tl.int32) * LARGEST_BLOCK
    return tl.load(at), tl.load(at + 1).to(tl.int32), column, part_points


@triton.jit
def parts_of(spans, member):
    """Return the first part of a member, int64, and the number of parts."""
    at = spans + member * 6
    return tl.load(at + 4), tl.load(at + 5).to(tl.int32)


@triton.jit
def store_parts(out, row, mine, parts, WIDTH: tl.constexpr):
    """Write the number of parts to the end of the rows that are `mine`; one of the programs of these rows does."""
    mine &= tl.program_id(1) + tl.program_id(2) == 0
    tl.store(out + row * WIDTH + (WIDTH - 1), tl.where(mine, parts, 0).to(out.dtype.element_ty), mask=mine)


@triton.jit(do_not_specialize=["rows", "program_parts", "program_rows", "first", "members"])
def stacked_pairwise_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members, 6]
    shift,  # like the next ten as in `pairwise_affine_kernel`, those of all members
    factor,
    points,
    norms,
    numbers,  # float64 [members, NUMBERS]
    table,  # one table for all members
    digits,
    products,
    offsets,
    least,
    row_digits,
    row_terms,
    weight,
    intercept,
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    program_parts,
    program_rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    WAY: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    SHORT: tl.constexpr,
    WEIGHED: tl.constexpr,
    BY_POINTS: tl.constexpr,
    TARGETS: tl.constexpr,
    WIDTH: tl.constexpr,
    RAGGED: tl.constexpr,
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """A program makes `program_rows` rows of some parts of `BLOCK_TARGETS` targets."""
    row = tl.program_id(0).to(tl.int64) * program_rows + tl.arange(0, BLOCK_ROWS)
    end = tl.minimum(rows, (tl.program_id(0) + 1) * program_rows)
    place = places_of_block(numbers_of_rows, row, end, first, members)
    member = tl.min(place)
    COUNT: tl.constexpr = 2 if SHORT else 3
    LINES: tl.constexpr = FEATURES + FEATURES % 2 if METRIC == "chi2" else FEATURES  # of columns
    while member < members:
        point, count, column, part_points = points_of(spans, member)
        part, parts = parts_of(spans, member)
        mine = (row < end) & (place == member)
        parts_of_sums(
            x, shift + member * FEATURES, factor + member * FEATURES, points + point * FEATURES, norms + point,
            numbers + member * NUMBERS, table, digits + point * (COUNT * BLOCK_FEATURES),
            products + (column * LINES if WAY == "columns" else point * FEATURES), offsets + point, least + point,
            row_digits, row_terms, weight + point * TARGETS, intercept + part * TARGETS, out, row,
            mine, rows, program_parts, count, parts, part_points,
            FEATURES=FEATURES, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS, WAY=WAY,
            APPROXIMATE=APPROXIMATE, SHORT=SHORT, WEIGHED=WEIGHED, BY_POINTS=BY_POINTS, PADDED=True, TARGETS=TARGETS,
            WIDTH=WIDTH, FUNCTION=FUNCTION, OWN_ROWS=OWN_ROWS, BLOCK_FEATURES=BLOCK_FEATURES,
            BLOCK_POINTS=BLOCK_POINTS, BLOCK_TARGETS=BLOCK_TARGETS,
        )  # fmt: skip
        if RAGGED:
            store_parts(out, row, mine, parts, WIDTH)
        member = next_member(place, member, members)


@triton.jit(do_not_specialize=["rows", "program_parts", "program_rows", "first", "members"])
def stacked_sums_of_pairs_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members, 6]
    shift,  # like the next eight as in `sums_of_pairs_kernel`, those of all members
    factor,
    points,
    numbers,  # float64 [members, NUMBERS]
    digits,
    offsets,
    least,
    weight,
    intercept,
    row_digits,
    row_terms,
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    program_parts,
    program_rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    WIDTH: tl.constexpr,
    RAGGED: tl.constexpr,
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `program_rows` rows of some parts of sums of one target."""
    row = tl.program_id(0).to(tl.int64) * program_rows + tl.arange(0, BLOCK_ROWS)
    end = tl.minimum(rows, (tl.program_id(0) + 1) * program_rows)
    place = places_of_block(numbers_of_rows, row, end, first, members)
    member = tl.min(place)
    while member < members:
        point, count, _, part_points = points_of(spans, member)
        part, parts = parts_of(spans, member)
        mine = (row < end) & (place == member)
        parts_of_pairs(
            x, shift + member * FEATURES, factor + member * FEATURES, points + point * FEATURES,
            numbers + member * NUMBERS, digits + point * (3 * BLOCK_FEATURES), offsets + point * 2, least + point,
            weight + point * 2, intercept + part, row_digits, row_terms, out, row,
            mine, rows, program_parts, count, parts, part_points,
            FEATURES=FEATURES, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, WIDTH=WIDTH, FUNCTION=FUNCTION,
            OWN_ROWS=OWN_ROWS, BLOCK_FEATURES=BLOCK_FEATURES, BLOCK_POINTS=BLOCK_POINTS,
        )  # fmt: skip
        if RAGGED:
            store_parts(out, row, mine, parts, WIDTH)
        member = next_member(place, member, members)


@triton.jit(do_not_specialize=["rows", "program_parts", "first", "members"])
def stacked_column_pairs_kernel(
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    spans,  # int64 [members, 6]
    table,
    terms,
    points,  # like the next four as in `column_pairs_kernel`, those of all members
    offsets,
    least,
    numbers,  # float64 [members, NUMBERS]
    intercept,
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    program_parts,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    METRIC: tl.constexpr,
    WIDTH: tl.constexpr,
    RAGGED: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of some parts."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = places_of_block(numbers_of_rows, row, rows, first, members)
    member = tl.min(place)
    LINES: tl.constexpr = 3 * FEATURES if METRIC == "chi2" else FEATURES
    while member < members:
        point, count, column, part_points = points_of(spans, member)
        part, parts = parts_of(spans, member)
        mine = (row < rows) & (place == member)
        parts_of_column_pairs(
            table, terms, points + column * LINES, offsets + point * 2, least + point, numbers + member * NUMBERS,
            intercept + part, out, row, mine, rows, program_parts, count, parts,
            part_points,
            FEATURES=FEATURES, METRIC=METRIC, WIDTH=WIDTH, FUNCTION=FUNCTION, BLOCK_FEATURES=BLOCK_FEATURES,
            BLOCK_POINTS=BLOCK_POINTS,
        )  # fmt: skip
        if RAGGED:
            store_parts(out, row, mine, parts, WIDTH)
        member = next_member(place, member, members)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_rows_as_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # float64 [members, FEATURES]
    factor,  # float64 [members, FEATURES]
    numbers,  # float64 [members, NUMBERS]
    digits,  # like the next as in `rows_as_digits_kernel`
    terms,
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    METRIC: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = places_of_block(numbers_of_rows, row, rows, first, members)
    member = tl.min(place)
    while member < members:
        store_row_digits(
            x, shift + member * FEATURES, factor + member * FEATURES, numbers + member * NUMBERS, digits, terms, row,
            (row < rows) & (place == member), rows,
            FEATURES=FEATURES, METRIC=METRIC, COUNT=COUNT, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        member = next_member(place, member, members)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_rows_as_columns_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers_of_rows,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # float64 [members, FEATURES]
    factor,  # float64 [members, FEATURES]
    numbers,  # float64 [members, NUMBERS]
    table,  # like the next as in `rows_as_columns_kernel`
    terms,
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    NUMBERS: tl.constexpr,
    METRIC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` columns; columns past the last row are those of a row of zeros."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = places_of_block(numbers_of_rows, row, rows, first, members)
    member = tl.min(place)
    while member < members:
        store_columns(
            x, shift + member * FEATURES, factor + member * FEATURES, numbers + member * NUMBERS, table, terms, row,
            place == member, rows,
            FEATURES=FEATURES, METRIC=METRIC, PAIRS=PAIRS, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        member = next_member(place, member, members)
