"""Pairs of a row and a tree of its member, on a CPU: members have different numbers of trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Pairs(NamedTuple):
    """Each row with each tree of its member, row after row, int32 `[pairs]` each."""

    row: torch.Tensor
    number: torch.Tensor  # of the tree, among those of the member
    tree: torch.Tensor  # of all members'

    def sum(self, held: torch.Tensor) -> torch.Tensor:
        """Return the sums of `[pairs, outputs]`, int64, over the pairs of each row: `[rows, outputs]`."""
        first = (self.number == 0).nonzero()[:, 0]
        return torch.from_numpy(np.add.reduceat(held.numpy(), first.numpy(), axis=0))


def pairs(first_tree: torch.Tensor, place: torch.Tensor) -> Pairs:
    """Return the pairs of rows whose members are at `place`, int64 `[rows]`.

    `first_tree` is the first tree of each member, followed by the number of trees, int32 `[members + 1]`.
    """
    first = first_tree.index_select(0, place)
    trees = first_tree.index_select(0, place + 1) - first
    row = torch.arange(len(place), dtype=torch.int32).repeat_interleave(trees)
    before = trees.cumsum(0, dtype=torch.int32) - trees  # pairs of rows before this one
    number = torch.arange(len(row), dtype=torch.int32).sub_(before.index_select(0, row))
    return Pairs(row, number, first.index_select(0, row).add_(number))
