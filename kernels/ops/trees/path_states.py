"""Where rows go at the nodes of trees, and at which nodes that counts, for `path_contributions.py`.

A node's state is a bit for each of 32 rows in two words: whether the row goes to the left, and whether it is known. A
row is known at a node that asks a player, if it goes towards this node at all nodes above that ask the same player.
Rows that are not known go to the left. The states of all nodes of a tip are one number for each row, its pattern
(`path_tips.py`).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...plan.plan import Parameters
from .feature_major import feature_major
from .terms import add_unmet

ROWS = 32
"""The rows of a block, one for each bit."""

BLOCK_NODES = 128
"""The nodes of a program."""

BLOCK_TIPS = 32
"""The tips of a program."""


@triton.jit
def right_kernel(
    x,  # float32 or float64 [blocks of rows, FEATURES, ROWS]
    words,  # int32 [NODES], the feature and 2 flags, in ascending order
    thresholds,  # float32 or float64 [NODES]
    numbers,  # int32 [NODES], of the nodes
    sets,  # int32 [sets, WORDS]
    right,  # int32 [blocks of rows, NODES]
    FEATURES: tl.constexpr,
    NODES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no node asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN may go to the left
    ROWS: tl.constexpr,
    BLOCK_NODES: tl.constexpr,
):
    """Write which rows nodes send to the right.

    A lane has all rows of a node, of which it reads four at a time; neighbouring lanes mostly read the same numbers.
    """
    block = tl.program_id(1).to(tl.int64)
    node = tl.program_id(0) * BLOCK_NODES + tl.arange(0, BLOCK_NODES)
    mask = node < NODES
    word = tl.load(words + node, mask=mask, other=0)[:, None]
    threshold = tl.load(thresholds + node, mask=mask, other=0.0)[:, None]
    none = tl.full([BLOCK_NODES, 1], float("nan"), threshold.dtype)
    at = x + (block * FEATURES + (word >> 2)) * ROWS
    found = tl.zeros([BLOCK_NODES, 4], tl.int32)
    for step in tl.static_range(0, ROWS, 4):
        row = step + tl.arange(0, 4)[None, :]
        value = tl.load(at + row).to(threshold.dtype)
        found = add_unmet(
            found, 1 << row, value, none, threshold, word, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING
        )
    number = tl.load(numbers + node, mask=mask, other=0)
    tl.store(right + block * NODES + number, tl.sum(found, axis=1), mask=mask)


@triton.jit
def states_kernel(
    right,  # int32 [blocks of rows, NODES]
    earlier,  # int32 [NODES], twice the node above of the same player, plus 1 to the right; −1 if none, −2 if constant
    states,  # int32 [blocks of rows, NODES, 2]
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
    at = states + 2 * (first + node)
    tl.store(at, left, mask=mask)
    tl.store(at + 1, known, mask=mask)


@triton.jit
def tip_patterns_kernel(
    states,  # int32 [blocks of rows, NODES, 2]
    tip_nodes,  # int32 [INNER, TIPS], see `digits` in `path_tips.py`
    tip_digits,  # int32 [TIPS]
    patterns,  # int8 [blocks of rows, TIPS, ROWS]
    NODES: tl.constexpr,
    TIPS: tl.constexpr,
    INNER: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_TIPS: tl.constexpr,
):
    """Write the patterns of tips."""
    block = tl.program_id(1).to(tl.int64)
    tip, row = tl.program_id(0) * BLOCK_TIPS + tl.arange(0, BLOCK_TIPS), tl.arange(0, ROWS)[None, :]
    mask = tip < TIPS
    digits = tl.load(tip_digits + tip, mask=mask, other=0)
    found = tl.zeros([BLOCK_TIPS, ROWS], tl.int32)
    for place in tl.static_range(INNER):
        at = states + 2 * (block * NODES + tl.load(tip_nodes + place * TIPS + tip, mask=mask, other=0))
        left, known = tl.load(at)[:, None] >> row, tl.load(at + 1)[:, None] >> row
        digit = (digits >> 8 * place)[:, None]
        found += ((1 - (left & 1)) + (known & 1 & (digit >> 7))) * (digit & 127)
    tl.store(patterns + (block * TIPS + tip[:, None]) * ROWS + row, found.to(tl.int8), mask=mask[:, None])


def launch_states(
    parameters: Parameters, x: torch.Tensor, rows: int, constants: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Launch the kernels that write where rows go.

    Return `states`, int64 `[⌈rows / ROWS⌉, nodes]`, and `patterns`, int8 `[⌈rows / ROWS⌉, tips, ROWS]`.

    Args:
        parameters: `words`, `thresholds`, `numbers`, `sets`, `earlier`, `tip_nodes` and `tip_digits`, as the kernels
            have them.
        x: `[rows, features]`.
        rows: the number of rows.
        constants: those of terms, by their names in the kernel.
    """
    nodes, blocks = len(parameters["words"]), triton.cdiv(rows, ROWS)
    grid = (triton.cdiv(nodes, BLOCK_NODES), blocks)
    right = parameters["words"].new_empty(blocks, nodes)
    right_kernel[grid](
        x=feature_major(x, rows, ROWS, parameters["thresholds"]),
        **{name: parameters[name] for name in ("words", "thresholds", "numbers", "sets")},
        right=right,
        FEATURES=x.shape[1],
        NODES=nodes,
        **constants,
        ROWS=ROWS,
        BLOCK_NODES=BLOCK_NODES,
        num_warps=4,
    )
    states = right.new_empty(blocks, nodes, 2)
    states_kernel[grid](
        right=right, earlier=parameters["earlier"], states=states, NODES=nodes, BLOCK_NODES=BLOCK_NODES, num_warps=4
    )
    inner, tips = parameters["tip_nodes"].shape
    patterns = right.new_empty(blocks, tips, ROWS, dtype=torch.int8)
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
    return {"states": states.view(torch.int64)[:, :, 0], "patterns": patterns}
