"""Row tiles of one fixed shape for plain torch arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

TILE_ELEMENTS = 2**16


def in_tiles(
    x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], width: int, elements_per_row: int
) -> torch.Tensor:
    """Return `compute(x)` as float64 `[rows, width]`, computed on float64 tiles `[tile, features]` of one shape.

    A matrix library picks its algorithm, and so the order of its sums, by the shape it is given, and vectorised loops
    compute what is left over at their end in another way. Rows therefore go through `compute` in tiles of one size, the
    last one filled up with whatever was there before, and a row's answer depends neither on how many rows come with it
    nor on its place: 24 rows times a power of two are a whole number of the blocks that matrix libraries work in.

    Args:
        x: `[rows, features]`, float32 or float64.
        compute: maps a float64 tile `[tile, features]` to `[tile, width]`.
        width: the answer's.
        elements_per_row: how many intermediate numbers a row needs; it sets the tile's size, 24 to 768 rows.
    """
    tile = tile_rows(elements_per_row)
    answer = torch.empty(-(-len(x) // tile) * tile, width, dtype=torch.float64, device=x.device)
    for start, block in _blocks(x, tile):
        answer[start : start + tile] = compute(block)
    return answer[: len(x)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in one thread: of several, each takes a share of a tile that is no whole number of blocks."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def tile_rows(elements_per_row: int) -> int:
    """Return how many rows a tile has: 24 to 768."""
    return 24 << (min(max(TILE_ELEMENTS // (24 * elements_per_row), 1), 32).bit_length() - 1)


def product(
    x: torch.Tensor, weight: torch.Tensor, finish: Callable[[torch.Tensor], object] | None = None
) -> torch.Tensor:
    """Return `x @ weight` as float64 `[rows, columns]`, made of tiles as `in_tiles` makes them, without its copies.

    Args:
        x: `[rows, features]`, float32 or float64.
        weight: float64 `[features, columns]`.
        finish: is given each tile of the product, `[tile, columns]`, and changes it in place.
    """
    columns = weight.shape[1]
    tile = tile_rows(sum(weight.shape))
    answer = torch.empty(-(-len(x) // tile) * tile, columns, dtype=torch.float64, device=x.device)
    single, out = weight[:, 0], answer.view(-1)
    for start, block in _blocks(x, tile):
        if columns == 1:
            torch.mv(block, single, out=out[start : start + tile])
        else:
            answer[start : start + tile] = matmul(block, weight)
        if finish is not None:
            finish(answer[start : start + tile])
    return answer[: len(x)]


def _blocks(x: torch.Tensor, tile: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield each tile's first row and its rows as float64 `[tile, features]`, in one and the same memory.

    What no row has filled is zero: memory that was never written may hold what is slow to compute with.
    """
    count = x.shape[0]
    block = (torch.empty if count >= tile else torch.zeros)(tile, x.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, count, tile):
        (block if start + tile <= count else block[: count - start]).copy_(x[start : start + tile])
        yield start, block


def matmul(tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `tile @ weight`, float64, with every row summed in the same order wherever it stands in the tile.

    A matrix library treats the last rows and columns of a product in other ways; with the rows of a tile along the
    product's contiguous dimension, a whole number of blocks of them, only the columns have such a rest.
    """
    if weight.shape[1] == 1:
        return torch.mv(tile, weight[:, 0])[:, None]
    return (weight.T @ tile.T.contiguous()).T.contiguous()
