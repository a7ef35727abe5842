"""Exact sums over the stored points within a radius of rows: matrix products decide nearly all, float64 the others.

For a squared distance, rows and points are written as two float16 numbers each, `v = (x − shift) · scale ≈ h + l`, and
matrix units compute `|y|² − 2 x · y` from them. A row's limits allow for rounding and for the error of float32 sums: a
number up to the lower limit says that a point lies within the radius, and one beyond the upper limit that it does not.
If one of a tile's points lies between the two, float64 distances decide about the tile; such tiles are few. The chosen
points are therefore those that float64 distances alone would choose, and neither rounding nor a program's shape can
change them.

Targets are whole multiples of a `quantum`, each written as `DIGITS` digits that float16 holds. A second matrix product
sums the digits of the points within the radius. Sums of whole numbers this small are exact in float32, in any order.
The first column of the digits is 1, so its sum is the number of points.
"""

from __future__ import annotations

import numpy as np
import torch
import triton

from ...plan.devices import has_matrix_units
from ...plan.plan import Parameters
from .bounds import MOST_BLOCK_POINTS, centred, grouping, in_groups
from .distances import Metric
from .radius_sums_kernel import (
    BASE,
    DIGITS,
    LENGTHY,
    SLACK_POINTS,
    mean_within_kernel,
    row_limits_kernel,
    sums_within_kernel,
)

BITS = 54
"""The most bits of a target: four digits and all but one bit of the fifth."""

MOST_FEATURES = 64
"""With this many features a block of rows and three of points fit the shared memory of any GPU with matrix units."""

MOST_SUMMED = 2048
"""Points whose digits a program sums; float32 sums stay exact for several times as many."""

MOST_COLUMNS = 64
"""The most sums of a row that a program makes."""

TILE_POINTS = 64
"""Points of a tile. If one of them needs a float64 distance, all of them get one."""

MOST_DOUBTS = 1 / 16
"""The largest share of a row's tiles left to float64; at a larger share another way is as fast."""

FEW_ROWS = 16
"""The rows of one block of the smallest matrix product."""

PROGRAMS = 400
"""Programs that fill a GPU; for few rows twice as many are needed."""

LAUNCHES = 3
"""Kernels that `launch_means` starts."""

SUMS_AT_ONCE = 2**23
"""Sums in memory at a time; more rows are computed part by part."""


def decided_by_products(
    points: np.ndarray, targets: np.ndarray, factor: np.ndarray, radius: float, some: np.ndarray, distance: np.ndarray
) -> bool:
    """Return whether products decide about nearly all points, estimated from a sample of rows.

    Args:
        points: `[points, features]`.
        targets: `[points, outputs]`.
        factor: `[features]`, the weights of the metric.
        radius: the reduced radius.
        some: the sample of rows.
        distance: their reduced distances to the points.
    """
    v, rounding = centred(points, factor, 2.0)
    unit = float(rounding["unit"][0])
    if points.shape[1] > MOST_FEATURES or not (1e-200 < unit < 1e200 and np.isfinite(targets).all()):
        return False
    squares, rows = (np.square(each).sum(axis=1) for each in (v, (some - rounding["shift"]) * rounding["scale"]))
    reach = min(radius, LENGTHY.value**2 / unit) * unit
    doubtful = np.abs(distance * unit - reach) <= (rows[:, None] + squares + reach) * slack_of(points.shape[1])
    pieces = np.logical_or.reduceat(doubtful, np.arange(0, len(points), TILE_POINTS), axis=1)
    return bool(pieces.mean() <= MOST_DOUBTS)


def within_parameters(points: np.ndarray, targets: np.ndarray, factor: np.ndarray) -> dict[str, np.ndarray]:
    """Return the kernels' tables of points and targets, without the factor, the radius and `empty`."""
    count, features = points.shape
    v, rounding = centred(points, factor, 2.0)
    padded = padded_points(count)
    near = np.zeros((padded, 2, padded_width(features)), np.float16)
    high, low = near[:count, 0, :features], near[:count, 1, :features]
    high[:] = v
    low[:] = v - high
    written = high.astype(np.float64) + low
    squares = np.square(written).sum(axis=1)
    norms = np.full(padded, np.inf, np.float32)
    norms[:count] = squares
    slack = np.zeros(padded)
    slack[:count] = squares * slack_of(features)
    digits, quantum = in_digits(targets)
    table = np.zeros((padded, padded_columns(targets.shape[1])), np.float16)
    table[:count, : digits.shape[1]] = digits
    return {
        "columns": in_groups(points),
        **rounding,
        "near": near,
        "norms": norms,
        "slack": slack.reshape(-1, SLACK_POINTS.value).max(axis=1).astype(np.float32) * np.float32(1.001),
        "lost": np.array([np.sqrt(np.square(v - written).sum(axis=1)).max()]),
        "digits": table,
        "quantum": quantum,
    }


