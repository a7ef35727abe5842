"""The values of a plan's steps for some rows, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from triton_regressors.kernels.engine.staging import unlocked
from triton_regressors.kernels.plan.plan import INPUT, Step


class Values:
    """Computes values of steps for rows of the plan's matrix, each once.

    Each operation's own reference computes them, or, if they are as `served`, the faster code that a CPU serves.
    """

    def __init__(self, steps: Sequence[Step], X: np.ndarray, *, served: bool = False) -> None:
        self._served = served
        self._makers = {step.output: step for step in steps}
        self._found = {INPUT: torch.from_numpy(unlocked(np.ascontiguousarray(X)))}

    def add(self, step: Step) -> None:
        """Add a step that reads values of the others."""
        self._makers[step.output] = step

    @torch.inference_mode()
    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value of that name, float64 `[rows, width]`."""
        values: np.ndarray = self._tensor(name).double().numpy()
        return values

    def _tensor(self, name: str) -> torch.Tensor:
        found = self._found.get(name)
        if found is None:
            step = self._makers[name]
            arrays = step.operation.plain_parameters().items()
            parameters = {key: torch.from_numpy(np.require(array, requirements=["C", "W"])) for key, array in arrays}
            compute = step.operation.compute_on_cpu if self._served else step.operation.reference
            found = compute(parameters, *map(self._tensor, step.inputs))
            self._found[name] = found
        return found
