"""Coalitions: what a plan answers if only some columns have a row's numbers, and the others those of background rows.

    out[r, k · T + t] = mean over b of f_t(z),   z[j] = x[r, j] if taken[k, j], otherwise background[b, j]

`x`: `[rows, F]`, the dtype of the plan; `taken`: uint8 `[coalitions, F]`; `background`: `[B, F]`; f: the plan's one
output of T numbers; `out`: `[rows, coalitions · T]`, float32 or float64. These are the worths of the coalitions of a
cooperative game, from which a linear map makes Shapley values.

The plan is computed for all rows of all coalitions by its own operations, some coalitions at a time. The mean adds the
background rows one after the other, so that neither the number of rows nor the division of the work can change it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from safetensors.numpy import load, save

from ...format.errors import PlanError
from ...plan.plan import INPUT, Operation, Parameters, Plan
from .launch import COALITIONS_BLOCK, NUMBERS_AT_ONCE, ROWS_AT_ONCE


@triton.jit(do_not_specialize=["first", "pairs", "count"])
def mix_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    taken,  # uint8 [COALITIONS, FEATURES]
    background,  # float32 or float64 [count, FEATURES]
    out,  # of the dtype of x [count, pairs, FEATURES]
    first,  # the number of the first pair of a row and a coalition
    pairs,
    count,  # the number of background rows
    FEATURES: tl.constexpr,
    COALITIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the rows of some coalitions. A program makes `BLOCK` numbers of all pairs for one background row."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    own = tl.program_id(1).to(tl.int64)
    inside = at < pairs.to(tl.int64) * FEATURES
    pair, column = first + at // FEATURES, at % FEATURES
    mine = tl.load(taken + (pair % COALITIONS) * FEATURES + column, mask=inside, other=0) != 0
    given = tl.load(x + (pair // COALITIONS) * FEATURES + column, mask=inside & mine, other=0.0)
    other = tl.load(background + own * FEATURES + column, mask=inside & (mine == 0), other=0.0)
    tl.store(out + own * pairs * FEATURES + at, tl.where(mine, given, other), mask=inside)


@triton.jit(do_not_specialize=["first", "pairs", "count"])
def mean_kernel(
    values,  # float32 or float64 [count, pairs, TARGETS]
    out,  # float32 or float64 [rows · COALITIONS, TARGETS]
    first,
    pairs,
    count,
    TARGETS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the values of the background rows one after the other. A program makes `BLOCK` means."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    size = pairs.to(tl.int64) * TARGETS
    inside = at < size
    total = tl.zeros([BLOCK], tl.float64)
    for own in tl.range(0, count):
        total += tl.load(values + own * size + at, mask=inside, other=0.0).to(tl.float64)
    mean = total / count.to(tl.float64)
    tl.store(out + first.to(tl.int64) * TARGETS + at, mean.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Coalitions(Operation):
    """The answers of a plan to mixtures of a row with background rows; `of_plan` makes it."""

    plan: str  # its JSON
    weights: np.ndarray  # uint8, its arrays as a file of safetensors
    background: np.ndarray
    taken: np.ndarray

    @classmethod
    def of_plan(cls, plan: Plan, background: np.ndarray, taken: np.ndarray) -> Coalitions:
        """Return the operation of a plan with one output."""
        weights = np.frombuffer(save(plan.to_tensors()), dtype=np.uint8)
        return cls(json.dumps(plan.to_json()), weights, background, taken)

    @functools.cached_property
    def inner(self) -> Plan:
        """The plan, in the steps by which kernels compute it."""
        return self._given.on_device(torch.device("cpu"))

    @functools.cached_property
    def _given(self) -> Plan:
        """The plan as it is written."""
        return Plan.from_json(json.loads(self.plan), load(self.weights.tobytes()))

    def kinds(self) -> set[str]:
        return {self.kind(), *(step.operation.kind() for step in self._given.steps)}

    def check(self, *widths: int) -> None:
        (features,) = widths
        if len(self.inner.outputs) != 1 or self.inner.n_features != features:
            raise PlanError(f"coalitions: the plan must have one output and {features} features.")
        if self.background.ndim != 2 or self.background.shape[1] != features or not len(self.background):
            raise PlanError(f"coalitions: background must be [1 or more, {features}], not {self.background.shape}.")
        if self.background.dtype != self.inner.dtype:
            raise PlanError(f"coalitions: background must be {self.inner.dtype}, not {self.background.dtype}.")
        if self.taken.dtype != np.uint8 or self.taken.shape[1:] != (features,) or not len(self.taken):
            raise PlanError(f"coalitions: taken must be uint8 [coalitions, {features}], not {self.taken.shape}.")

    def output_width(self, *widths: int) -> int:
        return len(self.taken) * self._targets

    @property
    def _targets(self) -> int:
        (width,) = self.inner.output_widths().values()
        return width

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the background, the coalitions, and the tables of the plan's kernels by step and name."""
        return self._tables(plain=False)

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the same with the tables of plain torch."""
        return self._tables(plain=True)

    def _tables(self, *, plain: bool) -> dict[str, np.ndarray]:
        found = {"background": self.background, "taken": self.taken}
        for number, step in enumerate(self.inner.steps):
            operation = step.operation
            tables = operation.plain_parameters() if plain else operation.parameters()
            found |= {f"{number}.{name}": array for name, array in tables.items()}
        return found

    def _of_step(self, parameters: Parameters, number: int) -> dict[str, torch.Tensor]:
        """Return the tables of a step of the plan."""
        start = f"{number}."
        return {name[len(start) :]: table for name, table in parameters.items() if name.startswith(start)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        background, worths = parameters["background"], []
        for taken in parameters["taken"].bool():
            mixed = torch.where(taken, x[:, None], background)  # [rows, B, F]
            values = {INPUT: mixed.flatten(0, 1).to(background.dtype)}
            for number, step in enumerate(self.inner.steps):
                own = self._of_step(parameters, number)
                values[step.output] = step.operation.reference(own, *(values[name] for name in step.inputs))
            worths.append(values[self._output].double().view(len(x), len(background), self._targets).mean(1))
        return torch.stack(worths, dim=1).flatten(1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, background, taken = inputs[0], parameters["background"], parameters["taken"].bool()
        pairs, count = len(x) * len(taken), len(background)
        answer = torch.empty(pairs, self._targets, dtype=torch.float64)
        at_once = self._pairs_at_once(count)
        tables = [self._of_step(parameters, number) for number in range(len(self.inner.steps))]
        for first in range(0, pairs, at_once):
            pair = torch.arange(first, min(first + at_once, pairs))
            own, row = taken[pair % len(taken)], x[pair // len(taken)].to(background.dtype)
            values = {INPUT: torch.where(own, row, background[:, None]).flatten(0, 1)}  # [B · pairs, F]
            for step, each in zip(self.inner.steps, tables, strict=True):
                inputs = tuple(values[name] for name in step.inputs)
                values[step.output] = step.operation.compute_on_cpu(each, *inputs)
            total = torch.zeros(len(pair), self._targets, dtype=torch.float64)
            for part in values[self._output].double().view(count, len(pair), -1):
                total += part
            answer[first : first + len(pair)] = total / count
        return answer.view(len(x), -1)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, background, taken = inputs[0], parameters["background"], parameters["taken"]
        (coalitions, features), count, plan = taken.shape, len(background), self.inner
        at_once = min(self._pairs_at_once(count), rows * coalitions)
        widths, dtypes = plan.widths(), {INPUT: background.dtype}
        for step in plan.steps:
            kept = step.operation.keeps_dtype()
            dtypes[step.output] = dtypes[step.inputs[0]] if kept else torch.float64
        held = {
            name: torch.empty(at_once * count, widths[name], dtype=dtype, device=x.device)
            for name, dtype in dtypes.items()
        }
        tables = [self._of_step(parameters, number) for number in range(len(plan.steps))]
        for first in range(0, rows * coalitions, at_once):
            pairs = min(at_once, rows * coalitions - first)
            mix_kernel[(triton.cdiv(pairs * features, COALITIONS_BLOCK), count)](
                x, taken, background, held[INPUT], first, pairs, count,
                FEATURES=features, COALITIONS=coalitions, BLOCK=COALITIONS_BLOCK,
            )  # fmt: skip
            for step, own in zip(plan.steps, tables, strict=True):
                step.operation.launch(own, [held[name] for name in step.inputs], held[step.output], pairs * count)
            mean_kernel[(triton.cdiv(pairs * self._targets, COALITIONS_BLOCK),)](
                held[self._output], output, first, pairs, count, TARGETS=self._targets, BLOCK=COALITIONS_BLOCK,
            )  # fmt: skip

    @functools.cached_property
    def _output(self) -> str:
        """The plan's value that is averaged."""
        (value,) = self.inner.outputs.values()
        return value

    def _pairs_at_once(self, count: int) -> int:
        """Return how many pairs of a row and a coalition are computed together; each has `count` rows."""
        widest = max(self.inner.widths().values())
        return max(min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // widest) // count, 1)

    def launches(self, inputs: int) -> int:
        return 2 + sum(step.launches() for step in self.inner.steps)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        what = ", ".join(step.operation.kind() for step in self.inner.steps)
        return f"{len(self.taken):,} coalitions × {len(self.background):,} rows of {what}"


def evaluations(plan: Plan) -> int:
    """Return for how many rows the plans of coalitions are computed to answer one row of a plan; 0 without any."""
    found = [step.operation for step in plan.steps if isinstance(step.operation, Coalitions)]
    return sum(len(each.taken) * len(each.background) for each in found)
