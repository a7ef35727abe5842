"""The works of point expansions: kernel ridge regressions, sums of every kernel, a Gaussian process, beside torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge

from benchmarks.gpu.workloads import Work, compiled
from triton_regressors.defaults import DEFAULT_TOLERANCE
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

Tensor = torch.Tensor

FAST_LIMIT = 0.25 * DEFAULT_TOLERANCE
EXPANSION_ROWS = (1, 4096, 65536)
KERNELS: dict[str, tuple[str, str, dict[str, float]]] = {
    "Matern 1/2": ("euclidean", "exp", {}),
    "Matern 3/2": ("euclidean", "matern_3_2", {}),
    "Matern 5/2": ("euclidean", "matern_5_2", {}),
    "rational quadratic": ("squared_euclidean", "power", {"coef0": 1.0, "exponent": -1.3}),
    "laplacian": ("manhattan", "exp", {}),
    "chi2": ("chi2", "exp", {}),
    "polynomial of degree 3": ("dot", "power", {"coef0": 1.0, "exponent": 3.0}),
    "sigmoid": ("dot", "tanh", {"coef0": 1.0}),
}
"""The metric, profile and numbers of each function of rows and points, as `PairwiseAffine` takes them."""

PEERS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "rbf": lambda x, p, g: torch.exp(-g * torch.cdist(x, p) ** 2),
    "Matern 1/2": lambda x, p, g: torch.exp(-g * torch.cdist(x, p)),
    "Matern 3/2": lambda x, p, g: (1.0 + (u := g * torch.cdist(x, p))) * torch.exp(-u),
    "Matern 5/2": lambda x, p, g: (1.0 + (u := g * torch.cdist(x, p)) + u * u / 3.0) * torch.exp(-u),
    "rational quadratic": lambda x, p, g: (1.0 + g * torch.cdist(x, p) ** 2) ** -1.3,
    "laplacian": lambda x, p, g: torch.exp(-g * (x[:, None] - p).abs().sum(2)),
    "chi2": lambda x, p, g: torch.exp(-g * ((x[:, None] - p) ** 2 / (x[:, None] + p)).sum(2)),
    "polynomial of degree 3": lambda x, p, g: (1.0 + g * x @ p.T) ** 3,
    "sigmoid": lambda x, p, g: torch.tanh(1.0 + g * x @ p.T),
}
"""The same functions in torch, of rows, points and the size of gamma; without compilation they may need much memory."""


def expansions(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield kernel ridge regressions, sums of every kernel and a Gaussian process, beside `torch.compile`."""
    for count, features in [(60, 3)] if toy else [(8192, 3), (8192, 32), (8192, 128)]:
        rng = np.random.default_rng(features)
        X, gamma = rng.standard_normal((count, features)), 0.5 / features
        estimator = KernelRidge(kernel="rbf", gamma=gamma).fit(X, np.sin(X).sum(axis=1))
        peer = compiled_sum("rbf", X, estimator.dual_coef_, gamma, device)
        title = f"RBF, {count:,} points × {features}"
        yield Work("expansions", title, compiled(estimator), EXPANSION_ROWS, peer)
        fast = compile_estimator(estimator, precision="fast").plan
        yield Work("expansions", f"{title}, fast", fast, EXPANSION_ROWS, peer, limit=FAST_LIMIT)
    count, features = (60, 5) if toy else (8192, 32)
    for name, (metric, profile, fields) in KERNELS.items():
        rng = np.random.default_rng(features)
        X, weight = np.abs(rng.standard_normal((count, features))), rng.standard_normal((count, 1)) / count**0.5
        gamma = (-1.0 if profile == "exp" else 1.0) / features
        places = {"points": X, "shift": np.zeros(features), "factor": np.ones(features)}
        operation = PairwiseAffine(
            **places, metric=metric, profile=profile, gamma=gamma, **fields, weight=weight, intercept=np.zeros(1)
        )
        precision = "float32 pairs" if "float32 pairs" in operation.precisions() else "ten digits"
        step = Step(operation.in_precision(precision), (INPUT,), "y")
        plan = Plan(features, (step,), {"y": "y"})
        peer = compiled_sum(name, X, weight, abs(gamma), device)
        yield Work("expansions", f"{name}, {count:,} points × {features}", plan, EXPANSION_ROWS, peer, positive=True)
    yield gaussian_process(device, *((60, 5) if toy else (2000, 16)))


def compiled_sum(
    name: str, points: np.ndarray, weight: np.ndarray, gamma: float, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return a sum over points of that kernel in float32."""
    p, w = (torch.from_numpy(array).float().to(device) for array in (points, weight))
    function = PEERS[name]
    return in_one_piece(lambda x: function(x, p, gamma) @ w, device)


def in_one_piece(peer: Callable[[Tensor], Tensor], device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function compiled by `torch.compile` for each number of rows anew; on a CPU the function itself."""
    torch._dynamo.reset()
    return torch.compile(peer, dynamic=False) if device.type == "cuda" else peer


def gaussian_process(device: torch.device, count: int, features: int) -> Work:
    """Return a Gaussian process's mean and standard deviation, beside distances and a triangular solve in float32."""
    X = np.random.default_rng(0).standard_normal((count, features))
    kernel = RBF(float(features) ** 0.5, "fixed")
    estimator = GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None).fit(X, np.sin(X).sum(axis=1))
    p, lower, alpha = (
        torch.from_numpy(a).float().to(device) for a in (X, estimator.L_, estimator.alpha_.reshape(-1, 1))
    )

    def peer(x: Tensor) -> Tensor:
        k = torch.exp(-0.5 / features * torch.cdist(x, p) ** 2)
        v = torch.linalg.solve_triangular(lower, k.T, upper=False)
        return torch.cat([k @ alpha, torch.sqrt(1.0 - (v * v).sum(0))[:, None]], 1)

    title = f"Gaussian process with std, {count:,} points × {features}"
    return Work("expansions", title, compiled(estimator), (1, 64, 4096), in_one_piece(peer, device))
