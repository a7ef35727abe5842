"""A kernel function or distance of each row and each stored point: `k(z_r, sᵢ) = f(γ · m(z_r, sᵢ) + c)`.

`z_r = (x_r − shift) · factor`. `x`: `[rows, F]` float32 or float64; `points`: `[P, F]` float64, `sᵢ` in the units of
`z`; `shift`, `factor`: `[F]` float64; `out`: `[rows, P]`. `γ` is `gamma`, `c` is `coef0`; everything is float64.

The metric `m(z, s)`:
    dot                 `z · s`
    cosine              `z · s / (‖z‖ ‖s‖)`, and 0 where either is zero
    squared_euclidean   `‖z − s‖²`
    euclidean           `‖z − s‖`
    manhattan           `Σⱼ |zⱼ − sⱼ|`
    chi2                `Σⱼ (zⱼ − sⱼ)² / (zⱼ + sⱼ)`, where 0 / 0 = 0, NaN for `zⱼ < −1e-9` and less is 0

The profile `f(u)`, with `p` the exponent:
    identity, exp, tanh   as in `functions.py`
    power                 `uᵖ`
    matern_3_2            `(1 + u) exp(−u)`
    matern_5_2            `(1 + u + u² / 3) exp(−u)`
    sine                  `exp(−p sin² u)`
    table                 any smooth function of `u > 0`, as polynomials on pieces; see `table_profile`

These make scikit-learn's kernels: rbf is exp of `−γ · squared_euclidean`, laplacian exp of `−γ · manhattan`, a rational
quadratic the power `−α` of `1 + ‖z − s‖² / (2 α l²)`, and so on.

Differences are taken feature by feature. With many features the products go through the float64 matrix units instead,
and `‖z − s‖² = ‖z‖² − 2 z · s + ‖s‖²` about the points' mean, which is off by some 1e-16 of `‖z‖² + ‖s‖²`; the distance
itself, whose square root would enlarge that, always comes from differences.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from .dots import dot
from .errors import PlanError
from .functions import FUNCTIONS, IN_PLACE, apply_function
from .plan import Operation, Parameters
from .powers import power, torch_power, whole
from .tiles import apply, product

METRICS = ("dot", "cosine", "squared_euclidean", "euclidean", "manhattan", "chi2")
PROFILES = ("identity", "exp", "tanh", "power", "matern_3_2", "matern_5_2", "sine", "table")

MANY_FEATURES = 16
FEW_FEATURES = 3  # of which differences take no longer than a product
MAX_REACH = 1e4  # of the points, in what a profile takes: an error of 1e-16 of it is none
NEGATIVE = tl.constexpr(-1e-9)  # what scaling to [0, 1] may leave of a zero is not yet negative
TINY_NORM = tl.constexpr(10 * 2.0**-52)  # scikit-learn's normalize leaves rows that are shorter as they are

PIECE_BITS = tl.constexpr(50)  # of a float64's 64: what is left of them is the sign, the exponent and two bits
PIECE_MASK = tl.constexpr(2**50 - 1)
FIRST_PIECE = tl.constexpr((1023 - 52) * 4)  # the piece that begins at 2⁻⁵²


@triton.jit
def table_profile(
    u,
    table,  # float64 [PIECES, TERMS]: lowest power first
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
):
    """Return a tabulated function of a float64 block `u ≥ 0`.

    Piece k is a quarter of an octave, from `2^(k // 4 − 52) · (1 + k % 4 / 4)` to where the next begins, and is a
    polynomial in a variable that runs over it from −1 to 1. Below the first piece the function is constant, past the
    last it is zero.
    """
    bits = u.to(tl.int64, bitcast=True)
    piece = (bits >> PIECE_BITS) - FIRST_PIECE
    local = (bits & PIECE_MASK).to(tl.float64) * 1.7763568394002505e-15 - 1.0  # 2⁻⁴⁹
    local = tl.where(piece < 0, -1.0, local)
    piece = tl.where(piece < 0, 0, piece)
    y = tl.zeros_like(u)
    for term in tl.static_range(TERMS):
        at = table + piece * TERMS + (TERMS - 1 - term)
        y = y * local + tl.load(at, mask=piece < PIECES, other=0.0)
    return tl.where(u == u, y, u)


@triton.jit
def pairwise_block(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    norms,  # float64 [POINTS]
    numbers,  # float64 [3]: gamma, coef0, exponent
    table,  # float64 [PIECES, TERMS]
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    EXPANDED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` as float64 `[BLOCK_ROWS, BLOCK_POINTS]`, whatever it may be past the last row or point."""
    m = tl.zeros([row.shape[0], point.shape[0]], tl.float64)
    norm = tl.zeros([row.shape[0]], tl.float64)
    if EXPANDED:
        for start in tl.range(0, FEATURES, BLOCK_FEATURES):
            feature = start + tl.arange(0, BLOCK_FEATURES)
            real = feature < FEATURES
            inside = (row < rows)[:, None] & real[None, :]
            z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
            z -= tl.load(shift + feature, mask=real, other=0.0)[None, :]
            z *= tl.load(factor + feature, mask=real, other=0.0)[None, :]
            inside = real[:, None] & (point < POINTS)[None, :]
            s = tl.load(points + feature.to(tl.int64)[:, None] * POINTS + point[None, :], mask=inside, other=0.0)
            m = dot(z, s, m)
            norm += tl.sum(z * z, axis=1)
        if METRIC == "squared_euclidean":
            m = norm[:, None] - 2.0 * m + tl.load(norms + point, mask=point < POINTS, other=0.0)[None, :]
            m = tl.where(m < 0.0, 0.0, m)
    else:
        for feature in tl.range(0, FEATURES):
            z = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float64)
            z = (z - tl.load(shift + feature)) * tl.load(factor + feature)
            s = tl.load(points + feature * POINTS + point, mask=point < POINTS, other=0.0)
            if METRIC == "dot":
                m += z[:, None] * s[None, :]
            elif METRIC == "cosine":
                m += z[:, None] * s[None, :]
                norm += z * z
            elif METRIC == "manhattan":
                m += tl.abs(z[:, None] - s[None, :])
            elif METRIC == "chi2":
                z = tl.where(z < NEGATIVE, float("nan"), tl.where(z < 0.0, 0.0, z))
                d, total = z[:, None] - s[None, :], z[:, None] + s[None, :]
                m += d * d / tl.where(total == 0.0, 1.0, total)
            else:
                d = z[:, None] - s[None, :]
                m += d * d
    if METRIC == "cosine":
        length = tl.sqrt(norm)
        m = m / tl.where(length < TINY_NORM, 1.0, length)[:, None]
    elif METRIC == "euclidean":
        m = tl.sqrt(m)
    u = m * tl.load(numbers) + tl.load(numbers + 1)
    if PROFILE == "power":
        y = power(u, tl.load(numbers + 2), WHOLE)
    elif PROFILE == "matern_3_2":
        y = (1.0 + u) * tl.exp(-u)
    elif PROFILE == "matern_5_2":
        y = (1.0 + u + u * u / 3.0) * tl.exp(-u)
    elif PROFILE == "sine":
        sine = tl.sin(u)
        y = tl.exp(-tl.load(numbers + 2) * sine * sine)
    elif PROFILE == "table":
        y = table_profile(u, table, PIECES, TERMS)
    else:
        y = apply_function(u, PROFILE)
    return y


