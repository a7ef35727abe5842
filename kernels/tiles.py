"""Row tiles of one fixed shape for plain torch arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import torch

TILE_ELEMENTS = 2**16


def in_tiles(
    x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], width: int, elements_per_row: int
) -> torch.Tensor:
    """Return `compute(x)` as float64 `[rows, width]`, computed on float64 tiles `[tile, features]` of one shape.

    A matrix library picks its algorithm, and so the order of its sums, by the shape it is given. Rows therefore go
    through `compute` in tiles of one size, the last one filled up with whatever was there before, and a row's answer
    does not depend on how many rows come with it. `elements_per_row` is how many intermediate numbers a row needs; it
    sets the tile's size, a power of two from 16 to 1,024 rows.
    """
    tile = 1 << (min(max(TILE_ELEMENTS // elements_per_row, 16), 1024).bit_length() - 1)
    block = torch.zeros(tile, x.shape[1], dtype=torch.float64, device=x.device)
    answer = torch.empty(x.shape[0], width, dtype=torch.float64, device=x.device)
    for rows, out in zip(x.split(tile), answer.split(tile), strict=True):  # type: ignore[no-untyped-call]
        block[: rows.shape[0]] = rows
        out.copy_(compute(block)[: rows.shape[0]])
    return answer
