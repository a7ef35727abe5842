"""Patterns of parts of trees from words of terms, which have a bit for each of 32 rows."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations_trees import background_contributions, tree_contributions
from triton_regressors.kernels.ops.trees import leaf_patterns, term_words
from triton_regressors.kernels.ops.trees.launch import ContributionsTile
from triton_regressors.kernels.ops.trees.leaf_patterns import LeafPatterns

FIELDS = ("feature", "lower", "upper", "flags")
PARTS = {
    "one condition": tree_contributions(6, 5, [1, 1, 1]),
    "eight conditions": tree_contributions(6, 9, [0, 2, 8, 8, 5], targets=2),
    "fifteen conditions": tree_contributions(7, 16, [15, 9, 10, 1], dtype=np.float64),
    "many conditions": background_contributions(6, 70, [63, 33, 32, 31, 16]),
    "categories": tree_contributions(6, 12, [3, 15, 9], sets=3),
    "many parts": tree_contributions(6, 9, [4] * 300),
    "no term": dataclasses.replace(
        tree_contributions(6, 5, [0]),
        **{name: np.zeros(0, kind) for name, kind in zip(FIELDS, ("i4", "f4", "f4", "u1"), strict=True)},
    ),
}


@pytest.mark.parametrize(
    ("asked_rows", "few_answers"),
    [(0, term_words.FEW_ANSWERS), (0, 0), (300, 0)],
    ids=["each term once", "many terms at a time", "each part"],
)
@pytest.mark.parametrize("together", [32, 64, 128])
@pytest.mark.parametrize("rows", [1, 33, 300])
@pytest.mark.parametrize("name", PARTS)
def test_patterns_are_those_of_plain_torch(
    device: torch.device,
    name: str,
    rows: int,
    together: int,
    asked_rows: int,
    few_answers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaf_patterns, "ASKED_ROWS", asked_rows)
    monkeypatch.setattr(term_words, "FEW_ANSWERS", few_answers)
    op: LeafPatterns = PARTS[name]
    x = torch.from_numpy(np.random.default_rng(rows).standard_normal((rows, 7))).to(op.terms.upper.dtype)[:, :7]
    x[0], x[rows // 2, :3] = torch.nan, torch.tensor([torch.inf, -torch.inf, -0.0], dtype=x.dtype)
    parameters = {key: torch.from_numpy(array.copy()).to(device) for key, array in op.pattern_parameters().items()}
    tile = ContributionsTile(together, 4, 1)
    found = op.launch_patterns(parameters, x.to(device), rows, tile).cpu()
    blocks = -(-rows // together)
    assert found.shape == (blocks, len(op.asked), together)
    assert torch.equal(found.transpose(0, 1).reshape(len(op.asked), -1)[:, :rows], op.patterns(x))
