"""CatBoost's document as arrays: trees without nodes that no row reaches, and combinations found by their keys."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triton_regressors.exporter.boosters import catboost_model
from triton_regressors.exporter.boosters.catboost_model import combine, find_combinations, read_model


def document(borders: list[float], values: list[int], splits: list[int]) -> dict[str, Any]:
    """Return a model of one symmetric tree that asks these questions; its leaves hold their numbers."""
    return {
        "features_info": {
            "float_features": [
                {
                    "borders": borders,
                    "feature_index": 0,
                    "flat_feature_index": 1,
                    "has_nans": True,
                    "nan_value_treatment": "AsTrue",
                }
            ],
            "categorical_features": [{"feature_index": 0, "flat_feature_index": 0, "values": values}],
        },
        "oblivious_trees": [
            {"leaf_values": list(range(2 ** len(splits))), "splits": [{"split_index": number} for number in splits]}
        ],
        "scale_and_bias": [2, [0.5]],
    }


def written(directory: Path, document: dict[str, Any]) -> Path:
    """Return a file with a document, and with a letter and a weight of leaves that are not read."""
    document["model_info"] = {
        "params": json.dumps({"number_token": "\N{INPUT SYMBOL FOR NUMBERS}"}, ensure_ascii=False)
    }
    document["oblivious_trees"][0]["leaf_weights"] = [1.0]
    path = directory / "model.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def test_nodes_that_no_row_reaches_are_left_out(tmp_path: Path) -> None:
    # x > 1, x > 2 and x > 1 again, then whether a category is 7 and whether it is 9: 3 · 3 leaves of 32.
    model = read_model(written(tmp_path, document([1.0, 2.0], [7, 9], [0, 1, 0, 2, 3])))
    leaves = model.nodes.value[model.nodes.left < 0, 0]
    possible = [0 + 0, 1 + 4, 1 + 2 + 4]
    assert sorted(leaves) == sorted(x + category for x in possible for category in (0, 8, 16))
    assert model.nodes.sizes.tolist() == [17]
    assert (model.scale, model.bias.tolist(), model.nan_right, model.numeric) == (2, [0.5], {1}, (1,))


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


def test_a_document_of_another_kind_of_statistics_is_refused(tmp_path: Path) -> None:
    statistic = {
        "borders": [0.5],
        "ctr_type": "Ranks",
        "elements": [{"cat_feature_index": 0, "combination_element": "cat_feature_value"}],
        "identifier": "own",
        "prior_denomerator": 1,
        "prior_numerator": 0,
        "scale": 1,
        "shift": 0,
        "target_border_idx": 0,
    }
    given = document([], [], [])
    given["features_info"]["ctrs"] = [statistic]
    given["ctr_data"] = {"own": {"hash_map": ["5", 1], "hash_stride": 2}}
    with pytest.raises(ValueError, match="it has CTR statistics of type Ranks; supported: Borders, Buckets"):
        read_model(written(tmp_path, given))
