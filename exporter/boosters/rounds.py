"""Large models some rounds at a time: a library takes several times what a model holds to write the whole of it."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterator

import numpy as np

from triton_regressors.exporter.boosters.saved_model import saved
from triton_regressors.exporter.lowering.memory import hand_back
from triton_regressors.exporter.lowering.tree_nodes import Trees
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL

FIRST_ROUNDS = 16
"""The number of rounds in the first part."""

PART_BYTES = 2**20
"""About how much is written at a time from then on."""

PARTS = 128
"""About how many parts there are at most: each repeats what is of no round, such as the names of categories."""


def saved_in_parts(save: Callable[[int, int, str], object], name: str, rounds: int) -> Iterator[mmap.mmap]:
    """Yield what a library writes of so many rounds of a model, some after the other.

    Args:
        save: writes the rounds from the first number on and before the second to a file.
        name: of the file.
        rounds: how many there are.
    """
    begin, count = 0, FIRST_ROUNDS
    while begin < rounds:
        end = min(begin + count, rounds)
        part = saved(functools.partial(save, begin, end), name)
        count = max(PART_BYTES * (end - begin) // len(part), -(-rounds // PARTS), 1)
        begin = end
        yield part
        del part  # so that the memory is there for the next one


def joined(parts: list[Trees]) -> Trees:
    """Return the trees of parts, one part after the other, and take them out of the list.

    The last bit of a set stands for every number that has none of its own: the set goes on with it where those of other
    parts have more bits.
    """
    words, sets = max(part.sets.shape[1] for part in parts), 0
    for part in parts:
        part.threshold[(part.left >= 0) & (part.flags & CATEGORICAL > 0)] += sets
        sets += len(part.sets)
    fields = [list(arrays) for arrays in zip(*(vars(part).values() for part in parts), strict=True)]
    parts.clear()
    fields[-1] = [np.append(rows, np.repeat(rows[:, -1:] >> 31, words - rows.shape[1], 1), 1) for rows in fields[-1]]
    trees = Trees(*(np.concatenate(fields.pop(0)) for _ in range(len(fields))))
    hand_back()
    return trees
