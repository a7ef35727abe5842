"""Both ways in which plain torch finds leaves, against a walk down each tree."""

import numpy as np
import pytest
import torch

from tests.kernels.operations_trees import tree_ensemble
from tests.kernels.test_tree_ensemble import leaves
from triton_regressors.kernels import tree_cells
from triton_regressors.kernels.ops.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.tree_cells import Cells, build_cells
from triton_regressors.kernels.trees import Descent


def arrays(op: TreeEnsemble) -> tuple[np.ndarray, ...]:
    return op.feature, op.threshold, op.child, op.flags, op.sets, op.roots


def drawn_rows(op: TreeEnsemble, features: int, rows: int, seed: int) -> np.ndarray:
    """Return rows of which some numbers are thresholds, whole, missing, infinite or just beside a whole number."""
    rng = np.random.default_rng(seed)
    x: np.ndarray = rng.standard_normal((rows, features)).astype(op.threshold.dtype)
    places = rng.integers(0, 8, x.shape)
    x[places == 0] = rng.choice(op.threshold, (places == 0).sum())
    x[places == 1] = rng.integers(-2, 259, (places == 1).sum())
    x[places == 2] = np.nan
    x[places == 3] = rng.choice([-np.inf, np.inf, -0.0, 1e30], (places == 3).sum())
    x[places == 4] = np.nextafter(x[places == 4].round(), x.dtype.type(-np.inf))
    return x


@pytest.mark.parametrize("sets", [0, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("features", "trees", "depth", "stop"), [(1, 1, 1, 0.0), (3, 7, 5, 0.0), (40, 20, 5, 0.3)])
def test_leaves(
    monkeypatch: pytest.MonkeyPatch, features: int, trees: int, depth: int, stop: float, dtype: type, sets: int
) -> None:
    monkeypatch.setattr(tree_cells, "STEP", np.inf)
    op = tree_ensemble(features, trees, depth, dtype=dtype, sets=sets, stop=stop, seed=depth)
    for rows in (0, 1, 50):
        x = drawn_rows(op, features, rows, seed=rows)
        expected = leaves(op, x).T.ravel()
        (cells,) = build_cells(*arrays(op))
        for way in (cells, Descent(*arrays(op))):
            assert np.array_equal(way.find_leaves(torch.from_numpy(x)).numpy(), expected)


def test_trees_of_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_cells, "STEP", np.inf)
    monkeypatch.setattr(tree_cells, "TABLE_BYTES", 2**14)
    op = tree_ensemble(5, 30, 4)
    x = drawn_rows(op, 5, 20, seed=1)
    parts = build_cells(*arrays(op))
    assert len(parts) > 1
    found = torch.cat([part.find_leaves(torch.from_numpy(x)) for part in parts])
    assert np.array_equal(found.numpy(), leaves(op, x).T.ravel())


def test_which_trees_have_tables() -> None:
    def tables(op: TreeEnsemble) -> list[Cells]:
        return build_cells(*arrays(op))

    assert len(tables(tree_ensemble(8, 50, 5))) == 1
    assert not tables(tree_ensemble(300, 50, 5)), "a row would look at a line for each of many features"
    assert not tables(tree_ensemble(8, 50, 6, stop=0.0)), "64 leaves have no bits"
    assert not tables(tree_ensemble(8, 2, 0)), "a tree of one leaf asks for nothing"
