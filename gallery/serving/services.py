"""How exhibits are asked over a network: the tensors of a request and of its answer, and what else may be given.

An entry carries this file, so it imports torch and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

Scalar = float | int | bool

DATATYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
"""What the Triton server calls torch's types."""


@dataclass(frozen=True)
class Service:
    """What a served exhibit takes and gives. A request is a call of the exhibit's function, and its names are its own.

    −1 in a tensor's dims stands for any length; each request has its own.
    """

    inputs: Mapping[str, Sequence[int]]
    """The dims of each argument that is a tensor."""

    outputs: Mapping[str, Sequence[int]]
    """The dims of what the function returns, in its order."""

    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    """The other arguments: parameters of a request, and what they are where it has none."""

    datatype: str = "FP32"
    """Of all tensors: FP16 where tensor cores do the work."""

    joins: bool = False
    """Whether tensors have one dimension before these dims, in which the server may join requests: rows that have
    nothing to do with each other."""


ANY = (-1,)

SERVICES: Mapping[str, Service] = {
    "map": Service(inputs={"x": ANY}, outputs={"y": ANY}, scalars={"c": 0.0}),
}
"""By the exhibit's name, which is the entry's too."""
