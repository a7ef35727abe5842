"""Pairwise, then affine: `out[r, t] = g(Σᵢ k(z_r, sᵢ) · weight[i, t] + intercept[t])`.

`k`, the points and `z` are those of `function.py`; `weight`: `[P, targets]` float64;
`intercept`: `[targets]` float64; `g`: a function of `numerics/functions.py`; `out`: `[rows, targets]`. The matrix of
`k` exists in registers only and is summed in float64. With the precisions "float32" and "float32 pairs" only the sums
within a block are float32 or pairs.

If one program goes through all the points, a few rows leave most of a GPU idle. Kernels therefore make a sum over many
points in `parts`, each over a range of points that depends on the model alone. `out` is then `[rows, parts · targets]`,
part by part, `g` is the identity, and an affine step adds the parts up. The number of parts that one program makes
depends on the number of rows, which changes no sum. A plan on disk, and a CPU, have the sum in one part.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from triton.runtime.jit import JITFunction

from ...cpu.tiles import apply, product
from ...format.errors import PlanError
from ...numerics.fast_math import LEAST_HIGH
from ...numerics.functions import FUNCTIONS, function_suffix
from ...numerics.powers import whole
from ...plan.devices import has_many_float64_units, shared_memory
from ...plan.launch_shapes import capability
from ...plan.plan import Operation, Parameters
from ..linear.contraction import Contraction
from ..linear.launch import target_block
from .cpu_function import PointMatrix
from .function import MOST_DIGIT_FEATURES, PointFunction, digit_features
from .l1_chi2 import rows_as_columns, rows_as_columns_kernel
from .l1_chi2_pairs import column_pairs_kernel, launch_column_pairs
from .launch import (
    AT_ONCE,
    DISTANCES,
    EXPONENTIAL_PAIRS,
    FEW_FEATURES,
    MOST_BLOCK_POINTS,
    Shape,
    digit_shape,
    for_few_rows,
    for_members,
    own_rows,
    parts_of_a_program,
    rows_of_a_program,
    slots,
    sum_shape,
)
from .pairs_host import NO_WEIGHT, fits, tables
from .pairs_kernel import sums_of_pairs_kernel
from .parts import least_points, part_count, sum_of_parts
from .row_digits import rows_as_digits, rows_as_digits_kernel
from .sum_kernel import pairwise_affine_kernel

MAX_TARGETS = 64
MOST_PAIRS = 2**29  # numbers of points' digits
EMULATED_ROWS, EMULATED_POINTS = 128, 2048  # at a time
SIGN = 2048  # in an exponent of `exp2_of_fixed`
PAIR_TABLES = ("shift", "factor", "numbers", "digits", "offsets", "least", "weight", "intercept")
BY_TABLES = ("products", "digits", "columns")  # ways with the points' summands in a table


class Kernels(NamedTuple):
    """The kernels of a sum: those that add up, and those that prepare many rows."""

    sums: JITFunction[Any]
    pairs: JITFunction[Any]
    column_pairs: JITFunction[Any]
    digits: JITFunction[Any]
    columns: JITFunction[Any]


KERNELS = Kernels(
    pairwise_affine_kernel,
    sums_of_pairs_kernel,
    column_pairs_kernel,
    rows_as_digits_kernel,
    rows_as_columns_kernel,
)
"""The kernels of one model."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseAffine(Contraction, PointFunction):
    """Contract the function of each row and each point with weights as soon as it is computed."""

    parts: int = 1

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_points(features)
        self.check_contraction(len(self.points))
        if self.parts < 1 or (self.parts > 1 and self.function != "identity"):
            raise PlanError(f"pairwise_affine: parts must be at least 1, and 1 before {self.function}.")

    def output_width(self, *widths: int) -> int:
        return self.parts * self.weight.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        unused: dict[str, np.ndarray] = {
            "digits": np.zeros(1, np.float16),
            "products": np.zeros(1),
            "offsets": np.zeros(1),
        }
        found = {**unused, **super().parameters(), "weight": self.weight, **self.plain_parameters()}
        found["least"] = np.zeros(1, np.int32)
        if self.weighed:
            negative, size = self.weight[:, 0] < 0, np.abs(self.weight[:, 0])
            found["offsets"] = found["offsets"] + np.log2(np.where(size > 0, size, NO_WEIGHT)) + SIGN * negative
            found["least"] = (LEAST_HIGH.value + SIGN * negative).astype(np.int32)
        if self.precision == "float32 pairs":
            found |= tables(self.function_of_pairs(), found, self.weight[:, 0])
            if not self.by_distance():
                found["points"] = np.zeros(1)
            return {name: found[name] for name in (*PAIR_TABLES, "products" if self.way() == "columns" else "points")}
        if self.precision == "float32":
            found["offsets"] = found["offsets"].astype(np.float32)
            if self.way() != "columns":
                found["products"] = found["products"].astype(np.float32)
            found["weight"] = self.weight if self.weight.shape[1] > 1 else self.weight.astype(np.float32)
        return found

    def precisions(self) -> tuple[str, ...]:
        """Return the function's precisions, plus float32 pairs if the sum of one target fits them."""
        found = super().precisions()
        return tuple(
            name for name in self.PRECISIONS if name in found or (name == "float32 pairs" and self._fits_pairs)
        )

    def on_device(self, device: torch.device) -> PairwiseAffine:
        """Return the operation, in ten digits instead of pairs on GPUs where these are at least as fast.

        They are on GPUs with many float64 units, except for exponential functions of squared distances and fractional
        powers with many features. They also are on GPUs without matrix units, except for the way of columns.
        """
        faster = (self.profile == "exp" and self.metric == "squared_euclidean") or (
            self.profile == "power" and whole(self.exponent) is None
        )
        faster &= self.points.shape[1] > FEW_FEATURES
        suited = faster or not has_many_float64_units(device)
        if self.way() != "columns":
            suited &= shared_memory(device) > 0
        if self.precision != "float32 pairs" or suited:
            return self
        return dataclasses.replace(self, precision="ten digits")

    def in_steps(self) -> tuple[Operation, ...]:
        """Return the sum in parts and the step that adds them up, if there are more points than a part has."""
        points, targets = self.weight.shape
        if self.parts > 1 or points <= least_points(self.precision):
            return (self,)
        parts = part_count(points, targets, self.precision)
        if self.precision != "float64":  # parts of whole blocks may be fewer
            parts = -(-points // dataclasses.replace(self, parts=parts, function="identity").part_points())
        in_parts = dataclasses.replace(self, parts=parts, function="identity")
        return in_parts, sum_of_parts(parts, targets, self.function)

    @functools.cached_property
    def _fits_pairs(self) -> bool:
        """Return whether there is one target, and pairs support the function and the numbers."""
        points, features = self.points.shape
        if self.metric in ("manhattan", "chi2"):
            sums = np.abs(self.points).sum(axis=1)
            return self._by_columns and self.weight.shape[1] == 1 and fits(self.function_of_pairs(), sums, self.weight)
        if self.weight.shape[1] > 1 or features > MOST_DIGIT_FEATURES or points * digit_features(features) > MOST_PAIRS:
            return False
        numbers = self.points - np.where(self.factor != 0, self.points.mean(axis=0), 0.0)
        return fits(self.function_of_pairs(), np.einsum("pf,pf->p", numbers, numbers), self.weight)

    @functools.cached_property
    def weighed(self) -> bool:
        """Return whether weights are part of the exponents: those of one target are, with ten digits."""
        return (
            self.precision == "ten digits"
            and self.profile == "exp"
            and self.weight.shape[1] == 1
            and self.way() in BY_TABLES
            and self.metric != "euclidean"
            and bool(np.isfinite(self.weight).all())
        )

    def plain_parameters(self) -> dict[str, np.ndarray]:
        intercept = np.zeros((self.parts, len(self.intercept)))
        intercept[0] = self.intercept  # no branch in the kernel: ptxas 12.8 miscompiles a selected accumulator
        return {"intercept": intercept.ravel()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        k, weight, size = self.values(inputs[0]), torch.tensor(self.weight), self.part_points()
        parts = [slice(part * size, (part + 1) * size) for part in range(self.parts)]
        sums = [k[:, points] @ weight[points] for points in parts]
        return FUNCTIONS[self.function](torch.cat(sums, dim=1) + parameters["intercept"])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        answer = self.no_sums(x.shape[0])
        for start, k in self.plain_weights[0].tiles(x):
            self.sum_tile(k, answer[start : start + k.shape[0]])
        return self.finish_sums(parameters, answer)

    def no_sums(self, rows: int) -> torch.Tensor:
        """Return zeros that the sums of `rows` rows will replace."""
        return torch.zeros(rows, self.parts * self.weight.shape[1], dtype=torch.float64)

    def sum_tile(self, k: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sums of the functions `[rows, columns]` of some rows and all points; `k` may be changed."""
        rows, targets, weight = k.shape[0], self.weight.shape[1], self.plain_weights[1]
        if targets == 1:
            torch.sum(k.mul_(weight).view(rows, self.parts, -1), 2, out=out)
            return
        size = self.part_points()
        for part, point in enumerate(range(0, len(weight), size)):
            columns = slice(part * targets, (part + 1) * targets)
            out[:, columns] = product(
                k[:, point : point + size][:, : len(weight) - point], weight[point : point + size]
            )

    def finish_sums(self, parameters: Parameters, sums: torch.Tensor) -> torch.Tensor:
        """Apply the steps after the sums, in place, and return the result."""
        sums += parameters["intercept"]
        return sums if self.function == "identity" else apply(FUNCTIONS[self.function], sums)

    @functools.cached_property
    def plain_weights(self) -> tuple[PointMatrix, torch.Tensor]:
        """Return the matrix in plain torch, and its weights: one row for one target, zero past the last point."""
        if self.weight.shape[1] > 1:
            return self.plain(), torch.from_numpy(np.array(self.weight, order="C"))
        plain = self.plain(self.parts * self.part_points() if self.parts > 1 else 0)
        return plain, torch.from_numpy(np.pad(self.weight[:, 0], (0, plain.columns - len(self.weight))))

    def launches(self, inputs: int) -> int:
        """Return 2 if a kernel of its own prepares many rows, else 1."""
        return 2 if self.way() in ("digits", "columns") else 1

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        points = {"POINTS": len(self.points), "PARTS": self.parts, "PART_POINTS": self.part_points()}
        self.launch_kernels(KERNELS, parameters, inputs[0], output, rows, self.parts, {}, points)

    def launch_kernels(
        self,
        kernels: Kernels,
        parameters: Parameters,
        x: torch.Tensor,
        output: torch.Tensor,
        rows: int,
        parts: int,
        of_rows: Mapping[str, Any],
        of_points: Mapping[str, Any],
    ) -> None:
        """Launch kernels of one model or of a fleet on the first rows of `x`; this is one of the fleet's operations.

        Args:
            kernels: the kernels.
            parameters: the tables of the model or of all models.
            x: `[rows or more, features]`.
            output: `[rows or more, parts · targets or more]`.
            rows: the number of rows.
            parts: the most parts of a sum.
            of_rows: further arguments of the kernels that prepare rows of a fleet, `members` among them.
            of_points: further arguments of the kernels that sum: how many points and parts there are.
        """
        device, targets, members = parameters["numbers"].device, self.weight.shape[1], of_rows.get("members")
        way, shape = self._schedule(device, rows, members)
        pairs, features = self.precision == "float32 pairs", self.points.shape[1]
        function = {"FEATURES": features, "FUNCTION": self.function, **of_points}
        if way == "columns":
            columns = rows_as_columns(parameters, x, rows, self.metric, pairs, kernels.columns, of_rows)
            if pairs:
                launch_column_pairs(
                    kernels.column_pairs, parameters, columns, output, rows, parts, function, self.metric, shape
                )
                return
        block_targets = 1 if targets == 1 else target_block(targets)
        at_once = int(slots(device) // shape.warps * AT_ONCE.get(way, 1.0))
        program_rows = shape.rows
        if members:
            program_rows = function["program_rows"] = rows_of_a_program(rows, shape.rows, at_once)
        row_blocks, target_blocks = triton.cdiv(rows, program_rows), triton.cdiv(targets, block_targets)
        program_parts = 1
        if self.precision != "float64":  # float64's parts are long, so a program makes one
            program_parts = parts_of_a_program(row_blocks * target_blocks, parts, at_once)
        own = way == "digits" and self.precision != "float32" and not self.by_distance()
        own_digits = own_rows(rows, capability(device)) if own else 0
        row_digits, row_terms = parameters["digits"], parameters["numbers"]
        if way == "digits" and not own_digits:
            digits = self.digits_shape()
            row_digits, row_terms = rows_as_digits(parameters, x, rows, self.metric, digits, kernels.digits, of_rows)
        elif way == "columns":
            row_digits, row_terms = columns
        arguments = {"x": x, "row_digits": row_digits, "row_terms": row_terms, "out": output, "rows": rows}
        arguments |= function | {
            "program_parts": program_parts,
            "METRIC": self.metric,
            "PROFILE": self.profile,
            "WHOLE": whole(self.exponent),
            "OWN_ROWS": own_digits,
            "BLOCK_FEATURES": shape.features,
            "BLOCK_ROWS": shape.rows,
            "BLOCK_POINTS": shape.points,
            "num_warps": shape.warps,
            "num_stages": shape.stages,
        }
        grid = (row_blocks, triton.cdiv(parts, program_parts), target_blocks)
        if pairs:
            kernels.pairs[grid](**parameters, **arguments)
            return
        kernels.sums[grid](
            **parameters,
            **arguments,
            PIECES=self.table.shape[0],
            TERMS=self.table.shape[1],
            WAY=way,
            APPROXIMATE=self.precision != "float64",
            SHORT=self.precision == "float32" and way in BY_TABLES,
            WEIGHED=self.weighed and way in BY_TABLES,
            BY_POINTS=shape.by_points,
            TARGETS=targets,
            BLOCK_TARGETS=block_targets,
        )

    def _schedule(self, device: torch.device, rows: int, members: int | None) -> tuple[str, Shape]:
        """Return the way on a device, and the block of a program for `rows` rows, if given of a fleet's members."""
        features, way, shape = self.points.shape[1], self.way(), None
        if way == "digits":
            first = (EXPONENTIAL_PAIRS,) if self.precision == "float32 pairs" and self.profile == "exp" else ()
            if self.by_distance():
                first = (DISTANCES,)
            shape = digit_shape(digit_features(features), shared_memory(device), self.digits(), first)
            if shape is None:
                way = "expanded" if self.expanded() else "features"
        shape = shape or sum_shape(way, features, self.metric, self.precision)
        if members:
            return way, for_members(shape, way, rows, members, capability(device))
        return way, for_few_rows(shape, way, rows, capability(device))

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        (x,), size, count = inputs, self.part_points(), len(self.points)
        parameters, cut = PointFunction.parameters(self), self.way() in ("products", "digits")
        at_once = min(size, EMULATED_POINTS) if cut else size
        answer = np.empty((len(x), self.output_width()))
        for start in range(0, len(x), EMULATED_ROWS):
            rows = x[start : start + EMULATED_ROWS]
            whole = None if cut else self.emulated(rows, parameters)
            sums = np.zeros((len(rows), self.parts, self.weight.shape[1]))
            sums[:, 0] = self.intercept
            for part in range(self.parts):
                end = min((part + 1) * size, count)
                for first in range(part * size, end, at_once):
                    points = slice(first, min(first + at_once, end))
                    matrix = self.emulated(rows, parameters, points) if whole is None else whole[:, points]
                    sums[:, part] += self._emulated_sums(matrix, self.weight[points])
            answer[start : start + EMULATED_ROWS] = sums.reshape(len(rows), -1)
        found: np.ndarray = FUNCTIONS[self.function](torch.from_numpy(answer)).numpy()
        return found

    def _emulated_sums(self, matrix: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return the products of the matrix with the weights, in the precision of the kernel."""
        if self.precision != "float32" or weight.shape[1] > 1:
            return matrix @ weight
        terms, blocks = matrix * weight[:, 0].astype(np.float32), range(0, len(weight), MOST_BLOCK_POINTS)
        sums = [terms[:, start : start + MOST_BLOCK_POINTS].sum(axis=1) for start in blocks]
        return np.array(sums).sum(axis=0, dtype=np.float64)[:, None]

    def part_points(self) -> int:
        """Return how many points a part covers: whole blocks, whatever their shape."""
        return triton.cdiv(triton.cdiv(len(self.points), self.parts), MOST_BLOCK_POINTS) * MOST_BLOCK_POINTS

    def columns(self) -> int:
        """Return the number of the points' columns, padded to a whole last part."""
        return self.parts * self.part_points()

    def describe(self) -> str:
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        shape = f"{self.points.shape[1]} → {self.weight.shape[1]}"
        return f"{shape} by {self.what()}{parts}" + function_suffix(self.function)


def contract(
    first: PointFunction, weight: np.ndarray, intercept: np.ndarray, function: str = "identity"
) -> PairwiseAffine | None:
    """Return the operation that does both, in one part.

    The result is None for more targets than one program makes: each block of them would compute the matrix anew.
    """
    if weight.shape[1] > MAX_TARGETS:
        return None
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(first)}
    return PairwiseAffine(**fields, weight=weight, intercept=intercept, function=function)
