"""The place of each row's member among the members whose arrays an operation holds; see `plan/stacked.py`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def member_places(numbers, row, inside, first, members):
    """Return the places of the members that the rows `row`, int64, name: int64 of the same shape.

    `numbers` is float32 or float64 `[rows]`. The operation holds `members` members from the number `first` on. A row of
    another member has the place 0, and so has a row that is not `inside`.
    """
    place = tl.load(numbers + row, mask=inside, other=0.0) - first
    return tl.where((place >= 0) & (place < members), place, 0.0).to(tl.int64)


def one_member(x: torch.Tensor) -> dict[str, Any]:
    """Return the arguments of a kernel whose arrays are those of one model, which needs no numbers of members."""
    return {"numbers": x, "first": 0, "members": 1, "STACKED": False}
