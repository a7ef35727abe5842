"""Runs a plan: binds it to an engine and a device, and owns the buffers between a request and its answer.

Engines: `triton` runs the Triton-language kernels on a GPU; `interpret` runs the same kernels on a CPU through the
Triton language's interpreter (TRITON_INTERPRET=1 must be set before this module is imported); `torch` runs the
operations' plain torch references on a CPU; `auto` is `triton` on a GPU and `torch` on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from .errors import PlanError
from .executors import Answers, Executor, KernelExecutor, Outputs, TorchExecutor
from .plan import Plan
from .staging import Staging

ENGINES = ("auto", "triton", "torch", "interpret")


class Runner:
    """A plan ready to run on one device, for one thread at a time.

    A batch's way is `launch`, `wait`: between the two the device works and the caller may do something
    else. `predict` is all of it, for matrices of any number of rows.
    """

    def __init__(
        self, plan: Plan, *, engine: str = "auto", device: torch.device | str | None = None, max_rows: int = 4096
    ) -> None:
        """Bind `plan`; at most `max_rows` rows are staged at a time. `PlanError` if the engine cannot run."""
        self.plan = plan
        self.engine, self.device = choose_engine(engine, device)
        self.max_rows = max_rows
        self.dtype = np.dtype(plan.dtype)
        self._staging = Staging(max_rows, plan.n_features, plan.dtype, pinned=self.device.type == "cuda")
        executor = TorchExecutor if self.engine == "torch" else KernelExecutor
        self._executor: Executor = executor(plan, self._staging, self.device)

    def staged(self, rows: int) -> np.ndarray:
        """Return the numbers of the first `rows` staged rows, one row after the other, as they lie in the buffer."""
        return self._staging.numbers(rows)

    def launch(self, parts: Sequence[np.ndarray], rows: int, outputs: Outputs = ("y",)) -> Answers:
        """Stage matrices `[*, n_features]`, `rows` in all, and begin to compute the named outputs.

        Returns what holds them after `wait`, until the next launch.
        """
        return self._executor.launch(parts, rows, outputs)

    def wait(self) -> None:
        """Wait until what was launched is computed."""
        self._executor.wait()

    def predict(self, X: np.ndarray, outputs: Outputs = ("y",)) -> dict[str, np.ndarray]:
        """Return the named outputs, float32 `[rows, width]`, for a matrix `[rows, n_features]` of the plan's dtype."""
        if X.ndim != 2 or X.shape[1] != self.plan.n_features or X.dtype != self.dtype:
            raise PlanError(f"X must be {self.dtype} [rows, {self.plan.n_features}], not {X.dtype} {list(X.shape)}.")
        rows = len(X)
        if 0 < rows <= self.max_rows:
            return {name: answer.copy() for name, answer in self._executor.answer(X, outputs).arrays.items()}
        parts = [self.predict(X[start : start + self.max_rows], outputs) for start in range(0, rows, self.max_rows)]
        if parts:
            return {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        self.plan.steps_for(outputs)  # raises if there is no such output
        widths = self.plan.output_widths()
        return {name: np.empty((0, widths[name]), dtype=np.float32) for name in outputs}

    def warm_up(self, output_sets: Iterable[Outputs]) -> None:
        """Compile every kernel and capture every graph that these sets of outputs use, so that no request waits."""
        for outputs in output_sets:
            self._executor.warm_up(outputs)


def choose_engine(engine: str, device: torch.device | str | None) -> tuple[str, torch.device]:
    """Return the engine and device that these mean on this machine, or raise `PlanError` with why they cannot be."""
    if engine not in ENGINES:
        raise PlanError(f"There is no engine '{engine}'; the engines are {', '.join(ENGINES)}.")
    if engine == "auto":
        on_gpu = torch.cuda.is_available() if device is None else torch.device(device).type == "cuda"
        engine = "triton" if on_gpu else "torch"
    interpreting = os.environ.get("TRITON_INTERPRET") == "1"
    if engine == "triton":
        if not torch.cuda.is_available():
            raise PlanError("Engine 'triton' needs a CUDA GPU, and torch finds none; on a CPU use 'torch'.")
        if interpreting:
            raise PlanError("Engine 'triton' cannot run while TRITON_INTERPRET=1; unset it, or use 'interpret'.")
        chosen = torch.device("cuda" if device is None else device)
        index = torch.cuda.current_device() if chosen.index is None else chosen.index
        return engine, torch.device("cuda", index)
    if engine == "interpret" and not interpreting:
        raise PlanError("Engine 'interpret' needs TRITON_INTERPRET=1 in the environment before Python starts.")
    return engine, torch.device("cpu")
