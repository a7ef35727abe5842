"""CatBoost's file as arrays: trees as they are, combinations by their keys, and damages."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.exporter.catalogue.cases import CASES
from triton_regressors.exporter.boosters import catboost_model, catboost_trees
from triton_regressors.exporter.boosters.catboost_model import (
    BUCKET,
    combine,
    find_combinations,
    read_model,
)
from triton_regressors.exporter.boosters.catboost_trees import Symmetric
from triton_regressors.exporter.boosters.flat_tables import Table


def tenants() -> bytes:
    """Return a model of symmetric trees with statistics of categories."""
    return bytes(CASES["catboost-ctr-types"].fitted()[0]._serialize_model())


def stepping() -> bytes:
    """Return a model whose trees say how far children are from their parents."""
    return bytes(CASES["catboost-lossguide"].fitted()[0]._serialize_model())


def test_symmetric_trees_are_read_as_they_are() -> None:
    model = CASES["catboost-ctr-types"].fitted()[0]
    found = read_model(tenants())
    assert isinstance(found.trees, Symmetric)
    assert (1 << found.trees.depth).tolist() == model.get_tree_leaf_counts().tolist()
    assert found.trees.value.ravel().tolist() == model.get_leaf_values().tolist()
    assert len(found.trees.question) == found.trees.depth.sum()


def test_a_node_that_lacks_a_child_gets_a_leaf() -> None:
    # x > 0 leads to a leaf, and else to the root's own value; a second tree is a leaf.
    nodes = catboost_trees.stepping(
        np.array([0, 0, 0]),
        np.array([2, 1]),
        np.array([[0, 0, 0], [1, 0, 0]]),
        np.array([2, 0, 4]),
        np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        2,
        np.array([7.0, 8.0, 9.0]),
    )
    assert nodes.sizes.tolist() == [3, 1]
    assert nodes.left.tolist() == [2, -1, -1, -1]
    assert nodes.right.tolist() == [1, -1, -1, -1]
    assert nodes.value.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert nodes.cover.tolist() == [7, 8, 9]


@pytest.mark.parametrize("at_once", [1, 7, 2**20])
def test_combinations_are_found_by_their_keys(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(catboost_model, "AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    choices = [rng.integers(-(2**31), 2**31, 5), np.arange(2), rng.integers(-(2**31), 2**31, 9)]
    every = np.array(list(itertools.product(*choices)))
    wanted = rng.choice(len(every), 30, replace=False)
    keys = combine([*every[wanted].T])
    others = rng.integers(0, 2**63, 500).astype(np.uint64)
    order = np.argsort(np.concatenate([keys, others]))
    places, found = find_combinations(choices, np.concatenate([keys, others])[order])
    assert sorted(places) == sorted(wanted)
    assert all(wanted[order[place]] == number for number, place in zip(places, found, strict=True))
    for nothing in ([choices[0][:0], *choices[1:]], [*choices[:2], choices[2][:0]]):
        assert not len(find_combinations(nothing, keys[:1])[0])
    assert not len(find_combinations(choices, keys[:0])[0])


def vector(number: Any, field: int, item: int, size: int = 4) -> Callable[[bytearray], None]:
    """Return a change of an item of an array of the model's trees, each of `size` bytes."""

    def change(model: bytearray) -> None:
        core = memoryview(model)[8:]
        start, count = Table.root(core).table(1)._vector(field)
        core[start + size * (item % count) :][:size] = number.to_bytes(size, "little", signed=number < 0)

    return change


def statistics(number: int, field: int, step: int) -> Callable[[bytearray], None]:
    """Return a change of numbers of the first table of statistics, each `step` bytes after the last."""

    def change(model: bytearray) -> None:
        first = 8 + int.from_bytes(model[4:8], "little") + 8
        table = memoryview(model)[first:]
        start, count = Table.root(table)._vector(field)
        for place in range(start + 8 * (step == BUCKET.itemsize), start + count, step):
            table[place : place + 4] = number.to_bytes(4, "little")

    return change


def no_empty_place(model: bytearray) -> None:
    first = 8 + int.from_bytes(model[4:8], "little") + 8
    start, count = Table.root(memoryview(model)[first:])._vector(1)
    place = first + start
    model[place : place + count] = model[place : place + count].replace(b"\xff" * 8, bytes(8))


DAMAGES: dict[str, tuple[Callable[[], bytes], Callable[[bytearray], Any], str]] = {
    "mark": (tenants, lambda model: model.__setitem__(0, 0), "it is not a model of CatBoost's"),
    "core": (tenants, lambda model: model.__delitem__(slice(3000, None)), "a part of it lies beyond its end"),
    "end": (tenants, lambda model: model.__delitem__(slice(-100, None)), "its end is missing"),
    "question": (tenants, vector(9999, 1, 0), "a node asks what is no question"),
    "negative question": (tenants, vector(-1, 1, 0), "a node asks what is no question"),
    "depth": (tenants, vector(1, 2, 0), "questions are missing for some trees"),
    "start": (tenants, vector(7, 3, 1), "questions of a tree lie outside the model"),
    "value": (tenants, vector(0x7FF8 << 48, 8, 0, 8), "the value of a leaf is not finite"),
    "bucket": (tenants, statistics(99999, 1, BUCKET.itemsize), "a statistic lies beyond its table"),
    "search": (tenants, no_empty_place, "a table of statistics has no empty place"),
    "step": (stepping, vector(999, 10, 0, 2), "a node's child is not in its tree"),
    "two steps": (stepping, vector(0x0001_0001, 10, 0), "a node is not the child of one other node"),
    "leaf": (stepping, vector(10**6, 11, -1), "a leaf has no value"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models(damage: str) -> None:
    make, change, says = DAMAGES[damage]
    model = bytearray(make())
    read_model(bytes(model))
    change(model)
    with pytest.raises(ValueError, match=says):
        read_model(bytes(model))


def test_damaged_bytes_are_read_or_refused() -> None:
    rng = np.random.default_rng(0)
    for whole in (tenants(), stepping()):
        read = 0
        for place in rng.integers(0, len(whole), 100):
            model = bytearray(whole)
            model[place] ^= 1 << int(rng.integers(8))
            with contextlib.suppress(ValueError):
                read += read_model(bytes(model)) is not None
        assert 0 < read < 100
