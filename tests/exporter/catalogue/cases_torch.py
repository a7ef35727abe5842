"""Cases of PyTorch's networks, plain and as skorch's regressor."""

from typing import Any

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch import NeuralNetRegressor
from torch import nn

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data, small, unit_scale
from tests.exporter.networks import Residual, Trained, answers_of, network_of, perceptron


def normalised() -> nn.Sequential:
    hidden = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(inplace=True), nn.Dropout(0.2))
    return nn.Sequential(nn.Flatten(), hidden, nn.Linear(12, 6), nn.Identity(), nn.ReLU(), nn.Linear(6, 1))


def layer_normalised() -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 12), nn.LayerNorm(12), nn.SiLU(), nn.Linear(12, 1))


def two_targets() -> Data:
    X, y = unit_scale()
    return X, np.column_stack([y, np.sin(y)])


NETWORKS: dict[str, tuple[Trained, Any]] = {
    "sequential": (Trained(normalised), small),
    "layer-norm": (Trained(layer_normalised), small),
    "gelu": (Trained(lambda: perceptron(nn.GELU(), nn.GELU("tanh"))), unit_scale),
    "elu": (Trained(lambda: perceptron(nn.ELU(0.5), nn.SELU())), unit_scale),
    "targets": (Trained(lambda: perceptron(nn.Tanh(), targets=2)), two_targets),
    "double": (Trained(lambda: perceptron(nn.LeakyReLU(0.2), nn.Softplus()), torch.float64), unit_scale),
    "residual": (Trained(Residual), small),
}
for name, (network, data) in NETWORKS.items():
    own_error = 0.0 if network.dtype == torch.float64 else 2e-6
    add(f"torch-{name}", "steps", network, data, after_fit=network_of, ask=answers_of, own_error=own_error)


def single(X: Any) -> Any:
    return X.astype(np.float32)


def net(activation: nn.Module) -> NeuralNetRegressor:
    torch.manual_seed(0)
    return NeuralNetRegressor(perceptron(activation), max_epochs=5, lr=0.02, train_split=None, verbose=0)


def column() -> Data:
    X, y = small()
    return X, y[:, None].astype(np.float32)


# The network takes float32 alone: the step in front of it makes that of float64 rows.
pipeline = make_pipeline(StandardScaler(), FunctionTransformer(single), net(nn.ReLU()))
add("skorch-pipeline", "steps", pipeline, column, own_error=2e-6)
add(
    "skorch-of-scaled-target",
    "steps",
    TransformedTargetRegressor(
        make_pipeline(StandardScaler(), FunctionTransformer(single), net(nn.Sigmoid())),
        transformer=make_pipeline(StandardScaler(), FunctionTransformer(inverse_func=single)),
    ),
    column,
    own_error=2e-6,
)
