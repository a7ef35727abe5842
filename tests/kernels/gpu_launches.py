"""Records the kernel launches of every op as a GPU would get them, instead of running them.

They are for compute capabilities 7.5 and 8.0 from float32 to float32 as in a plan's only step, for 9.0 from float64 to
float64 as between steps, and in every shape of the table of launch shapes for the GPU that it was measured on.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from benchmarks.gpu.shape_classes import OPERATIONS as MEASURED
from benchmarks.gpu.shape_classes import shape_classes
from tests.kernels.operations import OPERATIONS
from tests.kernels.operations_dense import dense_layers
from tests.kernels.operations_expression import own_instructions
from tests.kernels.operations_neighbors import IN_GROUPS
from tests.kernels.operations_pairwise import pairwise as matrix
from tests.kernels.operations_pairwise import pairwise_affine as sum_over_points
from triton_regressors.kernels.engine.gather import Gathering
from triton_regressors.kernels.engine.graphs import Lane
from triton_regressors.kernels.engine.member_order import FEWEST_ROWS, BackInOrder, InOrder, MemberOrder
from triton_regressors.kernels.engine.program import Program
from triton_regressors.kernels.engine.resident import Resident
from triton_regressors.kernels.numerics.functions import FUNCTIONS
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.neighbors import launch as search_shapes
from triton_regressors.kernels.ops.neighbors import radius_sums
from triton_regressors.kernels.ops.networks import int8_fused
from triton_regressors.kernels.ops.points import norm_int8, pairwise_affine
from triton_regressors.kernels.ops.points.launch import FEW_MEMBER_ROWS
from triton_regressors.kernels.ops.points.stacked_pairwise_affine import StackedPairwiseAffine
from triton_regressors.kernels.ops.points.stacked_parts import SumOfOwnParts, ragged_width
from triton_regressors.kernels.ops.trees import launch as tree_launch
from triton_regressors.kernels.ops.trees.launch import tree_ensemble_shape
from triton_regressors.kernels.plan import devices
from triton_regressors.kernels.plan.devices import RESERVED_BYTES
from triton_regressors.kernels.plan.launch_shapes import table
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

TARGETS = (75, 80, 90)
SHARED_BYTES = {75: 64 * 1024, 80: 99 * 1024, 90: 227 * 1024, 120: 99 * 1024}
"""Shared memory of a program from one capability up to the next: 8.6 has less than 8.0, and 12.0 less than 9.0."""
ROWS = 100
OTHER_ROWS = (1, 1000)
"""Batches for which searches in groups or of fleets, contributions, and operations in digits launch others."""
Launch = tuple[int, JITFunction[Any], dict[str, Any], dict[str, Any]]


def operations() -> list[tuple[Operation, list[int]]]:
    """Return operations that between them use every kernel and branch, with the widths of their inputs."""
    z, o = np.zeros, np.ones
    known = OPERATIONS | IN_GROUPS
    found: list[tuple[Operation, list[int]]] = [(op, list(widths)) for op, widths in known.values()]
    found += [
        (Affine(z((features, targets)), z(targets), function), [features])
        for features, targets, function in ((5000, 1, "expm1"), (64, 3, "exp"))
    ]
    found += [(Elementwise(function), [7]) for function in FUNCTIONS]
    found += [(own_instructions(), [5])]
    found += [
        (Quadratic(shift, o(f), z((t, f, f)), z((t, f)), z(t), "sqrt", precision), [f])
        for f, t, precision in ((5, 1, "float64"), (32, 2, "float32"), (50, 2, "float64"), (50, 1, "float32"))
        for shift in (z(f), o(f))
    ]
    for targets in (1, 2):
        counts = (1, 3, 8, 9)
        found.append((SumOfOwnParts(counts, targets), [ragged_width(counts, targets)]))
        for name, precision in (("rbf", "ten digits"), ("chi2", "float32 pairs"), ("rbf", "float32 pairs")):
            members = [sum_over_points(name, 9, points, targets) for points in (100, 200)]
            if precision in members[0].precisions():
                stack = StackedPairwiseAffine.of([each.in_precision(precision) for each in members])
                found.append((stack.in_steps()[0], [9, 1]))
    return found


class HostMemory(torch.Tensor):
    """Rows and answers, which few rows have in memory of the host, and whatever is allocated like them."""


def record(
    operation: Operation, widths: list[int], dtype: torch.dtype = torch.float32, rows: int = ROWS
) -> list[tuple[JITFunction[Any], dict[str, Any], dict[str, Any]]]:
    """Return each kernel that the operation launches on values of that dtype, its arguments by name and its options.

    Raises:
        AssertionError: an argument was allocated where the rows are, and not where the parameters are.
    """
    parameters = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in operation.parameters().items()}
    output = torch.zeros(rows, operation.output_width(*widths), dtype=dtype).as_subclass(HostMemory)
    inputs = [torch.zeros(rows, width, dtype=dtype) for width in widths]
    if operation.reads_input_once():
        inputs = [each.as_subclass(HostMemory) for each in inputs]
    launches = launched_by(lambda: operation.launch(parameters, inputs, output, rows))
    own = {each.untyped_storage().data_ptr() for each in (*inputs, output)}
    for kernel, arguments, _ in launches:
        for name, value in arguments.items():
            if isinstance(value, HostMemory):
                assert value.untyped_storage().data_ptr() in own, f"{kernel.__name__}: {name} is host memory"
    return launches


def launched_by(work: Callable[[], None]) -> list[tuple[JITFunction[Any], dict[str, Any], dict[str, Any]]]:
    """Return each kernel that is launched, its arguments by name and its options."""
    launches: list[tuple[JITFunction[Any], dict[str, Any], dict[str, Any]]] = []
    run = JITFunction.run

    def note(self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        given = dict(zip(self.arg_names, args, strict=False)) | named
        arguments = {name: given.pop(name) for name in self.arg_names}
        launches.append((self, arguments, given))

    JITFunction.run = note
    try:
        work()
    finally:
        JITFunction.run = run
    return launches


def signature_of(kernel: JITFunction[Any], arguments: dict[str, Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key that tells one compilation from another."""
    constant = {p.name for p in kernel.params if p.is_constexpr}
    kinds = [
        value.dtype if isinstance(value, torch.Tensor) else value if name in constant else type(value)
        for name, value in arguments.items()
    ]
    return (kernel.__name__, *kinds, *options.items())


