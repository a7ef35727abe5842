"""The do-nothing model: answers zeros of the right shape without computing anything.

`compare` uploads this file to the server, so it must stand alone. Its cost is the cost of the server, its Python
backend and the network. A real model's further cost is the model's own.
"""

import json
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]


class TritonPythonModel:
    """Zeros for every requested output, by DLPack, made once per number of rows."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the names and widths of the outputs."""
        config = json.loads(args["model_config"])
        self._widths = {output["name"]: abs(int(output["dims"][0])) for output in config["output"]}
        self._zeros: dict[tuple[str, int], torch.Tensor] = {}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        rows = request.inputs()[0].shape()[0]
        tensors = []
        for name in request.requested_output_names():
            zeros = self._zeros.get((name, rows))
            if zeros is None:
                zeros = self._zeros[name, rows] = torch.zeros(rows, self._widths[name])
            tensors.append(pb_utils.Tensor.from_dlpack(name, to_dlpack(zeros)))  # the fastest way to hand a tensor over
        return pb_utils.InferenceResponse(tensors)
