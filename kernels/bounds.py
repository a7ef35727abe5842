"""Which groups of stored points may hold neighbours of a row: bounds from fast arithmetic, so that few are looked at.

Points are cut, in their order, into groups of `GROUP`. A first kernel computes for each row and group a number that no
point of the group is nearer than; `nearest.py` then goes through a row's groups by that bound, with exact float64
distances, and stops at the first whose bound is beyond the worst neighbour so far. What it finds is the set of nearest
points, whatever the bounds are, so neither their rounding nor how rows are tiled can change an answer.

The bounds are made of rounded rows and points, `h(v)` for `v = (x − shift) · scale`, in which `scale` holds the weights
of the metric and a power of two. For a metric that is a norm, `‖v − w‖ ≥ ‖h(v) − h(w)‖ − ‖v − h(v)‖ − ‖w − h(w)‖`: the
first term is computed, for Euclidean distances as a matrix product of float16 numbers with float32 sums, for others in
float32; the second and the largest of the third are known. What float32 sums lose is taken off as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .distances import INFINITY, SQUARED
from .plan import Parameters
from .powers import power, whole

NORMS = (*SQUARED, "manhattan", "chebyshev", "minkowski")
"""The metrics that the bounds are made for; minkowski's `p` must lie in [1, `MAX_P`]."""

MAX_P = 8.0

SMALLEST_GROUP = 32
"""Points of a group where there are at most `FEW_POINTS`; of more at least twice as many."""

FEW_POINTS = 8192

MAX_GROUPS = 8192
"""How many bounds of a row the registers of one program hold."""

MOST_BLOCK_POINTS = 256
"""Points of the largest tile, and so of the largest group."""

MAX_NEIGHBORS = 64
LEAST_POINTS, MOST_POINTS = 1024, MAX_GROUPS * MOST_BLOCK_POINTS
"""Of fewer or more points, or for more neighbours, all are looked at."""

BOUNDS_AT_ONCE = 2**22
"""So many bounds lie in memory at a time; what has more rows is searched part by part."""

LARGEST = tl.constexpr(3e38)
FURTHEST = tl.constexpr(32768.0)
"""A row with a number beyond it, in units of `scale`, has no bounds: float16 and float32 might overflow."""


