"""Decision trees on a CPU: rows descend all trees at the same time in plain torch."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from .nodes import CATEGORICAL, MISSING_LEFT


class Descent:
    """Trees in the form that plain torch descends. A leaf is its own left child, and sends no number to the right.

    The arrays are those of a tree ensemble.
    """

    def __init__(
        self,
        feature: np.ndarray,
        threshold: np.ndarray,
        child: np.ndarray,
        flags: np.ndarray,
        sets: np.ndarray,
        roots: np.ndarray,
        rounding: str = "trunc",
    ) -> None:
        self._rounding = rounding
        inner = feature >= 0
        arrays = {
            "feature": np.maximum(feature, 0),
            "threshold": np.where(inner, threshold, threshold.dtype.type(np.inf)),
            "left": np.where(inner, child, np.arange(len(child), dtype=np.int32)),
            "leaf": child,
            "away": inner & (flags & MISSING_LEFT == 0),
            "set": np.where(inner & (flags & CATEGORICAL > 0), threshold, -1).astype(np.int32)
            if len(sets)
            else child[:0],
            "sets": sets,
            "roots": roots.astype(np.int32),
        }
        self._arrays = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays.items()}

    def find_leaves(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`.

        Every lane takes a step at a time. When half of them have arrived, the others continue without these.

        Args:
            x: `[rows, features]`, of the thresholds' dtype.
        """
        left, feature, threshold, roots = (self._arrays[name] for name in ("left", "feature", "threshold", "roots"))
        rows, columns, special = len(x), x.T.contiguous(), self._is_special(x)
        root = roots.repeat_interleave(rows)
        value = columns.index_select(0, feature.index_select(0, roots))
        right = value > threshold.index_select(0, roots)[:, None]
        if special:
            right = self._right_of_special(right.view(-1), value.view(-1), root)
        node = left.index_select(0, root).add_(right.view(-1))
        row = torch.arange(rows, dtype=torch.int32).repeat(len(roots))
        return self._walk(columns, special, node, row)

    def find_leaves_of_pairs(self, x: torch.Tensor, tree: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        """Return the number of the leaf that is reached in each pair's tree by its row, int32 `[pairs]`.

        Args:
            x: `[rows, features]`, of the thresholds' dtype.
            tree: int32 `[pairs]`.
            row: int32 `[pairs]`.
        """
        root = self._arrays["roots"].index_select(0, tree)
        return self._walk(x.T.contiguous(), self._is_special(x), root, row)

    def _is_special(self, x: torch.Tensor) -> bool:
        """Return whether a node may ask for a category, or a number is missing."""
        return len(self._arrays["sets"]) > 0 or bool(x.isnan().any())

    def _walk(self, columns: torch.Tensor, special: bool, node: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        """Return the leaves below the nodes that rows of `columns`, `[features, rows]`, reach, int32 `[lanes]`."""
        arrays = self._arrays
        left, feature, threshold = (arrays[name] for name in ("left", "feature", "threshold"))
        numbers, rows = columns.view(-1), columns.shape[1]
        end, lane = node, None
        for step in itertools.count():
            below = left.index_select(0, node)
            if step % 2:
                going = below != node
                count = int(going.count_nonzero())
                if 2 * count < len(node) or not count:
                    if lane is None:
                        end = node
                    else:
                        end.index_copy_(0, lane, node)  # lanes that continue are overwritten later
                    if not count:
                        return arrays["leaf"].index_select(0, end)
                    there = going.nonzero().view(-1)
                    lane = there if lane is None else lane.index_select(0, there)
                    row, node, below = (values.index_select(0, there) for values in (row, node, below))
            value = numbers.index_select(0, feature.index_select(0, node).mul_(rows).add_(row))
            right = value > threshold.index_select(0, node)
            if special:
                right = self._right_of_special(right, value, node)
            node = below.add_(right)
        raise AssertionError

    def _right_of_special(self, right: torch.Tensor, value: torch.Tensor, node: torch.Tensor) -> torch.Tensor:
        """Return `right` with the decisions about NaN, and those of nodes that ask for a category."""
        sets = self._arrays["sets"]
        if len(sets):
            number, last = self._arrays["set"].index_select(0, node), 32 * sets.shape[1] - 1
            known = (value > -1 if self._rounding == "trunc" else value >= 0) & (value < last)
            category = torch.where(known, value, last).long()
            word = sets.view(-1).index_select(0, number.clamp_min(0).long() * sets.shape[1] + (category >> 5))
            right = torch.where(number >= 0, (word >> (category & 31)) & 1 == 0, right)
        return torch.where(value.isnan(), self._arrays["away"].index_select(0, node), right)
