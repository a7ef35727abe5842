"""Sums whose order follows their length alone, whatever the shape of a program and of a batch.

`tl.sum` adds in an order that follows a block's layout in a program's threads, so one row's bits would change with the
number of warps and the rows beside it. Here neighbours are added in pairs, and the pairs' sums again in pairs.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST_POWER = tl.constexpr(12)


@triton.jit
def sum_in_pairs(values):
    """Return the sums of the lines of a block, `[lines]` for `[lines, length]`, of a length that is a power of two."""
    for _ in tl.static_range(LARGEST_POWER):
        if values.shape[1] > 1:
            first, second = tl.split(tl.reshape(values, [values.shape[0], values.shape[1] // 2, 2]))
            values = first + second
    return tl.reshape(values, [values.shape[0]])
