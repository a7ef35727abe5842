"""Tips of trees and the tables of what they give, for `path_contributions.py`.

A tip is a subtree of at most `LEAVES` leaves that is no whole tree, in no larger tip. Each of its inner nodes can be in
up to three states for a row: the row is not known there, or goes to the left, or to the right (`path_states.py`). The
states of all inner nodes of a tip are its pattern. For each pattern a table has `R` of the tip at all points, and for
each inner node a number at each point whose product with `P` of the tip, summed over the points, is what it gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .preorder import Arranged

LEAVES = 5
"""The most leaves of a tip, unless tables become too large: a pattern is a byte, and the kernel adds what up to four
inner nodes give."""

INNER = LEAVES - 1
"""The most inner nodes of a tip."""

NUMBERS = 2**22
"""The most numbers of one kind that are computed at a time, unless one tip has more."""


class Tips(NamedTuple):
    """The tips in preorder, `[tips]` each."""

    node: np.ndarray  # int64, the root, in preorder
    inner: np.ndarray  # int64 [INNER, tips], the inner nodes in preorder; −1 past the last
    states: np.ndarray  # int64 [INNER, tips], how many states these can be in, 1 to 3; 1 past the last
    strides: np.ndarray  # int64 [INNER, tips], what a state counts for in the number of a pattern
    counts: np.ndarray  # int64, of the inner nodes
    patterns: np.ndarray  # int64


def tips_of(trees: Arranged, most: int) -> Tips:
    """Return the tips of at most so many leaves."""
    nodes = len(trees.inner)
    small = (trees.size <= 2 * most - 1) & (trees.depth > 0)
    end = np.where(small, np.arange(nodes) + trees.size, 0)
    node = np.flatnonzero(small & (np.arange(nodes) >= np.append(0, np.maximum.accumulate(end)[:-1])))
    count = trees.size[node] // 2
    place, inner = np.cumsum(trees.inner) - trees.inner, np.flatnonzero(trees.inner)
    at = place[node] + np.arange(INNER)[:, None]  # the inner nodes of a tip follow each other
    found = np.where(np.arange(INNER)[:, None] < count, np.append(inner, 0)[np.minimum(at, len(inner))], -1)
    states = np.where(found < 0, 1, np.clip(trees.earlier[found] + 3, 1, 3))
    strides = np.append(np.ones((1, len(node)), int), np.cumprod(states, axis=0)[:-1], axis=0)
    return Tips(node, found, states, strides, count, states.prod(axis=0))


def digits(trees: Arranged, tips: Tips, some: np.ndarray) -> dict[str, np.ndarray]:
    """Return what numbers the patterns of some tips; the tip after all has one pattern.

    `tip_nodes` is int32 `[INNER, some]`: the numbers of the inner nodes among all inner nodes; past the last one that
    of the node after all. `tip_digits` is int64 `[some]`, of eight bits for each of them: the stride, and 128 if rows
    may be not known there.
    """
    nodes = np.count_nonzero(trees.inner)
    node = np.where(tips.inner < 0, nodes, trees.number[tips.inner])
    packed = np.where(tips.inner < 0, 0, tips.strides + 128 * (tips.states == 3)) << 8 * np.arange(INNER)[:, None]
    numbers = np.append(node, np.full((INNER, 1), nodes), axis=1)[:, some].astype(np.int32)
    return {"tip_nodes": numbers, "tip_digits": np.append(packed.sum(axis=0), 0)[some]}


def patterns_of(trees: Arranged, tips: Tips, left: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the patterns of rows, int8 `[tips + 1, rows]`; `left` and `known` are bool `[inner nodes, rows]`."""
    found = np.zeros((len(tips.node) + 1, left.shape[1]), dtype=np.int8)
    for inner, states, strides in zip(tips.inner, tips.states, tips.strides, strict=True):
        tip = np.flatnonzero(inner >= 0)
        node = trees.number[inner[tip]]
        digit = (1 - left[node]) + (known[node] & (states[tip] == 3)[:, None])
        found[tip] += (digit * strides[tip][:, None]).astype(np.int8)
    return found


