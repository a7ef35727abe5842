"""Bounds that tell from fast arithmetic which groups of stored points may hold neighbours, so that few are visited.

Points are cut, in their order, into groups, each contiguous in memory. A first kernel computes for each row and group a
lower bound on the distance to the group's points. A search (`search_kernel.py`) then visits a row's groups in the order
of their bounds, with exact float64 distances, and stops at the first bound beyond the worst neighbour so far. It finds
the set of nearest points whatever the bounds are, so neither their rounding nor the tiling of rows can change an
answer.

The bounds are made of rounded rows and points, `h(v)` for `v = (x − shift) · scale`, in which `scale` holds the weights
of the metric and a power of two. For a metric that is a norm, `‖v − w‖ ≥ ‖h(v) − h(w)‖ − ‖v − h(v)‖ − ‖w − h(w)‖`. The
first term is computed, for Euclidean distances as a matrix product of float16 numbers with float32 sums, for others
from float32 rows and float16 points. The second term and the maximum of the third are known. The rounding error of
float32 sums is subtracted as well. The kernels are in `bounds_kernel.py`.

A bound is a lower limit of `d · scale − offset` for reduced distances `d`. A row's `reach` holds these two numbers.
Rows near the points have the scale `unit` and no offset; `bounds_far_rows.py` defines those of other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton

from ...plan.plan import Parameters
from .bounds_kernel import SINGLE_SLACK, difference_bounds_kernel, euclidean_bounds_kernel, round_rows_kernel
from .distances import SQUARED, Metric, transposed
from .launch import difference_bounds_block, product_bounds_block, rounds_its_rows

NORMS = (*SQUARED, "manhattan", "chebyshev", "minkowski")
"""The metrics that bounds support; minkowski's `p` must lie in [1, `MAX_P`]."""

MAX_P = 8.0

SMALLEST_GROUP = 32
"""Points of a group if there are at most `FEW_POINTS`; with more points a group has at least twice as many."""

FEW_POINTS = 8192

MAX_GROUPS = 8192
"""Bounds of a row that fit the registers of one program."""

MOST_BLOCK_POINTS = 256
"""Points of the largest tile, and therefore of the largest group."""

MAX_NEIGHBORS = 64
MOST_POINTS = MAX_GROUPS * MOST_BLOCK_POINTS
"""With more points or more neighbours, a search visits all points."""

BOUNDS_AT_ONCE = 2**22
"""Bounds in memory at a time; more rows are searched part by part."""

ROUNDING = ("shift", "scale", "lost", "longest", "low", "high")
"""The parameters for rounding rows."""

BOUND_LAUNCHES = 2
"""The maximum number of kernels that bound rows before a search."""


def bounded(
    points: np.ndarray, n_neighbors: int, factor: np.ndarray | None = None, metric: str = "euclidean", p: float = 2.0
) -> bool:
    """Return whether a search for `n_neighbors` neighbours among these points uses bounds."""
    norm = metric in NORMS and (metric != "minkowski" or 1 <= p <= MAX_P)
    few = 0 < n_neighbors <= MAX_NEIGHBORS and 0 < len(points) <= MOST_POINTS
    return bool(norm and few and np.isfinite(points).all() and (factor is None or (factor >= 0).all()))


