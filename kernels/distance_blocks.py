"""Functions of distances that are not smooth where these are zero, from products of digits, inside kernels.

Products are off by some 2⁻³⁵ of the norms, and the root of a squared distance near zero would enlarge that. Where a row
is that near a point of its block, the block's distances are computed from differences too, and the near ones are taken
from these.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .point_blocks import metric_by_features
from .product_blocks import digit_sum, function_of_product

NEAR = tl.constexpr(2.0**-12)  # of the row's squared norm: a squared distance whose root products do not give


@triton.jit
def distance_block(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    z0,  # as `digit_block` takes them
    z1,
    z2,
    place,
    offset,
    digits,
    offsets,
    numbers,
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` of distances from three digits, float64 `[BLOCK_ROWS, BLOCK_POINTS]`; see `digit_block`."""
    u = digit_sum(
        z0, z1, z2, place, offset, digits, offsets, point,
        POINTS=POINTS, METRIC="euclidean", PROFILE=PROFILE, WEIGHED=False, SHORT=False, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    nearest = tl.min((u.to(tl.int64, bitcast=True) >> 32).to(tl.int32), axis=1)  # in the order of positive numbers
    near = offset * NEAR
    if tl.max((nearest <= (near.to(tl.int64, bitcast=True) >> 32).to(tl.int32)).to(tl.int32), axis=0) > 0:
        differences = metric_by_features(
            x, shift, factor, points, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC="squared_euclidean", APPROXIMATE=False, BY_POINTS=False,
        )  # fmt: skip
        u = tl.where(u < near[:, None], differences, u)
    return function_of_product(u, numbers, METRIC="euclidean", PROFILE=PROFILE, WHOLE=WHOLE)
