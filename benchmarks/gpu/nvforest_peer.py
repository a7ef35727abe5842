"""nvForest, the engine of the Triton server's FIL backend, as a peer of our trees.

It is imported where it is asked for alone: nothing else needs it, and it needs CuPy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import torch
from sklearn.base import BaseEstimator

from benchmarks.timing import Contender

NVFOREST = "nvForest"
TUNING_S = 0.1
"""The time that nvForest may take to try a layout and chunk size, in seconds."""


def there_is_nvforest() -> bool:
    """Tell whether nvForest and CuPy are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("nvforest", "cupy"))


def nvforest(estimator: BaseEstimator, inputs: Sequence[torch.Tensor]) -> Contender:
    """Return what nvForest does with rows on the GPU, tuned by its own `optimize` for this number of rows, in float32.

    A call returns when its answers are there. nvForest cannot be captured into a graph.
    """
    import cupy
    from nvforest import load_from_sklearn

    rows = [cupy.asarray(x.float()) for x in inputs]
    model = load_from_sklearn(estimator, device="gpu", precision="single")
    model = model.optimize(batch_size=len(rows[0]), unique_batches=min(len(rows), 4), timeout=TUNING_S)

    def call(i: int) -> object:
        answer = model.predict(rows[i])
        cupy.cuda.runtime.deviceSynchronize()
        return answer

    return Contender(NVFOREST, call, graph=False)
