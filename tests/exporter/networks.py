"""Networks of PyTorch trained for a moment on small data, as an estimator that scikit-learn can copy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn
from torch.nn import functional


class Trained(BaseEstimator):
    """A network of `layers()` that a few steps of Adam have fitted; `network_` is in evaluation mode."""

    def __init__(self, layers: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> None:
        self.layers, self.dtype = layers, dtype

    def fit(self, X: Any, y: Any) -> "Trained":
        rows, targets = torch.tensor(X, dtype=self.dtype), torch.tensor(y, dtype=self.dtype).reshape(len(X), -1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = self.layers().to(self.dtype).train()
            optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
            for _ in range(20):
                optimiser.zero_grad()
                functional.mse_loss(network(rows).reshape(targets.shape), targets).backward()
                optimiser.step()
        self.network_ = network.eval()
        return self


def network_of(trained: Trained) -> nn.Module:
    return trained.network_


def answers_of(network: nn.Module, rows: Any) -> dict[str, np.ndarray]:
    """Return what the network answers, asked as its user asks it."""
    with torch.no_grad():
        return {"y": network(torch.from_numpy(np.asarray(rows)).to(next(network.parameters()).dtype)).numpy()}


class Residual(nn.Module):
    """A network whose blocks add to what they read, the answers without a second dimension."""

    def __init__(self, columns: int = 5, units: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(columns, units)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(units), nn.Linear(units, units), nn.ReLU(), nn.Dropout(0.1)) for _ in range(2)
        )
        self.last = nn.Linear(units, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return self.last(functional.relu(h)).squeeze(-1)


def perceptron(*activations: nn.Module, columns: int = 5, targets: int = 1) -> nn.Sequential:
    """Return a Sequential with a hidden layer for each activation."""
    layers: list[nn.Module] = []
    for number, activation in enumerate(activations):
        layers += [nn.Linear(8 if number else columns, 8), activation]
    return nn.Sequential(*layers, nn.Linear(8, targets))
