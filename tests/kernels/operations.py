"""Operations of every kind and shape for the kernels' tests, and how to run them.

Each family of operations beyond the linear ones has a module `operations_<family>.py` beside this one with an
`OPERATIONS` of its own; they are all in this one's.
"""

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tests.kernels.operations_polynomial import polynomial as polynomial
from tests.kernels.operations_polynomial import polynomial_affine as polynomial_affine
from tests.kernels.operations_polynomial import quadratic as quadratic
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.member_choice import MemberChoice
from triton_regressors.kernels.ops.columns.outside import Outside
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan

SENTINEL = 12345.0

ROUNDING = {"float32": 2.0**-24}
"""The relative error of a rounding at precisions that are less exact than float64 here."""


def affine(features: int, targets: int = 1, seed: int = 0, function: str = "identity") -> Affine:
    rng = np.random.default_rng(seed)
    return Affine(rng.standard_normal((features, targets)), rng.standard_normal(targets), function)


def scale(width: int, seed: int = 0) -> Scale:
    rng = np.random.default_rng(seed)
    return Scale(rng.standard_normal(width), rng.standard_normal(width))


def single_scale(width: int, form: str) -> Scale:
    """Return a scale of one of its forms that rounds to float32."""
    rng = np.random.default_rng(0)
    last = np.zeros(0) if form == "factor" else rng.uniform(0.5, 2, width)
    return Scale(rng.standard_normal(width), rng.uniform(0.5, 2, width), form, last, single=True)


def columns(width: int, selected: int, seed: int = 0) -> Columns:
    return Columns(np.random.default_rng(seed).integers(0, width, selected).astype(np.int32))


def outside(width: int, seed: int = 0) -> Outside:
    low, high = np.sort(np.random.default_rng(seed).standard_normal((2, width)), axis=0)
    return Outside(low, high, np.arange(width, dtype=np.uint8) % 2)


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    # Aligned, unaligned and short rows; one tile of features and several.
    **{
        f"affine {features}": (affine(features), (features,)) for features in (1, 2, 13, 16, 23, 37, 64, 100, 300, 1500)
    },
    **{f"affine 9 then {name}": (affine(9, function=name), (9,)) for name in ("exp", "expit", "sqrt")},
    **{
        f"affine {features} to {targets}": (affine(features, targets), (features,))
        for features, targets in ((1, 2), (5, 3), (64, 8), (100, 9), (70, 100), (300, 2))
    },
    "scale": (scale(11), (11,)),
    **{f"scale {form} in float32": (single_scale(11, form), (11,)) for form in Scale.FORMS},
    "columns": (columns(9, 4), (9,)),
    "slice": (Slice(2, 4), (9,)),
    "member_choice": (MemberChoice(0, 2), (3, 3, 1)),
    "concatenate": (Concatenate(), (3, 5, 1)),
    "concatenate 9": (Concatenate(), (3, 1, 2, 1, 4, 1, 1, 2, 5)),
    "concatenate some columns": (Concatenate(np.array([8, 0, 2, 5, 5], dtype=np.int32)), (3, 5, 1)),
    "concatenate some columns of 10": (Concatenate(np.array([19, 3, 0, 18], dtype=np.int32)), (2,) * 10),
    "elementwise": (Elementwise("tanh"), (7,)),
    **{f"outside {width}": (outside(width), (width,)) for width in (1, 5, 64, 131)},
    "clip": (Elementwise("identity", -0.5, 0.25), (5,)),
}


for _path in sorted(Path(__file__).parent.glob("operations_*.py")):
    OPERATIONS |= importlib.import_module(f"{__package__}.{_path.stem}").OPERATIONS


def inputs_for(widths: Sequence[int], rows: int, seed: int = 0) -> list[np.ndarray]:
    """Return float32 matrices of these widths."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, width)).astype(np.float32) for width in widths]


def tensors(op: Operation, device: torch.device, *, plain: bool = False) -> dict[str, torch.Tensor]:
    arrays = op.plain_parameters() if plain else op.parameters()
    return {name: torch.from_numpy(np.require(a, requirements=["C", "W"])).to(device) for name, a in arrays.items()}


def run_kernel(
    op: Operation,
    arrays: Sequence[np.ndarray],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    pinned: bool = False,
) -> np.ndarray:
    """Launch the kernel, with the inputs unchanged, in pinned memory if asked for, and an output of that dtype.

    Past the last row the inputs are NaN and the output must stay as it was.
    """
    rows, width = len(arrays[0]), op.output_width(*(array.shape[1] for array in arrays))
    inputs = []
    for array in arrays:
        given = torch.from_numpy(array)
        padded = torch.full((rows + 2, array.shape[1]), float("nan"), dtype=given.dtype, device=device)
        padded[:rows] = given
        inputs.append(padded.cpu().pin_memory() if pinned else padded)
    output = torch.full((rows + 2, width), SENTINEL, dtype=dtype, device=device)
    op.launch(tensors(op, device), inputs, output, rows)
    found = output.cpu().numpy()
    assert (found[rows:] == SENTINEL).all(), "the kernel wrote past its rows"
    return found[:rows]


def run_reference(op: Operation, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Compute the reference."""
    found: np.ndarray = op.reference(
        tensors(op, torch.device("cpu"), plain=True), *(torch.from_numpy(array) for array in arrays)
    ).numpy()
    return found


def run_on_cpu(op: Operation, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Compute what a CPU serves, in one thread as the engine does."""
    inputs = [torch.from_numpy(array) for array in arrays]
    with one_thread():
        found: np.ndarray = op.compute_on_cpu(tensors(op, torch.device("cpu"), plain=True), *inputs).numpy()
    return found


def magnitude(op: Operation, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of the summands' absolute values: rounding errors are a share of it."""
    changes = {name: -np.abs(a) if name == "shift" else np.abs(a) for name, a in op.arrays()}
    if "function" in op.attributes():
        changes["function"] = "identity"
    return run_reference(dataclasses.replace(op, **changes), [np.abs(array) for array in arrays])


def summands(op: Operation) -> int:
    """Return roughly how many numbers are added up for one output."""
    return max((array.shape[-2] if name == "weight" else array.shape[-1] for name, array in op.arrays()), default=1)


def rounding(op: Operation) -> float:
    """Return the relative error of a rounding at the operation's precision."""
    return ROUNDING.get(getattr(op, "precision", "float64"), 2.0**-53)


def run_plan(plan: Plan, X: np.ndarray) -> dict[str, np.ndarray]:
    """Compute a plan with its references in float64, so that nothing is rounded to float32 between its steps."""
    values = {INPUT: torch.from_numpy(X).double()}
    for step in plan.steps:
        inputs = [values[name] for name in step.inputs]
        parameters = tensors(step.operation, torch.device("cpu"), plain=True)
        values[step.output] = step.operation.reference(parameters, *inputs)
    return {output: values[value].numpy() for output, value in plan.outputs.items()}
