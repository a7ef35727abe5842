"""Many scikit-learn estimators behind a Triton server, as one would serve them by hand: a dict, and a loop over rows.

`benchmarks.served.fleets` copies this file into a model repository, so it must stand alone; `estimators.pkl`, a dict by
ids, lies beside it.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]


class TritonPythonModel:
    """Predicts the rows of each model of a batch at once."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the estimators."""
        self._estimators = pickle.loads(Path(__file__).with_name("estimators.pkl").read_bytes())

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        parts, ids = [], []
        for request in requests:
            parts.append(from_dlpack(pb_utils.get_input_tensor_by_name(request, "X").to_dlpack()).numpy())
            ids.append(pb_utils.get_input_tensor_by_name(request, "id").as_numpy().ravel())
        X, named = np.concatenate(parts), np.concatenate(ids).tolist()
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(named):
            rows.setdefault(number, []).append(row)
        y = np.empty((len(X), 1), dtype=np.float32)
        for number, places in rows.items():
            y[places, 0] = self._estimators[number].predict(X[places])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", to_dlpack(piece))])
            for piece in torch.from_numpy(y).split([len(part) for part in parts])
        ]
