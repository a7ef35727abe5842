"""scikit-learn's own predict behind a Triton server, as one would serve an estimator by hand.

`benchmarks.requests` copies this file into a model repository, so it must stand alone; `estimator.pkl` lies beside it.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]


class TritonPythonModel:
    """Predicts the rows of a batch at once."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the estimator."""
        self._estimator = pickle.loads(Path(__file__).with_name("estimator.pkl").read_bytes())

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        parts = [from_dlpack(tensor.to_dlpack()).numpy() for tensor in tensors]
        answers = self._estimator.predict(parts[0] if len(parts) == 1 else np.concatenate(parts))
        y = torch.from_numpy(np.ascontiguousarray(answers, dtype=np.float32).reshape(len(answers), -1))
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", to_dlpack(piece))])
            for piece in y.split([len(part) for part in parts])
        ]
