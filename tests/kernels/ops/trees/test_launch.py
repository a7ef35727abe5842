"""Tiles of tree ensembles: sizes that follow the rows, and ensembles for which a table of features pays."""

import pytest
import torch

from triton_regressors.kernels.ops.trees.launch import (
    LARGEST_TABLE,
    MOST_PLAIN,
    MOST_SHALLOW,
    MOST_WRITES,
    tree_class,
    tree_tile,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("rows", "nodes", "form"),
    [
        (1, 1000, "quads"),
        (4096, 1000, "quads"),
        (65536, 1000, "plain"),
        (65536, MOST_PLAIN, "plain"),
        (65536, MOST_PLAIN + 1, "quads"),
    ],
)
def test_many_rows_go_down_plain_nodes_of_small_trees(rows: int, nodes: int, form: str) -> None:
    tile = tree_tile(rows, 100, 1, 64, nodes, True, CPU)
    assert (tile.form, tile.width) == (form, 64)


def test_tables_are_neither_large_nor_written_for_few_reads() -> None:
    for rows in (1, 4096, 65536):
        for trees in (1, 16, 100):
            for features in (1, 64, 100, 3000):
                tile = tree_tile(rows, trees, 1, features, 1000, True, CPU)
                assert tile.block_trees < 2 * trees
                if tile.width is not None:
                    assert features <= tile.width <= MOST_WRITES * tile.block_trees
                    assert tile.width * tile.block_rows <= LARGEST_TABLE
    assert tree_tile(65536, 100, 1, 3000, 1000, True, CPU).width is None
    assert tree_tile(65536, 2, 1, 64, 1000, True, CPU).width is None


@pytest.mark.parametrize(
    ("trees", "nodes", "size"),
    [
        (9, MOST_PLAIN, "middle"),
        (9, MOST_PLAIN + 1, "deep"),
        (1000, MOST_PLAIN + 1, "large"),
        (1000, 1000 * MOST_SHALLOW, "large"),
        (1000, 1000 * MOST_SHALLOW + 1, "deep"),
    ],
)
def test_deep_trees_have_many_nodes_each(trees: int, nodes: int, size: str) -> None:
    assert tree_class(65536, trees, nodes, 64, True) == ("many", size, "packed")
