"""The nearest stored points on a CPU: a float32 product leaves few candidates, and float64 distances choose.

With rows `z` and points `s` about the points' mean, in units of the longest point, the nearest points are those with
the smallest `v = |s|² − 2 z · s`, which is one matrix product. It is off by at most `slack`, whatever the order of its
sums: each of its `features + 1` terms is rounded to float32 a few times, and the terms' sizes add up to at most
`2 |z| |s| + |s|²`. A neighbour's `v` therefore exceeds the k-th smallest by at most twice the slack. Among the points
within that limit, distances summed as in `distances.py` choose, so the result does not depend on the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from ...cpu.tiles import in_tiles
from ...numerics.powers import whole
from ...plan.plan import Parameters
from .distances import SQUARED, reference_reduced_distances

PRODUCTS_AT_ONCE = 2**18
"""Float32 products of rows and points that fit in a processor's cache."""

HALVINGS = 3
"""Halvings by the smaller of two `v` before the smallest are searched, so that points are compared in groups."""

SPARE = 2
"""Candidates beyond the number of neighbours; they decide most rows at once."""

LARGEST = 1e37
"""The largest length of a row, in units of the longest point, whose products are safe in float32."""

SMALLEST = 1e-30
"""An upper bound on the error of products that underflow in float32."""

LEVEL = 2.0**40
"""A row closer than this many widths of the points has different distances to them."""

SINGLE, DOUBLE = 2.0**-24, 2.0**-53

Found = tuple[torch.Tensor, torch.Tensor]
"""The reduced distances and indices of each row's nearest points, `[rows, neighbors]` each. The indices ascend."""


