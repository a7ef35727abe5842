"""Reads large models some rounds at a time, as a library needs several times a model's memory to write all of it."""

from __future__ import annotations

import functools
import itertools
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
"""The approximate size of each later part, in bytes."""

PARTS = 128
"""The approximate limit of the number of parts; each repeats the data outside the rounds, such as category names."""


def saved_in_parts(save: Callable[[int, int, str], object], name: str, rounds: int) -> Iterator[mmap.mmap]:
    """Yield the file that a library writes for each part of a model's rounds, in order.

    Args:
        save: `save(begin, end, file)` writes the rounds from `begin` on and before `end` to a file.
        name: the name of the file.
        rounds: the number of rounds.
    """
    begin, count = 0, FIRST_ROUNDS
    while begin < rounds:
        end = min(begin + count, rounds)
        part = saved(functools.partial(save, begin, end), name)
        count = max(PART_BYTES * (end - begin) // len(part), -(-rounds // PARTS), 1)
        begin = end
        yield part
        del part  # frees the memory for the next one


def joined(parts: list[Trees]) -> Trees:
    """Return the trees of parts, one part after the other, and empty the list.

    The last bit of a set stands for every number beyond the set. It is repeated to the width of the widest part's sets.
    """
    words, sets = max(part.sets.shape[1] for part in parts), 0
    for part in parts:
        part.threshold[(part.left >= 0) & (part.flags & CATEGORICAL > 0)] += sets
        sets += len(part.sets)
    cover = tuple(itertools.chain.from_iterable(part.cover for part in parts)) if all(p.cover for p in parts) else ()
    fields = {name: [vars(part)[name] for part in parts] for name in vars(parts[0]) if name != "cover"}
    parts.clear()
    fields["sets"] = [
        np.append(rows, np.repeat(rows[:, -1:] >> 31, words - rows.shape[1], 1), 1) for rows in fields["sets"]
    ]
    trees = Trees(**{name: np.concatenate(fields.pop(name)) for name in list(fields)}, cover=cover)
    hand_back()
    return trees
