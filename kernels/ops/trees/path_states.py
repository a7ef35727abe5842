"""Where rows go at the nodes of trees, and at which nodes that counts, for `path_contributions.py`.

A node's state is a bit for each of 32 rows in two words: whether the row goes to the left, and whether it is known. A
row is known at a node that asks a player, if it goes towards this node at all nodes above that ask the same player.
Rows that are not known go to the left. The states of all nodes of a tip are one number for each row, its pattern
(`path_tips.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...plan.plan import Parameters
from .feature_major import feature_major
from .terms import add_unmet

ROWS = 32
"""The rows of a block, one for each bit."""

WINDOW = 1024
"""The nodes of a program that asks them, which have their features in ascending order there."""

BLOCK_NODES = 128
"""The nodes of a program that goes from them to those above."""

BLOCK_TIPS = 64
"""The tips of a program."""


@triton.jit
def right_kernel(
    x,  # float32 or float64 [blocks of rows, FEATURES, ROWS]
    words,  # int32 [NODES], the feature and 2 flags, in ascending order in each window
    thresholds,  # float32 or float64 [NODES]
    places,  # int32 [NODES], where the nodes of a window are in that order
    sets,  # int32 [sets, WORDS]
    right,  # int32 [blocks of rows, NODES]
    FEATURES: tl.constexpr,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no node asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN may go to the left
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Write which rows nodes send to the right.

    A lane has all rows of a node, of which it reads four at a time; neighbouring lanes mostly read the same numbers.
    """
    block = tl.program_id(1).to(tl.int64)
    node = tl.program_id(0) * WINDOW + tl.arange(0, WINDOW)
    mask = node < NODES
    word = tl.load(words + node, mask=mask, other=0)[:, None]
    threshold = tl.load(thresholds + node, mask=mask, other=0.0)[:, None]
    none = tl.full([WINDOW, 1], float("nan"), threshold.dtype)
    at = x + (block * FEATURES + (word >> 2)) * ROWS
    found = tl.zeros([WINDOW, 4], tl.int32)
    for step in tl.static_range(0, ROWS, 4):
        row = step + tl.arange(0, 4)[None, :]
        value = tl.load(at + row).to(threshold.dtype)
        found = add_unmet(
            found, 1 << row, value, none, threshold, word, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING
        )
    place = tl.load(places + node, mask=mask, other=0)
    tl.store(right + block * NODES + node, tl.gather(tl.sum(found, axis=1), place, axis=0), mask=mask)


@triton.jit
def states_kernel(
    right,  # int32 [blocks of rows, NODES]
    earlier,  # int32 [NODES], twice the node above of the same player, plus 1 to the right; −1 if none, −2 if constant
    states,  # int64 [blocks of rows, NODES], in two words of 32 bits
    NODES: tl.constexpr,
    BLOCK_NODES: tl.constexpr,
):
    """Write the states of nodes. A lane goes from a node to all nodes above that ask the same player."""
    first = tl.program_id(1).to(tl.int64) * NODES
    node = tl.program_id(0) * BLOCK_NODES + tl.arange(0, BLOCK_NODES)
    mask = node < NODES
    above = tl.load(earlier + node, mask=mask, other=-1)
    known = tl.where(above == -2, 0, -1)
    while tl.max(above, axis=0) >= 0:
        asks = above >= 0
        goes_right = tl.load(right + first + (above >> 1), mask=asks, other=0)
        known &= tl.where(asks, tl.where((above & 1) != 0, goes_right, ~goes_right), -1)
        above = tl.load(earlier + (above >> 1), mask=asks, other=-1)
    left = ~(tl.load(right + first + node, mask=mask, other=0) & known)
    tl.store(states + first + node, known.to(tl.int64) << 32 | (left.to(tl.int64) & 0xFFFFFFFF), mask=mask)


@triton.jit
def in_bytes(bits, first):
    """Return four bits from the `first` one on, each in a byte."""
    return ((bits >> first & 15) * 0x00204081) & 0x01010101