def ratios_of(share: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `y` and `q` of known rows, `[..., points]`, for the probability on the way to a node, of its player."""
    share = share[..., None]
    whole = np.where(share == 1, 1.0, points + (1 - points) * share)
    return (1 - points) * share / whole, -share / whole**2


def starts_of(tips: Tips, own: np.ndarray) -> tuple[np.ndarray, int]:
    """Return where the entries of some tips begin, int64 `[tips + 1]`, and how many there are.

    Entry 0 is that of the tip after all, and of all that are not `own`.
    """
    sizes = np.where(own, (1 + tips.counts) * tips.patterns, 0)
    return np.append(np.where(own, 1 + np.cumsum(sizes) - sizes, 0), 0), 1 + int(sizes.sum())


def table_of(
    trees: Arranged, tips: Tips, own: np.ndarray, leaf: np.ndarray, held: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Return the table of some tips, float32 `[targets, entries, points]`.

    A tip has entries for `R`, one for each pattern, and then as many for each of its inner nodes.

    Args:
        trees: the nodes.
        tips: all tips.
        own: bool `[tips]`, those of the table.
        leaf: the leaf that a node is.
        held: float64 `[targets, leaves]`, the values of leaves.
        points: float64 `[points]`, those of the rule.
    """
    starts, entries = starts_of(tips, own)
    table = np.zeros((len(held), entries, len(points)), dtype=np.float32)
    # Tips of one kind have subtrees of the same sizes at the same places, and as many states at each node.
    size = np.where(tips.inner < 0, 0, trees.size[tips.inner])
    kind = ((size << 2 | tips.states) << 8 * np.arange(INNER)[:, None]).sum(axis=0)
    for number in np.unique(kind[own]):
        same = np.flatnonzero(own & (kind == number))
        step = max(NUMBERS // (int(tips.patterns[same[0]]) * len(points)), 1)
        for first in range(0, len(same), step):
            some = same[first : first + step]
            patterns = int(tips.patterns[some[0]])
            at = starts[some][:, None] + np.arange(patterns)
            sums, gives = _Kind(trees, tips, some, leaf, held, points).sums()
            table[:, at] = sums
            for place, give in enumerate(gives):
                table[:, at + (1 + place) * patterns] = give
    return table


class _Kind:
    """Tips of one kind: numbers are float64 `[tips, patterns, points]`, or `[targets, tips, patterns, points]`."""

    def __init__(
        self, trees: Arranged, tips: Tips, some: np.ndarray, leaf: np.ndarray, held: np.ndarray, points: np.ndarray
    ) -> None:
        self._trees, self._leaf, self._held, self._points = trees, leaf, held, points
        self._node, self._inner = tips.node[some], tips.inner[:, some]
        self._states, self._strides = tips.states[:, some[0]], tips.strides[:, some[0]]
        self._pattern = np.arange(tips.patterns[some[0]])
        self._gives: list[np.ndarray] = []

    def sums(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return `R`, and what the inner nodes give as multiples of `P`."""
        return self._below(self._node, np.ones((1, 1, 1))), self._gives

    def _below(self, node: np.ndarray, product: np.ndarray) -> np.ndarray:
        """Return `R` of some nodes, and append what they give; `product` is `P` there in units of that of the tips."""
        trees = self._trees
        if not trees.inner[node[0]]:
            found: np.ndarray = self._held[:, self._leaf[node], None, None]
            return found
        place = len(self._gives)
        self._gives.append(product)
        state = self._pattern // self._strides[place] % self._states[place]
        known = (state > 0) | (self._states[place] == 2)
        goes_left = (state < self._states[place] - 1) | ~known
        share = trees.share[node][:, None]
        away = np.where(goes_left, 1 - share, share)[..., None]  # the probability of the other child
        y, q = (each[:, None] for each in ratios_of(trees.before[node], self._points))
        y, q = np.where(known[:, None], y, 1.0), np.where(known[:, None], q, 0.0)
        first, second = trees.children(node)
        goes_first = (goes_left == trees.left[first][:, None])[..., None]
        one = self._below(first, product * np.abs(goes_first - y * away))
        two = self._below(second, product * np.abs(~goes_first - y * away))
        between = np.where(goes_first, away, -away) * (two - one)
        self._gives[place] = product * q * between
        return np.where(goes_first, one, two) + y * between