class Candidates:
    """Points for searches of the nearest by Euclidean distance, with or without weights of the features.

    Args:
        points: float64 `[points, features]`.
        factor: float64 `[features]`, the weights.
    """

    def __init__(self, points: np.ndarray, factor: np.ndarray) -> None:
        self._count, features = points.shape
        padded = -(-self._count // (1 << HALVINGS)) << HALVINGS
        self._points = torch.zeros(padded, features, dtype=torch.float64)
        places = self._points[: self._count]
        places.copy_(torch.from_numpy(np.require(points, requirements=["C", "W"])))
        self._columns = places.T.contiguous()
        self._low, self._high = places.min(0).values, places.max(0).values
        self._factor = torch.from_numpy(np.require(factor, requirements=["C", "W"]))
        self._weighted = bool((factor != 1).any())
        self._centre = places.mean(0)
        centred = (places - self._centre) * self._factor.sqrt()
        self._longest = float(centred.square().sum(1).max().sqrt())
        self.exact = self._longest == 0 or 1e-100 < self._longest < 1e100
        """True if float64 holds the squares without overflow or underflow. Only then are the results valid."""
        self._unit = math.ldexp(1.0, -math.frexp(self._longest)[1]) if self.exact and self._longest else 1.0
        centred *= self._unit
        self._longest *= self._unit
        self._scale = self._factor.sqrt() * self._unit
        self._table = torch.zeros(features + 1, padded)
        self._table[:-1, : self._count] = -2.0 * centred.T
        self._table[-1] = torch.inf
        self._table[-1, : self._count] = centred.square().sum(1)

    def nearest(self, x: torch.Tensor, neighbors: int) -> Found:
        """Return each row's nearest points; among equal distances the point with the smaller index is nearer.

        Args:
            x: float64 `[rows, features]`.
            neighbors: at most the number of points.
        """
        if not len(x) or 4 * (neighbors + SPARE) > self._count:
            return self._searched(x, neighbors)
        level, distance = self._level(x)
        if level is not None:
            chosen = torch.arange(neighbors).repeat(len(x), 1)
            distance = distance[:, None].repeat(1, neighbors)
            rest = (~level).nonzero()[:, 0]
            if len(rest):
                distance[rest], chosen[rest] = self.nearest(x[rest], neighbors)
            return distance, chosen
        parts = x.tensor_split(min(-(-len(x) * self._table.shape[1] // PRODUCTS_AT_ONCE), len(x)))
        memory = torch.empty(2, len(parts[0]) * self._table.shape[1])  # allocating it anew for each part would be slow
        distances, indices = zip(*(self._nearest(part, neighbors, *memory) for part in parts), strict=True)
        return (distances[0], indices[0]) if len(parts) == 1 else (torch.cat(distances), torch.cat(indices))

    def _level(self, x: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return which rows are at one distance from all points, or None if no row is, and that distance.

        A float64 sum is monotone in each difference. All distances of a row therefore lie between those to the nearest
        and to the furthest corner of the box around the points, added in the same order.
        """
        near = x - x.clamp(self._low, self._high)
        if bool(near.abs().amax(1).max() < LEVEL * (self._high - self._low).max()):
            return None, near
        nearest, furthest = self._sums(near), self._sums(torch.maximum((x - self._low).abs_(), (x - self._high).abs_()))
        level = nearest == furthest
        return (level, nearest) if bool(level.any()) else (None, near)

    def _sums(self, term: torch.Tensor) -> torch.Tensor:
        """Return the reduced distances `[...]` of differences `[..., features]`, which are overwritten."""
        term *= term
        if self._weighted:
            term *= self._factor
        return term.cumsum(-1)[..., -1].nan_to_num_(nan=math.inf, posinf=math.inf)

    def _nearest(self, x: torch.Tensor, neighbors: int, first: torch.Tensor, second: torch.Tensor) -> Found:
        """Return the result of `nearest` for a few rows; `first` and `second` are memory for their products."""
        count = neighbors + SPARE
        v, slack, _ = self._products(x, first)
        low = v
        for _ in range(HALVINGS):
            size = low.numel() // 2
            low = torch.minimum(*low.chunk(2, dim=1), out=second[:size].view(len(x), -1))
            second = second[size:]
        groups = low.shape[1]
        if groups > 2 * count:
            low, group = low.topk(count, dim=1, largest=False)  # group g has the points g, g + groups, g + 2 groups, …
            near = v.view(len(x), 1 << HALVINGS, groups).gather(2, group[:, None, :].expand(-1, 1 << HALVINGS, -1))
            value, at = near.flatten(1).topk(count, dim=1, largest=False)
            index = group.gather(1, at % count) + (at // count) * groups
            beyond = torch.minimum(low[:, -1], value[:, -1])
        else:
            value, index = v.topk(count, dim=1, largest=False)
            beyond = value[:, -1]
        limit = value[:, neighbors - 1] + slack  # float64
        sure = beyond > limit
        distance, chosen = self._chosen(x, index, neighbors)
        if not bool(sure.all()):
            unsure = (~sure).nonzero()[:, 0]
            distance[unsure], chosen[unsure] = self._among(x[unsure], v[unsure], limit[unsure], neighbors)
        return distance, chosen

    def within(self, x: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
        """Return which points lie within a reduced distance of each row, bool `[rows, points]`.

        Args:
            x: float64 `[rows, features]`.
            radius: the largest reduced distance, float64 `[1]`.
        """
        v, slack, square = self._products(x)
        limit = radius * (self._unit * self._unit) - square
        slack += limit.abs() * (4 * SINGLE)  # for rounding the limits to float32
        low, high = ((limit + sign * slack).float()[:, None] for sign in (-1.0, 1.0))
        inside, near = v <= low, v <= high
        row, eight = (inside.view(torch.int64) ^ near.view(torch.int64)).nonzero().unbind(1)
        point = (eight[:, None] * 8 + torch.arange(8)).flatten()
        row = row.repeat_interleave(8)
        inside[row, point] = self.distances(x[row], point) <= radius
        inside = inside[:, : self._count]
        lost = ~slack.isfinite()
        if bool(lost.any()):
            inside[lost] = False
            lost[lost.clone()] = self._sums(x[lost] - x[lost].clamp(self._low, self._high)) <= radius
            everything = reference_reduced_distances(x[lost], self._columns, self._factor, "euclidean", 2.0)
            inside[lost] = everything <= radius
        return inside

    def _products(
        self, x: torch.Tensor, memory: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return `v` as float32 `[rows, points or more]`, infinite past the last point, twice its slack, and `|z|²`.

        The first lies in `memory` unless that is None.

        The slack is infinite or NaN if a row's numbers are too large or NaN.
        """
        features = x.shape[1]
        z = torch.ones(len(x), features + 1, dtype=torch.float32)
        centred = x.sub(self._centre).mul_(self._scale)
        z[:, :-1] = centred
        square = centred.square_().sum(1)
        length = square.sqrt()
        size = self._longest * (2.0 * length + self._longest)
        slack = size * (1.05 * SINGLE * (features + 8)) + (length + self._longest).square_() * (DOUBLE * (features + 8))
        slack = slack.mul_(2.0).add_(SMALLEST).masked_fill_(length > LARGEST, torch.inf)
        out = None if memory is None else memory[: len(x) * self._table.shape[1]].view(len(x), -1)
        return torch.mm(z, self._table, out=out), slack, square

    def _among(self, x: torch.Tensor, v: torch.Tensor, limit: torch.Tensor, neighbors: int) -> Found:
        """Return the result of `nearest` for rows with more candidates, the points with `v` up to `limit`."""
        counts = (v <= limit[:, None]).sum(1)
        count = int(counts.max())
        if int(counts.min()) < neighbors or 4 * count > self._count:
            return self._searched(x, neighbors)
        return self._chosen(x, v.topk(count, dim=1, largest=False).indices, neighbors)

    def _chosen(self, x: torch.Tensor, index: torch.Tensor, neighbors: int) -> Found:
        """Return the result of `nearest` among candidates `[rows, candidates]`."""
        index = index.sort(dim=1).values
        distance, order = self.distances(x[:, None, :], index).sort(dim=1, stable=True)
        index, order = index.gather(1, order[:, :neighbors]).sort(dim=1)
        return distance.gather(1, order), index

    def distances(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Return the reduced distances of rows `[..., features]` to the points of these indices `[...]`.

        They have the bits of `reference_reduced_distances`: a cumulative sum adds in order.
        """
        term = x - self._points.index_select(0, index.flatten()).view(*index.shape, x.shape[-1])
        term *= term
        if self._weighted:
            term *= self._factor
        return term.cumsum(-1)[..., -1]

    def _searched(self, x: torch.Tensor, neighbors: int) -> Found:
        """Return the result of `nearest`, from the distances to all points."""
        parameters = {"columns": self._columns, "factor": self._factor}
        return nearest_points(x, parameters, "euclidean", 2.0, neighbors, None)


def nearest_points(
    x: torch.Tensor, parameters: Parameters, metric: str, p: float, neighbors: int, among: Candidates | None
) -> Found:
    """Return the reduced distances and indices of each row's nearest points, on a CPU by `among` unless it is None.

    Args:
        x: float64 `[rows, features]`.
        parameters: the `columns`, float64 `[features, points]`, and the `factor` of the metric.
        metric: one of `METRICS`.
        p: the power of minkowski.
        neighbors: at most the number of points.
        among: the same points as candidates, or None.
    """
    if among is not None and x.device.type == "cpu":
        return among.nearest(x, neighbors)
    distance = reference_reduced_distances(x, parameters["columns"], parameters["factor"], metric, p)
    index = nearest_of(distance, neighbors)
    return distance.gather(1, index), index


def nearest_of(distance: torch.Tensor, neighbors: int) -> torch.Tensor:
    """Return the indices of the nearest of reduced distances `[rows, points]`, ascending, `[rows, neighbors]`."""
    values, index = distance.topk(min(neighbors + 1, distance.shape[1]), dim=1, largest=False)
    furthest = values[:, neighbors - 1, None]
    if values.shape[1] > neighbors and bool((values[:, neighbors, None] > furthest).all()):
        return index[:, :neighbors].sort(dim=1).values
    nearer, level = distance < furthest, distance == furthest
    room = neighbors - nearer.sum(1, keepdim=True)
    return (nearer | (level & (level.cumsum(1) <= room))).nonzero()[:, 1].view(len(distance), neighbors)


def candidates(points: np.ndarray, factor: np.ndarray, metric: str) -> Candidates | None:
    """Return the points for searches by `Candidates`, or None if it does not support the metric or the points."""
    if metric not in SQUARED or not (factor >= 0).all():
        return None
    found = Candidates(points, factor)
    return found if found.exact else None


def in_parts(
    x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], width: int, elements: int, metric: str, p: float
) -> torch.Tensor:
    """Return `compute(x)`, which uses distances, computed for some rows at a time.

    If the metric needs an exponential or a sine, rows go through `compute` in tiles of one shape, see `in_tiles`. All
    other metrics use only sums, products, quotients and comparisons, which IEEE 754 rounds alike at every place.
    """
    if metric == "haversine" or (metric == "minkowski" and whole(p) is None):
        return in_tiles(x, compute, width, elements)
    count = -(-len(x) * elements // PRODUCTS_AT_ONCE)
    parts = [compute(part.double()) for part in x.tensor_split(max(min(count, len(x) // 8), 1))]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
