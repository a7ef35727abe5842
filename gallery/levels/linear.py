"""Linear layer with what follows it in the same kernel: y = f(x Wᵀ + b) + r.

Mathematics: x `[..., inputs]`, W (`weight`) `[outputs, inputs]`, b (`bias`) `[outputs]`; f is GELU or nothing; r
(`residual`), where given, has y's shape `[..., outputs]`. Products are summed in float32.
What to learn: a tile of the product is in registers when its sum is done. Bias, GELU and the residual cost there what
their own bytes cost; as kernels of their own each reads and writes all of y once more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.levels.extension import library
from gallery.levels.launching import multiprocessors
from gallery.levels.layer_norm import gelu_of
from gallery.tuning import Choice, tuned

CHOICES = (
    Choice("wide tiles", "the most work for each byte loaded", {"ROWS": 128, "OUTPUTS": 256, "INPUTS": 64}, 8, 3),
    Choice(
        "square tiles", "more tiles, so that few rows occupy the GPU", {"ROWS": 128, "OUTPUTS": 128, "INPUTS": 64}, 8, 4
    ),
    Choice("tall tiles", "as wide ones, where outputs are few", {"ROWS": 256, "OUTPUTS": 128, "INPUTS": 64}, 8, 3),
    Choice("small tiles", "rows or outputs are few", {"ROWS": 64, "OUTPUTS": 64, "INPUTS": 64}, 4, 4),
)
GROUP = 8
"""How many tiles of rows are made before the next tile of outputs: what they share is then still in L2."""

ALIGNED = 16
"""Bytes of which a row has to be a multiple, for tensor descriptors and for loads of 16 bytes in CUDA C++."""


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y of x's type."""
    y = torch.nn.functional.linear(x, weight, bias)
    if gelu:
        y = torch.nn.functional.gelu(y)
    if residual is not None:
        y = y + residual
    return y


@triton.jit
def tile_of(number, rows_tiles, outputs_tiles, GROUP: tl.constexpr):
    """Return the place of a tile by its number; GROUP tiles of rows go together."""
    group = number // (GROUP * outputs_tiles)
    first = group * GROUP
    height = tl.minimum(rows_tiles - first, GROUP)
    within = number % (GROUP * outputs_tiles)
    return first + within % height, within // height


@triton.jit
def finish(
    total, bias, residual, y_tiles, row, output, rows, outputs,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, GELU: tl.constexpr, RESIDUAL: tl.constexpr
):  # fmt: skip
    """Write a tile of y from a tile of the product."""
    column = output + tl.arange(0, OUTPUTS)
    total += tl.load(bias + column, mask=column < outputs, other=0.0).to(tl.float32)[None, :]
    if GELU:
        total = gelu_of(total)
    if RESIDUAL:
        at = row + tl.arange(0, ROWS).to(tl.int64)
        inside = (at < rows)[:, None] & (column < outputs)[None, :]
        total += tl.load(residual + at[:, None] * outputs + column[None, :], mask=inside, other=0.0).to(tl.float32)
    y_tiles.store([row, output], total.to(residual.dtype.element_ty))


@tuned(CHOICES, key=["rows", "outputs", "inputs", "RESIDUAL"])
@triton.jit
def linear_kernel(
    x,  # [rows, inputs]
    weight,  # [outputs, inputs]
    bias,  # [outputs]
    residual,  # [rows, outputs], like y; y itself where there is none
    y,
    rows,
    outputs,
    inputs,
    GELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """A program makes every `num_programs(0)`-th tile of y; float32 is multiplied in three products of tensor cores.

    A tensor descriptor says where a matrix lies and how it is cut: on Hopper one thread then has a whole tile copied,
    with zeros beyond the matrix; elsewhere the compiler makes loads of it. The tile of y is finished in halves, which
    leaves shared memory for one more step of the product.
    """
    x_tiles = tl.make_tensor_descriptor(x, [rows, inputs], [inputs, 1], [ROWS, INPUTS])
    weight_tiles = tl.make_tensor_descriptor(weight, [outputs, inputs], [inputs, 1], [OUTPUTS, INPUTS])
    y_tiles = tl.make_tensor_descriptor(y, [rows, outputs], [outputs, 1], [ROWS, OUTPUTS // 2])
    rows_tiles, outputs_tiles = tl.cdiv(rows, ROWS), tl.cdiv(outputs, OUTPUTS)
    for number in tl.range(tl.program_id(0), rows_tiles * outputs_tiles, tl.num_programs(0), flatten=True):
        row_tile, output_tile = tile_of(number, rows_tiles, outputs_tiles, GROUP)
        row, output = row_tile * ROWS, output_tile * OUTPUTS
        total = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for k in range(tl.cdiv(inputs, INPUTS)):
            of_x = x_tiles.load([row, k * INPUTS])
            of_weight = weight_tiles.load([output, k * INPUTS])
            total = tl.dot(of_x, of_weight.T, total, input_precision="tf32x3")
        halves = tl.permute(tl.reshape(total, (ROWS, 2, OUTPUTS // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        finish(left, bias, residual, y_tiles, row, output, rows, outputs, ROWS, OUTPUTS // 2, GELU, RESIDUAL)
        output += OUTPUTS // 2
        finish(right, bias, residual, y_tiles, row, output, rows, outputs, ROWS, OUTPUTS // 2, GELU, RESIDUAL)


@torch.library.custom_op("gallery::level_linear", mutates_args=())
def in_triton_language(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y of x's type; inputs and outputs have to fill multiples of 16 bytes."""
    check(x, weight, bias, residual)
    outputs, inputs = weight.shape
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = x.new_empty(*x.shape[:-1], outputs)
    other = y if residual is None else residual.contiguous()
    if rows := y.numel() // outputs:
        if x.is_cuda:
            triton.set_allocator(lambda size, alignment, stream: x.new_empty(size, dtype=torch.int8))
        most = multiprocessors(x.device)

        def grid(meta: dict[str, int]) -> tuple[int]:
            return (min(triton.cdiv(rows, meta["ROWS"]) * triton.cdiv(outputs, meta["OUTPUTS"]), most),)

        linear_kernel[grid](x, weight, bias, other, y, rows, outputs, inputs, gelu, residual is not None, GROUP)
    return y


@in_triton_language.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def in_cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    gelu: bool = False,
) -> torch.Tensor:
    """Return y by `cuda/linear.cu`: bfloat16, inputs and outputs multiples of 8."""
    check(x, weight, bias, residual)
    demand_alike((torch.bfloat16,), x=x)
    return library().linear(x, weight, bias, residual, gelu)


def check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None) -> None:
    """Refuse what the kernels do not compute."""
    demand_alike(x=x, weight=weight, bias=bias)
    demand_shape("weight", weight, -1, -1)
    demand_shape("bias", bias, weight.shape[0])
    demand_shape("x", x, *x.shape[:-1], weight.shape[1])
    for name, length in (("outputs", weight.shape[0]), ("inputs", weight.shape[1])):
        if not length or length * x.element_size() % ALIGNED:
            raise ValueError(f"{length} {name} do not fill a multiple of {ALIGNED} bytes; pad 'weight' with zeros.")
    if residual is not None:
        demand_alike(x=x, residual=residual)
        demand_shape("residual", residual, *x.shape[:-1], weight.shape[0])
