"""Neural networks: layers of `f(x W + b)`."""

from __future__ import annotations

from sklearn.neural_network import BernoulliRBM, MLPRegressor

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers

ACTIVATIONS = {"identity": "identity", "exp": "exp", "logistic": "expit", "relu": "relu", "tanh": "tanh"}
"""scikit-learn's names of activations, and what the kernels call them."""


@lowers(MLPRegressor)
def lower_mlp(network: MLPRegressor, x: Value, builder: Builder) -> Value:
    """`y = g(… f(f(x W₁ + b₁) W₂ + b₂) …)`: `f` is the `activation`, `g` follows from the loss."""
    *hidden, output = zip(network.coefs_, network.intercepts_, strict=True)
    for weight, intercept in hidden:
        x = builder.affine(x, weight, intercept, ACTIVATIONS[network.activation])
    weight, intercept = output
    return builder.affine(x, weight, intercept, ACTIVATIONS[network.out_activation_])


@lowers(BernoulliRBM)
def lower_rbm(machine: BernoulliRBM, x: Value, builder: Builder) -> Value:
    """`z = expit(x componentsᵀ + intercept_hidden)`, the probability of each hidden unit."""
    builder.profile.note_scale(x.features, 0.5, 0.25)  # it models features between 0 and 1
    return builder.affine(x, machine.components_.T, machine.intercept_hidden_, "expit")