@triton.jit
def store_bounds(bounds, distance, lost, row, tile, rows, groups, SLACK: tl.constexpr, ROOT: tl.constexpr):
    """Store for each row and group of a tile what no point is nearer than, as a reduced distance in units of `scale`.

    `distance` is the smallest reduced distance between rounded numbers, `[BLOCK_ROWS, groups of a tile]`, and `lost`
    what rounding may take off a distance; `ROOT` is the power of a distance that is a reduced one.
    """
    group = tile * distance.shape[1] + tl.arange(0, distance.shape[1])
    d = tl.maximum(distance, 0.0)
    if ROOT == 2.0:
        d = tl.sqrt(d)
    elif ROOT != 1.0:
        d = tl.exp(tl.log(d) / ROOT)
    d = tl.maximum(d * (1.0 - SLACK) - lost[:, None], 0.0)
    if ROOT == 2.0:
        d = d * d
    elif ROOT != 1.0:
        d = tl.exp(tl.log(d) * ROOT) * (1.0 - SLACK)
    d = tl.where(d == d, tl.minimum(d, LARGEST), 0.0)
    inside = (row < rows)[:, None] & (group < groups)[None, :]
    tl.store(bounds + row[:, None] * groups + group[None, :], d, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def round_rows_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    lost,  # float64 [1], the largest distance between a point and its rounded one
    rounded,  # float16 [rows, WIDTH]
    norms,  # float32 [rows], the rounded rows' squared norms less what sums may lose
    gone,  # float32 [rows], what rounding may take off a distance; infinite for a row that cannot be rounded
    rows,
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    SUM_SLACK: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program rounds a row."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK_FEATURES], tl.float64)
    away = tl.zeros([BLOCK_FEATURES], tl.float64)
    furthest = tl.zeros([BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        u = tl.load(x + row * FEATURES + feature, mask=real, other=0.0).to(tl.float64)
        s = tl.load(shift + feature, mask=real, other=0.0)
        v = (u - s) * tl.load(scale + feature, mask=real, other=0.0)
        h = v.to(tl.float32).to(tl.float16)
        tl.store(rounded + row * WIDTH + feature, h)
        g = h.to(tl.float64)
        squares += g * g
        away += (v - g) * (v - g)
        furthest = tl.maximum(furthest, tl.abs(v))
    total = tl.sqrt(tl.sum(away, axis=0)) + tl.load(lost)
    safe = tl.max(furthest, axis=0) <= FURTHEST
    tl.store(norms + row, (tl.sum(squares, axis=0) * (1.0 - SUM_SLACK)).to(tl.float32))
    tl.store(gone + row, tl.where(safe, total.to(tl.float32) * 1.001, INFINITY))


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def euclidean_bounds_kernel(
    rounded,  # float16 [rows, WIDTH]
    row_norms,  # float32 [rows]
    gone,  # float32 [rows]
    near,  # float16 [tiles * BLOCK_POINTS, WIDTH], the rounded points
    norms,  # float32 [tiles * BLOCK_POINTS], like `row_norms`; infinite past the last point
    bounds,  # float32 [rows, groups]
    rows,
    groups,
    tiles,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program bounds `BLOCK_ROWS` rows and `TILES` tiles of points."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    feature = tl.arange(0, BLOCK_FEATURES)
    lines = rounded + row[:, None] * WIDTH + feature[None, :]
    if WIDTH == BLOCK_FEATURES:
        h = tl.load(lines, mask=(row < rows)[:, None], other=0.0)
    squares = tl.load(row_norms + row, mask=row < rows, other=0.0)
    lost = tl.load(gone + row, mask=row < rows, other=0.0)
    first = tl.program_id(0) * TILES
    for tile in tl.range(first, tl.minimum(first + TILES, tiles)):
        point = tile * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        places = near + point.to(tl.int64)[None, :] * WIDTH + feature[:, None]
        if WIDTH == BLOCK_FEATURES:
            product = tl.dot(h, tl.load(places))
        else:
            product = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float32)
            for start in tl.range(0, WIDTH, BLOCK_FEATURES):
                line = tl.load(lines + start, mask=(row < rows)[:, None], other=0.0)
                product = tl.dot(line, tl.load(places + start), acc=product)
        distance = tl.load(norms + point)[None, :] - 2.0 * product
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        least += squares[:, None]
        store_bounds(bounds, least, lost, row, tile, rows, groups, SLACK=2.0**-20, ROOT=2.0)


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def difference_bounds_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    scale,  # float32 [FEATURES]
    near,  # float32 [FEATURES, padded], the rounded points
    lost,  # float32 [1], the largest sum of a point's absolute values
    bounds,  # float32 [rows, groups]
    rows,
    groups,
    tiles,
    padded,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    SLACK: tl.constexpr,
    GROUP: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """Do what `euclidean_bounds_kernel` does where a distance is no matrix product."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    size = tl.zeros([BLOCK_ROWS], tl.float32)
    for feature in tl.range(0, FEATURES, loop_unroll_factor=8):
        u = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float32)
        size += tl.abs(u * tl.load(scale + feature))
    gone = (size * (1.0 + SLACK) + tl.load(lost)) * (4.0 * 2.0**-24)
    gone = tl.where(size <= FURTHEST, gone, INFINITY)
    first = tl.program_id(0) * TILES
    for tile in tl.range(first, tl.minimum(first + TILES, tiles)):
        point = tile * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        distance = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float32)
        places = near + point
        for feature in tl.range(0, FEATURES, loop_unroll_factor=4):
            u = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float32)
            d = tl.abs((u * tl.load(scale + feature))[:, None] - tl.load(places)[None, :])
            places += padded
            if METRIC == "chebyshev":
                distance = tl.maximum(distance, d)
            elif METRIC == "minkowski":
                distance += power(d, P, WHOLE)
            else:
                distance += d
        distance = tl.where((point < POINTS)[None, :], distance, INFINITY)
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        store_bounds(bounds, least, gone, row, tile, rows, groups, SLACK=SLACK, ROOT=P)


def bound_launches(
    points: np.ndarray, n_neighbors: int, factor: np.ndarray | None = None, metric: str = "euclidean", p: float = 2.0
) -> int:
    """Return how many kernels bound rows before the search: none where it does not go by bounds."""
    return (2 if metric in SQUARED else 1) * bounded(points, n_neighbors, factor, metric, p)


def bounded(
    points: np.ndarray, n_neighbors: int, factor: np.ndarray | None = None, metric: str = "euclidean", p: float = 2.0
) -> bool:
    """Return whether a search for so many neighbours among these points goes by bounds."""
    norm = metric in NORMS and (metric != "minkowski" or 1 <= p <= MAX_P)
    few = 0 < n_neighbors <= MAX_NEIGHBORS and LEAST_POINTS <= len(points) <= MOST_POINTS
    return bool(norm and few and np.isfinite(points).all() and (factor is None or (factor >= 0).all()))


def bound_parameters(
    points: np.ndarray, n_neighbors: int, factor: np.ndarray | None = None, metric: str = "euclidean", p: float = 2.0
) -> dict[str, np.ndarray]:
    """Return what the kernels read: rounded points, padded to whole tiles, and how points and rows are rounded.

    Nothing where a search does not go by bounds.
    """
    (count, features), root = points.shape, _root(metric, p)
    if not bounded(points, n_neighbors, factor, metric, p):
        return {}
    euclidean = metric in SQUARED
    weights = np.ones(features) if factor is None else factor ** (1 / root)
    shift = points.mean(axis=0) if euclidean else np.zeros(features)
    largest = np.abs((points - shift) * weights).max()
    power_of_two = 2.0 ** ((8 if euclidean else 0) - math.frexp(largest)[1])  # so that float16 has few small numbers
    scale = weights * power_of_two
    v = (points - shift) * scale
    padded = triton.cdiv(count, MOST_BLOCK_POINTS) * MOST_BLOCK_POINTS
    unit = np.array([power_of_two**root])
    if not euclidean:
        near = np.zeros((features, padded), dtype=np.float32)
        near[:, :count] = v.T
        lost = np.abs(near).sum(axis=0, dtype=np.float64).max().astype(np.float32)
        return {"scale": scale.astype(np.float32), "unit": unit, "near": near, "lost": lost.reshape(1)}
    h = v.astype(np.float16)
    near = np.zeros((padded, triton.cdiv(features, _block_features(features)) * _block_features(features)), h.dtype)
    near[:count, :features] = h
    norms = np.full(padded, np.inf, dtype=np.float32)
    norms[:count] = np.square(h, dtype=np.float64).sum(axis=1) * (1 - _sum_slack(features))
    lost = np.sqrt(np.square(v - h).sum(axis=1)).max()
    return {"shift": shift, "scale": scale, "unit": unit, "near": near, "norms": norms, "lost": np.array([lost])}


def bounds_of(
    x: torch.Tensor, parameters: Parameters, rows: int, points: int, metric: str, p: float
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Launch the kernels that bound rows, some at a time; yield which, and their bounds, used before the next ones."""
    groups, group = grouping(points)
    step = max(BOUNDS_AT_ONCE // groups // 16, 1) * 16
    bounds = torch.empty(min(rows, step), groups, dtype=torch.float32, device=parameters["near"].device)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        shape = {"bounds": bounds, "rows": part.stop - start, "groups": groups, "GROUP": group}
        if metric in SQUARED:
            _launch_euclidean(x[part], parameters, points, shape)
        else:
            _launch_difference(x[part], parameters, points, shape, metric, _root(metric, p))
        yield part, bounds


def _launch_euclidean(x: torch.Tensor, parameters: Parameters, points: int, shape: dict[str, Any]) -> None:
    near, features, rows = parameters["near"], x.shape[1], shape["rows"]
    width, block_features = near.shape[1], _block_features(features)
    rounded = torch.empty(rows, width, dtype=near.dtype, device=near.device)
    norms, gone = (torch.empty(rows, dtype=torch.float32, device=near.device) for _ in range(2))
    round_rows_kernel[(rows,)](
        x=x,
        shift=parameters["shift"],
        scale=parameters["scale"],
        lost=parameters["lost"],
        rounded=rounded,
        norms=norms,
        gone=gone,
        rows=rows,
        FEATURES=features,
        WIDTH=width,
        SUM_SLACK=_sum_slack(features),
        BLOCK_FEATURES=block_features,
        num_warps=1,
    )
    block_rows = 128 if rows > 64 else 64 if rows > 16 else 16
    block_points, tiles_each = max(128, shape["GROUP"]), 16 if rows > 64 else 2 if rows > 16 else 1
    tiles = triton.cdiv(points, block_points)
    euclidean_bounds_kernel[(triton.cdiv(tiles, tiles_each), triton.cdiv(rows, block_rows))](
        rounded=rounded,
        row_norms=norms,
        gone=gone,
        near=near,
        norms=parameters["norms"],
        **shape,
        tiles=tiles,
        WIDTH=width,
        TILES=tiles_each,
        BLOCK_ROWS=block_rows,
        BLOCK_POINTS=block_points,
        BLOCK_FEATURES=block_features,
        num_warps=4,
    )


def _launch_difference(
    x: torch.Tensor, parameters: Parameters, points: int, shape: dict[str, Any], metric: str, p: float
) -> None:
    features, rows = x.shape[1], shape["rows"]
    block_rows = 16 if rows > 4 else 4 if rows > 1 else 1
    block_points, tiles_each = max(128, shape["GROUP"]), 2 if rows > 16 else 1
    tiles = triton.cdiv(points, block_points)
    difference_bounds_kernel[(triton.cdiv(tiles, tiles_each), triton.cdiv(rows, block_rows))](
        x=x,
        scale=parameters["scale"],
        near=parameters["near"],
        lost=parameters["lost"],
        **shape,
        tiles=tiles,
        padded=parameters["near"].shape[1],
        FEATURES=features,
        POINTS=points,
        METRIC=metric,
        P=p,
        WHOLE=whole(p),
        SLACK=2.0**-12 if metric == "minkowski" else (features + 8) * 2.0**-23,
        TILES=tiles_each,
        BLOCK_ROWS=block_rows,
        BLOCK_POINTS=block_points,
        num_warps=4,
    )


def grouping(points: int) -> tuple[int, int]:
    """Return how many groups points make, and how many of them each has."""
    smallest = SMALLEST_GROUP if points <= FEW_POINTS else 2 * SMALLEST_GROUP
    group = max(smallest, int(triton.next_power_of_2(triton.cdiv(points, MAX_GROUPS))))
    return -(-points // group), group


def _root(metric: str, p: float) -> float:
    """Return the power of a distance that is the metric's reduced distance."""
    return 2.0 if metric in SQUARED else p if metric == "minkowski" else 1.0


def _sum_slack(features: int) -> float:
    """Return the share of the squared norms that float32 sums of products may lose."""
    return (features + 8) * 2.0**-22


def _block_features(features: int) -> int:
    """Return how many features a product takes at a time: all, or of many so few that two tiles fit shared memory."""
    return max(16, int(triton.next_power_of_2(features))) if features <= 128 else 64