def in_digits(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return targets `[points, outputs]` in digits, `[points, 1 + DIGITS · outputs]`, and each output's quantum.

    The first column is 1. Then come the most significant digits of all outputs, and so on.
    """
    exponent = np.frexp(np.abs(targets).max(axis=0))[1]
    rest = np.rint(np.ldexp(targets, BITS - exponent)).astype(np.int64)
    digits = []
    for _ in range(DIGITS.value - 1):
        digit = (rest + BASE.value // 2) % BASE.value - BASE.value // 2
        digits.append(digit)
        rest = (rest - digit) // BASE.value
    return np.hstack([np.ones((len(targets), 1)), rest, *digits[::-1]]), np.ldexp(1.0, exponent - BITS)


def launch_means(
    x: torch.Tensor,
    parameters: Parameters,
    metric: Metric,
    points: int,
    output: torch.Tensor,
) -> None:
    """Launch the kernels that write the mean of the targets of the points within the radius of each row."""
    (rows, features), outputs = x.shape, output.shape[1]
    shape, tiles_each = sums_shape(rows, points, has_matrix_units(x.device))
    block_points = shape["BLOCK_POINTS"]
    tiles = triton.cdiv(points, block_points)
    shares = triton.cdiv(tiles, tiles_each)
    width, columns = padded_width(features), padded_columns(outputs)
    step = max(SUMS_AT_ONCE // (shares * columns), 1)
    written = torch.empty(min(rows, step), 2, width, dtype=torch.float16, device=x.device)
    limits = torch.empty(min(rows, step), 2, dtype=torch.float32, device=x.device)
    sums = torch.empty(min(rows, step), shares, columns, dtype=torch.float32, device=x.device)
    doubts = torch.empty(min(rows, step), tiles, dtype=torch.uint8, device=x.device)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        count = part.stop - start
        row_limits_kernel[(count,)](
            x=x[part],
            **{name: parameters[name] for name in ("shift", "scale", "radius", "unit", "lost")},
            parts=written,
            limits=limits,
            FEATURES=features,
            WIDTH=width,
            SLACK=slack_of(features),
            num_warps=1,
        )
        block_columns = min(columns, MOST_COLUMNS)
        sums_within_kernel[(shares, triton.cdiv(count, shape["BLOCK_ROWS"]), columns // block_columns)](
            **{name: parameters[name] for name in ("near", "norms", "slack", "digits")},
            parts=written,
            limits=limits,
            sums=sums,
            doubts=doubts,
            rows=count,
            tiles=tiles,
            tiles_each=tiles_each,
            shares=shares,
            WIDTH=width,
            COLUMNS=columns,
            BLOCK_COLUMNS=block_columns,
            **shape,
        )
        block_outputs = min(triton.next_power_of_2(outputs), 8)
        mean_within_kernel[(count, triton.cdiv(outputs, block_outputs))](
            x=x[part],
            **{name: parameters[name] for name in ("columns", "factor", "radius", "digits", "quantum", "empty")},
            sums=sums,
            doubts=doubts,
            out=output[part],
            tiles=tiles,
            shares=shares,
            FEATURES=features,
            POINTS=points,
            OUTPUTS=outputs,
            GROUP=grouping(points)[1],
            COLUMNS=columns,
            METRIC=metric,
            BLOCK_POINTS=block_points,
            BLOCK_OUTPUTS=block_outputs,
            enable_fp_fusion=False,  # so that a distance has the reference's bits
            **mean_shape(rows, int(triton.next_power_of_2(1 + DIGITS.value * block_outputs))),
        )


def sums_shape(rows: int, points: int, matrix_units: bool) -> tuple[dict[str, int], int]:
    """Return the block that a program sums at a time, and the number of tiles that it goes through.

    Neither changes an answer. Few rows are shared among many small programs. Without matrix units the products of a
    thread lie in its registers, so a program has more threads.
    """
    few = rows <= FEW_ROWS
    block_rows, warps = ((16, 1) if few else (64, 4)) if matrix_units else (16, 8)
    shape = {"BLOCK_ROWS": block_rows, "BLOCK_POINTS": TILE_POINTS, "num_warps": warps}
    tiles = triton.cdiv(points, TILE_POINTS) * triton.cdiv(rows, block_rows)
    return shape, min(max(triton.cdiv(tiles, PROGRAMS * (2 if few else 1)), 1), MOST_SUMMED // TILE_POINTS)


def mean_shape(rows: int, columns: int) -> dict[str, int]:
    """Return the block of a row's sums that a program processes at a time.

    With enough sums in a program's registers the compiler lets it load many features of a point at once.
    """
    shares = (8192 if rows <= FEW_ROWS else 4096) // columns
    return {"BLOCK_TILES": 2048, "BLOCK_SHARES": shares, "BLOCK_COLUMNS": columns, "UNROLL": 32, "num_warps": 4}


def slack_of(features: int) -> float:
    """Return the bound on the error of float32 sums of products, as a share of the squared norms."""
    return (3 * features + 16) * 2.0**-22


def padded_points(points: int) -> int:
    """Return the point count rounded up to whole tiles."""
    return int(triton.cdiv(points, MOST_BLOCK_POINTS)) * MOST_BLOCK_POINTS


def padded_width(features: int) -> int:
    """Return the features of a row padded to a whole block."""
    return max(16, int(triton.next_power_of_2(features)))


def padded_columns(outputs: int) -> int:
    """Return the columns for the digits of all outputs and the number of points, padded to whole blocks."""
    columns = max(16, int(triton.next_power_of_2(1 + DIGITS.value * outputs)))
    return columns if columns <= MOST_COLUMNS else -(-(1 + DIGITS.value * outputs) // MOST_COLUMNS) * MOST_COLUMNS
