"""DenseLayers: `out = g(… f(f((x) W₁ + b₁) W₂ + b₂) … Wₙ + bₙ)`, all layers of a neural network.

`x`: `[rows, widths[0]]`, float32 or float64; `Wₗ`: `[widths[l − 1], widths[l]]`, and `bₗ`: `[widths[l]]`, float64, lie
one after the other in `weights` and `intercepts`; `f`: one of `ACTIVATIONS`; `g`: a function of
`numerics/functions.py`; `out`: `[rows, widths[n]]`, float32 or float64. A feature without any weight in `W₁` is
ignored: it may be NaN.

`precision` says how the hidden layers are computed. "float64" takes one launch for each layer, on the float64 matrix
units. "int8" uses digits of eight bits, exact to about nine decimal digits (`int8_fused.py`); GPUs without matrix units
for them use "float64" instead. "float16" takes one launch for all layers, with three products of float16 numbers, about
as exact as float32 sums (`float16_fused.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...plan.devices import has_matrix_units
from ...plan.plan import Operation, Parameters
from ..linear.affine_kernel import launch_affine
from ..linear.launch import target_block
from .cpu_layers import PlainLayers
from .float16_fused import emulated_float16_layers, float16_tables, launch_float16_layers
from .int8_fused import launch_digit_layers
from .int8_tables import LARGEST_WIDTH, digit_tables, emulated_digit_layers
from .launch import float16_blocks

ACTIVATIONS = ("identity", "relu", "tanh", "expit")
"""The functions that hidden layers may apply; all are finite wherever their argument is."""


@dataclass(frozen=True, eq=False)
class DenseLayers(Operation):
    """Affine maps with a function of each element between them, and another function at the end."""

    weights: np.ndarray
    intercepts: np.ndarray
    shift: np.ndarray
    widths: tuple[int, ...]
    activation: str
    function: str = "identity"
    precision: str = "float64"

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64", "int8", "float16")

    def precisions(self) -> tuple[str, ...]:
        wide = max(self.widths[:-1]) > LARGEST_WIDTH
        return tuple(precision for precision in self.PRECISIONS if not (wide and precision == "int8"))

    def on_device(self, device: torch.device) -> DenseLayers:
        """Return the operation, in float64 instead of digits on GPUs without matrix units for digits."""
        if self.precision != "int8" or has_matrix_units(device):
            return self
        return dataclasses.replace(self, precision="float64")

    def check(self, *widths: int) -> None:
        (features,) = widths
        if len(self.widths) < 3 or min(self.widths) < 1 or self.widths[0] != features:
            raise PlanError(f"dense_layers: widths must be {features} and at least two more, not {list(self.widths)}.")
        sizes = {
            "weights": sum(inputs * units for inputs, units in itertools.pairwise(self.widths)),
            "intercepts": sum(self.widths[1:]),
            "shift": features,
        }
        for name, size in sizes.items():
            if getattr(self, name).shape != (size,):
                raise PlanError(f"dense_layers: {name} must be [{size}], not {list(getattr(self, name).shape)}.")
        if self.activation not in ACTIVATIONS:
            raise PlanError(f"dense_layers: activation must be one of {ACTIVATIONS}, not '{self.activation}'.")
        check_function(self.function)
        self.check_precision()

    def output_width(self, *widths: int) -> int:
        return self.widths[-1]

    def layers(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the weight `[features, units]` and intercept `[units]` of each layer."""
        first = begin = 0
        for features, units in itertools.pairwise(self.widths):
            weight = self.weights[first : first + features * units].reshape(features, units)
            yield weight, self.intercepts[begin : begin + units]
            first, begin = first + features * units, begin + units

    def parameters(self) -> dict[str, np.ndarray]:
        layers, used = list(self.layers()), self.plain_parameters()
        if self.precision == "int8":
            return used | digit_tables(layers, self.shift, self.activation)
        if self.precision == "float16":
            return used | float16_tables(layers, self.shift)
        for index, (weight, intercept) in enumerate(layers):
            used |= {f"weight{index}": weight, f"intercept{index}": intercept}
        return used

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return a mask of the features with any weight in the first layer, unless all have one."""
        used: np.ndarray = (next(self.layers())[0] != 0).any(axis=1)
        return {} if used.all() else {"used": used.astype(np.float32)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        h = inputs[0].double()
        if "used" in parameters:
            h = torch.where(parameters["used"] != 0, h, 0.0)
        for (weight, intercept), function in zip(self.layers(), self._functions(), strict=True):
            h = FUNCTIONS[function](h @ torch.tensor(weight) + torch.tensor(intercept))
        return h

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        if "used" in parameters:
            x = torch.where(parameters["used"] != 0, x, 0.0)
        return self._plain.outputs(x)

    @functools.cached_property
    def _plain(self) -> PlainLayers:
        return PlainLayers(self.layers(), self._functions())

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        if self.precision == "float64":
            self.launch_layers(parameters, x, output, rows)
            return
        launch = launch_digit_layers if self.precision == "int8" else launch_float16_layers
        constants = {
            "ACTIVATION": self.activation,
            "FUNCTION": self.function,
            "SHIFTED": bool(self.shift.any()),
            "SPARSE": "used" in parameters,
        }
        launch(parameters, x, output, rows, self.widths, constants)

    def launch_layers(
        self,
        parameters: Parameters,
        x: torch.Tensor,
        output: torch.Tensor,
        rows: int,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        """Launch the layers one after the other, in float64; parameters are stacked if there are `members`."""
        for index, (units, function) in enumerate(zip(self.widths[1:], self._functions(), strict=True)):
            weight, intercept = parameters[f"weight{index}"], parameters[f"intercept{index}"]
            last, sparse = index == len(self.widths) - 2, index == 0 and "used" in parameters
            out = output if last else torch.empty(rows, units, dtype=torch.float64, device=weight.device)
            launch_affine(x, weight, intercept, out, rows, function, sparse=sparse, members=members)
            x = out

    def launches(self, inputs: int) -> int:
        """Return how many kernels `launch` starts for many rows; for few rows, wide layers by digits take one each."""
        return len(self.widths) - 1 if self.precision == "float64" else 1

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        (x,), used = inputs, self.plain_parameters()
        if self.precision == "float64":
            tensors = {name: torch.from_numpy(array) for name, array in used.items()}
            exact: np.ndarray = self.compute_on_cpu(tensors, torch.from_numpy(x)).numpy()
            return exact
        by_digits = self.precision == "int8"
        emulated = emulated_digit_layers if by_digits else emulated_float16_layers
        shift = self.shift if by_digits else self.shift.astype(np.float32)
        z = np.where(used.get("used", 1.0) != 0, x - shift, 0.0)
        sums = emulated(z, list(self.layers()), self.shift, self.activation)
        found: np.ndarray = FUNCTIONS[self.function](torch.from_numpy(sums)).numpy()
        return found

    def reads_input_once(self) -> bool:
        in_float16 = self.precision == "float16"
        block = float16_blocks(self.widths)["BLOCK_UNITS"] if in_float16 else target_block(self.widths[1])
        return self.widths[1] <= block

    def writes_rows_whole(self) -> bool:
        return True

    def describe(self) -> str:
        shown = " → ".join(map(str, self.widths))
        return f"{shown}, {self.activation} between, in {self.precision}" + function_suffix(self.function)

    def _functions(self) -> list[str]:
        """Return the function of each layer."""
        return [self.activation] * (len(self.widths) - 2) + [self.function]
