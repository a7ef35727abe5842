"""Row tiles of one fixed shape for plain torch arithmetic."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

TILE_ELEMENTS = 2**16

SHORT, SHORTER = 24, (12, 4)
"""The rows of the smallest tile that is certainly a whole number of a library's blocks, and of smaller tiles to try."""

LARGEST_TRIAL = 2**22
"""The largest number of weights for which smaller tiles are tried out."""

ALIGNED = 64
"""Alignment in bytes of the memory that torch allocates and of every tile."""

BLOCK = 64
"""A vectorised loop over a multiple of this many elements has no remainder."""


class Scratch(threading.local):
    """Memory for tiles that a thread keeps from one batch to the next: the first write to new memory is slow."""

    _kept = torch.empty(0, 0)

    def rows(self, rows: int, columns: int, value: float = 0.0) -> torch.Tensor:
        """Return float64 `[rows, columns]` that holds earlier writes, and the value elsewhere.

        Every call on the same object must give the same number of columns and the same value.
        """
        if len(self._kept) < rows:
            with torch.inference_mode(mode=False):  # so that either mode may write to it
                self._kept = torch.full((rows, columns), value, dtype=torch.float64)
        return self._kept[:rows]


def in_tiles(
    x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], width: int, elements_per_row: int
) -> torch.Tensor:
    """Return `compute(x)` as float64 `[rows, width]`, computed on float64 tiles `[tile, features]` of one shape.

    A matrix library picks its algorithm, and thus the order of its sums, by the shape, and vectorised loops compute
    their remainder in another way. Rows therefore go through `compute` in tiles of one size; the last tile is filled
    up with whatever its memory held. A row's answer then depends neither on the number of other rows nor on its place:
    24 rows times a power of two are a whole number of the blocks that matrix libraries work in.

    Args:
        x: `[rows, features]`, float32 or float64.
        compute: maps a float64 tile `[tile, features]` to `[tile, width]`.
        width: the width of the answer.
        elements_per_row: how many intermediate numbers a row needs; it sets the tile's size, 24 to 768 rows.
    """
    tile = tile_rows(elements_per_row)
    answer = torch.empty(-(-len(x) // tile) * tile, width, dtype=torch.float64)
    for start, block in _blocks(x, tile):
        answer[start : start + tile] = compute(block)
    return answer[: len(x)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch compute in one thread: several threads split a tile into parts that are not whole blocks."""
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
    """Return `x @ weight` as float64 `[rows, columns]`, computed in tiles like those of `in_tiles`, without its copies.

    Rows that do not fill a whole tile go through smaller tiles if these give the same bits on this processor.

    Args:
        x: `[rows, features]`, of any dtype.
        weight: float64 `[features, columns]`, contiguous.
        finish: changes the rows of each tile of the product, which are contiguous, in place.
    """
    rows, (features, columns) = x.shape[0], weight.shape
    direct, sizes = way(features, columns)
    if rows <= sizes[-1]:
        block = torch.zeros(sizes[-1], features, dtype=torch.float64)
        block[:rows] = x
        answer = torch.empty(sizes[-1], columns, dtype=torch.float64)
        multiply(block, weight, answer, direct)
        answer = answer[:rows]
        if finish is not None:
            finish(answer)
        return answer
    tiles = row_tiles(rows, sizes)
    filled = tiles[-1][0] + tiles[-1][2]
    answer = torch.empty(filled, columns, dtype=torch.float64)
    aligned = x.dtype == torch.float64 and x.is_contiguous() and x.data_ptr() % ALIGNED == 0
    copied, room = answer, 0
    for start, count, size in tiles:
        block = x[start : start + count]
        if not (aligned and count == size and start * features * x.itemsize % ALIGNED == 0):
            if room < size:  # unfilled rows are zero: unwritten memory may hold numbers that are slow
                new, room = torch.empty if count == size else torch.zeros, size
                copied = new(size, features, dtype=torch.float64)
            copied[:count].copy_(block)
            block = copied[:size]
        multiply(block, weight, answer[start : start + size], direct)
        if finish is not None:
            finish(answer[start : start + count])
    return answer[:rows]


@functools.lru_cache(maxsize=1024)
def way(features: int, columns: int) -> tuple[bool, tuple[int, ...]]:
    """Return whether a product can be left to the library as it is, and how many rows its tiles may have."""
    sizes = tile_sizes(2 * tile_rows(features + columns))
    if features * columns > LARGEST_TRIAL:
        return False, sizes[:1]
    for direct in (True, False):
        if direct and columns % 2:  # the rows of the product would not be aligned
            continue

        def trial(block: torch.Tensor, weight: torch.Tensor, direct: bool = direct) -> torch.Tensor:
            found = torch.empty(len(block), columns, dtype=torch.float64)
            multiply(block, weight, found, direct)
            return found

        alike = sizes_alike(trial, features, columns, sizes)
        if alike:
            return direct, alike
    return False, sizes[:1]


def tile_sizes(rows: int) -> tuple[int, ...]:
    """Return the row counts that tiles may have, the largest first; `rows`, the largest, is 24 times a power of two."""
    halved = [rows >> halvings for halvings in range((rows // SHORT).bit_length())]
    between = [3 * size // 2 for size in halved[1:]]
    return (*sorted(halved + between, reverse=True), *SHORTER)


def sizes_alike(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], features: int, columns: int, sizes: Sequence[int]
) -> tuple[int, ...]:
    """Return the sizes that give the bits of the first size at every place; none if the first itself does not.

    A library chooses its algorithm by shape alone and not by the numbers. Tiles of identical rows therefore show, on
    this processor, whether every place in a tile gives the same bits, and which smaller tiles give the bits of the
    largest.

    Args:
        multiply: returns the product of a tile `[rows, features]` and a weight `[features, columns]`, both contiguous.
        features: the features of a tile.
        columns: the columns of the weight.
        sizes: the rows of tiles, the largest first.
    """
    generator, trials = torch.Generator().manual_seed(0), max(16 // columns, 2)
    rows = torch.randn(trials, 1, features, dtype=torch.float64, generator=generator)
    weight = torch.randn(features, columns, dtype=torch.float64, generator=generator)
    same = [True] * len(sizes)
    for x in rows:
        first = None
        for place, size in enumerate(sizes):
            found = multiply(x.repeat(size, 1), weight)
            first = found[:1] if first is None else first
            same[place] &= bool((found == first).all())
    return tuple(size for size, alike in zip(sizes, same, strict=True) if alike) if same[0] else ()


@functools.lru_cache(maxsize=64)
def row_tiles(rows: int, sizes: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return each tile's first row, number of rows and size; tiles have these sizes and hold all rows in order.

    The last tile may stay partly empty if more than three quarters of it are filled or no tile is smaller.
    """
    if rows <= sizes[-1]:
        return ((0, rows, sizes[-1]),) * bool(rows)
    tiles, start = [], 0
    for size, smaller in zip(sizes, (*sizes[1:], 0), strict=True):
        while start < rows:
            count = min(size, rows - start)
            if 4 * count <= 3 * size and smaller:
                break
            tiles.append((start, count, size))
            start += count
    return tuple(tiles)


def apply(
    function: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor, at_once: int = TILE_ELEMENTS
) -> torch.Tensor:
    """Replace each element of a contiguous float64 tensor by the function of it, and return the tensor.

    The function receives up to `at_once` elements, a multiple of 64. It may change them in place and return them.

    Vectorised loops compute a remainder in another way, so the last elements are filled up to 64 and leave no
    remainder.
    """
    count = values.numel()
    whole = count - count % BLOCK
    if whole == count <= at_once:
        found = function(values)
        return values if found is values else values.copy_(found)
    flat = values.view(-1)
    for start in range(0, whole, at_once):
        part = flat[start : min(start + at_once, whole)]
        found = function(part)
        if found is not part:
            part.copy_(found)
    if whole < count:
        last = torch.zeros(BLOCK, dtype=torch.float64)
        last[: count - whole] = flat[whole:]
        flat[whole:] = function(last)[: count - whole]
    return values


def multiply(block: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, direct: bool) -> None:
    """Write `block @ weight` to the contiguous `out`."""
    if weight.shape[1] == 1:
        torch.mv(block, weight[:, 0], out=out.view(-1))
    elif direct:
        torch.mm(block, weight, out=out)
    else:
        out.copy_((weight.T @ block.T.contiguous()).T)


def _blocks(x: torch.Tensor, tile: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield each tile's first row and its rows as float64 `[tile, features]`, always in the same memory.

    Rows that were never filled are zero: unwritten memory may hold numbers that are slow to compute with.
    """
    count = x.shape[0]
    new = torch.empty if count >= tile else torch.zeros
    block = new(tile, x.shape[1], dtype=torch.float64)
    for begin in range(0, count, tile):
        (block if begin + tile <= count else block[: count - begin]).copy_(x[begin : begin + tile])
        yield begin, block


def matmul(tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `tile @ weight`, float64, with every row summed in the same order wherever it stands in the tile.

    A matrix library treats the last rows and columns of a product in other ways. Here a tile's rows lie along the
    product's contiguous dimension and are a whole number of blocks, so only the columns have such a remainder.
    """
    if weight.shape[1] == 1:
        return torch.mv(tile, weight[:, 0])[:, None]
    return (weight.T @ tile.T.contiguous()).T.contiguous()
