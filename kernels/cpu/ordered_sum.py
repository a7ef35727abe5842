"""Sums of many terms, one after the other."""

from __future__ import annotations

import numpy as np
import torch

FEW_NUMBERS = 8
"""Below this many columns, use `accumulate`; otherwise `np.add.reduce` adds whole rows and splits no column."""


def add_in_order(terms: torch.Tensor) -> torch.Tensor:
    """Return the sums of `[terms, rows, outputs]` over the terms, one after the other: `[rows, outputs]`."""
    columns = terms.contiguous().view(len(terms), -1).numpy()
    with np.errstate(all="ignore"):  # infinity is an answer
        few = columns.shape[1] < FEW_NUMBERS
        # Reducing adds row after row, from −0 on: 0 would lose the sign of zeros.
        added = np.add.accumulate(columns, axis=0)[-1] if few else np.add.reduce(columns, axis=0, initial=-0.0)
    return torch.from_numpy(added).view(terms.shape[1:])
