"""The activations of PyTorch's networks as functions of the kernels, or programs of one column."""

from __future__ import annotations

import math
from collections.abc import Callable

from triton_regressors.kernels.ops.columns.expression import Program

Activation = str | tuple[Program, tuple[float, ...]]
"""A function of the kernels by its name, or a program of one column and its constants."""


def _relu(inplace: bool = False) -> Activation:
    return "relu"


def _leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> Activation:
    return (("greater", "x0", "c0"), ("multiply", "x0", "c1"), ("where", "v0", "x0", "v1")), (0.0, negative_slope)


def _elu(alpha: float = 1.0, inplace: bool = False) -> Activation:
    return _ELU, (0.0, alpha)


def _selu(inplace: bool = False) -> Activation:
    return (*_ELU, ("multiply", "v3", "c2")), (
        0.0,
        1.6732632423543772848170429916717,
        1.0507009873554804934193349852946,
    )


def _gelu(approximate: str = "none") -> Activation:
    if approximate == "none":
        return (("ndtr", "x0"), ("multiply", "x0", "v0")), ()
    cubed: Program = (("multiply", "x0", "x0"), ("multiply", "v0", "c0"), ("add", "v1", "c1"), ("multiply", "v2", "x0"))
    halves: Program = (("expit", "v3"), ("multiply", "x0", "v4"))  # (1 + tanh(z)) / 2 = expit(2 z)
    factor = 2.0 * math.sqrt(2.0 / math.pi)
    return (*cubed, *halves), (0.044715 * factor, factor)


def _silu(inplace: bool = False) -> Activation:
    return (("expit", "x0"), ("multiply", "x0", "v0")), ()


def _softplus(beta: float = 1.0, threshold: float = 20.0) -> Activation:
    below: Program = (("multiply", "x0", "c0"), ("negative", "v0"), ("log_expit", "v1"), ("divide", "v2", "c1"))
    above: Program = (("greater", "v0", "c2"), ("where", "v4", "x0", "v3"))
    return (*below, *above), (beta, -beta, threshold)


_ELU: Program = (
    *(("greater", "x0", "c0"), ("expm1", "x0"), ("multiply", "v1", "c1")),
    ("where", "v0", "x0", "v2"),
)
"""The activation of that name; its constants are 0 and alpha."""

ACTIVATIONS: dict[str, Callable[..., Activation]] = {
    "ELU": _elu,
    "GELU": _gelu,
    "LeakyReLU": _leaky_relu,
    "ReLU": _relu,
    "SELU": _selu,
    "Sigmoid": lambda: "expit",
    "SiLU": _silu,
    "Softplus": _softplus,
    "Tanh": lambda: "tanh",
}
"""The activations, by the class of the layer."""