def launches() -> list[Launch]:
    """Return launches that use every kernel and branch, each once, with the capability to compile it for."""
    found: dict[tuple[Any, ...], Launch] = {}
    kinds = ((torch.float32, list(TARGETS[:-1]), ROWS), (torch.float64, [TARGETS[-1]], ROWS))
    others = tuple((torch.float32, [90], rows) for rows in OTHER_ROWS)
    batches = [(operation, widths, *kind) for operation, widths in operations() for kind in kinds]
    others_too = ("in int8", "norm in ten digits", "stacked neighbors", "contributions")
    alike = IN_GROUPS | {name: OPERATIONS[name] for name in OPERATIONS if name.endswith(others_too)}
    batches += [(operation, list(widths), *kind) for operation, widths in alike.values() for kind in others]
    for operation, widths, dtype, capabilities, rows in batches:
        for kernel, arguments, options in record(operation, widths, dtype, rows):
            for capability in capabilities_of(capabilities, kernel, arguments):
                signature = (capability, *signature_of(kernel, arguments, options))
                found.setdefault(signature, (capability, kernel, arguments, options))
    known = [*found.values(), *in_parts(), *gathered(), *resident(), *of_few_rows(), *in_order()]
    return [*known, *bounded_for_few_rows(), *of_many_rows()]


def in_order() -> Iterator[Launch]:
    """Yield launches that bring rows of a fleet in the order of their members, and their answers back."""
    for dtype, capability in ((torch.float32, TARGETS[0]), (torch.float64, TARGETS[-1])):
        memory = torch.zeros(FEWEST_ROWS, 2, dtype=torch.float64)
        x = torch.zeros(FEWEST_ROWS, 5, dtype=dtype)
        for operation, inputs in (
            (MemberOrder(4, 9), [x]),
            (InOrder(Slice(0, 4)), [x, memory]),
            (BackInOrder(), [x, memory]),
        ):
            output = memory if len(inputs) == 1 else torch.zeros(FEWEST_ROWS, 4, dtype=dtype)
            launch = functools.partial(operation.launch, {}, inputs, output, FEWEST_ROWS)
            yield from ((capability, *each) for each in launched_by(launch))


def at_the_limit() -> list[Launch]:
    """Return launches in shapes that the shared memory of a GPU decides."""
    return [*tabled(), *on_smaller_gpus(), *of_wide_distances(), *on_hopper()]


