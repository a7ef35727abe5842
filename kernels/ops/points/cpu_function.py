"""The matrix of functions of rows and stored points in plain torch, tile after tile, for serving on a CPU.

Distances come from products of matrices, `|z|² − 2 z · s + |s|²` about the points' mean, which are off by some 1e-16 of
the points' squares. A function that is smooth in the squared distance is not affected. The root of a squared distance
near zero would enlarge the error: such a distance is computed again from the differences, unless the profile is flat at
zero.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ...cpu.tiles import BLOCK, TILE_ELEMENTS, Scratch, apply, matmul, row_tiles, sizes_alike, tile_rows, tile_sizes
from ...numerics.fast_math import LOG2_E
from ...numerics.functions import FUNCTIONS, IN_PLACE
from ...numerics.powers import torch_power
from .metrics import FIRST_PIECE, NEGATIVE, PIECE_BITS, PIECE_MASK
from .row_digits import TINY_NORM

FEW_DIFFERENCES = 3
"""The most features for which differences take no longer than a product."""

MAX_REACH = 1e4
"""The largest square of the points in the argument of a profile; an error of 1e-16 of it is negligible."""

NEAR = 1e-6
"""The share of the points' largest square below which a squared distance comes from differences."""

PAIRS_AT_ONCE = 2**14
"""Pairs of a row and a near point whose differences are computed at a time."""

SMALLEST, LARGEST = 1e-300, 1e300
"""The range of squares whose reciprocal roots are finite."""

ELEMENTS_AT_ONCE = 2**15
"""Elements per block that fit in cache, with the temporaries of several functions."""

EIGHT = 8
"""Rows are padded to a multiple of this many float64 numbers, so that each begins at a vector boundary."""

MANY_POINTS = 512
"""From this many points on, rows are padded to whole blocks of `tiles.apply`."""


_Tile = tuple[int, int, int, int]
"""The place of a matrix, the first row of some of its rows, how many they are, and the rows of their tile."""


