"""The kernel of `digit_norm.py` on GPUs of compute capability 9.0, for many rows.

There products run on while a program goes on. The Triton language waits for each product whose sums are whole numbers
before it starts the next, so this kernel is written in Gluon, its lower level. One warp of a program loads the digits
of the next features into a ring in shared memory. Two warp groups start all fifteen products of the features that are
there, and wait for those of the features before while these are made. The sums are whole, so the bits are the same.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .digit_norm_tables import DIGITS as COUNT
from .digit_norm_tables import MOST_ROWS, PART_TARGETS
from .norm_parts import norm_parts
from .plan import Parameters

DIGITS = gl.constexpr(COUNT)

TARGETS_AT_ONCE, FEATURES_AT_ONCE, STAGES = 64, 64, 3
"""What a program multiplies at once, and for how many such blocks of features there is a place in shared memory."""

LOADER_REGISTERS = 24


@gluon.jit
def load_digits(
    row_digits, digits, d, e, full, empty, places, first_row, first_target, last,
    TARGETS: gl.constexpr, BLOCK_FEATURES: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load the digits of a program's rows and targets, features after features."""
    BYTES: gl.constexpr = DIGITS * (row_digits.block_type.nbytes + digits.block_type.nbytes)
    for step in range(last):
        stage = step % STAGES
        bar = full.index(stage)
        mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
        mbarrier.expect(bar, BYTES)
        feature = step * BLOCK_FEATURES
        for i in gl.static_range(DIGITS):
            of_rows, of_targets = [i * places + first_row, feature], [i * TARGETS + first_target, feature]
            tma.async_copy_global_to_shared(row_digits, of_rows, bar, d[i].index(stage))
            tma.async_copy_global_to_shared(digits, of_targets, bar, e[i].index(stage))


@gluon.jit
def of_stage(buffers, stage):
    """Return the place of each digit in a stage."""
    first, second, third = buffers[0].index(stage), buffers[1].index(stage), buffers[2].index(stage)
    return first, second, third, buffers[3].index(stage), buffers[4].index(stage)


