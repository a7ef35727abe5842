"""DenseLayers: `out = g(… f(f((x) W₁ + b₁) W₂ + b₂) … Wₙ + bₙ)`, all layers of a neural network in one launch.

`x`: `[rows, widths[0]]`, float32 or float64; `Wₗ`: `[widths[l − 1], widths[l]]`, and `bₗ`: `[widths[l]]`, float64, lie
one after the other in `weights` and `intercepts`; `f`: one of `ACTIVATIONS`; `g`: a function of `functions.py`; `out`:
`[rows, widths[n]]`, float32 or float64. A feature without any weight in `W₁` is not looked at: it may be NaN.

`precision` says how the hidden layers are computed: in "float64" one layer after the other, a launch each, on the
float64 matrix units; in "int8" all in one launch, by digits of eight bits, as exact as some nine decimal digits
(`digit_layers.py`), or as in "float64" on GPUs where that takes no longer; or in "float16" all in one launch, as three
products of float16 numbers. Each number is then the sum of two, which hold 22 bits of it: the rows' numbers are
multiplied by a power of two for each row and block of columns first, the weights by one for each column, so that none
is too large or too small. The product of the two lower parts is left out. Matrix units round sums towards zero, so they
add up few products each, and what they found is added up in float32. The input is shifted before, by what takes most of
it away where features lie far from zero. The last layer is summed in float32, its intercept added in float64. All this
loses about as much as float32 sums do.

A program takes a block of rows through all layers. What a layer makes lies in a workspace of the program, which a GPU
keeps in its second-level cache; the last hidden layer is multiplied with the output's weights before it is written.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ..affine_map import launch_affine
from ..contraction import target_block
from ..devices import multiplies_float16
from ..digit_layers import (
    LARGEST_WIDTH,
    NARROW,
    computes_by_digits,
    digit_layers_kernel,
    digit_shape,
    digit_tables,
    emulated_digit_layers,
    whole_width,
)
from ..errors import PlanError
from ..float16_parts import (
    ROW_TOP,
    add_products,
    column_parts,
    float16_parts,
    multiply_parts,
    row_parts,
)
from ..functions import FUNCTIONS, apply_function, check_function, function_suffix
from ..plain_layers import PlainLayers
from ..plan import Operation, Parameters

ACTIVATIONS = ("identity", "relu", "tanh", "expit")
"""What hidden layers may apply: functions that are finite wherever their argument is."""

BLOCK_ROWS = 64
MAX_BLOCK_UNITS = 128
MAX_BLOCK_FEATURES = 32
MAX_BLOCK_INNER = 32
FIRST_STAGES = 1
STAGES = 3
PROGRAMS_PER_MULTIPROCESSOR = 2


@triton.jit(do_not_specialize=["rows"])
def dense_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float32 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for a feature that is not looked at
    shapes,  # int32 [HIDDEN, 3]: of each hidden layer the features, units and where its weights begin
    weight,  # float16 like the next: of each layer and block of units [features, BLOCK_UNITS]
    weight_low,
    scale,  # float32 like the next two [HIDDEN, WIDTH]
    intercept,  # [HIDDEN, WIDTH]
    last_weight,  # [TARGETS, WIDTH]
    last_intercept,  # float64 [TARGETS]
    values,  # float16 [programs, 2, 2, BLOCK_ROWS, WIDTH]
    scales,  # float32 [programs, 2, BLOCK_ROWS, WIDTH / BLOCK_UNITS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FUNCTION: tl.constexpr,
    MATRIX_UNITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    ROW_TOP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_UNITS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    FIRST_STAGES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers, in blocks of units."""
    PART: tl.constexpr = BLOCK_ROWS * WIDTH
    BLOCKS: tl.constexpr = WIDTH // BLOCK_UNITS
    mine = tl.arange(0, BLOCK_ROWS)
    unit = tl.arange(0, BLOCK_UNITS)
    inner = tl.arange(0, BLOCK_INNER)
    target = tl.arange(0, BLOCK_TARGETS)
    program = tl.program_id(0).to(tl.int64)
    values += program * (4 * PART)
    scales += program * (2 * BLOCK_ROWS * BLOCKS)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + mine.to(tl.int64)
        y = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float32)
        for layer in tl.range(0, HIDDEN, num_stages=1):
            features = tl.multiple_of(tl.load(shapes + 3 * layer), 16)
            units = tl.load(shapes + 3 * layer + 1)
            first = tl.multiple_of(tl.load(shapes + 3 * layer + 2), 16)
            source, own = (layer + 1) % 2, layer % 2
            for start in tl.range(0, units, BLOCK_UNITS, num_stages=1):
                column = start + unit
                total = tl.zeros([BLOCK_ROWS, BLOCK_UNITS], tl.float32)
                w = weight + first + start * features
                w_low = weight_low + first + start * features
                if layer == 0:
                    for begin in tl.range(0, features, BLOCK_FEATURES, num_stages=FIRST_STAGES):
                        feature = begin + tl.arange(0, BLOCK_FEATURES)
                        real = feature < FEATURES
                        at = feature[:, None] * BLOCK_UNITS + unit[None, :]
                        inside = (row < rows)[:, None] & real[None, :]
                        if SPARSE:
                            inside &= (tl.load(used + feature, mask=real, other=0.0) != 0.0)[None, :]
                        u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
                        if SHIFTED:
                            u = tl.where(inside, u - tl.load(shift + feature, mask=real, other=0.0)[None, :], 0.0)
                        high, low, factor = float16_parts(u.to(tl.float32), ROW_TOP)
                        w_tile, w_low_tile = tl.load(w + at), tl.load(w_low + at)
                        total = multiply_parts(high, low, factor, w_tile, w_low_tile, total, MATRIX_UNITS)
                else:
                    for begin in tl.range(0, features, BLOCK_INNER, num_stages=STAGES):
                        at = (begin + inner)[:, None] * BLOCK_UNITS + unit[None, :]
                        place = values + source * (2 * PART) + mine[:, None] * WIDTH + (begin + inner)[None, :]
                        high, low = tl.load(place), tl.load(place + PART)
                        factor = tl.load(scales + (source * BLOCK_ROWS + mine) * BLOCKS + begin // BLOCK_UNITS)
                        w_tile, w_low_tile = tl.load(w + at), tl.load(w_low + at)
                        total = multiply_parts(high, low, factor, w_tile, w_low_tile, total, MATRIX_UNITS)
                z = total * tl.load(scale + layer * WIDTH + column)[None, :]
                h = apply_function(z + tl.load(intercept + layer * WIDTH + column)[None, :], ACTIVATION)
                if layer < HIDDEN - 1:
                    place = values + own * (2 * PART) + mine[:, None] * WIDTH + column[None, :]
                    high, low, factor = float16_parts(h, ROW_TOP)
                    tl.store(place, high)
                    tl.store(place + PART, low)
                    tl.store(scales + (own * BLOCK_ROWS + mine) * BLOCKS + start // BLOCK_UNITS, factor)
                else:
                    for t in tl.range(0, TARGETS, num_stages=1):
                        part = tl.sum(h * tl.load(last_weight + t * WIDTH + column)[None, :], axis=1)
                        y += tl.where((target == t)[None, :], part[:, None], 0.0)
            tl.debug_barrier()  # the next layer reads what other threads wrote
        b = tl.load(last_intercept + target, mask=target < TARGETS, other=0.0)
        answer = apply_function(y.to(tl.float64) + b[None, :], FUNCTION)
        inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
        tl.store(out + row[:, None] * TARGETS + target[None, :], answer.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class DenseLayers(Operation):
    """Affine maps with a function of each element between them, and one at the end."""

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
        """Return each layer, and in float16 the tables of the one launch beside them."""
        tables = self.plain_parameters()
        for index, (weight, intercept) in enumerate(self.layers()):
            tables |= {f"weight{index}": weight, f"intercept{index}": intercept}
        if self.precision == "int8":
            return tables | digit_tables(list(self.layers()), self.shift, self.activation)
        return tables if self.precision == "float64" else tables | self._tables()

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return which features have any weight in the first layer, unless all have."""
        used: np.ndarray = (next(self.layers())[0] != 0).any(axis=1)
        return {} if used.all() else {"used": used.astype(np.float32)}

    def _padded(self) -> Iterator[np.ndarray]:
        """Yield the weight of each hidden layer, padded to whole blocks."""
        blocks = self._blocks()
        features = _whole(self.widths[0], blocks["BLOCK_FEATURES"])
        for weight, _ in itertools.islice(self.layers(), len(self.widths) - 2):
            padded = np.zeros((features, _whole(weight.shape[1], blocks["BLOCK_UNITS"])))
            padded[: weight.shape[0], : weight.shape[1]] = weight
            yield padded
            features = padded.shape[1]

    def _tables(self) -> dict[str, np.ndarray]:
        """Return the hidden layers in two parts, tile after tile, and the last one."""
        (first_weight, _), *_, (last, last_intercept) = layers = list(self.layers())
        hidden, width, block = list(self._padded()), self._width(), self._blocks()["BLOCK_UNITS"]
        shapes, packed, first = [], [], 0
        scale, intercepts = np.ones((len(hidden), width)), np.zeros((len(hidden), width))
        intercepts[0, : first_weight.shape[1]] = np.einsum("i,ij->j", self.shift, first_weight)
        for index, (weight, (_, intercept)) in enumerate(zip(hidden, layers, strict=False)):
            features, units = weight.shape
            high, low, scale[index, :units] = column_parts(weight)
            packed.append(np.stack([high, low]).reshape(2, features, -1, block).transpose(0, 2, 1, 3).reshape(2, -1))
            intercepts[index, : len(intercept)] += intercept
            shapes.append((features, units, first))
            first += weight.size
        high, low = np.concatenate(packed, axis=1)
        output = np.zeros((self.widths[-1], width))
        output[:, : len(last)] = last.T
        return {
            "shift": self.shift.astype(np.float32),
            "shapes": np.array(shapes, dtype=np.int32),
            "weight": high,
            "weight_low": low,
            "scale": scale.astype(np.float32),
            "intercept": intercepts.astype(np.float32),
            "last_weight": output.astype(np.float32),
            "last_intercept": last_intercept,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        if "used" in parameters:
            x = torch.where(parameters["used"] != 0, x, 0.0)
        return self._plain.outputs(x.cpu()).to(x.device)

    @functools.cached_property
    def _plain(self) -> PlainLayers:
        return PlainLayers(self.layers(), self._functions())

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        device = parameters["weight0"].device  # rows that a GPU reads across the bus lie on the CPU
        by_digits = self.precision == "int8" and computes_by_digits(device, max(self.widths[:-1]))
        if self.precision != "float16":
            launch = self._launch_digits if by_digits else self._launch_layers
            launch(parameters, x, output, rows)
            return
        blocks, width, hidden = self._blocks(), self._width(), len(self.widths) - 2
        programs = min(triton.cdiv(rows, BLOCK_ROWS), program_limit(device))
        size = 2 * programs * BLOCK_ROWS * width if hidden > 1 else width  # of one hidden layer none is read again
        names = ("shift", "shapes", "weight", "weight_low", "scale", "intercept", "last_weight", "last_intercept")
        dense_layers_kernel[(programs,)](
            x=x,
            used=parameters.get("used", parameters["shift"]),
            **{name: parameters[name] for name in names},
            values=torch.empty(2 * size, dtype=torch.float16, device=device),
            scales=torch.empty(size // blocks["BLOCK_UNITS"], dtype=torch.float32, device=device),
            out=output,
            rows=rows,
            FEATURES=self.widths[0],
            HIDDEN=hidden,
            WIDTH=width,
            TARGETS=self.widths[-1],
            ACTIVATION=self.activation,
            FUNCTION=self.function,
            MATRIX_UNITS=multiplies_float16(device),
            SHIFTED=bool(self.shift.any()),
            SPARSE="used" in parameters,
            ROW_TOP=ROW_TOP,
            **blocks,
            FIRST_STAGES=FIRST_STAGES,
            STAGES=STAGES,
            num_warps=4,
        )

    def _launch_digits(self, parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
        """Launch all layers by digits of eight bits."""
        device, width = parameters["weight"].device, whole_width(max(self.widths[1:-1]))
        shape = digit_shape(rows, width, program_limit(device) // PROGRAMS_PER_MULTIPROCESSOR)
        programs = min(triton.cdiv(rows, shape["BLOCK_ROWS"]), program_limit(device))
        names = ("shift", "scale", "shapes", "weight", "limits", "intercept")
        last = ("last_weight", "last_unit", "last_intercept")
        digit_layers_kernel[(programs,)](
            x=x,
            used=parameters.get("used", parameters["shift"]),
            **{name: parameters[name] for name in (*names, *last)},
            values=torch.empty(8 * programs * shape["BLOCK_ROWS"] * width, dtype=torch.int8, device=device),
            out=output,
            rows=rows,
            FEATURES=self.widths[0],
            INPUTS=whole_width(self.widths[0]),
            HIDDEN=len(self.widths) - 2,
            WIDTH=width,
            TARGETS=self.widths[-1],
            ACTIVATION=self.activation,
            FUNCTION=self.function,
            SHIFTED=bool(self.shift.any()),
            SPARSE="used" in parameters,
            BLOCK_TARGETS=triton.next_power_of_2(self.widths[-1]),
            **shape,
        )

    def _launch_layers(self, parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
        """Launch one layer after the other, in float64."""
        for index, (units, function) in enumerate(zip(self.widths[1:], self._functions(), strict=True)):
            weight, intercept = parameters[f"weight{index}"], parameters[f"intercept{index}"]
            last = index == len(self.widths) - 2
            out = output if last else torch.empty(rows, units, dtype=torch.float64, device=weight.device)
            launch_affine(x, weight, intercept, out, rows, function, sparse=index == 0 and "used" in parameters)
            x = out

    def launches(self, inputs: int) -> int:
        in_layers = self.precision == "float64" or (self.precision == "int8" and max(self.widths[:-1]) > NARROW)
        return len(self.widths) - 1 if in_layers else 1  # on some GPUs one of wide layers too

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        """Split, multiply and round as the kernel does; what matrix units add up 16 products at a time is cut off."""
        (x,), tables, blocks = inputs, self.parameters(), self._blocks()
        if self.precision == "float64":
            tensors = {name: torch.from_numpy(np.ascontiguousarray(table)) for name, table in tables.items()}
            exact: np.ndarray = self.reference(tensors, torch.from_numpy(x)).numpy()
            return exact
        if self.precision == "int8":
            z = np.where(tables.get("used", 1.0) != 0, x - self.shift, 0.0)
            sums = emulated_digit_layers(z, list(self.layers()), self.shift, self.activation)
            whole: np.ndarray = FUNCTIONS[self.function](torch.from_numpy(sums)).numpy()
            return whole
        h = np.zeros((len(x), tables["shapes"][0, 0]), dtype=np.float32)
        h[:, : self.widths[0]] = np.where(tables.get("used", 1.0) != 0, x - tables["shift"], 0.0)
        for layer, weight in enumerate(self._padded()):
            (features, units), (w_high, w_low, _) = weight.shape, column_parts(weight)
            total = np.zeros((len(x), units), dtype=np.float32)
            scaled, step = (blocks["BLOCK_UNITS"], blocks["BLOCK_INNER"]) if layer else (blocks["BLOCK_FEATURES"],) * 2
            for begin in range(0, features, scaled):
                high, low, factor = row_parts(h[:, begin : begin + scaled])
                for at in range(0, scaled, step):
                    own, found = slice(at, at + step), np.zeros(total.shape)
                    weights = slice(begin + at, begin + at + step)
                    for left, right in ((low, w_high), (high, w_low), (high, w_high)):
                        found = add_products(found, left[:, own], right[weights])
                    total = (total + found * factor[:, None]).astype(np.float32)
            z = total * tables["scale"][layer, :units] + tables["intercept"][layer, :units]
            h = FUNCTIONS[self.activation](torch.from_numpy(z)).numpy()
        sums = (h[:, None, :] * tables["last_weight"][None, :, : h.shape[1]]).sum(axis=2)
        y = FUNCTIONS[self.function](torch.from_numpy(sums.astype(np.float64) + tables["last_intercept"]))
        answer: np.ndarray = y.numpy()
        return answer

    def reads_input_once(self) -> bool:
        block = self._blocks()["BLOCK_UNITS"] if self.precision == "float16" else target_block(self.widths[1])
        return self.widths[1] <= block

    def describe(self) -> str:
        shown = " → ".join(map(str, self.widths))
        return f"{shown}, {self.activation} between, in {self.precision}" + function_suffix(self.function)

    def _width(self) -> int:
        """Return the width of the widest hidden layer in whole blocks."""
        return _whole(max(self.widths[1:-1]), self._blocks()["BLOCK_UNITS"])

    def _functions(self) -> list[str]:
        """Return the function of each layer."""
        return [self.activation] * (len(self.widths) - 2) + [self.function]

    def _blocks(self) -> dict[str, int]:
        """Return the kernel's tiles, which follow from the widths alone: the order of sums depends on them."""
        block_units = min(max(triton.next_power_of_2(max(self.widths[1:-1])), 16), MAX_BLOCK_UNITS)
        return {
            "BLOCK_ROWS": BLOCK_ROWS,
            "BLOCK_UNITS": block_units,
            "BLOCK_FEATURES": min(max(triton.next_power_of_2(self.widths[0]), 16), MAX_BLOCK_FEATURES),
            "BLOCK_INNER": min(block_units, MAX_BLOCK_INNER),
            "BLOCK_TARGETS": triton.next_power_of_2(self.widths[-1]),
        }


def _whole(size: int, block: int) -> int:
    """Return the size rounded up to whole blocks."""
    return -(-size // block) * block


@functools.cache
def program_limit(device: torch.device) -> int:
    """Return how many programs to start at most: so many as a GPU runs at once, each of which has a workspace."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * PROGRAMS_PER_MULTIPROCESSOR
    return 2