@triton.jit
def tip_patterns_kernel(
    states,  # int64 [blocks of rows, NODES]
    tip_nodes,  # int32 [INNER, TIPS], see `digits` in `path_tips.py`
    tip_digits,  # int64 [TIPS]
    patterns,  # int32 [blocks of rows, TIPS, ROWS / 4], of four rows each
    NODES: tl.constexpr,
    TIPS: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_TIPS: tl.constexpr,
):
    """Write the patterns of tips. A lane computes those of four rows together, a byte each."""
    block = tl.program_id(1).to(tl.int64)
    tip, four = tl.program_id(0) * BLOCK_TIPS + tl.arange(0, BLOCK_TIPS), tl.arange(0, ROWS // 4)[None, :]
    mask = tip < TIPS
    digits = tl.load(tip_digits + tip, mask=mask, other=0)
    found = tl.zeros([BLOCK_TIPS, ROWS // 4], tl.int32)
    for place in tl.static_range(INNER):
        state = tl.load(states + block * NODES + tl.load(tip_nodes + place * TIPS + tip, mask=mask, other=0))
        digit = (digits >> 8 * place).to(tl.int32)
        right, known = ~state.to(tl.int32), (state >> 32).to(tl.int32) & -(digit >> 7 & 1)
        found += (in_bytes(right[:, None], 4 * four) + in_bytes(known[:, None], 4 * four)) * (digit & 127)[:, None]
    tl.store(patterns + (block * TIPS + tip[:, None]) * (ROWS // 4) + four, found, mask=mask[:, None])


def in_windows(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes in the order in which programs ask them, and where each one is in its window, both `[nodes]`."""
    window = np.arange(len(words)) // WINDOW
    order = np.lexsort([words, window])
    places = np.empty(len(words), dtype=np.int32)
    places[order] = np.arange(len(words)) - WINDOW * window
    return order, places


def launch_states(
    parameters: Parameters, x: torch.Tensor, rows: int, constants: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Launch the kernels that write where rows go.

    Return `states`, int32 `[⌈rows / ROWS⌉, 2 · nodes]`, and `patterns`, int8 `[⌈rows / ROWS⌉, tips, ROWS]`.

    Args:
        parameters: `words`, `thresholds`, `places`, `sets`, `earlier`, `tip_nodes` and `tip_digits`, as the kernels
            have them.
        x: `[rows, features]`.
        rows: the number of rows.
        constants: those of terms, by their names in the kernel.
    """
    nodes, blocks = len(parameters["words"]), triton.cdiv(rows, ROWS)
    right = parameters["words"].new_empty(blocks, nodes)
    right_kernel[(triton.cdiv(nodes, WINDOW), blocks)](
        x=feature_major(x, rows, ROWS, parameters["thresholds"]),
        **{name: parameters[name] for name in ("words", "thresholds", "places", "sets")},
        right=right,
        FEATURES=x.shape[1],
        NODES=nodes,
        **constants,
        ROWS=ROWS,
        WINDOW=WINDOW,
        num_warps=8,
    )
    states = right.new_empty(blocks, nodes, dtype=torch.int64)
    states_kernel[(triton.cdiv(nodes, BLOCK_NODES), blocks)](
        right=right, earlier=parameters["earlier"], states=states, NODES=nodes, BLOCK_NODES=BLOCK_NODES, num_warps=1
    )
    inner, tips = parameters["tip_nodes"].shape
    patterns = right.new_empty(blocks, tips, ROWS // 4)
    tip_patterns_kernel[(triton.cdiv(tips, BLOCK_TIPS), blocks)](
        states=states,
        **{name: parameters[name] for name in ("tip_nodes", "tip_digits")},
        patterns=patterns,
        NODES=nodes,
        TIPS=tips,
        INNER=inner,
        ROWS=ROWS,
        BLOCK_TIPS=BLOCK_TIPS,
        num_warps=4,
    )
    return {"states": states.view(torch.int32), "patterns": patterns.view(torch.int8)}