def on_smaller_gpus() -> Iterator[Launch]:
    """Yield launches that take another shape without matrix units for float16, or with less shared memory."""
    norm = "squared_norm in ten digits"
    for capability, module, what, value, name, rows in (
        (75, radius_sums, "has_matrix_units", 0, "radius_neighbors by products", ROWS),
        (75, norm_int8, "shared_memory", 0, norm, ROWS),
        (80, norm_int8, "shared_memory", SHARED_BYTES[80], norm, OTHER_ROWS[-1]),
    ):
        known = getattr(module, what)
        setattr(module, what, lambda device, value=value: value)
        try:
            operation, widths = (IN_GROUPS | OPERATIONS)[name]
            for launch in record(operation, list(widths), rows=rows):
                yield (capability, *launch)
        finally:
            setattr(module, what, known)


def on_hopper() -> Iterator[Launch]:
    """Yield what GPUs of 9.0 get: layers of networks in warp groups, and launches begun before the last one ends."""
    networks = [
        dense_layers(*widths, precision="int8", shift=shift, function=function)
        for widths, shift, function in (
            ((64, 256, 256, 256, 4), 0.0, "identity"),
            ((9, 20, 150, 33), 2.0, "exp"),
        )
    ]
    networks[1].weights[:20] = 0  # a feature that is not used
    with mock.patch.object(int8_fused, "has_warp_groups", return_value=True):
        for network, dtype in zip(networks, (torch.float32, torch.float64), strict=True):
            for launch in record(network, [network.widths[0]], dtype, rows=int8_fused.MANY_ROWS):
                assert launch[0].is_gluon()
                yield (TARGETS[-1], *launch)
    with mock.patch.object(devices, "has_dependent_launches", return_value=True):
        contributions, widths = OPERATIONS["tree contributions"]
        for operation, width, rows in (
            (networks[0], networks[0].widths[0], 1),
            (contributions, *widths, 1),
            (contributions, *widths, ROWS),
        ):
            yield from ((TARGETS[-1], *launch) for launch in record(operation, [width], rows=rows))


def of_few_rows() -> Iterator[Launch]:
    """Yield sums over points of one row and of a fleet's rows: kernels that prepare them, and blocks of GPUs of 9.0."""
    answers = {"capability": lambda device: "9.0", "shared_memory": lambda device: SHARED_BYTES[TARGETS[-1]]}
    with mock.patch.multiple(pairwise_affine, **answers):
        for features, precision in (
            (3, "float32"),
            (3, "ten digits"),
            (20, "float32"),
            (20, "ten digits"),
            (20, "float32 pairs"),
            (128, "float32 pairs"),
        ):
            operation = sum_over_points("rbf", features, 150, 1, 2).in_precision(precision)
            for launch in record(operation, [features], rows=1):
                yield (TARGETS[-1], *launch)
        for precision in ("ten digits", "float32 pairs"):
            fleet, widths = OPERATIONS[f"stacked points rbf of 40 to 1 in {precision}"]
            for rows in (1, FEW_MEMBER_ROWS + 1):
                yield from ((TARGETS[-1], *launch) for launch in record(fleet, list(widths), rows=rows))


def of_wide_distances() -> Iterator[Launch]:
    """Yield sums and matrices of Matern 1/2 of many features, in blocks that fit each GPU's shared memory."""
    for target, capability in ((80, ""), (90, "9.0")):
        shared = SHARED_BYTES[target] - RESERVED_BYTES
        answers = {"capability": lambda device, c=capability: c, "shared_memory": lambda device, s=shared: s}
        with mock.patch.multiple(pairwise_affine, **answers):
            for precision, rows in itertools.product(("ten digits", "float32 pairs"), (1, ROWS)):
                operation = sum_over_points("matern_1_2", 128, 150, 1, 2).in_precision(precision)
                for launch in record(operation, [128], rows=rows):
                    yield (target, *launch)
        for launch in record(matrix("matern_1_2", 128, 150).in_precision("ten digits"), [128]):
            yield (target, *launch)


