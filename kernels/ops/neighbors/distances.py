"""Distances between rows and stored points, for the operations that search for neighbours.

Each distance is a float64 sum over features, in their order, of a function of the two numbers, so nothing cancels:
`|x|² − 2xy + |y|²`, which scikit-learn's brute force uses, would lose the digits that two near points share.
Neighbours are ranked by a *reduced* distance, which ranks as the distance does and costs less; `w` is `factor`:

| metric | reduced distance | distance |
| --- | --- | --- |
| euclidean | Σ w (x − y)² | its square root |
| sqeuclidean | Σ w (x − y)² | itself |
| manhattan | Σ w abs(x − y) | itself |
| chebyshev | max abs(x − y) | itself |
| minkowski | Σ w abs(x − y)ᵖ | its p-th root |
| canberra | Σ abs(x − y) / (abs x + abs y), 0/0 = 0 | itself |
| braycurtis | Σ abs(x − y) / Σ (abs x + abs y), 0/0 = 0 | itself |
| hamming | Σ w [x ≠ y] / features | itself |
| cosine | 1 − Σ x y, of rows and points whose norm is 1 or 0 | itself |
| haversine | sin²(Δ₀/2) + cos x₀ cos y₀ sin²(Δ₁/2) | 2 arcsin of its square root |
| nan_euclidean | features / present · Σ (x − y)² over the features present in both | its square root |
| dice, jaccard, rogerstanimoto, russellrao, sokalsneath | of [x ≠ 0] and [y ≠ 0], as SciPy has them | itself |

A distance that is NaN (the row has NaN, or no feature is present in both) counts as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.powers import power, torch_power, whole
from ...numerics.special import arcsin

BOOLEAN_METRICS = ("dice", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath")
METRICS = (
    "euclidean",
    "sqeuclidean",
    "manhattan",
    "chebyshev",
    "minkowski",
    "canberra",
    "braycurtis",
    "hamming",
    "cosine",
    "haversine",
    "nan_euclidean",
    *BOOLEAN_METRICS,
)

SQUARED = ("euclidean", "sqeuclidean")
"""The metrics whose reduced distance is a sum of squares."""

DISTANCES_AT_ONCE = 2**15
INFINITY = tl.constexpr(float("inf"))


@dataclass(frozen=True)
class Metric:
    """A metric as kernels know it: their compile-time argument METRIC.

    Compiled code passes a field on to another function only as a constant of its own (`P: tl.constexpr = METRIC.p`).
    """

    name: str  # one of `METRICS`
    p: float  # the power of minkowski
    whole: int | None  # that power if it is a whole number
    weighted: bool  # whether some weight of a feature is not 1

    @property
    def squared(self) -> bool:
        """True if the reduced distance is a sum of squares."""
        return self.name in SQUARED

    @property
    def rough(self) -> bool:
        """True if compilers add differences in more than one way, so that sums may differ in the last places."""
        return not self.squared and (self.weighted or self.name == "minkowski")

    @staticmethod
    def of(name: str, p: float, factor: np.ndarray) -> Metric:
        """Return the metric with these weights of the features."""
        return Metric(name, p, whole(p), bool((factor != 1).any()))


@triton.jit
def reduced_distances(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    UNROLL: tl.constexpr = 4,
):
    """Return the reduced distances `[BLOCK_ROWS, BLOCK_POINTS]`, infinite if NaN or past the last point."""
    return distances_between(
        (x + row * FEATURES)[:, None], (columns + point)[None, :], factor, (row < rows)[:, None],
        (point < POINTS)[None, :], FEATURES=FEATURES, STRIDE=POINTS, METRIC=METRIC, UNROLL=UNROLL,
    )  # fmt: skip


@triton.jit
def distances_between(
    xs,  # pointers to the rows, whose features are contiguous
    ys,  # pointers to the points, whose features lie `STRIDE` apart
    factor,  # float64 [FEATURES]
    real_row,  # whether a row exists
    real_point,  # whether a point exists
    FEATURES: tl.constexpr,
    STRIDE: tl.constexpr,
    METRIC: tl.constexpr,
    UNROLL: tl.constexpr,
    FUSED: tl.constexpr = True,
):
    """Return reduced distances of rows and points whose shapes broadcast, infinite as `reduced_distances` says.

    FUSED says that squares are added by fused multiply-adds. A compiler that may fuse them does so in most kernels. If
    it unrolls a whole sum, however, it may round the other one of the first two squares.
    """
    NAME: tl.constexpr = METRIC.name
    WEIGHTED: tl.constexpr = METRIC.weighted
    SQUARES: tl.constexpr = NAME == "euclidean" or NAME == "sqeuclidean"
    a = tl.zeros((real_row & real_point).shape, tl.float64)
    b = tl.zeros_like(a)
    if NAME == "haversine":
        u = tl.load(xs, mask=real_row, other=0.0).to(tl.float64)
        v = tl.load(ys, mask=real_point, other=0.0)
        s = tl.sin(0.5 * (u - v))
        c = tl.cos(u) * tl.cos(v)
        u = tl.load(xs + 1, mask=real_row, other=0.0).to(tl.float64)
        v = tl.load(ys + STRIDE, mask=real_point, other=0.0)
        t = tl.sin(0.5 * (u - v))
        a += s * s + c * t * t
    else:
        for f in tl.range(0, FEATURES, loop_unroll_factor=UNROLL):
            u = tl.load(xs + f, mask=real_row, other=0.0).to(tl.float64)
            v = tl.load(ys, mask=real_point, other=0.0)
            ys += STRIDE
            d = tl.abs(u - v)
            if NAME == "euclidean" or NAME == "sqeuclidean":
                term = d * d
            elif NAME == "minkowski":
                term = minkowski_term(d, METRIC)
            elif NAME == "canberra":
                size = tl.abs(u) + tl.abs(v)
                term = d / tl.where(size == 0.0, 1.0, size)
            elif NAME == "braycurtis":
                term = d
                b += tl.abs(u) + tl.abs(v)
            elif NAME == "hamming":
                term = (u != v).to(tl.float64) + (d - d)  # the last term is NaN if d is
            elif NAME == "cosine":
                term = u * v
            elif NAME == "nan_euclidean":
                term = tl.where(d == d, d * d, 0.0)
                b += (d == d).to(tl.float64)
            elif NAME == "manhattan" or NAME == "chebyshev":
                term = d
            else:
                term = ((u != 0.0) != (v != 0.0)).to(tl.float64) + (d - d)  # in one of the two
                b += ((u != 0.0) & (v != 0.0)).to(tl.float64)  # in both
            if WEIGHTED:
                weight = tl.load(factor + f)
                if not (FUSED and SQUARES):
                    term *= weight
            if NAME == "chebyshev":
                a = tl.where((term > a) | (term != term), term, a)
            elif FUSED and SQUARES and WEIGHTED:
                a = tl.fma(term, weight + tl.zeros_like(a), a)
            elif FUSED and SQUARES:
                a = tl.fma(d, d, a)
            else:
                a += term
    if NAME == "braycurtis":
        a /= tl.where(b == 0.0, 1.0, b)
    elif NAME == "hamming":
        a /= FEATURES
    elif NAME == "cosine":
        a = 1.0 - a
        a = tl.where(a < 0.0, 0.0, tl.where(a > 2.0, 2.0, a))
    elif NAME == "nan_euclidean":
        a = tl.where(b == 0.0, INFINITY, a / tl.where(b == 0.0, 1.0, b) * FEATURES)
    elif NAME == "dice":
        a = tl.where(a + b == 0.0, INFINITY, a / tl.where(a + b == 0.0, 1.0, 2.0 * b + a))
    elif NAME == "jaccard":
        a /= tl.where(a + b == 0.0, 1.0, a + b)
    elif NAME == "rogerstanimoto":
        a = 2.0 * a / (FEATURES + a)
    elif NAME == "russellrao":
        a = (FEATURES - b) / FEATURES + (a - a)
    elif NAME == "sokalsneath":
        a = tl.where(a + b == 0.0, INFINITY, a / tl.where(a + b == 0.0, 1.0, 0.5 * b + a))
    return tl.where((a == a) & real_point, a, INFINITY)


@triton.jit
def minkowski_term(d, METRIC: tl.constexpr):
    """Return the power of absolute differences of which minkowski's reduced distance is the sum."""
    P: tl.constexpr = METRIC.p
    WHOLE: tl.constexpr = METRIC.whole
    return power(d, P, WHOLE)


