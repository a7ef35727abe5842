"""Kernels of affine maps in float64, `out[r, t] = f(Σⱼ x[r, j] · weight[j, t] + intercept[t])`, and their launch.

`affine.py` describes the arrays. A row's bits depend only on the row and the model: the tile and the order of its sum
follow from the number of features and targets alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from ...numerics.dot import dot
from ...numerics.functions import apply_function
from ...numerics.members import member_places, one_member
from .launch import MAX_AFFINE_FEATURES, affine_narrow_shape, affine_shape, affine_targets_block


@triton.jit
def weights_of(weight, place, feature, STACKED: tl.constexpr, FEATURES: tl.constexpr):
    """Return features' weights: those of one map `[1, features]`, or of each row's member `[rows, features]`."""
    if STACKED:
        at = place[:, None] * FEATURES + feature[None, :]
        found = tl.load(weight + at, mask=(place >= 0)[:, None] & (feature < FEATURES)[None, :], other=0.0)
    else:
        found = tl.load(weight + feature, mask=feature < FEATURES, other=0.0)[None, :]
    return found


@triton.jit(do_not_specialize=["rows", "first", "members"])
def affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    weight,  # float64 [FEATURES]; [members, FEATURES] where STACKED
    intercept,  # float64 [1]; [members] where STACKED
    out,  # float32 or float64 [rows]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    FUNCTION: tl.constexpr,
    SPARSE: tl.constexpr,  # whether to skip features without weight
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """One target. A program makes `BLOCK_ROWS` rows from tiles of `[BLOCK_ROWS, BLOCK_FEATURES]`."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    place = member_places(numbers, row, row < rows, first, members) if STACKED else row
    total = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        at = row[:, None] * FEATURES + feature[None, :]
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        tile = tl.load(x + at, mask=inside, other=0.0, eviction_policy="evict_first")  # [BLOCK_ROWS, BLOCK_FEATURES]
        w = weights_of(weight, place, feature, STACKED, FEATURES)
        tile = tile.to(tl.float64)
        if SPARSE:
            tile = tl.where(w != 0.0, tile, 0.0)
        total += tile * w
    y = apply_function(
        tl.sum(total, axis=1) + (tl.load(intercept + place) if STACKED else tl.load(intercept)), FUNCTION
    )
    tl.store(out + row, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def affine_narrow_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    weight,  # float64 [FEATURES]; [members, FEATURES] where STACKED
    intercept,  # float64 [1]; [members] where STACKED
    out,  # float32 or float64 [rows]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    FUNCTION: tl.constexpr,
    SPARSE: tl.constexpr,  # whether to skip features without weight
    BLOCK_ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    SLOT_FEATURES: tl.constexpr,
):
    """One target and few features whose rows are not 16-byte aligned.

    Each thread sums a slot of neighbouring features, so that few lanes remain to be summed across. With one lane for
    each feature, summing across lanes would take longer than reading the rows.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    slot = tl.arange(0, SLOTS)
    place = member_places(numbers, row, row < rows, first, members) if STACKED else row
    total = tl.zeros([BLOCK_ROWS, SLOTS], tl.float64)
    for offset in tl.static_range(SLOT_FEATURES):
        feature = slot * SLOT_FEATURES + offset
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        value = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
        w = weights_of(weight, place, feature, STACKED, FEATURES)
        value = value.to(tl.float64)
        if SPARSE:
            value = tl.where(w != 0.0, value, 0.0)
        total += value * w
    y = apply_function(
        tl.sum(total, axis=1) + (tl.load(intercept + place) if STACKED else tl.load(intercept)), FUNCTION
    )
    tl.store(out + row, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit
def affine_block(
    x, weight, intercept, row, target, rows,
    FEATURES: tl.constexpr, TARGETS: tl.constexpr, FUNCTION: tl.constexpr, SPARSE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_FEATURES: tl.constexpr, BLOCK_TARGETS: tl.constexpr,
):  # fmt: skip
    """Return one map's answers to a block of rows, `[BLOCK_ROWS, BLOCK_TARGETS]`; arguments as in the next kernel."""
    total = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        tile = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
        inside = (feature < FEATURES)[:, None] & (target < TARGETS)[None, :]
        w = tl.load(weight + feature[:, None] * TARGETS + target[None, :], mask=inside, other=0.0)
        tile = tile.to(tl.float64)
        if SPARSE:
            largest = tl.max(tl.abs(w), axis=1)
            for first in tl.range(0, TARGETS if TARGETS > BLOCK_TARGETS else 0, BLOCK_TARGETS):
                other = first + tl.arange(0, BLOCK_TARGETS)
                inside = (feature < FEATURES)[:, None] & (other < TARGETS)[None, :]
                others = tl.load(weight + feature[:, None] * TARGETS + other[None, :], mask=inside, other=0.0)
                largest = tl.maximum(largest, tl.max(tl.abs(others), axis=1))
            tile = tl.where((largest != 0.0)[None, :], tile, 0.0)
        total = dot(tile, w, total)
    b = tl.load(intercept + target, mask=target < TARGETS, other=0.0)
    return apply_function(total + b[None, :], FUNCTION)