def bound_parameters(
    points: np.ndarray, n_neighbors: int, factor: np.ndarray | None = None, metric: str = "euclidean", p: float = 2.0
) -> dict[str, np.ndarray]:
    """Return the kernels' tables of the points: `columns`, in groups if a search uses bounds, else `transposed`.

    With bounds the result also has the rounded points, padded to whole tiles, and the rounding of points and rows.
    """
    (count, features), root = points.shape, _root(metric, p)
    if not bounded(points, n_neighbors, factor, metric, p):
        return {"columns": transposed(points)}
    euclidean, width, tile = metric in SQUARED, _width(features, metric in SQUARED), tile_points(count)
    v, rounding = centred(points, factor, root)
    rounding |= {
        "low": points.min(axis=0),
        "high": points.max(axis=0),
        "longest": np.array([np.sqrt(np.square(v).sum(axis=1).max()) * (1 + 2.0**-40)]),
    }
    near = np.zeros((triton.cdiv(count, MOST_BLOCK_POINTS) * MOST_BLOCK_POINTS, width), np.float16)
    near[:count, :features] = v
    away = np.abs(v - near[:count, :features])
    found = {"columns": in_groups(points), **rounding}
    if not euclidean:
        lost = _length(away, metric, root) + np.abs(v).sum(axis=1) * SINGLE_SLACK.value
        near = np.ascontiguousarray(near.reshape(-1, tile, features).transpose(0, 2, 1))
        return found | {"near": near, "lost": np.array([lost.max()])}
    norms = np.full(len(near), np.inf, dtype=np.float32)
    norms[:count] = np.square(near[:count], dtype=np.float64).sum(axis=1) * (1 - _sum_slack(features))
    return found | {"near": near, "norms": norms, "lost": np.array([_length(away, metric, root).max()])}


