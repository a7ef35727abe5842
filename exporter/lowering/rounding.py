"""Where scikit-learn rounds to float32, and where a plan has to: in front of a decision.

scikit-learn keeps float32 rows in float32 through its transformers, and rounds what each of them computes. The plan's
values are float64. If only sums follow, the difference is mostly noise far below the tolerance, and the plan
rounds nothing unless that was measured to matter. If a decision follows, such as a tree's threshold, a bin, a
category or a nearest neighbour, a number may be rounded to the threshold itself, and the plan rounds where scikit-learn
does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.row_norm import RowNorm
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.wrap import Wrap
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors
from triton_regressors.kernels.ops.trees.linear_leaves import LinearLeaves
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step

DECISIONS = (
    LinearLeaves,
    Lookup,
    NeighborGraph,
    NeighborImputer,
    Neighbors,
    Piecewise,
    RadiusNeighbors,
    SymmetricTrees,
    TreeEnsemble,
    Wrap,
)
"""Operations whose answer may jump where a number is rounded."""

JUMPS = ("ceil", "floor", "rint", "sign", "trunc")
"""Functions of an element that do the same."""

COLUMNWISE = (Columns, Concatenate, Elementwise, Float32, Impute, Lookup, Piecewise, Polynomial, Power, Scale, Wrap)
"""Operations whose columns are each computed of a few numbers in one order: numpy computes them alike everywhere."""


def round_before_decisions(
    steps: Sequence[Step], rounding: Mapping[str, str], exact: np.ndarray, everywhere: bool = False
) -> tuple[list[Step], dict[str, str], tuple[str, ...]]:
    """Leave out the rounding that no decision sees, or `everywhere` none but that of numbers that are float32.

    Args:
        steps: the steps of a plan.
        rounding: the steps that stand for scikit-learn's own rounding, by the value they make, and which transformer
            each follows.
        exact: which of the input's columns hold float32 numbers, `[n_features]` bool.
        everywhere: whether rounding is kept that no decision sees.

    Returns:
        The steps, the new names of values whose step is left out, and the transformers that sum in float32 before a
        decision: in an order that depends on the processor.
    """
    decided = decided_values(steps)
    renamed: dict[str, str] = {}
    single = {INPUT: exact}
    kept, sums = [], dict[str, None]()
    makers: dict[str, Operation] = {}
    for step in steps:
        operation, inputs = step.operation, tuple(renamed.get(name, name) for name in step.inputs)
        if (
            isinstance(operation, Polynomial | Scale)
            and operation.single
            and not everywhere
            and step.output not in decided
        ):
            operation = dataclasses.replace(operation, single=False)
        if isinstance(operation, Float32) and step.output in rounding:
            held = single[inputs[0]]
            asked = operation.rounded != 0 if len(operation.rounded) else np.ones(len(held), dtype=bool)
            if (step.output not in decided and not everywhere) or not (asked & ~held).any():
                renamed[step.output] = inputs[0]
                continue
            if step.output in decided and not _is_columnwise(makers.get(inputs[0])):
                sums[rounding[step.output]] = None
        kept.append(Step(operation, inputs, step.output))
        makers[step.output] = operation
        single[step.output] = _float32(operation, [single[name] for name in inputs])
    return kept, renamed, tuple(sums)


def round_input(plan: Plan, inputs: Inputs) -> Plan:
    """Return a lowered plan that rounds the float32 columns of FP64 rows first, as `astype("float32")` does."""
    columns = sorted(set(inputs.float32 or ()) & set(inputs.numeric))
    if inputs.dtype != "float64" or not columns:
        return plan
    some = np.zeros(plan.n_features, dtype=np.uint8)
    some[columns] = 1
    first = Step(Float32(some[:0] if some.all() else some), (INPUT,), "rounded")
    renamed = {INPUT: first.output}
    steps = [Step(s.operation, tuple(renamed.get(name, name) for name in s.inputs), s.output) for s in plan.steps]
    outputs = {name: renamed.get(value, value) for name, value in plan.outputs.items()}
    return Plan(plan.n_features, (first, *steps), outputs, plan.dtype)


def decided_values(steps: Sequence[Step]) -> set[str]:
    """Return the values that a decision reads, or that others are made of which it reads."""
    found: set[str] = set()
    for step in reversed(steps):
        if step.output in found or _decides(step.operation):
            found.update(step.inputs)
    return found


def _decides(operation: Operation) -> bool:
    if isinstance(operation, Impute):
        return operation.missing is not None
    return isinstance(operation, DECISIONS) or (isinstance(operation, Elementwise) and operation.function in JUMPS)


def _is_columnwise(operation: Operation | None) -> bool:
    if isinstance(operation, RowNorm):
        return operation.norm == "max"
    return operation is None or isinstance(operation, COLUMNWISE)


def _float32(operation: Operation, inputs: list[np.ndarray]) -> np.ndarray:
    """Return which columns of an operation's output hold float32 numbers, given those of its inputs."""
    width = operation.output_width(*(len(each) for each in inputs))
    match operation:
        case Columns():
            selected: np.ndarray = inputs[0][operation.indices]
            return selected
        case Concatenate():
            return np.concatenate(inputs)
        case Float32():
            return inputs[0] | (operation.rounded != 0) if len(operation.rounded) else np.ones(width, dtype=bool)
        case Impute():
            filled = inputs[0][operation.columns] & _are_float32(operation.fill)
            return np.append(filled, np.ones(len(operation.indicators), dtype=bool))
        case Lookup() if not operation.summed and operation.function == "identity":
            return np.full(width, _are_float32(operation.table).all())
        case Polynomial() | Scale():
            return np.full(width, operation.single)
        case Piecewise():
            constant: np.ndarray = (operation.coefficients[:, :, 1:] == 0).all(axis=(1, 2))
            return constant & _are_float32(operation.coefficients[:, :, 0]).all(axis=1)
    return np.zeros(width, dtype=bool)


def _are_float32(numbers: np.ndarray) -> np.ndarray:
    """Return which numbers are float32 numbers, or NaN."""
    with np.errstate(over="ignore"):
        found: np.ndarray = (numbers == numbers.astype(np.float32)) | np.isnan(numbers)
    return found
