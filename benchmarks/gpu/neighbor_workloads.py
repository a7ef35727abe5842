"""The works of neighbours: searches by several metrics, within a radius, graphs and imputation, beside torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.gpu.workloads import Work, alone
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors

MISSING = 0.1
"""The share of NaN where they are imputed."""

Tensor = torch.Tensor


def neighborhoods(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield every kind of search among points."""
    for maker in (neighbors, other_metrics, radius_neighbors, graphs, imputers):
        yield from maker(device, toy)


def neighbors(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield searches for the 5 nearest points, beside a matrix product, or `torch.cdist`, and `torch.topk`."""
    shapes = [(1100, 4)] if toy else [(100_000, 32), (100_000, 128), (4_000, 32)]
    for count, features in shapes:
        rng = np.random.default_rng(features)
        points, targets = rng.standard_normal((count, features)), rng.standard_normal((count, 1))
        single = torch.from_numpy(points).float().to(device)
        known = torch.from_numpy(targets).float().to(device)[:, 0]
        norms = (single * single).sum(1)

        def by_product(x: Tensor, p: Tensor = single, y: Tensor = known, n: Tensor = norms) -> Tensor:
            return y[torch.topk(n - 2 * x @ p.T, 5, largest=False).indices].mean(1)

        def by_differences(x: Tensor, p: Tensor = single, y: Tensor = known) -> Tensor:
            return y[torch.topk(torch.cdist(x, p, p=1.0), 5, largest=False).indices].mean(1)

        for metric, peer in (("euclidean", by_product), ("manhattan", by_differences)):
            operation = Neighbors(points, targets, np.ones(features), 5, metric)
            rows = (1, 64, 4096) if metric == "euclidean" else (1, 64, 1024)
            yield Work("neighbors", f"5 of {count:,} × {features}, {metric}", alone(operation), rows, peer)


def other_metrics(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield searches by further metrics, beside `torch.cdist` and `torch.topk`."""
    count, features = (1100, 4) if toy else (100_000, 32)
    rng = np.random.default_rng(features)
    points, targets = rng.standard_normal((count, features)), rng.standard_normal((count, 1))
    single, known = torch.from_numpy(points).float().to(device), torch.from_numpy(targets).float().to(device)[:, 0]
    for title, metric, p, norm in (
        ("chebyshev", "chebyshev", 2.0, np.inf),
        ("minkowski, p = 1.5", "minkowski", 1.5, 1.5),
        ("minkowski, p = 3", "minkowski", 3.0, 3.0),
    ):

        def peer(x: Tensor, norm: float = norm) -> Tensor:
            return known[torch.topk(torch.cdist(x, single, p=norm), 5, largest=False).indices].mean(1)

        operation = Neighbors(points, targets, np.ones(features), 5, metric, p)
        yield Work("neighbors", f"5 of {count:,} × {features}, {title}", alone(operation), (1, 64, 1024), peer)


def radius_neighbors(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield means within a radius that holds a share of the points, beside `torch.cdist` and a product."""
    count, features = (1100, 4) if toy else (100_000, 32)
    rng = np.random.default_rng(features)
    points, targets = rng.standard_normal((count, features)), rng.standard_normal((count, 1))
    single, known = torch.from_numpy(points).float().to(device), torch.from_numpy(targets).float().to(device)
    some = torch.from_numpy(rng.standard_normal((200, features)))
    distances = torch.cdist(some, torch.from_numpy(points)).numpy()
    for share in (1e-4, 0.02):
        radius = float(np.quantile(distances, share))

        def peer(x: Tensor, radius: float = radius) -> Tensor:
            within = (torch.cdist(x, single) <= radius).float()
            return within @ known / within.sum(1, keepdim=True)

        operation = RadiusNeighbors(points, targets, np.ones(features), np.zeros(1), radius)
        title = f"{share:.2%} of {count:,} × {features} within a radius"
        yield Work("neighbors", title, alone(operation), (1, 64, 4096), peer)


def graphs(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield the distances to the 5 nearest points among zeros, beside `torch.cdist`, `torch.topk` and `scatter_`."""
    count, features = (1100, 4) if toy else (4_000, 32)
    points = np.random.default_rng(features).standard_normal((count, features))
    single = torch.from_numpy(points).float().to(device)

    def peer(x: Tensor) -> Tensor:
        near = torch.topk(torch.cdist(x, single), 5, largest=False)
        return torch.zeros(len(x), count, device=x.device).scatter_(1, near.indices, near.values)

    operation = NeighborGraph(points, np.ones(features), 5)
    yield Work("neighbors", f"graph of 5 of {count:,} × {features}", alone(operation), (1, 64, 4096), peer)


def imputers(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield imputation from the 5 nearest donors, beside products for distances and `torch.topk` for each column."""
    count, features = (300, 4) if toy else (10_000, 32)
    rng = np.random.default_rng(features)
    points = rng.standard_normal((count, features))
    points[rng.random(points.shape) < MISSING] = np.nan
    single = torch.from_numpy(points).float().to(device)
    there = ~single.isnan()
    zeroed, ones = torch.where(there, single, 0.0), there.float()
    beyond = torch.where(there, 0.0, torch.inf)

    def peer(x: Tensor) -> Tensor:
        given = ~x.isnan()
        u, m = torch.where(given, x, 0.0), given.float()
        common = m @ ones.T
        distance = (u * u) @ ones.T + m @ (zeroed * zeroed).T - 2 * u @ zeroed.T
        distance = torch.where(common > 0, distance / common, torch.inf)
        found = [
            zeroed[torch.topk(distance + beyond[:, f], 5, largest=False).indices, f].mean(1) for f in range(features)
        ]
        return torch.where(given, x, torch.stack(found, dim=1))

    operation = NeighborImputer(points, np.nanmean(points, axis=0), np.arange(features, dtype=np.int32), 5)
    title = f"imputer, 5 of {count:,} × {features}, {MISSING:.0%} missing"
    yield Work("neighbors", title, alone(operation), (1, 64, 1024), peer, missing=MISSING)