@gluon.jit
def add_up(
    x, row_terms, terms, out, d, e, full, empty, rows, first_row, tile, last,
    FEATURES: gl.constexpr, TARGETS: gl.constexpr, PARTS: gl.constexpr, PART_TARGETS: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Add up the products of digits that are loaded, and write the parts."""
    BLOCK_ROWS: gl.constexpr = d[0].shape[1]
    BLOCK_TARGETS: gl.constexpr = e[0].shape[1]
    BLOCK_PARTS: gl.constexpr = BLOCK_TARGETS // PART_TARGETS
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_TARGETS, 32])
    s0 = gl.zeros([BLOCK_ROWS, BLOCK_TARGETS], gl.int32, SUMS)
    s1, s2, s3, s4 = s0, s0, s0, s0
    for step in range(last):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), (step // STAGES) & 1)
        d0, d1, d2, d3, d4 = of_stage(d, stage)
        e0, e1, e2, e3, e4 = of_stage(e, stage)
        e0, e1, e2 = e0.permute((1, 0)), e1.permute((1, 0)), e2.permute((1, 0))
        e3, e4 = e3.permute((1, 0)), e4.permute((1, 0))
        s0 = warpgroup_mma(d0, e0, s0, is_async=True)
        s1 = warpgroup_mma(d0, e1, s1, is_async=True)
        s2 = warpgroup_mma(d0, e2, s2, is_async=True)
        s3 = warpgroup_mma(d0, e3, s3, is_async=True)
        s4 = warpgroup_mma(d0, e4, s4, is_async=True)
        s1 = warpgroup_mma(d1, e0, s1, is_async=True)
        s2 = warpgroup_mma(d1, e1, s2, is_async=True)
        s3 = warpgroup_mma(d1, e2, s3, is_async=True)
        s4 = warpgroup_mma(d1, e3, s4, is_async=True)
        s2 = warpgroup_mma(d2, e0, s2, is_async=True)
        s3 = warpgroup_mma(d2, e1, s3, is_async=True)
        s4 = warpgroup_mma(d2, e2, s4, is_async=True)
        s3 = warpgroup_mma(d3, e0, s3, is_async=True)
        s4 = warpgroup_mma(d3, e1, s4, is_async=True)
        s4 = warpgroup_mma(d4, e0, s4, is_async=True)
        s0, s1, s2, s3, s4 = warpgroup_mma_wait(num_outstanding=7, deps=[s0, s1, s2, s3, s4])  # all of the step before
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=step > 0)
    s0, s1, s2, s3, s4 = warpgroup_mma_wait(num_outstanding=0, deps=[s0, s1, s2, s3, s4])
    row = first_row.to(gl.int64) + gl.arange(0, BLOCK_ROWS, gl.SliceLayout(1, SUMS))
    target = tile * BLOCK_TARGETS + gl.arange(0, BLOCK_TARGETS, gl.SliceLayout(0, SUMS))
    y = norm_parts(
        s0, s1, s2, s3, s4, x, row_terms, terms, row, target, rows,
        FEATURES=FEATURES, TARGETS=TARGETS, PART_TARGETS=PART_TARGETS,
    )  # fmt: skip
    WRITTEN: gl.constexpr = gl.BlockedLayout([1, BLOCK_PARTS], [32, 1], [gl.num_warps(), 1], [1, 0])
    row = first_row.to(gl.int64) + gl.arange(0, BLOCK_ROWS, gl.SliceLayout(1, WRITTEN))
    part = tile * BLOCK_PARTS + gl.arange(0, BLOCK_PARTS, gl.SliceLayout(0, WRITTEN))
    inside = (row < rows)[:, None] & (part < PARTS)[None, :]
    y = gl.convert_layout(y, WRITTEN).to(out.dtype.element_ty)
    gl.store(out + row[:, None] * PARTS + part[None, :], y, mask=inside)


@gluon.jit
def places_of_digits(loaded, STAGES: gl.constexpr):
    """Return shared memory for the five digits of what a descriptor loads."""
    SHAPE: gl.constexpr = [STAGES, loaded.block_type.shape[0], loaded.block_type.shape[1]]
    d0 = gl.allocate_shared_memory(gl.int8, SHAPE, loaded.layout)
    d1 = gl.allocate_shared_memory(gl.int8, SHAPE, loaded.layout)
    d2 = gl.allocate_shared_memory(gl.int8, SHAPE, loaded.layout)
    d3 = gl.allocate_shared_memory(gl.int8, SHAPE, loaded.layout)
    d4 = gl.allocate_shared_memory(gl.int8, SHAPE, loaded.layout)
    return d0, d1, d2, d3, d4


@gluon.jit(do_not_specialize=["rows", "places"])
def hopper_norm_kernel(
    row_digits,  # descriptor of int8 [5 · places, PADDED], in blocks
    digits,  # descriptor of int8 [5 · TARGETS, PADDED], in blocks
    x,  # float32 or float64 [rows, FEATURES]
    row_terms,  # float64 [2, rows]
    terms,  # float64 [4, TARGETS]
    out,  # float32 or float64 [rows, PARTS]
    rows,
    places,
    FEATURES: gl.constexpr,
    PADDED: gl.constexpr,
    TARGETS: gl.constexpr,
    PARTS: gl.constexpr,
    PART_TARGETS: gl.constexpr,
    STAGES: gl.constexpr,
    LOADER_REGISTERS: gl.constexpr,
):
    """A program does what one of `digit_norm_kernel` does."""
    BLOCK_ROWS: gl.constexpr = row_digits.block_type.shape[0]
    BLOCK_TARGETS: gl.constexpr = digits.block_type.shape[0]
    BLOCK_FEATURES: gl.constexpr = digits.block_type.shape[1]
    tile = gl.num_programs(1) - 1 - gl.program_id(1)
    first_row = gl.program_id(0) * BLOCK_ROWS
    d, e = places_of_digits(row_digits, STAGES), places_of_digits(digits, STAGES)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    last = gl.minimum(PADDED, (tile + 1) * BLOCK_TARGETS) // BLOCK_FEATURES
    gl.warp_specialize(
        [
            (add_up, (
                x, row_terms, terms, out, d, e, full, empty, rows, first_row, tile, last,
                FEATURES, TARGETS, PARTS, PART_TARGETS, STAGES,
            )),
            (load_digits, (
                row_digits, digits, d, e, full, empty, places, first_row, tile * BLOCK_TARGETS, last,
                TARGETS, BLOCK_FEATURES, STAGES,
            )),
        ],
        [1],
        [LOADER_REGISTERS],
    )  # fmt: skip


def launch_hopper_norm(
    parameters: Parameters, x: torch.Tensor, row_digits: torch.Tensor, row_terms: torch.Tensor, out: torch.Tensor
) -> None:
    """Launch the kernel for rows whose digits `row_digits_kernel` made, with the tables of `weight_digits`."""
    (_, columns, padded), (_, places, _), rows = parameters["digits"].shape, row_digits.shape, row_terms.shape[1]
    layout = gl.NVMMASharedLayout(swizzle_byte_width=FEATURES_AT_ONCE, element_bitwidth=8, rank=2)
    of_rows, of_targets = [MOST_ROWS, FEATURES_AT_ONCE], [TARGETS_AT_ONCE, FEATURES_AT_ONCE]
    hopper_norm_kernel[(places // MOST_ROWS, columns // TARGETS_AT_ONCE)](
        row_digits=TensorDescriptor.from_tensor(row_digits.view(-1, padded), of_rows, layout),
        digits=TensorDescriptor.from_tensor(parameters["digits"].view(-1, padded), of_targets, layout),
        x=x,
        row_terms=row_terms,
        terms=parameters["terms"],
        out=out,
        rows=rows,
        places=places,
        FEATURES=x.shape[1],
        PADDED=padded,
        TARGETS=columns,
        PARTS=out.shape[1],
        PART_TARGETS=PART_TARGETS,
        STAGES=STAGES,
        LOADER_REGISTERS=LOADER_REGISTERS,
        num_warps=8,
    )