@dataclass(frozen=True, eq=False, kw_only=True)
class PointFunction(Operation):
    """What `Pairwise` and `PairwiseAffine` share: the points, and the function of a row and a point."""

    points: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    metric: str
    profile: str
    gamma: float = 1.0
    coef0: float = 0.0
    exponent: float = 1.0
    table: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((1, 1)))

    def check_points(self, features: int) -> None:
        """Raise `PlanError` unless the fields fit a matrix of `features` columns."""
        kind = self.kind()
        if self.points.ndim != 2 or not len(self.points) or self.points.shape[1] != features:
            raise PlanError(f"{kind}: points must be [points, {features}], not {list(self.points.shape)}.")
        for name in ("shift", "factor"):
            if getattr(self, name).shape != (features,):
                raise PlanError(f"{kind}: {name} must be [{features}], not {list(getattr(self, name).shape)}.")
        if self.metric not in METRICS:
            raise PlanError(f"{kind}: metric must be one of {', '.join(METRICS)}, not '{self.metric}'.")
        if self.profile not in PROFILES:
            raise PlanError(f"{kind}: profile must be one of {', '.join(PROFILES)}, not '{self.profile}'.")
        if self.table.ndim != 2 or not self.table.size:
            raise PlanError(f"{kind}: table must be [pieces, terms], not {list(self.table.shape)}.")

    def expanded(self) -> bool:
        """Whether the metric is computed from matrix products."""
        return self.points.shape[1] > MANY_FEATURES and self.metric in ("dot", "cosine", "squared_euclidean")

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the points by columns: about their mean where distances are expanded, of length 1 for the cosine."""
        points, shift = np.array(self.points.T, order="C"), self.shift  # the one copy, changed in place
        if self.metric == "cosine":
            length = np.sqrt(np.einsum("fp,fp->p", points, points))
            points /= np.where(length < TINY_NORM.value, 1.0, length)
        elif self.metric == "squared_euclidean" and self.expanded():
            centre = np.where(self.factor != 0, self.points.mean(axis=0), 0.0)
            points -= centre[:, None]
            shift = shift + centre / np.where(self.factor != 0, self.factor, 1.0)
        return {
            "shift": shift,
            "factor": self.factor,
            "points": points,
            "norms": np.einsum("fp,fp->p", points, points),
            "numbers": np.array([self.gamma, self.coef0, self.exponent], dtype=np.float64),
            "table": self.table,
        }

    def matrix(self, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Return the function of each float64 row and each point, `[rows, points]`, in plain torch.

        Some rows should be given at a time, so that the matrix stays in the cache. A row's bits depend on nothing else.
        """
        points, shift, factor = self._places if x.device.type == "cpu" else (a.to(x.device) for a in self._places)
        z = x.sub(shift).mul_(factor)
        square = (z * z).cumsum(1)[:, -1:]  # which adds in order, however many rows there are
        gamma = self.gamma
        if not self._from_products:
            m = self._differences(z, points)
        elif self.metric in ("dot", "cosine"):
            m = product(z, points)
        else:
            m = product(torch.cat([z, square, torch.ones_like(square)], 1), points)
            if self.metric == "euclidean" or gamma > 0:
                m.clamp_min_(0.0)
            else:
                m.clamp_max_(0.0)
            gamma = gamma if self.metric == "euclidean" else 1.0
        if self.metric == "cosine":
            length = square.sqrt_()
            m.div_(torch.where(length < TINY_NORM.value, 1.0, length))
        elif self.metric == "euclidean":
            m.sqrt_()
        if gamma != 1.0:
            m.mul_(gamma)
        if self.coef0 != 0.0:
            m.add_(self.coef0)
        return apply(lambda u: self._torch_profile(u, parameters["table"]), m)

    @functools.cached_property
    def _from_products(self) -> bool:
        """Whether plain torch computes the metric from a matrix product.

        A squared distance from products is off by some 1e-16 of the points' squares. What is smooth in it does not see
        that; the root of a distance near zero would enlarge it, unless the profile starts out flat.
        """
        if self.metric in ("dot", "cosine") or self.expanded():
            return True
        flat = self.metric == "euclidean" and self.profile in ("matern_3_2", "matern_5_2")
        if len(self.factor) <= FEW_FEATURES or not (flat or self.metric == "squared_euclidean"):
            return False
        reach = float(((self.points - self.points.mean(axis=0)) ** 2).sum(axis=1).max())
        return reach * (self.gamma**2 if flat else abs(self.gamma)) < MAX_REACH

    @functools.cached_property
    def _places(self) -> tuple[torch.Tensor, ...]:
        """Return the points by columns as plain torch reads them, and the rows' shift and factor.

        A product of `[z, |z|², 1]` with them is the squared distance, times gamma where the metric is that.
        """
        points, shift = np.array(self.points.T, order="C"), self.shift
        if self.metric == "cosine":
            length = np.sqrt(np.einsum("fp,fp->p", points, points))
            points /= np.where(length < TINY_NORM.value, 1.0, length)
        elif self._from_products and self.metric != "dot":
            centre = np.where(self.factor != 0, self.points.mean(axis=0), 0.0)
            points -= centre[:, None]
            shift = shift + centre / np.where(self.factor != 0, self.factor, 1.0)
            ones, norms = np.ones(len(self.points)), np.einsum("fp,fp->p", points, points)
            points = np.vstack([-2.0 * points, ones, norms]) * (self.gamma if self.metric != "euclidean" else 1.0)
        return tuple(torch.from_numpy(np.require(array, requirements="W")) for array in (points, shift, self.factor))

    def _differences(self, z: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the metric, or its square, from the differences of rows and points, feature by feature."""
        if self.metric == "chi2":
            z = torch.where(z < NEGATIVE.value, torch.nan, torch.clamp_min(z, 0.0))
        m = torch.zeros(len(z), points.shape[1], dtype=torch.float64, device=z.device)
        term = torch.empty_like(m)
        for column, s in zip(z.T[:, :, None], points, strict=True):
            torch.sub(column, s, out=term)
            if self.metric == "manhattan":
                term.abs_()
            else:
                term.mul_(term)
            if self.metric == "chi2":
                total = column + s
                term.div_(torch.where(total == 0, 1.0, total))
            m.add_(term)
        return m

    def _torch_profile(self, u: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        match self.profile:
            case "power":
                return torch_power(u, self.exponent)
            case "matern_3_2":
                return (1.0 + u) * torch.exp(-u)
            case "matern_5_2":
                return (1.0 + u + u * u / 3.0) * torch.exp(-u)
            case "sine":
                return torch.exp(-self.exponent * torch.sin(u) ** 2)
            case "table":
                bits = u.view(torch.int64)
                piece = (bits >> PIECE_BITS.value) - FIRST_PIECE.value
                local = torch.where(piece < 0, -1.0, (bits & PIECE_MASK.value).double() * 2.0**-49 - 1.0)
                y = torch.zeros_like(u)
                for terms in torch.cat([table, table.new_zeros(1, table.shape[1])]).T.flip(0):
                    y = y * local + terms[piece.clamp(0, len(table))]
                return torch.where(u == u, y, u)
        return IN_PLACE.get(self.profile, FUNCTIONS[self.profile])(u)

    def constants(self) -> dict[str, object]:
        """Return the compile-time arguments of `pairwise_block`."""
        (points, features), (pieces, terms) = self.points.shape, self.table.shape
        return {
            "FEATURES": features,
            "POINTS": points,
            "METRIC": self.metric,
            "PROFILE": self.profile,
            "WHOLE": whole(self.exponent),
            "PIECES": pieces,
            "TERMS": terms,
            "EXPANDED": self.expanded(),
            "BLOCK_FEATURES": 16 if features <= 16 else 32,
        }

    def block(self) -> tuple[int, int]:
        """Return the rows and points of a block; matrix products want it square, single features few rows."""
        return (64, 64) if self.expanded() else (16, 128)

    def warps(self) -> int:
        """Return the warps of a program: such that a thread's registers hold its share of a block."""
        return 8 if self.expanded() else 4

    def what(self) -> str:
        """Return the function and the points in a few words."""
        shown = "" if self.profile == "identity" else f"{self.profile} of "
        return f"{shown}{self.metric.replace('_', ' ')} to {len(self.points)} points"
