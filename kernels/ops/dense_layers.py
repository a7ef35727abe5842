"""DenseLayers: `out = g(… f(f((x) W₁ + b₁) W₂ + b₂) … Wₙ + bₙ)`, all layers of a neural network in one launch.

`x`: `[rows, widths[0]]`, float32 or float64; `Wₗ`: `[widths[l − 1], widths[l]]`, and `bₗ`: `[widths[l]]`, float64, lie
one after the other in `weights` and `intercepts`; `f`: one of `ACTIVATIONS`; `g`: a function of `functions.py`; `out`:
`[rows, widths[n]]`, float32 or float64. A feature without any weight in `W₁` is not looked at: it may be NaN.

`precision` says how the hidden layers are computed: "float64" on the float64 matrix units, or "float32" as three
float16 products. For these, each number is the sum of two float16 numbers, which hold 22 bits of it: the rows' numbers
are multiplied by a power of two for each row and block of columns first, the weights by one for each column, so that
none is too large or too small. The product of the two lower parts is left out. Matrix units round sums towards zero, so
they add up few products each, and what they found is added up in float32. The input is shifted before, by what takes
most of it away where features lie far from zero. The last layer is summed in float32, its intercept added in float64.

A program takes a block of rows through all layers. What a layer makes lies in a workspace of the program, which a GPU
keeps in its second-level cache; the last hidden layer is multiplied with the output's weights before it is written.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ..dots import dot
from ..errors import PlanError
from ..functions import FUNCTIONS, apply_function, check_function, function_suffix
from ..plan import Operation, Parameters
from ..tiles import product

ACTIVATIONS = ("identity", "relu", "tanh", "expit")
"""What hidden layers may apply: functions that are finite wherever their argument is."""

Function = Callable[[torch.Tensor], torch.Tensor]

BLOCK_ROWS = 64
MAX_BLOCK_UNITS = 64
MAX_BLOCK_FEATURES = 32
PROGRAMS_PER_MULTIPROCESSOR = 4

ROW_TOP = 13
"""The largest number of a row's block is brought to 2¹³ or more, up to twice as much; float16 ends at 2¹⁶."""

COLUMN_TOP = 10
"""The largest weight of a column likewise."""


@triton.jit
def float16_parts(value, TOP: tl.constexpr):
    """Return two float16 blocks, `high + low = value · 2ᵏ` with 22 bits of it, and `2⁻ᵏ` for each row.

    `value`: float32 `[rows, columns]`. Each row's `k` brings its largest magnitude to `2^TOP` or more; integers make
    the powers of two. What lies beyond 2⁻¹¹⁰ is not brought nearer.
    """
    exponent = tl.max(tl.abs(value), axis=1).to(tl.int32, bitcast=True) & 0x7F800000
    exponent = tl.minimum(tl.maximum(exponent, 0x08000000), 0x7F000000)
    factor = ((0x7F000000 - exponent) + (TOP << 23)).to(tl.float32, bitcast=True)
    scaled = value * factor[:, None]
    high = scaled.to(tl.float16)
    low = (scaled - high.to(tl.float32)).to(tl.float16)
    return high, low, (exponent - (TOP << 23)).to(tl.float32, bitcast=True)


@triton.jit
def multiply_parts(high, low, scale, w_high, w_low, acc, PRECISION: tl.constexpr):
    """Return `acc + (high + low) @ (w_high + w_low) · scale[:, None]`; the smallest products come first.

    Where there are no matrix units for float16, "ieee" multiplies the sums in float32.
    """
    found = tl.zeros(acc.shape, tl.float32)
    if PRECISION == "ieee":
        found = dot(high.to(tl.float32) + low.to(tl.float32), w_high.to(tl.float32) + w_low.to(tl.float32), found)
    else:
        found = dot(low, w_high, found)
        found = dot(high, w_low, found)
        found = dot(high, w_high, found)
    return acc + found * scale[:, None]