@triton.jit
def finish_distance(a, METRIC: tl.constexpr):
    """Return the distance for a reduced distance."""
    NAME: tl.constexpr = METRIC.name
    y = a
    if NAME == "euclidean" or NAME == "nan_euclidean":
        y = tl.sqrt(a)
    elif NAME == "minkowski":
        y = tl.exp(tl.log(a) / METRIC.p)
    elif NAME == "haversine":
        y = 2.0 * arcsin(tl.sqrt(a))
    return y


def reference_reduced_distances(
    x: torch.Tensor, columns: torch.Tensor, factor: torch.Tensor, metric: str, p: float
) -> torch.Tensor:
    """Return the reduced distances of rows to every point, float64 `[rows, points]`.

    Points are processed in pieces, so that their distances stay in the cache.

    Args:
        x: float64 `[rows, features]`.
        columns: the points, float64 `[features, points]`.
        factor: float64 `[features]`, see above.
        metric: one of `METRICS`.
        p: the power of minkowski.
    """
    width = max(DISTANCES_AT_ONCE // max(len(x), 1), 64)
    pieces = [_reduced(x, piece, factor, metric, p) for piece in columns.split(width, dim=1)]
    found = torch.cat(pieces, dim=1)
    return found.nan_to_num_(nan=math.inf, posinf=math.inf)


def reference_to_each(
    x: torch.Tensor, places: torch.Tensor, factor: torch.Tensor, metric: str, p: float
) -> torch.Tensor:
    """Return the reduced distances of rows to separate places for each row, float64 `[rows, places]`.

    `places` is float64 `[features, rows, places]`; the other arguments are those of `reference_reduced_distances`.
    """
    return _reduced(x, places, factor, metric, p).nan_to_num_(nan=math.inf, posinf=math.inf)


def reference_finish(a: torch.Tensor, metric: str, p: float) -> torch.Tensor:
    """Return the distances for reduced distances."""
    if metric in ("euclidean", "nan_euclidean"):
        return a.sqrt()
    if metric == "minkowski":
        return torch.exp(torch.log(a) / p)
    if metric == "haversine":
        return 2 * torch.asin(a.sqrt())
    return a


def transposed(points: np.ndarray) -> np.ndarray:
    """Return the points in the kernels' layout, `[features, points]`, so that a tile of them is contiguous."""
    return np.ascontiguousarray(points.T)


def reduced_radius(radius: float, metric: str, p: float) -> np.ndarray:
    """Return the reduced distance of a distance, as scikit-learn computes it, `[1]`.

    The result is an array, since the Triton language rounds a constant in a comparison to float32.
    """
    if metric in ("euclidean", "nan_euclidean"):
        reduced = radius * radius
    elif metric == "minkowski":
        reduced = float(np.float64(radius) ** p)
    elif metric == "haversine":
        reduced = math.sin(0.5 * min(radius, math.pi)) ** 2
    else:
        reduced = radius
    return np.minimum(np.array([reduced]), np.finfo(np.float64).max)


def check_points(op: str, points: np.ndarray, factor: np.ndarray, metric: str, p: float, features: int) -> None:
    """Raise `PlanError` unless the points and the metric fit rows of `features` columns."""
    if metric not in METRICS:
        raise PlanError(f"{op}: there is no metric '{metric}'; the metrics are {', '.join(METRICS)}.")
    if points.ndim != 2 or points.shape[1] != features or not len(points):
        raise PlanError(f"{op}: points must be [points, {features}] with at least one, not {list(points.shape)}.")
    if factor.shape != (features,):
        raise PlanError(f"{op}: factor must be [{features}], not {list(factor.shape)}.")
    if not p > 0:
        raise PlanError(f"{op}: p must be positive, not {p}.")
    if metric == "haversine" and features != 2:
        raise PlanError(f"{op}: haversine is the distance of 2 features, not {features}.")


def _reduced(x: torch.Tensor, columns: torch.Tensor, factor: torch.Tensor, metric: str, p: float) -> torch.Tensor:
    """Return the reduced distances to a few points, shared by all rows or separate for each; a NaN sum stays NaN."""
    if metric == "haversine":
        s, t = (torch.sin(0.5 * (x[:, f, None] - columns[f])) for f in (0, 1))
        return s * s + torch.cos(x[:, :1]) * torch.cos(columns[0]) * t * t
    features = len(columns)
    a = torch.zeros(len(x), columns.shape[-1], dtype=torch.float64, device=x.device)
    b = torch.zeros_like(a) if metric in ("braycurtis", "nan_euclidean", *BOOLEAN_METRICS) else a
    term = torch.empty_like(a)
    for f, w in enumerate(factor.tolist()):
        u, v = x[:, f, None], columns[f]
        term = torch.sub(u, v, out=term)
        if metric in ("euclidean", "sqeuclidean"):
            term *= term  # addcmul may round differently at the end of a loop; equal points must stay equal
        else:
            term.abs_()
        if metric == "minkowski":
            term = torch_power(term, p)
        elif metric == "canberra":
            size = u.abs() + v.abs()
            term /= torch.where(size == 0, 1.0, size)
        elif metric == "braycurtis":
            b += u.abs() + v.abs()
        elif metric == "hamming":
            term = (u != v).double() + (term - term)
        elif metric == "cosine":
            term = u * v
        elif metric == "nan_euclidean":
            b += ~term.isnan()
            term = (term * term).nan_to_num_(nan=0.0, posinf=math.inf)
        elif metric in BOOLEAN_METRICS:
            term = ((u != 0) != (v != 0)).double() + (term - term)
            b += (u != 0) & (v != 0)
        if w != 1:
            term *= w
        a = torch.maximum(a, term, out=a) if metric == "chebyshev" else a.add_(term)
    if metric == "braycurtis":
        a /= torch.where(b == 0, 1.0, b)
    elif metric == "hamming":
        a /= features
    elif metric == "cosine":
        a = (1 - a).clip_(0, 2)
    elif metric == "nan_euclidean":
        a = a / b * features
    elif metric == "dice":
        a = a / (2 * b + a)
    elif metric == "jaccard":
        a /= torch.where(a + b == 0, 1.0, a + b)
    elif metric == "rogerstanimoto":
        a = 2 * a / (features + a)
    elif metric == "russellrao":
        a = (features - b) / features + (a - a)
    elif metric == "sokalsneath":
        a = a / (0.5 * b + a)
    return a
