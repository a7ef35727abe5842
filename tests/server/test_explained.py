"""Contributions through the real Triton server: see explained.py, which asks for those of all cases."""

import pytest

from tests.server import explained

pytestmark = pytest.mark.server

CHOSEN = (
    "ada-default",
    "ard-k-best",
    "bagging-trees",
    "chain-polynomial",
    "gaussian-process-rbf",
    "gradient-linear",
    "radius-dice",
    "xgboost-chain",
)
"""Cases of each way in which contributions are computed."""


def test_contributions_are_exact_and_have_the_same_bits_in_any_batch() -> None:
    found = list(explained.rows(CHOSEN))
    assert {row.case for row in found} == set(CHOSEN)
    assert {way for row in found for way in row.ways} == {"sum", "trees", "points", "definition", "permutations"}
    assert [(row, row.failure()) for row in found if row.failure()] == []
