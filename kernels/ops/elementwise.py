"""Elementwise: `out[r, c] = f(x[r, c])`.

`x`, `out`: `[rows, width]` float32. The functions are the inverse links of generalised linear models and the NumPy
functions that target transformers use. Each is computed in float64 and rounded once, so that an answer is the float32
nearest to the exact one. Where the textbook formula cancels near zero, the first terms of the Taylor series stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..errors import PlanError
from ..plan import Operation, Parameters

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "absolute": torch.abs,
    "arcsinh": torch.asinh,
    "arctanh": torch.atanh,
    "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expit": torch.sigmoid,
    "expm1": torch.expm1,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "logit": torch.logit,
    "negative": torch.neg,
    "reciprocal": torch.reciprocal,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tanh": torch.tanh,
}
"""Every function by name, as torch computes it."""

BLOCK = 1024


@triton.jit
def apply_function(x, FUNCTION: tl.constexpr):
    """Return `FUNCTION(x)` for a float64 block; every kernel's epilogue."""
    y = x
    if FUNCTION == "absolute":
        y = tl.abs(x)
    elif FUNCTION == "arcsinh":
        a = tl.abs(x)
        far = tl.log(a + tl.sqrt(a * a + 1.0))
        y = tl.where(a < 1e-4, x - x * x * x / 6.0, tl.where(x < 0.0, -far, far))
    elif FUNCTION == "arctanh":
        y = tl.where(tl.abs(x) < 1e-4, x + x * x * x / 3.0, 0.5 * tl.log((1.0 + x) / (1.0 - x)))
    elif FUNCTION == "cbrt":
        a = tl.exp(tl.log(tl.abs(x)) / 3.0)
        y = tl.where(x == 0.0, x, tl.where(x < 0.0, -a, a))
    elif FUNCTION == "exp":
        y = tl.exp(x)
    elif FUNCTION == "exp2":
        y = tl.exp(x * 0.6931471805599453)
    elif FUNCTION == "expit":
        y = 1.0 / (1.0 + tl.exp(-x))
    elif FUNCTION == "expm1":
        y = tl.where(tl.abs(x) < 1e-4, x + x * x / 2.0 + x * x * x / 6.0, tl.exp(x) - 1.0)
    elif FUNCTION == "log":
        y = tl.log(x)
    elif FUNCTION == "log10":
        y = tl.log(x) * 0.4342944819032518
    elif FUNCTION == "log1p":
        y = tl.where(tl.abs(x) < 1e-4, x - x * x / 2.0 + x * x * x / 3.0, tl.log(1.0 + x))
    elif FUNCTION == "log2":
        y = tl.log(x) * 1.4426950408889634
    elif FUNCTION == "logit":
        y = tl.log(x / (1.0 - x))
    elif FUNCTION == "negative":
        y = -x
    elif FUNCTION == "reciprocal":
        y = 1.0 / x
    elif FUNCTION == "sinh":
        e = tl.exp(tl.abs(x))
        far = 0.5 * (e - 1.0 / e)
        s = x * x
        near = x * (1.0 + s / 6.0 * (1.0 + s / 20.0 * (1.0 + s / 42.0)))
        y = tl.where(tl.abs(x) < 0.1, near, tl.where(x < 0.0, -far, far))
    elif FUNCTION == "sqrt":
        y = tl.sqrt(x)
    elif FUNCTION == "square":
        y = x * x
    elif FUNCTION == "tanh":
        s = x * x
        y = tl.where(tl.abs(x) < 1e-3, x * (1.0 - s / 3.0 + 2.0 * s * s / 15.0), 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))
    else:
        tl.static_assert(FUNCTION == "identity")
    return y


@triton.jit(do_not_specialize=["size"])
def elementwise_kernel(
    x,  # float32 [size]
    out,  # float32 [size]
    size,  # rows * width
    FUNCTION: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Apply one function to a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = apply_function(tl.load(x + at, mask=at < size).to(tl.float64), FUNCTION)
    if LOW is not None:
        value = tl.where(value < LOW, LOW, value)
    if HIGH is not None:
        value = tl.where(value > HIGH, HIGH, value)
    tl.store(out + at, value.to(tl.float32), mask=at < size)


@dataclass(frozen=True)
class Elementwise(Operation):
    """Apply `function`, then clip to `[low, high]` where these are given."""

    function: str = "identity"
    low: float | None = None
    high: float | None = None

    def output_width(self, *widths: int) -> int:
        (width,) = widths
        check_function(self.function)
        return width

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        value = FUNCTIONS[self.function](x.double())
        if self.low is not None or self.high is not None:
            value = torch.clip(value, self.low, self.high)
        return value.to(x.dtype)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size = rows * output.shape[1]
        elementwise_kernel[(triton.cdiv(size, BLOCK),)](
            inputs[0], output, size, self.function, self.low, self.high, BLOCK
        )

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        clip = "" if self.low is None and self.high is None else f" clipped to [{self.low}, {self.high}]"
        return self.function + clip


def check_function(name: str) -> None:
    """Raise `PlanError` unless `name` is one of `FUNCTIONS`."""
    if name not in FUNCTIONS:
        raise PlanError(f"There is no function '{name}'; the functions are {', '.join(FUNCTIONS)}.")