class PointMatrix:
    """The function of float64 rows and points of `function.py`, with the same fields.

    With `expanded` the metric comes from a matrix product, however far the points reach.

    A row has `columns` numbers; the numbers past the last point repeat that of the last point.
    """

    def __init__(
        self,
        *,
        points: np.ndarray,
        shift: np.ndarray,
        factor: np.ndarray,
        metric: str,
        profile: str,
        gamma: float,
        coef0: float,
        exponent: float,
        table: np.ndarray,
        expanded: bool,
        columns: int = 0,
    ) -> None:
        self._metric, self._profile, self._exponent = metric, profile, exponent
        centre = np.where(factor != 0, points.mean(axis=0), 0.0)
        squares = ((points - centre) ** 2).sum(axis=1)
        self._products, self._near = _by_products(metric, profile, gamma, points.shape[1], float(squares.max()))
        self._products |= expanded
        whole = BLOCK if len(points) >= MANY_POINTS else EIGHT
        self.columns = columns or -(-len(points) // whole) * whole
        columns_of = np.minimum(np.arange(self.columns), len(points) - 1)
        scale = LOG2_E if profile == "exp" else 1.0
        self._gamma, self._coef0 = gamma * scale, coef0 * scale
        self._squared = self._products and metric not in ("dot", "cosine")
        if metric == "cosine":
            length = np.sqrt(np.einsum("pf,pf->p", points, points))[:, None]
            points = points / np.where(length < TINY_NORM.value, 1.0, length)
        elif self._squared:
            points, shift = points - centre, shift + centre / np.where(factor != 0, factor, 1.0)
        table_of = points.T[:, columns_of]
        if self._squared:
            table_of = np.vstack([-2.0 * table_of, np.ones(self.columns), squares[columns_of]])
            root = metric == "euclidean"
            self._unit, self._above = self._gamma**2 if root else self._gamma, self._gamma > 0
            self._near *= self._unit
            self._gamma = float(np.sign(self._gamma)) if root else 1.0
            table_of *= self._unit
        self._block, self._matrix = Scratch(), Scratch()  # the last column of squared distances stays 1
        self._table = _tensor(table_of)
        self._points = _tensor(points[columns_of]) if self._near else torch.empty(0)
        self._shift = _tensor(shift)
        self._factor = None if (factor == 1).all() else _tensor(factor)
        self._pieces = _tensor(table)

    def share(self, kept: dict[tuple[int, int], tuple[Scratch, Scratch]]) -> None:
        """Use the memory for tiles of other matrices with as many features and columns, one after the other."""
        width, columns = self._table.shape
        self._block, self._matrix = kept.setdefault((width, columns), (self._block, self._matrix))

    def tiles(self, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row and the matrix `[*, columns]` of some rows of `x` at a time; callers may change it.

        Each matrix overwrites the previous one. A row's bits depend neither on other rows nor on their number.
        """
        (width, columns), features = self._table.shape, x.shape[1]
        direct, sizes = self._way
        for start, count, size in row_tiles(x.shape[0], sizes):
            block, matrix = self._block.rows(size, width, 1.0), self._matrix.rows(size, columns)
            z, m = block[:count, :features], matrix[:count]
            z.copy_(x[start : start + count]).sub_(self._shift)
            if self._factor is not None:
                z.mul_(self._factor)
            if not self._products:
                differences(z, self._table, self._metric, out=m)
                if self._metric == "euclidean":
                    m.sqrt_()
            else:
                if self._squared:
                    torch.sum(z * z, 1, out=block[:count, features])
                self._multiply(block, matrix, direct)
                self._finish_products(block, m)
            yield start, apply(self._function, m, ELEMENTS_AT_ONCE)

    @staticmethod
    def agree(matrices: Sequence[PointMatrix]) -> bool:
        """Return whether `tiles_of` computes matrices, which are functions of one metric and profile."""
        return all(matrix._products and matrix._exponent == matrices[0]._exponent for matrix in matrices)

    @staticmethod
    def tiles_of(
        matrices: Sequence[PointMatrix], counts: Sequence[int], x: torch.Tensor, scratch: Scratch
    ) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Yield tiles as `tiles` does, each with the place of its matrix, for rows of several matrices that `agree`.

        Each matrix takes a call of the library for its products. Most of the rest is computed for several at once.

        Args:
            matrices: the functions of points.
            counts: how many rows each of them has.
            x: `[rows, features]`, the rows of one matrix after those of another.
            scratch: the memory for tiles.
        """
        first, start = matrices[0], 0
        tiles: list[_Tile] = []
        for place, (matrix, count) in enumerate(zip(matrices, counts, strict=True)):
            tiles += [(place, start + row, some, size) for row, some, size in row_tiles(count, matrix._way[1])]
            start += count
        lines = PointMatrix._lines(matrices, counts, x, tiles)
        room = max(TILE_ELEMENTS, *(size * matrices[place].columns for place, _, _, size in tiles))
        kept = scratch.rows(-(-room // BLOCK), BLOCK).view(-1)
        made: list[tuple[int, int, torch.Tensor]] = []
        line = end = 0
        for place, row, count, size in tiles:
            matrix = matrices[place]
            if end + size * matrix.columns > room:
                apply(first._profiled, kept[:end], ELEMENTS_AT_ONCE)
                yield from made
                made, end = [], 0
            block = lines[line : line + size]
            whole = kept[end : end + size * matrix.columns].view(size, matrix.columns)
            matrix._multiply(block, whole, matrix._way[0])
            m = whole[:count]  # the next tile overwrites the spare rows
            matrix._finish_products(block, m)
            made.append((place, row, matrix._argument(m)))
            line, end = line + -(-size // EIGHT) * EIGHT, end + count * matrix.columns
        apply(first._profiled, kept[:end], ELEMENTS_AT_ONCE)
        yield from made

    @staticmethod
    def _lines(
        matrices: Sequence[PointMatrix], counts: Sequence[int], x: torch.Tensor, tiles: Sequence[_Tile]
    ) -> torch.Tensor:
        """Return the tiles `[*, width]` of rows of several matrices, as `tiles` fills one, each in aligned memory."""
        place = torch.from_numpy(np.arange(len(matrices)).repeat(counts))
        z = x - torch.stack([matrix._shift for matrix in matrices]).index_select(0, place)
        if any(matrix._factor is not None for matrix in matrices):
            one = torch.ones(x.shape[1], dtype=torch.float64)
            factors = [one if matrix._factor is None else matrix._factor for matrix in matrices]
            z.mul_(torch.stack(factors).index_select(0, place))
        _, first, rows, sizes = np.array(tiles).T
        ends = (-(-sizes // EIGHT) * EIGHT).cumsum()
        at = torch.from_numpy(np.arange(len(z)) + (np.append(0, ends[:-1]) - first).repeat(rows))
        lines = torch.zeros(ends[-1], len(matrices[0]._table), dtype=torch.float64)
        lines[:, : x.shape[1]].index_copy_(0, at, z)
        if matrices[0]._squared:
            lines[:, -2].index_copy_(0, at, torch.sum(z * z, 1))
            lines[:, -1] = 1.0
        return lines

    def _multiply(self, block: torch.Tensor, matrix: torch.Tensor, direct: bool) -> None:
        """Write the products of a tile `[size, width]` and the points to a matrix `[size, columns]`."""
        if direct:
            torch.mm(block, self._table, out=matrix)
        else:
            matrix[:] = matmul(block, self._table)

    @functools.cached_property
    def _way(self) -> tuple[bool, tuple[int, ...]]:
        """Return whether the library's product can be used directly, and the possible numbers of rows of a tile."""
        rows = 2 * tile_rows(self.columns)
        return _way(len(self._table), self.columns, rows) if self._products else (True, (rows,))

    def _finish_products(self, block: torch.Tensor, m: torch.Tensor) -> None:
        """Turn a product, of the first rows of a tile, into the metric, or into its square for a distance."""
        features = len(self._shift)
        if self._metric == "squared_euclidean":
            (m.clamp_min_ if self._above else m.clamp_max_)(0.0)
        elif self._metric == "cosine":
            z = block[: len(m), :features]
            length = torch.sum(z * z, 1, keepdim=True).sqrt_()
            m.div_(torch.where(length < TINY_NORM.value, 1.0, length))
        elif self._near and not m.amin() >= self._near:  # true for a row with NaN as well
            near = (m < self._near).nonzero()
            for row, column in (pairs.unbind(1) for pairs in torch.split(near, PAIRS_AT_ONCE)):
                difference = block[row, :features].sub_(self._points[column])
                m[row, column] = torch.sum(difference.mul_(difference), 1).mul_(self._unit)

    def _function(self, m: torch.Tensor) -> torch.Tensor:
        """Return the profile of the metric; `m` holds the squared distance if a product made it."""
        return self._profiled(self._argument(m))

    def _argument(self, m: torch.Tensor) -> torch.Tensor:
        """Return the profile's argument, by operations that round alike in every loop."""
        if self._metric == "euclidean" and self._products:
            m.clamp_(SMALLEST, LARGEST).mul_(m.rsqrt())
        if self._gamma != 1.0:
            m.mul_(self._gamma)
        if self._coef0 != 0.0:
            m.add_(self._coef0)
        return m

    def _profiled(self, m: torch.Tensor) -> torch.Tensor:
        """Return the profile of its argument."""
        if self._profile == "exp":
            return m.exp2_()
        return plain_profile(m, self._profile, self._exponent, self._pieces)


def _by_products(metric: str, profile: str, gamma: float, features: int, reach: float) -> tuple[bool, float]:
    """Return whether the metric comes from a matrix product, and the square below which distances do not."""
    if metric in ("dot", "cosine"):
        return True, 0.0
    if metric == "squared_euclidean":
        return features > FEW_DIFFERENCES and reach * abs(gamma) < MAX_REACH, 0.0
    smooth = metric == "euclidean" and profile in ("exp", "matern_3_2", "matern_5_2")
    if not smooth or features <= FEW_DIFFERENCES or reach * gamma**2 >= MAX_REACH:
        return False, 0.0
    return True, NEAR * reach if profile == "exp" else 0.0


@functools.lru_cache(maxsize=1024)
def _way(features: int, columns: int, rows: int) -> tuple[bool, tuple[int, ...]]:
    """Return whether the library's product can be used directly, and the possible numbers of rows of its tiles."""
    sizes = tile_sizes(rows)
    alike = sizes_alike(torch.mm, features, columns, sizes)
    return (True, alike) if alike else (False, sizes[:1])


def differences(z: torch.Tensor, points: torch.Tensor, metric: str, out: torch.Tensor) -> torch.Tensor:
    """Write the metric, or its square for euclidean, from the differences of rows and points, feature by feature.

    Args:
        z: float64 `[rows, features]`.
        points: float64 `[features, points]`.
        metric: a metric that is no product.
        out: float64 `[rows, points]`.

    Returns:
        `out`.
    """
    if metric == "chi2":
        z = torch.where(z < NEGATIVE.value, torch.nan, torch.clamp_min(z, 0.0))
    out.zero_()
    term = torch.empty_like(out)
    for column, s in zip(z.T[:, :, None], points, strict=True):
        torch.sub(column, s, out=term)
        if metric == "manhattan":
            term.abs_()
        else:
            term.mul_(term)
        if metric == "chi2":
            total = column + s
            term.div_(torch.where(total == 0, 1.0, total))
        out.add_(term)
    return out


def plain_profile(u: torch.Tensor, profile: str, exponent: float, table: torch.Tensor) -> torch.Tensor:
    """Return the profile of each element; the argument may be changed."""
    match profile:
        case "power":
            return torch_power(u, exponent)
        case "matern_3_2":
            factor = (u * -LOG2_E).exp2_()
            return u.add_(1.0).mul_(factor)
        case "matern_5_2":
            factor = (u * -LOG2_E).exp2_()
            return (u / 3.0).add_(1.0).mul_(u).add_(1.0).mul_(factor)
        case "sine":
            return torch.exp(-exponent * torch.sin(u) ** 2)
        case "table":
            bits = u.view(torch.int64)
            piece = (bits >> PIECE_BITS.value) - FIRST_PIECE.value
            local = torch.where(piece < 0, -1.0, (bits & PIECE_MASK.value).double() * 2.0**-49 - 1.0)
            y = torch.zeros_like(u)
            for terms in torch.cat([table, table.new_zeros(1, table.shape[1])]).T.flip(0):
                y = y * local + terms[piece.clamp(0, len(table))]
            return torch.where(u == u, y, u)
    return IN_PLACE.get(profile, FUNCTIONS[profile])(u)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.require(array, dtype=np.float64, requirements=["C", "W"]))
