"""Chooses where float32 sums are good enough.

A quadratic form is summed in float64 unless float32 was measured to lose next to nothing: the form is computed in
float32 on the sample, and kept so where its error is at most a quarter of the tolerance. The matrix units of a GPU
sum float32 products about twice as fast.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.products import product
from triton_regressors.kernels.functions import FUNCTIONS
from triton_regressors.kernels.ops.quadratic import Quadratic
from triton_regressors.kernels.parity import units
from triton_regressors.kernels.plan import INPUT, Plan, Step
from triton_regressors.kernels.run import Runner

SHARE_OF_TOLERANCE = 0.25


def choose_precision(plan: Plan, X: np.ndarray, tolerance: float) -> Plan:
    """Return the plan with float32 sums where the sample rows `X` show that they are good enough."""
    steps = tuple(
        Step(_chosen(plan, step, X, tolerance), step.inputs, step.output)
        if isinstance(step.operation, Quadratic)
        else step
        for step in plan.steps
    )
    changed = any(new.operation is not old.operation for new, old in zip(steps, plan.steps, strict=True))
    return plan.with_steps(steps) if changed else plan


def _chosen(plan: Plan, step: Step, X: np.ndarray, tolerance: float) -> Quadratic:
    op = step.operation
    assert isinstance(op, Quadratic)
    read = {"x": step.inputs[0]} if step.inputs[0] != INPUT else {}
    probe = dataclasses.replace(plan, outputs={"y": step.output, **read})
    values = Runner(probe, engine="torch", max_rows=len(X)).predict(X, tuple(probe.outputs))
    x, y = values.get("x", X), values["y"].astype(np.float64)
    error = np.abs(_in_float32(op, x) - y) / units(y)
    single = bool(error.max() <= SHARE_OF_TOLERANCE * tolerance)
    return dataclasses.replace(op, precision="float32") if single else op


def _in_float32(op: Quadratic, x: np.ndarray) -> np.ndarray:
    """Compute the operation as its kernel does in float32, `[rows, targets]`."""
    import torch

    tables = dataclasses.replace(op, precision="float32").parameters()
    u = (x - tables["shift"]).astype(np.float32)
    columns = [
        (u * (product(u, form) + linear)).sum(axis=1, dtype=np.float32)
        for form, linear in zip(tables["quadratic"], tables["linear"], strict=True)
    ]
    y = torch.from_numpy(np.stack(columns, axis=1).astype(np.float64) + tables["intercept"])
    answer: np.ndarray = FUNCTIONS[op.function](y).numpy()
    return answer
