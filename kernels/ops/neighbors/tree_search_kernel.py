"""The search of a kd-tree or ball tree in the Triton language: the search of `tree_search.py` for one row.

The tree is complete and its nodes are numbered level by level, so a search needs no stack. The bits of one number mark
the levels on which the second child still waits, and a node's number gives its parent and its sibling. The bound of a
waiting child is computed again when its turn comes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .distances import INFINITY, distances_between, finish_distance, minkowski_term


@triton.jit
def search_tree(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS], in the tree's order
    order,  # int32 [POINTS]
    nodes,  # int32 [NODES, 3]: begin, end, leaf
    bounds,  # float64 [2, NODES, FEATURES], a kd-tree's corners, or [1, NODES, FEATURES], a ball tree's centres
    radii,  # float64 [NODES], of a ball tree
    factor,  # float64 [FEATURES], ones
    row,  # int64
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NODES: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    BALLS: tl.constexpr,
    METRIC: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK_LEAF: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Return the reduced distances and indices in the heap after the search for one row, `[SLOTS]` each.

    The first NEIGHBORS slots are valid. A slot that was never filled holds an infinite distance.
    """
    slot = tl.arange(0, SLOTS)
    heap = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    held = slot
    lane = tl.arange(0, BLOCK_LEAF)
    xs = x + row * FEATURES + tl.zeros([1], tl.int32)
    here = tl.full([1], 1, tl.int1)
    largest = tl.max(heap, axis=0)
    low = tl.zeros_like(largest)  # the root is entered whatever its bound is
    node = tl.program_id(0) * 0
    waiting = node.to(tl.int64)
    more = node == 0
    while more:
        start, end, leaf = tl.load(nodes + 3 * node), tl.load(nodes + 3 * node + 1), tl.load(nodes + 3 * node + 2)
        enters = low <= largest
        if enters & (leaf != 0):
            for first in tl.range(start, end, BLOCK_LEAF):
                point = first + lane
                distance = distances_between(
                    xs, columns + point, factor, here, point < end, FEATURES=FEATURES, STRIDE=POINTS, METRIC=METRIC,
                    UNROLL=UNROLL, FUSED=False,
                )  # [BLOCK_LEAF]  # fmt: skip
                index = tl.load(order + point, mask=point < end, other=0)
                place = tl.min(tl.where(distance < largest, lane, BLOCK_LEAF), axis=0)
                while place < BLOCK_LEAF:
                    value = tl.max(tl.where(lane == place, distance, -INFINITY), axis=0)
                    heap, held = offer(value, tl.max(tl.where(lane == place, index, -1), axis=0), heap, held, slot)
                    largest = tl.max(heap, axis=0)
                    place = tl.min(tl.where((lane > place) & (distance < largest), lane, BLOCK_LEAF), axis=0)
        deeper = enters & (leaf == 0)
        if not deeper:
            while (node > 0) & ((waiting & 1) == 0):
                node = (node - 1) // 2
                waiting = waiting >> 1
        more = deeper | (node > 0)
        if more:
            left = tl.where(deeper, 2 * node + 1, node - 1 + node % 2)
            lows = node_bounds(
                xs, bounds, radii, factor, here, left, FEATURES=FEATURES, NODES=NODES, BALLS=BALLS,
                METRIC=METRIC, UNROLL=UNROLL,
            )  # [2]  # fmt: skip
            side = tl.arange(0, 2)
            of_left = tl.max(tl.where(side == 0, lows, -INFINITY), axis=0)
            of_right = tl.max(tl.where(side == 1, lows, -INFINITY), axis=0)
            to_left = tl.where(deeper, of_left <= of_right, node != left)
            node = tl.where(to_left, left, left + 1)
            low = tl.where(to_left, of_left, of_right)
            waiting = tl.where(deeper, waiting * 2 + 1, waiting - 1)
    return heap, held


@triton.jit
def node_bounds(
    xs,  # pointer to the row, [1]
    bounds,
    radii,
    factor,
    here,  # int1 [1], true
    left,  # int32
    FEATURES: tl.constexpr,
    NODES: tl.constexpr,
    BALLS: tl.constexpr,
    METRIC: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Return the bounds of a row's reduced distances to the points of node `left` and of the node after it, `[2]`."""
    node = left + tl.arange(0, 2)
    real = node < NODES
    corner = bounds + node.to(tl.int64) * FEATURES
    if BALLS:
        distance = distances_between(
            xs, corner, factor, here, real, FEATURES=FEATURES, STRIDE=1, METRIC=METRIC, UNROLL=UNROLL, FUSED=False,
        )  # fmt: skip
        a = finish_distance(distance, METRIC) - tl.load(radii + node, mask=real, other=0.0)
        a = tl.where(a > 0.0, a, 0.0)
        if METRIC.name == "euclidean":
            a = a * a
    else:
        a = tl.zeros([2], tl.float64)
        for f in tl.range(0, FEATURES, loop_unroll_factor=UNROLL):
            u = tl.load(xs + f).to(tl.float64)
            least = tl.load(corner + f, mask=real, other=0.0)
            most = tl.load(corner + NODES * FEATURES + f, mask=real, other=0.0)
            d = tl.where(u < least, least - u, tl.where(u > most, u - most, 0.0))
            d = tl.where(u == u, d, float("nan"))
            if METRIC.name == "chebyshev":
                a = tl.where((d > a) | (d != d), d, a)
            elif METRIC.name == "manhattan":
                a += d
            elif METRIC.name == "euclidean":
                a += d * d
            else:
                a += minkowski_term(d, METRIC)
    return tl.where(a == a, a, INFINITY)


@triton.jit
def offer(value, index, heap, held, slot):
    """Return the heap, `[SLOTS]` distances and indices, after a nearer point replaced its root and sank.

    Slots past the heap hold −infinity, so nothing sinks there.
    """
    at = index * 0
    sinks = at == 0
    while sinks:
        left = 2 * at + 1
        of_left = tl.max(tl.where(slot == left, heap, -INFINITY), axis=0)
        of_right = tl.max(tl.where(slot == left + 1, heap, -INFINITY), axis=0)
        child = tl.where(of_left >= of_right, left, left + 1)
        further = tl.maximum(of_left, of_right)
        sinks = value < further
        if sinks:
            risen = tl.max(tl.where(slot == child, held, -1), axis=0)
            heap = tl.where(slot == at, further, heap)
            held = tl.where(slot == at, risen, held)
            at = child
    return tl.where(slot == at, value, heap), tl.where(slot == at, index, held)
