"""Runs a plan: binds it to an engine and a device, and owns the buffers between a request and its answer.

Engines: `triton` runs the Triton-language kernels on a GPU; `interpret` runs the same kernels on a CPU through the
Triton language's interpreter (TRITON_INTERPRET=1 must be set before this module is imported); `torch` computes
in plain torch on a CPU; `auto` is `triton` on a GPU and `torch` on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import torch

from ..format.errors import PlanError
from ..plan.plan import Plan
from .gather import Gathering
from .input_check import Allowed
from .kernel_executor import Executor, KernelExecutor
from .resident import Outputs, Prepared
from .staging import Staging
from .torch_executor import TorchExecutor

ENGINES = ("auto", "triton", "torch", "interpret")


class Runner:
    """A plan ready to run on one device, for one thread at a time.

    A batch takes `executor.launch` and then `executor.wait`, between which the caller may do something else. `predict`
    does both, for any number of rows.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        engine: str = "auto",
        device: torch.device | str | None = None,
        max_rows: int = 4096,
        gathered: Allowed | None = None,
    ) -> None:
        """Bind `plan`.

        Args:
            plan: what to run.
            engine: one of `ENGINES`.
            device: None means the current GPU, or the CPU if there is no GPU or the engine needs the CPU.
            max_rows: the most rows to stage at a time.
            gathered: the numbers that are allowed. The parts of `executor.launch` are then rows as a Triton server
                hands them to its Python backend, which a GPU may read and search in place. By default they are arrays.

        Raises:
            PlanError: the engine cannot run here.
        """
        self.plan = plan
        self.engine, self.device = choose_engine(engine, device)
        self.max_rows = max_rows
        self.dtype = np.dtype(plan.dtype)
        staging = Staging(max_rows, plan.n_features, plan.dtype, pinned=self.device.type == "cuda")
        self.executor: Executor
        if self.engine == "torch" and any(step.operation.kind() == "member_choice" for step in plan.steps):
            from .fleet_executor import FleetExecutor

            self.executor = FleetExecutor(plan, staging)
        elif self.engine == "torch":
            self.executor = TorchExecutor(plan, staging)
        else:
            gathering = None
            if gathered is not None and self.device.type == "cuda":
                gathering = Gathering(plan.n_features, gathered.nan_columns, plan.dtype, self.device)
            self.executor = KernelExecutor(plan, staging, self.device, gathering)

    def predict(self, X: np.ndarray, outputs: Outputs = ("y",)) -> dict[str, np.ndarray]:
        """Return the named outputs, float32 `[rows, width]`, for a matrix `[rows, n_features]` of the plan's dtype."""
        if X.ndim != 2 or X.shape[1] != self.plan.n_features or X.dtype != self.dtype:
            raise PlanError(f"X must be {self.dtype} [rows, {self.plan.n_features}], not {X.dtype} {list(X.shape)}.")
        rows = len(X)
        if 0 < rows <= self.max_rows:
            return self.executor.answer(X, outputs)
        parts = [self.predict(X[start : start + self.max_rows], outputs) for start in range(0, rows, self.max_rows)]
        if parts:
            return {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        self.plan.steps_for(outputs)  # raises if there is no such output
        widths = self.plan.output_widths()
        return {name: np.empty((0, widths[name]), dtype=np.float32) for name in outputs}

    def predict_on_device(self, X: torch.Tensor, outputs: Outputs = ("y",)) -> dict[str, torch.Tensor] | None:
        """Return the named outputs of rows in the GPU's memory, as new tensors there; see `Resident.answer`.

        Args:
            X: contiguous `[rows, n_features]` of the plan's dtype on the runner's device, at least one row.
            outputs: the names of the outputs.

        Returns:
            Output name → float32 `[rows, width]`, or None if a number is not allowed.

        Raises:
            PlanError: X does not fit, the runner was made without `gathered`, or it computes on a CPU.
        """
        fits = X.dim() == 2 and X.shape[1] == self.plan.n_features and X.dtype is getattr(torch, self.dtype.name)
        if not isinstance(self.executor, KernelExecutor) or not fits or X.device != self.device:
            raise PlanError(
                f"X must be {self.dtype} [rows, {self.plan.n_features}] on {self.device} for engine {self.engine}, "
                f"not {X.dtype} {list(X.shape)} on {X.device}."
            )
        return self.executor.resident.answer(X.contiguous(), outputs)

    def prepared(self, rows: int, outputs: Outputs = ("y",)) -> Prepared | None:
        """Return a function that answers `rows` rows like `predict_on_device`, without its checks of the matrix.

        It launches one captured graph. If its second argument is true, it returns an output of one column as `[rows]`.
        The result is None if `predict_on_device` has captured no graph yet or if so many rows use none.
        """
        return self.executor.resident.prepared(rows, outputs) if isinstance(self.executor, KernelExecutor) else None

    def warm_up(self, output_sets: Iterable[Outputs]) -> None:
        """Compile the kernels and capture the graphs of these sets of outputs, so that no request waits."""
        for outputs in output_sets:
            self.executor.warm_up(outputs)


def choose_engine(engine: str, device: torch.device | str | None) -> tuple[str, torch.device]:
    """Return the engine and device for these arguments; raise `PlanError` if this machine cannot use them."""
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