@triton.jit(do_not_specialize=["rows"])
def dense_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float32 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for a feature that is not looked at
    shapes,  # int32 [HIDDEN, 3]: of each hidden layer the features, units and where its weights begin
    weight,  # float64, or float16 as `weight_low`: of each layer and block of units [features, BLOCK_UNITS]
    weight_low,
    scale,  # float32 [HIDDEN, WIDTH]
    intercept,  # float32 or float64 [HIDDEN, WIDTH]
    last_weight,  # float32 or float64 [TARGETS, WIDTH]
    last_intercept,  # float64 [TARGETS]
    values,  # float64 [programs, 2, BLOCK_ROWS, WIDTH], or float16 [programs, 2, 2, BLOCK_ROWS, WIDTH]
    scales,  # float32 [programs, 2, BLOCK_ROWS, WIDTH / BLOCK_UNITS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FUNCTION: tl.constexpr,
    PRECISION: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    ROW_TOP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_UNITS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers, in blocks of units."""
    DOUBLE: tl.constexpr = PRECISION == "float64"
    dtype: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    PART: tl.constexpr = BLOCK_ROWS * WIDTH
    BUFFER: tl.constexpr = PART if DOUBLE else 2 * PART
    BLOCKS: tl.constexpr = WIDTH // BLOCK_UNITS
    mine = tl.arange(0, BLOCK_ROWS)
    unit = tl.arange(0, BLOCK_UNITS)
    inner = tl.arange(0, BLOCK_INNER)
    target = tl.arange(0, BLOCK_TARGETS)
    program = tl.program_id(0).to(tl.int64)
    values += program * (2 * BUFFER)
    scales += program * (2 * BLOCK_ROWS * BLOCKS)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + mine.to(tl.int64)
        y = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], dtype)
        for layer in tl.range(0, HIDDEN, num_stages=1):
            features = tl.multiple_of(tl.load(shapes + 3 * layer), 16)
            units = tl.load(shapes + 3 * layer + 1)
            first = tl.multiple_of(tl.load(shapes + 3 * layer + 2), 16)
            source, target_buffer = (layer + 1) % 2, layer % 2
            for start in tl.range(0, units, BLOCK_UNITS, num_stages=1):
                column = start + unit
                total = tl.zeros([BLOCK_ROWS, BLOCK_UNITS], dtype)
                w = weight + first + start * features
                w_low = weight_low + first + start * features
                if layer == 0:
                    for begin in tl.range(0, features, BLOCK_FEATURES, num_stages=STAGES if DOUBLE else 1):
                        feature = begin + tl.arange(0, BLOCK_FEATURES)
                        real = feature < FEATURES
                        at = feature[:, None] * BLOCK_UNITS + unit[None, :]
                        inside = (row < rows)[:, None] & real[None, :]
                        if SPARSE:
                            inside &= (tl.load(used + feature, mask=real, other=0.0) != 0.0)[None, :]
                        u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
                        if DOUBLE:
                            total = dot(u.to(tl.float64), tl.load(w + at), total)
                        else:
                            if SHIFTED:
                                u = tl.where(inside, u - tl.load(shift + feature, mask=real, other=0.0)[None, :], 0.0)
                            high, low, factor = float16_parts(u.to(tl.float32), ROW_TOP)
                            total = multiply_parts(
                                high, low, factor, tl.load(w + at), tl.load(w_low + at), total, PRECISION
                            )
                else:
                    for begin in tl.range(0, features, BLOCK_INNER, num_stages=STAGES):
                        at = (begin + inner)[:, None] * BLOCK_UNITS + unit[None, :]
                        place = values + source * BUFFER + mine[:, None] * WIDTH + (begin + inner)[None, :]
                        if DOUBLE:
                            total = dot(tl.load(place), tl.load(w + at), total)
                        else:
                            high, low = tl.load(place), tl.load(place + PART)
                            factor = tl.load(scales + (source * BLOCK_ROWS + mine) * BLOCKS + begin // BLOCK_UNITS)
                            total = multiply_parts(
                                high, low, factor, tl.load(w + at), tl.load(w_low + at), total, PRECISION
                            )
                b = tl.load(intercept + layer * WIDTH + column)
                if not DOUBLE:
                    total = total * tl.load(scale + layer * WIDTH + column)[None, :]
                h = apply_function(total + b[None, :], ACTIVATION)
                if layer < HIDDEN - 1:
                    place = values + target_buffer * BUFFER + mine[:, None] * WIDTH + column[None, :]
                    if DOUBLE:
                        tl.store(place, h)
                    else:
                        high, low, factor = float16_parts(h, ROW_TOP)
                        tl.store(place, high)
                        tl.store(place + PART, low)
                        tl.store(scales + (target_buffer * BLOCK_ROWS + mine) * BLOCKS + start // BLOCK_UNITS, factor)
                else:
                    for t in tl.range(0, TARGETS, num_stages=1):
                        part = tl.sum(h * tl.load(last_weight + t * WIDTH + column)[None, :], axis=1)
                        y += tl.where((target == t)[None, :], part[:, None], 0.0)
            tl.debug_barrier()  # the next layer reads what other threads wrote
        b = tl.load(last_intercept + target, mask=target < TARGETS, other=0.0)
        z = apply_function(y.to(tl.float64) + b[None, :], FUNCTION)
        inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
        tl.store(out + row[:, None] * TARGETS + target[None, :], z.to(out.dtype.element_ty), mask=inside)


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

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64", "float32")

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
        if self.precision not in self.PRECISIONS:
            raise PlanError(f"dense_layers: precision must be one of {self.PRECISIONS}, not '{self.precision}'.")

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
        """Return each layer for `reference`, and for `launch` all of them, padded to whole blocks and rearranged."""
        *hidden, (last, last_intercept) = layers = list(self.layers())
        plain = {f"weight{index}": weight for index, (weight, _) in enumerate(layers)}
        plain |= {f"intercept{index}": intercept for index, (_, intercept) in enumerate(layers)}
        double, blocks = self.precision == "float64", self._blocks()
        block_units, width = blocks["BLOCK_UNITS"], self._width()
        shapes, packed, first, features = [], [], 0, _whole(self.widths[0], blocks["BLOCK_FEATURES"])
        scale, offset = np.ones((len(hidden), width)), np.zeros((len(hidden), width))
        for index, (weight, intercept) in enumerate(hidden):
            units = _whole(len(intercept), block_units)
            table = np.zeros((features, units))
            table[: weight.shape[0], : weight.shape[1]] = weight
            offset[index, : len(intercept)] = intercept + (self.shift @ weight if index == 0 and not double else 0.0)
            if not double:
                power = COLUMN_TOP + 1 - np.frexp(np.abs(table).max(axis=0))[1]
                table = np.ldexp(table, power)
                scale[index, :units] = np.ldexp(1.0, -power)
            packed.append(table.reshape(features, -1, block_units).transpose(1, 0, 2).ravel())
            shapes.append((features, units, first))
            first, features = first + table.size, units
        dtype = np.dtype(self.precision)
        every = np.concatenate(packed)
        high = every if double else every.astype(np.float16)
        output = np.zeros((self.widths[-1], width))
        output[:, : len(last)] = last.T
        used: np.ndarray = (hidden[0][0] != 0).any(axis=1)
        return {
            **plain,
            **({} if used.all() else {"used": used.astype(np.float32)}),
            "shift": self.shift.astype(np.float32),
            "shapes": np.array(shapes, dtype=np.int32),
            "weight": high,
            "weight_low": high if double else (every - high).astype(np.float16),
            "scale": scale.astype(np.float32),
            "intercept": offset.astype(dtype),
            "last_weight": output.astype(dtype),
            "last_intercept": last_intercept,
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        if "used" in parameters:
            x = torch.where(parameters["used"] != 0, x, 0.0)
        for index in range(len(self.widths) - 1):
            intercept = parameters[f"intercept{index}"]
            function = FUNCTIONS[self.activation if index < len(self.widths) - 2 else self.function]

            def finish(part: torch.Tensor, intercept: torch.Tensor = intercept, function: Function = function) -> None:
                part.copy_(function(part.add_(intercept)))

            x = product(x, parameters[f"weight{index}"], finish)
        return x

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), device = inputs, parameters["weight"].device  # rows that a GPU reads across the bus lie on the CPU
        blocks, width, hidden = self._blocks(), self._width(), len(self.widths) - 2
        programs = min(triton.cdiv(rows, BLOCK_ROWS), program_limit(device))
        size = programs * BLOCK_ROWS * width if hidden > 1 else 0
        double = self.precision == "float64"
        values = torch.empty(2 * size if double else 4 * size, dtype=parameters["weight"].dtype, device=device)
        scales = torch.empty(2 * size // blocks["BLOCK_UNITS"], dtype=torch.float32, device=device)
        names = ("shift", "shapes", "weight", "weight_low", "scale", "intercept", "last_weight", "last_intercept")
        dense_layers_kernel[(programs,)](
            x,
            used=parameters.get("used", parameters["shift"]),
            **{name: parameters[name] for name in names},
            values=values,
            scales=scales,
            out=output,
            rows=rows,
            FEATURES=self.widths[0],
            HIDDEN=hidden,
            WIDTH=width,
            TARGETS=self.widths[-1],
            ACTIVATION=self.activation,
            FUNCTION=self.function,
            PRECISION=self.precision,
            SHIFTED=bool(self.shift.any()),
            SPARSE="used" in parameters,
            ROW_TOP=ROW_TOP,
            **blocks,
            num_warps=4,
        )

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        """Split, multiply and round as the kernel does; what matrix units add up 16 products at a time is cut off."""
        (x,), tables, blocks = inputs, self.parameters(), self._blocks()
        if self.precision == "float64":
            tensors = {name: torch.from_numpy(np.ascontiguousarray(table)) for name, table in tables.items()}
            exact: np.ndarray = self.reference(tensors, torch.from_numpy(x)).numpy()
            return exact
        h = np.zeros((len(x), tables["shapes"][0, 0]), dtype=np.float32)
        h[:, : self.widths[0]] = np.where(tables.get("used", 1.0) != 0, x - tables["shift"], 0.0)
        for layer, (features, units, first) in enumerate(tables["shapes"]):
            by_blocks = (units // blocks["BLOCK_UNITS"], features, blocks["BLOCK_UNITS"])
            w_high, w_low = (
                tables[name][first : first + features * units]
                .reshape(by_blocks)
                .transpose(1, 0, 2)
                .reshape(features, -1)
                for name in ("weight", "weight_low")
            )
            total = np.zeros((len(x), units), dtype=np.float32)
            scaled, step = (blocks["BLOCK_UNITS"], blocks["BLOCK_INNER"]) if layer else (blocks["BLOCK_FEATURES"],) * 2
            for begin in range(0, features, scaled):
                high, low, factor = _parts(h[:, begin : begin + scaled])
                for at in range(0, scaled, step):
                    own, found = slice(at, at + step), np.zeros(total.shape)
                    weights = slice(begin + at, begin + at + step)
                    for left, right in ((low, w_high), (high, w_low), (high, w_high)):
                        found = _add_products(found, left[:, own], right[weights])
                    total = (total + found * factor[:, None]).astype(np.float32)
            z = total * tables["scale"][layer, :units] + tables["intercept"][layer, :units]
            h = FUNCTIONS[self.activation](torch.from_numpy(z)).numpy()
        sums = (h[:, None, :] * tables["last_weight"][None, :, : h.shape[1]]).sum(axis=2)
        y = FUNCTIONS[self.function](torch.from_numpy(sums.astype(np.float64) + tables["last_intercept"]))
        answer: np.ndarray = y.numpy()
        return answer

    def reads_input_once(self) -> bool:
        return self.widths[1] <= self._blocks()["BLOCK_UNITS"]

    def describe(self) -> str:
        shown = " → ".join(map(str, self.widths))
        return f"{shown}, {self.activation} between, in {self.precision}" + function_suffix(self.function)

    def _width(self) -> int:
        """Return the width of the widest hidden layer in whole blocks."""
        return _whole(max(self.widths[1:-1]), self._blocks()["BLOCK_UNITS"])

    def _blocks(self) -> dict[str, int]:
        """Return the kernel's tiles, which follow from the widths alone: the order of sums depends on them."""
        block_units = min(max(triton.next_power_of_2(max(self.widths[1:-1])), 16), MAX_BLOCK_UNITS)
        return {
            "BLOCK_ROWS": BLOCK_ROWS,
            "BLOCK_UNITS": block_units,
            "BLOCK_FEATURES": min(max(triton.next_power_of_2(self.widths[0]), 16), MAX_BLOCK_FEATURES),
            "BLOCK_INNER": min(block_units, MAX_BLOCK_FEATURES),
            "BLOCK_TARGETS": triton.next_power_of_2(self.widths[-1]),
            "STAGES": 2 if self.precision == "float64" else 3,
        }


def _whole(size: int, block: int) -> int:
    """Return the size rounded up to whole blocks."""
    return -(-size // block) * block


def _parts(value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `float16_parts` does, the parts as float64."""
    power = ROW_TOP + 1 - np.maximum(np.frexp(np.abs(value).max(axis=1))[1], -110)
    scaled = np.ldexp(value, power[:, None])
    high = scaled.astype(np.float16)
    return high.astype(np.float64), (scaled - high).astype(np.float16).astype(np.float64), np.ldexp(1.0, -power)


def _add_products(total: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return `total + left @ right`, cut off to float32's 24 bits after every 16 products."""
    for begin in range(0, left.shape[1], 16):
        total = total + left[:, begin : begin + 16] @ right[begin : begin + 16].astype(np.float64)
        total = (total.view(np.int64) & -(1 << 29)).view(np.float64)
    return total


@functools.cache
def program_limit(device: torch.device) -> int:
    """Return how many programs to start at most: so many as a GPU runs at once, each of which has a workspace."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * PROGRAMS_PER_MULTIPROCESSOR
    return 2