@triton.jit(do_not_specialize=["rows", "first", "members"])
def affine_targets_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    weight,  # float64 [FEATURES, TARGETS]; [members, FEATURES, TARGETS] where STACKED
    intercept,  # float64 [TARGETS]; [members, TARGETS] where STACKED
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    SPARSE: tl.constexpr,  # whether to skip features without weight for any target
    BLOCK_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """Several targets, on the float64 matrix units. A program makes `[BLOCK_ROWS, BLOCK_TARGETS]` of the output.

    Where STACKED, it multiplies the block by the weights of one member after the other, and keeps the answers to this
    member's rows: a row of a product has the same bits whatever the other rows are. It takes as long as its rows have
    members, so neighbouring rows should have the same.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    if STACKED:
        y = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float64)
        place = tl.where(row < rows, member_places(numbers, row, row < rows, first, members), members)
        member = tl.min(place)
        while member < members:
            own = affine_block(
                x, weight + member * FEATURES * TARGETS, intercept + member * TARGETS, row, target, rows,
                FEATURES, TARGETS, FUNCTION, SPARSE, BLOCK_ROWS, BLOCK_FEATURES, BLOCK_TARGETS,
            )  # fmt: skip
            y = tl.where((place == member)[:, None], own, y)
            place = tl.where(place == member, members, place)
            member = tl.min(place)
    else:
        y = affine_block(
            x, weight, intercept, row, target, rows,
            FEATURES, TARGETS, FUNCTION, SPARSE, BLOCK_ROWS, BLOCK_FEATURES, BLOCK_TARGETS,
        )  # fmt: skip
    inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
    tl.store(out + row[:, None] * TARGETS + target[None, :], y.to(out.dtype.element_ty), mask=inside)


def launch_affine(
    x: torch.Tensor,
    weight: torch.Tensor,
    intercept: torch.Tensor,
    out: torch.Tensor,
    rows: int,
    function: str,
    *,
    sparse: bool,
    members: Mapping[str, Any] | None = None,
) -> None:
    """Launch the kernel on the first `rows` rows; `sparse` skips features without weight, which may be NaN.

    With `members`, by which it finds each row's member, weight and intercept are stacked over the members.
    """
    features, targets = weight.shape[-2:]
    device = weight.device  # `x` is on the CPU if a GPU reads it across the bus
    arrays = {"x": x, "weight": weight, "intercept": intercept, "out": out, "rows": rows}
    values = {**arrays, **(members or one_member(x))}
    what = {"FEATURES": features, "FUNCTION": function, "SPARSE": sparse}
    if targets > 1:
        block = affine_targets_block(targets, across=x.device != device or out.device != device)
        grid = (triton.cdiv(rows, block["BLOCK_ROWS"]), triton.cdiv(targets, block["BLOCK_TARGETS"]))
        affine_targets_kernel[grid](**values, TARGETS=targets, **what, **block)
    elif narrow(features):
        slot_features = min(features, 4)
        slots = triton.next_power_of_2(triton.cdiv(features, slot_features))
        shape = affine_narrow_shape.of(device, slots, slot_features)
        affine_narrow_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]),)](**values, **what, **shape)
    else:
        block_features = min(triton.next_power_of_2(features), MAX_AFFINE_FEATURES)
        shape = affine_shape.of(device, block_features, "masked" if features % block_features else "whole")
        affine_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]),)](**values, **what, **shape)


def narrow(features: int) -> bool:
    """Return whether rows are short and unaligned, so that a thread should sum several features by itself."""
    return features < 24 and features % 4 != 0
