"""Device functions that take rows down decision trees, many rows and trees at a time.

A program's lanes are pairs of a tree and a row, row fastest: neighbouring lanes read the same nodes near the root. A
descent lasts as many levels as the deepest of the program's trees has; lanes that arrive earlier wait.

The node chooses the feature that a lane reads, so reading rows in place takes a cache line for each lane. A program
therefore holds its rows' features as a table from which `tl.gather` reads, through shared memory. The features of a row
form one column of the table, and each column has its own bank of shared memory: lanes never wait for each other.
"""

from __future__ import annotations

import triton
import triton.language as tl

EMPTY = tl.constexpr(-(2**63))
"""A leaf of plain nodes that holds 0."""

NO_TREE = tl.constexpr(-(2**30))
"""What a row of a fleet's member has in place of the trees that other members have beyond its own."""


@triton.jit
def feature_table(
    x,  # float32 or float64 [rows, FEATURES]
    first,  # int64, the first of the table's rows
    rows,
    dtype: tl.constexpr,
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,  # a power of two, at least FEATURES
    BLOCK_ROWS: tl.constexpr,
):
    """Return the features of `BLOCK_ROWS` rows, `[WIDTH * BLOCK_ROWS]`, in the layout that `from_table` reads.

    Rows are read in place, and their features are then exchanged once: feature `f` of row `r` goes to column `r` and
    line `f ^ r`, so that neither the reading nor the writing side of the exchange accesses a bank twice.
    """
    row = first + tl.arange(0, BLOCK_ROWS)
    feature = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
    read = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(dtype)
    place = tl.arange(0, WIDTH * BLOCK_ROWS)
    column = place % BLOCK_ROWS
    source = column * WIDTH + ((place // BLOCK_ROWS) ^ (column & (WIDTH - 1)))
    return tl.gather(tl.reshape(read, [WIDTH * BLOCK_ROWS]), source, 0)


@triton.jit
def from_table(table, feature, swizzle, BLOCK_ROWS: tl.constexpr):
    """Return one feature, below the table's width, for each lane; `swizzle` is the place of its row's feature 0."""
    return tl.gather(table, (feature * BLOCK_ROWS) ^ swizzle, 0)


@triton.jit
def rows_of_lanes(
    x,  # float32 or float64 [rows, FEATURES]
    first,  # int64, the first of the program's rows
    rows,
    r,  # int32 [lanes], the lane's row within the program
    dtype: tl.constexpr,
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,  # of the table, None without a table
    BLOCK_ROWS: tl.constexpr,
):
    """Return the rows' `feature_table`, the `swizzle` of each lane, and 1 if no number is missing, else 0.

    Without a table the first two results are placeholders.
    """
    if WIDTH is None:
        table, swizzle, complete = r, r, 0
    else:
        table = feature_table(x, first, rows, dtype=dtype, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS)
        swizzle = (r & (WIDTH - 1)) * BLOCK_ROWS + r
        complete = tl.min(tl.where(table == table, 1, 0), axis=0)
    return table, swizzle, complete


@triton.jit
def reach(
    x,  # float32 or float64 [rows, FEATURES]
    table,  # of `feature_table`, or None
    swizzle,  # int32 [lanes], see `from_table`, or None
    complete,  # whether no number is missing; 0 without a table
    row,  # int64 [lanes]
    tree,  # int32 [lanes]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [trees]
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [trees] where FORM is "quads"
    leaves,  # int32 or int64 [leaves] where HOLDS
    levels,  # int32, the levels of the deepest tree
    inside,  # bool [lanes]
    HOLDS: tl.constexpr,  # whether to return the numbers in leaves instead of the leaves' own numbers
    FEATURES: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    FORM: tl.constexpr,
    TOGETHER: tl.constexpr,  # see `descend_quads`
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Return the content of the leaf that each lane reaches, int64.

    A program descends the nodes that FORM names, "plain" or "quads", unless a number of its rows is missing or FORM is
    "nodes".
    """
    root = tl.load(roots + tree, mask=inside, other=0)
    if FORM != "nodes" and complete > 0:
        if FORM == "quads":
            held = descend_quads(
                table, swizzle, quads, tl.load(quad_roots + tree, mask=inside, other=0), levels, inside,
                FEATURE_BITS=FEATURE_BITS, TOGETHER=TOGETHER, BLOCK_ROWS=BLOCK_ROWS,
            )  # fmt: skip
        else:
            held = descend_plain(
                table, swizzle, plain, root, levels, inside, FEATURE_BITS=FEATURE_BITS, BLOCK_ROWS=BLOCK_ROWS
            )
    else:
        leaf = descend(
            x, table, swizzle, row, nodes, thresholds, sets, root, levels, inside,
            FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
            WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        held = tl.load(leaves + leaf, mask=inside, other=0).to(tl.int64) if HOLDS else leaf.to(tl.int64)
    return held


@triton.jit
def descend(
    x,  # float32 or float64 [rows, FEATURES]
    table,  # of `feature_table`, or None
    swizzle,  # int32 [lanes], see `from_table`, or None
    row,  # int64 [lanes]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    node,  # int32 [lanes], the roots
    levels,  # int32, the levels of the deepest tree
    inside,  # bool [lanes]
    FEATURES: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no node asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    WIDTH: tl.constexpr,  # None without a table
    BLOCK_ROWS: tl.constexpr,
):
    """Return the number of the leaf that each lane reaches, through the nodes that `tree_ensemble.py` documents."""
    word = tl.load(nodes + node, mask=inside, other=0)
    for _ in tl.range(0, levels):
        below = (word >> (34 + FEATURE_BITS)).to(tl.int32)
        inner = below > 0
        low = word.to(tl.int32)
        high = (word >> 32).to(tl.int32)
        if WIDE:
            feature = low
            threshold = tl.load(thresholds + node, mask=inner, other=0.0)
        else:
            feature = (high >> 2) & ((1 << FEATURE_BITS) - 1)
            threshold = low.to(tl.float32, bitcast=True)
        if WIDTH is not None:
            value = from_table(table, feature & (WIDTH - 1), swizzle, BLOCK_ROWS=BLOCK_ROWS)
        else:
            value = tl.load(x + row * FEATURES + feature, mask=inner, other=0.0).to(threshold.dtype)
        left = value <= threshold
        missing = value != value
        if WORDS:
            categorical = (high & 2) != 0
            known = (value >= 0.0 if FLOOR else value > -1.0) & (value < 32.0 * WORDS - 1.0)
            category = tl.where(known, value, 32.0 * WORDS - 1.0).to(tl.int32)
            if WIDE:
                low = tl.where(categorical, threshold, 0.0).to(tl.int32)
            bits = tl.load(sets + low * WORDS + (category >> 5), mask=inner & categorical, other=0)
            left = tl.where(categorical, ((bits >> (category & 31)) & 1) != 0, left)
        left = tl.where(missing, (high & 1) != 0, left)
        node += tl.where(inner, below + tl.where(left, 0, 1), 0)
        word = tl.load(nodes + node, mask=inner, other=word)
    return word.to(tl.int32)


@triton.jit
def descend_plain(
    table,  # float32, of `feature_table`
    swizzle,  # int32 [lanes], see `from_table`
    plain,  # int64 [nodes]
    node,  # int32 [lanes], the roots
    levels,  # int32, the levels of the deepest tree
    inside,  # bool [lanes]
    FEATURE_BITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Return the content of the leaf that each lane reaches, int64, through nodes of `pack_plain` in `nodes.py`."""
    word = tl.load(plain + node, mask=inside, other=EMPTY)
    for _ in tl.range(0, levels):
        high = (word >> 32).to(tl.int32)
        feature = (high >> 5) & ((1 << FEATURE_BITS) - 1)
        value = from_table(table, feature, swizzle, BLOCK_ROWS=BLOCK_ROWS)
        right = value > word.to(tl.int32).to(tl.float32, bitcast=True)
        node += (high >> (5 + FEATURE_BITS)) + right.to(tl.int32)
        word = tl.load(plain + node, mask=high >= 0, other=word)
    return (word << 1) >> 1


@triton.jit
def descend_quads(
    table,  # float32, of `feature_table`
    swizzle,  # int32 [lanes], see `from_table`
    quads,  # int64 [groups, 4, 2]
    group,  # int32 [lanes], the groups of the roots
    levels,  # int32, the levels of the deepest tree
    inside,  # bool [lanes]
    FEATURE_BITS: tl.constexpr,
    TOGETHER: tl.constexpr,  # whether to read all features of a quad together, and to check whether lanes have arrived
    BLOCK_ROWS: tl.constexpr,
):
    """Return the content of the leaf that each lane reaches, int64, through the nodes of `two_level_nodes.py`.

    If a program has few trees, most of the work is writing the table, which each read does. `TOGETHER` halves that
    work and stops early: few lanes rarely go as deep as their trees.
    """
    nothing = tl.zeros([group.shape[0]], tl.int64)
    first, second = _load_pair(quads, group * 4, inside, nothing, nothing - 1)
    if TOGETHER:
        going = 1
        for _ in tl.range(0, levels, 4):
            if going > 0:
                for _twice in tl.static_range(2):
                    group, first, second = _visit(
                        table, swizzle, quads, group, first, second,
                        FEATURE_BITS=FEATURE_BITS, TOGETHER=True, BLOCK_ROWS=BLOCK_ROWS,
                    )  # fmt: skip
                going = tl.max((second >= 0).to(tl.int32), axis=0)
    else:
        for _ in tl.range(0, levels, 2):
            group, first, second = _visit(
                table, swizzle, quads, group, first, second,
                FEATURE_BITS=FEATURE_BITS, TOGETHER=False, BLOCK_ROWS=BLOCK_ROWS,
            )  # fmt: skip
    return first


@triton.jit
def _visit(
    table,
    swizzle,
    quads,
    group,
    first,
    second,
    FEATURE_BITS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Return the groups and words of the quads two levels further down; lanes at a leaf keep theirs."""
    high = (second >> 32).to(tl.int32)
    top = high & ((1 << FEATURE_BITS) - 1)
    if TOGETHER:
        left = ((high >> FEATURE_BITS) & ((1 << FEATURE_BITS) - 1)) * BLOCK_ROWS ^ swizzle
        right = ((high >> (2 * FEATURE_BITS)) & ((1 << FEATURE_BITS) - 1)) * BLOCK_ROWS ^ swizzle
        top = top * BLOCK_ROWS ^ swizzle
        places = tl.join(tl.join(top, left), tl.join(right, top))
        values = tl.gather(table, tl.reshape(places, [4 * group.shape[0]]), 0)
        of_first, of_second = tl.split(tl.reshape(values, [group.shape[0], 2, 2]))
        value, of_left = tl.split(of_first)
        of_right, _ = tl.split(of_second)
    else:
        value = from_table(table, top, swizzle, BLOCK_ROWS=BLOCK_ROWS)
    to_right = value > first.to(tl.int32).to(tl.float32, bitcast=True)
    threshold = tl.where(to_right, second.to(tl.int32), (first >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    if TOGETHER:
        value = tl.where(to_right, of_right, of_left)
    else:
        feature = tl.where(to_right, high >> (2 * FEATURE_BITS), high >> FEATURE_BITS) & ((1 << FEATURE_BITS) - 1)
        value = from_table(table, feature, swizzle, BLOCK_ROWS=BLOCK_ROWS)
    group += high >> (3 * FEATURE_BITS)
    slot = group * 4 + (to_right.to(tl.int32) * 2 + (value > threshold).to(tl.int32))
    first, second = _load_pair(quads, slot, high >= 0, first, second)
    return group, first, second


@triton.jit
def _load_pair(words, pair, mask, first, second):
    """Return the two words of each pair, in one load; without `mask` return the given words."""
    at = words + (pair * 2)[:, None] + tl.arange(0, 2)[None, :]
    return tl.split(tl.load(at, mask=mask[:, None], other=tl.join(first, second)))
