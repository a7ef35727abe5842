"""Copy in tiles: three ways to say where a tile of a matrix lies, by pointers, block pointers and tensor descriptors.

Mathematics: yᵢⱼ = xᵢⱼ, x [rows, columns].
Lesson: *pointers* are one address for every element, computed and masked by the program: they can reach any address. A
*block pointer* is a matrix's base, shape and strides with a tile's place in it, from which the compiler derives those
addresses and masks. A *tensor descriptor* gives the same to the GPU itself: from Hopper on one thread asks the tensor
memory accelerator for a whole tile, which arrives in shared memory while the others compute; for older GPUs the
compiler turns it into pointers. It requires rows with contiguous elements that begin at multiples of 16 bytes.
A copy computes nothing, so all three reach the memory's bandwidth; a matrix product shows their differences.
In the product: `kernels/engine/upload.py` and `kernels/engine/gather.py` bring rows to the GPU by pointers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gallery.arguments import demand_alike, demand_shape
from gallery.descriptors import using_block_pointers
from gallery.exhibit import Exhibit, Size
from gallery.tuning import Choice, chosen, tuned

CHOICES = (
    Choice("square tiles", "many rows' loads are under way", {"ROWS": 32, "COLUMNS": 64}, 4),
    Choice("wide tiles", "long runs of neighbours in a row", {"ROWS": 16, "COLUMNS": 256}, 4),
    Choice("large tiles", "more loads are under way in each program", {"ROWS": 64, "COLUMNS": 128}, 8),
)
DESCRIPTOR_BYTES = 16
"""A descriptor's base and strides are multiples of this."""


def reference(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of x."""
    return x.clone()


@tuned(CHOICES, key=["rows", "columns"])
@triton.jit
def pointer_kernel(x, y, rows, columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy one tile by an address for every element; x, y: [rows, columns], x with row_stride between rows."""
    across = tl.cdiv(columns, COLUMNS)
    i = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    tl.store(y + i * columns + j, tl.load(x + i * row_stride + j, mask=inside), mask=inside)


@tuned(CHOICES, key=["rows", "columns"])
@triton.jit
def block_pointer_kernel(x, y, rows, columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy one tile by the matrices' shapes and strides and the tile's place; x, y as in `pointer_kernel`."""
    across = tl.cdiv(columns, COLUMNS)
    i = (tl.program_id(0) // across) * ROWS
    j = (tl.program_id(0) % across) * COLUMNS
    source = tl.make_block_ptr(x, (rows, columns), (row_stride, 1), (i, j), (ROWS, COLUMNS), (1, 0))
    target = tl.make_block_ptr(y, (rows, columns), (columns, 1), (i, j), (ROWS, COLUMNS), (1, 0))
    tl.store(target, tl.load(source, boundary_check=(0, 1)), boundary_check=(0, 1))


def _tiles_of_descriptors(arguments: dict[str, Any]) -> None:
    """Set the descriptors' tiles to those of the choice."""
    for name in ("x", "y"):
        arguments[name].block_shape = [arguments["ROWS"], arguments["COLUMNS"]]


@tuned(CHOICES, key=["rows", "columns"], before=_tiles_of_descriptors)
@triton.jit
def descriptor_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy one tile by the matrices' descriptors, which know shapes, strides and tiles, and the tile's place."""
    across = tl.cdiv(columns, COLUMNS)
    place = [(tl.program_id(0) // across) * ROWS, (tl.program_id(0) % across) * COLUMNS]
    y.store(place, x.load(place))


@torch.library.custom_op("gallery::copy", mutates_args=())
def copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of x by pointers, x [rows, columns]; torch first makes rows contiguous that are not.

    Raises:
        TypeError: The gallery's kernels do not take the type.
        ValueError: x is not a matrix.
    """
    x, y = _checked(x)
    if x.numel():
        pointer_kernel[_grid(x)](x, y, *x.shape, x.stride(0))
    return y


@torch.library.custom_op("gallery::copy_by_block_pointers", mutates_args=())
def copy_by_block_pointers(x: torch.Tensor) -> torch.Tensor:
    """Return the same as `copy`, by block pointers."""
    x, y = _checked(x)
    if x.numel():
        with using_block_pointers():
            block_pointer_kernel[_grid(x)](x, y, *x.shape, x.stride(0))
    return y


@torch.library.custom_op("gallery::copy_by_descriptors", mutates_args=())
def copy_by_descriptors(x: torch.Tensor) -> torch.Tensor:
    """Return the same as `copy`, by tensor descriptors, or by pointers if no descriptor can describe x or its copy."""
    x, y = _checked(x)
    if not x.numel():
        return y
    if _can_be_described(x) and _can_be_described(y):
        tile = [CHOICES[0].blocks["ROWS"], CHOICES[0].blocks["COLUMNS"]]
        source, target = (TensorDescriptor.from_tensor(each, tile) for each in (x, y))
        descriptor_kernel[_grid(x)](source, target, *x.shape)
    else:
        pointer_kernel[_grid(x)](x, y, *x.shape, x.stride(0))
    return y


def _checked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x with contiguous rows, and the tensor for its copy."""
    demand_alike(x=x)
    demand_shape("x", x, -1, -1)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return (x if x.stride(1) == 1 else x.contiguous()), y


def _can_be_described(x: torch.Tensor) -> bool:
    return (
        x.stride(1) == 1
        and x.data_ptr() % DESCRIPTOR_BYTES == 0
        and x.stride(0) * x.element_size() % DESCRIPTOR_BYTES == 0
        and x.stride(0) >= x.shape[1]
    )


def _grid(x: torch.Tensor) -> Any:
    return lambda meta: (triton.cdiv(x.shape[0], meta["ROWS"]) * triton.cdiv(x.shape[1], meta["COLUMNS"]),)


WAYS = {"pointers": copy, "descriptors": copy_by_descriptors}
if hasattr(tl, "make_block_ptr"):  # which the language has deprecated
    WAYS["block pointers"] = copy_by_block_pointers
for operator in (copy, copy_by_block_pointers, copy_by_descriptors):
    operator.register_fake(lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
    operator.register_autograd(lambda context, gradient: gradient)


def sample(size: Size, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor]:
    """Return x of a size."""
    rows, columns = size
    return (torch.randn(rows, columns, dtype=dtype, device=device),)


EXHIBIT = Exhibit(
    name="copy",
    formula="yᵢⱼ = xᵢⱼ, x [rows, columns]",
    reference=reference,
    ways=WAYS,
    peers={"torch": torch.clone},
    sample=sample,
    sizes=[(0, 3), (3, 0), (1, 1), (3, 5), (7, 1032), (100, 33)],
    curve=[(2**k, 2**k) for k in range(6, 15)],
    lengths="rows x columns",
    tolerances={torch.float32: 0.0, torch.float16: 0.0, torch.bfloat16: 0.0},
    traffic=lambda x: 2 * x.numel() * x.element_size(),
    differentiable=True,
    chosen=lambda: chosen(pointer_kernel, block_pointer_kernel, descriptor_kernel),
    axis=("rows and columns", lambda size: size[0]),
)
