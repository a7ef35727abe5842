"""The network interface of exhibits: the tensors of a request and of its answer, and further parameters.

An entry carries this file, so it imports torch and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

Scalar = float | int | bool | str | tuple[int, ...]

DATATYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
"""The Triton server's names of torch's types."""

SHOWN_CHARACTERS = 80

Dims = Mapping[str, Sequence[int]]
"""Dimensions of tensors by name; −1 stands for any length, and each request has its own."""


@dataclass(frozen=True)
class Service:
    """The inputs and outputs of a served exhibit. A request is a call of the exhibit's function, with its names.

    `inputs` are the arguments that are tensors. `outputs` are the function's results, in order. `scalars` are the other
    arguments, which are parameters of a request, with their defaults. A tuple of whole numbers is sent as a string,
    "3,3". `largest` bounds numbers, because the kernel is compiled for each value.

    `datatype` is the type of all tensors: FP16 if tensor cores do the work. If a service `joins`, tensors have one
    dimension before their dims, in which the server may join requests of independent rows.
    """

    inputs: Dims
    outputs: Dims
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    datatype: str = "FP32"
    joins: bool = False

    def scalar(self, name: str, given: Scalar) -> Scalar:
        """Return a parameter of a request as the function takes it.

        Raises:
            ValueError: the function has no such parameter, or the value has another type or is too large.
        """
        if name not in self.scalars:
            known = ", ".join(self.scalars) if self.scalars else "none"
            raise ValueError(f"There is no parameter {_shown(name)}; accepted are: {known}.")
        kind = type(self.scalars[name])
        value = _numbers(name, given) if kind is tuple else given
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ValueError(f"The parameter '{name}' is {_shown(given)}; it must be of the type {kind.__name__}.")
        numbers = value if isinstance(value, tuple) else (value,)
        if name in self.largest and max(numbers) > self.largest[name]:
            raise ValueError(f"The parameter '{name}' is {_shown(given)}; at most {self.largest[name]} is served.")
        return value


def written(value: Scalar) -> float | int | bool | str:
    """Return an argument as a request's parameter."""
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else value


def _numbers(name: str, given: Scalar) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in str(given).split(","))
    except ValueError:
        wanted = 'whole numbers, as in "3,3"'
        raise ValueError(f"The parameter '{name}' is {_shown(given)}; it must be {wanted}.") from None


def _shown(given: Scalar) -> str:
    """Return a request's value as an error quotes it, shortened, as gRPC loses errors of 16 kB."""
    text = repr(given)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


ANY, MATRIX, TENSOR, IMAGES = (-1,), (-1, -1), (-1, -1, -1), (-1, -1, -1, -1)
NUMBER = (1,)
"""The server's shape for a tensor without dimensions."""

SERVICES: Mapping[str, Service] = {
    "map": Service({"x": ANY}, {"y": ANY}, {"c": 1.0}),
    "zip": Service({"x": ANY, "y": ANY}, {"z": ANY}),
    "pooling": Service(
        {"x": MATRIX},
        {"y": MATRIX},
        {"window": (3, 3), "stride": (1, 1), "padding": (0, 0), "kind": "sum"},
        largest={"window": 16, "stride": 16},
        joins=True,
    ),
    "dot": Service({"x": ANY, "y": ANY}, {"d": NUMBER}),
    "softmax": Service({"x": ANY}, {"y": ANY}, joins=True),
    "matmul_relu": Service({"a": MATRIX, "b": MATRIX, "bias": ANY}, {"y": MATRIX}, datatype="FP16"),
    "layer_norm": Service({"x": MATRIX, "weight": ANY, "bias": ANY}, {"y": MATRIX}, {"eps": 1e-5}),
    "convolution": Service(
        {"x": IMAGES, "weight": IMAGES, "bias": ANY},
        {"y": IMAGES},
        {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)},
        largest={"stride": 64, "padding": 64, "dilation": 64},
        datatype="FP16",
    ),
    "attention": Service(
        {"q": TENSOR, "k": TENSOR, "v": TENSOR}, {"o": TENSOR}, {"causal": False}, datatype="FP16", joins=True
    ),
}
"""The services by the exhibit's name, which is also the entry's."""