def bounded_for_few_rows() -> Iterator[Launch]:
    """Yield searches for few rows among many points, by bounds of parts; fewer points stand for the many."""
    listed, search_shapes.LISTED = search_shapes.LISTED, dict.fromkeys(search_shapes.LISTED, 0)
    try:
        for name, capability, rows in (
            ("neighbors in groups", TARGETS[0], 17),
            ("neighbors in wide groups", TARGETS[-1], 1),
        ):
            operation, widths = IN_GROUPS[name]
            yield from ((capability, *launch) for launch in record(operation, list(widths), rows=rows))
    finally:
        search_shapes.LISTED = listed


BY_DIGITS = (
    "sums_within_kernel",
    "digit_layers_kernel",
    "resident_layers_kernel",
    "digit_layer_kernel",
    "digit_norm_kernel",
    "pairwise_digits_kernel",
    "stacked_pairwise_digits_kernel",
    "stacked_digit_layers_kernel",
    "stacked_sums_of_pairs_kernel",
    "sums_of_pairs_kernel",
)


def capabilities_of(capabilities: list[int], kernel: JITFunction[Any], arguments: dict[str, Any]) -> list[int]:
    """Return the capabilities to compile for: the oldest that gets a launch, which has the least shared memory.

    Kernels with a constant for matrix units differ before 8.0 and from 8.0 on.
    """
    if needs_matrix_units(kernel, arguments):
        return capabilities[-1:]
    return capabilities if {"PRECISION", "MATRIX_UNITS"} & arguments.keys() else capabilities[:1]


def needs_matrix_units(kernel: JITFunction[Any], arguments: dict[str, Any]) -> bool:
    """Return whether a GPU of capability 7.5 never gets a launch."""
    return arguments.get("WAY") == "digits" or kernel.__name__ in BY_DIGITS


SYMMETRIC = tuple(f"symmetric trees{kind}" for kind in ("", " of many depths", " in groups", " float64"))


def in_parts() -> Iterator[Launch]:
    """Yield sums of trees in parts: the other ensembles have too few trees for them."""
    for name in ("many trees", "trees in groups"):
        operation, widths = OPERATIONS[name]
        with tree_ensemble_shape.trying({"BLOCK_ROWS": 32, "ELEMENTS": 128, "PARTS": True}):
            for launch in record(operation, list(widths)):
                yield from ((capability, *launch) for capability in TARGETS)


def of_many_rows() -> Iterator[Launch]:
    """Yield sums of symmetric trees for many rows, in parts and whole."""
    with mock.patch.object(tree_launch, "FEW_PAIRS", 0):
        for name in SYMMETRIC:
            operation, widths = OPERATIONS[name]
            for dtype, capability in ((torch.float32, TARGETS[0]), (torch.float64, TARGETS[-1])):
                for launch in record(operation, list(widths), dtype):
                    yield (capability, *launch)


def gathered() -> Iterator[Launch]:
    """Yield launches that bring the rows of requests to a GPU."""
    for dtype, nan_columns in itertools.product(("float32", "float64"), ((), (3,))):
        gathering = Gathering(8, nan_columns, dtype, torch.device("cpu"))
        target = torch.empty(ROWS, 8, dtype=getattr(torch, dtype))
        for launch in launched_by(lambda g=gathering, t=target: g.launch(t, 0, ROWS)):
            yield from ((capability, *launch) for capability in TARGETS)


def resident() -> Iterator[Launch]:
    """Yield launches that read rows in a GPU's memory, few in a graph and many, and answer there."""
    plan = Plan(8, (Step(Affine(np.ones((8, 1)), np.zeros(1)), ("X",), "v0"),), {"y": "v0"})
    for dtype, nan_columns in itertools.product(("float32", "float64"), ((), (3,))):
        kind, device = getattr(torch, dtype), torch.device("cpu")
        answers = Resident(Program(plan, device), Lane(()), Gathering(8, nan_columns, dtype, device), kind)
        for given in (torch.empty(ROWS, 8, dtype=kind), torch.empty(2**17, 8, dtype=kind)):
            for launch in launched_by(lambda a=answers, x=given: a.answer(x, ("y",))):
                yield from ((capability, *launch) for capability in TARGETS)


def tabled() -> Iterator[Launch]:
    """Yield a launch in each shape that a GPU measured to be better than the default."""
    for each in shape_classes(MEASURED, toy=True):
        for gpu, operations in table().items():
            shape = operations.get(each.shapes.operation, {}).get(each.key)
            if shape is not None:
                with each.shapes.trying(shape):
                    for launch in record(each.models[0].operation, [each.models[0].width]):
                        yield (int(gpu.replace(".", "")), *launch)
