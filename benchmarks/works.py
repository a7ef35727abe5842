"""What the benchmarks of kernels time: a plan's kernels, beside what torch does in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from triton_regressors.kernels.plan import INPUT, Operation, Plan, Step

Tensor = torch.Tensor


@dataclass(frozen=True)
class Work:
    """A plan, what torch does in its place (if that is anything), and the numbers of rows to time.

    `missing` is the share of the rows' numbers that are NaN.
    """

    family: str
    title: str
    plan: Plan
    rows: Sequence[int]
    peer: Callable[[Tensor], Tensor] | None = None
    missing: float = 0.0


def alone(operation: Operation) -> Plan:
    """Return a plan of one operation."""
    (features,) = {array.shape[1] for name, array in operation.arrays() if name == "points"}
    return Plan(features, (Step(operation, (INPUT,), "y"),), {"y": "y"})
