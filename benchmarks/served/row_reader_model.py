"""The least that a model which uses its rows does: it takes each request's rows in, and gives a part of a buffer out.

`benchmarks.requests` copies this file into a model repository, so it must stand alone. What it costs beyond the
do-nothing model, every Python model pays before it computes anything.
"""

from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]


class TritonPythonModel:
    """Zeros, cut from one tensor by the rows that the requests of a batch hold."""

    def initialize(self, args: dict[str, str]) -> None:
        """Make the zeros."""
        self._zeros = torch.zeros(2**17, 1)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        rows = [len(from_dlpack(tensor.to_dlpack())) for tensor in tensors]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", to_dlpack(piece))])
            for piece in self._zeros[: sum(rows)].split(rows)
        ]