def centred(points: np.ndarray, factor: np.ndarray | None, root: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the points as `(x − shift) · scale`, with the numbers that convert rows the same way, and `unit`.

    Args:
        points: `[points, features]`.
        factor: the weights of the metric, or None.
        root: the power of a distance that equals the metric's reduced distance.
    """
    weights = np.ones(points.shape[1]) if factor is None else factor ** (1 / root)
    shift = points.mean(axis=0)
    largest = np.abs((points - shift) * weights).max()
    power_of_two = 2.0 ** (8 - math.frexp(largest)[1])  # so that float16 has few small numbers
    scale = weights * power_of_two
    return (points - shift) * scale, {"shift": shift, "scale": scale, "unit": np.array([power_of_two**root])}


def bounds_of(
    x: torch.Tensor,
    parameters: Parameters,
    rows: int,
    points: int,
    metric: Metric,
    finer: torch.Tensor | None = None,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Launch the kernels that bound rows, some at a time.

    Yields the slice of rows, their bounds and their reach, float64 `[rows, 2]`; the next item overwrites these tensors.
    With `finer`, float32 `[rows, parts]`, all rows are bounded at once, by a Euclidean distance. A bound is then of a
    tile instead of a group, and the bounds of its parts go to `finer`.
    """
    groups, group = grouping(points)
    step = max(BOUNDS_AT_ONCE // groups // 16, 1) * 16
    if finer is not None:
        step, group = rows, tile_points(points)
        groups = triton.cdiv(points, group)
    bounds = torch.empty(min(rows, step), groups, dtype=torch.float32, device=x.device)
    reach = torch.empty(min(rows, step), 2, dtype=torch.float64, device=x.device)
    features, width = x.shape[1], _width(x.shape[1], metric.squared)
    common = {
        **{name: parameters[name] for name in ("near", "columns", "factor")},
        "reach": reach, "bounds": bounds, "groups": groups, "tiles": triton.cdiv(points, tile_points(points)),
        "FEATURES": features, "POINTS": points, "METRIC": metric, "STRIDE": grouping(points)[1], "GROUP": group,
        "BLOCK_POINTS": tile_points(points),
    }  # fmt: skip
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        count = part.stop - start
        fused = metric.squared and rounds_its_rows(count, width)
        given = {"rounded": bounds, "numbers": bounds, "wide": x[part]}
        if not fused:
            given = _rounded(x[part], parameters, reach, metric)
        if metric.squared:
            _launch_euclidean(parameters, finer, fused, common | given | {"rows": count})
        else:
            _launch_difference(common | given | {"rows": count})
        yield part, bounds, reach


def _rounded(x: torch.Tensor, parameters: Parameters, reach: torch.Tensor, metric: Metric) -> dict[str, torch.Tensor]:
    """Return the rounded rows, the numbers for their bounds, and float64 copies of the rows with exact bounds."""
    (rows, features), width = x.shape, _width(x.shape[1], metric.squared)
    dtype = torch.float16 if metric.squared else torch.float32
    found = {
        "rounded": torch.empty(rows, width, dtype=dtype, device=x.device),
        "numbers": torch.empty(3, rows, dtype=torch.float32, device=x.device),
        "wide": torch.empty(rows, features, dtype=torch.float64, device=x.device),
    }
    round_rows_kernel[(rows,)](
        x=x,
        **{name: parameters[name] for name in (*ROUNDING, "unit", "factor")},
        **found,
        reach=reach,
        rows=rows,
        FEATURES=features,
        WIDTH=width,
        SUM_SLACK=_sum_slack(features),
        METRIC=metric,
        BLOCK_FEATURES=block_features(features),
        num_warps=1,
    )
    return found


def _launch_euclidean(parameters: Parameters, finer: torch.Tensor | None, fused: bool, given: dict[str, Any]) -> None:
    rows, points, features, wide = given["rows"], given["POINTS"], given["FEATURES"], given.pop("wide")
    block = product_bounds_block(rows, given["BLOCK_POINTS"], fused)
    euclidean_bounds_kernel[(triton.cdiv(given["tiles"], block["TILES"]), triton.cdiv(rows, block["BLOCK_ROWS"]))](
        x=wide,
        **{name: parameters[name] for name in (*ROUNDING, "unit", "norms")},
        **given,
        finer=given["bounds"] if finer is None else finer,
        WIDTH=_width(features, squared=True),
        SUM_SLACK=_sum_slack(features),
        FUSED=fused,
        PART=0 if finer is None else padded_points(points) // finer.shape[1],
        BLOCK_FEATURES=block_features(features),
        **block,
    )


def _launch_difference(given: dict[str, Any]) -> None:
    rows, features, metric = given["rows"], given["FEATURES"], given["METRIC"]
    block = difference_bounds_block(rows, given["BLOCK_POINTS"])
    difference_bounds_kernel[(triton.cdiv(given["tiles"], block["TILES"]), triton.cdiv(rows, block["BLOCK_ROWS"]))](
        **given,
        ROOT=_root(metric.name, metric.p),
        SLACK=2.0**-12 if metric.name == "minkowski" else (features + 8) * 2.0**-23,
        **block,
    )


def in_groups(points: np.ndarray) -> np.ndarray:
    """Return the points for a search by groups, `[groups, features, group]`: each group is contiguous."""
    groups, group = grouping(len(points))
    padded = np.zeros((groups * group, points.shape[1]))
    padded[: len(points)] = points
    return np.ascontiguousarray(padded.reshape(groups, group, -1).transpose(0, 2, 1))


def grouping(points: int) -> tuple[int, int]:
    """Return the number of groups, and the points in each."""
    smallest = SMALLEST_GROUP if points <= FEW_POINTS else 2 * SMALLEST_GROUP
    group = max(smallest, int(triton.next_power_of_2(triton.cdiv(points, MAX_GROUPS))))
    return -(-points // group), group


def _root(metric: str, p: float) -> float:
    """Return the power of a distance that equals the metric's reduced distance."""
    return 2.0 if metric in SQUARED else p if metric == "minkowski" else 1.0


def _sum_slack(features: int) -> float:
    """Return the bound on the error of float32 sums of products, as a share of the squared norms."""
    return (features + 8) * 2.0**-22


def _width(features: int, squared: bool) -> int:
    """Return the numbers of a rounded point, with the padding of the last block of a matrix product."""
    block = block_features(features) if squared else 1
    return int(triton.cdiv(features, block)) * block


def tile_points(points: int) -> int:
    """Return the points in a tile of the bound kernels."""
    return max(128, grouping(points)[1])


def padded_points(points: int) -> int:
    """Return the point count rounded up to whole tiles."""
    tile = tile_points(points)
    return -(-points // tile) * tile


def _length(away: np.ndarray, metric: str, p: float) -> np.ndarray:
    """Return the norms by a metric, `[points]`, of absolute differences, `[points, features]`."""
    if metric == "chebyshev":
        return np.asarray(away.max(axis=1))
    return np.asarray((away**p).sum(axis=1) ** (1 / p))


def block_features(features: int) -> int:
    """Return the features that a product takes at a time: all, or so few that two tiles fit shared memory."""
    return max(16, int(triton.next_power_of_2(features))) if features <= 128 else 64
