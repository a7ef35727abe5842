"""Models that are read some rounds at a time are those that are read at once."""

from typing import Any

import numpy as np
import pytest

from docs.boosters import library_of
from tests.exporter.catalogue.cases import CASES
from triton_regressors import ExportError
from triton_regressors.exporter.boosters import rounds as parts
from triton_regressors.exporter.boosters.rounds import joined, saved_in_parts
from triton_regressors.exporter.estimators import xgboost
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.lowering.tree_nodes import Trees
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL

NAMES = [name for name, case in CASES.items() if library_of(case.estimator) in ("xgboost", "lightgbm")]


def tensors(estimator: Any, rows: Any) -> dict[str, np.ndarray]:
    """Return the arrays of the lowered plan, and the covers of its trees."""
    lowered = lower(estimator, rows, covers=True)
    return {**lowered.plan.to_tensors(), **lowered.covers}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_in_parts_is_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator, rows = CASES[name].fitted()
    whole = tensors(estimator, rows)
    monkeypatch.setattr(parts, "FIRST_ROUNDS", 3)
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    found = tensors(estimator, rows)
    assert found.keys() == whole.keys()
    for field, array in whole.items():
        assert found[field].dtype == array.dtype
        np.testing.assert_array_equal(found[field], array)


@pytest.mark.parametrize("rest", [100, 2_000_000])
@pytest.mark.parametrize("bytes_a_round", [10, 20_000, 3_000_000])
@pytest.mark.parametrize("rounds", [1, 16, 17, 1_000, 10_000])
def test_every_round_is_in_one_part(
    monkeypatch: pytest.MonkeyPatch, rounds: int, bytes_a_round: int, rest: int
) -> None:
    found = []

    def save(begin: int, end: int, path: str) -> range:
        found.append((begin, end))
        return range(rest + bytes_a_round * (end - begin))

    monkeypatch.setattr(parts, "saved", lambda save, name: save(name))
    assert sum(map(len, saved_in_parts(save, "model", rounds))) == rest * len(found) + bytes_a_round * rounds
    assert [found[0][0], *(end for _, end in found)] == [*(begin for begin, _ in found), rounds]
    assert len(found) <= parts.PARTS + 1
    most = max(parts.FIRST_ROUNDS, parts.PART_BYTES // bytes_a_round, -(-rounds // parts.PARTS))
    assert max(end - begin for begin, end in found) <= most


def of_one_root(threshold: float, words: list[int]) -> Trees:
    """Return a tree whose root asks for a category of a set, or compares where there is none."""
    return Trees(
        sizes=np.array([3]),
        feature=np.array([5, 0, 0], dtype=np.int16),
        threshold=np.array([threshold, 0, 0]),
        left=np.array([1, -1, -1], dtype=np.int16),
        right=np.array([2, -1, -1], dtype=np.int16),
        flags=np.array([CATEGORICAL if words else 0, 0, 0], dtype=np.uint8),
        value=np.array([[1.0], [2.0]]),
        sets=np.array(words, dtype=np.int32).reshape(min(len(words), 1), max(len(words), 1)),
    )


def test_sets_become_as_wide_as_the_widest_by_their_last_bit() -> None:
    trees = [of_one_root(0, [7]), of_one_root(0.5, []), of_one_root(0, [1, 2, 3]), of_one_root(0, [-2, -4])]
    found = joined(trees)
    assert trees == []
    assert found.sets.tolist() == [[7, 0, 0], [1, 2, 3], [-2, -4, -1]]
    assert found.threshold[::3].tolist() == [0, 0.5, 1, 2]
    assert found.sizes.tolist() == [3, 3, 3, 3]
    assert found.left.tolist() == [1, -1, -1] * 4
    assert found.value[:, 0].tolist() == [1, 2] * 4


def test_boosters_with_the_names_of_categories_or_without_rounds_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object) -> None:
        raise ExportError

    monkeypatch.setattr(xgboost, "saved_in_parts", fail)
    for name in ("xgboost-categories", "xgboost-linear"):
        lower(*CASES[name].fitted())
    with pytest.raises(ExportError):
        lower(*CASES["xgboost-codes"].fitted())
